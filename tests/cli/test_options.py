"""Options of commands are made of classes of settings: of a run, or of a function's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import click
from click.testing import CliRunner
from pydantic import Field

from auxlearn.commands.options import options_of, run_config
from auxlearn.core.arguments import Count, UserPath, checked
from auxlearn.core.validation import Option


@checked
def measure(
    *runs: UserPath,
    names: Annotated[Sequence[str], Option("OLD=NEW", "--name")] = (),
    level: Literal["word", "text"] = "word",
    steps: Count = 10,
    share: Annotated[float, Field(gt=0)] | None = None,
    output: UserPath | None = None,
    whole: bool = False,
) -> dict[str, object]:
    """Measure runs.

    Args:
        runs: Folders of runs.
        names: Names to show, such as ``a``; by default
            all.
        level: What a row is.
        steps: Number of steps.
        share: Share of the texts.
        output: File for the rows.
        whole: Show everything.

    Returns:
        What was given.
    """
    given = {"names": names, "level": level, "steps": steps, "share": share}
    return {"runs": runs, "output": output, "whole": whole, **given}


@click.command()
@options_of(measure, level="?")
def command(**given: object) -> None:
    """Measure."""
    click.echo(repr(given))


def test_options_have_type_default_and_help_of_the_parameters():
    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert "--name OLD=NEW Names to show, such as a; by default all; repeatable." in text
    assert "--level [word|text] ? [default: word]" in text
    assert "--steps INTEGER Number of steps. [default: 10]" in text
    assert "--share FLOAT Share of the texts." in text
    assert "--output PATH File for the rows." in text
    assert "--whole Show everything." in text


def test_only_what_is_given_is_passed_on():
    assert CliRunner().invoke(command, []).output == "{}\n"
    given = ["--name", "a", "--name", "b", "--steps", "3", "--whole"]
    expected = {"names": ("a", "b"), "steps": 3, "whole": True}
    assert CliRunner().invoke(command, given).output == f"{expected!r}\n"


def test_further_sets_of_the_command_line_replace_those_of_the_file(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("ood: [{dataset: data/hans, decision: argmax}]\nmax_length: 64\n")
    kept = run_config(file, {"seed": 3}, [])
    assert [(one.name, one.decision) for one in kept.ood] == [("hans", "argmax")]
    given = run_config(file, {"ood": ("data/imdb_cad", "anli")}, [])
    sets = {one.name: one.dataset for one in given.ood}
    assert sets == {"imdb_cad": "data/imdb_cad", "anli": "anli"}
    assert given.max_length == 64
