"""The documentation is true: its code runs, its commands parse, its links and names exist.

Training itself is replaced: ``auxlearn.train`` resolves its configuration and returns made-up
results. All else in a Python block runs as it stands.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import importlib
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import auxlearn
from auxlearn.commands.options import run_config
from auxlearn.core.config import RunConfig
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS
from auxlearn.core.validation import validate
from auxlearn.evaluation.evaluator import Classifier
from auxlearn.results.folder import RunFolder
from auxlearn.results.record import Evaluations, RunResults
from auxlearn.sweeps.sweep_file import Search, SweepFile, read_sweep
from auxlearn.training import train as train_module
from auxlearn.weighting.base import ValidationOptions
from tests import helpers
from tests.cli.helpers import call, parse
from tests.results import examples

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "RESULTS.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
TEXTS = {path: path.read_text(encoding="utf-8") for path in DOCUMENTS}
README = TEXTS[ROOT / "README.md"]
#: Pages whose Python blocks are cells that share their names; ``test_notebooks.py`` tests those.
NOTEBOOKS = [path for path, text in TEXTS.items() if text.startswith("---\njupyter:\n")]
#: Languages of code blocks that are not run: py is for files of the package, shown as they are.
OTHER = {"py", "text", "bibtex"}


@pytest.fixture(scope="module")
def pages():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        yield importlib.import_module("gen_pages")


@pytest.fixture(scope="module")
def generated(pages):
    return pages.generated_pages()


def title(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def of_documents(language: str, without: Sequence[Path] = ()) -> list:
    return [
        pytest.param(block, id=f"{title(path)}-{number}")
        for path, text in TEXTS.items()
        if path not in without
        for number, block in enumerate(blocks(text, language))
    ]


def commands(block: str) -> Iterator[str]:
    return (line for line in block.replace("\\\n", " ").splitlines() if line.strip())


# ------------------------------------------------------------------------------------------ Python


@pytest.fixture
def no_training(monkeypatch, tmp_path):
    """Replace what takes long: training, and the use of a trained model."""

    def train(config: RunConfig, *_: object) -> RunResults:
        resolved = config.resolved()
        return examples.results(*resolved.objective_names()[1:])

    helpers.only_builtin_plugins(monkeypatch)  # their modules import the real transformers
    answer = {"label": "yes", "score": 0.75}
    classifier = SimpleNamespace(
        label_names=("no", "yes"),
        thresholds=None,
        notes=[],
        outputs=lambda texts, *_: np.full((len(texts), 2), 0.5),
    )
    made = examples.results("l3mask")
    scores = Evaluations({"pydocs": made.evaluations["test"]})
    monkeypatch.setattr("auxlearn.evaluation.finished.evaluate", lambda *_, **__: scores)
    for module in ("evaluation.predict", "results.folder"):
        monkeypatch.setattr(f"auxlearn.{module}.finished_folder", lambda run: tmp_path)
    monkeypatch.setattr("auxlearn.evaluation.predict.model_of", lambda run: run)
    monkeypatch.setattr(RunFolder, "read_config", lambda folder: RunConfig())
    monkeypatch.setattr(train_module, "train_resolved", train)
    stub = SimpleNamespace(pipeline=lambda *args, **kwargs: lambda text: [answer])
    monkeypatch.setitem(sys.modules, "transformers", stub)
    monkeypatch.setattr(Classifier, "of_run", lambda folder: classifier)
    monkeypatch.setattr(RunResults, "load", lambda folder: replace(made, folder=tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("block", of_documents("python", without=NOTEBOOKS))
def test_python_blocks_run(block, no_training):
    exec(compile(block, "block", "exec"), {"__name__": "__docs__"})


def test_the_output_shown_in_the_readme_has_the_form_of_the_real_one(no_training, capsys):
    shown = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
    assert shown
    for code, output in shown:
        exec(compile(code, "block", "exec"), {"__name__": "__docs__"})
        made, said = (
            re.sub(r"\d+\.\d+|\b(yes|scipy)\b", "#", one)
            for one in (capsys.readouterr().out, output)
        )
        assert made == said


def test_documents_show_the_examples_as_they_are(pages):
    shown = []
    for text in TEXTS.values():
        shown += re.findall(r"<!-- (examples/.*) -->\n```python", text)
        assert pages.with_examples(text) == text, "run `python docs/gen_pages.py`"
    assert shown.count("examples/long_first.py") >= 2
    tasks = TEXTS[ROOT / "docs" / "tasks" / "index.md"]
    assert len(re.findall(r"<!-- auxlearn/tasks/\w+\.py -->\n```py\n", tasks)) == 3
    example = ast.parse((ROOT / "examples" / "long_first.py").read_text(encoding="utf-8"))
    del example.body[0]  # its docstring
    assert ast.dump(example) in [ast.dump(ast.parse(one)) for one in blocks(README, "python")]


PLUGINS = {
    block
    for text in TEXTS.values()
    for block in blocks(text, "python")
    if re.search("@register_(task|loss|weighting)", block)
}


@pytest.mark.slow
@pytest.mark.parametrize("block", sorted(PLUGINS))
def test_plugins_of_the_documents_pass_their_checks(block, tmp_path, monkeypatch):
    helpers.only_builtin_plugins(monkeypatch)
    path = tmp_path / "plugin.py"
    path.write_text(block, encoding="utf-8")
    found = call("check", path)
    assert found.exit_code == 0, found.output


# ---------------------------------------------------------------------------------------- commands


def check_command(line: str) -> None:
    """Parse a command of a document with the parser that would get it."""
    words = shlex.split(line)
    match words[:3]:
        case ["auxlearn", *_]:
            check_auxlearn(words[1:])
        case ["torchrun", *_] | ["accelerate", "launch", *_]:
            assert words[words.index("-m") + 1] == "auxlearn"
            check_auxlearn(words[words.index("-m") + 2 :])
        case ["make", *targets]:
            rules = (ROOT / "Makefile").read_text(encoding="utf-8")
            for target in targets:
                assert re.search(rf"^{target}:", rules, re.MULTILINE), line
        case ["python", "-m", module] if module.startswith("benchmarks."):
            check_arguments(module, words[3:])
        case ["python", script, *_] if script.startswith(("examples/", "scripts/")):
            check_arguments(script, words[2:])
        case ["pip", "install", *_]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
            extras = re.findall(r"\[([\w,-]+)\]", line)
            known = project["project"]["optional-dependencies"]
            assert all(extra in known for found in extras for extra in found.split(",")), line
        case ["pre-commit", "install"]:
            assert (ROOT / ".pre-commit-config.yaml").is_file()
        case _:
            raise AssertionError(f"no test knows the command {line!r}")


def check_auxlearn(words: list[str]) -> None:
    """Parse a command of the program, options of tasks and weightings included."""
    if words[0] in ("--help", "--version"):
        return
    parsed = parse(shlex.join(["auxlearn", *words]))
    if words[0] != "train":
        return
    given = dict(parsed.params)
    file = given.pop("config_file")
    for own in ("with_report", "jobs"):  # of `train`, no settings of the run
        given.pop(own)
    named = given.get("plugins", ())
    plugins = [ROOT / path for path in named if (ROOT / path).exists()]
    if len(plugins) == len(named):  # a file that the reader writes is not here
        given["plugins"] = tuple(map(str, plugins))
        written = file is not None and not (ROOT / file).exists()  # by the reader
        config = run_config(None if written else file, given, [] if written else parsed.args)
        config.resolved()


class Parsed(Exception):
    """An argument parser has taken its arguments."""


def check_arguments(program: str, arguments: list[str]) -> None:
    """Parse arguments with the parser of a script or module, and stop there."""
    original = argparse.ArgumentParser.parse_args

    def parse(parser, *args, **kwargs):
        original(parser, arguments)
        raise Parsed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse)
        patch.setattr(sys, "argv", [program, *arguments])
        helpers.only_builtin_plugins(patch)
        # runpy warns of a module that is imported. A package stays: imported again, it would be
        # another object than the one that its submodules belong to.
        package = (ROOT / program.replace(".", "/")).is_dir()
        patch.delitem(sys.modules, f"{program}.__main__" if package else program, raising=False)
        script = program.endswith(".py")
        start = runpy.run_path if script else runpy.run_module
        with pytest.raises(Parsed):
            start(str(ROOT / program) if script else program, run_name="__main__")


@pytest.mark.parametrize("block", of_documents("console"))
def test_console_blocks_hold_commands_that_parse(block):
    found = list(commands(block))
    assert found
    for line in found:
        check_command(line)


@pytest.mark.parametrize("block", of_documents("bash"))
def test_scripts_are_of_bash_and_start_commands_that_parse(block):
    done = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = [one for one in commands(block) if one.startswith("srun ")]
    # What SLURM says is a number, or the name of a machine.
    check_command(re.sub(r"\$\w+", "2", line.removeprefix("srun ")))


def test_commands_in_running_text_parse():
    lines = {
        line
        for text in TEXTS.values()
        for line in re.findall(r"`(auxlearn [a-z][^`]*|make [a-z-]+)`", text)
        if not re.search(r"[A-Z]{3}|\.\.\.", line)  # NAME stands for something
    }
    assert len(lines) > 10
    for line in lines:
        if len(line.split()) > 2 or line.startswith("make"):
            check_command(line)


# -------------------------------------------------------------------------------------------- YAML


@pytest.mark.parametrize("block", of_documents("yaml"))
def test_yaml_blocks_are_configurations(block, tmp_path):
    values = yaml.safe_load(block)
    if set(values) <= set(RunConfig.model_fields):
        validate(RunConfig, values, "block").resolved()
    elif set(values) == {"search"}:
        validate(Search, values["search"], "block")
    else:
        assert set(values) <= set(SweepFile.model_fields)
        path = tmp_path / "sweep.yaml"
        path.write_text(block, encoding="utf-8")
        read_sweep(path)


# ---------------------------------------------------------------------------- blocks, links, names


def test_every_code_block_is_of_a_language_that_is_tested():
    found = set()
    for path, text in TEXTS.items():
        fences = re.findall(r"^```(.*)$", text, re.MULTILINE)
        assert len(fences) % 2 == 0, title(path)
        assert not any(fences[1::2]), title(path)
        found |= set(fences[::2])
    assert {"python", "console", "yaml", "bash"} <= found
    assert found <= {"python", "console", "yaml", "bash", "toml"} | OTHER


@pytest.mark.parametrize("block", of_documents("toml"))
def test_entry_points_name_groups_that_are_read(block):
    groups = tomllib.loads(block)["project"]["entry-points"]
    assert set(groups) <= {TASKS.group, LOSSES.group, WEIGHTINGS.group}


def test_files_that_the_documentation_names_are_there():
    pattern = re.compile(r"`((?:auxlearn|tests|benchmarks|configs|examples|docs)/[\w./-]+)`")
    named = [(path, name) for path, text in TEXTS.items() for name in pattern.findall(text)]
    assert len(named) > 10
    for path, name in named:
        if not re.search("[A-Z]{4}", name.replace("RESULTS.md", "")):  # NAME stands for several
            assert (ROOT / name).exists(), f"{title(path)}: {name}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=title)
def test_local_links_lead_somewhere(path, generated):
    made = {ROOT / "docs" / page for page in generated}
    targets = re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", TEXTS[path])
    local = [(path.parent / target).resolve() for target in targets]
    assert not [target for target in local if not target.exists() and target not in made]


# ------------------------------------------------------------------------------------------- cards


def test_every_task_loss_and_weighting_has_a_card_and_a_page(pages, generated):
    names = {*TASKS._builtin, *LOSSES._builtin, *WEIGHTINGS._builtin}
    assert set(pages.cards()) == names
    for name in names:
        said = pages.cards()[name]
        assert said["when"]
        assert said["cost"]
        assert re.match(r"https://", said["source"]["url"])
        text = pages.card(name)
        for option, field in pages.registry_of(name).get(name).Options.model_fields.items():
            assert f"| `{option}` |" in text
            assert " ".join(field.description.split()) in text
        for block in blocks(text, "console"):
            for line in commands(block):
                check_command(line)
    for folder, registry in (("tasks", TASKS), ("losses", LOSSES), ("weightings", WEIGHTINGS)):
        for name in registry._builtin:
            page = f"{folder}/{name}.md"
            by_hand = ROOT / "docs" / page
            assert (page in generated) != by_hand.exists()
            assert not by_hand.exists() or f"<!-- card: {name} -->\n" in TEXTS[by_hand]


def test_validation_data_of_the_cards_is_what_the_rules_take(pages):
    for name in WEIGHTINGS._builtin:
        learns = issubclass(WEIGHTINGS.get(name).Options, ValidationOptions)
        assert bool(pages.cards()[name].get("validation")) == learns, name


def test_every_marker_is_filled(pages):
    texts = "".join(TEXTS.values())
    assert [name for name in pages.TABLES if f"<!-- {name} -->\n" not in texts] == []
    for name in pages.TABLES:
        assert "| --- |" in pages.filled(f"<!-- {name} -->\n")
    settings = pages.filled("<!-- settings -->\n")
    assert all(f"| `{name}` |" in settings for name in RunConfig.model_fields)


def test_docstrings_become_markdown(pages):
    from gen_rest import markdown

    assert markdown("a :math:`x_i` b") == "a $x_i$ b"
    assert markdown(".. math:: a = b\n\nend") == "$$\na = b\n$$\n\nend"
    linked = markdown(":class:`~auxlearn.data.batches.Batch`")
    assert 'identifier="auxlearn.data.batches.Batch"' in linked
    assert "<code>Batch</code>" in linked


def test_the_citation_has_the_version_of_the_package():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == auxlearn.__version__
    links = re.findall(r"https://[^)\s]+", README)
    assert {reference["url"] for reference in cited["references"]} <= set(links)


# --------------------------------------------------------------------------------------- docstrings

WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "auxlearn").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
assert len(WITH_EXAMPLES) >= 10


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted, f"{name}: doctest finds no example"
    assert results.failed == 0
