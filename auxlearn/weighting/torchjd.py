r"""Gradient aggregation: rules of the library TorchJD on the Gram matrix of the gradients.

An adapter, :class:`Aggregation`, and a class for each rule. Notation: n objectives, the primary
task first; :math:`g_i` the gradient of objective i over the shared parameters;
:math:`G_{ij} = \langle g_i, g_j \rangle` their Gram matrix, ``(objectives, objectives)``. A rule
computes weights w, ``(objectives,)``, and the optimizer step is made with
:math:`d = \sum_i w_i g_i`. Heads take their own gradients unweighted.

The library is an extra, ``pip install "auxlearn[aggregation]"`` (Quinton and Rey 2024, "Jacobian
Descent for Multi-Objective Optimization", https://arxiv.org/abs/2406.16232). Where a rule departs
from its authors' code, the library's documentation says so: https://torchjd.org.

Cost of all rules: keep the gradient of each objective; inner products of all pairs,
O(objectives^2 x parameters), and a small problem of the size of G.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core import rng
from auxlearn.core.config import Settings
from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import register_weighting
from auxlearn.weighting.base import TrainingStep, Weighting, apply_gradient, weighted_sum
from auxlearn.weighting.gram import GramWeighting

_Rule = TypeVar("_Rule", bound=nn.Module)


def require_torchjd(name: str, construct: Callable[[], _Rule]) -> _Rule:
    """Construct a rule of the library.

    Args:
        name: The weighting, for the message.
        construct: Imports the library and returns the rule.

    Raises:
        ConfigError: TorchJD or a solver that the rule needs is not installed.
    """
    try:
        return construct()
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"weighting '{name}' needs an extra that is not installed ({reason}): "
            'pip install "auxlearn[aggregation]"'
        ) from None


class Aggregation(GramWeighting):
    """A rule of TorchJD on the Gram matrix; a subclass constructs it in :meth:`rule`.

    Attributes:
        scaled: Whether the rule is given the Gram matrix divided by the mean of its diagonal.
            Solvers have absolute tolerances, and the results of most rules do not depend on the
            scale.

    Raises:
        ConfigError: TorchJD or a solver that the rule needs is not installed.
    """

    scaled: ClassVar[bool] = True

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._rule = require_torchjd(self.name, self.rule)

    @abstractmethod
    def rule(self) -> nn.Module:
        """Return a module that maps a Gram matrix ``(objectives, objectives)`` to weights."""

    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        """Return the library's weights."""
        if self.scaled:
            gram = gram / gram.diagonal().mean().clamp(min=1e-30)
        with rng.seeded(step.seed, self.name, step.number):  # some rules use a random order
            weights: Tensor = self._rule(gram)
        return weights.detach().double().cpu()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights of the last step, and the state of the library's rule."""
        return super().state_dict() | {f"rule/{k}": v for k, v in self._rule.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        kept = {k.removeprefix("rule/"): v for k, v in state.items() if k.startswith("rule/")}
        if kept:
            # A rule creates its buffers when it is first called, and can load others only then.
            self._rule(torch.eye(len(self.objectives), dtype=torch.float64))
            self._rule.load_state_dict(kept)


@register_weighting("pcgrad")
class PCGrad(Aggregation):
    r"""Project each gradient onto the normal planes of those that it conflicts with (PCGrad).

    For each :math:`g_i` and all other j in random order: where their inner product is negative,
    :math:`g_i \leftarrow g_i - \langle g_i, g_j \rangle / \lVert g_j \rVert^2 \, g_j`, with the
    original :math:`g_j`; d is the sum. Yu et al. 2020, "Gradient Surgery for Multi-Task Learning",
    https://arxiv.org/abs/2001.06782.
    """

    def rule(self) -> nn.Module:
        """PCGrad, in an order that follows from the run's seed and the step's number."""
        from torchjd.aggregation import PCGradWeighting

        return PCGradWeighting()


class GradVacOptions(Settings):
    """Options of GradVac."""

    beta: float = Field(
        0.5, ge=0, le=1, description="How fast the target cosines follow the current ones."
    )


@register_weighting("gradvac")
class GradVac(Aggregation):
    r"""Change gradients so that their cosines are at least those of the past (GradVac).

    For each :math:`g_i` and all other j in random order, with :math:`\phi` their cosine and
    :math:`\hat\phi` its moving average over previous steps: where :math:`\phi < \hat\phi`, a
    multiple of :math:`g_j` is added to :math:`g_i` so that the cosine is :math:`\hat\phi`; d is the
    sum. Then :math:`\hat\phi \leftarrow (1 - \beta) \hat\phi + \beta \phi`. Wang et al. 2021,
    "Gradient Vaccine: Investigating and Improving Multi-task Optimization in Massively Multilingual
    Models", https://arxiv.org/abs/2010.05874. Cosines are over the whole encoder, not by tensor.
    """

    Options = GradVacOptions
    options: GradVacOptions

    def rule(self) -> nn.Module:
        """GradVac, in an order that follows from the run's seed and the step's number."""
        from torchjd.aggregation import GradVacWeighting

        return GradVacWeighting(beta=self.options.beta)


class CAGradOptions(Settings):
    """Options of CAGrad."""

    c: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="Largest distance of the combined gradient from the mean gradient, relative "
        "to the norm of the latter.",
    )


