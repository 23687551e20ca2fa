"""Imports run one way, and each outside library comes in at one place."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import auxlearn
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS

PACKAGE = Path(auxlearn.__file__).parent

#: Lower layers first. A module imports from its own room, from lower layers, and within its layer
#: from the rooms on the left.
LAYERS = (
    ("core",),
    ("kinds", "data"),
    ("encoders", "scoring"),
    ("objectives", "tasks", "losses", "weighting"),
    ("executors", "results", "evaluation"),
    ("training",),
    ("mask_analysis", "sweeps", "comparison", "reports"),
    ("plugins", "testing", "commands", "cli", "__main__"),
)
ROOMS = [f"auxlearn.{room}" for layer in LAYERS for room in layer]


def test_windows_is_refused_in_one_line():
    code = "import sys; sys.platform = 'win32'; import auxlearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    expected = "ImportError: auxlearn runs on Linux and macOS: on Windows, install it in WSL"
    assert done.stderr.splitlines()[-1] == expected


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache  # read by the worker that has these tests alone
def modules():
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in PATHS.items()}


def names_imported(tree):
    """Every module that a module imports, at any depth; what is for type checkers only is not."""
    found = set()

    def visit(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in PATHS else node.module)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


@cache
def imports():
    return {name: names_imported(tree) for name, tree in modules().items()}


def layer(module):
    """Return the place of a module's room from below; ``None`` for the package itself."""
    for number, room in enumerate(ROOMS):
        if module == room or module.startswith(f"{room}."):
            return number
    return None


def importers(library):
    return {
        name
        for name, imported in imports().items()
        if any(other == library or other.startswith(f"{library}.") for other in imported)
    }


def test_there_is_something_to_check():
    assert len(PATHS) > 40
    assert sum(len(imported) for imported in imports().values()) > 200
    assert [name for name in PATHS if layer(name) is None] == ["auxlearn"]
    for room in ROOMS:
        assert room in PATHS, f"{room} is no module any more"


def test_imports_run_one_way():
    checked, wrong = 0, []
    for module, imported in imports().items():
        for other in imported:
            if layer(module) is not None and layer(other) is not None:
                checked += 1
                if layer(other) > layer(module):
                    wrong.append(f"{module} imports {other}")
    assert wrong == []
    assert checked > 100, f"only {checked} imports were checked"


def test_no_module_imports_itself_in_a_circle():
    ours = {
        name: {other for other in imported if other in PATHS and other != "auxlearn"}
        for name, imported in imports().items()
    }
    order = list(TopologicalSorter(ours).static_order())  # raises CycleError with the circle
    assert len(order) == len(PATHS)


#: Modules that a single module of their own room imports, and why they are files of their own.
ALONE = {
    "auxlearn.comparison.folds": "folds of a cross-validation, which are no seeds",
    "auxlearn.data.pydocs.docstrings": "the reader, which the script that builds tiny shares",
    "auxlearn.kinds.biaffine": "a module of torch, which the kinds import when it is used",
    "auxlearn.reports.texts": "reads data sets",
    "auxlearn.scoring.forward": "the forward passes, apart from what is scored with them",
    "auxlearn.training.whole_runs.paired": "statistics of paired predictions",
    "auxlearn.tasks.l3mask": "a strategy, whose options entropy shares",
    "auxlearn.testing.check_base": "what the checks share",
    "auxlearn.weighting.meta_options": "settings",
    "auxlearn.weighting.tartan": "META-TARTAN, which aang extends",
    "auxlearn.weighting.unrolling": "the one user of higher",
}

#: Most lines of each room. One that grows has a line in the changelog that says what for:
#: "- `auxlearn/ROOM/` grows by N lines: WHAT THEY ARE FOR".
BUDGETS = {
    "core": 3327,
    "kinds": 2819,
    "data": 4746,
    "encoders": 2157,
    "scoring": 749,
    "objectives": 995,
    "tasks": 2184,
    "losses": 1332,
    "weighting": 2808,
    "results": 2735,
    "executors": 684,
    "evaluation": 962,
    "training": 4384,
    "mask_analysis": 752,
    "sweeps": 1359,
    "comparison": 2986,
    "reports": 662,
    "testing": 863,
    "commands": 1770,
    "root": 335,
}


def test_a_file_with_one_reader_has_a_reason():
    importers_of = {name: importers(name) - {name} for name in PATHS}
    alone = {
        name
        for name, found in importers_of.items()
        if len(found) == 1 and next(iter(found)).rpartition(".")[0] == name.rpartition(".")[0]
    } - {"auxlearn.cli"}
    assert alone == set(ALONE)


GROWTH = re.compile(r"^- `auxlearn/(\w+)/` grows by (\d+) lines: \S", re.MULTILINE)


