"""Any number of labels for each text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from auxlearn.core.errors import DataError, describe, shorten, some_of
from auxlearn.core.lazy import torch
from auxlearn.core.registry import register_kind
from auxlearn.kinds.base import LEAST, ClassScores, Kind, ReadLabels, most_frequent
from auxlearn.kinds.columns import is_list, values_of
from auxlearn.kinds.labels import (
    SEPARATORS,
    check_no_tags,
    joined_label,
    listed,
    look_joined,
    read_names,
    whole_list,
)
from auxlearn.kinds.metrics import Metric, f1_of, of_counts, smooth_f1
from auxlearn.kinds.predictions import Arrays, Labels, Names

if TYPE_CHECKING:
    from torch import Tensor

    from auxlearn.core.settings import Columns
    from auxlearn.core.table import Table


INDICATORS = (
    "indicators of "  # begins the form of lists that say of every label whether it is there
)
_PRESENT, _ABSENT = {"1", "1.0", "True"}, {"0", "0.0", "False"}


@register_kind("multi_label")
class MultiLabel(Kind):
    """A list of labels for each text, also an empty one; sigmoid and binary cross-entropy.

    The head is that of transformers with an output for each label (``problem_type:
    multi_label_classification``). A label is predicted if its probability is at least its
    threshold. Metrics are those of scikit-learn: micro-F1, macro-F1 over the labels of train,
    subset accuracy (all labels of a text right), and the ranking precision
    (``label_ranking_average_precision_score``), which needs no threshold.
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        "micro_f1": Metric("micro-F1", "f1"),
        "macro_f1": Metric("macro-F1", "f1"),
        "accuracy": Metric("accuracy", "accuracy"),
        "lrap": Metric("LRAP", "lrap"),
    }
    refuses = Kind.refuses - {"thresholds"}
    purpose = "to give texts of {data} any of {count} labels: {labels}"
    limits = (
        "A text may be assigned none of the labels above; the pipeline shows the probability of "
        "each with `top_k=None`."
    )
    constant_title = "the most frequent list of labels of train"
    problem_type = "multi_label_classification"
    label_columns = ("label", "labels")

    def recognises(self, table: Table, columns: Columns) -> bool:
        values = values_of(table, columns.label, self.label_columns)
        return bool(values) and all(map(is_list, values))

    def read(self, table: Table, column: str, columns: Columns, form: str | None) -> ReadLabels:
        """Return the labels of each row. Lists of 0 and 1 of one length are indicators: the label
        0 is that of the first place, as in the data that transformers' models are trained on.
        """
        values = table.columns[column]
        rows = [_labels(value, table.place(row), column) for row, value in enumerate(values)]
        _check_no_blank(table, column)
        here = f"{INDICATORS}{len(rows[0])} labels" if _are_indicators(rows) else ""
        if (form or "").startswith(INDICATORS) and form != here:
            raise DataError(
                f"{table.where}: column '{shorten(column)}' of train holds {form}, but here are "
                f"{here or describe(values[0])}: write the names of the labels in every split"
            )
        if here and form in (None, here):
            note = (
                f"lists such as {describe(values[0])} are read as indicators of the labels 0 to "
                f"{len(rows[0]) - 1}, by their places"
            )
            named = (zip(map(str, range(len(row))), row, strict=True) for row in rows)
            places = [tuple(name for name, mark in row if str(mark) in _PRESENT) for row in named]
            never = sorted({*map(str, range(len(rows[0])))}.difference(*places), key=int)
            lacking = f"no example has the label {some_of(never)}: training on them gives no output"
            notes = (note, lacking) if never and form is None else (note,)
            return self._renamed(ReadLabels(places, here, notes), columns)
        if columns.kind is None and form is None:  # train, which comes first
            tags = [" ".join(map(str, row)) for row in rows]
            check_no_tags(table, column, tags, table.columns[columns.text], self.name)
        read = read_names(table, column, rows, self.name, columns, form)
        for row, names in enumerate(read.labels):
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise DataError(
                    f"{table.place(row)}: column '{shorten(column)}' names the label "
                    f"'{shorten(twice)}' twice"
                )
        _check_joined(table, column, read.labels, columns.renamed)
        if blank := sum(isinstance(value, str) and not value.strip() for value in values):
            note = f"{blank} of {len(values)} cells of '{shorten(column)}' are empty: no label"
            read = replace(read, notes=(*read.notes, note))
        return self._renamed(read, columns)

    def _renamed(self, read: ReadLabels, columns: Columns) -> ReadLabels:
        new = columns.renamed
        labels = [
            tuple(dict.fromkeys(new.get(name, name) for name in names)) for names in read.labels
        ]
        return replace(read, labels=labels, found=read.labels)

    def check_train(self, where: str, names: Names, labels: Labels) -> None:
        if len({frozenset(label) for label in labels}) < 2:
            raise DataError(f"{where}: every text has the same labels: there is nothing to learn")
        if len(names) < 2:
            name = shorten(names[0])
            raise DataError(
                f"{where} has one label, '{name}', which some texts have: write two classes, such "
                f"as '{name}' and 'no {name}', without lists"
            )

    def remarks(self, labels: Labels) -> Iterable[str]:
        if all(len(label) == 1 for label in labels):
            yield "each list of train has one label: single classes are written without lists"

    def encode(self, label: tuple[str, ...], index: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sorted({index[name] for name in label}))

    def targets(self, labels: Labels, classes: int) -> Tensor:
        targets = torch.zeros(len(labels), classes)
        for row, label in enumerate(labels):
            targets[row, list(label)] = 1.0
        return targets

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)

    def choices(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the choice of each label between absent and there, whose softmax is a sigmoid."""
        pairs = torch.stack([torch.zeros_like(logits), logits], -1)
        return pairs.flatten(0, -2), targets.long().flatten()

    def outcomes(self, targets: Tensor) -> Tensor:
        places = 2 * torch.arange(targets.shape[-1], device=targets.device)
        return (places + targets.long()).flatten()

    def outcome_weights(self, weights: Sequence[float]) -> list[float]:
        return [value for weight in weights for value in (1.0, weight)]

    def smooth(self, logits: Tensor, targets: Tensor, metric: str) -> Tensor:
        """Return one minus the F1 of expected counts, or the expected subset accuracy.

        For LRAP, whose ranks have no gradient, it is the binary cross-entropy.
        """
        if metric in ("micro_f1", "macro_f1"):
            return 1 - smooth_f1(logits.sigmoid(), targets, metric.removesuffix("_f1"))
        if metric == "accuracy":
            signs = 2 * targets - 1
            return 1 - torch.nn.functional.logsigmoid(signs * logits).sum(-1).exp().mean()
        return self.loss(logits, targets)

    def constant_loss(self, targets: Tensor, metric: str) -> float:
        shares = targets.mean(0)
        if metric == "macro_f1":  # all labels are predicted: 2s / (1 + s) for each share s
            return 1 - float(smooth_f1(torch.ones_like(targets), targets, "macro"))
        if metric == "micro_f1":  # the k most frequent: 2 (s_1 + ... + s_k) / (k + sum of all s)
            right = shares.sort(descending=True).values.cumsum(0)
            predicted = torch.arange(1, len(right) + 1)
            return 1 - float((2 * right / (predicted + shares.sum())).max())
        if metric == "accuracy":
            counts = targets.unique(dim=0, return_counts=True)[1]
            return 1 - float(counts.max()) / len(targets)
        return float(self.loss(shares.logit(1e-6).expand_as(targets), targets))

    def decode(self, output: np.ndarray, thresholds: np.ndarray | None = None) -> tuple[int, ...]:
        least = 0.5 if thresholds is None else thresholds
        return tuple((_sigmoid(output) >= least).nonzero()[0].tolist())

    def constant(self, labels: Labels) -> tuple[int, ...]:
        return tuple(most_frequent(tuple(label) for label in labels))

    def scores(
        self, truth: Labels, predicted: Labels, outputs: Arrays | None, names: Names
    ) -> dict[str, float]:
        ranked = outputs
        if ranked is None:  # without probabilities the labels themselves are ranked
            ranked = self.targets(predicted, len(names)).numpy()
        sums = self.sums(truth, predicted, ranked, names).sum(0)
        return {metric: float(self.of_sums(metric, sums, names)) for metric in self.metrics}

    def per_class(self, truth: Labels, predicted: Labels, names: Names) -> ClassScores:
        there, guessed = (
            self.targets(labels, len(names)).double() for labels in (truth, predicted)
        )
        counts = torch.stack([(there * guessed).sum(0), guessed.sum(0), there.sum(0)], 1).tolist()
        return {name: f1_of(*count) for name, count in zip(names, counts, strict=True)}

    def best_thresholds(self, truth: Labels, outputs: Arrays) -> np.ndarray | None:
        """Return for each label the threshold with the best F1; 0.5 for one without examples.

        The thresholds tried lie halfway between neighbouring probabilities; of equally good ones
        the nearest to 0.5 is taken.
        """
        chosen = _sigmoid(np.stack(list(outputs)))
        wanted = self.targets(truth, chosen.shape[1]).numpy().astype(bool)
        return np.array([_threshold(p, y) for p, y in zip(chosen.T, wanted.T, strict=True)])

    def line(self, output: np.ndarray) -> dict[str, Any]:
        return {"probabilities": [round(float(p), 8) for p in _sigmoid(output)]}

    def output(self, stored: np.ndarray) -> np.ndarray:
        chosen = stored.clip(LEAST, 1 - LEAST)
        return np.asarray(np.log(chosen) - np.log1p(-chosen))

    def counted(self, names: Names) -> tuple[str, ...]:
        return tuple(names)

    def sums(self, truth: Labels, predicted: Labels, stored: Arrays, names: Names) -> np.ndarray:
        """Return counts by label, then whether all labels are right, the precision of ranks, 1."""
        there, guessed = (self.targets(labels, len(names)).numpy() for labels in (truth, predicted))
        equal = (there == guessed).all(1)
        ranked = [_ranking(t, p) for t, p in zip(there > 0, stored, strict=True)]
        further = np.stack([equal, ranked, np.ones(len(equal))], 1)
        return np.concatenate([there * guessed, guessed, there, further], 1)

    def of_sums(self, metric: str, sums: np.ndarray, names: Names) -> np.ndarray:
        right, guessed, there, further = np.split(
            sums, [len(names) * n for n in (1, 2, 3)], axis=-1
        )
        if metric in ("accuracy", "lrap"):
            return np.asarray(further[..., int(metric == "lrap")] / further[..., 2])
        return of_counts(metric, right, guessed, there, names)

    def fault(self, truth: tuple[int, ...], predicted: tuple[int, ...]) -> float:
        return float(len({*truth} ^ {*predicted}))

    def most_faults(self, label: tuple[int, ...], names: Names) -> int:
        return len(names)

    def untried(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        return () if "thresholds" in config else ("thresholds dev",)


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return np.asarray(expit(logits))


def _ranking(truth: np.ndarray, chosen: np.ndarray) -> float:
    """Return the mean over true labels of the share of true ones among those ranked as high."""
    if truth.all() or not truth.any():
        return 1.0
    above = chosen[truth][:, None] <= chosen
    return float(np.mean((above & truth).sum(1) / above.sum(1)))


def _threshold(probabilities: np.ndarray, truth: np.ndarray) -> float:
    if not truth.any():
        return 0.5
    values = np.unique(probabilities)
    tried = np.concatenate([[0.5, values[0] / 2], (values[1:] + values[:-1]) / 2])
    chosen = probabilities[None, :] >= tried[:, None]
    f1 = 2 * (chosen & truth).sum(1) / (chosen.sum(1) + truth.sum())
    best = tried[f1 >= f1.max() - 1e-12]
    return float(best[np.abs(best - 0.5).argmin()])


_UNQUOTED = re.compile(r"\[.*\]|\{[^:]*\}", re.DOTALL)  # a list without quotation marks


def _labels(value: Any, place: str, column: str) -> Sequence[Any]:
    if isinstance(value, str):
        names = whole_list(value, f"{place}: ")
        if names is None and _UNQUOTED.fullmatch(value.strip()):
            raise DataError(
                f"{place}: {describe(value)} is no list: write it in JSON, or join by |"
            )
        if names is None:
            names = [part.strip() for part in value.split("|")] if value.strip() else []
        return names
    if not isinstance(value, list | tuple):
        raise DataError(
            f"{place}: a list of labels is needed, an empty one for a text without any, but column "
            f"'{shorten(column)}' holds {describe(value)}"
        )
    return value


def _check_no_blank(table: Table, column: str) -> None:
    """Refuse empty cells beside lists, as programs write a missing value."""
    cells = [value.strip() if isinstance(value, str) else "[]" for value in table.columns[column]]
    if "" in cells and any(listed(cell) is not None for cell in cells):
        raise DataError(
            f"{table.place(cells.index(''))}: a cell of column '{shorten(column)}' is empty beside "
            "lists: write [] for a text without any label"
        )


def _are_indicators(rows: Sequence[Sequence[Any]]) -> bool:
    """Whether lists say 0 or 1 of each label, as no labels would be."""
    if len({len(row) for row in rows}) != 1 or len(rows[0]) < 2:
        return False
    return {str(mark) for row in rows for mark in row} <= _PRESENT | _ABSENT


def _check_joined(
    table: Table, column: str, labels: Sequence[tuple[str, ...]], renamed: Collection[str]
) -> None:
    """Check that no label is several, joined by something other than ``|``, unless it is
    ``renamed``; in a column of single names those that share a part with another one are.
    """
    names = list(dict.fromkeys(name for names in labels for name in names))
    cells = (cell for cell, names in zip(table.columns[column], labels, strict=True) if names)
    alone = all(isinstance(cell, str) and listed(cell) is None for cell in cells)
    alone = alone and all(len(names) < 2 for names in labels)
    joined = joined_label(names, renamed, SEPARATORS if alone else "|;,<")
    if not joined and alone:
        open_names = [name for name in names if name not in renamed]
        joined = next(iter(look_joined(open_names, "|;,<", "#/+& ")), "")
    if joined:
        row = next(row for row, names in enumerate(labels) if joined in names)
        raise DataError(
            f"{table.place(row)}: the label '{shorten(joined)}' in column '{shorten(column)}' "
            "looks like several labels: join them by |, or write a list in JSON; --labels says "
            "that it is one"
        )