@register_weighting("cagrad")
class CAGrad(Aggregation):
    r"""Improve the worst objective most within a ball around the mean gradient (CAGrad).

    :math:`d = \arg\max_d \min_i \langle g_i, d \rangle` with :math:`\lVert d - \bar g \rVert \le c
    \lVert \bar g \rVert` and :math:`\bar g` the mean gradient. Liu et al. 2021, "Conflict-Averse
    Gradient Descent for Multi-task Learning", https://arxiv.org/abs/2110.14048.
    """

    Options = CAGradOptions
    options: CAGradOptions

    def rule(self) -> nn.Module:
        """CAGrad with the relative radius ``c``."""
        from torchjd.aggregation import CAGradWeighting

        return CAGradWeighting(c=self.options.c)


@register_weighting("imtl_g")
class IMTLG(Aggregation):
    r"""Combine gradients so that all have the same projection on the sum (IMTL-G).

    :math:`w \propto G^+ (\lVert g_1 \rVert, \dots, \lVert g_n \rVert)^\top`, with sum 1 and
    :math:`G^+` the pseudo-inverse of G. Liu et al. 2021, "Towards Impartial Multi-task Learning", https://openreview.net/forum?id=IMPnRXEWpvr.
    """

    def rule(self) -> nn.Module:
        """IMTL-G."""
        from torchjd.aggregation import IMTLGWeighting

        return IMTLGWeighting()


@register_weighting("aligned_mtl")
class AlignedMTL(Aggregation):
    r"""Align the principal components of the gradients (Aligned-MTL).

    With the eigenvectors V and eigenvalues :math:`\lambda` of G: :math:`w = \sqrt{\lambda_{min}} V
    \mathrm{diag}(\lambda)^{-1/2} V^\top (1/n, \dots, 1/n)^\top`. Senushkin et al. 2023,
    "Independent Component Alignment for Multi-Task Learning", https://arxiv.org/abs/2305.19000.
    """

    def rule(self) -> nn.Module:
        """Aligned-MTL with equal preferences."""
        from torchjd.aggregation import AlignedMTLWeighting

        return AlignedMTLWeighting()


class FairGradOptions(Settings):
    """Options of FairGrad."""

    alpha: float = Field(
        2.0,
        gt=0,
        description="Fairness of the objectives' progress; 1 is Nash-MTL, large values favour the "
        "objective with the least progress.",
    )


@register_weighting("fairgrad")
class FairGrad(Aggregation):
    r"""Allocate progress fairly among the objectives (FairGrad).

    :math:`G w = w^{-1/\alpha}`, the power elementwise. Ban and Ji 2024, "Fair Resource Allocation
    in Multi-Task Learning", https://arxiv.org/abs/2402.15638, equation 4.
    """

    Options = FairGradOptions
    options: FairGradOptions

    def rule(self) -> nn.Module:
        """FairGrad by least squares."""
        from torchjd.aggregation import FairGradWeighting

        return FairGradWeighting(alpha=self.options.alpha)


class PCDOptions(Settings):
    """Options of priority-constrained descent."""

    tau: float = Field(
        0.02,
        ge=0,
        le=1,
        description="Progress that each auxiliary task keeps, as a share of that of a step along "
        "its own gradient.",
    )
    beta: float = Field(
        0.999, ge=0, lt=1, description="Decay of the moving averages of squared gradient norms."
    )


@register_weighting("pcd")
class PCD(Aggregation):
    r"""Follow the primary gradient, under constraints on auxiliary progress (PCD).

    With :math:`\tilde g_i` the gradients divided by the root of a moving average (decay
    :math:`\beta`) of their squared norms, and :math:`g_1` the primary gradient,
    :math:`\tilde d = \arg\min_d \lVert d - \tilde g_1 \rVert` subject to
    :math:`\langle \tilde g_j, d \rangle \ge \tau \lVert \tilde g_j \rVert^2` for every auxiliary
    task j; d is :math:`\tilde d` scaled to the norm of :math:`g_1`. "Not All Objectives Are Born
    Equal: Priority-Constrained Descent for Hierarchical Multi-Objective Optimization" (2026),
    https://arxiv.org/abs/2606.29521. The Gram matrix is unscaled, because of the moving average.
    """

    Options = PCDOptions
    options: PCDOptions
    scaled = False

    def rule(self) -> nn.Module:
        """PCD, the primary task first."""
        from torchjd.aggregation import PCDWeighting

        return PCDWeighting(tau=self.options.tau, beta=self.options.beta)


