"""A disk that is full at any write, and bits that flip in any file, change no result."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from auxlearn import RunConfig
from auxlearn.core.errors import UserError
from auxlearn.training.pretrain import pretrain
from auxlearn.training.run import train
from benchmarks.bit_flips import outcome_of, run_flips, settings_of
from benchmarks.file_operations import WRITES, file_operations, full_disk
from tests import helpers

#: Moments at which the disk is full, spread over the writes of a run; as many as it has writes, if
#: every write is to be tried.
MOMENTS = int(os.environ.get("AUXLEARN_FULL_DISK_MOMENTS", "4"))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rows = [{"text": t, "label": helpers.LABELS[n % 3]} for n, t in enumerate(helpers.LINES)]
    for name, members in {"train": rows[:16], "dev": rows[16:20], "test": rows[20:]}.items():
        lines = "".join(json.dumps(row) + "\n" for row in members)
        (folder / f"{name}.jsonl").write_text(lines)
    return folder


def test_flipped_bits_are_noticed_or_harmless(tmp_path, data, one_layer):
    flips = run_flips(tmp_path, data, str(one_layer), flips=15, seed=4)
    outcomes = Counter(one["outcome"] for one in flips)
    assert set(outcomes) <= {"noticed", "equal"}, flips
    assert outcomes["noticed"] >= 8


@pytest.fixture(scope="module")
def undisturbed(data, one_layer, tmp_path_factory):
    """Train once; return the configuration, the outcome and the number of file operations."""
    folder = tmp_path_factory.mktemp("undisturbed")
    config = RunConfig(**settings_of(data, str(one_layer)), cache_dir=str(folder / "cache"))
    with file_operations(below=str(folder), kinds=WRITES) as operations:
        train(config.model_copy(update={"output": str(folder / "run")}))
    return config, outcome_of(folder / "run"), operations.count


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_disk_that_is_full_is_one_line_and_costs_nothing(undisturbed, tmp_path, moment):
    config, expected, count = undisturbed
    assert count > 50
    paths = {"output": str(tmp_path / "run"), "cache_dir": str(tmp_path / "cache")}
    config = config.model_copy(update=paths)
    at = 1 + moment * (count - 1) // (MOMENTS - 1)
    with (
        file_operations(at, full_disk, below=str(tmp_path), kinds=WRITES) as operations,
        pytest.raises((UserError, OSError)) as caught,
    ):
        train(config)
    assert operations.count >= at
    line = str(caught.value)
    assert "\n" not in line
    assert os.strerror(28) in line
    train(config)
    assert outcome_of(tmp_path / "run") == expected
    assert not list(tmp_path.rglob(".*"))


@pytest.fixture(scope="module")
def pretraining(one_layer, tmp_path_factory):
    """Return a function that pretrains in a folder, its result, and its number of operations."""
    place = tmp_path_factory.mktemp("pretraining")
    corpus = place / "texts.txt"
    corpus.write_text("\n".join(helpers.LINES))

    def run(output):
        return pretrain(str(one_layer), output, corpus=corpus, steps=2, batch_size=4, device="cpu")

    run(place / "first")  # fills the cache
    with file_operations(kinds=WRITES) as operations:
        results = run(place / "whole")
    return run, place / "whole", results, operations.count


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_disk_that_is_full_while_pretraining(pretraining, tmp_path, moment):
    run, whole, expected, count = pretraining
    at = 1 + moment * (count - 1) // (MOMENTS - 1)
    with (
        file_operations(at, full_disk, kinds=WRITES),
        pytest.raises((UserError, OSError), match="No space left"),
    ):
        run(tmp_path / "full")
    assert run(tmp_path / "full").loss_after == expected.loss_after
    files = [
        {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        for folder in (whole, tmp_path / "full")
    ]
    assert files[0] == files[1]
