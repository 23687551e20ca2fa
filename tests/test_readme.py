"""The README tells the truth: its code is the example's, its commands exist, its links lead on."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from auxlearn.cli import cli

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def commands() -> list[str]:
    return [
        line.removesuffix("\\")
        for path in DOCUMENTS
        for block in blocks(path, "console")
        for line in block.splitlines()
        if line.startswith("auxlearn ")
    ]


def test_the_task_of_the_readme_is_the_example():
    example = ast.parse((ROOT / "examples" / "rare_first.py").read_text())
    del example.body[0]  # its docstring
    shown = [block for block in blocks(ROOT / "README.md", "python") if "register_task" in block]
    assert [ast.dump(ast.parse(block)) for block in shown] == [ast.dump(example)]


def test_files_that_the_documentation_names_are_there():
    pattern = re.compile(r"`((?:auxlearn|tests|benchmarks|configs|examples)/[\w./-]+)`")
    named = [(path, name) for path in DOCUMENTS for name in pattern.findall(path.read_text())]
    assert len(named) > 10
    for path, name in named:
        if not re.search("[A-Z]{4}", name):  # NAME stands for several
            assert (ROOT / name).exists(), f"{path.name}: {name}"


def test_there_are_commands_to_check():
    assert len(commands()) >= 5


@pytest.mark.parametrize("line", commands())
def test_every_command_shown_can_be_parsed(line):
    name, *arguments = shlex.split(line)[1:]
    if name in ("--help", "--version"):
        return
    with click.Context(cli) as context:
        command = cli.get_command(context, name)
        assert command is not None, f"there is no command '{name}'"
        while isinstance(command, click.Group):
            name, *arguments = arguments
            command = command.get_command(context, name)
            assert command is not None
        command.make_context(name, list(arguments), parent=context)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_local_links_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    missing = [
        target
        for target in targets
        if not target.startswith("http") and not (path.parent / target).exists()
    ]
    assert not missing
