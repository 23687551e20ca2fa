"""The validation objective: the surrogate loss on mini-batches of validation examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor, nn

from auxlearn import rng
from auxlearn.data.batches import Batch, UniformStream, collate
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.devices import upload
from auxlearn.encoders.precision import full_precision
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.errors import DataError
from auxlearn.evaluation.surrogate import Surrogate, surrogate_loss
from auxlearn.training.dev_head import HEAD_EXAMPLES, closed_form_head, fit_head, initialise_head
from auxlearn.weighting.base import DevHead


class ValidationObjective:
    """Loss on mini-batches of validation examples.

    For accuracy it is one minus the smooth accuracy on uniformly drawn batches; for macro-F1 one
    minus the smooth macro-F1 on batches with equal numbers of examples per class, as far as
    possible.

    Args:
        texts: Labelled validation texts.
        batch_size: Examples per batch.
        surrogate: The metric that the loss stands for, or the cross-entropy on uniform batches.
        seed: The run's seed.
        head: Head that the loss is computed through: the run's own classification head, or one
            fitted in every step to other validation examples (:mod:`auxlearn.training.dev_head`):
            32, or half of all if there are fewer than 64.
        batches_per_step: Number of batches that belong to one optimizer step.
        attends_to_padding: Let attention include padding tokens.

    Raises:
        ValueError: The texts have no labels.
        DataError: There is a single text, and a head is to be fitted to another one.
    """

    def __init__(
        self,
        texts: TokenizedTexts,
        batch_size: int,
        surrogate: Surrogate,
        seed: int,
        head: DevHead = "own",
        batches_per_step: int = 1,
        attends_to_padding: bool = False,
    ) -> None:
        if texts.labels is None:
            raise ValueError("a validation objective needs labelled texts")
        self.texts = texts
        self.labels = texts.labels
        if head != "own" and len(texts) < 2:
            raise DataError(
                "a dev head is fitted to other validation examples than those of the loss: give "
                "at least two, or choose the dev head own"
            )
        head_size = 0 if head == "own" else min(HEAD_EXAMPLES, len(texts) // 2)
        self.batch_size = min(batch_size, len(texts) - head_size)
        self.surrogate = surrogate
        self.seed = seed
        self.head = head
        self.batches_per_step = batches_per_step
        self.attends_to_padding = attends_to_padding
        # Of a step if it has a dev head, whose examples come first; else of one batch.
        drawn = self.batch_size if not head_size else head_size + batches_per_step * self.batch_size
        self._head_size = head_size
        self._stream = UniformStream(texts, drawn, seed, "validation")
        self._heads: dict[int, nn.Module] = {}

    @cached_property
    def constant_loss(self) -> float:
        """Loss of the best prediction that is the same for every example.

        For accuracy it is certain of the most frequent class. The cross-entropy is lowest for the
        shares of the classes, whose entropy it is. The smooth macro-F1 of a balanced batch is
        highest for the shares of the classes in it, where it is 1 / classes; if a batch is too
        small to hold all classes, for equal probabilities, where it is 2 / (classes + examples).
        """
        counts = self.labels.unique(return_counts=True)[1].double()
        shares = counts / counts.sum()
        if self.surrogate == "macro_f1":
            return 1 - 2 / (len(shares) + min(len(shares), self.batch_size))
        if self.surrogate == "accuracy":
            return 1 - float(shares.max())
        return -float((shares * shares.log()).sum())

    def loss(
        self, encoder: SharedEncoder, step: int, index: int = 0, batches: int = 1, part: int = 0
    ) -> Tensor:
        """Return the loss on a part of a step's batches, a scalar with a graph.

        The mean over the parts is the mean loss of the batches.

        Args:
            encoder: The encoder, in evaluation mode.
            step: Number of the optimizer step.
            index: First of the step's batches; all of them share one head.
            batches: Number of consecutive batches.
            part: Which of as many parts, each of the size of a batch.
        """
        batch = self._batch(self._part(step * self.batches_per_step + index, batches, part))
        assert batch.labels is not None
        if self.head == "own":
            logits = encoder.classify(batch)
        else:
            head = self._dev_head(encoder, step, new=index + part == 0)
            features = encoder.features(batch)
            with full_precision(features.device):
                logits = head(features)
        return surrogate_loss(logits, batch.labels, self.surrogate)

    def _examples(self, number: int) -> Tensor:
        """Return the numbers of the examples of a batch, which are none of those of the head."""
        step, index = divmod(number, self.batches_per_step)
        if self.surrogate == "macro_f1":
            generator = rng.generator(self.seed, "validation", "balanced", number)
            others = torch.ones(len(self.labels), dtype=torch.bool)
            if self._head_size:
                others[self._head_examples(step)] = False
            places = others.nonzero().squeeze(1)
            return places[balanced_sample(self.labels[places], self.batch_size, generator)]
        if not self._head_size:
            return self._stream.indices(number)
        rest = self._stream.indices(step)[self._head_size :]
        places = torch.arange(index * self.batch_size, (index + 1) * self.batch_size)
        return rest[places % len(rest)]

    def _head_examples(self, step: int) -> Tensor:
        """Return the numbers of the examples that the head of a step is fitted to."""
        return self._stream.indices(step)[: self._head_size]

    def _part(self, first: int, batches: int, part: int) -> Tensor:
        """Return the numbers of the examples of a part of some batches.

        All examples count alike in a mean over batches of one size, however they are grouped.
        Grouped by length they need less padding. Smooth macro-F1 depends on the grouping.
        """
        if self.surrogate == "macro_f1" or batches == 1:
            return self._examples(first + part)
        drawn = torch.cat([self._examples(first + number) for number in range(batches)])
        order = self.texts.lengths[drawn].argsort(descending=True, stable=True)
        return drawn[order].split(self.batch_size)[part]

    def _dev_head(self, encoder: SharedEncoder, step: int, new: bool) -> Callable[[Tensor], Tensor]:
        """Return the head of a step, with a graph if it has a closed form.

        A fitted head is kept for all batches of its step. Its dependence on the encoder is left out
        of the derivative: it would take the graphs of all steps of the fit.
        """
        batch = self._batch(self._head_examples(step))
        assert batch.labels is not None
        classes = encoder.config.num_labels
        if self.head == "closed":
            features = encoder.features(batch)
            with full_precision(features.device):
                return closed_form_head(features, upload(batch.labels, features.device), classes)
        if new:
            self._heads = {step: self._fit(encoder, batch, batch.labels, classes, step)}
        return self._heads[step]

    def _fit(
        self, encoder: SharedEncoder, batch: Batch, labels: Tensor, classes: int, step: int
    ) -> nn.Module:
        def features() -> Tensor:
            with torch.no_grad():
                return encoder.features(batch)

        first = features()
        head = initialise_head(first.shape[1], classes, self.seed, step, first)
        # With dropout off, the features of a frozen backbone are the same at every step of the fit.
        source = features if self.head == "refitted" else lambda: first
        return fit_head(head, source, upload(labels, first.device))

    def _batch(self, examples: Tensor) -> Batch:
        batch = collate(self.texts, examples)
        if self.attends_to_padding:
            return replace(batch, attention_mask=torch.ones_like(batch.attention_mask))
        return batch


def balanced_sample(labels: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Draw examples with equal numbers per class, as far as the classes are large enough.

    Which classes have one more, or one at all, is drawn with equal probabilities.

    Args:
        labels: Class of each example, ``(examples,)``.
        size: Number of examples to draw.
        generator: Source of randomness.

    Returns:
        Numbers of the chosen examples, ``(min(size, examples),)``.
    """
    order = torch.randperm(len(labels), generator=generator)
    # Rank of each example within its class, in shuffled order: rank 0 of all classes comes first.
    shuffled = labels[order]
    rank = torch.zeros_like(shuffled)
    for label in shuffled.unique():
        members = shuffled == label
        rank[members] = torch.arange(int(members.sum()))
    # Within a rank the classes are in random order: in that of the shuffle, large ones come first.
    mixed = torch.randperm(len(labels), generator=generator)
    return order[mixed[rank[mixed].argsort(stable=True)[:size]]]
