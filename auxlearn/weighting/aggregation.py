"""Rules that combine the gradients of a step by their conflicts, from the library TorchJD.

Quinton and Rey 2024, "Jacobian Descent for Multi-Objective Optimization", and its library, whose
rules take the inner products of the gradients and give a weight for each objective. As the library
does, gradients are combined over the parameters that objectives share; a head has one objective
alone and takes that one's gradient as it is. Nothing is learned from one step to the next.

The library is an extra: ``pip install "auxlearn[aggregation]"``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn import streams
from auxlearn.config import Settings
from auxlearn.errors import ConfigError
from auxlearn.registry import register_weighting
from auxlearn.weighting.base import Gradient, Problem, Weighting, apply, mix
from auxlearn.weighting.update import inner_products


class Aggregation(Weighting):
    """A rule of TorchJD: a subclass names it in :meth:`rule`.

    Raises:
        ConfigError: TorchJD or a solver that the rule needs is not installed.
    """

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        try:
            self._rule = self.rule()
        except ImportError as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"weighting '{self.name}' needs an extra that is not installed ({reason}): "
                'pip install "auxlearn[aggregation]"'
            ) from None
        self._weights = torch.ones(len(objectives), dtype=torch.float64)
        self._record: dict[str, float] = {}

    @abstractmethod
    def rule(self) -> Callable[[Tensor], Tensor]:
        """Return what turns a Gram matrix ``(objectives, objectives)`` into weights."""

    @property
    def weights(self) -> Tensor:
        """The weights of the last step over the shared parameters."""
        return self._weights.clone()

    def step(self, problem: Problem) -> None:
        """Make one update with the gradients combined."""
        gradients = problem.gradients()
        shared = [_inside(gradient, problem, True) for gradient in gradients]
        gram = inner_products(shared)
        self._record = {
            f"norm/{name}": float(gram[index, index].sqrt())
            for index, name in enumerate(problem.names)
        }
        if len(gradients) > 1:
            # Scaled, because solvers have absolute tolerances; weights do not depend on the scale.
            scaled = gram / gram.diagonal().mean().clamp(min=1e-30)
            with streams.seeded(0, self.name, problem.step):  # PCGrad draws an order
                self._weights = self._rule(scaled).detach().double().cpu()
        mixed = mix(shared, self._weights)
        ones = [1.0] * len(gradients)
        heads = mix([_inside(gradient, problem, False) for gradient in gradients], ones)
        apply(problem, [m if m is not None else h for m, h in zip(mixed, heads, strict=True)])

    def record(self) -> dict[str, float]:
        """Norm of each objective's gradient over the shared parameters."""
        return self._record

    def state_dict(self) -> dict[str, Tensor]:
        """The weights of the last step, for the record alone."""
        return {"weights": self._weights}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self._weights = state["weights"].clone()


def _inside(gradient: Gradient, problem: Problem, shared: bool) -> Gradient:
    return [
        part if (place == "body") == shared else None
        for part, place in zip(gradient, problem.parts, strict=True)
    ]


@register_weighting("upgrad")
class UPGrad(Aggregation):
    """Project each gradient to where it harms no other, and average (Quinton and Rey 2024)."""

    def rule(self) -> Callable[[Tensor], Tensor]:
        """UPGrad with equal preferences."""
        from torchjd.aggregation import UPGradWeighting

        return UPGradWeighting()


@register_weighting("pcgrad")
class PCGrad(Aggregation):
    """Take from each gradient what conflicts with the others, one by one (Yu et al. 2020)."""

    def rule(self) -> Callable[[Tensor], Tensor]:
        """PCGrad in an order that follows from the step."""
        from torchjd.aggregation import PCGradWeighting

        return PCGradWeighting()


@register_weighting("mgda")
class MGDA(Aggregation):
    """The shortest vector among the convex combinations (Désidéri 2012; Sener and Koltun 2018)."""

    def rule(self) -> Callable[[Tensor], Tensor]:
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
    """Help the worst-off objective within a ball around the mean gradient (Liu et al. 2021)."""

    Options = CAGradOptions
    options: CAGradOptions

    def rule(self) -> Callable[[Tensor], Tensor]:
        """CAGrad with the radius ``c``."""
        from torchjd.aggregation import CAGradWeighting

        return CAGradWeighting(c=self.options.c)


@register_weighting("imtl-g")
class IMTLG(Aggregation):
    """Give the update the same projection on every gradient (Liu et al. 2021, IMTL)."""

    def rule(self) -> Callable[[Tensor], Tensor]:
        """IMTL-G."""
        from torchjd.aggregation import IMTLGWeighting

        return IMTLGWeighting()


@register_weighting("aligned-mtl")
class AlignedMTL(Aggregation):
    """Align the principal components of the gradients (Senushkin et al. 2023)."""

    def rule(self) -> Callable[[Tensor], Tensor]:
        """Aligned-MTL with equal preferences."""
        from torchjd.aggregation import AlignedMTLWeighting

        return AlignedMTLWeighting()