def test_rooms_keep_their_budgets():
    budgets, lines = dict(BUDGETS), dict.fromkeys(BUDGETS, 0)
    unreleased = (PACKAGE.parent / "CHANGELOG.md").read_text("utf-8").split("\n## ")[1]
    for room, count in GROWTH.findall(unreleased):
        budgets[room] += int(count)
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        lines[room if room in BUDGETS else "root"] += len(path.read_text("utf-8").splitlines())
    assert {room: count for room, count in lines.items() if count > budgets[room]} == {}


def test_weighting_stands_on_core_alone():
    inside = {name for name in PATHS if name.startswith("auxlearn.weighting.")}
    assert len(inside) > 15
    foreign = {
        other
        for name in inside
        for other in imports()[name]
        if other.startswith("auxlearn.") and other.split(".")[1] not in ("core", "weighting")
    }
    assert foreign == set()


def test_the_table_of_rooms_is_that_of_the_code():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for number, rooms in enumerate(LAYERS, 1):
        for room in rooms:
            path = PACKAGE / room
            if path.is_dir():
                sentence = ast.get_docstring(modules()[f"auxlearn.{room}"]).splitlines()[0]
                said = sentence[0].lower() + sentence[1:].rstrip(".")
                assert f"| {number} | `auxlearn/{room}/` | {said} |" in text


@pytest.mark.parametrize("package", ["auxlearn.tasks", "auxlearn.weighting"])
def test_training_knows_no_concrete_plug_in(package):
    shared = {f"{package}.{name}" for name in ("base", "gradients", "state")}
    concrete = [name for name in PATHS if name.startswith(f"{package}.") and name not in shared]
    assert len(concrete) >= 2
    known = {name for one in concrete for name in importers(one)}
    assert {name for name in known if not name.startswith(f"{package}.")} == set()


#: Files with several built-in plug-ins, and why; any other has one of its own.
SHARED = {
    "auxlearn.weighting.fixed": "equal is fixed without a setting",
    "auxlearn.weighting.tartan": "the paper's rule and that of the released code",
}


def test_a_built_in_plug_in_is_one_file():
    found: dict[str, list[str]] = {}
    for registry in (TASKS, LOSSES, WEIGHTINGS):
        for name in registry.names():
            found.setdefault(registry.get(name).__module__, []).append(name)
    assert len(found) > 35
    assert {module for module, names in found.items() if len(names) > 1} == set(SHARED)


def test_one_place_for_each_outside_library():
    assert importers("higher") == {"auxlearn.weighting.unrolling"}
    assert importers("datasets") == {"auxlearn.data.corpora", "auxlearn.data.hub"}
    assert importers("transformers")
    outside = {n for n in importers("transformers") if not n.startswith("auxlearn.encoders.")}
    for name in outside:
        for other in imports()[name]:
            assert not other.startswith("transformers") or other.startswith("transformers.utils")
    assert importers("pickle") == {"auxlearn.encoders.weights"}  # for the name of an error
    assert importers("matplotlib.pyplot") == set()


def test_nothing_remote_is_executed_and_nothing_unsafe_is_loaded():
    checked = 0
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                checked += 1
                called = ast.unparse(node.func)
                keywords = {keyword.arg for keyword in node.keywords}
                for keyword in node.keywords:
                    if keyword.arg == "trust_remote_code":
                        assert ast.unparse(keyword.value) == "False", name
                if called.endswith((".from_pretrained", ".from_config")):
                    assert "trust_remote_code" in keywords, name
                assert called not in ("yaml.load", "torch.save", "eval"), name
                assert not called.startswith("pickle."), name
                if called == "torch.load":
                    assert name == "auxlearn.encoders.weights"
                    (safe,) = [k.value for k in node.keywords if k.arg == "weights_only"]
                    assert ast.unparse(safe) == "True"
                assert called != "torch.manual_seed" or name == "auxlearn.core.rng", name
    assert checked > 500


HEAVY = ("torch", "transformers", "datasets", "sklearn", "matplotlib", "pandas", "higher")
LIGHT = [
    "auxlearn",
    "auxlearn.cli",
    "auxlearn.core.run_settings",
    "auxlearn.core.config",
    "auxlearn.plugins",
    "auxlearn.core.registry",
    "auxlearn.core.rng",
    "auxlearn.data.folders",
    "auxlearn.data.load",
    "auxlearn.sweeps.run",
    "auxlearn.training.train",
    *(name for name in PATHS if name.startswith("auxlearn.commands.")),
]


def test_importing_costs_nothing():
    code = f"""
import importlib, sys
for module in {LIGHT}:
    importlib.import_module(module)
    heavy = [name for name in {HEAVY} if name in sys.modules]
    assert not heavy, (module, heavy)
print("imported all")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("imported all\n", "")


def test_public_names_lead_somewhere():
    assert len(auxlearn.__all__) > 10
    for name in auxlearn.__all__:
        value = getattr(auxlearn, name)
        assert name == "__version__" or value.__doc__, name
    assert dir(auxlearn) == sorted(auxlearn.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = auxlearn.nothing
