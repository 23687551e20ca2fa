"""Perturbed text: some tokens are masked, and what the encoder predicts for them is put in.

Mask-tuning (Ghanbarzadeh et al. 2023, "Improving the Reusability of Pre-trained Language Models in
Real-world Applications", section III) perturbs each batch anew while it trains; two of its
ablations (section VI) perturb the training text once, with the encoder still untouched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from auxlearn import rng
from auxlearn.cache import TensorCache, content_key
from auxlearn.data.batches import Batch, collate, eval_batches, flatten_rows
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.devices import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.masking.corruption import at_least_one
from auxlearn.masking.corruption import choose as choose_each
from auxlearn.masking.probabilities import uniform

#: Part of the cache key of perturbed text; raise it when perturbing changes its results.
PERTURBED = 1

#: Texts perturbed at once where no gradient is kept.
BATCH = 128


@dataclass(frozen=True)
class Perturbation:
    """What one pass of the language model makes of a batch.

    Attributes:
        logits: Over the vocabulary at the chosen tokens, ``(chosen.sum(), vocabulary)``, with a
            graph if gradients are on.
        chosen: Which tokens were masked, ``(batch, length)``, bool.
        batch: The batch with the predictions in place of the chosen tokens; labels, segments and
            everything else as before.
    """

    logits: Tensor
    chosen: Tensor
    batch: Batch


def writable_ids(tokenizer: Any) -> Tensor:
    """Return the token ids that may be put into a text, ``(n,)``, ascending.

    All but the special tokens: a separator or a mask in the middle of a text would make another
    input of it, and BART finds its end token by it. The unknown token is none of these: it stands
    for a word, and the paper counts how often it is predicted.
    """
    barred = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    return torch.tensor([token for token in range(len(tokenizer)) if token not in barred])


def choose_some(maskable: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Choose each maskable token with the same probability, and at least one in every text.

    Args:
        maskable: Where a mask may fall, ``(batch, length)``, bool.
        share: The probability, in (0, 1]. Texts so short that nothing would be chosen get one
            token, so the share over all texts is larger than this.
        generator: Source of randomness, on the CPU.

    Returns:
        ``(batch, length)``, bool; no token of a text that has nothing to mask.
    """
    return at_least_one(choose_each(uniform(maskable, share), generator), maskable, generator)


def choose_share(maskable: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Choose the same share of the maskable tokens of every text, and at least one.

    Args:
        maskable: Where a mask may fall, ``(batch, length)``, bool.
        share: The share, in (0, 1]. A text of n maskable tokens gets the whole number nearest to
            ``share * n`` (a half is rounded to the even one), but one at least.
        generator: Source of randomness, on the CPU.

    Returns:
        ``(batch, length)``, bool; no token of a text that has nothing to mask.
    """
    count = maskable.sum(-1, keepdim=True)
    wanted = torch.minimum((share * count.double()).round().long().clamp(min=1), count)
    draws = torch.full(maskable.shape, 2.0, dtype=torch.float64)  # behind every candidate
    drawn = torch.rand(int(count.sum()), generator=generator, dtype=torch.float64)
    draws[maskable] = drawn
    rank = draws.argsort(-1).argsort(-1)
    return rank < wanted


def pick(
    logits: Tensor,
    allowed: Tensor,
    temperature: float | None,
    generator: torch.Generator,
) -> Tensor:
    """Turn logits into tokens.

    Args:
        logits: ``(n, vocabulary)``.
        allowed: Token ids that may be picked, ``(m,)``; best on the device of the logits.
        temperature: Of the softmax that tokens are drawn from; ``None`` takes the likeliest token.
        generator: Source of randomness, on the CPU; not touched without a temperature.

    Returns:
        Token ids, ``(n,)``, without a graph: which token was picked has no derivative.
    """
    allowed = upload(allowed, logits.device)
    open_to = logits.detach()[:, allowed]
    if temperature is None:
        best = open_to.argmax(-1)
    else:
        chances = (open_to.double() / temperature).softmax(-1).cpu()
        # multinomial refuses an empty batch, which texts without a maskable token can make.
        drawn = (
            torch.multinomial(chances, 1, generator=generator).squeeze(1)
            if len(chances)
            else torch.zeros(0, dtype=torch.long)
        )
        best = upload(drawn, allowed.device)
    return allowed[best]


def perturb(
    encoder: SharedEncoder,
    batch: Batch,
    share: float,
    allowed: Tensor,
    temperature: float | None,
    generator: torch.Generator,
    choose: Callable[[Tensor, float, torch.Generator], Tensor] = choose_some,
) -> Perturbation:
    """Mask some tokens of a batch, predict them in one pass, and put the predictions in.

    A chosen token always becomes the mask token. All masks of a text are predicted together, so
    that none sees what was put in for another. Either text of a pair can be masked.

    Args:
        encoder: The encoder as it is, in the mode it is in.
        batch: The texts, on the CPU. A GPU is waited for once, for the tokens that are put in,
            and once more where tokens are drawn, for their chances.
        share: See :func:`choose_some`.
        allowed: See :func:`pick`.
        temperature: See :func:`pick`.
        generator: Source of all randomness but dropout, on the CPU.
        choose: What chooses the tokens: :func:`choose_some` or :func:`choose_share`.
    """
    chosen = choose(batch.maskable, share, generator)
    masked = batch.input_ids.masked_fill(chosen, encoder.tokenizer.mask_token_id)
    logits = encoder.predict_tokens(replace(batch, input_ids=masked), chosen)
    written = batch.input_ids.clone()
    written[chosen] = pick(logits, allowed, temperature, generator).to(written)
    return Perturbation(logits, chosen, replace(batch, input_ids=written))


def perturb_texts_once(
    encoder: SharedEncoder, texts: TokenizedTexts, share: float, seed: int, cache: TensorCache
) -> TokenizedTexts:
    """Perturb every text as :func:`perturb_texts` does, or fetch what an earlier run made."""
    key = content_key(
        "perturbed text",
        PERTURBED,
        encoder.language_model_fingerprint(),
        encoder.device.type,  # near ties between two tokens are settled by the last digit
        encoder.tokenizer.mask_token_id,
        writable_ids(encoder.tokenizer),
        texts.input_ids,
        texts.maskable,
        texts.offsets,
        "" if texts.token_type_ids is None else texts.token_type_ids,
        share,
        seed,
    )
    made = cache.get(
        key, lambda: {"input_ids": perturb_texts(encoder, texts, share, seed).input_ids}
    )
    return replace(texts, input_ids=made["input_ids"])


def perturb_texts(
    encoder: SharedEncoder, texts: TokenizedTexts, share: float, seed: int
) -> TokenizedTexts:
    """Perturb every text once, with dropout off and the likeliest tokens.

    Args:
        encoder: The encoder that predicts; left as it was.
        texts: The texts.
        share: See :func:`choose_some`.
        seed: Decides which tokens are masked.

    Returns:
        The same texts, labels included, with other token ids.
    """
    written = texts.input_ids.clone()
    allowed = upload(writable_ids(encoder.tokenizer), encoder.device)
    with encoder.evaluating(), torch.inference_mode():
        for number, rows in enumerate(eval_batches(texts, BATCH)):
            draws = rng.generator(seed, "perturbed text", number)
            made = perturb(encoder, collate(texts, rows), share, allowed, None, draws)
            flatten_rows(texts, made.batch.input_ids.to(written.dtype), rows, written)
    return replace(texts, input_ids=written)
