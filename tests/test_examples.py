"""The examples work as they stand; plug-ins need ``auxlearn.plugins`` and torch only."""

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from auxlearn import RunConfig, predict, train
from auxlearn.core.registry import TASKS, load_plugin
from auxlearn.data.batches import collate
from tests import helpers

EXAMPLES = Path(__file__).parent.parent / "examples"
PLUGINS = ("long_first", "inverse_loss", "long_or_short", "brier", "word_pairs")


@pytest.fixture(scope="module")
def results(tmp_path_factory, encoder_folder):
    """Results and metrics of a run with the example task and the example weighting."""
    folder = tmp_path_factory.mktemp("examples")
    helpers.write_splits(folder, **dict.fromkeys(("train", "dev", "test"), helpers.rows()))
    found = train(
        RunConfig(
            dataset=str(folder),
            encoder=str(encoder_folder("bert")),
            aux=["long_first", "long_or_short"],
            loss="brier",
            weights="inverse_loss",
            plugins=tuple(str(EXAMPLES / f"{name}.py") for name in PLUGINS),
            epochs=1,
            batch_size=len(helpers.LINES),  # one step, so that metrics are not means over several
            device="cpu",
            output=str(folder / "run"),
        )
    )
    rows = helpers.read_lines(folder / "run" / "metrics.jsonl")
    return found, [row for row in rows if row["kind"] == "train"]


def test_a_plug_in_task_trains_and_a_plug_in_weighting_sets_the_weights(results):
    found, steps = results
    assert set(found.weights) == {"primary", "long_first", "long_or_short"}
    for name in found.weights:
        assert all(row[f"loss/{name}"] > 0 for row in steps)
    assert all(row["loss/primary"] < 2 for row in steps)  # as a Brier score is
    (row,) = steps
    for name in found.weights:
        assert row[f"weight/{name}"] * row[f"loss/{name}"] == pytest.approx(1, rel=1e-6)


def test_both_words_of_a_pair_are_masked_or_none(trained_bert, tmp_path):
    load_plugin(EXAMPLES / "word_pairs.py")
    found = TASKS.get("word_pairs")
    task = found(found.Options(probability=0.4))
    texts = helpers.tokenized(trained_bert, helpers.LINES)
    task.prepare(helpers.context(trained_bert, texts, tmp_path))
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


@pytest.mark.slow
def test_the_example_package_installs_and_passes_its_tests(tmp_path):
    package = EXAMPLES / "plugin_package"
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*pip, str(installed), str(package)], check=True)
    paths = [str(installed), str(EXAMPLES.parent)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package / "tests")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("....."), done.stdout


def test_the_trainer_of_transformers_logs_each_loss_and_trains_one_encoder(tmp_path):
    """The loss that is logged for the step is that of both shares, and both heads share a body."""
    from transformers import AutoModelForSequenceClassification

    from auxlearn.core.settings import encoder_source

    example = runpy.run_path(str(EXAMPLES / "own_trainer.py"))
    trainer = example["train"](encoder_source("tiny"), 0.25, 5, str(tmp_path))
    (row,) = [row for row in trainer.state.log_history if "loss/primary" in row and "loss" in row]
    mixed = 0.75 * row["loss/primary"] + 0.25 * row["loss/auxiliary"]
    assert row["loss"] == pytest.approx(mixed, abs=1e-3)
    model = trainer.model
    assert model.language_model.base_model is model.classifier.base_model
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    state = model.classifier.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in saved.state_dict().items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the exporter about itself
def test_the_page_on_onnx_gives_the_probabilities_of_predict(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    helpers.write_splits(tmp_path / "data", train=helpers.rows(), dev=helpers.rows())
    run = train(dataset="data", encoder="tiny", epochs=1, output="runs/first", verbose=False)
    page = (EXAMPLES.parent / "docs" / "guides" / "onnx.md").read_text("utf-8")
    names: dict = {}
    exec(page.partition("```py\n")[2].partition("```")[0], names)
    frame = predict(run, names["texts"])
    expected = frame[[name for name in frame if name.startswith("probability_")]]
    np.testing.assert_allclose(names["probabilities"], expected, atol=1e-5)
