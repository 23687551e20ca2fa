"""What a run came to: figures, and where they came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from auxlearn.errors import RunError
from auxlearn.files import write_json

FILE = "results.json"


@dataclass(frozen=True)
class Scores:
    """Figures on some rows.

    Attributes:
        rows: How many there are.
        accuracy: Share of right predictions, 0 to 1.
        macro_f1: Mean F1 over the classes that occur in labels or predictions, 0 to 1.
        per_class: Precision, recall, F1 and support of each class by label.
        confusion: Rows by true class (outer) and predicted class (inner).
    """

    rows: int
    accuracy: float
    macro_f1: float
    per_class: dict[str, dict[str, float]]
    confusion: list[list[int]]


@dataclass(frozen=True)
class Evaluation:
    """Figures on one evaluation set.

    Attributes:
        all: On all rows.
        unseen: On the rows whose text is not in train; ``None`` if there are none such.
        seen_rows: How many rows have a text that is in train.
        majority: What always predicting the most frequent class of train would get.
        loss: Mean cross-entropy in nats.
        subsets: On the rows of a part of the set, by name, such as "heuristic: constituent".
        partner: On the rows that are paired with those of the set, such as the originals of a
            contrast set; ``None`` if it has no pairs.
        pair_accuracy: Share of the pairs of which both rows are right.
    """

    all: Scores
    unseen: Scores | None
    seen_rows: int
    majority: Scores
    loss: float
    subsets: dict[str, Scores] = field(default_factory=dict)
    partner: Scores | None = None
    pair_accuracy: float | None = None

    @property
    def constant_prediction(self) -> str | None:
        """The label predicted for every example, although the set has several; else ``None``."""
        labels = list(self.all.per_class)
        predicted = [any(column) for column in zip(*self.all.confusion, strict=True)]
        true = [any(counts) for counts in self.all.confusion]
        if sum(true) < 2 or sum(predicted) != 1:
            return None
        return labels[predicted.index(True)]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Evaluation:
        """Take back what :func:`dataclasses.asdict` gave."""

        def scores(found: Any) -> Scores | None:
            return Scores(**found) if found else None

        return cls(
            all=Scores(**values["all"]),
            unseen=scores(values["unseen"]),
            seen_rows=values["seen_rows"],
            majority=Scores(**values["majority"]),
            loss=values["loss"],
            subsets={name: Scores(**found) for name, found in values.get("subsets", {}).items()},
            partner=scores(values.get("partner")),
            pair_accuracy=values.get("pair_accuracy"),
        )


@dataclass(frozen=True)
class RunResults:
    """What ``results.json`` holds.

    Attributes:
        config: The resolved configuration.
        digest: Its hash.
        dataset: Name, fingerprint, rows by split, label names and notes of the data; the split of
            each out-of-distribution set by name.
        best: Step, epoch and dev metric of the chosen checkpoint.
        evaluations: Figures by set: "dev", "test", and each out-of-distribution set by name.
        weights: Weight of each objective at the end.
        steps: Updates made.
        stopped: Why training ended: "epochs" or "patience".
        surrogate: How well what steered the weights followed the metric: Spearman's rank
            correlation over the evaluations on dev, and their number; ``None`` if nothing was
            steered.
        degenerate: The label that the best checkpoint predicts for every dev example, although dev
            has several; ``None`` if it predicts more than one.
        seconds: Wall time by stage. The one part that differs between equal runs.
        environment: Versions and hardware.
    """

    config: dict[str, Any]
    digest: str
    dataset: dict[str, Any]
    best: dict[str, float]
    evaluations: dict[str, Evaluation]
    weights: dict[str, float]
    steps: int
    stopped: str
    seconds: dict[str, float]
    environment: dict[str, Any]
    surrogate: dict[str, float | int | None] | None = None
    degenerate: str | None = None

    def save(self, folder: Path) -> None:
        """Write ``results.json``; its presence says that the run is finished."""
        write_json(folder / FILE, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> RunResults:
        """Read the results of a finished run.

        Raises:
            RunError: The folder holds none, or a damaged file.
        """
        path = folder / FILE
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            evaluations = {
                name: Evaluation.from_dict(found)
                for name, found in values.pop("evaluations").items()
            }
            return cls(evaluations=evaluations, **values)
        except FileNotFoundError:
            raise RunError(f"{folder} holds no {FILE}: the run is not finished") from None
        except (ValueError, TypeError, KeyError) as error:
            raise RunError(f"{path} is damaged ({error}): delete it and run again") from None

    def warnings(self) -> list[str]:
        """Return what a reader of the scores must know first, one sentence each."""
        if self.degenerate is None:
            return []
        auxiliary = " or a smaller share of the auxiliary tasks" if self.config["aux"] else ""
        return [
            f"degenerate run: the best checkpoint predicts '{self.degenerate}' for every dev "
            "example, so its scores are those of a constant answer; try more epochs, another "
            f"learning rate, metric macro_f1{auxiliary}"
        ]

    def figures(self) -> dict[str, Any]:
        """Return all that a repeated run must reproduce: everything but times and hardware."""
        values = asdict(self)
        del values["seconds"], values["environment"]
        return values
