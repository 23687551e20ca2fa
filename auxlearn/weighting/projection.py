r"""Projections of gradients: no conflict with any of them (UPGrad, DualProj), smallest norm (MGDA).

Notation: n objectives, the primary task first; :math:`g_i` the gradient of objective i over the
shared parameters; :math:`G_{ij} = \langle g_i, g_j \rangle` their Gram matrix, ``(objectives,
objectives)``. A rule computes weights w, ``(objectives,)``, and the optimizer step is made with
:math:`d = \sum_i w_i g_i`. Heads take their own gradients unweighted.

All three are non-negative least-squares problems in a root of G, which the active-set method of
Lawson and Hanson 1974, "Solving Least Squares Problems", chapter 23, solves to rounding error. The
released codes solve them approximately: they add a constant to the diagonal of G, of which the part
of a short gradient is large, or stop after some steps of the Frank-Wolfe algorithm.
"""

from __future__ import annotations

import torch
from scipy.optimize import nnls
from torch import Tensor

from auxlearn.core.registry import register_weighting
from auxlearn.weighting.base import TrainingStep
from auxlearn.weighting.mixing import GramWeighting


def dual_cone_weights(gram: Tensor, least: Tensor) -> Tensor:
    r"""Return :math:`\arg\min_{v \ge u} v^\top G v`, ``(objectives,)``; NaN if G is not finite.

    :math:`\sum_i v_i g_i` is the projection of :math:`\sum_i u_i g_i` onto the dual cone: the
    vectors whose inner product with no gradient is negative (Quinton and Rey 2024, proposition 1).
    """
    if not gram.isfinite().all():
        return torch.full_like(least, torch.nan)
    # Solved for gradients of norm 1, so that no gradient is short beside the others.
    norms = gram.diagonal().sqrt()
    norms = torch.where(norms > 0, norms, torch.ones_like(norms))
    root = gram_root(gram / torch.outer(norms, norms))
    added, _ = nnls(root.numpy(), -(root @ (least * norms)).numpy())
    return least + torch.from_numpy(added) / norms


def least_norm_weights(gram: Tensor) -> Tensor:
    r"""Return :math:`\arg\min_{v \ge 0, \sum v = 1} v^\top G v`; NaN if G is not finite.

    With G the inner products of the columns of R, the u that minimises :math:`\lVert R u \rVert^2 +
    (1 - \sum_i u_i)^2` for :math:`u \ge 0` is a multiple of it.
    """
    if not gram.isfinite().all():
        return torch.full_like(gram.diagonal(), torch.nan)
    root = gram_root(gram / gram.diagonal().mean().clamp(min=torch.finfo(gram.dtype).tiny))
    rows = torch.cat([root, torch.ones_like(root[:1])])
    target = torch.zeros(len(rows), dtype=gram.dtype)
    target[-1] = 1
    found, _ = nnls(rows.numpy(), target.numpy())
    return torch.from_numpy(found / found.sum())


def gram_root(gram: Tensor) -> Tensor:
    r"""Return R with :math:`R^\top R = G`, ``(objectives, objectives)``; G may be singular."""
    values, vectors = torch.linalg.eigh(gram)
    return values.clamp(min=0).sqrt()[:, None] * vectors.T


@register_weighting("upgrad")
class UPGrad(GramWeighting):
    r"""Project each gradient onto the cone that conflicts with none, and average (UPGrad).

    :math:`w = \frac{1}{n} \sum_i \arg\min_{v \ge e_i} v^\top G v`, with :math:`e_i` the i-th unit
    vector. Quinton and Rey 2024, "Jacobian Descent for Multi-Objective Optimization",
    https://arxiv.org/abs/2406.16232.
    """

    weighs_zeros = False

    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        units = torch.eye(len(gram), dtype=gram.dtype)
        return torch.stack([dual_cone_weights(gram, unit) for unit in units]).mean(0)


@register_weighting("dualproj")
class DualProj(GramWeighting):
    r"""Project the mean gradient onto the cone that conflicts with no gradient (DualProj, GEM).

    :math:`w = \arg\min_{v \ge 1/n} v^\top G v`. Lopez-Paz and Ranzato 2017, "Gradient Episodic
    Memory for Continual Learning", https://arxiv.org/abs/1706.08840, equation 11.
    """

    weighs_zeros = False

    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        return dual_cone_weights(gram, torch.full_like(gram.diagonal(), 1 / len(gram)))


@register_weighting("mgda")
class MGDA(GramWeighting):
    r"""Use the convex combination of the gradients with the smallest norm (MGDA).

    :math:`w = \arg\min_{v \ge 0, \sum v = 1} v^\top G v`. Désidéri 2012,
    https://doi.org/10.1016/j.crma.2012.03.014; Sener and Koltun 2018, "Multi-Task Learning
    as Multi-Objective Optimization", https://arxiv.org/abs/1810.04650.
    """

    weighs_zeros = False

    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        return least_norm_weights(gram)
