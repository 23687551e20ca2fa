"""The examples work as they stand, and need ``auxlearn.plugins`` and torch only."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import torch

from auxlearn import RunConfig, train
from auxlearn.core.registry import TASKS, load_plugin
from auxlearn.data.batches import collate
from tests import helpers

EXAMPLES = Path(__file__).parent.parent / "examples"
PLUGINS = ("rare_first", "inverse_loss", "long_or_short", "brier", "word_pairs")


@pytest.fixture(scope="module")
def results(tmp_path_factory, encoder_folder):
    """Results and metrics of a run with the example task and the example weighting."""
    folder = tmp_path_factory.mktemp("examples")
    helpers.write_splits(folder, **dict.fromkeys(("train", "dev", "test"), helpers.rows()))
    found = train(
        RunConfig(
            dataset=str(folder),
            encoder=str(encoder_folder("bert")),
            aux=["rare_first", "long_or_short"],
            loss="brier",
            weights="inverse_loss",
            plugins=tuple(str(EXAMPLES / f"{name}.py") for name in PLUGINS),
            epochs=1,
            batch_size=len(helpers.LINES),  # one step, so that metrics are not means over several
            device="cpu",
            output=str(folder / "run"),
        )
    )
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return found, [row for row in map(json.loads, lines) if row["kind"] == "train"]


def test_a_plug_in_task_trains(results):
    found, steps = results
    assert set(found.weights) == {"primary", "rare_first", "long_or_short"}
    for name in found.weights:
        assert all(row[f"loss/{name}"] > 0 for row in steps)
    assert all(row["loss/primary"] < 2 for row in steps)  # as a Brier score is


def test_a_plug_in_weighting_sets_the_weights(results):
    _, (row,) = results
    for name in ("primary", "rare_first", "long_or_short"):
        assert row[f"weight/{name}"] * row[f"loss/{name}"] == pytest.approx(1, rel=1e-6)


def test_both_words_of_a_pair_are_masked_or_none(trained_bert, tmp_path):
    load_plugin(EXAMPLES / "word_pairs.py")
    found = TASKS.get("word_pairs")
    task = found(found.Options(probability=0.4))
    task.prepare(
        helpers.context(trained_bert, helpers.tokenized(trained_bert, helpers.LINES), tmp_path)
    )
    batch = collate(task.texts, torch.arange(len(task.texts)))
    rates = torch.zeros(batch.maskable.shape)
    for seed in range(300):
        chosen = task.choose_tokens(batch, torch.Generator().manual_seed(seed))
        rates += chosen
        for row, words, may in zip(chosen, batch.words, batch.maskable, strict=True):
            pairs = words // 2
            assert not set(pairs[row].tolist()) & set(pairs[may & ~row].tolist())
    expected = task.mask_probabilities(batch)[batch.maskable]
    assert (rates[batch.maskable] / 300 - expected).abs().max() < 0.15  # five standard errors


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plug_in_imports_nothing_else_of_the_package(name):
    imported = set()
    for node in ast.walk(ast.parse((EXAMPLES / f"{name}.py").read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert {"auxlearn.plugins"} <= imported <= {"torch", "auxlearn.plugins"}
