"""Runs with each loss: killed and resumed, they return the digits of the undisturbed run."""

from __future__ import annotations

import json

import pytest

from auxlearn import RunConfig, train
from auxlearn.core.errors import ConfigError
from tests import helpers
from tests.losses.common import LABEL_LIST

LOSSES = {
    "focal": {"class_weights": "balanced"},
    "r_drop": {},
    "span_cutoff": {},
    "hidden_cut": {"divergence": "released"},
    "poe": {"bias": "overlap", "bias_folds": 2},
    "learned_mixin": {"bias": "segment", "bias_folds": 2, "entropy_penalty": 0.03},
    "debiased_focal": {"bias": "FILE"},
    "confidence": {"bias": "weak", "bias_folds": 2, "bias_epochs": 1, "teacher_epochs": 1},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    rows = [
        {
            "text": line,
            "text_pair": helpers.LINES[number - 1],
            "label": helpers.LABELS[LABEL_LIST[number % 8]],
        }
        for number, line in enumerate(helpers.LINES)
    ]
    for name, members in {"train": rows[:8], "dev": rows[8:14], "test": rows[14:18]}.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, members)))
    bias = [dict.fromkeys(helpers.LABELS, 0.25) | {row["label"]: 0.5} for row in rows[:8]]
    (folder / "probabilities").mkdir()
    path = folder / "probabilities" / "bias.jsonl"
    path.write_text("\n".join(map(json.dumps, bias)))
    return folder


@pytest.fixture
def config(dataset, one_layer, tmp_path, monkeypatch):
    def make(name, **settings):
        options = dict(LOSSES[name])
        if options.get("bias") == "FILE":
            options["bias"] = str(dataset / "probabilities" / "bias.jsonl")
        if options.get("bias") == "weak":
            options["bias_encoder"] = str(one_layer)
        return RunConfig.model_validate(
            {
                "dataset": str(dataset),
                "encoder": str(one_layer),
                "loss": {name: options},
                "epochs": 1,
                "batch_size": 4,
                "learning_rate": 1e-3,
                "device": "cpu",
                "cache_dir": str(tmp_path / "cache"),
                "output": str(tmp_path / "run"),
                **settings,
            }
        )

    return make


@pytest.mark.parametrize("name", ["poe", "learned_mixin", "confidence"])  # a bias model each
def test_killed_and_resumed(name, config, tmp_path, monkeypatch):
    run, whole_run, killed = (tmp_path / each for each in ("run", "whole", "killed"))
    steps = helpers.copy_before_step(monkeypatch, 1, killed)
    settings = config(name, eval_steps=1)
    whole = train(settings)
    run.rename(whole_run)
    killed.rename(run)
    resumed = train(settings)
    assert steps == [0, 1, 1]
    assert resumed.reproducible() == whole.reproducible()
    for file in ("metrics.jsonl", "model/model.safetensors"):
        assert (run / file).read_bytes() == (whole_run / file).read_bytes(), file
    heads = [path.name for path in run.glob("heads/*/*")]
    assert heads == (["mixin.safetensors"] if name == "learned_mixin" else [])


@pytest.mark.parametrize("name", ["span_cutoff", "hidden_cut", "learned_mixin"])
def test_through_unrolled_steps(name, config):
    """Learned weights differentiate an optimizer step by a functional copy of the encoder."""
    learned = {"meta": {"horizon": "steps", "warmup_steps": 0}}
    results = train(config(name, aux=["random_mlm"], weights=learned, batch_size=8))
    values = list(results.weights.values())
    assert abs(values[0] - values[1]) > 1e-9


@pytest.mark.parametrize(
    "name",
    [
        "learned_mixin",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("hidden_cut", "confidence")),
    ],
)
def test_half_precision_and_micro_batches(name, config, tmp_path):
    settings = {"precision": "bf16", "gradient_accumulation_steps": 3}
    results = train(config(name, **settings))
    again = train(config(name, **settings, output=str(tmp_path / "again")))
    assert results.steps == 2
    assert results.evaluations == again.evaluations
    models = [tmp_path / run / "model" / "model.safetensors" for run in ("run", "again")]
    assert models[0].read_bytes() == models[1].read_bytes()


@pytest.mark.parametrize("name", ["span_cutoff", "hidden_cut"])
def test_cutting_and_compiling_exclude_each_other(name, config, monkeypatch):
    monkeypatch.setattr("auxlearn.encoders.compiled.check_compiler", lambda *given: None)
    with pytest.raises(ConfigError, match=f"the loss {name} .* leave --compile out") as error:
        train(config(name, compile=True))
    assert "\n" not in str(error.value)


def test_a_changed_file_of_probabilities_is_another_run(dataset, config, tmp_path):
    settings = config("debiased_focal")
    train(settings)
    path = dataset / "probabilities" / "bias.jsonl"
    before = path.read_text()
    path.write_text(before.replace("0.5", "0.5001"))
    try:
        with pytest.raises(Exception, match="has changed"):
            train(settings)
    finally:
        path.write_text(before)


def test_the_accuracies_of_bias_model_and_teacher_are_in_the_results(config, tmp_path):
    # The file gives the gold class of every training example the highest probability.
    assert train(config("debiased_focal")).auxiliary["primary"] == {"bias_accuracy": 1.0}
    other = str(tmp_path / "other")
    found = train(config("confidence", output=other)).auxiliary["primary"]
    assert set(found) == {"bias_accuracy", "teacher_accuracy"}
    assert all(0 <= value <= 1 for value in found.values())
