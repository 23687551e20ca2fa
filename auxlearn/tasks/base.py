"""What an auxiliary task is.

A task of its own is one class with one method. A new masking strategy subclasses
:class:`MaskedLanguageModelling` and defines its mask probabilities; any other objective subclasses
:class:`AuxiliaryTask` and defines its loss::

    @register_task("rare_first")
    class RareFirst(MaskedLanguageModelling):
        def mask_probabilities(self, batch):
            ...  # (batch, length)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.cache import TensorCache
from auxlearn.config import Settings
from auxlearn.data.batches import Batch
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.devices import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.masking.corruption import choose, corrupt
from auxlearn.progress import ProgressBar


@dataclass(frozen=True)
class TaskContext:
    """What a task may look at before training.

    Attributes:
        encoder: The shared encoder, untouched.
        texts: The tokenised training texts; batches of the task are rows of it.
        tokenize: Tokenises further texts from a file as the training texts were.
        cache: Keeps what is costly to make.
        progress: Shows how far a long preparation is.
        seed: The run's seed.
        record: To be called with every file or folder that a task reads by itself, before it reads
            it; gives the path back. What was read is part of the run's identity then: a change of
            it is noticed when the run is resumed or asked for again. ``tokenize`` does it by
            itself.
    """

    encoder: SharedEncoder
    texts: TokenizedTexts
    tokenize: Callable[[Path], TokenizedTexts]
    cache: TensorCache
    progress: ProgressBar
    seed: int
    record: Callable[[Path], Path] = lambda path: path


@dataclass(frozen=True)
class TaskResult:
    """What :meth:`AuxiliaryTask.loss` may return in place of a bare loss.

    Attributes:
        loss: The loss, a scalar.
        primary: What the primary task is to be trained on in this step, in place of its batch.
        replaced: Which tokens of ``primary`` the task has put in, ``(batch, length)``, bool; they
            are recorded for `auxlearn perturbations`.
    """

    loss: Tensor
    primary: Batch | None = None
    replaced: Tensor | None = None


class AuxiliaryTask(ABC):
    """An objective that trains beside the primary task.

    Args:
        options: The task's own settings, an instance of :attr:`Options`.

    Attributes:
        name: The registered name.
        Options: The task's settings; the command line, YAML files and lists come from it.
        batches: ``"own"``: the task draws batches of its texts from its own shuffle, as
            META-TARTAN does. ``"primary"``: it is given the batch of the primary task.
        texts: What the task's batches are drawn from, once it is prepared.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Settings]] = Settings
    batches: ClassVar[Literal["own", "primary"]] = "own"
    texts: TokenizedTexts

    def __init__(self, options: Settings) -> None:
        self.options = options

    def prepare(self, context: TaskContext) -> None:
        """Get ready, once, with the encoder still untouched."""
        self.texts = context.texts

    @abstractmethod
    def loss(
        self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator
    ) -> Tensor | TaskResult:
        """Return the loss of one mini-batch.

        Args:
            encoder: The shared encoder as it is now.
            batch: A batch on the CPU, where it can be looked at and drawn from without waiting for
                a GPU. The encoder moves what it is given to its own device.
            generator: All randomness of this step, on the CPU; the same step of a resumed run gets
                a generator in the same state.

        Returns:
            A scalar with a graph to the encoder's parameters, or a :class:`TaskResult`. It is a
            mean over the :meth:`items` of the batch.
        """

    def items(self, batch: Batch, generator: torch.Generator) -> int:
        """Return how many items :meth:`loss` is a mean over; by default the examples.

        With gradient accumulation this is asked of every micro-batch before the first loss is
        computed, and the losses are weighted by it, so that they sum to the mean over all items of
        the batch. A task whose loss is a mean over tokens returns the number of these tokens.

        Args:
            batch: The micro-batch that :meth:`loss` will be given.
            generator: In the state in which :meth:`loss` will be given it.
        """
        return len(batch)

    def state_dict(self) -> dict[str, Tensor]:
        """Return what the task has learned and must keep over a kill; nothing by default."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""


class MaskingOptions(Settings):
    """Settings of every masked-language-modelling task."""

    probability: float = Field(
        0.15, gt=0, le=1, description="Mean mask probability of the tokens of a text."
    )
    corpus: str | None = Field(
        None, description="File of further unlabelled text to draw from, in place of the train set."
    )


class MaskedLanguageModelling(AuxiliaryTask):
    """Predict masked tokens; a subclass says how likely each token is to be masked.

    Chosen tokens become 80% mask token, 10% random token, 10% unchanged, drawn anew for every
    mini-batch (RoBERTa; L3Masking, section 3.4). The loss is the mean cross-entropy over the
    chosen tokens, in nats.
    """

    Options = MaskingOptions
    options: MaskingOptions

    def prepare(self, context: TaskContext) -> None:
        """Fetch the texts and the vocabulary to draw random tokens from."""
        corpus = self.options.corpus
        self.texts = context.tokenize(Path(corpus)) if corpus else context.texts
        tokenizer = context.encoder.tokenizer
        special = set(tokenizer.all_special_ids)
        self.random_ids = torch.tensor(
            [token for token in range(len(tokenizer)) if token not in special]
        )

    @abstractmethod
    def mask_probabilities(self, batch: Batch) -> Tensor:
        """Return how likely each token is to be masked.

        Args:
            batch: The texts; ``batch.rows`` says which of ``self.texts`` they are, and
                ``batch.maskable`` where a mask may fall.

        Returns:
            Probabilities in [0, 1], ``(batch, length)``, zero outside ``batch.maskable``.
        """

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the mean cross-entropy of the original tokens at the chosen positions.

        Raises:
            ValueError: :meth:`mask_probabilities` returned something else than it promises.
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
        """Return how many tokens are masked."""
        return int(self._chosen(batch, generator).sum())

    def _chosen(self, batch: Batch, generator: torch.Generator) -> Tensor:
        probabilities = self.mask_probabilities(batch)
        self._check(probabilities, batch)
        return choose(probabilities, generator)

    def _check(self, probabilities: Tensor, batch: Batch) -> None:
        where = f"mask_probabilities of task '{self.name}'"
        if probabilities.shape != batch.input_ids.shape:
            raise ValueError(
                f"{where}: expected shape {tuple(batch.input_ids.shape)}, "
                f"got {tuple(probabilities.shape)}"
            )
        if not bool(((probabilities >= 0) & (probabilities <= 1)).all()):
            raise ValueError(f"{where}: expected values in [0, 1]")
        if bool((probabilities[~batch.maskable] != 0).any()):
            raise ValueError(f"{where}: expected zero at special tokens and padding")
