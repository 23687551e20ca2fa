"""Every registered auxiliary task with every registered weighting: trains, resumes, exports.

The registries are read, so that a new plug-in is caught here: it needs a row in the tables below,
which say with what options it is tried. What else decides a step (gradient accumulation, precision,
metric, the dev head, several tasks) is tried in pairs, by rows of its own.
"""

from __future__ import annotations

import json
from itertools import combinations, product
from pathlib import Path

import pytest

from auxlearn import RunConfig, train
from auxlearn.encoders.load import load_classifier
from auxlearn.registry import TASKS, WEIGHTINGS
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
    "meta": {"warmup_steps": 1, "learn_share": 1},
    "tartan": {},
    "tartan_released": {},
    "uncertainty": {},
    "gradnorm": {},
    "dwa": {"window": 1},
    "upgrad": {},
    "pcgrad": {},
    "mgda": {},
    "cagrad": {},
    "imtl_g": {},
    "aligned_mtl": {},
    "dualproj": {},
    "fairgrad": {},
    "gradvac": {},
    "pcd": {},
    "geometric_mean": {},
    "imtl_l": {},
    "metabalance": {},
    "gcs": {},
    "ol_aux": {"every": 2},
    "famo": {},
    "stch": {"warmup_steps": 0, "window": 1},
    "nash_mtl": {},
    "random": {},
}
STEPS = 3

#: Auxiliary tasks of the rows below: each alone, one twice, and one with a corpus of its own.
AUXILIARIES: dict[str, list[dict]] = {
    **{name: [{name: options}] for name, options in TASK_ROWS.items()},
    "twice": [{"l3mask": {}}, {"l3mask": {"score": "surprisal"}}],
    "corpus": [{"random_mlm": {"corpus": "corpus.txt"}}],
}

#: A closed-form head is sure of the few rows of dev that it is made of; more rows teach something.
CLOSED = {"warmup_steps": 1, "learn_share": 1, "dev_head": "closed", "split": "steer.jsonl"}
FITTED = {"warmup_steps": 1, "learn_share": 1, "dev_head": "fitted"}

#: Weighting, options, auxiliary tasks, accumulation, precision, metric.
PAIR_ROWS: list[tuple[str, dict, str, int, str, str]] = [
    ("fixed", {}, "l3mask", 2, "fp32", "accuracy"),
    ("equal", {}, "twice", 2, "bf16", "macro_f1"),
    ("meta", {"warmup_steps": 1, "learn_share": 1}, "random_mlm", 2, "bf16", "accuracy"),
    ("meta", CLOSED, "mask_tuning", 2, "bf16", "macro_f1"),
    ("meta", FITTED, "l3mask", 1, "bf16", "macro_f1"),
    ("meta", CLOSED, "corpus", 1, "fp32", "accuracy"),
    ("tartan", {}, "random_mlm", 2, "bf16", "macro_f1"),
    ("tartan_released", {}, "l3mask", 2, "bf16", "macro_f1"),
    ("uncertainty", {}, "corpus", 2, "bf16", "accuracy"),
    ("gradnorm", {}, "twice", 1, "fp32", "accuracy"),
    ("dwa", {"window": 1}, "mask_tuning", 1, "fp32", "accuracy"),
    ("upgrad", {}, "corpus", 1, "fp32", "macro_f1"),
    ("pcgrad", {}, "mask_tuning", 2, "fp32", "accuracy"),
    ("mgda", {}, "l3mask", 3, "fp32", "macro_f1"),
    ("cagrad", {}, "random_mlm", 1, "fp32", "macro_f1"),
    ("imtl_g", {}, "twice", 2, "fp32", "accuracy"),
    ("aligned_mtl", {}, "corpus", 2, "bf16", "macro_f1"),
]


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
    (folder / "corpus.txt").write_text("\n".join(helpers.LINES[4:15]) + "\n")
    splits = {"train": rows[:12], "dev": rows[12:18], "test": rows[18:], "steer": rows}
    for name, members in splits.items():
        text = "".join(json.dumps(row) + "\n" for row in members)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def test_every_pair_is_tried():
    """Every two of tasks, accumulation, precision and metric meet in a row; so do the dev heads."""
    levels = [list(AUXILIARIES), [1, 2], ["fp32", "bf16"], ["accuracy", "macro_f1"]]
    tried = [row[2:] for row in PAIR_ROWS]
    for (one, left), (other, right) in combinations(enumerate(levels), 2):
        missing = set(product(left, right)) - {(row[one], row[other]) for row in tried}
        assert not missing, f"add rows with {sorted(map(str, missing))} to {__file__}"
    heads = {row[1].get("dev_head", "own") for row in PAIR_ROWS if row[0] == "meta"}
    assert heads == {"own", "closed", "fitted"}
    assert 3 in {row[3] for row in PAIR_ROWS}


@pytest.fixture
def check(dataset, encoder_folder, tmp_path, monkeypatch):
    """Train, kill and resume a run with some auxiliary tasks, a weighting and further settings."""
    monkeypatch.setattr("auxlearn.reporting.plots.plot_run", lambda *given: [])

    def run(aux, weighting, options, **settings):
        config = RunConfig.model_validate(
            {
                "dataset": str(dataset),
                "encoder": str(encoder_folder("bert")),
                "aux": aux,
                "weights": {weighting: options},
                "epochs": 1,
                "batch_size": 4,
                "eval_steps": 2,
                "learning_rate": 1e-3,
                "device": "cpu",
                "output": str(tmp_path / "run"),
                **settings,
            }
        )
        check_run(config, tmp_path, monkeypatch)

    return run


@pytest.mark.parametrize("weighting", WEIGHTING_ROWS)
@pytest.mark.parametrize("task", TASK_ROWS)
def test_a_run(task, weighting, check):
    check([{task: TASK_ROWS[task]}], weighting, WEIGHTING_ROWS[weighting])


@pytest.mark.parametrize(
    "row", PAIR_ROWS, ids=["-".join(map(str, (row[0], *row[2:]))) for row in PAIR_ROWS]
)
def test_a_pair_of_settings(row, check, dataset, monkeypatch):
    weighting, options, tasks, accumulation, precision, metric = row
    monkeypatch.chdir(dataset)  # where the further files are
    settings = {
        "gradient_accumulation_steps": accumulation,
        "precision": precision,
        "metric": metric,
    }
    check(AUXILIARIES[tasks], weighting, options, **settings)


def check_run(config, folder, monkeypatch):
    """A kill leaves what is in the folder, so a copy made before the last step is resumed."""
    run, whole_run, killed_run = (folder / name for name in ("run", "whole", "killed"))
    steps = helpers.copy_before_step(monkeypatch, STEPS - 1, killed_run)
    whole = train(config)
    assert whole.steps == STEPS
    assert sum(whole.weights.values()) > 0

    run.rename(whole_run)
    killed_run.rename(run)
    resumed = train(config)
    assert steps == [*range(STEPS), STEPS - 1]
    assert resumed.figures() == whole.figures()
    for file in ("metrics.jsonl", "model/model.safetensors"):
        assert (run / file).read_bytes() == (whole_run / file).read_bytes(), file

    classifier, tokenizer = load_classifier(whole_run / "model")
    logits = classifier(**tokenizer("The tagger is faster.", return_tensors="pt")).logits
    assert logits.shape == (1, 3)
    assert logits.isfinite().all()
    if issubclass(WEIGHTINGS.get(config.weights.name), Learned):
        values = list(whole.weights.values())
        assert max(values) - min(values) > 1e-9, "the weights never moved"