class Scalarization(Weighting):
    """A rule of TorchJD on the losses; a subclass constructs it in :meth:`scalarizer`.

    Parameters of its own, if it has any, are learned by Adam.

    Raises:
        ConfigError: TorchJD is not installed.
    """

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._scalarizer = require_torchjd(self.name, self.scalarizer).double()
        self._learned = list(self._scalarizer.parameters())
        self._optimizer = (
            torch.optim.Adam(self._learned, self.learning_rate) if self._learned else None
        )
        self._weights = torch.ones(len(self.objectives), dtype=torch.float64)

    @abstractmethod
    def scalarizer(self) -> nn.Module:
        """Return a module that maps losses ``(objectives,)`` to a scalar."""

    @property
    def learning_rate(self) -> float:
        """Learning rate of the scalarizer's own parameters."""
        return 0.0

    @property
    def weights(self) -> Tensor:
        """Weights of the last step; 1 each before the first."""
        return self._weights.clone()

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step, and one of the scalarizer's own parameters."""
        gradients = step.gradients()
        losses = torch.stack([step.losses[name] for name in step.names]).cpu().double()
        losses.requires_grad_()
        value = self._scalarizer(losses)
        self._weights, *gradient = torch.autograd.grad(value, [losses, *self._learned])
        apply_gradient(step, weighted_sum(gradients, self._weights))
        if self._optimizer is not None:
            for parameter, grad in zip(self._learned, gradient, strict=True):
                parameter.grad = grad
            self._optimizer.step()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights of the last step, the scalarizer, and the state of its optimizer."""
        state = {"weights": self._weights}
        state |= {f"rule/{key}": value for key, value in self._scalarizer.state_dict().items()}
        for number, parameter in enumerate(self._learned):
            moments = self._optimizer.state[parameter] if self._optimizer else {}
            state |= {f"adam{number}/{key}": value for key, value in moments.items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""

        def under(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}

        self._weights = state["weights"].clone()
        self._scalarizer.load_state_dict(under("rule/"))
        for number, parameter in enumerate(self._learned):
            moments = {key: value.clone() for key, value in under(f"adam{number}/").items()}
            if moments and self._optimizer is not None:
                self._optimizer.state[parameter] = moments


@register_weighting("geometric_mean")
class GeometricMean(Scalarization):
    r"""Train on the geometric mean of the losses.

    :math:`M = (\prod_i L_i)^{1/n}`, so that the weight of loss i is :math:`M / (n L_i)`. Chennupati
    et al. 2019, "MultiNet++: Multi-Stream Feature Aggregation and Geometric Loss Strategy for
    Multi-Task Learning", https://arxiv.org/abs/1904.08492.

    The mean is over the losses above zero: a loss of exactly zero, such as one of a batch without a
    masked token, has no gradient, and would make those of all others zero. Its weight is zero.
    """

    def scalarizer(self) -> nn.Module:
        """The geometric mean of the losses above zero."""
        from torchjd.scalarization import GeometricMean as Rule

        return _OfPositive(Rule())


class _OfPositive(nn.Module):
    """A scalarizer of the losses above zero; without any, their sum."""

    def __init__(self, rule: nn.Module) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, losses: Tensor) -> Tensor:
        positive = losses[losses > 0]
        scalar: Tensor = self.rule(positive) if len(positive) else losses.sum()
        return scalar


class IMTLLOptions(Settings):
    """Options of IMTL-L."""

    learning_rate: float = Field(0.01, gt=0, description="Learning rate of Adam on log weights.")


@register_weighting("imtl_l")
class IMTLL(Scalarization):
    r"""Bring the losses to one scale by learned weights (IMTL-L).

    The parameters and the log weights :math:`s_i`, which start at 0, together minimise
    :math:`\sum_i e^{s_i} L_i - s_i`: the weight :math:`e^{s_i}` converges to :math:`1 / L_i`.
    Liu et al. 2021, "Towards Impartial Multi-task Learning",
    https://openreview.net/forum?id=IMPnRXEWpvr. The weights of ``uncertainty`` converge to half of
    these.
    """

    Options = IMTLLOptions
    options: IMTLLOptions

    @property
    def learning_rate(self) -> float:
        """Learning rate of the log weights."""
        return self.options.learning_rate

    def scalarizer(self) -> nn.Module:
        """IMTL-L with a log weight for each objective."""
        from torchjd.scalarization import IMTLL as Rule

        return Rule(len(self.objectives))
