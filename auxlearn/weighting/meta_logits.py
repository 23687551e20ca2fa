"""The logits of meta-learned weights: initial values, learning rate and gradient."""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: Initial weight of the primary task.
INITIAL_PRIMARY = 0.98

#: Change of a logit over the run if all evidence points one way, at the default learning rate. The
#: logits of the primary and of one auxiliary task change in opposite directions, so that the ratio
#: of their weights can change by a factor of exp(16): what the task needs from its initial weight
#: to the gate, a factor of about 3, takes a fourteenth of the run.
MAX_LOGIT_CHANGE = 8.0


def logit_learning_rate(steps: int, every: int, decay: float) -> float:
    """Return the default learning rate of the logits.

    Adam changes a logit by about its learning rate in each step, whatever the norm of the gradient.
    So the number of steps decides how much the weights can change, and the learning rate is
    inversely proportional to it. In a short run it is limited: a moving average remembers
    ``1 / (1 - decay)`` updates, and what chance leaves in it must not decide alone.

    Args:
        steps: Number of optimizer steps of the run.
        every: Steps from one update of the logits to the next.
        decay: Decay of the moving average of validation gradients.

    Returns:
        The rate at which a logit can change by :data:`MAX_LOGIT_CHANGE` in all, and by at most 1 in
        the updates that the average remembers.
    """
    return min(1 - decay, MAX_LOGIT_CHANGE * every / steps)


def default_meta_weights(count: int) -> Tensor:
    """Return the default initial weights of ``count`` objectives, the primary task first.

    The primary task has :data:`INITIAL_PRIMARY`, the others share the rest equally.

    Returns:
        ``(count,)``, float64, with sum 1.
    """
    others = max(1, count - 1)
    weights = torch.full((count,), (1 - INITIAL_PRIMARY) / others, dtype=torch.float64)
    weights[0] = INITIAL_PRIMARY
    return weights / weights.sum()


def with_price(gains: Tensor, price: float) -> Tensor:
    r"""Charge auxiliary objectives for what they must at least contribute.

    The optimizer of the logits sees whether the validation loss falls along a step, hardly by how
    much, so that an objective that contributes next to nothing would keep or gain weight by chance.
    With a price it has to lower the loss by more than that.

    Args:
        gains: Derivatives of the validation loss along the objectives' steps, or by their weights,
            ``(objectives,)``, the primary task first; negative where an objective helps.
        price: At least 0.

    Returns:
        The same, plus ``price`` for all but the first.
    """
    charged = gains.clone()
    charged[1:] += price
    return charged


def meta_gradient_of_logits(weights: Tensor, products: Tensor) -> Tensor:
    r"""Return the derivative of the validation loss after separate steps, by logit.

    The parameters of heads that the primary task does not depend on have no part in it: the
    validation gradient is zero there.

    Args:
        weights: :math:`w`, ``(objectives,)``, the primary task first.
        products: :math:`v^\top u_i`, inner product of the validation gradient after the step with
            each objective's own step, ``(objectives,)``; the first is not used.

    Returns:
        :math:`\partial L_{val} / \partial z_i`, ``(objectives,)``; they sum to 0.
    """
    gradient = weights / weights[0] * products
    gradient[0] = -gradient[1:].sum()
    return gradient


def lowest_logit(logits: Tensor, least: float) -> float:
    """Return the logit at which an auxiliary task has the smallest weight.

    For a task that is not applied yet, evidence is summed up from the last time that there was none
    (as in Page's cumulative sum test, 1954, "Continuous Inspection Schemes", Biometrika 41): it
    need not make up for the steps in which, say, the task's own head had yet to learn something.

    Args:
        logits: ``(objectives,)``, at least two, the primary task first.
        least: Sum of the weights of the auxiliary tasks if all of them are at the smallest weight,
            above 0 and below 1.
    """
    return float(logits[0].detach()) + math.log(least / (1 - least) / (len(logits) - 1))
