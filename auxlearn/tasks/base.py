"""Base classes of auxiliary tasks.

A new masking strategy subclasses :class:`MaskedLanguageModelling` and defines its mask
probabilities::

    @register_task("rare_first")
    class RareFirst(MaskedLanguageModelling):
        def mask_probabilities(self, batch):
            ...  # (batch, length)

Where the tokens of a text are not chosen independently (words, spans, exactly k), it also defines
:meth:`MaskedLanguageModelling.choose_tokens`.

Any other objective subclasses :class:`AuxiliaryTask` and defines its loss. Layers of its own are
added by ``context.add_head``.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.settings import Settings
from auxlearn.data.batches import Batch, BatchStream
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.base import Objective
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import choose, corrupt


@dataclass(frozen=True)
class TaskResult:
    """Result of :meth:`AuxiliaryTask.loss` for a task that changes the primary batch.

    Attributes:
        loss: The loss, a scalar.
        primary: The batch on which the primary task is trained in this step in place of its own;
            ``None`` leaves the primary batch as it is.
        replaced: Tokens of ``primary`` that the task has replaced, ``(batch, length)``, bool; they
            are logged for `auxlearn perturbations`.
    """

    loss: Tensor
    primary: Batch | None = None
    replaced: Tensor | None = None


class AuxiliaryTask(Objective):
    """An objective that is trained jointly with the primary task.

    Only :meth:`loss` is abstract; see :class:`~auxlearn.objectives.base.Objective` for the life of
    an objective.

    Args:
        options: The task's settings, an instance of :attr:`Options`.

    Attributes:
        batches: ``"own"``: batches are drawn from the task's texts by a random stream of its own,
            as in META-TARTAN. ``"primary"``: the task is passed the batch of the primary task.
        texts: The texts that the task's batches are drawn from; set by :meth:`prepare`.
        batch_size: Examples per batch of the task's own; ``None``: as many as the primary task.
    """

    batches: ClassVar[Literal["own", "primary"]] = "own"
    texts: TokenizedTexts
    batch_size: int | None = None

    def prepare(self, context: ObjectiveContext) -> None:
        """Prepare the task, once before training; by default only set :attr:`texts`.

        Args:
            context: The pretrained encoder, the training examples and helpers.

        Raises:
            UserError: A task should raise a subclass of it for anything that the user can fix.
        """
        self.texts = context.texts

    @abstractmethod
    def loss(
        self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator
    ) -> Tensor | TaskResult:
        """Return the loss of one mini-batch.

        Args:
            encoder: The shared encoder with its current parameters. Use this one, not that of
                :meth:`prepare`: an unrolled step passes a copy.
            batch: A batch on the CPU, so that reading it does not synchronise with a GPU. The
                methods of the encoder move their inputs to its device and return outputs there;
                move targets to them with ``upload(targets, logits.device)``.
            generator: Source of all randomness of this step except dropout, on the CPU. The same
                step of a resumed run gets a generator in the same state.

        Returns:
            The mean over the :meth:`items` of the batch, a scalar with a graph to the encoder's
            parameters, or a :class:`TaskResult`.
        """

    def stream(self, batch_size: int, seed: int, name: str) -> BatchStream:
        """Return the task's own batches; by default shuffled ones of :attr:`texts`.

        Args:
            batch_size: Examples per batch.
            seed: The run's seed.
            name: Name of the random stream.
        """
        return BatchStream(self.texts, batch_size, seed, name)

    def items(self, batch: Batch, generator: torch.Generator) -> int:
        """Return the number of items that :meth:`loss` averages over; by default the examples.

        With gradient accumulation, each micro-batch is asked for its number of items before the
        first loss is computed. The losses are weighted by it, so that they sum to the mean over all
        items of the batch. A task whose loss is a mean over tokens returns their number.

        Args:
            batch: The micro-batch that will be passed to :meth:`loss`.
            generator: A generator in the same state as the one that will be passed to :meth:`loss`.
        """
        return len(batch)

    def evaluate(self, encoder: SharedEncoder) -> dict[str, float]:
        """Return metrics of the task on dev examples of its own, by name; by default none.

        They are recorded with every evaluation of the run, plotted, and never used for choosing.

        Args:
            encoder: The encoder in evaluation mode, with gradients disabled.
        """
        return {}


class MaskingOptions(Settings):
    """Settings of every masked-language-modelling task."""

    probability: float = Field(
        0.15, gt=0, le=1, description="Mean mask probability over the tokens of a text."
    )
    corpus: str | None = Field(
        None, description="File of unlabelled texts to draw from in place of the train split."
    )


class MaskedLanguageModelling(AuxiliaryTask):
    """Masked language modelling; a subclass defines the mask probability of each token.

    Tokens are chosen by :meth:`choose_tokens` in every mini-batch, by default each with its own
    :meth:`mask_probabilities`; 80% of them are replaced by the mask token and 10% by a random
    token, and 10% are unchanged (RoBERTa; L3Masking, section 3.4). The loss is
    the mean cross-entropy over the chosen tokens, in nats.

    Attributes:
        random_ids: Token ids that random replacements are drawn from, ``(n,)``: the vocabulary
            without special tokens.
    """

    Options = MaskingOptions
    options: MaskingOptions

    def prepare(self, context: ObjectiveContext) -> None:
        """Set the texts (the train split or ``corpus``) and the ids of random replacements."""
        context.encoder.require_language_model(self.name)
        self.texts = context.texts_of(self.options.corpus)
        tokenizer = context.encoder.tokenizer
        special = set(tokenizer.all_special_ids)
        self.random_ids = torch.tensor(
            [token for token in range(len(tokenizer)) if token not in special]
        )

    @abstractmethod
    def mask_probabilities(self, batch: Batch) -> Tensor:
        """Return the probability of each token to be masked.

        Args:
            batch: The batch, on the CPU. ``batch.indices`` are the indices of its texts in
                ``self.texts``; ``batch.maskable`` marks the tokens that may be masked.

        Returns:
            Probabilities in [0, 1], ``(batch, length)``; zero at tokens that are not maskable.
        """

    def choose_tokens(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return which tokens to mask; by default each with its own probability, independently.

        A strategy whose choices depend on each other (whole words, spans, exactly k tokens)
        overrides it. Each token must still be chosen with its :meth:`mask_probabilities`, which
        `auxlearn masks` shows.

        Args:
            batch: The batch, on the CPU; ``batch.words`` says which tokens form a word.
            generator: Source of all randomness, on the CPU. How much is drawn must not depend on
                the padding.

        Returns:
            The chosen tokens, ``(batch, length)``, bool; all of them maskable.

        Raises:
            ValueError: :meth:`mask_probabilities` returned a wrong shape or invalid values.
        """
        return choose(self.checked_probabilities(batch), generator)

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the mean cross-entropy of the original tokens at the chosen positions.

        Raises:
            ValueError: :meth:`mask_probabilities` or :meth:`choose_tokens` returned a wrong shape
                or invalid values.
        """
        chosen = self._chosen(batch, generator)
        corrupted = corrupt(
            batch.input_ids, chosen, encoder.tokenizer.mask_token_id, self.random_ids, generator
        )
        logits = encoder.predict_tokens(replace(batch, input_ids=corrupted), chosen)
        targets = upload(batch.input_ids[chosen], logits.device)
        # The sum over no tokens is a zero that still has a graph; the mean would be NaN.
        total = nn.functional.cross_entropy(logits, targets, reduction="sum")
        return total / max(1, len(targets))

    def items(self, batch: Batch, generator: torch.Generator) -> int:
        """Return the number of chosen tokens."""
        return int(self._chosen(batch, generator).sum())

    def checked_probabilities(self, batch: Batch) -> Tensor:
        """Return :meth:`mask_probabilities`.

        Raises:
            ValueError: They have a wrong shape or invalid values.
        """
        probabilities = self.mask_probabilities(batch)
        self._check(probabilities, batch)
        return probabilities

    def _chosen(self, batch: Batch, generator: torch.Generator) -> Tensor:
        chosen = self.choose_tokens(batch, generator)
        where = f"choose_tokens of task '{self.name}'"
        self._check_shape(where, chosen, batch)
        if chosen.dtype != torch.bool:
            raise ValueError(f"{where}: expected a bool tensor, got {chosen.dtype}")
        if bool((chosen & ~batch.maskable).any()):
            raise ValueError(f"{where}: expected no special tokens or padding among the chosen")
        return chosen

    def _check(self, probabilities: Tensor, batch: Batch) -> None:
        where = f"mask_probabilities of task '{self.name}'"
        self._check_shape(where, probabilities, batch)
        if not bool(((probabilities >= 0) & (probabilities <= 1)).all()):
            raise ValueError(f"{where}: expected values in [0, 1]")
        if bool((probabilities[~batch.maskable] != 0).any()):
            raise ValueError(f"{where}: expected zero at special tokens and padding")

    def _check_shape(self, where: str, found: Tensor, batch: Batch) -> None:
        if found.shape != batch.input_ids.shape:
            raise ValueError(
                f"{where}: expected shape {tuple(batch.input_ids.shape)}, got {tuple(found.shape)}"
            )
