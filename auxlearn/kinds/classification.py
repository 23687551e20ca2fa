"""One of several classes for each text or pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from auxlearn.core.errors import DataError
from auxlearn.kinds.base import (
    LEAST,
    Arrays,
    Kind,
    Labels,
    Names,
    most_frequent,
    smooth_f1,
    softmax,
)
from auxlearn.kinds.labels import read_labels

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from auxlearn.core.table import Table


class Classification(Kind):
    """One class for each text; cross-entropy; accuracy and macro-F1.

    As the primary task it has more: out-of-distribution sets with label maps, labels that train
    lacks, thousands of classes, and a confusion matrix (:mod:`auxlearn.evaluation.evaluator`).
    """

    name = "classification"

    def read(self, table: Table, column: str, keep_null: bool) -> list[str]:
        return read_labels(table, column, keep_null)

    def check_train(self, where: str, names: Names, labels: Sequence[str]) -> None:
        if len(names) < 2:
            raise DataError(f"{where} has a single class, '{names[0]}': a classifier needs two")

    def names(self, label: str) -> tuple[str, ...]:
        return (label,)

    def renamed(self, label: str, classes: Mapping[str, str]) -> str:
        return classes.get(label, label)

    def encode(self, label: str, index: Mapping[str, int]) -> int:
        return index[label]

    def written(self, label: int, names: Names) -> str:
        return names[label]

    def classes(self, label: int) -> tuple[int, ...]:
        return (label,)

    def strata(self, labels: Sequence[int], parts: int | None = None) -> list[int]:
        return list(labels)

    def targets(self, labels: Sequence[int], classes: int) -> Tensor:
        import torch

        return torch.tensor(labels)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        from torch import nn

        return nn.functional.cross_entropy(logits, targets)

    def smooth(self, logits: Tensor, targets: Tensor, metric: str) -> Tensor:
        from torch import nn

        chosen = logits.softmax(-1)
        wanted = nn.functional.one_hot(targets, logits.shape[-1]).to(chosen)
        if metric == "macro_f1":
            return 1 - smooth_f1(chosen, wanted, "macro")
        return 1 - (chosen * wanted).sum(-1).mean()

    def decode(self, output: np.ndarray, thresholds: np.ndarray | None = None) -> int:
        return int(output.argmax())

    def constant(self, labels: Sequence[int]) -> int:
        return int(most_frequent(labels))

    def scores(
        self, truth: Labels, predicted: Labels, outputs: Arrays | None, names: Names
    ) -> dict[str, float]:
        from sklearn import metrics

        return {
            "accuracy": float(metrics.accuracy_score(truth, predicted)),
            "macro_f1": float(metrics.f1_score(truth, predicted, average="macro", zero_division=0)),
        }

    def line(self, output: np.ndarray) -> dict[str, Any]:
        return {"probabilities": [round(float(p), 8) for p in softmax(output)]}

    def stored(self, line: Mapping[str, Any], names: Names) -> np.ndarray:
        import numpy as np

        found = np.array(line["probabilities"], dtype=float)
        if found.shape != (len(names),) or not (abs(found.sum() - 1) < 1e-5 and found.min() >= 0):
            raise ValueError(f"no probabilities of {len(names)} classes")
        return found

    def output(self, stored: np.ndarray) -> np.ndarray:
        import numpy as np

        return np.asarray(np.log(stored.clip(LEAST)))

    def fault(self, truth: int, predicted: int) -> float:
        return float(truth != predicted)

    def decode_written(self, label: Any, index: Mapping[str, int]) -> int:
        return index[label]

    def decisions(
        self, truth: Labels, outputs: Arrays
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        import numpy as np

        return softmax(np.stack(list(outputs))), np.asarray(truth), np.arange(len(truth))
