"""From scores to mask probabilities, one text per row.

Pure functions of tensors. Computed in float64, because the mean over a text is meant to be exact.
"""

from __future__ import annotations

import torch
from torch import Tensor


def uniform(maskable: Tensor, mean: float) -> Tensor:
    """Give every maskable token the same probability (random token masking).

    Args:
        maskable: Where a mask may fall, ``(texts, length)``, bool.
        mean: The probability.

    Returns:
        Mask probabilities ``(texts, length)``, float64; zero where nothing may be masked.

    Examples:
        >>> uniform(torch.tensor([[False, True, True, False]]), mean=0.15).tolist()
        [[0.0, 0.15, 0.15, 0.0]]
    """
    return maskable * torch.tensor(mean, dtype=torch.float64)


def rescale_to_mean(scores: Tensor, maskable: Tensor, mean: float) -> Tensor:
    r"""Scale the scores of each text so that its mask probabilities have a given mean.

    L3Masking, eq. 4: probabilities are :math:`\alpha c_t` with
    :math:`\alpha = n \bar p / \sum_t c_t` over the ``n`` maskable tokens of the text. Where that
    exceeds 1, the token gets 1 and the excess is spread equally over the other tokens; as this can
    lift others above 1, it is repeated until none is. The mean stays ``mean`` throughout. A text
    whose scores are all zero is masked uniformly, which the paper leaves open.

    The authors' released code clips before it spreads, so that nothing is left to spread and the
    mean falls below the target.

    Args:
        scores: How much each token should be masked, ``(texts, length)``, not negative.
        maskable: Where a mask may fall, ``(texts, length)``, bool.
        mean: Mean probability over the maskable tokens of each text, in (0, 1].

    Returns:
        Mask probabilities ``(texts, length)``, float64; zero where nothing may be masked.

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
    uniform_rows = (total == 0) & (count > 0)
    scores = torch.where(uniform_rows, maskable.double(), scores)
    # Dividing by the largest score first keeps tiny sums from overflowing.
    largest = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    share = scores / largest
    share = share / share.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    probabilities = share * count * mean

    capped = torch.zeros_like(maskable)
    while (probabilities > 1).any():
        excess = (probabilities - 1).clamp(min=0).sum(-1, keepdim=True)
        capped |= probabilities >= 1
        others = maskable & ~capped
        part = excess / others.sum(-1, keepdim=True).clamp(min=1)
        probabilities = probabilities.clamp(max=1) + part * others
    return probabilities
