"""Results and log entries as a run writes them, with numbers that are easy to follow."""

from __future__ import annotations

from typing import Any

from auxlearn.results.environment import Environment
from auxlearn.results.record import BestCheckpoint, DatasetRecord, Evaluation, RunResults, Scores

LABELS = ("no", "yes")


def scores(rows: int, accuracy: float, macro_f1: float) -> Scores:
    """Scores of a classifier that answers "yes" to everything."""
    per_class = {label: dict.fromkeys(("precision", "recall", "f1"), 0.5) for label in LABELS}
    metrics = {"accuracy": accuracy, "macro_f1": macro_f1}
    return Scores(rows, metrics, per_class, [[0, rows // 2], [0, rows - rows // 2]])


def evaluation(rows: int, accuracy: float, seen: int = 0) -> Evaluation:
    """An evaluation whose macro-F1 is 0.01 below its accuracy, and 0.1 lower where unseen."""
    less = 0.1 if seen else 0.0
    return Evaluation(
        all=scores(rows, accuracy, accuracy - 0.01),
        unseen=scores(rows - seen, accuracy - less, accuracy - less - 0.01),
        seen_examples=seen,
        majority=scores(rows, 0.5, 0.333),
        loss=0.6,
    )


def results(*aux: str, seen: int = 0, **config: Any) -> RunResults:
    """Results of a run with some auxiliary tasks."""
    names = ["primary", *aux]
    settings = {
        "dataset": "reviews",
        "encoder": "tiny",
        "aux": [{name: {"probability": 0.15, "corpus": None}} for name in aux],
        "weights": {"meta": {"horizon": "steps", "split": "dev", "every": 2}},
        "metric": "accuracy",
        "seed": 3,
        "epochs": 4,
        "batch_size": 8,
        "learning_rate": 0.001,
        "weight_decay": 0.01,
        "warmup_ratio": 0.06,
        "max_length": 32,
    }
    return RunResults(
        config=settings | config,
        digest="0123456789ab",
        dataset=DatasetRecord(
            name="reviews",
            fingerprint="feedfacecafebeef",
            examples={"train": 80, "dev": 20, "test": 40},
            label_names=list(LABELS),
            notes=["no dev split: 20 of the 100 rows of train were held out"],
        ),
        best=BestCheckpoint(step=20, epoch=2.0, metric=settings["metric"], value=0.75),
        evaluations={
            "dev": evaluation(20, 0.75),
            "test": evaluation(40, 0.7, seen),
            "letters": evaluation(30, 0.6),
        },
        weights={name: 1 / len(names) for name in names},
        steps=40,
        stopped="epochs",
        seconds={"training": 1.0},
        environment=Environment(versions={"auxlearn": "0.1.0", "torch": "2.13.0"}),
    )


def entries(*aux: str, gradients: bool = False) -> list[dict[str, Any]]:
    """Entries of ``metrics.jsonl`` for 40 steps with an evaluation every 10."""
    names = ["primary", *aux]
    found: list[dict[str, Any]] = []
    for step in range(10, 41, 10):
        entry: dict[str, Any] = {"kind": "train", "step": step, "epoch": step / 10}
        # An entry lists losses in the order of computation, the primary one last.
        for number, name in enumerate(reversed(names)):
            entry[f"loss/{name}"] = 2.0 + number - step / 40
        for number, name in enumerate(names):
            last = (1 + number) / sum(range(1, len(names) + 1))
            entry[f"weight/{name}"] = 1 / len(names) if step == 10 else last
            if gradients:
                entry[f"norm/{name}"] = 10.0**number
                entry[f"cosine/{name}"] = 0.3 - 0.2 * number
        if gradients:
            entry |= {"norm/validation": 2.0, "loss/validation": 1.5}
        found.append(entry | {"learning_rate": 0.001})
        dev = {"dev/accuracy": 0.75 - abs(step - 20) / 100, "dev/macro_f1": 0.7, "dev/loss": 0.6}
        found.append({"kind": "eval", "step": step, "epoch": step / 10} | dev)
    return found
