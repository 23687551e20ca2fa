r"""Gradient aggregation and scalarization: rules of the library TorchJD, a function each.

Notation: n objectives, the primary task first; :math:`g_i` the gradient of objective i over the
shared parameters; :math:`G_{ij} = \langle g_i, g_j \rangle` their Gram matrix, ``(objectives,
objectives)``. An aggregation computes weights w, ``(objectives,)``, from G, and the optimizer step
is made with :math:`d = \sum_i w_i g_i`. Heads take their own gradients unweighted. A scalarization
maps the losses :math:`L_i` to a scalar, which is differentiated.

The library is an extra, ``pip install "auxlearn[aggregation]"`` (Quinton and Rey 2024, "Jacobian
Descent for Multi-Objective Optimization", https://arxiv.org/abs/2406.16232). Where a rule departs
from its authors' code, the library's documentation says so: https://torchjd.org.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

import torch
from pydantic import Field, create_model
from torch import Tensor, nn

from auxlearn.core import rng
from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import register_weighting
from auxlearn.core.validation import Settings
from auxlearn.weighting.base import TrainingStep, Weighting, apply_gradient, losses_of, under
from auxlearn.weighting.gradients import weighted_sum
from auxlearn.weighting.mixing import GramWeighting, KeptWeights
from auxlearn.weighting.optimizer_steps import Moments

#: Makes a module of the library, given the library, the options and n.
Make = Callable[[Any, Any, int], nn.Module]


def _made(rule: Any, module: str) -> nn.Module:
    """Return the module of the library for a rule; one line if it or a solver is missing."""
    try:
        made: nn.Module = rule.make(import_module(module), rule.options, len(rule.objectives))
        return made
    except ImportError as error:
        raise ConfigError(
            f"weighting '{rule.name}' needs an extra that is not installed "
            f'({" ".join(str(error).split())}): pip install "auxlearn[aggregation]"'
        ) from None


class Aggregation(GramWeighting):
    """A rule on the Gram matrix; if ``scaled``, on it divided by the mean of its diagonal: solvers
    have absolute tolerances, and the results of most rules do not depend on the scale.
    """

    scaled: ClassVar[bool]

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._rule = _made(self, "torchjd.aggregation")

    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        if self.scaled:
            gram = gram / gram.diagonal().mean().clamp(min=1e-30)
        with rng.seeded(step.seed, self.name, step.number):  # some rules use a random order
            weights: Tensor = self._rule(gram)
        return weights.detach().double().cpu()

    def parts(self) -> dict[str, Any]:
        return {"rule": self._rule}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if under("rule/", state):
            # A rule creates its buffers when it is first called, and can load others only then.
            self._rule(torch.eye(len(self.objectives), dtype=torch.float64))
        super().load_state_dict(state)


class Scalarization(KeptWeights):
    """A rule on the losses; its own parameters, if any, are learned by Adam."""

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._rule = _made(self, "torchjd.scalarization").double()
        self._learned = list(self._rule.parameters())
        self._optimizer = (
            torch.optim.Adam(self._learned, options.learning_rate)  # type: ignore[attr-defined]
            if self._learned
            else None
        )

    def step(self, step: TrainingStep) -> None:
        gradients = step.gradients()
        losses = losses_of(step)
        losses.requires_grad_()
        value = self._rule(losses)
        self._weights, *gradient = torch.autograd.grad(value, [losses, *self._learned])
        apply_gradient(step, weighted_sum(gradients, self._weights))
        if self._optimizer is not None:
            for parameter, grad in zip(self._learned, gradient, strict=True):
                parameter.grad = grad
            self._optimizer.step()

    def parts(self) -> dict[str, Any]:
        moments = {
            f"adam{number}": Moments(self._optimizer, parameter)
            for number, parameter in enumerate(self._learned)
        }
        return {"rule": self._rule, **moments}


def register(
    base: type[Weighting],
    name: str,
    scaled: bool = True,
    weighs_zeros: bool = False,
    **options: Any,
) -> Callable[[Make], Any]:
    """Register what makes a module of the library as a rule, with its docstring and options."""

    def decorate(make: Make) -> type[Weighting]:
        title = make.__name__
        fields: dict[str, Any] = {key: (float, field) for key, field in options.items()}
        made = create_model(f"{title}Options", __base__=Settings, __module__=__name__, **fields)
        body = {
            "__doc__": make.__doc__,
            "__module__": __name__,
            "make": staticmethod(make),
            "scaled": scaled,
            "weighs_zeros": weighs_zeros,  # those that keep something of each objective
            "Options": made,
        }
        return register_weighting(name)(type(title, (base,), body))

    return decorate


aggregation = partial(register, Aggregation)
scalarization = partial(register, Scalarization)


def _positive(rule: Callable[[Tensor], Tensor]) -> nn.Module:
    """Return a scalarizer of the losses above zero; without any, their sum."""

    class OfPositive(nn.Module):
        def forward(self, losses: Tensor) -> Tensor:
            positive = losses[losses > 0]
            return rule(positive) if len(positive) else losses.sum()

    return OfPositive()


@aggregation("pcgrad")
def PCGrad(jd: Any, options: Any, count: int) -> nn.Module:
    r"""Project each gradient onto the normal planes of those that it conflicts with (PCGrad).

    For each :math:`g_i` and all other j in random order: where their inner product is negative,
    :math:`g_i \leftarrow g_i - \langle g_i, g_j \rangle / \lVert g_j \rVert^2 \, g_j`, with the
    original :math:`g_j`; d is the sum. Yu et al. 2020, "Gradient Surgery for Multi-Task Learning",
    https://arxiv.org/abs/2001.06782.
    """
    return jd.PCGradWeighting()


@aggregation(
    "gradvac",
    weighs_zeros=True,
    beta=Field(0.5, ge=0, le=1, description="How fast the target cosines follow the current ones."),
)
def GradVac(jd: Any, options: Any, count: int) -> nn.Module:
    r"""Change gradients so that their cosines are at least those of the past (GradVac).

    For each :math:`g_i` and all other j in random order, with :math:`\phi` their cosine and
    :math:`\hat\phi` its moving average over previous steps: where :math:`\phi < \hat\phi`, a
    multiple of :math:`g_j` is added to :math:`g_i` so that the cosine is :math:`\hat\phi`; d is the
    sum. Then :math:`\hat\phi \leftarrow (1 - \beta) \hat\phi + \beta \phi`. Wang et al. 2021,
    "Gradient Vaccine: Investigating and Improving Multi-task Optimization in Massively Multilingual
    Models", https://arxiv.org/abs/2010.05874. Cosines are over the whole encoder, not by tensor.
    """
    return jd.GradVacWeighting(beta=options.beta)


@aggregation(
    "cagrad",
    c=Field(
        0.5,
        ge=0,
        lt=1,
        description="Largest distance of the combined gradient from the mean gradient, "
        "relative to the norm of the latter.",
    ),
)
def CAGrad(jd: Any, options: Any, count: int) -> nn.Module:
    r"""Improve the worst objective most within a ball around the mean gradient (CAGrad).

    :math:`d = \arg\max_d \min_i \langle g_i, d \rangle` with :math:`\lVert d - \bar g \rVert \le c
    \lVert \bar g \rVert` and :math:`\bar g` the mean gradient. Liu et al. 2021, "Conflict-Averse
    Gradient Descent for Multi-task Learning", https://arxiv.org/abs/2110.14048.
    """
    return jd.CAGradWeighting(c=options.c)


@aggregation("imtl_g")
def IMTLG(jd: Any, options: Any, count: int) -> nn.Module:
    r"""Combine gradients so that all have the same projection on the sum (IMTL-G).

    :math:`w \propto G^+ (\lVert g_1 \rVert, \dots, \lVert g_n \rVert)^\top`, with sum 1 and
    :math:`G^+` the pseudo-inverse of G. Liu et al. 2021, "Towards Impartial Multi-task Learning",
    https://openreview.net/forum?id=IMPnRXEWpvr.
    """
    return jd.IMTLGWeighting()


@aggregation("aligned_mtl")
def AlignedMTL(jd: Any, options: Any, count: int) -> nn.Module:
    r"""Align the principal components of the gradients (Aligned-MTL).

    With the eigenvectors V and eigenvalues :math:`\lambda` of G: :math:`w = \sqrt{\lambda_{min}} V
    \mathrm{diag}(\lambda)^{-1/2} V^\top (1/n, \dots, 1/n)^\top`. Senushkin et al. 2023,
    "Independent Component Alignment for Multi-Task Learning", https://arxiv.org/abs/2305.19000.
    """
    return jd.AlignedMTLWeighting()


@aggregation(
    "fairgrad",
    alpha=Field(
        2.0,
        gt=0,
        description="Fairness of the objectives' progress; 1 is Nash-MTL, large values "
        "favour the objective with the least progress.",
    ),
)
def FairGrad(jd: Any, options: Any, count: int) -> nn.Module:
    r"""Allocate progress fairly among the objectives (FairGrad).

    :math:`G w = w^{-1/\alpha}`, the power elementwise. Ban and Ji 2024, "Fair Resource Allocation
    in Multi-Task Learning", https://arxiv.org/abs/2402.15638, equation 4.
    """
    return jd.FairGradWeighting(alpha=options.alpha)


@aggregation(
    "pcd",
    tau=Field(
        0.02,
        ge=0,
        le=1,
        description="Progress that each auxiliary task keeps, as a share of that of a step "
        "along its own gradient.",
    ),
    beta=Field(
        0.999, ge=0, lt=1, description="Decay of the moving averages of squared gradient norms."
    ),
    scaled=False,
    weighs_zeros=True,
)
def PCD(jd: Any, options: Any, count: int) -> nn.Module:
    r"""Follow the primary gradient, under constraints on auxiliary progress (PCD).

    With :math:`\tilde g_i` the gradients divided by the root of a moving average (decay
    :math:`\beta`) of their squared norms, and :math:`g_1` the primary gradient,
    :math:`\tilde d = \arg\min_d \lVert d - \tilde g_1 \rVert` subject to
    :math:`\langle \tilde g_j, d \rangle \ge \tau \lVert \tilde g_j \rVert^2` for every auxiliary
    task j; d is :math:`\tilde d` scaled to the norm of :math:`g_1`. "Not All Objectives Are Born
    Equal: Priority-Constrained Descent for Hierarchical Multi-Objective Optimization" (2026),
    https://arxiv.org/abs/2606.29521. The Gram matrix is unscaled, because of the moving average.
    """
    return jd.PCDWeighting(tau=options.tau, beta=options.beta)


@scalarization("geometric_mean")
def GeometricMean(jd: Any, options: Any, count: int) -> nn.Module:
    r"""Train on the geometric mean of the losses.

    :math:`M = (\prod_i L_i)^{1/n}`, so that the weight of loss i is :math:`M / (n L_i)`. Chennupati
    et al. 2019, "MultiNet++: Multi-Stream Feature Aggregation and Geometric Loss Strategy for
    Multi-Task Learning", https://arxiv.org/abs/1904.08492.

    The mean is over the losses above zero: a loss of exactly zero, such as one of a batch without a
    masked token, has no gradient, and would make those of all others zero. Its weight is zero.
    """
    return _positive(jd.GeometricMean())


@scalarization(
    "imtl_l", learning_rate=Field(0.01, gt=0, description="Learning rate of Adam on log weights.")
)
def IMTLL(jd: Any, options: Any, count: int) -> nn.Module:
    r"""Bring the losses to one scale by learned weights (IMTL-L).

    The parameters and the log weights :math:`s_i`, which start at 0, together minimise
    :math:`\sum_i e^{s_i} L_i - s_i`: the weight :math:`e^{s_i}` converges to :math:`1 / L_i`.
    Liu et al. 2021, "Towards Impartial Multi-task Learning",
    https://openreview.net/forum?id=IMPnRXEWpvr. The weights of ``uncertainty`` converge to half of
    these.
    """
    return jd.IMTLL(count)
