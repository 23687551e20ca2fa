"""Choosing tokens to mask, and corrupting them as in BERT.

Pure functions; all randomness comes from the generator that is passed in. Random numbers are drawn
for candidate tokens only, in reading order, so that padding changes nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: BERT's corruption of a chosen token (Devlin et al. 2019, section 3.1), which RoBERTa and
#: L3Masking (section 3.4) keep: 80% mask token, 10% a random token, 10% unchanged.
MASK_SHARE = 0.8
RANDOM_SHARE = 0.1


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
    """Choose one candidate, uniformly, in every text of which none is chosen.

    One number is drawn for every text, needed or not, so that the draws of a text do not depend on
    what was chosen in the others.

    Args:
        chosen: Positions chosen before, ``(batch, length)``, bool.
        candidates: Positions that may be chosen, ``(batch, length)``, bool.
        generator: Source of randomness, on the CPU.

    Returns:
        The chosen positions, ``(batch, length)``, bool. A text without candidates stays as it is.
    """
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
    if min(mask_share, random_share) < 0 or mask_share + random_share > 1:
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
