"""Runs with each loss: killed and resumed, they return the digits of the undisturbed run."""

import pytest

from auxlearn import RunConfig, train
from tests import helpers
from tests.losses.common import LABEL_LIST

WEAK = {"bias": "weak", "bias_encoder": "ENCODER", "bias_folds": 2, "bias_epochs": 1}
LOSSES = {
    "debiased_focal": {"bias": "FILE"},
    "confidence": WEAK | {"teacher_epochs": 1},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    rows = [
        {"text": line, "text_pair": helpers.LINES[number - 1], "label": helpers.LABELS[label]}
        for number, (line, label) in enumerate(zip(helpers.LINES, LABEL_LIST * 3, strict=True))
    ]
    helpers.write_splits(folder, train=rows[:8], dev=rows[8:14], test=rows[14:18])
    bias = [dict.fromkeys(helpers.LABELS, 0.25) | {row["label"]: 0.5} for row in rows[:8]]
    helpers.write_splits(folder / "probabilities", bias=bias)
    return folder


@pytest.fixture
def config(dataset, one_layer, tmp_path):
    """Settings of a run with a loss."""
    files = {"FILE": dataset / "probabilities" / "bias.jsonl", "ENCODER": one_layer}

    def make(name, **settings):
        given = LOSSES[name].items()
        options = {key: str(files[one]) if one in files else one for key, one in given}
        base = {"dataset": str(dataset), "encoder": str(one_layer), "epochs": 1, "batch_size": 4}
        base |= {"loss": {name: options}, "learning_rate": 1e-3, "device": "cpu"}
        base |= {"cache_dir": str(tmp_path / "cache"), "output": str(tmp_path / "run")}
        return RunConfig.model_validate(base | settings)

    return make


def test_the_accuracies_of_bias_model_and_teacher_are_in_the_results(config, tmp_path):
    # The file gives the gold class of every training example the highest probability.
    assert train(config("debiased_focal")).auxiliary["primary"] == {"bias_accuracy": 1.0}
    other = str(tmp_path / "other")
    found = train(config("confidence", output=other)).auxiliary["primary"]
    assert set(found) == {"bias_accuracy", "teacher_accuracy"}
    assert all(0 <= value <= 1 for value in found.values())
