"""Base classes of auxiliary tasks.

A new masking strategy subclasses :class:`MaskedLanguageModelling` and defines its mask
probabilities::

    @register_task("long_first")
    class LongFirst(MaskedLanguageModelling):
        def mask_probabilities(self, batch):
            ...  # (batch, length)

One that gives each token a score before training subclasses :class:`ScoredMasking` and defines
:meth:`ScoredMasking.scores`. Where tokens are masked together (words, spans), a strategy also
defines :meth:`MaskedLanguageModelling.units`; where they depend on each other in another way
(exactly k), :meth:`MaskedLanguageModelling.choose_tokens`.

Any other objective subclasses :class:`AuxiliaryTask` and defines its loss. Layers of its own are
added by ``context.add_head``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from auxlearn.core.errors import describe, shorten
from auxlearn.core.validation import Described
from auxlearn.data.batches import Batch, BatchStream, pad_token_values
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.base import Objective
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import (
    CORRUPTIONS,
    choose,
    choose_units,
    corrupt,
    mean_cross_entropy,
    mirrored,
    ordinary_ids,
    rescale_texts,
    spread_excess,
    unit_means,
)
from auxlearn.objectives.perturbation import choose_replacements


@dataclass(frozen=True)
class TaskResult:
    """Result of :meth:`AuxiliaryTask.loss` of a task that is more than one loss.

    A task may change the primary batch, and it may be made of several objectives.

    Attributes:
        loss: The loss, a scalar.
        primary: The batch on which the primary task is trained in this step in place of its own;
            ``None`` leaves the primary batch as it is.
        replaced: Tokens of ``primary`` that the task has replaced, ``(batch, length)``, bool; they
            are logged for `auxlearn perturbations`.
        members: Loss of each objective of :attr:`AuxiliaryTask.members` that is part of this step,
            by its number, scalars; ``loss`` is their sum divided by the number of those that
            :meth:`AuxiliaryTask.sampled` returns. They may share a graph.
    """

    loss: Tensor
    primary: Batch | None = None
    replaced: Tensor | None = None
    members: Mapping[int, Tensor] = field(default_factory=dict)


class AuxiliaryTask(Objective):
    """An objective that is trained jointly with the primary task.

    Only :meth:`loss` is abstract; see :class:`~auxlearn.objectives.base.Objective` for the life of
    an objective.

    Attributes:
        batches: ``"own"``: batches are drawn from the task's texts by a random stream of its own,
            as in META-TARTAN. ``"primary"``: the task is passed the batch of the primary task.
        texts: The texts that the task's batches are drawn from; set by :meth:`prepare`.
        batch_size: Examples per batch of the task's own; ``None``: as many as the primary task.
        watches_primary: Whether :meth:`observe_primary` is called.
        members: Objectives that the task is made of, each as its factors by axis, such as
            ``{"transform": "mask", "output": "denoise"}``; none for a task that is one objective.
            Some of them are part of each step: :meth:`sampled` says which, and :meth:`loss` returns
            their losses. Set when the task is constructed. A rule may weigh them by their factors,
            as `aang` does; all others see the mean.
    """

    watches_primary = False
    members: tuple[Mapping[str, str], ...] = ()
    batches: ClassVar[Literal["own", "primary"]] = "own"
    texts: TokenizedTexts
    batch_size: int | None = None

    def prepare(self, context: ObjectiveContext) -> None:
        """Prepare the task, as any objective; by default only set :attr:`texts`."""
        self.texts = context.texts

    @abstractmethod
    def loss(
        self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator
    ) -> Tensor | TaskResult:
        """Return the mean over the :meth:`items` of a mini-batch, or a :class:`TaskResult`.

        See :meth:`Objective.loss <auxlearn.objectives.base.Objective.loss>` for the parameters.
        """

    def stream(self, batch_size: int, seed: int, name: str) -> BatchStream:
        """Return the task's own batches; by default shuffled ones of :attr:`texts`."""
        return BatchStream(self.texts, batch_size, seed, name)

    def observe_primary(self, token_ids: Tensor, gradients: Tensor) -> None:
        """See the gradient of the primary loss at each token, if :attr:`watches_primary` is set.

        It is called once in every step in which that gradient is computed, after all losses of the
        step, and sees the whole batch, also with gradient accumulation and in each of several
        processes; if the loss passes the batch through the encoder several times, once for each.
        An unrolled step is not watched.

        Args:
            token_ids: Token ids of the primary batch, ``(batch, length)``, on the CPU.
            gradients: Gradient with respect to the input embedding of each token,
                ``(batch, length, size)``, on the CPU; zero at padding. Its scale is that of the
                primary task's weight and share in the step.
        """

    def begin_step(self, step: int, total: int) -> None:
        """Hear which optimizer step, from 0, of how many planned ones the next losses are for.

        It is called before :meth:`items` and :meth:`loss` of each step, also of a resumed run.
        """

    def sampled(self, step: int) -> Sequence[int]:
        """Return the numbers of the :attr:`members` that are part of a step, from 0; by default
        all.

        It must depend on nothing but the seed of :meth:`prepare` and the step, so that a resumed
        run samples the same.
        """
        return range(len(self.members))

    def items(self, batch: Batch, generator: torch.Generator) -> int:
        """Return the number of items that :meth:`loss` averages over; by default the examples.

        With gradient accumulation, each micro-batch is asked for it before the first loss is
        computed, with a generator in the state of that of :meth:`loss`. The losses are weighted by
        it, so that they sum to the mean over all items of the batch. A mean over tokens returns
        their number.
        """
        return len(batch.indices)

    def evaluate(self, encoder: SharedEncoder) -> dict[str, float]:
        """Return metrics of the task on dev examples of its own, by name; by default none.

        The encoder is in evaluation mode, with gradients disabled. The metrics are recorded with
        every evaluation of the run, plotted, and never used for choosing.
        """
        return {}


