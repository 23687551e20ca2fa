"""Every example of the help runs: in this process, on a small data set, with a tiny encoder."""

from __future__ import annotations

import inspect
import json
import shlex
import shutil
from pathlib import Path

import click
import pytest
import yaml

from auxlearn import RunConfig, train
from auxlearn.cli import COMMANDS, cli
from auxlearn.core.registry import EXECUTORS
from tests import helpers
from tests.cli.helpers import call
from tests.sweeps.conftest import InlineOfSweep, write_dataset

EXAMPLE_FILES = Path(__file__).parents[2] / "examples"

#: Options that the examples of a command have here, so that they take a moment.
SHORT = {
    "train": {"--dataset": "data/reviews", "--encoder": "encoder", "--epochs": "1"},
    "pretrain": {"--encoder": "encoder", "--steps": "2", "--batch-size": "4"},
}


def commands() -> dict[str, click.Command]:
    """Every command by its name, such as ``data check``."""
    found = {}
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        inner = command.commands.items() if isinstance(command, click.Group) else [("", command)]
        found |= {f"{name} {sub}".strip(): one for sub, one in inner}
    return found


def examples(command: click.Command) -> list[str]:
    """The command lines that the help shows, each after a line that says what it does."""
    shown = (
        inspect.cleandoc(command.help).partition("Examples:\n")[2].replace("\\\n", "").splitlines()
    )
    assert shown
    assert all(title.startswith("    # ") for title in shown[::2])
    return [" ".join(line.split()) for line in shown[1::2]]


EXAMPLES = [(name, line) for name, command in commands().items() for line in examples(command)]


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
    patch.setattr("auxlearn.reports.page.MOST_PLOTS", 0)
    patch.setattr("auxlearn.comparison.plots.plot_comparison", lambda *_: [])
    for name in ("local", "slurm"):
        EXECUTORS.get(name)
        patch.setitem(EXECUTORS._registered, name, InlineOfSweep)
    helpers.only_builtin_plugins(patch)


def test_every_command_has_examples():
    assert len({name for name, _ in EXAMPLES}) == len(commands()) == 15
    for name, line in EXAMPLES:
        assert line.startswith(f"auxlearn {name}")


#: All checks of a plug-in, which the tests of the checks run, are made once in every run of tests.
SLOW = "auxlearn check l3mask --score surprisal"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        pytest.param(name, line, marks=pytest.mark.slow if line == SLOW else (), id=line)
        for name, line in EXAMPLES
    ],
)
def test_an_example_of_the_help_runs(workspace, monkeypatch, name, line):
    run_cheaply(monkeypatch, workspace)
    words = shlex.split(line)[1:]
    for flag, value in SHORT.get(name, {}).items():
        if flag in words:
            words[words.index(flag) + 1] = value
        else:
            words += [flag, value]
    result = call(*words)
    assert result.exit_code == 0, result.output
    assert result.stdout
    if "--json" in line:
        documents = result.stdout.splitlines() if name == "predict" else [result.stdout]
        assert all(json.loads(document) for document in documents)
