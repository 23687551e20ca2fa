"""Every example of the help runs: in this process, on a small data set, with a tiny encoder."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import click
import pytest
import yaml

from auxlearn import RunConfig, train
from auxlearn.cli import COMMANDS, cli
from auxlearn.commands.options import ExampleCommand
from auxlearn.core.registry import EXECUTORS
from tests import helpers
from tests.cli.helpers import call
from tests.sweeps.conftest import InlineOfSweep, write_dataset

EXAMPLE_FILES = Path(__file__).parents[2] / "examples"

#: Options added to the examples of a command, so that they take a moment.
SHORT = {
    "train": ["--dataset", "data/reviews", "--encoder", "encoder", "--epochs", "1"],
    "pretrain": ["--encoder", "encoder", "--steps", "2", "--batch-size", "4"],
}


def commands() -> dict[str, ExampleCommand]:
    """Every command by its name, such as ``data check``."""
    found = {}
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        inner = command.commands.items() if isinstance(command, click.Group) else [("", command)]
        found |= {f"{name} {sub}".strip(): one for sub, one in inner}
    return found


EXAMPLES = [(name, example) for name, command in commands().items() for example in command.examples]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, one_layer) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "encoder").symlink_to(one_layer)
    labels = {"method": "approach", "result": "finding"}
    changes = {"reviews": {}, "other_reviews": {}, "columns": {"text": "body"}, "renamed": labels}
    for name, names in changes.items():
        for path in write_dataset(folder / "data" / name).iterdir():
            for old, new in names.items():
                path.write_text(path.read_text().replace(f'"{old}"', f'"{new}"'))
    (folder / "texts.txt").write_text("\n".join(helpers.LINES))
    hans = "gold_label\tsentence1\tsentence2\nentailment\ta b\ta\nnon-entailment\ta b\tb a\n"
    (folder / "heuristics_evaluation_set.txt").write_text(hans)
    (folder / "new.csv").write_text("\n".join(["id,body", *(f"{n},x" for n in range(3))]))
    shutil.copytree(EXAMPLE_FILES, folder / "examples")
    shutil.copy(EXAMPLE_FILES / "long_first.py", folder / "my_task.py")
    base = {"dataset": "data/reviews", "encoder": "encoder", "epochs": 1, "device": "cpu"}
    grid = {"method": {"single task": {"aux": []}, "MLM": {"aux": ["random_mlm"]}}}
    sweep = {"name": "reviews", "base": base, "grid": grid, "seeds": 2}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    with pytest.MonkeyPatch.context() as patch:
        run_cheaply(patch, folder)
        train(RunConfig(**base, aux=["mask_tuning"], output="runs/mask_tuning"))
        train(RunConfig(**base, aux=["random_mlm"], output="runs/reviews"))
        assert call("sweep", "sweep.yaml").exit_code == 0
    return folder


def run_cheaply(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Run commands in a folder, with trials in this process and without plots."""
    patch.chdir(folder)
    patch.setattr("auxlearn.comparison.plots.plot_comparison", lambda *_: [])
    for name in ("local", "slurm"):
        EXECUTORS.get(name)
        patch.setitem(EXECUTORS._registered, name, InlineOfSweep)
    helpers.only_builtin_plugins(patch)


def test_every_command_has_examples():
    found = commands()
    assert len(found) == 15
    for name, command in found.items():
        assert command.examples, name
        for example in command.examples:
            assert example.line.startswith(f"auxlearn {name}")


#: All checks of a plug-in, which the tests of the checks run, are made once in every run of tests.
SLOW = "auxlearn check l3mask --score surprisal"


@pytest.mark.parametrize(
    ("name", "example"),
    [
        pytest.param(*one, marks=pytest.mark.slow if one[1].line == SLOW else (), id=one[1].line)
        for one in EXAMPLES
    ],
)
def test_an_example_of_the_help_runs(workspace, monkeypatch, name, example):
    run_cheaply(monkeypatch, workspace)
    result = call(*shlex.split(example.line)[1:], *SHORT.get(name, []))
    assert result.exit_code == 0, result.output
    assert result.stdout
    if "--json" in example.line:
        documents = result.stdout.splitlines() if name == "predict" else [result.stdout]
        assert all(json.loads(document) for document in documents)


def test_the_help_shows_the_examples_before_the_options():
    line = "auxlearn try" + " --option value" * 12
    command = ExampleCommand("try", help=f"Try.\n\nExamples:\n    # What it does\n    {line}")
    with click.Context(command, info_name="try", max_content_width=100) as context:
        text = command.get_help(context)
    assert f"Try.\n\nExamples:\n  # What it does\n  {line}\n\nOptions:" in text
