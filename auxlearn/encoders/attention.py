"""Attention in half precision on a CPU, where torch's fused kernel has a slow backward pass.

In bfloat16 that backward pass takes up to three times as long as the same one in single precision,
most of all on short texts, and attention in separate steps is slow on long ones. So attention that
is differentiated runs fused in single precision; all around it stays in half. Attention dropout
takes separate steps in either precision, and a pass without a gradient is fast as it is: both are
left alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

SINGLE = "sdpa_single"

#: transformers' names of what runs torch's attention.
FUSED = frozenset({"sdpa", SINGLE})


def attend_in_single_precision(body: Any) -> None:
    """Let a body that uses torch's attention compute it so where it is differentiated.

    Args:
        body: A transformers model; one that has attention of its own is left as it is.
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
