"""Bias models of hand-made features: lexical overlap of a pair, and one text of it alone.

The overlap features are those of Clark et al. 2019, "Don't Take the Easy Way Out: Ensemble Based
Methods for Avoiding Known Dataset Biases", https://arxiv.org/abs/1909.03683 (code at
https://github.com/chrisc36/debias), without its three similarities of word vectors, which would
need a download. A model of one text alone is the hypothesis-only model of Karimi Mahabadi et al.
2020, https://arxiv.org/abs/1909.06321, here with TF-IDF in place of an encoder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from auxlearn.bias.folds import Fit

#: A word or a single punctuation mark.
TOKEN = r"\w+|[^\w\s]"

#: Inverse strength of the regularisation of the overlap model, that of the released code.
OVERLAP_C = 100.0

#: Largest number of n-grams of the model of one text.
MAX_NGRAMS = 50_000


def overlap_features(first: str, second: str) -> tuple[float, float, float, float]:
    """Return how much of the second text of a pair occurs in the first.

    Words are compared in lower case; punctuation marks are words.

    Args:
        first: The first text, such as a premise.
        second: The second text, such as a hypothesis.

    Returns:
        Whether the second text is a contiguous part of the first; whether all of its words occur in
        it; the share of its words that do; the logarithm of the number of words by which it is
        shorter, at least one.
    """
    one, other = (re.findall(TOKEN, text.lower()) for text in (first, second))
    known = set(one)
    inside = sum(word in known for word in other)
    starts = range(len(one) - len(other) + 1)
    contiguous = any(one[start : start + len(other)] == other for start in starts)
    return (
        float(contiguous),
        float(inside == len(other)),
        inside / max(1, len(other)),
        math.log(max(len(one) - len(other), 1)),
    )


def overlap_fit(
    texts: Sequence[str], pairs: Sequence[str], labels: Sequence[int], classes: int
) -> Fit:
    """Return what fits a logistic regression on the overlap features.

    The released model joins neutral and contradiction and gives both classes the same weight;
    here it has all classes, weighted as they occur.
    """
    features = np.array([overlap_features(*pair) for pair in zip(texts, pairs, strict=True)])

    def fit(fold: int, train: list[int], held: list[int]) -> np.ndarray:
        targets = np.asarray(labels)[train]
        return _regress(features[train], targets, features[held], classes, OVERLAP_C)

    return fit


def segment_fit(texts: Sequence[str], labels: Sequence[int], classes: int) -> Fit:
    """Return what fits a logistic regression on the TF-IDF of words and pairs of words."""

    def fit(fold: int, train: list[int], held: list[int]) -> np.ndarray:
        vectorizer = TfidfVectorizer(
            token_pattern=TOKEN, ngram_range=(1, 2), sublinear_tf=True, max_features=MAX_NGRAMS
        )
        known = vectorizer.fit_transform([texts[index] for index in train])
        unknown = vectorizer.transform([texts[index] for index in held])
        return _regress(known, np.asarray(labels)[train], unknown, classes, 1.0)

    return fit


def _regress(
    train: object, targets: np.ndarray, held: object, classes: int, c: float
) -> np.ndarray:
    """Return class probabilities by a logistic regression, 0 for classes without an example."""
    present = np.unique(targets)
    probabilities = np.zeros((held.shape[0], classes))  # type: ignore[attr-defined]
    if len(present) == 1:
        probabilities[:, present] = 1.0
        return probabilities
    model = LogisticRegression(C=c, max_iter=1000).fit(train, targets)
    probabilities[:, present] = model.predict_proba(held)
    return probabilities
