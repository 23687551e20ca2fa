"""Modules of the encoders that are scored layer by layer, by architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from auxlearn.encoders.shared import SharedEncoder


@dataclass(frozen=True)
class Layer:
    """Modules of a transformer layer with normalisation after the residual sums (post-norm)."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    attention_output: nn.Linear
    attention_norm: nn.LayerNorm
    up: nn.Linear
    activation: Callable[[Tensor], Tensor]
    down: nn.Linear
    output_norm: nn.LayerNorm


@dataclass(frozen=True)
class Stack:
    """Modules of an encoder that a scoring pass uses.

    Attributes:
        layers: The layers, first to last.
        heads: Number of attention heads per layer.
        embed: Maps token ids, positions and segments, each ``(tokens,)``, to embeddings
            ``(tokens, width)``.
        transform: The language-model head without its output layer.
    """

    layers: list[Layer]
    heads: int
    embed: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    transform: Callable[[Tensor], Tensor]


def _bert_stack(encoder: SharedEncoder) -> Stack:
    """Return the modules of BERT, RoBERTa or ELECTRA, whose module names agree."""
    body = encoder.body
    layers = [
        Layer(
            query=layer.attention.self.query,
            key=layer.attention.self.key,
            value=layer.attention.self.value,
            attention_output=layer.attention.output.dense,
            attention_norm=layer.attention.output.LayerNorm,
            up=layer.intermediate.dense,
            activation=layer.intermediate.intermediate_act_fn,
            down=layer.output.dense,
            output_norm=layer.output.LayerNorm,
        )
        for layer in body.encoder.layer
    ]
    # RoBERTa's positions start after the padding index.
    first = getattr(body.embeddings, "padding_idx", -1) + 1
    widen = getattr(body, "embeddings_project", nn.Identity())

    def embed(token_ids: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        embedded = body.embeddings(
            input_ids=token_ids[None],
            position_ids=positions[None] + first,
            token_type_ids=torch.zeros_like(token_ids)[None]
            if segments is None
            else segments[None],
        )
        return widen(embedded[0])

    return Stack(layers, body.config.num_attention_heads, embed, _transform(encoder))


def _distilbert_stack(encoder: SharedEncoder) -> Stack:
    """Return the modules of DistilBERT."""
    body = encoder.body
    layers = [
        Layer(
            query=layer.attention.q_lin,
            key=layer.attention.k_lin,
            value=layer.attention.v_lin,
            attention_output=layer.attention.out_lin,
            attention_norm=layer.sa_layer_norm,
            up=layer.ffn.lin1,
            activation=layer.ffn.activation,
            down=layer.ffn.lin2,
            output_norm=layer.output_layer_norm,
        )
        for layer in body.transformer.layer
    ]

    def embed(token_ids: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        return body.embeddings(input_ids=token_ids[None], position_ids=positions[None])[0]

    return Stack(layers, body.config.n_heads, embed, _transform(encoder))


def _transform(encoder: SharedEncoder) -> Callable[[Tensor], Tensor]:
    """Return the language-model head without its output layer."""
    model = encoder.language_model
    match encoder.config.model_type:
        case "bert":
            return model.cls.predictions.transform
        case "electra":
            return model.generator_predictions
        case "distilbert":
            return lambda x: model.vocab_layer_norm(model.activation(model.vocab_transform(x)))
        case _:
            head = model.lm_head
            return lambda x: head.layer_norm(nn.functional.gelu(head.dense(x)))


#: ``STACKS[model_type](encoder)`` returns the modules of a supported architecture.
STACKS: dict[str, Callable[[SharedEncoder], Stack]] = {
    "bert": _bert_stack,
    "roberta": _bert_stack,
    "xlm-roberta": _bert_stack,
    "camembert": _bert_stack,
    "electra": _bert_stack,
    "distilbert": _distilbert_stack,
}
