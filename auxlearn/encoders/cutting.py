"""Forward passes in which a span of each text is cut out of the embeddings or hidden states.

Both functions are contexts: the encoder is its usual self afterwards, whatever happens within. They
work on functional copies of an encoder as well, and have a second derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from auxlearn.core.errors import EncoderError
from auxlearn.encoders.shared import SharedEncoder


def _bert_layers(body: Any) -> list[tuple[nn.Module, nn.Module]]:
    return [(layer.attention.self, layer.output.dense) for layer in body.encoder.layer]


def _distilbert_layers(body: Any) -> list[tuple[nn.Module, nn.Module]]:
    return [(layer.attention, layer.ffn.lin2) for layer in body.transformer.layer]


def _modernbert_layers(body: Any) -> list[tuple[nn.Module, nn.Module]]:
    return [(layer.attn, layer.mlp.Wo) for layer in body.layers]


#: By architecture, what returns of each layer the module that outputs attention weights second and
#: the last linear map of the feed-forward block. All of these architectures have a module
#: ``embeddings``. BART is missing: its decoder reads each text a second time, shifted by a token.
_LAYERS: dict[str, Callable[[Any], list[tuple[nn.Module, nn.Module]]]] = {
    "bert": _bert_layers,
    "roberta": _bert_layers,
    "xlm-roberta": _bert_layers,
    "camembert": _bert_layers,
    "electra": _bert_layers,
    "deberta-v2": _bert_layers,
    "distilbert": _distilbert_layers,
    "modernbert": _modernbert_layers,
}


def check_cuttable(encoder: SharedEncoder) -> None:
    """Check that a span can be cut out of this encoder's embeddings and hidden states."""
    kind = encoder.config.model_type
    if kind not in _LAYERS:
        raise EncoderError(
            f"no span can be cut out of the hidden states of architecture '{kind}': "
            f"use one of {', '.join(_LAYERS)}"
        )
    if getattr(encoder.config, "chunk_size_feed_forward", 0):
        raise EncoderError(
            "no span can be cut out of the hidden states of an encoder with "
            "chunk_size_feed_forward: set it to 0 in its config.json"
        )
    if encoder.compiled:
        raise EncoderError(
            "no span can be cut out of the hidden states of a compiled encoder: leave --compile out"
        )


@contextmanager
def embeddings_cut(encoder: SharedEncoder, span: Tensor) -> Iterator[None]:
    """Set the embeddings of some tokens to zero within the context.

    These are the inputs of the first layer (of a projection before it, if there is one), with
    positions and segments added, after normalisation and dropout. The attention mask is the
    caller's.

    Args:
        encoder: The encoder.
        span: The tokens, ``(batch, length)``, bool, on the encoder's device.
    """
    check_cuttable(encoder)

    def cut(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output.masked_fill(span.unsqueeze(-1), 0)

    hook = encoder.body.embeddings.register_forward_hook(cut)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def feed_forward_cut(encoder: SharedEncoder, choose: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Set the feed-forward output of some tokens to zero in every layer within the context.

    It is the output of the last linear map, before dropout, residual connection and normalisation.
    Attention is computed unfused, because fused attention returns no weights.

    Args:
        encoder: The encoder.
        choose: Returns the tokens of a layer, ``(batch, length)``, bool; it is called once in each
            layer with that layer's attention weights, detached, ``(batch, heads, queries, keys)``.
    """
    check_cuttable(encoder)
    with ExitStack() as hooks:
        hooks.enter_context(_attention_weights(encoder))
        for attention, last in _LAYERS[encoder.config.model_type](encoder.body):
            for hook in _cut_layer(attention, last, choose):
                hooks.callback(hook.remove)
        yield


def _cut_layer(
    attention: nn.Module, last: nn.Module, choose: Callable[[Tensor], Tensor]
) -> list[Any]:
    """Register the hooks of one layer and return them."""
    chosen: list[Tensor] = []

    def look(module: nn.Module, inputs: Any, output: Any) -> None:
        with torch.no_grad():
            chosen.append(choose(output[1].detach()))

    def cut(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output.masked_fill(chosen.pop().unsqueeze(-1), 0)

    return [attention.register_forward_hook(look), last.register_forward_hook(cut)]


@contextmanager
def _attention_weights(encoder: SharedEncoder) -> Iterator[None]:
    """Let attention return its weights within the context."""
    body, config = encoder.body, encoder.config
    usual, recorded = config._attn_implementation, config.output_attentions
    if usual != "eager":
        body.set_attn_implementation("eager")
    # DeBERTa has its own attention, which returns weights only if they are asked for. The others
    # would also keep the weights of all layers.
    if config.model_type == "deberta-v2":
        config.output_attentions = True
    try:
        yield
    finally:
        config.output_attentions = recorded
        if usual != "eager":
            body.set_attn_implementation(usual)
