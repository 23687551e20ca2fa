r"""Rules that combine gradients by their conflicts, from the library TorchJD.

One thin adapter, :class:`Aggregation`, and a class for each rule. With :math:`g_i` the gradient of
objective i over the shared parameters, n objectives and the Gram matrix
:math:`G_{ij} = \langle g_i, g_j \rangle`, ``(objectives, objectives)``, a rule gives weights w,
``(objectives,)``, and the step is made with :math:`d = \sum_i w_i g_i`. Heads take their own
gradients unweighted.

The library is an extra: ``pip install "auxlearn[aggregation]"`` (Quinton and Rey 2024, "Jacobian
Descent for Multi-Objective Optimization", https://arxiv.org/abs/2406.16232). Where its rules depart
from their authors' code, its documentation says so.

Cost of all of them: the gradient of each objective is kept; inner products of all pairs,
O(objectives^2 x parameters), and a step of the size of G.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn import rng
from auxlearn.config import Settings
from auxlearn.errors import ConfigError
from auxlearn.registry import register_weighting
from auxlearn.weighting.base import TrainingStep
from auxlearn.weighting.gram import GramWeighting

_Made = TypeVar("_Made", bound=nn.Module)


def made(name: str, make: Callable[[], _Made]) -> _Made:
    """Return what a rule makes of the library, or say in one line what is not installed."""
    try:
        return make()
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"weighting '{name}' needs an extra that is not installed ({reason}): "
            'pip install "auxlearn[aggregation]"'
        ) from None


class Aggregation(GramWeighting):
    """A rule of TorchJD on the Gram matrix: a subclass names it in :meth:`rule`.

    Attributes:
        scaled: Whether the rule is given the Gram matrix over the mean of its diagonal. Solvers
            have absolute tolerances, and for most rules the scale is without meaning.

    Raises:
        ConfigError: TorchJD or a solver that the rule needs is not installed.
    """

    scaled: ClassVar[bool] = True

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._rule = made(self.name, self.rule)

    @abstractmethod
    def rule(self) -> nn.Module:
        """Return what turns a Gram matrix ``(objectives, objectives)`` into weights."""

    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        """The library's weights."""
        if self.scaled:
            gram = gram / gram.diagonal().mean().clamp(min=1e-30)
        with rng.seeded(step.seed, self.name, step.number):  # some draw an order
            weights: Tensor = self._rule(gram)
        return weights.detach().double().cpu()

    def state_dict(self) -> dict[str, Tensor]:
        """The weights of the last step, and what the rule keeps from one step to the next."""
        return super().state_dict() | {f"rule/{k}": v for k, v in self._rule.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        super().load_state_dict(state)
        kept = {k.removeprefix("rule/"): v for k, v in state.items() if k.startswith("rule/")}
        if kept:
            # A rule makes its buffers when it is first used, and takes others only then.
            self._rule(torch.eye(len(self.objectives), dtype=torch.float64))
            self._rule.load_state_dict(kept)


@register_weighting("upgrad")
class UPGrad(Aggregation):
    r"""Project each gradient to where it harms no other, and average (Quinton and Rey 2024).

    :math:`w = \frac{1}{n} \sum_i \arg\min_{v \ge e_i} v^\top G v`, with :math:`e_i` the i-th unit
    vector: the library's own rule.
    """

    def rule(self) -> nn.Module:
        """UPGrad with equal preferences."""
        from torchjd.aggregation import UPGradWeighting

        return UPGradWeighting()


@register_weighting("dualproj")
class DualProj(Aggregation):
    r"""Project the mean gradient to where it harms no objective (Lopez-Paz and Ranzato 2017, GEM).

    :math:`w = \arg\min_{v \ge 1/n} v^\top G v`. "Gradient Episodic Memory for Continual Learning",
    https://arxiv.org/abs/1706.08840, equation 11.
    """

    def rule(self) -> nn.Module:
        """DualProj with equal preferences."""
        from torchjd.aggregation import DualProjWeighting

        return DualProjWeighting()


@register_weighting("pcgrad")
class PCGrad(Aggregation):
    r"""Take from each gradient what conflicts with the others, one by one (Yu et al. 2020).

    For each :math:`g_i` and the other j in a drawn order: where their inner product is negative,
    :math:`g_i \leftarrow g_i - \langle g_i, g_j \rangle / \lVert g_j \rVert^2 \, g_j`, the
    :math:`g_j` as they were; d is the sum. "Gradient Surgery for Multi-Task Learning",
    https://arxiv.org/abs/2001.06782.
    """

    def rule(self) -> nn.Module:
        """PCGrad in an order that follows from the run's seed and the step."""
        from torchjd.aggregation import PCGradWeighting

        return PCGradWeighting()


class GradVacOptions(Settings):
    """Settings of GradVac."""

    beta: float = Field(
        0.5, ge=0, le=1, description="How fast the cosines that are aimed at follow the measured."
    )


@register_weighting("gradvac")
class GradVac(Aggregation):
    r"""Turn gradients until their cosines are those of the past (Wang et al. 2021, GradVac).

    For each :math:`g_i` and the other j in a drawn order, with :math:`\phi` their cosine and
    :math:`\hat\phi` its moving average of the steps before: where :math:`\phi < \hat\phi`,
    :math:`g_i` is moved along :math:`g_j` until the cosine is :math:`\hat\phi`; d is the sum. Then
    :math:`\hat\phi \leftarrow (1 - \beta) \hat\phi + \beta \phi`. "Gradient Vaccine: Investigating
    and Improving Multi-task Optimization in Massively Multilingual Models",
    https://arxiv.org/abs/2010.05874. Cosines are over the whole body, not tensor by tensor.
    """

    Options = GradVacOptions
    options: GradVacOptions

    def rule(self) -> nn.Module:
        """GradVac in an order that follows from the run's seed and the step."""
        from torchjd.aggregation import GradVacWeighting

        return GradVacWeighting(beta=self.options.beta)


@register_weighting("mgda")
class MGDA(Aggregation):
    r"""The shortest vector among the convex combinations (Désidéri 2012; Sener and Koltun 2018).

    :math:`w = \arg\min_{v \ge 0, \sum v = 1} v^\top G v`. "Multi-Task Learning as Multi-Objective
    Optimization", https://arxiv.org/abs/1810.04650.
    """

    def rule(self) -> nn.Module:
        """MGDA by Frank and Wolfe's method."""
        from torchjd.aggregation import MGDAWeighting

        return MGDAWeighting()


class CAGradOptions(Settings):
    """Settings of CAGrad."""

    c: float = Field(
        0.5, ge=0, lt=1, description="How far the update may lie from the mean gradient."
    )


@register_weighting("cagrad")
class CAGrad(Aggregation):
    r"""Help the worst-off objective within a ball around the mean gradient (Liu et al. 2021).

    :math:`d = \arg\max_d \min_i \langle g_i, d \rangle` with :math:`\lVert d - \bar g \rVert \le c
    \lVert \bar g \rVert` and :math:`\bar g` the mean. "Conflict-Averse Gradient Descent for
    Multi-task Learning", https://arxiv.org/abs/2110.14048.
    """

    Options = CAGradOptions
    options: CAGradOptions

    def rule(self) -> nn.Module:
        """CAGrad with the radius ``c``."""
        from torchjd.aggregation import CAGradWeighting

        return CAGradWeighting(c=self.options.c)


@register_weighting("imtl_g")
class IMTLG(Aggregation):
    r"""Give the update the same projection on every gradient (Liu et al. 2021, IMTL).

    :math:`w \propto G^+ (\lVert g_1 \rVert, \dots, \lVert g_n \rVert)`, with sum 1. "Towards
    Impartial Multi-task Learning", https://openreview.net/forum?id=IMPnRXEWpvr.
    """

    def rule(self) -> nn.Module:
        """IMTL-G."""
        from torchjd.aggregation import IMTLGWeighting

        return IMTLGWeighting()


@register_weighting("aligned_mtl")
class AlignedMTL(Aggregation):
    r"""Align the principal components of the gradients (Senushkin et al. 2023).

    With the eigenvectors V and eigenvalues :math:`\lambda` of G: :math:`w = \sqrt{\lambda_{min}} V
    \mathrm{diag}(\lambda)^{-1/2} V^\top (1/n, \dots, 1/n)`. "Independent Component Alignment for
    Multi-Task Learning", https://arxiv.org/abs/2305.19000.
    """

    def rule(self) -> nn.Module:
        """Aligned-MTL with equal preferences."""
        from torchjd.aggregation import AlignedMTLWeighting

        return AlignedMTLWeighting()


class FairGradOptions(Settings):
    """Settings of FairGrad."""

    alpha: float = Field(
        2.0,
        gt=0,
        description="Fairness of the shares of progress; 1 is Nash-MTL, large values help the "
        "worst-off objective most.",
    )


@register_weighting("fairgrad")
class FairGrad(Aggregation):
    r"""Share out progress fairly between objectives (Ban and Ji 2024).

    :math:`G w = w^{-1/\alpha}`, the power by element. "Fair Resource Allocation in Multi-Task
    Learning", https://arxiv.org/abs/2402.15638, equation 4.
    """

    Options = FairGradOptions
    options: FairGradOptions

    def rule(self) -> nn.Module:
        """FairGrad by least squares."""
        from torchjd.aggregation import FairGradWeighting

        return FairGradWeighting(alpha=self.options.alpha)


class PCDOptions(Settings):
    """Settings of priority-constrained descent."""

    tau: float = Field(
        0.02,
        ge=0,
        le=1,
        description="Share of its own best progress that each auxiliary task is left.",
    )
    beta: float = Field(
        0.999, ge=0, lt=1, description="Decay of the moving averages of squared gradient norms."
    )


@register_weighting("pcd")
class PCD(Aggregation):
    r"""Follow the primary gradient and leave auxiliary tasks some progress (2026, PCD).

    With :math:`\tilde g_i` the gradients over the root of a moving average of their squared norms,
    :math:`\tilde d = \arg\min_d \lVert d - \tilde g_1 \rVert` where for every auxiliary j
    :math:`\langle \tilde g_j, d \rangle \ge \tau \lVert \tilde g_j \rVert^2`; d is
    :math:`\tilde d` at the norm of :math:`g_1`. "Not All Objectives Are Born Equal:
    Priority-Constrained Descent for Hierarchical Multi-Objective Optimization",
    https://arxiv.org/abs/2606.29521. The Gram matrix comes unscaled, because of the moving average.
    """

    Options = PCDOptions
    options: PCDOptions
    scaled = False

    def rule(self) -> nn.Module:
        """PCD, the primary task first."""
        from torchjd.aggregation import PCDWeighting

        return PCDWeighting(tau=self.options.tau, beta=self.options.beta)
