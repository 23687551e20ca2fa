"""Which tokens attend to which: attention masks in the form that each architecture needs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from auxlearn.core.errors import EncoderError
from auxlearn.encoders.device import FUSED, upload
from auxlearn.encoders.families import family_of


def attention_mask(config: Any, mask: Tensor, device: torch.device) -> Tensor | None:
    """Return the mask that leaves out padding, in the form that a body needs; ``None`` without any.

    The body would inspect a mask of two dimensions for padding, which synchronises with a GPU. A
    mask on the CPU is therefore inspected here.
    """
    family = family_of(config.model_type)
    if mask.device.type != "cpu":
        return mask
    if bool(mask.all()):
        return upload(mask, device) if family.requires_mask else None
    if family.accepts_4d_masks and config._attn_implementation in FUSED:
        mask = mask.bool()[:, None, None, :]
    return upload(mask, device)


def require_pairwise_attention(config: Any, name: str) -> None:
    """Check that an encoder can be told which tokens each token attends to.

    Args:
        config: The encoder's configuration.
        name: Who needs it.

    Raises:
        EncoderError: Its architecture takes no such mask.
    """
    family = family_of(config.model_type)
    if not (family.accepts_4d_masks or family.masks_by_layer):
        raise EncoderError(
            f"'{name}' reads texts in one direction or in random order by attention masks for "
            f"pairs of tokens, which architecture '{config.model_type}' does not take: choose "
            "representation bidirectional, or another encoder"
        )


def pairwise_mask(
    config: Any, attends: Tensor, positions: Tensor | None, device: torch.device
) -> Tensor | dict[str, Tensor]:
    """Return which tokens each token attends to, in the form that a body needs.

    Args:
        config: The encoder's configuration; see :func:`require_pairwise_attention`.
        attends: ``(batch, length, length)``, bool; at least one token for each.
        positions: Position of each token, ``(batch, length)``; by default its place.
        device: Where the mask is needed.
    """

    def made(allowed: Tensor) -> Tensor:
        mask = upload(allowed[:, None], device)
        if config._attn_implementation in FUSED:
            return mask
        return torch.zeros(mask.shape, device=device).masked_fill(
            ~mask, torch.finfo(torch.float32).min
        )

    if not family_of(config.model_type).masks_by_layer:
        return made(attends)
    if positions is None:
        positions = torch.arange(attends.shape[-1])[None]
    near = (positions[:, :, None] - positions[:, None]).abs() <= config.sliding_window
    return {"full_attention": made(attends), "sliding_attention": made(attends & near)}


def states_at(hidden: Tensor, positions: Tensor) -> Tensor:
    """Return the hidden states at some positions, in row-major order.

    Args:
        hidden: ``(batch, length, hidden size)``.
        positions: ``(batch, length)``, bool; preferably on the CPU, where counting them does not
            synchronise with a GPU.

    Returns:
        ``(positions.sum(), hidden size)``.
    """
    places = upload(positions.flatten().nonzero().squeeze(1), hidden.device)
    return hidden.flatten(0, 1).index_select(0, places)
