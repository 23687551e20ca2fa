"""Rules of the library TorchJD, through one thin adapter.

Those that combine gradients by their conflicts turn the Gram matrix of the gradients over the
shared parameters into weights (:class:`Aggregation`); those that combine losses are functions of
the losses, and a loss's weight is the derivative by it (:class:`Scalarization`). The library is an
extra: ``pip install "auxlearn[aggregation]"`` (Quinton and Rey 2024, "Jacobian Descent for
Multi-Objective Optimization", https://arxiv.org/abs/2406.16232).

Cost of all of them: the gradient of each objective is kept; for an :class:`Aggregation` inner
products of all pairs, O(objectives^2 x parameters), and a problem of the size of the Gram matrix.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn import streams
from auxlearn.config import Settings
from auxlearn.errors import ConfigError
from auxlearn.registry import register_weighting
from auxlearn.weighting.base import Problem, Weighting, apply, mix
from auxlearn.weighting.gram import GramWeighting

_Made = TypeVar("_Made", bound=nn.Module)


def _made(name: str, make: Callable[[], _Made]) -> _Made:
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
        self._rule = _made(self.name, self.rule)

    @abstractmethod
    def rule(self) -> nn.Module:
        """Return what turns a Gram matrix ``(objectives, objectives)`` into weights."""

    def weigh(self, gram: Tensor, problem: Problem) -> Tensor:
        """The library's weights."""
        if self.scaled:
            gram = gram / gram.diagonal().mean().clamp(min=1e-30)
        with streams.seeded(problem.seed, self.name, problem.step):  # some draw an order
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
    """Project each gradient to where it harms no other, and average (Quinton and Rey 2024)."""

    def rule(self) -> nn.Module:
        """UPGrad with equal preferences."""
        from torchjd.aggregation import UPGradWeighting

        return UPGradWeighting()


@register_weighting("dualproj")
class DualProj(Aggregation):
    """Project the mean gradient to where it harms no objective (Lopez-Paz and Ranzato 2017, GEM,
    https://arxiv.org/abs/1706.08840).
    """

    def rule(self) -> nn.Module:
        """DualProj with equal preferences."""
        from torchjd.aggregation import DualProjWeighting

        return DualProjWeighting()


