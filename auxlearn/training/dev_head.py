"""Classification heads that are fitted to validation examples, for the validation gradient.

Early in training the head of the primary task is poor, and a validation gradient through it says
more about the head than about the encoder. META-TARTAN (Dery, Michel, Talwalkar and Neubig
2022, "Should We Be Pre-training? An Argument for End-task Aware Training as an Alternative",
https://arxiv.org/abs/2109.07437) therefore fits a newly initialised head to validation examples
while the backbone is frozen, so that its features need to be computed only once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from auxlearn import rng
from auxlearn.encoders.precision import full_precision

#: Number of examples that a head is fitted to, and the settings of the fit, as in the released code
#: of META-TARTAN.
HEAD_EXAMPLES = 32
FIT_STEPS = 10
FIT_LEARNING_RATE = 1e-3
FIT_WEIGHT_DECAY = 0.1
FIT_BETAS = (0.9, 0.98)
FIT_TOLERANCE = 1e-3


def closed_form_head(features: Tensor, labels: Tensor, classes: int) -> Callable[[Tensor], Tensor]:
    r"""Return the linear head of Gaussian classes with a shared covariance (linear discriminant).

    The logit of class :math:`c` for features :math:`x` is :math:`\mu_c^\top \Sigma^{-1} x -
    \tfrac12 \mu_c^\top \Sigma^{-1} \mu_c`, where :math:`\mu_c` is the mean of the class and
    :math:`\Sigma` the covariance within classes: the log posterior up to a constant, for classes
    that are equally frequent. A few examples do not determine the covariance of hundreds of
    dimensions, so it is shrunk towards a multiple of the identity by the oracle-approximating
    coefficient (Chen, Wiesel, Eldar and Hero 2010, "Shrinkage Algorithms for MMSE Covariance
    Estimation", https://arxiv.org/abs/0907.4698, equation 23, without the terms of 2/p). The mean
    of a class without an example is the mean of all examples.

    The head has a graph to the features, so that a derivative through it is complete, as in
    Bertinetto, Henriques, Torr and Vedaldi 2019, "Meta-learning with differentiable closed-form
    solvers" (https://arxiv.org/abs/1805.08136).

    Args:
        features: ``(examples, hidden size)``.
        labels: ``(examples,)``.
        classes: Number of classes.

    Returns:
        A function from features ``(examples, hidden size)`` to logits ``(examples, classes)``.
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
    shrinkage = excess / torch.maximum(spread, excess)
    identity = torch.eye(len(covariance), dtype=features.dtype, device=features.device)
    covariance = (1 - shrinkage) * covariance + shrinkage * size * identity
    # The shrunk covariance is never singular; solve_ex skips the check, which would synchronise.
    slopes = torch.linalg.solve_ex(covariance, means.T).result.T
    return partial(nn.functional.linear, weight=slopes, bias=-0.5 * (slopes * means).sum(1))


def initialise_head(hidden: int, classes: int, seed: int, step: int, like: Tensor) -> nn.Sequential:
    """Return a newly initialised head: a linear layer with tanh and a linear layer to logits.

    Args:
        hidden: Hidden size of the encoder.
        classes: Number of classes.
        seed: The run's seed.
        step: Number of the optimizer step; every step has a random stream of its own.
        like: Tensor with the device and dtype of the head.
    """
    with rng.seeded(seed, "dev head", step):
        head = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, classes))
    return head.to(device=like.device, dtype=like.dtype, non_blocking=True)


def fit_head(head: nn.Module, features: Callable[[], Tensor], labels: Tensor) -> nn.Module:
    """Fit a head as META-TARTAN's released code does, and freeze it.

    Up to ten steps of AdamW on the mean cross-entropy, fewer once the loss changes by less than
    0.001 between two steps.

    Args:
        head: From features ``(examples, hidden size)`` to logits ``(examples, classes)``.
        features: Called in every step; returns features without a graph.
        labels: ``(examples,)``.
    """
    optimizer = torch.optim.AdamW(
        head.parameters(), lr=FIT_LEARNING_RATE, weight_decay=FIT_WEIGHT_DECAY, betas=FIT_BETAS
    )
    previous = float("inf")
    for _ in range(FIT_STEPS):
        inputs = features()
        with full_precision(inputs.device):  # autocast would reuse its cached copy of the weights
            loss = nn.functional.cross_entropy(head(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        current = float(loss.detach())
        if abs(previous - current) < FIT_TOLERANCE:
            break
        previous = current
    return head.requires_grad_(False)
