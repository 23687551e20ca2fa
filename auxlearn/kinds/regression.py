"""Numbers to predict, such as the similarity of two texts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from auxlearn.core.errors import DataError, and_more, describe, shorten
from auxlearn.core.lazy import torch
from auxlearn.core.registry import register_kind
from auxlearn.kinds.base import Kind, ReadLabels
from auxlearn.kinds.columns import is_number, values_of
from auxlearn.kinds.labels import FEW
from auxlearn.kinds.metrics import Metric
from auxlearn.kinds.predictions import Arrays, Labels, Names

if TYPE_CHECKING:
    from torch import Tensor

    from auxlearn.core.settings import Columns
    from auxlearn.core.table import Table

#: Strata that numbers are divided into, by rank.
STRATA = 10

#: Numbers beyond it lose their digits in single precision, and the squared error overflows.
LARGEST = 1e9

#: Root mean square from which on numbers are far from what a new head predicts.
FAR = 20


@register_kind("regression")
class Regression(Kind):
    """A number for each text or pair; mean squared error; Pearson, Spearman, mean absolute error.

    The head is that of transformers with one output (``problem_type: regression``), whose value is
    the prediction. Correlations of a constant prediction, which are not defined, count as 0.
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        "pearson": Metric("Pearson", "pearsonr", least=-1.0),
        "spearman": Metric("Spearman", "spearmanr", least=-1.0),
        "mae": Metric("MAE", "mae", is_error=True, most=math.inf),
    }
    refuses = Kind.refuses | {
        "class weights and label smoothing",
        "labels (label maps)",
        "pairs of splits",
    }
    purpose = "to predict a number for texts of {data}"
    limits = "Predictions are not limited to the range of the numbers of train."
    constant_title = "the mean of train"
    problem_type = "regression"
    label_columns = ("label", "score")
    unit = "squared error"
    correct_title = "reduction of absolute error"

    def recognises(self, table: Table, columns: Columns) -> bool:
        values = values_of(table, columns.label, self.label_columns)
        numbers = values and all(map(is_number, values)) and any(map(_has_fraction, values))
        return bool(numbers) and not _are_codes(values)

    def read(self, table: Table, column: str, columns: Columns, form: str | None) -> ReadLabels:
        numbers, faults = [], []
        for row, value in enumerate(table.columns[column]):
            try:
                numbers.append(_number(value, table.place(row), column))
            except DataError as fault:
                faults.append(fault)
        if faults:
            raise DataError(f"{faults[0]}{and_more(len(faults) - 1)}")
        return ReadLabels(numbers)

    def check_train(self, where: str, names: Names, labels: Labels) -> None:
        if len(set(labels)) < 2:
            raise DataError(f"{where}: all numbers are the same: there is nothing to learn")

    def remarks(self, labels: Labels) -> Iterable[str]:
        numbers = np.asarray(labels, dtype=float)
        size, spread = np.sqrt(np.square(numbers).mean()), numbers.std()
        if size > FAR or spread < 1 / FAR**2:
            yield (
                f"the numbers of train have mean {numbers.mean():.4g} and standard deviation "
                f"{spread:.4g}: bring them into a range of about -10 to 10 first, by (x - mean) / "
                "deviation, or they are not learned in few steps"
            )
        counts = len(set(labels))
        if FEW * counts <= len(numbers):
            yield (
                f"{counts} different numbers in {len(numbers):,} examples are predicted as "
                "numbers; --kind classification takes them for classes"
            )

    def names(self, label: float) -> tuple[str, ...]:
        return ()

    def encode(self, label: Any, index: Mapping[str, int]) -> float:
        return float(label)

    def written(self, label: float, names: Names) -> float:
        return label

    def label_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return ("score",)

    def units(self, labels: Labels) -> list[float]:
        return [float(label) for label in labels]

    def classes(self, label: float) -> tuple[int, ...]:
        return (0,)

    def strata(self, labels: Labels, parts: int | None = None) -> list[int]:
        """Return the tenth, or larger part, of each number by rank; equal numbers are in one."""
        order = np.sort(np.asarray(labels))
        ranks = np.searchsorted(order, labels)
        parts = min(parts or STRATA, STRATA, len(labels))
        return (ranks * parts // len(labels)).tolist()

    def targets(self, labels: Labels, classes: int) -> Tensor:
        return torch.tensor(labels, dtype=torch.float32)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.mse_loss(logits.squeeze(-1), targets)

    def smooth(self, logits: Tensor, targets: Tensor, metric: str) -> Tensor:
        """Return 1 - Pearson, also for Spearman, whose ranks have no gradient; for MAE, itself."""
        values = logits.squeeze(-1)
        if metric == "mae":
            return torch.nn.functional.l1_loss(values, targets)
        first, second = values - values.mean(), targets - targets.mean()
        norms = first.square().sum().sqrt() * second.square().sum().sqrt()
        return 1 - (first * second).sum() / norms.clamp(min=1e-12)

    def constant_loss(self, targets: Tensor, metric: str) -> float:
        if metric == "mae":
            return float((targets - targets.median()).abs().mean())
        return float(targets.var(correction=0)) if metric not in self.metrics else 1.0

    def decode(self, output: np.ndarray, thresholds: np.ndarray | None = None) -> float:
        return float(output[0])

    def constant(self, labels: Labels) -> float:
        return float(np.mean(labels))

    def scores(
        self, truth: Labels, predicted: Labels, outputs: Arrays | None, names: Names
    ) -> dict[str, float]:
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

    def stored(self, line: Mapping[str, Any], names: Names) -> np.ndarray:
        return np.array([float(line["predicted"])])

    def output(self, stored: np.ndarray) -> np.ndarray:
        return stored

    def sums(self, truth: Labels, predicted: Labels, stored: Arrays, names: Names) -> np.ndarray:
        """Return 1, the centred numbers, their squares and product, and the absolute error."""
        first, second = np.asarray(truth, dtype=float), np.asarray(predicted, dtype=float)
        x, y = (
            numbers - numbers.mean() if np.ptp(numbers) else 0 * numbers
            for numbers in (first, second)
        )
        return np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y, np.abs(first - second)], 1)

    def of_sums(self, metric: str, sums: np.ndarray, names: Names) -> np.ndarray:
        """Return the mean absolute error or Pearson's correlation."""
        count, x, y, xx, yy, xy, error = np.moveaxis(sums, -1, 0)
        if metric == "mae":
            return np.asarray(error / count)
        spread_x, spread_y = xx - x * x / count, yy - y * y / count
        # What is left of the squares of equal numbers is rounding.
        varied = (spread_x > 1e-12 * np.max(xx)) & (spread_y > 1e-12 * np.max(yy))
        size = np.sqrt(np.where(varied, spread_x * spread_y, 1))
        return np.where(varied, (xy - x * y / count) / size, 0.0)

    def jackknife(self, metric: str, sums: np.ndarray, names: Names) -> np.ndarray:
        """Return it; Spearman's correlation is no function of sums, as the ranks change."""
        if metric != "spearman":
            return super().jackknife(metric, sums, names)
        pairs = sums[:, 1:3]
        without = (np.delete(pairs, row, axis=0) for row in range(len(pairs)))
        return np.array([_spearman(*part.T) for part in (pairs, *without)])

    def fault(self, truth: float, predicted: float) -> float:
        return abs(truth - predicted)

    def untried(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        return ("numbers scaled to about -1 to 1",)

    def example(self, number: int, words: int, outputs: int) -> float:
        return float(number % outputs)


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's correlation; 0 where it is not defined."""
    from scipy.stats import rankdata

    if len(x) < 2 or not (np.ptp(x) and np.ptp(y)):
        return 0.0
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def _number(value: Any, place: str, column: str) -> float:
    shown = shorten(column)
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
            raise ValueError
        if isinstance(value, str) and "_" in value:  # which Python takes for no character
            raise ValueError
        number = float(value)
    except (ValueError, OverflowError):
        raise DataError(
            f"{place}: a number to predict is needed, but column '{shown}' holds "
            f"{describe(value)}: write it with a decimal point, without a unit, or delete the row"
        ) from None
    if not math.isfinite(number) or abs(number) > LARGEST:
        raise DataError(
            f"{place}: column '{shown}' holds {describe(value)}: a number to predict is finite and "
            f"at most {LARGEST:.0e}"
        )
    return number


def _are_codes(numbers: Iterable[Any]) -> bool:
    """Return whether texts are numbered as no program writes numbers: 01.17, 250.00 and 401.9."""
    texts = [number.strip().lstrip("+-") for number in numbers if isinstance(number, str)]
    digits = {text.partition(".")[2] for text in texts}
    ragged = len({len(fraction) for fraction in digits}) > 1 and any(
        len(fraction) > 1 and fraction.endswith("0") for fraction in digits
    )
    return ragged or any(re.match("0[0-9]", text) for text in texts)


def _has_fraction(value: Any) -> bool:
    number = float(value)
    return number == number and not number.is_integer()
