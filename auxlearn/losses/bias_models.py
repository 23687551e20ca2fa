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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from torch import nn

from auxlearn.core import rng
from auxlearn.core.progress import ProgressBar
from auxlearn.data.batches import BatchStream, collate, eval_batches
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import upload
from auxlearn.encoders.optimizer import Schedule, build_optimizer
from auxlearn.encoders.shared import SharedEncoder, copy_tensors

#: ``fit(fold, train, held)`` fits a model on the examples ``train`` and returns the class
#: probabilities of the examples ``held``, ``(len(held), classes)``.
Fit = Callable[[int, list[int], list[int]], np.ndarray]


def cross_fit(fold_of: Sequence[int], fit: Fit) -> np.ndarray:
    """Return class probabilities ``(examples, classes)``, each by the model of the other folds."""
    parts: dict[int, np.ndarray] = {}
    for fold in sorted(set(fold_of)):
        train = [index for index, other in enumerate(fold_of) if other != fold]
        held = [index for index, other in enumerate(fold_of) if other == fold]
        parts |= zip(held, fit(fold, train, held), strict=True)
    return np.stack([parts[index] for index in range(len(fold_of))]).astype(np.float64)


#: A word or a single punctuation mark.
TOKEN = r"\w+|[^\w\s]"

#: Inverse strength of the regularisation of the overlap model, that of the released code.
OVERLAP_C = 100.0

#: Largest number of n-grams of the model of one text.
MAX_NGRAMS = 50_000


def overlap_features(first: str, second: str) -> tuple[float, float, float, float]:
    """Return how much of the second text of a pair, such as a hypothesis, occurs in the first.

    Whether it is a contiguous part of the first; whether all of its words (and punctuation marks,
    in lower case) occur in it; the share of them that do; the logarithm of the number of words by
    which it is shorter, at least one.
    """
    premise, hypothesis = (re.findall(TOKEN, text.lower()) for text in (first, second))
    known = set(premise)
    inside = sum(word in known for word in hypothesis)
    starts = range(len(premise) - len(hypothesis) + 1)
    contiguous = any(premise[start : start + len(hypothesis)] == hypothesis for start in starts)
    return (
        float(contiguous),
        float(inside == len(hypothesis)),
        inside / max(1, len(hypothesis)),
        math.log(max(len(premise) - len(hypothesis), 1)),
    )


def overlap_fit(
    texts: Sequence[str], pairs: Sequence[str], labels: Sequence[int], classes: int
) -> Fit:
    """Return what fits a logistic regression on the overlap features, for all classes."""
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


#: Examples per optimizer step, and per forward pass of scoring.
BATCH_SIZE = 32

#: Share of the steps in which the learning rate rises; it falls linearly to zero afterwards.
WARMUP = 0.1
WEIGHT_DECAY = 0.01
MAX_GRAD_NORM = 1.0


@dataclass(frozen=True)
class FineTuning:
    """How an encoder is fine-tuned."""

    epochs: int
    learning_rate: float
    examples: int | None = None  # at most so many, drawn at random; None for all


def encoder_fit(
    encoder: SharedEncoder,
    texts: TokenizedTexts,
    settings: FineTuning,
    seed: int,
    title: str,
    progress: ProgressBar,
) -> Fit:
    """Return what fine-tunes an encoder and scores with it; the encoder stays as it is."""

    def fit(fold: int, train: list[int], held: list[int]) -> np.ndarray:
        chosen = torch.tensor(train)
        if settings.examples is not None:
            order = torch.randperm(len(chosen), generator=rng.generator(seed, "examples", fold))
            chosen = chosen[order[: settings.examples].sort().values]
        total = settings.epochs * -(-len(chosen) // BATCH_SIZE)
        with restored(encoder), progress(f"{title}, fold {fold + 1}", total) as advance:
            fold_seed = rng.derive_seed(seed, fold)
            fine_tune(encoder, texts.select(chosen), settings, fold_seed, advance)
            return class_probabilities(encoder, texts.select(torch.tensor(held)))

    return fit


@contextmanager
def restored(encoder: SharedEncoder) -> Iterator[None]:
    """Give the classifier its weights and its mode back at the end of the context."""
    training = encoder.training
    before = {name: value.clone() for name, value in encoder.classifier.state_dict().items()}
    try:
        yield
    finally:
        copy_tensors(encoder.classifier.state_dict(), before)
        for parameter in encoder.classifier.parameters():
            parameter.grad = None
        encoder.train(training)


def fine_tune(
    model: SharedEncoder,
    texts: TokenizedTexts,
    settings: FineTuning,
    seed: int,
    advance: Callable[[int], None],
) -> None:
    """Fine-tune a classifier in place; it is in evaluation mode afterwards."""
    stream = BatchStream(texts, BATCH_SIZE, seed, "bias")
    total = settings.epochs * stream.steps_per_epoch
    parameters = list(model.classifier.parameters())
    # Not fused, which rounds in another way: probabilities in caches stay those that are computed.
    optimizer = build_optimizer(parameters, settings.learning_rate, WEIGHT_DECAY, fused=False)
    schedule = Schedule(optimizer, total, WARMUP)
    model.train()
    for step in range(total):
        schedule.apply(step)
        batch = stream.batch(step)
        assert batch.labels is not None
        with rng.seeded(seed, "dropout", step, device=model.device):
            logits = model.classify(batch)
            loss = nn.functional.cross_entropy(logits, upload(batch.labels, logits.device))
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        advance(1)
    model.eval()


@torch.no_grad()
def class_probabilities(model: SharedEncoder, texts: TokenizedTexts) -> np.ndarray:
    """Return class probabilities, ``(texts, classes)``, float64."""
    batches = eval_batches(texts, BATCH_SIZE)
    logits = torch.cat([model.classify(collate(texts, rows)).double() for rows in batches])
    return logits.softmax(-1).cpu()[torch.cat(batches).argsort()].numpy()
