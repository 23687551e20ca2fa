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

    A body inspects a mask of two dimensions, which synchronises with a GPU; on the CPU it is done
    here.
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
    """Check that an encoder can be told which tokens each token attends to, which ``name``
    needs.
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
    """Return which tokens each token attends to, at least one, ``(batch, length, length)``, in the
    form that a body needs; ``positions`` are those of tokens, ``(batch, length)``, by default their
    places.
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
    """Return the hidden states ``(batch, length, size)`` at some positions ``(batch, length)``,
    bool and preferably on the CPU, in row-major order: ``(positions.sum(), size)``.
    """
    places = upload(positions.flatten().nonzero().squeeze(1), hidden.device)
    return hidden.flatten(0, 1).index_select(0, places)
