"""Perturbation of texts: mask some tokens and substitute the encoder's own predictions for them.

Mask-tuning (Ghanbarzadeh et al. 2023, https://arxiv.org/abs/2307.10457) perturbs each batch during
training (section III); two of its ablations (section VI) the training texts once, before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from auxlearn.core import rng
from auxlearn.core.cache import TensorCache, content_key
from auxlearn.data.batches import Batch, collate, eval_batches, unpad_token_values
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.masking import (
    at_least_one,
    choose as choose_each,
    ordinary_ids,
    uniform,
)

#: Part of the cache key of perturbed texts; raise it when a change of the code changes them.
PERTURBATION_VERSION = 1

#: Batch size of a perturbation without gradients.
BATCH_SIZE = 128


@dataclass(frozen=True)
class Perturbation:
    """A perturbed batch and the logits it was made from."""

    logits: Tensor  # vocabulary logits at the masked tokens, (chosen.sum(), vocabulary)
    chosen: Tensor  # the masked tokens, (batch, length), bool
    batch: Batch  # the batch with the masked tokens replaced


def choose_independently(maskable: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Choose each maskable token with the same probability, and at least one of every text."""
    return at_least_one(choose_each(uniform(maskable, share), generator), maskable, generator)


def choose_fixed_share(maskable: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Choose the same share of every text's maskable tokens, half to even, and at least one."""
    count = maskable.sum(-1, keepdim=True)
    wanted = torch.minimum((share * count.double()).round().long().clamp(min=1), count)
    keys = torch.full(maskable.shape, 2.0, dtype=torch.float64)  # sorts after every candidate
    keys[maskable] = torch.rand(int(count.sum()), generator=generator, dtype=torch.float64)
    rank = keys.argsort(-1).argsort(-1)
    return rank < wanted


def choose_replacements(
    logits: Tensor, allowed: Tensor, temperature: float | None, generator: torch.Generator
) -> Tensor:
    """Choose allowed tokens by their logits, ``(n,)``: sampled by temperature, or the highest."""
    allowed = upload(allowed, logits.device)
    allowed_logits = logits.detach()[:, allowed]
    if temperature is None:
        choice = allowed_logits.argmax(-1)
    else:
        cumulative = (allowed_logits.float() / temperature).softmax(-1).cumsum(-1)
        draws = upload(torch.rand(len(logits), 1, generator=generator), logits.device)
        found = torch.searchsorted(cumulative, draws * cumulative[:, -1:], right=True)
        choice = found.squeeze(1).clamp(max=len(allowed) - 1)
    return allowed[choice]


def perturb(
    encoder: SharedEncoder,
    batch: Batch,
    share: float,
    allowed: Tensor,
    temperature: float | None,
    generator: torch.Generator,
    choose: Callable[[Tensor, float, torch.Generator], Tensor] = choose_independently,
) -> Perturbation:
    """Mask some tokens of a batch, predict all in one pass, and substitute the predictions."""
    chosen = choose(batch.maskable, share, generator)
    masked = batch.input_ids.masked_fill(chosen, encoder.tokenizer.mask_token_id)
    logits = encoder.predict_tokens(replace(batch, input_ids=masked), chosen)
    perturbed = batch.input_ids.clone()
    perturbed[chosen] = choose_replacements(logits, allowed, temperature, generator).to(perturbed)
    return Perturbation(logits, chosen, replace(batch, input_ids=perturbed))


def perturb_texts(
    encoder: SharedEncoder, texts: TokenizedTexts, share: float, seed: int, cache: TensorCache
) -> TokenizedTexts:
    """Perturb every text once, without dropout, by the most likely tokens; cached on disk."""
    allowed = ordinary_ids(encoder.tokenizer, unknown=True)
    key = content_key(
        "perturbed text",
        PERTURBATION_VERSION,
        encoder.language_model_fingerprint(),
        encoder.device.type,  # rounding decides between tokens of nearly equal logits
        encoder.tokenizer.mask_token_id,
        allowed,
        texts.input_ids,
        texts.maskable,
        texts.offsets,
        "" if texts.token_type_ids is None else texts.token_type_ids,
        share,
        seed,
    )

    def compute() -> dict[str, Tensor]:
        perturbed = texts.input_ids.clone()
        there = upload(allowed, encoder.device)
        with encoder.evaluating(), torch.inference_mode():
            for number, indices in enumerate(eval_batches(texts, BATCH_SIZE)):
                generator = rng.generator(seed, "perturbed text", number)
                result = perturb(encoder, collate(texts, indices), share, there, None, generator)
                token_ids = result.batch.input_ids.to(perturbed.dtype)
                unpad_token_values(texts, token_ids, indices, perturbed)
        return {"input_ids": perturbed}

    return replace(texts, input_ids=cache.get(key, compute)["input_ids"])
