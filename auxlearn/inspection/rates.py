"""How often a task masks each token of its texts.

A task that defines mask probabilities is asked for them. Of any other task the masked tokens are
counted over many draws: those at which it lets the encoder predict tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from auxlearn import rng
from auxlearn.data.batches import Batch, collate, unpad_token_values
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.progress import ProgressBar, no_progress_bar
from auxlearn.tasks.base import AuxiliaryTask, MaskedLanguageModelling
from auxlearn.training.guard import calling

#: Draws over which the masked tokens of a task without mask probabilities are counted.
DRAWS = 400

#: Texts of a batch.
BATCH_TEXTS = 256


@dataclass(frozen=True)
class MaskRates:
    """How often a task masks each token.

    Attributes:
        name: Name of the objective.
        texts: The texts that the task draws from.
        rates: Probability of each token to be masked, ``(tokens,)``, float64; 0 where nothing may
            be masked.
        draws: Number of draws that the rates are counted over; ``None`` if they are exact.
    """

    name: str
    texts: TokenizedTexts
    rates: Tensor
    draws: int | None = None


class _Seen(BaseException):
    """Ends a loss once it is known which tokens it masks. No handler of errors takes it."""

    def __init__(self, batch: Batch, positions: Tensor) -> None:
        self.batch = batch
        self.positions = positions


def mask_rates(
    task: AuxiliaryTask,
    name: str,
    encoder: SharedEncoder,
    seed: int,
    progress: ProgressBar = no_progress_bar,
    draws: int = DRAWS,
) -> MaskRates | None:
    """Return how often a prepared task masks each token of its texts.

    Args:
        task: The task.
        name: Name of the objective.
        encoder: The pretrained encoder; left as it was.
        seed: Seed of the draws of a task without mask probabilities.
        progress: Shows the progress of the draws.
        draws: Number of draws.

    Returns:
        The rates; ``None`` if the task masks no tokens.
    """
    texts = task.texts
    rates = torch.zeros(len(texts.input_ids), dtype=torch.float64)
    if isinstance(task, MaskedLanguageModelling):
        for indices in torch.arange(len(texts)).split(BATCH_TEXTS):
            with calling(task, "mask_probabilities", name):
                probabilities = task.checked_probabilities(collate(texts, indices))
            unpad_token_values(texts, probabilities.double().cpu(), indices, rates)
        return MaskRates(name, texts, rates)
    if _masked(task, name, encoder, collate(texts, torch.arange(min(2, len(texts)))), seed) is None:
        return None
    with progress(f"draws of {name}", draws) as advance:
        for draw in range(draws):
            counts = torch.zeros_like(rates)
            for indices in torch.arange(len(texts)).split(BATCH_TEXTS):
                masked = _masked(task, name, encoder, collate(texts, indices), seed, draw)
                if masked is not None:
                    unpad_token_values(texts, masked.double().cpu(), indices, counts)
            rates += counts
            advance(1)
    return MaskRates(name, texts, rates / draws, draws)


def _masked(
    task: AuxiliaryTask,
    name: str,
    encoder: SharedEncoder,
    batch: Batch,
    seed: int,
    draw: int = 0,
) -> Tensor | None:
    """Return the tokens of a batch that a task masks in one draw, ``(batch, length)``, bool."""
    generator = rng.generator(seed, name, "masks", draw, int(batch.indices[0]))
    try:
        with _watched(encoder), encoder.evaluating(), torch.no_grad(), calling(task, "loss", name):
            task.loss(encoder, batch, generator)
    except _Seen as seen:
        same = torch.equal(seen.batch.indices, batch.indices)
        return seen.positions if same and seen.positions.shape == batch.input_ids.shape else None
    return None


@contextmanager
def _watched(encoder: SharedEncoder) -> Iterator[None]:
    """Stop where the encoder is asked for the tokens at masked positions."""

    def predict_tokens(batch: Batch, positions: Tensor) -> Tensor:
        raise _Seen(batch, positions)

    object.__setattr__(encoder, "predict_tokens", predict_tokens)
    try:
        yield
    finally:
        object.__delattr__(encoder, "predict_tokens")
