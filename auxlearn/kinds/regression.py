"""Numbers to predict, such as the similarity of two texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from auxlearn.core.errors import DataError, describe, shorten
from auxlearn.kinds.base import Kind

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from auxlearn.data.tables import Table

#: Strata that numbers are divided into, by rank.
STRATA = 10

#: Numbers beyond it lose their digits in single precision, and the squared error overflows.
LARGEST = 1e9


class Regression(Kind):
    """A number for each text or pair; mean squared error; Pearson, Spearman, mean absolute error.

    The head is that of transformers with one output (``problem_type: regression``), whose value is
    the prediction. Correlations of a constant prediction, which are not defined, count as 0.
    """

    name = "regression"
    problem_type = "regression"
    label_columns = ("label", "score")
    unit = "squared error"

    def read(self, table: Table, column: str, keep_null: bool) -> list[float]:
        return [
            _number(value, table.place(row), column)
            for row, value in enumerate(table.columns[column])
        ]

    def check_train(self, where: str, names: Sequence[str], labels: Sequence[float]) -> None:
        if len(set(labels)) < 2:
            raise DataError(f"{where}: all numbers are the same: there is nothing to learn")

    def names(self, label: float) -> tuple[str, ...]:
        return ()

    def encode(self, label: float, index: Mapping[str, int]) -> float:
        return label

    def written(self, label: float, names: Sequence[str]) -> float:
        return label

    def label_names(self, found: tuple[str, ...]) -> tuple[str, ...]:
        return ("score",)

    def classes(self, label: float) -> tuple[int, ...]:
        return ()

    def strata(self, labels: Sequence[float]) -> list[int]:
        """Return the tenth of each number by rank; equal numbers are in one."""

        import numpy as np

        order = np.sort(np.asarray(labels))
        ranks = np.searchsorted(order, labels)
        return [int(one) for one in ranks * min(STRATA, len(labels)) // len(labels)]

    def targets(self, labels: Sequence[float], classes: int) -> Tensor:
        import torch

        return torch.tensor(labels, dtype=torch.float32)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        from torch import nn

        return nn.functional.mse_loss(logits.squeeze(-1), targets)

    def smooth(self, logits: Tensor, targets: Tensor, metric: str) -> Tensor:
        """Return 1 - Pearson, also for Spearman, whose ranks have no gradient; for MAE, itself."""

        from torch import nn

        values = logits.squeeze(-1)
        if metric == "mae":
            return nn.functional.l1_loss(values, targets)
        first, second = values - values.mean(), targets - targets.mean()
        norms = first.square().sum().sqrt() * second.square().sum().sqrt()
        return 1 - (first * second).sum() / norms.clamp(min=1e-12)

    def constant_loss(self, targets: Tensor, metric: str) -> float:
        if metric == "mae":
            return float((targets - targets.median()).abs().mean())
        return float(targets.var(correction=0)) if metric not in self.metrics else 1.0

    def decode(self, output: np.ndarray, thresholds: np.ndarray | None = None) -> float:
        return float(output[0])

    def constant(self, labels: Sequence[float]) -> float:
        import numpy as np

        return float(np.mean(labels))

    def scores(
        self,
        truth: Sequence[float],
        predicted: Sequence[float],
        outputs: Sequence[np.ndarray] | None,
        names: Sequence[str],
    ) -> dict[str, float]:
        import numpy as np
        from scipy import stats

        first, second = np.asarray(truth, dtype=float), np.asarray(predicted, dtype=float)
        varied = len(first) > 1 and np.ptp(first) > 0 and np.ptp(second) > 0
        return {
            "pearson": float(stats.pearsonr(first, second).statistic) if varied else 0.0,
            "spearman": float(stats.spearmanr(first, second).statistic) if varied else 0.0,
            "mae": float(np.abs(first - second).mean()),
        }

    def line(self, output: np.ndarray) -> dict[str, Any]:
        return {}

    def output(self, line: Mapping[str, Any], names: Sequence[str]) -> np.ndarray:
        import numpy as np

        return np.array([float(line["predicted"])])

    def decode_written(self, label: Any, index: Mapping[str, int]) -> float:
        return float(label)

    def decisions(
        self, truth: Sequence[float], outputs: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        return None


def _number(value: Any, place: str, column: str) -> float:
    shown = shorten(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise DataError(
            f"{place}: missing number in column '{shown}': fill it in or delete the row"
        )
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        number = float(value)
    except (ValueError, OverflowError):
        raise DataError(
            f"{place}: a number to predict is needed, but column '{shown}' holds {describe(value)}"
        ) from None
    if not math.isfinite(number) or abs(number) > LARGEST:
        raise DataError(
            f"{place}: column '{shown}' holds {describe(value)}: a number to predict is finite and "
            f"at most {LARGEST:.0e}"
        )
    return number
