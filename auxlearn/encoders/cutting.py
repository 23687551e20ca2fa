"""Contexts in which a span of each text is cut out of the embeddings or hidden states, also of
functional copies of an encoder, with a second derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from auxlearn.core.errors import EncoderError
from auxlearn.encoders.device import unfused_attention
from auxlearn.encoders.families import FAMILIES
from auxlearn.encoders.shared import SharedEncoder


def check_cuttable(encoder: SharedEncoder) -> None:
    """Check that a span can be cut out of this encoder's embeddings and hidden states."""
    fault = ""
    if encoder.family.cut_points is None:
        known = ", ".join(name for name, family in FAMILIES.items() if family.cut_points)
        fault = f"architecture '{encoder.config.model_type}': use one of {known}"
    elif getattr(encoder.config, "chunk_size_feed_forward", 0):
        fault = "an encoder with chunk_size_feed_forward: set it to 0 in its config.json"
    elif encoder.compiled:
        fault = "a compiled encoder: leave --compile out"
    if fault:
        raise EncoderError(f"no span can be cut out of the hidden states of {fault}")


@contextmanager
def embeddings_cut(encoder: SharedEncoder, span: Tensor) -> Iterator[None]:
    """Set the inputs of the first layer to zero in ``span``, ``(batch, length)``, bool."""
    check_cuttable(encoder)

    def cut(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output.masked_fill(span.unsqueeze(-1), 0)

    embeddings = getattr(encoder.body, "embeddings", encoder.body.get_input_embeddings())
    with embeddings.register_forward_hook(cut):
        yield


@contextmanager
def feed_forward_cut(encoder: SharedEncoder, choose: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Set the output of every feed-forward block to zero for the tokens, ``(batch, length)``, bool,
    that ``choose`` returns by attention weights, ``(batch, heads, queries, keys)``.
    """
    check_cuttable(encoder)
    chosen: list[Tensor] = []  # by the attention of a layer, until its feed-forward block

    def look(module: nn.Module, inputs: Any, output: Any) -> None:
        with torch.no_grad():
            chosen.append(choose(output[1].detach()))

    def cut(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output.masked_fill(chosen.pop().unsqueeze(-1), 0)

    with ExitStack() as hooks:
        hooks.enter_context(_attention_weights(encoder))
        assert encoder.family.cut_points is not None
        for attention, last in encoder.family.cut_points(encoder.body):
            hooks.enter_context(attention.register_forward_hook(look))
            hooks.enter_context(last.register_forward_hook(cut))
        yield


@contextmanager
def _attention_weights(encoder: SharedEncoder) -> Iterator[None]:
    """Let attention return its weights within the context."""
    config, recorded = encoder.config, encoder.config.output_attentions
    if encoder.family.own_attention:  # the others would keep the weights of all layers
        config.output_attentions = True
    try:
        with unfused_attention(encoder.body):
            yield
    finally:
        config.output_attentions = recorded
