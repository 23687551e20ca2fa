"""Mask probabilities, corruption of the chosen tokens, and the loss on held-out texts.

Pure functions of tensors with one text per row, computed in float64 so that the mean over a text
is exact to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from auxlearn.core import rng
from auxlearn.data.batches import Batch, collate, eval_batches, pad_token_values
from auxlearn.data.tokens import TokenizedTexts, vocabulary_ids
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder

#: Texts whose scores are converted to probabilities together, which bounds the memory of padding.
CHUNK_TEXTS = 256

PIECE_TOKENS = 1 << 20  # tokens whose statistics are in memory at once


def uniform(maskable: Tensor, mean: float) -> Tensor:
    """Return the same probability for every maskable token (random token masking).

    Args:
        maskable: Tokens that may be masked, ``(texts, length)``, bool.
        mean: The probability, in [0, 1].

    Returns:
        Mask probabilities ``(texts, length)``, float64; zero where nothing may be masked.

    Raises:
        ValueError: ``mean`` is outside [0, 1].

    Examples:
        >>> uniform(torch.tensor([[False, True, True, False]]), mean=0.15).tolist()
        [[0.0, 0.15, 0.15, 0.0]]
    """
    if not 0 <= mean <= 1:
        raise ValueError(f"mean must be in [0, 1], got {mean}")
    return maskable * torch.tensor(mean, dtype=torch.float64)


def rescale_to_mean(scores: Tensor, maskable: Tensor, mean: float) -> Tensor:
    r"""Scale the scores of each text so that its mask probabilities have a given mean.

    L3Masking (https://aclanthology.org/2024.customnlp4u-1.6), eq. 4: the probability of token
    :math:`t` is :math:`\alpha c_t`, where :math:`c_t` is its score and
    :math:`\alpha = n \bar p / \sum_t c_t` for the :math:`n` maskable tokens of the text and the
    mean :math:`\bar p`. A probability above 1 is set to 1 and the excess is spread equally over the
    other tokens, repeatedly until none exceeds 1. The mean stays ``mean`` throughout. A text whose
    scores are all zero is masked uniformly; the paper does not define this case.

    A token of score 0 is therefore masked after all where others reach 1. To mask none but some
    kinds of tokens, set the probabilities of the others to 0; the mean of such a text falls.

    The authors' released code clips before it spreads, so that no excess is left to spread and the
    mean falls below the target.

    Args:
        scores: Score of each token, proportional to its wanted mask probability,
            ``(texts, length)``, not negative.
        maskable: Tokens that may be masked, ``(texts, length)``, bool.
        mean: Mean probability over the maskable tokens of each text, in (0, 1].

    Returns:
        Mask probabilities ``(texts, length)``, float64; zero at tokens that are not
        maskable.

    Raises:
        ValueError: ``mean`` is outside (0, 1], or a score is negative or not finite.

    Examples:
        The scores of the two maskable tokens are in the ratio 1 : 3; so are the probabilities.

        >>> scores = torch.tensor([[9.0, 1.0, 3.0, 9.0]])
        >>> maskable = torch.tensor([[False, True, True, False]])
        >>> rescale_to_mean(scores, maskable, mean=0.5).tolist()
        [[0.0, 0.25, 0.75, 0.0]]

        With a mean of 0.75 the second would exceed 1; the first receives the excess.

        >>> rescale_to_mean(scores, maskable, mean=0.75).tolist()
        [[0.0, 0.5, 1.0, 0.0]]
    """
    if not 0 < mean <= 1:
        raise ValueError(f"mean must be in (0, 1], got {mean}")
    scores = scores.double().masked_fill(~maskable, 0.0)
    if not torch.isfinite(scores).all() or (scores < 0).any():
        raise ValueError("scores must be finite and not negative")
    count = maskable.sum(-1, keepdim=True)
    total = scores.sum(-1, keepdim=True)
    all_zero = (total == 0) & (count > 0)
    scores = torch.where(all_zero, maskable.double(), scores)
    # Dividing by the largest score first prevents an overflow where the sum is tiny.
    largest = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    share = scores / largest
    share = share / share.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    return spread_excess(share * count * mean, maskable)


def spread_excess(probabilities: Tensor, maskable: Tensor) -> Tensor:
    """Spread what exceeds 1 equally over a text's other maskable tokens, until nothing does."""
    capped = torch.zeros_like(maskable)
    while (probabilities > 1).any():
        excess = (probabilities - 1).clamp(min=0).sum(-1, keepdim=True)
        capped |= probabilities >= 1
        others = maskable & ~capped
        part = excess / others.sum(-1, keepdim=True).clamp(min=1)
        probabilities = probabilities.clamp(max=1) + part * others
    return probabilities


def rescale_texts(
    texts: TokenizedTexts,
    scores: Tensor,
    mean: float,
    arranged: Callable[[Tensor, Batch], Tensor] = lambda probabilities, batch: probabilities,
) -> Iterator[Tensor]:
    """Yield mask probabilities, ``(tokens,)``, of so many texts at a time, as ``arranged``."""
    for indices in torch.arange(len(texts)).split(CHUNK_TEXTS):
        batch = collate(texts, indices)
        padded = pad_token_values(texts, scores, indices, 0)
        probabilities = arranged(rescale_to_mean(padded, batch.maskable, mean), batch)
        yield probabilities[batch.attention_mask.bool()]


def look_up(table: Tensor, token_ids: Tensor) -> Iterator[Tensor]:
    """Yield the values of tokens, ``(tokens,)``, in a table by token id, so many at a time."""
    for piece in token_ids.split(PIECE_TOKENS):
        yield table[piece.long()]


def count_tokens(texts: TokenizedTexts, vocabulary: int) -> Tensor:
    """Return how often each token stands where it may be masked, ``(vocabulary,)``, int64."""
    counts = torch.zeros(vocabulary, dtype=torch.int64)
    pieces = (values.split(PIECE_TOKENS) for values in (texts.input_ids, texts.maskable))
    for token_ids, maskable in zip(*pieces, strict=True):
        counts += token_ids[maskable].bincount(minlength=vocabulary)
    return counts


def unit_means(values: Tensor, units: Tensor, maskable: Tensor) -> Tensor:
    """Give every maskable token the mean of its unit, float64, so that the mean of a text stays.

    ``units`` is the number of the unit that each token belongs to, such as its word; negative where
    nothing is maskable. Texts share no units.

    >>> units = torch.tensor([[-1, 0, 0, 1]])
    >>> unit_means(torch.tensor([[0, 1, 3, 5]]), units, units >= 0).tolist()
    [[0.0, 2.0, 2.0, 5.0]]
    """
    width = int(units.max()) + 1 if units.numel() else 0
    key = (torch.arange(len(units))[:, None] * width + units)[maskable]
    totals = torch.zeros(len(units) * width, dtype=torch.float64)
    totals.index_add_(0, key, values[maskable].double())
    counts = key.bincount(minlength=len(totals)).clamp(min=1)
    means = torch.zeros(units.shape, dtype=torch.float64)
    means[maskable] = (totals / counts)[key]
    return means


def mirrored(probabilities: Tensor, maskable: Tensor) -> Tensor:
    """Reverse the order of the probabilities of each text: the most masked token the least.

    The token of the k-th highest probability gets the k-th lowest; tokens of equal probability
    share the mean of what falls to them.

    Examples:
        >>> given = torch.tensor([[0.0, 0.1, 0.1, 0.4]], dtype=torch.float64)
        >>> [[round(p, 2) for p in mirrored(given, given > 0)[0].tolist()]]
        [[0.0, 0.25, 0.25, 0.1]]
    """
    found = torch.zeros_like(probabilities)
    for row, (values, here) in enumerate(zip(probabilities, maskable, strict=True)):
        # Equal probabilities may differ by rounding, which must not order them.
        _, place, counts = (
            values[here].round(decimals=12).unique(return_inverse=True, return_counts=True)
        )
        ends = counts.flip(0).cumsum(0).flip(0)  # places from below that a kind reaches
        sums = torch.cat([values.new_zeros(1), values[here].sort().values.cumsum(0)])
        means = (sums[ends] - sums[ends - counts]) / counts
        found[row, here] = means[place].clamp(max=1)  # a difference of sums is rounded
    return found


def choose_units(
    probabilities: Tensor, units: Tensor, maskable: Tensor, generator: torch.Generator
) -> Tensor:
    """Choose whole units with the mean probability of their tokens, by one draw each; tokens of
    a negative unit are never chosen.
    """
    maskable = maskable & (units >= 0)
    width = int(units.max()) + 1 if units.numel() else 0
    present = torch.zeros(len(units), width, dtype=torch.float64)
    rows = torch.arange(len(units))[:, None].expand_as(units)[maskable]
    means = unit_means(probabilities, units, maskable)
    present[rows, units[maskable]] = means[maskable]
    chosen = torch.zeros_like(maskable)
    chosen[maskable] = choose(present, generator)[rows, units[maskable]]
    return chosen


#: BERT's corruption of a chosen token (Devlin et al. 2019, section 3.1), which RoBERTa and
#: L3Masking (section 3.4) keep: 80% mask token, 10% a random token, 10% unchanged.
MASK_SHARE = 0.8
RANDOM_SHARE = 0.1

#: Shares of mask token and random token by the name of a corruption; the rest stay.
CORRUPTIONS = {
    "bert": (MASK_SHARE, RANDOM_SHARE),
    "mask": (1.0, 0.0),
    "random": (0.0, 1.0),
    "keep": (0.0, 0.0),
}


def ordinary_ids(tokenizer: Any, unknown: bool = False) -> Tensor:
    """Return the token ids of a vocabulary without special tokens, ``(n,)``, ascending; with the
    ``unknown`` token, which stands for a word, and whose predictions Mask-tuning counts.
    """
    special = set(tokenizer.all_special_ids) - ({tokenizer.unk_token_id} if unknown else set())
    return torch.tensor([token for token in vocabulary_ids(tokenizer) if token not in special])


def choose(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """Choose each token with its own probability.

    Args:
        probabilities: Mask probabilities in [0, 1], ``(batch, length)``.
        generator: Source of randomness, on the CPU.

    Returns:
        The chosen positions, ``(batch, length)``, bool. A probability of 1 is always chosen, one
        of 0 never.
    """
    candidates = probabilities > 0
    draws = torch.rand(int(candidates.sum()), generator=generator, dtype=torch.float64)
    chosen = torch.zeros_like(candidates)
    chosen[candidates] = draws.to(probabilities.device) < probabilities[candidates]
    return chosen


def at_least_one(chosen: Tensor, candidates: Tensor, generator: torch.Generator) -> Tensor:
    """Choose a candidate in every text of which none is chosen; one draw for every text."""
    draws = torch.rand(len(chosen), generator=generator, dtype=torch.float64).to(chosen.device)
    wanted = (draws * candidates.sum(-1)).long()  # the rank of one candidate of the text, from 0
    rank = candidates.cumsum(-1) - 1
    empty = ~chosen.any(-1, keepdim=True)
    return chosen | (empty & candidates & (rank == wanted[:, None]))


def corrupt(
    input_ids: Tensor,
    chosen: Tensor,
    mask_id: int,
    random_ids: Tensor,
    generator: torch.Generator,
    mask_share: float = MASK_SHARE,
    random_share: float = RANDOM_SHARE,
) -> Tensor:
    """Replace chosen tokens by the mask token, by a random token, or not at all.

    Args:
        input_ids: Token ids, ``(batch, length)``.
        chosen: Tokens to corrupt, ``(batch, length)``, bool.
        mask_id: Token id of the mask token.
        random_ids: Token ids to draw replacements from, ``(n,)``: the vocabulary without special
            tokens. BERT's own code draws from all of it.
        generator: Source of randomness, on the CPU.
        mask_share: Share of the chosen tokens that become the mask token.
        random_share: Share that become a random token; the rest stay.

    Returns:
        The corrupted ids, ``(batch, length)``; the input is not modified.

    Raises:
        ValueError: The shares are negative or sum to more than 1.
    """
    if not (mask_share >= 0 and random_share >= 0 and mask_share + random_share <= 1):  # NaN
        raise ValueError(
            f"mask_share {mask_share} and random_share {random_share} must be shares of one whole"
        )
    count = int(chosen.sum())
    draws = torch.rand(count, generator=generator, dtype=torch.float64)
    random_choice = torch.randint(len(random_ids), (count,), generator=generator)
    replacement = input_ids[chosen].cpu()
    replacement = torch.where(
        draws < mask_share + random_share, random_ids[random_choice], replacement
    )
    replacement = torch.where(draws < mask_share, mask_id, replacement)
    corrupted = input_ids.clone()
    corrupted[chosen] = replacement.to(input_ids)
    return corrupted


def mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of predicted tokens, in nats; of none, a zero with a graph."""
    total = nn.functional.cross_entropy(logits, upload(targets, logits.device), reduction="sum")
    return total / max(1, len(targets))


#: Share of the tokens that are masked, as BERT was pretrained.
SHARE = 0.15


@dataclass(frozen=True)
class MaskedScores:
    """Predictions of masked tokens."""

    loss: float  # mean cross-entropy in nats; 0 if no token was masked
    accuracy: float  # share of the tokens that the head predicts, from 0 to 1
    targets: Tensor  # the masked tokens, (n,), on the CPU
    vocabulary: int  # number of tokens that the head chooses from


def score_masked(
    encoder: SharedEncoder,
    texts: TokenizedTexts,
    batch_size: int,
    seed: int,
    *purpose: str,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> MaskedScores:
    """Predict masked tokens without dropout; the same masks at every call with a batch size."""
    losses, hits, targets, vocabulary = [], [], [], 0
    with encoder.evaluating(), torch.inference_mode(), autocast():
        for number, examples in enumerate(eval_batches(texts, batch_size)):
            batch = collate(texts, examples)
            generator = rng.generator(seed, *purpose, number)
            positions = choose(uniform(batch.maskable, SHARE), generator)
            masked = batch.input_ids.masked_fill(positions, encoder.tokenizer.mask_token_id)
            logits = encoder.predict_tokens(replace(batch, input_ids=masked), positions)
            targets.append(batch.input_ids[positions])
            wanted = upload(targets[-1], encoder.device)
            losses.append(nn.functional.cross_entropy(logits.float(), wanted, reduction="sum"))
            hits.append((logits.argmax(-1) == wanted).sum())
            vocabulary = logits.shape[-1]
    loss, correct = (sum(torch.stack(values).tolist()) for values in (losses, hits))
    every = torch.cat(targets)
    count = max(1, len(every))
    return MaskedScores(loss / count, correct / count, every, vocabulary)


def frequency_cross_entropy(texts: TokenizedTexts, targets: Tensor, vocabulary: int) -> float:
    """Return the mean cross-entropy of tokens by their frequencies in some texts, in nats.

    One is added to the count of each token of the vocabulary. Two tokens of three are 7s here, and
    7 and 8 are asked for: (-ln 3/13 - ln 2/13) / 2.

    >>> ids, here = torch.tensor([7, 8, 7]), torch.ones(3, dtype=torch.bool)
    >>> texts = TokenizedTexts(ids, ids, here, torch.tensor([0, 3]), pad_id=0)
    >>> round(frequency_cross_entropy(texts, torch.tensor([7, 8]), vocabulary=10), 4)
    1.6691
    """
    counts = count_tokens(texts, vocabulary).double() + 1
    return float((counts.sum().log() - counts[targets].log()).mean())
