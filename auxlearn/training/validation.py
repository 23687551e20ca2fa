"""The validation objective: a differentiable stand-in for the metric of a run."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from auxlearn import streams
from auxlearn.config import Metric
from auxlearn.data.batches import BatchStream, collate
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder


def smooth_macro_f1(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Macro-F1 of predicted probabilities instead of decisions, so that it has a gradient.

    With probabilities :math:`p_{nc}` and one-hot labels :math:`y_{nc}`, the counts of class c are
    expectations, and :math:`F1_c = 2 \sum_n p y / (\sum_n p + \sum_n y)`. Where every probability
    is 0 or 1 it equals macro-F1 over the classes that occur in the labels. Classes absent from
    ``labels`` are left out of the mean: a batch says nothing about finding them.

    Args:
        logits: ``(rows, classes)``.
        labels: ``(rows,)``.

    Returns:
        A scalar in [0, 1].
    """
    probabilities = logits.softmax(-1)
    truth = nn.functional.one_hot(labels, logits.shape[-1]).to(probabilities)
    present = truth.sum(0) > 0
    overlap = 2 * (probabilities * truth).sum(0)
    f1 = overlap / (probabilities.sum(0) + truth.sum(0))
    return f1[present].mean()


class ValidationObjective:
    """Loss on mini-batches of validation rows.

    For accuracy it is the cross-entropy on shuffled batches; for macro-F1 it is one minus the
    smooth macro-F1 on batches that hold as many rows of every class as possible.

    Args:
        texts: Labelled validation texts.
        batch_size: Rows of a batch.
        metric: What the weights serve.
        seed: The run's seed.
    """

    def __init__(self, texts: TokenizedTexts, batch_size: int, metric: Metric, seed: int) -> None:
        if texts.labels is None:
            raise ValueError("a validation objective needs labelled texts")
        self.texts = texts
        self.labels = texts.labels
        self.batch_size = min(batch_size, len(texts))
        self.metric = metric
        self.seed = seed
        self._stream = BatchStream(texts, self.batch_size, seed, "validation")

    def loss(self, encoder: SharedEncoder, step: int) -> Tensor:
        """Return the loss on the batch of a step, a scalar with a graph."""
        rows = self._balanced_rows(step) if self.metric == "macro_f1" else self._stream.rows(step)
        batch = collate(self.texts, rows)
        logits = encoder.classify(batch)
        labels = self.labels[rows].to(logits.device)
        if self.metric == "macro_f1":
            return 1 - smooth_macro_f1(logits, labels)
        return nn.functional.cross_entropy(logits, labels)

    def _balanced_rows(self, step: int) -> Tensor:
        """Draw rows class by class in turn; a class with few rows gives all it has."""
        generator = streams.generator(self.seed, "validation", "balanced", step)
        labels = self.labels
        order = torch.randperm(len(labels), generator=generator)
        # Rank of each row within its class, in shuffled order: rank 0 rows of all classes first.
        shuffled = labels[order]
        rank = torch.zeros_like(shuffled)
        for label in shuffled.unique():
            members = shuffled == label
            rank[members] = torch.arange(int(members.sum()))
        return order[rank.argsort(stable=True)[: self.batch_size]]
