"""Nash-MTL: the Nash bargaining solution of the objectives' gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from auxlearn.core.registry import register_weighting
from auxlearn.weighting.base import TrainingStep
from auxlearn.weighting.mixing import GramWeighting

#: Fraction by which squared norms are increased; without it gradients that cancel each other have
#: no bargaining solution, and the weights would grow without bound.
RIDGE = 1e-6

#: Upper bound of Newton steps; some ten suffice, and NaN gradients never converge.
MAX_STEPS = 200


def nash_weights(gram: Tensor, ridge: float = RIDGE) -> Tensor:
    r"""Return the bargaining solution for G over the mean of its diagonal, ``(objectives,)``.

    The minimised function is self-concordant, so Newton steps of size :math:`1 / (1 + \lambda)`,
    with :math:`\lambda` the Newton decrement, converge from everywhere and never leave the positive
    weights (Boyd and Vandenberghe 2004, "Convex Optimization", section 9.6,
    https://web.stanford.edu/~boyd/cvxbook/). The weight of a gradient of norm zero is 1.
    """
    squares = gram.diagonal()
    size = squares.mean()
    # Solved for gradients of norm 1: the weight of a gradient is inverse to its norm.
    norms = torch.where(squares > 0, squares / size, torch.ones_like(squares)).sqrt()
    scaled = gram / size.clamp(min=torch.finfo(gram.dtype).tiny) / torch.outer(norms, norms)
    scaled = scaled.fill_diagonal_(1 + ridge)
    weights = torch.ones_like(norms)
    for _ in range(MAX_STEPS):
        slope = scaled @ weights - 1 / weights
        newton = torch.linalg.solve(scaled + torch.diag(weights**-2), slope)
        decrement = float((slope @ newton).clamp(min=0).sqrt())
        weights = weights - newton / (1 + decrement if decrement > 0.25 else 1)
        if not decrement > 1e-9:  # convergence is quadratic: the step just made has squared it
            break
    return weights / norms


@register_weighting("nash_mtl")
class NashMTL(GramWeighting):
    r"""Give every weighted gradient the same inner product with the sum (Navon et al. 2022).

    Navon, Shamsian, Achituve, Maron, Kawaguchi, Chechik and Fetaya 2022, "Multi-Task Learning as a
    Bargaining Game", https://arxiv.org/abs/2202.01017.

    With :math:`g_i` the gradients over the shared parameters and their Gram matrix :math:`G_{ij} =
    \langle g_i, g_j \rangle`, the weights are the positive :math:`\alpha` with

    .. math:: G \alpha = 1 / \alpha

    (section 3.2; elementwise division), so that each weighted gradient has the same inner product
    with their sum: :math:`\langle \alpha_i g_i, \sum_j \alpha_j g_j \rangle = 1`.

    Departures from the authors' code:

    * It approximates the solution by up to 20 convex programmes for the solver ECOS. The solution
      is the minimum of the strictly convex :math:`\frac{1}{2} \alpha^\top G \alpha - \sum_i \log
      \alpha_i`, which a damped Newton method finds to rounding error.
    * It scales a combined gradient longer than 1 to length 1; here the run's ``max_grad_norm`` does
      that. G is divided by the mean of its diagonal (theirs by its norm), so that the combined
      gradient grows with the gradients.
    * Heads take their own gradients unweighted.
    * With linearly dependent gradients there may be no solution. So the diagonal of G is increased
      by the fraction :data:`RIDGE` of it.
    """

    weighs_zeros = False

    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        return nash_weights(gram)