@register_weighting("pcgrad")
class PCGrad(Aggregation):
    """Take from each gradient what conflicts with the others, one by one (Yu et al. 2020,
    https://arxiv.org/abs/2001.06782).
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
    """Turn gradients towards each other until their cosines are those of the past (Wang et al.
    2021, Gradient Vaccine, https://arxiv.org/abs/2010.05874).

    The cosines aimed at are moving averages over the whole body.
    """

    Options = GradVacOptions
    options: GradVacOptions

    def rule(self) -> nn.Module:
        """GradVac in an order that follows from the run's seed and the step."""
        from torchjd.aggregation import GradVacWeighting

        return GradVacWeighting(beta=self.options.beta)


@register_weighting("mgda")
class MGDA(Aggregation):
    """The shortest vector among the convex combinations (Désidéri 2012; Sener and Koltun 2018,
    https://arxiv.org/abs/1810.04650).
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
    """Help the worst-off objective within a ball around the mean gradient (Liu et al. 2021,
    https://arxiv.org/abs/2110.14048).
    """

    Options = CAGradOptions
    options: CAGradOptions

    def rule(self) -> nn.Module:
        """CAGrad with the radius ``c``."""
        from torchjd.aggregation import CAGradWeighting

        return CAGradWeighting(c=self.options.c)


@register_weighting("imtl-g")
class IMTLG(Aggregation):
    """Give the update the same projection on every gradient (Liu et al. 2021, IMTL)."""

    def rule(self) -> nn.Module:
        """IMTL-G."""
        from torchjd.aggregation import IMTLGWeighting

        return IMTLGWeighting()


@register_weighting("aligned-mtl")
class AlignedMTL(Aggregation):
    """Align the principal components of the gradients (Senushkin et al. 2023,
    https://arxiv.org/abs/2305.19000).
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
    r"""Share out progress fairly: :math:`G w = w^{-1/\alpha}` (Ban and Ji 2024,
    https://arxiv.org/abs/2402.15638, equation 4).
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
    r"""Stay as close to the primary gradient as leaves every auxiliary task some progress
    (priority-constrained descent, 2026, https://arxiv.org/abs/2606.29521).

    Gradients are divided by moving averages of their norms, so the Gram matrix comes unscaled.
    """

    Options = PCDOptions
    options: PCDOptions
    scaled = False

    def rule(self) -> nn.Module:
        """PCD, the primary task first."""
        from torchjd.aggregation import PCDWeighting

        return PCDWeighting(tau=self.options.tau, beta=self.options.beta)


class Scalarization(Weighting):
    """A rule of TorchJD on the losses: a subclass names it in :meth:`scalarizer`.

    The weight of a loss is the derivative of the scalar by it, and applies to heads as well. The
    scalarizer's own parameters, if it has any, are moved by Adam.

    Raises:
        ConfigError: TorchJD is not installed.
    """

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._scalarizer = _made(self.name, self.scalarizer).double()
        self._learned = list(self._scalarizer.parameters())
        self._optimizer = torch.optim.Adam(self._learned, self.rate) if self._learned else None
        self._weights = torch.ones(len(self.objectives), dtype=torch.float64)

    @abstractmethod
    def scalarizer(self) -> nn.Module:
        """Return what turns losses ``(objectives,)`` into a scalar."""

    @property
    def rate(self) -> float:
        """Learning rate of the scalarizer's own parameters."""
        return 0.0

    @property
    def weights(self) -> Tensor:
        """The weights of the last step; 1 each before the first."""
        return self._weights.clone()

    def step(self, problem: Problem) -> None:
        """Make one optimizer step, and move the scalarizer's own parameters."""
        gradients = problem.gradients()
        losses = torch.stack([problem.losses[name] for name in problem.names]).cpu().double()
        losses.requires_grad_()
        value = self._scalarizer(losses)
        self._weights, *slopes = torch.autograd.grad(value, [losses, *self._learned])
        apply(problem, mix(gradients, self._weights))
        if self._optimizer is not None:
            for parameter, slope in zip(self._learned, slopes, strict=True):
                parameter.grad = slope
            self._optimizer.step()

    def state_dict(self) -> dict[str, Tensor]:
        """The weights of the last step, the scalarizer, and the state of its optimizer."""
        state = {"weights": self._weights}
        state |= {f"rule/{key}": value for key, value in self._scalarizer.state_dict().items()}
        for number, parameter in enumerate(self._learned):
            moments = self._optimizer.state[parameter] if self._optimizer else {}
            state |= {f"adam{number}/{key}": value for key, value in moments.items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""

        def under(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}

        self._weights = state["weights"].clone()
        self._scalarizer.load_state_dict(under("rule/"))
        for number, parameter in enumerate(self._learned):
            moments = {key: value.clone() for key, value in under(f"adam{number}/").items()}
            if moments and self._optimizer is not None:
                self._optimizer.state[parameter] = moments


@register_weighting("geometric-mean")
class GeometricMean(Scalarization):
    """Train on the geometric mean of the losses (Chennupati et al. 2019, MultiNet++,
    https://arxiv.org/abs/1904.08492): the weight of a loss is the mean over n times the loss.
    """

    def scalarizer(self) -> nn.Module:
        """The geometric mean."""
        from torchjd.scalarization import GeometricMean as Rule

        return Rule()


class IMTLLOptions(Settings):
    """Settings of IMTL-L."""

    learning_rate: float = Field(0.01, gt=0, description="Learning rate of Adam on log weights.")


@register_weighting("imtl-l")
class IMTLL(Scalarization):
    r"""Bring losses to one scale by learned factors: :math:`\sum_i e^{s_i} L_i - s_i` (Liu et al.
    2021, IMTL).

    Beside ``uncertainty``, whose minimum is at half these weights, for comparison with papers that
    name it.
    """

    Options = IMTLLOptions
    options: IMTLLOptions

    @property
    def rate(self) -> float:
        """Learning rate of the log weights."""
        return self.options.learning_rate

    def scalarizer(self) -> nn.Module:
        """IMTL-L with a factor for each objective."""
        from torchjd.scalarization import IMTLL as Rule

        return Rule(len(self.objectives))
