"""Bias models that are encoders, fine-tuned with cross-entropy on the other folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from auxlearn import rng
from auxlearn.bias.folds import Fit
from auxlearn.data.batches import BatchStream, collate, eval_batches
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.devices import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.progress import ProgressBar

#: Examples per optimizer step, and per forward pass of scoring.
BATCH_SIZE = 32

#: Share of the steps in which the learning rate rises; it falls linearly to zero afterwards.
WARMUP = 0.1
WEIGHT_DECAY = 0.01
MAX_GRAD_NORM = 1.0


@dataclass(frozen=True)
class FineTuning:
    """How an encoder is fine-tuned.

    Attributes:
        epochs: Number of epochs.
        learning_rate: Peak learning rate.
        examples: Largest number of training examples, drawn at random; ``None`` for all.
    """

    epochs: int
    learning_rate: float
    examples: int | None = None


def encoder_fit(
    encoder: SharedEncoder,
    texts: TokenizedTexts,
    settings: FineTuning,
    seed: int,
    title: str,
    progress: ProgressBar,
) -> Fit:
    """Return what fine-tunes an encoder and scores with it, in single precision.

    Args:
        encoder: The pretrained encoder, on its device; it is as it was after every call.
        texts: The labelled training examples, by the encoder's tokenizer.
        settings: How it is fine-tuned.
        seed: Seed of batches, dropout and the choice of examples.
        title: What is fine-tuned, for the progress bar.
        progress: Shows a progress bar for each fold.
    """

    def fit(fold: int, train: list[int], held: list[int]) -> np.ndarray:
        chosen = torch.tensor(train)
        if settings.examples is not None:
            order = torch.randperm(len(chosen), generator=rng.generator(seed, "examples", fold))
            chosen = chosen[order[: settings.examples].sort().values]
        total = settings.epochs * -(-len(chosen) // BATCH_SIZE)
        with restored(encoder), progress(f"{title}, fold {fold + 1}", total) as advance:
            own = rng.derive_seed(seed, fold)
            fine_tune(encoder, texts.select(chosen), settings, own, advance)
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
        with torch.no_grad():
            for name, value in encoder.classifier.state_dict().items():
                value.copy_(before[name])
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
    """Fine-tune a classifier in place; it is in evaluation mode afterwards.

    Args:
        model: The encoder, on its device.
        texts: Labelled texts.
        settings: How it is fine-tuned.
        seed: Seed of batches and dropout.
        advance: Called with 1 after each optimizer step.
    """
    stream = BatchStream(texts, BATCH_SIZE, seed, "bias")
    total = settings.epochs * stream.steps_per_epoch
    warmup = round(total * WARMUP)
    parameters = list(model.classifier.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
    )
    model.train()
    for step in range(total):
        rising = (step + 1) / (warmup + 1)
        falling = (total - step) / max(1, total - warmup)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * (rising if step < warmup else falling)
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
    parts: list[Tensor] = []
    batches = eval_batches(texts, BATCH_SIZE)
    for indices in batches:
        parts.append(model.classify(collate(texts, indices)).double().softmax(-1).cpu())
    probabilities = torch.cat(parts)
    result = torch.empty_like(probabilities)
    result[torch.cat(batches)] = probabilities
    return result.numpy()
