r"""Nash-MTL: the step on which gradients agree in bargaining (Navon, Shamsian, Achituve, Maron,
Kawaguchi, Chechik and Fetaya 2022, "Multi-Task Learning as a Bargaining Game",
https://arxiv.org/abs/2202.01017).

With :math:`g_i` the gradients over the shared parameters and :math:`G_{ij} = \langle g_i, g_j
\rangle`, the weights are the positive :math:`\alpha` with

.. math:: G \alpha = 1 / \alpha

(section 3.2; the division is by element), so that each weighted gradient has the same inner product
with the step: :math:`\langle \alpha_i g_i, \sum_j \alpha_j g_j \rangle = 1`.

Cost: the gradient of each objective is kept; inner products of all pairs, O(objectives^2 x
parameters). No state.

Departures from the authors' code:

* They approximate the solution by up to 20 convex programmes for the solver ECOS. The condition is
  that the strictly convex :math:`\frac{1}{2} \alpha^\top G \alpha - \sum_i \log \alpha_i` has its
  minimum, and a damped Newton method finds that to rounding.
* They scale a step longer than 1 to length 1; here a run's ``max_grad_norm`` does that. G is
  divided by the mean of its diagonal (theirs by its norm), so that the step grows with the
  gradients.
* Heads take their own gradients unweighted.
* Linearly dependent gradients may admit no solution. The diagonal of G is raised by a share of
  :data:`RIDGE`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from auxlearn.registry import register_weighting
from auxlearn.weighting.base import TrainingStep
from auxlearn.weighting.gram import GramWeighting

#: Share by which squared norms are raised; without it gradients that cancel each other have no
#: bargain, and weights would grow without bound.
RIDGE = 1e-6


def nash_weights(gram: Tensor, ridge: float = RIDGE) -> Tensor:
    r"""Return the weights of the bargaining solution.

    The objective is self-concordant, so Newton steps of size :math:`1 / (1 + \lambda)`, with
    :math:`\lambda` the Newton decrement, converge from everywhere and never leave the positive
    weights (Boyd and Vandenberghe 2004, section 9.6).

    Args:
        gram: Inner products of the gradients, ``(objectives, objectives)``, float64.
        ridge: Share by which its diagonal is raised.

    Returns:
        ``(objectives,)``, positive, the solution for ``gram`` over the mean of its diagonal. A
        gradient of norm zero bargains with none and gets 1.
    """
    squares = gram.diagonal()
    size = squares.mean()
    # Solved for gradients of length 1: the weight of a longer one is that much smaller.
    norms = torch.where(squares > 0, squares / size, torch.ones_like(squares)).sqrt()
    scaled = gram / size.clamp(min=torch.finfo(gram.dtype).tiny) / torch.outer(norms, norms)
    scaled = scaled.fill_diagonal_(1 + ridge)
    weights = torch.ones_like(norms)
    for _ in range(200):  # some ten suffice; the bound is for gradients that are no numbers
        slope = scaled @ weights - 1 / weights
        newton = torch.linalg.solve(scaled + torch.diag(weights**-2), slope)
        decrement = float((slope @ newton).clamp(min=0).sqrt())
        weights = weights - newton / (1 + decrement if decrement > 0.25 else 1)
        if not decrement > 1e-9:  # the last step has squared it
            break
    return weights / norms


@register_weighting("nash_mtl")
class NashMTL(GramWeighting):
    """Give every weighted gradient the same inner product with the step (Navon et al. 2022)."""

    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        """The bargaining solution."""
        return nash_weights(gram)
