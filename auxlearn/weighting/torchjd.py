r"""Rules of the library TorchJD, most of which treat all objectives alike.

Notation: n objectives, the primary task first; :math:`g_i` the gradient of objective i over the
shared parameters; :math:`G_{ij} = \langle g_i, g_j \rangle` their Gram matrix, ``(objectives,
objectives)``. An aggregation, such as ``UPGrad`` or ``PCGrad``, computes weights w,
``(objectives,)``, from G, and the optimizer step is made with :math:`d = \sum_i w_i g_i`; heads
take their own gradients unweighted. A scalarization, such as ``UW`` or ``GeometricMean``, maps the
losses :math:`L_i` to a scalar, which is differentiated.

The library documents each rule, its parameters, its paper, and where it departs from the code of
its authors: https://torchjd.org. It is an extra, ``pip install "auxlearn[aggregation]"`` (Quinton
and Rey 2024, "Jacobian Descent for Multi-Objective Optimization",
https://arxiv.org/abs/2406.16232).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core import rng
from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import register_weighting
from auxlearn.core.validation import Described
from auxlearn.weighting.base import TrainingStep, apply_gradient, losses_of
from auxlearn.weighting.gradients import weighted_sum
from auxlearn.weighting.mixing import GramWeighting
from auxlearn.weighting.state import OptimizerState

#: Values of parameters that the library has no default for.
USUAL = {"CAGrad": {"c": 0.5}, "FairGrad": {"alpha": 2.0}, "STCH": {"mu": 1.0}}

#: Aggregations that keep something of each objective, which must be there in every step.
KEEPING = ("GradVac", "PCD")


class TorchJDOptions(Described):
    rule: Literal[
        "UPGrad",
        "DualProj",
        "MGDA",
        "PCGrad",
        "GradVac",
        "CAGrad",
        "IMTLG",
        "AlignedMTL",
        "FairGrad",
        "PCD",
        "UW",
        "IMTLL",
        "GeometricMean",
        "STCH",
        "Random",
    ] = "UPGrad"
    """Class of the library; those from UW on weight losses, the others gradients. FairGrad with
    alpha 1 is Nash-MTL."""

    parameters: dict[str, float | list[float]] = Field(
        default_factory=dict,
        description="Parameters of the class, such as {c: 0.4} of CAGrad; a list becomes a tensor.",
    )
    learning_rate: float = Field(0.01, gt=0)
    """Learning rate of Adam on what UW and IMTLL learn."""


@register_weighting("torchjd")
class TorchJD(GramWeighting):
    r"""A rule of the library TorchJD, by the name of its class.

    An aggregation is given the Gram matrix over the mean of its diagonal, since solvers have
    absolute tolerances and the results do not depend on the scale; ``PCD``, which has a moving
    average of squared norms, is given it as it is. An objective whose gradient is zero, such as
    that of a batch without a masked token, is left out of the step, but by ``GradVac`` and ``PCD``,
    which keep something of each. ``GeometricMean`` is that of the losses above zero: one of exactly
    zero has no gradient, and would make those of all others zero.

    Random choices follow from the seed of the run and the number of the step.
    """

    Options = TorchJDOptions
    options: TorchJDOptions

    def __init__(self, options: TorchJDOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self.rule, self.of_losses = _library_rule(options, len(self.objectives))
        self.weighs_zeros = options.rule in KEEPING
        self._learned = list(self.rule.parameters())
        if self._learned:
            self.optimizer = torch.optim.Adam(self._learned, options.learning_rate)
            self.moments = OptimizerState(self.optimizer)

    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        if self.options.rule != "PCD":
            gram = gram / gram.diagonal().mean().clamp(min=1e-30)
        with rng.seeded(step.seed, self.name, step.number):
            weights: Tensor = self.rule(gram)
        return weights.detach().double().cpu()

    def step(self, step: TrainingStep) -> None:
        if self.of_losses:
            self._scalarized(step)
        else:
            super().step(step)

    def _scalarized(self, step: TrainingStep) -> None:
        gradients = step.gradients()
        losses = losses_of(step).requires_grad_()
        counted = losses[losses > 0] if self.options.rule == "GeometricMean" else losses
        with rng.seeded(step.seed, self.name, step.number):
            value = self.rule(counted) if len(counted) else losses.sum()
        self.current, *slopes = torch.autograd.grad(value, [losses, *self._learned])
        apply_gradient(step, weighted_sum(gradients, self.current))
        if self._learned:
            for parameter, slope in zip(self._learned, slopes, strict=True):
                parameter.grad = slope
            self.optimizer.step()


def _library_rule(options: TorchJDOptions, count: int) -> tuple[nn.Module, bool]:
    """Return a module of the library for ``count`` objectives, and whether it is of losses."""
    try:
        from torchjd import aggregation, scalarization

        cls: Any = getattr(scalarization, options.rule, None)
        of_losses = cls is not None
        cls = cls or getattr(aggregation, f"{options.rule}Weighting")
        arguments: dict[str, Any] = {
            name: torch.tensor(value, dtype=torch.float64) if isinstance(value, list) else value
            for name, value in (USUAL.get(options.rule, {}) | options.parameters).items()
        }
        if "shape" in inspect.signature(cls).parameters:
            arguments["shape"] = count
        rule: nn.Module = cls(**arguments).double()
        # The first call checks the sizes of parameters, and makes the buffers of those that keep
        # something, which a checkpoint is loaded into.
        probe = torch.ones(count) if of_losses else torch.eye(count)
        with rng.seeded(0, "torchjd"):
            rule(probe.double())
    except ImportError as error:
        raise ConfigError(
            "weighting 'torchjd' needs an extra that is not installed "
            f'({" ".join(str(error).split())}): pip install "auxlearn[aggregation]"'
        ) from None
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"weighting 'torchjd': parameters of {options.rule}: {error}") from None
    for buffer in rule.buffers():
        buffer.zero_()
    return rule, of_losses
