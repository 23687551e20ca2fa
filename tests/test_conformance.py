"""Every registered auxiliary task with every registered weighting: trains, resumes, exports.

The registries are read, so that a new plug-in is caught here: it needs a row in the tables below,
which say with what options it is tried.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auxlearn import RunConfig, train
from auxlearn.encoders.load import load_classifier
from auxlearn.registry import TASKS, WEIGHTINGS
from auxlearn.training.loop import TrainingLoop
from auxlearn.weighting.learned import Learned
from tests import helpers

#: Options that each auxiliary task is tried with.
TASK_ROWS: dict[str, dict] = {
    "random_mlm": {},
    "l3mask": {},
    "mask_tuning": {},
}

#: Options that each weighting is tried with; learned weights are to move within three updates.
WEIGHTING_ROWS: dict[str, dict] = {
    "fixed": {},
    "equal": {},
    "meta": {"warmup": 1},
    "tartan": {},
    "tartan-released": {},
    "uncertainty": {},
    "gradnorm": {},
    "dwa": {"window": 1},
    "upgrad": {},
    "pcgrad": {},
    "mgda": {},
    "cagrad": {},
    "imtl-g": {},
    "aligned-mtl": {},
    "dualproj": {},
    "fairgrad": {},
    "gradvac": {},
    "pcd": {},
    "geometric-mean": {},
    "imtl-l": {},
    "metabalance": {},
    "gcs": {},
    "ol-aux": {"every": 2},
    "famo": {},
    "stch": {"warmup": 0, "window": 1},
    "nash-mtl": {},
    "random": {},
}
STEPS = 3


@pytest.mark.parametrize(("registry", "rows"), [(TASKS, TASK_ROWS), (WEIGHTINGS, WEIGHTING_ROWS)])
def test_every_plug_in_has_a_row(registry, rows):
    # Other tests leave plug-ins of their own behind in this process.
    ours = {n for n in registry.names() if registry.get(n).__module__.startswith("auxlearn.")}
    missing = ours - set(rows)
    assert not missing, f"add a row for {registry.kind} {sorted(missing)} to {__file__}"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("conformance")
    rows = [
        {"text": line, "label": helpers.LABELS[number % 3]}
        for number, line in enumerate(helpers.LINES)
    ]
    for name, members in {"train": rows[:12], "dev": rows[12:18], "test": rows[18:]}.items():
        text = "".join(json.dumps(row) + "\n" for row in members)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


@pytest.mark.parametrize("weighting", WEIGHTING_ROWS)
@pytest.mark.parametrize("task", TASK_ROWS)
def test_a_run(task, weighting, dataset, encoder_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("auxlearn.analysis.plots.plot_run", lambda *given: [])

    def config(name):
        return RunConfig.model_validate(
            {
                "dataset": str(dataset),
                "encoder": str(encoder_folder("bert")),
                "aux": [{task: TASK_ROWS[task]}],
                "weights": {weighting: WEIGHTING_ROWS[weighting]},
                "epochs": 1,
                "batch_size": 4,
                "eval_every": 2,
                "learning_rate": 1e-3,
                "device": "cpu",
                "output": str(tmp_path / name),
            }
        )

    whole = train(config("whole"))
    assert whole.steps == STEPS
    assert sum(whole.weights.values()) > 0

    real = TrainingLoop._step

    def step(self):
        if self.progress.step == STEPS - 1:
            raise SystemExit
        real(self)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", step)
        with pytest.raises(SystemExit):
            train(config("resumed"))
    resumed = train(config("resumed"))
    expected, found = whole.figures(), resumed.figures()
    expected["config"].pop("output"), found["config"].pop("output")
    assert found == expected
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "resumed")]
    assert metrics[0] == metrics[1]

    weights = [tmp_path / name / "model" / "model.safetensors" for name in ("whole", "resumed")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    classifier, tokenizer = load_classifier(tmp_path / "whole" / "model")
    logits = classifier(**tokenizer("The tagger is faster.", return_tensors="pt")).logits
    assert logits.shape == (1, 3)
    assert logits.isfinite().all()
    if issubclass(WEIGHTINGS.get(weighting), Learned):
        values = list(whole.weights.values())
        assert max(values) - min(values) > 1e-9, "the weights never moved"