#: Option of tasks that can draw from texts of their own.
CORPUS: Any = Field(
    None, description="File of unlabelled texts to draw from in place of the train split."
)


class MaskingOptions(Described):
    """Settings of every masked-language-modelling task."""

    probability: float = Field(0.15, gt=0, le=1)
    """Mean mask probability over the tokens of a text."""

    corpus: str | None = CORPUS
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the rate falls over the run: constant; linear or cosine from twice `probability` to 0,
    with mean `probability`."""

    corruption: Literal["bert", "mask", "random", "keep", "sample"] = "bert"
    """What becomes of a chosen token: bert: 80% mask token, 10% random token, 10% unchanged; mask,
    random, keep: always that; sample: a token drawn from the encoder's own prediction at the masked
    position."""

    @model_validator(mode="after")
    def _rate_within_one(self) -> Self:
        if self.schedule != "constant" and self.probability > 0.5:
            raise ValueError(
                f"schedule {self.schedule} begins with twice the probability {self.probability}, "
                "which is more than 1: choose a probability of 0.5 or less"
            )
        return self


class MaskedLanguageModelling(AuxiliaryTask):
    r"""Masked language modelling; a subclass defines the mask probability of each token.

    Tokens are chosen by :meth:`choose_tokens` in every mini-batch, by default each with its own
    :meth:`mask_probabilities`; 80% of them are replaced by the mask token and 10% by a random
    token, and 10% are unchanged (RoBERTa; L3Masking, section 3.4), unless ``corruption`` says
    otherwise. The loss is the mean cross-entropy over the chosen tokens, in nats.

    With a ``schedule``, the probabilities of step :math:`t` of :math:`T` (from 0) are multiplied by
    :math:`2 (1 - \tau)` (linear) or :math:`1 + \cos \pi \tau` (cosine) at
    :math:`\tau = (t + 1/2) / T`, and what exceeds 1 is spread (Yang et al. 2023, masking ratio
    decay, https://aclanthology.org/2023.acl-long.400). The mean over all steps is 1; the authors'
    cosine schedule adds 0.02 to the rate.

    Attributes:
        random_ids: Token ids that random replacements are drawn from, ``(n,)``: the vocabulary
            without special tokens.
        rate_factor: What the probabilities are multiplied by in this step; 1 without a schedule.
        parts: Strategies that this one is made of.
    """

    Options = MaskingOptions
    options: MaskingOptions
    rate_factor = 1.0
    parts: Sequence[MaskedLanguageModelling] = ()

    def prepare(self, context: ObjectiveContext) -> None:
        """Set the texts (the train split or ``corpus``) and the ids of random replacements."""
        context.encoder.require_language_model(self.name)
        self.texts = context.texts_of(self.options.corpus)
        self.random_ids = ordinary_ids(context.encoder.tokenizer)

    @abstractmethod
    def mask_probabilities(self, batch: Batch) -> Tensor:
        """Return the probability of each token to be masked.

        Args:
            batch: The batch, on the CPU. ``batch.indices`` are the indices of its texts in
                ``self.texts``; ``batch.maskable`` marks the tokens that may be masked.

        Returns:
            Probabilities in [0, 1], ``(batch, length)``; zero at tokens that are not maskable.
        """

    def units(self, batch: Batch, generator: torch.Generator) -> Tensor | None:
        """Return which tokens are masked together; by default each is masked alone.

        Args:
            batch: The batch, on the CPU; ``batch.words`` says which tokens form a word.
            generator: Source of all randomness, on the CPU.

        Returns:
            Number of each token's unit, ``(batch, length)``, int64; negative where nothing may be
            masked. A unit is masked with the mean of the :meth:`mask_probabilities` of its tokens,
            so that the mean rate of a text stays.
        """
        return None

    def begin_step(self, step: int, total: int) -> None:
        """Set the rate of a step by the schedule."""
        when = (step + 0.5) / total
        rates = {"linear": 2 * (1 - when), "cosine": 1 + math.cos(math.pi * when)}
        self.rate_factor = max(0.0, rates.get(self.options.schedule, 1.0))

    def choose_tokens(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return which tokens to mask; by default :meth:`units` with :meth:`mask_probabilities`.

        A strategy whose choices depend on each other in another way (exactly k tokens, say)
        overrides it. Each token must still be chosen with its :meth:`mask_probabilities`, which
        `auxlearn masks` shows, times :attr:`rate_factor`.

        Args:
            batch: The batch, on the CPU; ``batch.words`` says which tokens form a word.
            generator: Source of all randomness, on the CPU. How much is drawn must not depend on
                the padding.

        Returns:
            The chosen tokens, ``(batch, length)``, bool; all of them maskable.

        Raises:
            ValueError: :meth:`mask_probabilities` returned a wrong shape or invalid values.
        """
        probabilities = self.checked_probabilities(batch)
        if self.options.schedule != "constant":
            probabilities = spread_excess(probabilities.double() * self.rate_factor, batch.maskable)
        units = self.units(batch, generator)
        if units is None:
            return choose(probabilities, generator)
        self._check_shape(f"units of task '{self.name}'", units, batch.input_ids)
        return choose_units(probabilities, units, batch.maskable, generator)

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the mean cross-entropy of the original tokens at the chosen positions.

        Raises:
            ValueError: :meth:`mask_probabilities` or :meth:`choose_tokens` returned a wrong shape
                or invalid values.
        """
        chosen = self.checked_choice(batch, generator)
        corrupted = self._corrupt(encoder, batch, chosen, generator)
        logits = encoder.predict_tokens(replace(batch, input_ids=corrupted), chosen)
        return mean_cross_entropy(logits, batch.input_ids[chosen])

    def _corrupt(
        self, encoder: SharedEncoder, batch: Batch, chosen: Tensor, generator: torch.Generator
    ) -> Tensor:
        mask_id = encoder.tokenizer.mask_token_id
        if self.options.corruption != "sample":
            shares = CORRUPTIONS[self.options.corruption]
            return corrupt(batch.input_ids, chosen, mask_id, self.random_ids, generator, *shares)
        with torch.no_grad():
            masked = batch.input_ids.masked_fill(chosen, mask_id)
            logits = encoder.predict_tokens(replace(batch, input_ids=masked), chosen)
            sampled = choose_replacements(logits, self.random_ids, 1.0, generator)
        masked[chosen] = sampled.to(masked)
        return masked

    def items(self, batch: Batch, generator: torch.Generator) -> int:
        """Return the number of chosen tokens."""
        return int(self.checked_choice(batch, generator).sum())

    def checked_probabilities(self, batch: Batch) -> Tensor:
        """Return :meth:`mask_probabilities`; a ``ValueError`` if shape or values are wrong."""
        probabilities = self.mask_probabilities(batch)
        where = f"mask_probabilities of task '{self.name}'"
        self._check_shape(where, probabilities, batch.input_ids)
        if not bool(((probabilities >= 0) & (probabilities <= 1)).all()):
            raise ValueError(f"{where}: expected values in [0, 1]")
        if bool((probabilities[~batch.maskable] != 0).any()):
            raise ValueError(f"{where}: expected zero at special tokens and padding")
        return probabilities

    def checked_choice(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return :meth:`choose_tokens`; a ``ValueError`` if shape or values are wrong."""
        chosen = self.choose_tokens(batch, generator)
        where = f"choose_tokens of task '{self.name}'"
        self._check_shape(where, chosen, batch.input_ids)
        if chosen.dtype != torch.bool:
            raise ValueError(f"{where}: expected a bool tensor, got {chosen.dtype}")
        if bool((chosen & ~batch.maskable).any()):
            raise ValueError(f"{where}: expected no special tokens or padding among the chosen")
        return chosen

    def _check_shape(self, where: str, value: object, like: Tensor) -> None:
        wanted = tuple(like.shape)
        got = tuple(value.shape) if isinstance(value, Tensor) else shorten(describe(value))
        if got != wanted:
            raise ValueError(f"{where}: expected a tensor of shape {wanted}, got {got}")


class ScoredMaskingOptions(MaskingOptions):
    """Settings of strategies that mask tokens by a score."""

    unit: Literal["token", "word"] = "token"
    """What is masked together: token: each alone; word: all tokens of a word, with their mean
    probability."""

    reverse: bool = False
    """Mask the least what would be masked the most: within each text, the probabilities in reverse
    order."""


class ScoredMasking(MaskedLanguageModelling):
    """Masked language modelling by a score: a subclass says how much each token is to be masked.

    The scores are computed once, before training, and become mask probabilities with the mean
    ``probability`` in each text (:func:`~auxlearn.objectives.masking.rescale_to_mean`). With
    ``unit: word`` a word is masked as a whole, with the mean probability of its tokens; with
    ``reverse: true`` the probabilities change places, the highest with the lowest.
    """

    Options = ScoredMaskingOptions
    options: ScoredMaskingOptions

    @abstractmethod
    def scores(self, context: ObjectiveContext) -> Tensor:
        """Return the score of each token of ``self.texts``.

        Args:
            context: The pretrained encoder, the training examples and helpers.

        Returns:
            Scores, ``(tokens,)``, not negative; in proportion to the wanted mask probability. Those
            of tokens that are not maskable are ignored.
        """

    def prepare(self, context: ObjectiveContext) -> None:
        """Set the texts, and the mask probability of each of their tokens."""
        super().prepare(context)
        scores = self.scores(context)
        self._check_shape(f"scores of task '{self.name}'", scores, self.texts.input_ids)
        self.probabilities = context.cache.joined(
            rescale_texts(self.texts, scores, self.options.probability, self.arranged)
        )

    def arranged(self, probabilities: Tensor, batch: Batch) -> Tensor:
        """Return mask probabilities as ``unit`` and ``reverse`` want them, ``(batch, length)``."""
        if self.options.unit == "word":
            probabilities = unit_means(probabilities, batch.words, batch.maskable)
        return mirrored(probabilities, batch.maskable) if self.options.reverse else probabilities

    def mask_probabilities(self, batch: Batch) -> Tensor:
        """Return the mask probabilities of the batch's tokens, computed before training."""
        return pad_token_values(self.texts, self.probabilities, batch.indices, 0)

    def units(self, batch: Batch, generator: torch.Generator) -> Tensor | None:
        """Return the words, if they are masked as a whole."""
        return batch.words if self.options.unit == "word" else None
