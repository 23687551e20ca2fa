"""Run folders and sweeps as training leaves them, written without training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from auxlearn import RunConfig
from auxlearn.core.files import write_text
from auxlearn.data.folders import read_folder
from auxlearn.results.record import BestCheckpoint, DatasetRecord, Evaluation, Scores
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import expand_cells, plan_trials
from auxlearn.sweeps.sweep_file import dump_sweep, read_sweep
from tests.helpers import write_splits
from tests.results import examples

HOSTILE = ('<script>alert("label")</script>', "\" onmouseover=alert(1) x='")
TEXT = "</style></script><img src=x onerror=alert(2)> javascript:alert(3) {{ 7*7 }} \u202eright"


def write_data(folder: Path, labels: tuple[str, ...] = HOSTILE) -> Path:
    """A data set of 8 examples a split, some of them in train and test alike."""
    for name in ("train", "dev", "test"):
        rows = [{"text": f"{TEXT} {n}", "label": labels[n % len(labels)]} for n in range(8)]
        if name != "train":
            rows = [row | {"text": f"{row['text']} {name}"} for row in rows[:7]] + rows[7:]
        write_splits(folder, **{name: rows})
    return folder


def scores(rows: list[list[int]], labels: tuple[str, ...]) -> Scores:
    right, total = sum(rows[n][n] for n in range(len(rows))), sum(map(sum, rows))
    one = {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": total / len(rows)}
    metrics = dict.fromkeys(("accuracy", "macro_f1"), right / total)
    return Scores(total, metrics, dict.fromkeys(labels, one), rows)


def write_run(
    folder: Path, data: Path, right: int = 6, degenerate: bool = False, **settings: object
) -> Path:
    """A finished run that classifies some of the 8 examples of dev and of test correctly."""
    dataset = read_folder(data)
    labels = dataset.label_names
    given = {"dataset": str(data), "encoder": "tiny", "output": str(folder)} | settings
    config = RunConfig(**given)  # not resolved: plug-ins of the tests would have to be imported
    names = config.objective_names()
    write_text(folder / "config.yaml", config.to_yaml())
    truth = [n % len(labels) for n in range(8)]
    predicted = [t if n < right else (t + 1) % len(labels) for n, t in enumerate(truth)]
    cells = [[0] * len(labels) for _ in labels]
    for t, p in zip(truth, predicted, strict=True):
        cells[t][p] += 1
    found = Evaluation(
        all=scores(cells, labels),
        unseen=scores([[1 if a == b else 0 for a in labels] for b in labels], labels),
        seen_examples=1,
        majority=scores(cells, labels),
        loss=0.5,
    )
    rest = 0.25 / max(1, len(labels) - 1)
    for name in ("dev", "test"):
        lines = [
            {
                "label": labels[t],
                "predicted": labels[p],
                "probabilities": [0.75 if n == p else rest for n in range(len(labels))],
            }
            for t, p in zip(truth, predicted, strict=True)
        ]
        write_splits(folder / "predictions", **{name: lines})
    write_splits(folder, metrics=examples.entries(*names[1:]))
    replace(
        examples.results(*names[1:]),
        config=config.model_dump(mode="json"),
        digest=config.digest,
        dataset=DatasetRecord(
            name="data",
            fingerprint=dataset.fingerprint,
            examples={name: len(split) for name, split in dataset.splits.items()},
            label_names=list(labels),
            notes=["a note with <b>markup</b>"],
        ),
        best=BestCheckpoint(20, 2.0, "accuracy", right / 8),
        evaluations={"dev": found, "test": found},
        degenerate="predicts 'a' for every example" if degenerate else None,
    ).save(folder)
    return folder


def write_sweep(folder: Path, data: Path, finished: bool = True, **content: object) -> Path:
    """A sweep of two methods with two seeds, of which the last trial may be unfinished."""
    cases = [{"name": "<STL>"}, {"name": "RTM", "aux": ["random_mlm"]}]
    base = {"dataset": str(data), "encoder": "tiny"}
    whole = {"name": "sweep", "base": base, "cases": cases, "seeds": 2} | content
    path = folder.parent / "sweep.yaml"
    path.write_text(yaml.safe_dump(whole, sort_keys=False))
    sweep, place = read_sweep(path), SweepFolder(folder)
    place.save_text("sweep.yaml", dump_sweep(sweep))
    trials = plan_trials(sweep, expand_cells(sweep))
    for number, trial in enumerate(trials if finished else trials[:-1]):
        settings = trial.config.model_dump(mode="json", exclude={"dataset", "encoder", "output"})
        write_run(place.run(trial.digest).path, data, 5 + number % 3, **settings)
    place.save_plan(trials)
    if finished:
        place.save_results(sweep, [place.record(trial, True) for trial in trials])
    else:
        run = place.run(trials[-1].digest).path
        write_text(run / "config.yaml", trials[-1].config.to_yaml())
    return folder
