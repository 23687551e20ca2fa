"""A head of the validation rows' own, through which the validation gradient is read.

Early in training the head of the primary task knows little, and a validation gradient read through
it says more about the head than about the body. META-TARTAN (Dery et al. 2022) therefore fits a
fresh head to validation rows. The body rests meanwhile, so its features are computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from auxlearn import rng
from auxlearn.encoders.precision import full_precision

#: Rows that a head is fitted to, and the fit's settings, in the released code of META-TARTAN.
HEAD_ROWS = 32
FIT_STEPS = 10
FIT_RATE = 1e-3
FIT_DECAY = 0.1
FIT_BETAS = (0.9, 0.98)
FIT_TOLERANCE = 1e-3


def closed_form_head(features: Tensor, labels: Tensor, classes: int) -> Callable[[Tensor], Tensor]:
    r"""Return the linear head of Gaussian classes with one covariance (linear discriminant).

    Its logits are :math:`\mu_c^\top \Sigma^{-1} x - \tfrac12 \mu_c^\top \Sigma^{-1} \mu_c`: log
    posteriors up to a constant, for classes that are equally frequent. A few rows do not determine
    the covariance of hundreds of directions, so it is shrunk towards a multiple of the identity by
    the oracle-approximating share (Chen, Wiesel, Eldar and Hero 2010, equation 23, without the
    terms of 2/p). A class without a row sits at the mean of all rows.

    The head has a graph to the features, so that a derivative through it is the whole one, as in
    Bertinetto, Henriques, Torr and Vedaldi 2019, "Meta-learning with differentiable closed-form
    solvers".

    Args:
        features: ``(rows, hidden size)``.
        labels: ``(rows,)``.
        classes: How many classes there are.

    Returns:
        From features ``(rows, hidden size)`` to logits ``(rows, classes)``.
    """
    truth = nn.functional.one_hot(labels, classes).to(features)
    counts = truth.sum(0)
    means = (truth.T @ features) / counts.clamp(min=1)[:, None]
    means = torch.where(counts[:, None] > 0, means, features.mean(0))
    centred = features - means[labels]
    covariance = centred.T @ centred / len(features)
    size = covariance.diagonal().mean().clamp(min=torch.finfo(features.dtype).eps)
    square = (covariance**2).mean()
    excess = square + size**2
    spread = (len(features) + 1) * (square - size**2 / len(covariance))
    share = excess / torch.maximum(spread, excess)
    identity = torch.eye(len(covariance), dtype=features.dtype, device=features.device)
    covariance = (1 - share) * covariance + share * size * identity
    # The covariance is never singular, so a GPU need not be waited for to find that out.
    slopes = torch.linalg.solve_ex(covariance, means.T).result.T
    return partial(nn.functional.linear, weight=slopes, bias=-0.5 * (slopes * means).sum(1))


def fresh_head(hidden: int, classes: int, seed: int, step: int, like: Tensor) -> nn.Sequential:
    """Return a tanh layer and a linear one, drawn from the seed and the step."""
    with rng.seeded(seed, "dev head", step):
        head = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, classes))
    return head.to(device=like.device, dtype=like.dtype, non_blocking=True)


def fit(head: nn.Module, features: Callable[[], Tensor], labels: Tensor) -> nn.Module:
    """Fit a head as META-TARTAN's released code does, and freeze it.

    Up to ten steps of AdamW on the mean cross-entropy, fewer once the loss changes by less than
    0.001 from one to the next.

    Args:
        head: From features ``(rows, hidden size)`` to logits.
        features: Called in every step; what it gives has no graph.
        labels: ``(rows,)``.
    """
    optimizer = torch.optim.AdamW(
        head.parameters(), lr=FIT_RATE, weight_decay=FIT_DECAY, betas=FIT_BETAS
    )
    previous = float("inf")
    for _ in range(FIT_STEPS):
        given = features()
        with full_precision(given.device):  # autocast would not see the head change
            loss = nn.functional.cross_entropy(head(given), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        current = float(loss.detach())
        if abs(previous - current) < FIT_TOLERANCE:
            break
        previous = current
    return head.requires_grad_(False)
