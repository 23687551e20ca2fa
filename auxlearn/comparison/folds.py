"""Methods compared over the folds of a cross-validation.

The scores of a method on a fold are averaged over its seeds, and two methods are paired by fold and
seed. Folds are no independent samples: any two of them share most of their training examples, so
that a t-test over folds rejects far too often (Dietterich, 1998,
https://doi.org/10.1162/089976698300017197). The corrected resampled t-test of Nadeau and Bengio
(2003, https://doi.org/10.1023/A:1024068626366, section 3.1) therefore takes for the variance of the
mean over k folds

    (1 / k + n_test / n_train) * s**2

with the sample variance ``s**2`` of the k differences and the numbers of test and training
examples. It holds for the folds that are tested on; on other sets nothing is tested.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from auxlearn.comparison.result import DatasetRuns, MetricComparison
from auxlearn.comparison.scores import read_predictions, scores_and_covariance
from auxlearn.comparison.statistics import Noise, Pair, correct, make_pair, share_of_wins
from auxlearn.kinds.metrics import sign

#: Score by fold, by method, by seed.
FoldScores = Mapping[int, Mapping[str, Mapping[int, float]]]

#: The set that each fold is.
TESTED = "test"


def compare_folds(
    runs: DatasetRuns, name: str, metrics: Sequence[str], against: str | None
) -> list[MetricComparison]:
    """Compare methods over folds; a metric of one class over those that have examples of it."""
    read = {}
    for fold in sorted({fold for method in runs.methods for fold in method.folds}):
        members = [method.folds[fold] for method in runs.methods if fold in method.folds]
        if members := [method for method in members if name in method.sets]:
            read[fold] = read_predictions(members, name)
    sizes = [run.dataset.examples for method in runs.methods for run in method.results.values()]
    share = math.inf  # of test, by training examples; nothing is tested on other sets
    if name == TESTED:
        share = float(np.mean([size["test"] / size["train"] for size in sizes]))
    columns = []
    for metric in metrics:
        label = metric.partition(":")[2]
        scores: dict[int, dict[str, dict[int, float]]] = {}
        for fold, (predictions, places) in read.items():
            if not predictions.knows(metric) or (label and not predictions.has(label)):
                continue  # the fold says nothing of the class
            values, _ = scores_and_covariance(predictions, metric)
            for (method, seed), place in places.items():
                scores.setdefault(fold, {}).setdefault(method, {})[seed] = float(values[place])
        if not scores:
            continue
        means: dict[str, dict[int, float]] = {}
        for method in (m.name for m in runs.methods):
            for fold, by_method in scores.items():
                if method in by_method:
                    mean = float(np.mean(list(by_method[method].values())))
                    means.setdefault(method, {})[fold] = mean
        pairs = [
            compare_two(scores, a, b, share, sign(metric))
            for a, b in itertools.combinations(means, 2)
            if against not in means or against in (a, b)
        ]
        columns.append(
            MetricComparison(
                dataset=runs.name,
                set=name,
                metric=metric,
                scores=means,
                means={m: float(np.mean(list(by_fold.values()))) for m, by_fold in means.items()},
                noises={
                    m: fold_noise(list(by_fold.values()), share) for m, by_fold in means.items()
                },
                pairs=tuple(correct(pairs)),
                examples=sum(read[fold][0].examples for fold in scores),
                by_fold=True,
            )
        )
    return columns


def compare_two(scores: FoldScores, a: str, b: str, share: float, better: int) -> Pair:
    differences, beats = [], []
    for by_method in scores.values():
        seeds = sorted(set(by_method.get(a, {})) & set(by_method.get(b, {})))
        if seeds:
            first, second = ([by_method[method][seed] for seed in seeds] for method in (a, b))
            differences.append(float(np.mean(np.subtract(first, second))))
            beats.append(share_of_wins(first, second, better))
    difference = float(np.mean(differences or [math.nan]))
    wins = float(np.mean(beats or [math.nan]))
    if better * difference < 0:
        a, b, difference, wins = b, a, -difference, 1 - wins
    count = len(differences) if math.isfinite(share) else 0
    return make_pair(a, b, count, difference, wins, fold_noise(differences, share))


def fold_noise(values: Sequence[float], share: float) -> Noise:
    """Return the corrected variance of the mean over folds as that of ``seeds``; NaN if unknown."""
    count = len(values)
    if math.isinf(share):
        return Noise(math.nan, 0.0, 0.0, 0, 1)
    if count < 2:
        return Noise(0.0, 0.0, 0.0, 0, 1)
    variance = (1 / count + share) * float(np.var(values, ddof=1))
    return Noise(variance, 0.0, 0.0, count - 1, 1)
