"""Attention in single precision for half-precision training on a CPU.

On a CPU the backward pass of torch's fused attention takes up to three times as long in bfloat16 as
in single precision, most of all on short texts, and unfused attention is slow on long ones.
Attention that is differentiated therefore runs fused in single precision, and everything else stays
in bfloat16. Two cases keep the standard kernel: attention dropout, which is unfused in either
precision, and forward passes without gradient, which are fast.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

SINGLE = "sdpa_single"

#: Names in transformers of the implementations that use torch's scaled_dot_product_attention.
FUSED = frozenset({"sdpa", SINGLE})


def attend_in_single_precision(body: Any) -> None:
    """Make a body that uses torch's attention differentiate it in single precision.

    Args:
        body: A transformers model; one with another attention implementation is left unchanged.
    """
    if body.config._attn_implementation == "sdpa":
        body.set_attn_implementation(SINGLE)


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    **settings: Any,
) -> tuple[Tensor, None]:
    if dropout or not query.requires_grad:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, **settings
        )
    with torch.autocast(query.device.type, enabled=False):
        output, _ = sdpa_attention_forward(
            module, query.float(), key.float(), value.float(), attention_mask, **settings
        )
    return output.to(query.dtype), None


AttentionInterface.register(SINGLE, _attend)
AttentionMaskInterface.register(SINGLE, sdpa_mask)
