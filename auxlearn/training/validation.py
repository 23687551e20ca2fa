"""The validation objective: the surrogate loss on mini-batches of validation examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from auxlearn import rng
from auxlearn.config import Metric
from auxlearn.data.batches import Batch, UniformStream, collate
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.devices import upload
from auxlearn.encoders.precision import full_precision
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.evaluation.surrogate import surrogate_loss
from auxlearn.training.dev_head import HEAD_ROWS, closed_form_head, fit, fresh_head
from auxlearn.weighting.base import DevHead


class ValidationObjective:
    """Loss on mini-batches of validation rows.

    For accuracy it is the cross-entropy on uniform draws; for macro-F1 it is one minus the smooth
    macro-F1 on batches that hold as many rows of every class as possible.

    Args:
        texts: Labelled validation texts.
        batch_size: Rows of a batch.
        metric: What the weights serve.
        seed: The run's seed.
        head: What the loss is read through: the run's own classifier, or a head fitted in every
            step to other validation rows (:mod:`auxlearn.training.dev_head`).
        draws: Batches of a step.
        attends_to_padding: Leave the attention mask out.
    """

    def __init__(
        self,
        texts: TokenizedTexts,
        batch_size: int,
        metric: Metric,
        seed: int,
        head: DevHead = "own",
        draws: int = 1,
        attends_to_padding: bool = False,
    ) -> None:
        if texts.labels is None:
            raise ValueError("a validation objective needs labelled texts")
        self.texts = texts
        self.labels = texts.labels
        self.batch_size = min(batch_size, len(texts))
        self.metric = metric
        self.seed = seed
        self.head = head
        self.draws = draws
        self.attends_to_padding = attends_to_padding
        self._stream = UniformStream(texts, self.batch_size, seed, "validation")
        self._head_stream = UniformStream(texts, HEAD_ROWS, seed, "dev head")
        self._heads: dict[int, nn.Module] = {}

    def loss(self, encoder: SharedEncoder, step: int, draw: int = 0) -> Tensor:
        """Return the loss on a batch of a step, a scalar with a graph.

        Args:
            encoder: The encoder, in evaluation mode.
            step: The update.
            draw: Which of the step's batches; they are read through the same head.
        """
        number = step * self.draws + draw
        balanced = self.metric == "macro_f1"
        rows = self._balanced_rows(number) if balanced else self._stream.indices(number)
        batch = self._batch(rows)
        assert batch.labels is not None
        if self.head == "own":
            logits = encoder.classify(batch)
        else:
            head = self._dev_head(encoder, step, draw)
            features = encoder.features(batch)
            with full_precision(features.device):
                logits = head(features)
        return surrogate_loss(logits, batch.labels, self.metric)

    def _dev_head(self, encoder: SharedEncoder, step: int, draw: int) -> Callable[[Tensor], Tensor]:
        """Return the head of a step, with a graph if it has a closed form.

        A fitted head is kept for all draws of its step. That the body decides what is fitted is
        left out of the derivative: it would take the graphs of all steps of the fit.
        """
        batch = self._batch(self._head_stream.indices(step))
        assert batch.labels is not None
        classes = encoder.config.num_labels
        if self.head == "closed":
            features = encoder.features(batch)
            with full_precision(features.device):
                return closed_form_head(features, upload(batch.labels, features.device), classes)
        if draw == 0:
            self._heads = {step: self._fit(encoder, batch, batch.labels, classes, step)}
        return self._heads[step]

    def _fit(
        self, encoder: SharedEncoder, batch: Batch, labels: Tensor, classes: int, step: int
    ) -> nn.Module:
        def features() -> Tensor:
            with torch.no_grad():
                return encoder.features(batch)

        once = features()
        head = fresh_head(once.shape[1], classes, self.seed, step, once)
        given = features if self.head == "refitted" else lambda: once
        return fit(head, given, upload(labels, once.device))

    def _batch(self, rows: Tensor) -> Batch:
        batch = collate(self.texts, rows)
        if self.attends_to_padding:
            return replace(batch, attention_mask=torch.ones_like(batch.attention_mask))
        return batch

    def _balanced_rows(self, step: int) -> Tensor:
        """Draw rows class by class in turn; a class with few rows gives all it has."""
        generator = rng.generator(self.seed, "validation", "balanced", step)
        labels = self.labels
        order = torch.randperm(len(labels), generator=generator)
        # Rank of each row within its class, in shuffled order: rank 0 rows of all classes first.
        shuffled = labels[order]
        rank = torch.zeros_like(shuffled)
        for label in shuffled.unique():
            members = shuffled == label
            rank[members] = torch.arange(int(members.sum()))
        return order[rank.argsort(stable=True)[: self.batch_size]]
