"""Cross-fitting: every example is scored by a model that has not seen it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

#: ``fit(fold, train, held)`` fits a model on the examples ``train`` and returns the class
#: probabilities of the examples ``held``, ``(len(held), classes)``.
Fit = Callable[[int, list[int], list[int]], np.ndarray]


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
