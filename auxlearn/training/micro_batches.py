"""Splitting a batch into micro-batches for gradient accumulation."""

from __future__ import annotations

from dataclasses import fields, replace

from auxlearn.data.batches import Batch


def split_batch(batch: Batch, count: int) -> list[Batch]:
    """Split a batch into at most ``count`` micro-batches of nearly equal numbers of examples.

    Each micro-batch is padded to the longest of its own texts, as a batch of these texts would be.
    """
    if count == 1:
        return [batch]
    size = -(-len(batch) // count)
    return [
        _select_examples(batch, slice(start, start + size)) for start in range(0, len(batch), size)
    ]


def _select_examples(batch: Batch, chosen: slice) -> Batch:
    longest = int(batch.attention_mask[chosen].sum(1).max())
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return replace(
        batch,
        **{
            name: value[chosen] if value.ndim == 1 else value[chosen, :longest]
            for name, value in values.items()
            if value is not None
        },
    )
