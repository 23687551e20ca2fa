"""FAMO: weights that let all losses decrease at the same rate."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.registry import register_weighting
from auxlearn.weighting.base import TrainingStep
from auxlearn.weighting.learned import LearnedOptions, LearnedWeighting
from auxlearn.weighting.mixing import KeptWeights

#: Added to losses before logarithms and divisions, as the authors do.
EPSILON = 1e-8


def famo_weights(logits: Tensor, losses: Tensor) -> Tensor:
    """Return the weights :math:`c z_i / L_i`, with sum 1; 0 for a loss of zero unless all are."""
    shares = _shares(logits, losses) / (losses + EPSILON)
    return shares / shares.sum()


def _shares(logits: Tensor, losses: Tensor) -> Tensor:
    """Return the softmax of the logits of objectives whose loss is above zero, or of all."""
    absent = (losses <= 0) & (losses > 0).any()
    return logits.masked_fill(absent, -torch.inf).softmax(0)


def famo_logit_gradient(logits: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Return the gradient of the logits from losses before and after the step; its sum is 0."""
    decreases = (before + EPSILON).log() - (after + EPSILON).log()
    shares = _shares(logits, before)
    return shares * (decreases - (shares * decreases).sum())


class FAMOOptions(LearnedOptions):
    learning_rate: float = Field(0.025, gt=0)
    """Learning rate of Adam on the logits."""

    weight_decay: float = Field(0.001, ge=0)
    """Weight decay of the logits, towards equal weights (gamma)."""


@register_weighting("famo")
class FAMO(KeptWeights, LearnedWeighting):
    r"""Weights that let all losses decrease at the same rate (Liu et al. 2023).

    Liu, Feng, Stone and Liu 2023, "FAMO: Fast Adaptive Multitask Optimization",
    https://arxiv.org/abs/2306.03792, Algorithm 1.

    With logits :math:`\xi`, :math:`z = \mathrm{softmax}(\xi)` and losses :math:`L_i`, the optimizer
    step is made with the gradient of :math:`c \sum_i z_i \log L_i`, where :math:`c = (\sum_i z_i /
    L_i)^{-1}` is held constant: weights :math:`c z_i / L_i`, which sum to 1. Then the losses
    :math:`L_i'` of the same batches at the new parameters show how much each has decreased, and
    Adam updates the logits with the gradient

    .. math:: \delta = J^\top (\log L - \log L'), \quad J = \partial z / \partial \xi:

    an objective whose loss decreases fast loses weight. ``weight_decay`` is the paper's
    :math:`\gamma`.

    Departures from the authors' code (Cranial-XIX/FAMO, ``famo.py``): the lower bound of the losses
    is 0; gradients are clipped by the run's ``max_grad_norm``, and kept by objective, as the
    weights depend on all losses of the step. The second forward pass has the dropout masks and
    corrupted tokens of the first. The logits are updated at the start of the next step, which saves
    a synchronisation with the GPU and changes no number.

    A loss of exactly zero, such as one of a batch without a masked token, has no gradient, and its
    logarithm would take the weight of all others: in such a step it has weight zero, and its logit
    is left as it is.
    """

    Options = FAMOOptions
    options: FAMOOptions
    buffers = ("logits", "_weights", "_before", "_after")

    def __init__(self, options: FAMOOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._weights = self.initial_weights()
        start = self._weights.log()
        self.logits = start - start.mean()  # weight decay is towards zero
        self.optimizer = torch.optim.Adam(
            [self.logits], lr=options.learning_rate, weight_decay=options.weight_decay
        )
        # Losses before and after the last step, which the logits are yet to be updated with.
        self._before: Tensor | None = None
        self._after: Tensor | None = None

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step on the log losses, whether the logits are learned or fixed."""
        self.learn(step)

    def learn(self, step: TrainingStep) -> None:
        """Update the logits with what the last step changed, and make this step."""
        gradients = step.gradients()
        losses = torch.stack([step.losses[name] for name in step.names])
        if self._after is not None:
            assert self._before is not None
            after, losses = torch.stack([self._after.to(losses), losses]).cpu().double()
            self.logits.grad = famo_logit_gradient(self.logits, self._before, after)
            self.optimizer.step()
        losses = losses.cpu().double()
        self._weights = self.with_floor(famo_weights(self.logits, losses))
        self.mixture.step(step, self._weights, gradients)
        self._before = self._after = None
        if self.is_learning(step):
            self._before, self._after = losses, step.current_losses()
