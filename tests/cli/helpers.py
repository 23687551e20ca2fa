"""Helpers of the command-line tests."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import click
from click.testing import CliRunner, Result

from auxlearn.cli import cli
from auxlearn.core.config import RunConfig
from auxlearn.core.files import write_text
from auxlearn.encoders.load import load_encoder
from tests.results import examples

#: Maximum length of the run of :func:`write_run`.
MAX_LENGTH = 24


def call(*arguments: object, typed: str | None = None, fault: bool = False) -> Result:
    """Run ``auxlearn`` in this process; an unforeseen error fails the test, unless expected."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], input=typed)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert (result.exit_code == 70) == fault, result.output
    return result


def error(*arguments: object) -> str:
    """Run ``auxlearn``, which must fail with one line, and return it."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: "), result.stderr
    return line.removeprefix("error: ")


def parse(line: str) -> click.Context:
    """Parse a command line with the real options, without running the command."""
    name, *arguments = shlex.split(line)[1:]
    context, command = click.Context(cli), cli.get_command(click.Context(cli), name)
    assert command is not None, f"there is no command '{name}'"
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.get_command(context, name)
        assert command is not None, f"there is no command '{name}'"
    return command.make_context(name, list(arguments), parent=context)


def write_run(folder: Path, encoder: Path, **settings: object) -> Path:
    """Write the folder of a finished run of an untrained encoder with classes "no" and "yes"."""
    config = RunConfig(encoder=str(encoder), max_length=MAX_LENGTH, **settings).resolved()
    write_text(folder / "config.yaml", config.to_yaml())
    load_encoder(str(encoder), examples.LABELS, seed=1).save(folder / "model", MAX_LENGTH)
    replace(examples.results(), digest=config.digest).save(folder)
    return folder


def write_split(path: Path, rows: list[tuple[str, str]], header: str = "text\tlabel") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [header, *("\t".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
