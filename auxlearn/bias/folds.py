"""Cross-fitting: every example is scored by a model that has not seen it."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from auxlearn.errors import ConfigError
from auxlearn.rng import derive_seed

#: ``fit(fold, train, held)`` fits a model on the examples ``train`` and returns the class
#: probabilities of the examples ``held``, ``(len(held), classes)``.
Fit = Callable[[int, list[int], list[int]], np.ndarray]


def assign_folds(
    labels: Sequence[int], keys: Sequence[Hashable], folds: int, seed: int
) -> list[int]:
    """Divide examples into folds of about the same size and class distribution.

    Examples with equal keys are in the same fold. The folds do not depend on the order of the
    examples.

    Args:
        labels: One label per example.
        keys: One sortable key per example, such as its text.
        folds: Number of folds.
        seed: Seed of the random division.

    Returns:
        The fold of each example, from 0.

    Raises:
        ConfigError: There are fewer distinct keys than folds.
    """
    labels_of: dict[Hashable, Counter[int]] = defaultdict(Counter)
    for label, key in zip(labels, keys, strict=True):
        labels_of[key][label] += 1
    if len(labels_of) < folds:
        raise ConfigError(
            f"{len(labels_of)} distinct training texts cannot be divided into {folds} folds: "
            "choose fewer folds"
        )
    order = sorted(labels_of, key=repr)
    random.Random(derive_seed(seed, "folds")).shuffle(order)
    order.sort(key=lambda key: -labels_of[key].total())  # large groups first; otherwise shuffled
    sizes = [0] * folds
    sizes_by_label: dict[int, list[int]] = defaultdict(lambda: [0] * folds)
    fold_of = {}
    for key in order:
        label = min(labels_of[key], key=lambda one: (-labels_of[key][one], one))
        own = sizes_by_label[label]
        fold = min(range(folds), key=lambda number: (own[number], sizes[number], number))
        fold_of[key] = fold
        sizes[fold] += labels_of[key].total()
        for one, count in labels_of[key].items():
            sizes_by_label[one][fold] += count
    return [fold_of[key] for key in keys]


def cross_fit(fold_of: Sequence[int], fit: Fit) -> np.ndarray:
    """Return the class probabilities of all examples, each by the model of the other folds.

    Args:
        fold_of: The fold of each example.
        fit: Fits and scores; called once for each fold.

    Returns:
        Probabilities, ``(examples, classes)``, float64.
    """
    parts: dict[int, np.ndarray] = {}
    for fold in sorted(set(fold_of)):
        train = [index for index, other in enumerate(fold_of) if other != fold]
        held = [index for index, other in enumerate(fold_of) if other == fold]
        for index, row in zip(held, fit(fold, train, held), strict=True):
            parts[index] = row
    return np.stack([parts[index] for index in range(len(fold_of))]).astype(np.float64)
