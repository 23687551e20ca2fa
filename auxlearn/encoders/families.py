"""Where each architecture keeps its heads.

transformers names the parts of a model by architecture. A family says how hidden states become
token logits and class logits, so that a head can be applied where it is needed: the language-model
head at masked positions only, both heads after one pass through the body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from auxlearn.devices import upload
from auxlearn.errors import EncoderError


@dataclass(frozen=True)
class Family:
    """The heads of one architecture.

    Attributes:
        token_logits: ``(language_model, hidden)`` with hidden states ``(n, hidden size)`` to
            logits ``(n, vocabulary)``.
        class_logits: ``(classifier, hidden, batch)`` with the last hidden states
            ``(batch, length, hidden size)`` to logits ``(batch, classes)``; the batch may be on
            the CPU.
        head_parts: Prefixes of the language model's own parameters, for finding out whether a
            checkpoint brought them.
        pooler: Prefixes of the body's parameters that only ``class_logits`` uses.
        takes_ready_masks: Whether the body takes an attention mask of four dimensions as it is.
        wants_masks: Whether the body gets an attention mask where nothing is padding as well;
            without one it would look into the token ids, and a GPU would have to be waited for.
    """

    token_logits: Callable[[Any, Tensor], Tensor]
    class_logits: Callable[[Any, Tensor, Any], Tensor]
    head_parts: tuple[str, ...]
    pooler: tuple[str, ...] = ()
    takes_ready_masks: bool = False
    wants_masks: bool = False


def _bert_classes(model: Any, hidden: Tensor, batch: Any) -> Tensor:
    return model.classifier(model.dropout(model.base_model.pooler(hidden)))


def _head_on_sequence(model: Any, hidden: Tensor, batch: Any) -> Tensor:
    return model.classifier(hidden)


def _distilbert_tokens(model: Any, hidden: Tensor) -> Tensor:
    hidden = model.activation(model.vocab_transform(hidden))
    return model.vocab_projector(model.vocab_layer_norm(hidden))


def _distilbert_classes(model: Any, hidden: Tensor, batch: Any) -> Tensor:
    pooled = model.pre_classifier(hidden[:, 0]).relu()
    return model.classifier(model.dropout(pooled))


def _deberta_tokens(model: Any, hidden: Tensor) -> Tensor:
    if model.legacy:
        return model.cls(hidden)
    return model.lm_predictions(hidden, model.deberta.embeddings.word_embeddings)


def _deberta_classes(model: Any, hidden: Tensor, batch: Any) -> Tensor:
    return model.classifier(model.dropout(model.pooler(hidden)))


def _modernbert_classes(model: Any, hidden: Tensor, batch: Any) -> Tensor:
    if model.config.classifier_pooling == "cls":
        pooled = hidden[:, 0]
    else:
        mask = upload(batch.attention_mask, hidden.device).unsqueeze(-1)
        pooled = (hidden * mask).sum(1) / mask.sum(1)
    return model.classifier(model.drop(model.head(pooled)))


def _bart_tokens(model: Any, hidden: Tensor) -> Tensor:
    """Turn states of the decoder into token logits.

    BART (Lewis et al. 2020) reads a corrupted text with its encoder and writes the original with
    its decoder, one token after the other. ``hidden`` are states of the decoder, and the state at
    position i stands for token i of the text: the decoder's input is the text shifted to the right
    by one (``</s> <s> The par`` for ``<s> The par ser``), so at position i it has read tokens 0 to
    i - 1, and what it writes there is token i. So masked position and predicted position are the
    same index, as with BERT.

    The encoder sees the corrupted text on both sides of i. The decoder is fed the same corrupted
    text, where BART's own training feeds it the original: an original token would give away a mask
    further left. Where nothing left of i is masked the two are the same, and the prediction is
    BART's p(token i | tokens before i, corrupted text). That holds for every pseudo-likelihood
    (only the token and later ones of its word are masked), so `l3mask` is defined for BART with
    nothing changed, and its reference is `BartForConditionalGeneration` read at the mask.
    """
    return model.lm_head(hidden) + model.final_logits_bias[0]


def _bart_classes(model: Any, hidden: Tensor, batch: Any) -> Tensor:
    """Classify by the decoder's state at the end of the text, the one that has read all of it."""
    last = upload(batch.attention_mask.sum(1) - 1, hidden.device)  # the end-of-sequence token
    rows = torch.arange(len(last), device=last.device)
    return model.classification_head(hidden[rows, last])


_BERT = Family(
    lambda model, hidden: model.cls(hidden),
    _bert_classes,
    ("cls.",),
    pooler=("pooler.",),
    takes_ready_masks=True,
)
_ROBERTA = Family(
    lambda model, hidden: model.lm_head(hidden),
    _head_on_sequence,
    ("lm_head.",),
    takes_ready_masks=True,
)

FAMILIES = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": Family(
        _distilbert_tokens,
        _distilbert_classes,
        ("vocab_transform.", "vocab_layer_norm.", "vocab_projector."),
        takes_ready_masks=True,
    ),
    "electra": Family(
        lambda model, hidden: model.generator_lm_head(model.generator_predictions(hidden)),
        _head_on_sequence,
        ("generator_predictions.", "generator_lm_head."),
        takes_ready_masks=True,
    ),
    "deberta-v2": Family(
        _deberta_tokens, _deberta_classes, ("cls.", "lm_predictions."), wants_masks=True
    ),
    "modernbert": Family(
        lambda model, hidden: model.decoder(model.head(hidden)),
        _modernbert_classes,
        ("head.", "decoder."),
    ),
    "bart": Family(_bart_tokens, _bart_classes, ("final_logits_bias",)),
}


def family_of(model_type: str) -> Family:
    """Return the family of an architecture.

    Args:
        model_type: ``config.model_type`` of a transformers model.

    Raises:
        EncoderError: The architecture is not known here.
    """
    if model_type not in FAMILIES:
        raise EncoderError(
            f"architecture '{model_type}' is not supported: use one of {', '.join(FAMILIES)}"
        )
    return FAMILIES[model_type]
