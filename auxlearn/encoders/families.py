"""The supported architectures: all that is known of each, in one entry, and the attention masks
that each needs. Heads map hidden states, so that the body is passed once for both of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from auxlearn.core.errors import EncoderError
from auxlearn.encoders.device import FUSED, upload


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


#: The modules of a :class:`Layer`, in its order.
_BERT_LAYER = attrgetter(
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "intermediate.intermediate_act_fn",
    "output.dense",
    "output.LayerNorm",
)
_DISTILBERT_LAYER = attrgetter(
    "attention.q_lin",
    "attention.k_lin",
    "attention.v_lin",
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.activation",
    "ffn.lin2",
    "output_layer_norm",
)


@dataclass(frozen=True)
class Stack:
    """Modules of an encoder that is scored layer by layer, first to last."""

    layers: list[Layer]
    heads: int  # number of attention heads per layer
    #: Maps token ids, positions and segments, ``(tokens,)``, to embeddings ``(tokens, width)``.
    embed: Callable[[Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Family:
    """What is known of one architecture."""

    #: ``(language_model, hidden)`` with hidden states ``(n, hidden size)`` to logits ``(n,
    #: vocabulary)``.
    token_logits: Callable[[Any, Tensor], Tensor]
    #: ``(classifier, hidden, batch)`` with the last hidden states ``(batch, length, hidden size)``
    #: to logits ``(batch, classes)``; the batch may be on the CPU.
    class_logits: Callable[[Any, Tensor, Any], Tensor]
    #: Prefixes of the language-model head's parameters, which tell whether a checkpoint has them;
    #: none where the output layer is the embedding.
    head_prefixes: tuple[str, ...]
    #: Prefixes of the body's parameters that only ``class_logits`` uses.
    pooler_prefixes: tuple[str, ...] = ()
    #: Whether the body takes an attention mask of four dimensions, one for all layers.
    accepts_4d_masks: bool = False
    #: Whether it takes one for layers that attend to all tokens, and another for layers that attend
    #: to tokens nearby.
    masks_by_layer: bool = False
    #: Whether position ids begin after the id of the padding token.
    counts_from_padding: bool = False
    #: Whether the body needs a mask even without padding; otherwise it would inspect the token ids,
    #: which synchronises with a GPU.
    requires_mask: bool = False
    #: ``(classifier, hidden)`` to logits of each token, ``(batch, length, tags)``, of a model of
    #: token classification, if transformers has one.
    tag_logits: Callable[[Any, Tensor], Tensor] | None = lambda model, hidden: model.classifier(
        model.dropout(hidden)
    )
    #: Whether its own attention returns weights only if they are asked for.
    own_attention: bool = False
    #: Maps the body to a pair for each layer: the module that outputs attention weights second, and
    #: the last linear map of the feed-forward block. None for BART, whose decoder reads each text a
    #: second time, shifted by a token, and for layers that share their parameters.
    cut_points: Callable[[Any], list[tuple[nn.Module, nn.Module]]] | None = None
    #: Maps the body to its modules, if it can be scored layer by layer.
    stack: Callable[[Any], Stack] | None = None
    #: Maps the language model to its head without the output layer, likewise.
    transform: Callable[[Any], Callable[[Tensor], Tensor]] | None = None


def _head_on_sequence(model: Any, hidden: Tensor, batch: Any) -> Tensor:
    return model.classifier(hidden)


def _distilbert_transform(model: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: model.vocab_layer_norm(model.activation(model.vocab_transform(x)))


def _distilbert_classes(model: Any, hidden: Tensor, batch: Any) -> Tensor:
    pooled = model.pre_classifier(hidden[:, 0]).relu()
    return model.classifier(model.dropout(pooled))


def _deberta_tokens(model: Any, hidden: Tensor) -> Tensor:
    if model.legacy:
        return model.cls(hidden)
    return model.lm_predictions(hidden, model.deberta.embeddings.word_embeddings)


def _mean_over_tokens(values: Tensor, batch: Any) -> Tensor:
    """Return the mean over the tokens of each text, padding left out, ``(batch, size)``."""
    mask = upload(batch.attention_mask, values.device).unsqueeze(-1)
    return (values * mask).sum(1) / mask.sum(1)


def _modernbert_classes(model: Any, hidden: Tensor, batch: Any) -> Tensor:
    first = model.config.classifier_pooling == "cls"
    pooled = hidden[:, 0] if first else _mean_over_tokens(hidden, batch)
    return model.classifier(model.drop(model.head(pooled)))


def _eurobert_classes(model: Any, hidden: Tensor, batch: Any) -> Tensor:
    def classes(states: Tensor) -> Tensor:
        return model.classifier(model.activation(model.dense(states)))

    if model.classifier_pooling == "late":
        return _mean_over_tokens(classes(hidden), batch)
    first = model.classifier_pooling == "bos"
    return classes(hidden[:, 0] if first else _mean_over_tokens(hidden, batch))


def _albert_classes(model: Any, hidden: Tensor, batch: Any) -> Tensor:
    body = model.base_model
    return model.classifier(model.dropout(body.pooler_activation(body.pooler(hidden[:, 0]))))


def _pooled_classes(model: Any, hidden: Tensor, batch: Any) -> Tensor:
    return model.classifier(model.dropout(model.base_model.pooler(hidden)))


def _bart_tokens(model: Any, hidden: Tensor) -> Tensor:
    """Return token logits from states of the decoder, which reads the corrupted text shifted by a
    token; in BART's own training (https://arxiv.org/abs/1910.13461) the original one.
    """
    return model.lm_head(hidden) + model.final_logits_bias[0]


def last_states(hidden: Tensor, batch: Any) -> Tensor:
    """Return the hidden state of the last token of each text, which ends it."""
    last = upload(batch.attention_mask.sum(1) - 1, hidden.device)
    return hidden[torch.arange(len(last), device=last.device), last]


def _bert_cuts(body: Any) -> list[tuple[nn.Module, nn.Module]]:
    return [(layer.attention.self, layer.output.dense) for layer in body.encoder.layer]


def _gated_cuts(body: Any) -> list[tuple[nn.Module, nn.Module]]:
    """Return the modules of EuroBERT or NomicBERT, whose feed-forward blocks have a gate."""
    return [(layer.self_attn, layer.mlp.down_proj) for layer in body.layers]


def _bert_stack(body: Any) -> Stack:
    """Return the modules of BERT, RoBERTa or ELECTRA, whose module names agree."""
    layers = [Layer(*_BERT_LAYER(layer)) for layer in body.encoder.layer]
    first = getattr(body.embeddings, "padding_idx", -1) + 1  # of RoBERTa
    widen = getattr(body, "embeddings_project", nn.Identity())

    def embed(token_ids: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        types = torch.zeros_like(token_ids) if segments is None else segments
        embedded = body.embeddings(
            input_ids=token_ids[None],
            position_ids=positions[None] + first,
            token_type_ids=types[None],
        )
        return widen(embedded[0])

    return Stack(layers, body.config.num_attention_heads, embed)


def _distilbert_stack(body: Any) -> Stack:
    layers = [Layer(*_DISTILBERT_LAYER(layer)) for layer in body.transformer.layer]

    def embed(token_ids: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        return body.embeddings(input_ids=token_ids[None], position_ids=positions[None])[0]

    return Stack(layers, body.config.n_heads, embed)


_ROBERTA = Family(
    lambda model, hidden: model.lm_head(hidden),
    _head_on_sequence,
    ("lm_head.",),
    accepts_4d_masks=True,
    counts_from_padding=True,
    cut_points=_bert_cuts,
    stack=_bert_stack,
    transform=lambda model: (
        lambda x: model.lm_head.layer_norm(nn.functional.gelu(model.lm_head.dense(x)))
    ),
)

FAMILIES = {
    "bert": Family(
        lambda model, hidden: model.cls(hidden),
        _pooled_classes,
        ("cls.",),
        pooler_prefixes=("pooler.",),
        accepts_4d_masks=True,
        cut_points=_bert_cuts,
        stack=_bert_stack,
        transform=lambda model: model.cls.predictions.transform,
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": Family(
        lambda model, hidden: model.vocab_projector(_distilbert_transform(model)(hidden)),
        _distilbert_classes,
        ("vocab_transform.", "vocab_layer_norm.", "vocab_projector."),
        accepts_4d_masks=True,
        cut_points=lambda body: [
            (layer.attention, layer.ffn.lin2) for layer in body.transformer.layer
        ],
        stack=_distilbert_stack,
        transform=_distilbert_transform,
    ),
    "electra": Family(
        lambda model, hidden: model.generator_lm_head(model.generator_predictions(hidden)),
        _head_on_sequence,
        ("generator_predictions.", "generator_lm_head."),
        accepts_4d_masks=True,
        cut_points=_bert_cuts,
        stack=_bert_stack,
        transform=lambda model: model.generator_predictions,
    ),
    "deberta-v2": Family(
        _deberta_tokens,
        lambda model, hidden, batch: model.classifier(model.dropout(model.pooler(hidden))),
        ("cls.", "lm_predictions."),
        requires_mask=True,
        own_attention=True,
        cut_points=_bert_cuts,
    ),
    "modernbert": Family(
        lambda model, hidden: model.decoder(model.head(hidden)),
        _modernbert_classes,
        ("head.", "decoder."),
        masks_by_layer=True,
        tag_logits=lambda model, hidden: model.classifier(model.drop(model.head(hidden))),
        cut_points=lambda body: [(layer.attn, layer.mlp.Wo) for layer in body.layers],
    ),
    # Its layers share their parameters, so that no layer has modules of its own to cut out of.
    "albert": Family(
        lambda model, hidden: model.predictions(hidden),
        _albert_classes,
        ("predictions.",),
        pooler_prefixes=("pooler.",),
        accepts_4d_masks=True,
    ),
    # Its attention depends on distances in the input, which no position ids can change.
    "mpnet": Family(
        lambda model, hidden: model.lm_head(hidden),
        _head_on_sequence,
        ("lm_head.",),
        counts_from_padding=True,
        own_attention=True,
        cut_points=lambda body: [
            (layer.attention.attn, layer.output.dense) for layer in body.encoder.layer
        ],
    ),
    "eurobert": Family(
        lambda model, hidden: model.lm_head(hidden),
        _eurobert_classes,
        ("lm_head.",),
        accepts_4d_masks=True,
        tag_logits=lambda model, hidden: model.classifier(hidden),
        cut_points=_gated_cuts,
    ),
    "nomic_bert": Family(
        lambda model, hidden: model.cls(hidden),
        _pooled_classes,
        ("cls.",),
        pooler_prefixes=("pooler.",),
        accepts_4d_masks=True,
        cut_points=_gated_cuts,
    ),
    "bart": Family(
        _bart_tokens,
        lambda model, hidden, batch: model.classification_head(last_states(hidden, batch)),
        (),
        tag_logits=None,
    ),
}


def family_of(model_type: str) -> Family:
    if model_type not in FAMILIES:
        raise EncoderError(
            f"architecture '{model_type}' is not supported: use one of {', '.join(FAMILIES)}"
        )
    return FAMILIES[model_type]


def attention_mask(config: Any, mask: Tensor, device: torch.device) -> Tensor | None:
    """Return the mask that leaves out padding, in the form that a body needs; ``None`` without any:
    a body inspects a mask of two dimensions, which on a GPU synchronises.
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
    """Check that an encoder can be told which tokens each token attends to."""
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
    """Return which tokens each token attends to, ``(batch, length, length)``, in the form that a
    body needs; ``positions``, ``(batch, length)``, are by default the places of the tokens.
    """

    def as_mask(allowed: Tensor) -> Tensor:
        mask = upload(allowed[:, None], device)
        if config._attn_implementation in FUSED:
            return mask
        return torch.zeros(mask.shape, device=device).masked_fill(
            ~mask, torch.finfo(torch.float32).min
        )

    if not family_of(config.model_type).masks_by_layer:
        return as_mask(attends)
    if positions is None:
        positions = torch.arange(attends.shape[-1])[None]
    near = (positions[:, :, None] - positions[:, None]).abs() <= config.sliding_window
    return {"full_attention": as_mask(attends), "sliding_attention": as_mask(attends & near)}


def states_at(hidden: Tensor, positions: Tensor) -> Tensor:
    """Return the hidden states at some positions ``(batch, length)``, bool, ``(n, size)``."""
    places = upload(positions.flatten().nonzero().squeeze(1), hidden.device)
    return hidden.flatten(0, 1).index_select(0, places)
