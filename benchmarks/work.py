"""Operation counts of matrix products; one multiply-add is two operations."""

from __future__ import annotations

from typing import Any

from auxlearn.data.batches import Batch
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder


def scoring_operations(
    encoder: SharedEncoder, texts: TokenizedTexts, passes: int | None = None
) -> float:
    """Count the operations that scoring requires; of the last layer, only the positions used.

    Args:
        encoder: An encoder of BERT's architecture.
        texts: Texts to score; duplicates are counted each time.
        passes: Masked copies of a text; ``None``: one for each token.
    """
    width, inner, vocabulary = _widths(encoder)
    layers = encoder.config.num_hidden_layers
    total = 0.0
    maskable = texts.maskable.split(texts.lengths.tolist())
    for length, tokens in zip(texts.lengths.tolist(), map(int, map(sum, maskable)), strict=True):
        copies = tokens if passes is None else min(tokens, passes)
        keys_and_values = 2 * length * 2 * width**2
        read = 2 * (2 * width**2 + 2 * width * inner) + 4 * length * width
        read += 2 * width * (width + vocabulary)
        total += copies * ((layers - 1) * _layer(encoder, length) + keys_and_values) + tokens * read
    return total


def batch_operations(encoder: SharedEncoder, batch: Batch, predicts: bool) -> float:
    """Count the operations of one objective in an optimizer step: forward once, backward twice.

    Args:
        encoder: An encoder of BERT's architecture.
        batch: The objective's batch; padding counts, because it is computed as well.
        predicts: Whether 15% of the tokens that may be masked are predicted.
    """
    width, _, vocabulary = _widths(encoder)
    rows, length = batch.input_ids.shape
    total = rows * encoder.config.num_hidden_layers * _layer(encoder, length)
    if predicts:
        total += 0.15 * float(batch.maskable.sum()) * 2 * width * (width + vocabulary)
    return 3 * total


def _layer(encoder: SharedEncoder, length: int) -> float:
    width, inner, _ = _widths(encoder)
    return 2 * length * (4 * width**2 + 2 * width * inner) + 4 * length**2 * width


def _widths(encoder: SharedEncoder) -> tuple[int, int, int]:
    config: Any = encoder.config
    vocabulary = encoder.body.get_input_embeddings().num_embeddings
    return config.hidden_size, config.intermediate_size, vocabulary
