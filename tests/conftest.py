"""Shared fixtures: tiny encoders as folders on disk, and finished runs of every kind of labels.

Who needs a run that has ended takes one of ``trained``, which all tests share, instead of training:

    def test_something(trained):
        folder = trained("regression").finished   # read it, or copy it before you change it

Heavy libraries are imported inside the fixtures: pytest-xdist loads this file in its controlling
process as well, which runs no test and which all workers wait for. A fixture that every test has
imports none: tests of mathematics need torch alone.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before anything imports torch or transformers: one thread (these models are
# too small for two, which would wait for each other), no network, a cache of our own.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["AUXLEARN_CACHE"] = tempfile.mkdtemp(prefix="auxlearn-tests-")
atexit.register(shutil.rmtree, os.environ["AUXLEARN_CACHE"], ignore_errors=True)

import pytest  # noqa: E402

if TYPE_CHECKING:
    from auxlearn.encoders.shared import SharedEncoder
    from tests.trained import Trained

#: Files that take longest, begun first: one of them begun last would keep a single worker busy.
LONGEST = (
    "test_conformance.py",
    "kinds/test_runs.py",
    "accelerator/test_accelerator.py",
    "data/test_pydocs.py",
    "sweeps/test_executors.py",
    "encoders/test_families.py",
    "sweeps/test_branches.py",
    "sweeps/test_execute.py",
    "training/test_processes.py",
    "training/test_run.py",
    "cli/test_help_examples.py",
    "reports/test_page.py",
    "sweeps/test_trackers.py",
    "hardening/test_bad_input.py",
    "comparison/test_kinds.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first; the order is kept apart from that."""
    tests = Path(__file__).parent
    rank = {tests / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Set the number of threads of torch, in case it was imported before the variable was set."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


gc.disable()  # no garbage is looked for among the modules while they are imported


@pytest.fixture(scope="session", autouse=True)
def quick_collection() -> None:
    """Collect garbage less often, and not among the modules that the tests have imported."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def of_all_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers share; a lock beside a file lets one of them make it."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def make_once(place: Path, make: Callable[[Path], object]) -> Path:
    """Return a file or folder, which the worker that asks for it first makes."""
    from filelock import FileLock

    place.parent.mkdir(exist_ok=True)
    made = place.with_suffix(".made")
    with FileLock(place.with_suffix(".lock")):
        if not made.is_file():
            make(place)
            made.touch()
    return place


@pytest.fixture(scope="session", autouse=True)
def texts_of_libraries(of_all_workers: Path) -> Iterator[None]:
    """Read the texts of the built-in data set once for all workers: it takes many seconds."""
    from auxlearn.data.pydocs import build

    real = build.read_libraries

    def write(place: Path) -> None:
        place.write_text(json.dumps(real()))

    build.read_libraries = lambda: json.loads(
        make_once(of_all_workers / "pydocs.json", write).read_text()
    )
    yield
    build.read_libraries = real


@pytest.fixture(scope="session", autouse=True)
def without_fsync() -> Iterator[None]:
    """Do not wait for the disk: a tiny run would wait longer than it computes."""
    real = os.fsync
    os.fsync = lambda file: None
    yield
    os.fsync = real


@pytest.fixture(scope="session", autouse=True)
def without_plots() -> Iterator[Callable[..., Any]]:
    """Leave out the plots of runs, which take longer than tiny trainings; see ``plots``."""
    from auxlearn.results import plots

    real = plots.plot_run
    plots.plot_run = lambda *_: []  # type: ignore[assignment]
    yield real
    plots.plot_run = real


@pytest.fixture
def plots(without_plots: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the plots of the runs of a test."""
    monkeypatch.setattr("auxlearn.results.plots.plot_run", without_plots)


@pytest.fixture(scope="session")
def encoder_folder(of_all_workers: Path) -> Callable[[str], Path]:
    """Return the folder of a tiny untrained encoder, by family."""
    from tests import helpers

    def write(place: Path) -> None:
        helpers.write(place, *helpers.build(place.name))

    return cache(lambda family: make_once(of_all_workers / "untrained" / family, write))


@pytest.fixture(scope="session")
def one_layer(of_all_workers: Path) -> Path:
    """Folder of a tiny untrained BERT with one layer, which halves the computation."""
    from tests import helpers

    return make_once(of_all_workers / "one-layer", helpers.write_one_layer)


@pytest.fixture(scope="session")
def trained_folder(of_all_workers: Path) -> Callable[[str], Path]:
    """Return the folder of a tiny, briefly trained encoder: BERT or RoBERTa."""
    from tests import helpers

    def write(place: Path) -> None:
        model, tokenizer = helpers.build(place.name, spread=0.1)
        helpers.train_for_a_moment(model, tokenizer)
        helpers.write(place, model, tokenizer)

    return cache(lambda family: make_once(of_all_workers / "trained" / family, write))


@pytest.fixture(scope="session")
def trained(of_all_workers: Path) -> Callable[[str], Trained]:
    """Return the run of a kind of labels that all tests share: read it, or copy what you change.

    Kinds are those of :mod:`tests.trained`. A run is trained when it is first asked for, once for
    all workers, and not with plug-ins of the tests.
    """
    from tests.trained import Trained, train_kind

    def train(place: Path) -> None:
        train_kind(place.name, place)

    return cache(lambda kind: Trained(kind, make_once(of_all_workers / "runs" / kind, train)))


@pytest.fixture(scope="session")
def loaded(encoder_folder) -> Callable[[str], SharedEncoder]:
    """Return a tiny untrained encoder of a family with three classes, a new copy for each call."""
    return copies(encoder_folder)


@pytest.fixture(scope="session")
def loaded_trained(trained_folder) -> Callable[[str], SharedEncoder]:
    """The same, briefly trained: BERT or RoBERTa."""
    return copies(trained_folder)


def copies(folder: Callable[[str], Path]) -> Callable[[str], SharedEncoder]:
    """Load the encoder of a family once, which takes ten times as long as to copy it."""
    from auxlearn.encoders.load import load_encoder
    from tests import helpers

    load = cache(lambda family: load_encoder(str(folder(family)), helpers.LABELS))
    return lambda family: deepcopy(load(family))


@pytest.fixture
def tiny_bert(loaded) -> SharedEncoder:
    return loaded("bert")


@pytest.fixture
def trained_bert(loaded_trained) -> SharedEncoder:
    return loaded_trained("bert")


@pytest.fixture(scope="module", autouse=True)
def plugins_of_the_module():
    """Forget the plug-ins that the tests of a module have registered."""
    from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS
    from tests import helpers

    registries = (TASKS, LOSSES, WEIGHTINGS)
    before = [set(registry._registered) for registry in registries]
    yield
    helpers.forget_plugin_files()
    for registry, names in zip(registries, before, strict=True):
        for name in set(registry._registered) - names - set(registry._builtin):
            del registry._registered[name]
