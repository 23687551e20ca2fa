"""MetaBalance: scale auxiliary gradients towards the norm of the primary gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.metric_names import Quantity
from auxlearn.core.registry import register_weighting
from auxlearn.core.validation import Described
from auxlearn.weighting.base import KeptWeights, TrainingStep, apply_gradient
from auxlearn.weighting.gradients import Gradient, Placement, weighted_sum
from auxlearn.weighting.mixing import metabalance_factors


def metabalance_weights(norms: Tensor, factors: Tensor) -> Tensor:
    """Return the norm of each scaled over its unscaled gradient, ``(objectives,)``; 1 for a norm of
    zero. ``norms`` and ``factors`` are by objective and tensor.
    """
    unscaled = norms.norm(dim=1)
    scaled = (factors * norms).norm(dim=1)
    return torch.where(unscaled > 0, scaled / unscaled, torch.ones_like(unscaled))


class MetaBalanceOptions(Described):
    relaxation: float = Field(0.7, ge=0, le=1)
    """How far auxiliary gradients are scaled towards the norm of the primary gradient; 0: not at
    all, 1: all the way."""

    beta: float = Field(0.9, ge=0, lt=1)
    """Decay of the moving averages of gradient norms."""


@register_weighting("metabalance")
class MetaBalance(KeptWeights):
    r"""Scale auxiliary gradients to the primary gradient's norm, by tensor (He et al. 2022).

    He, Feng, Cheng, Ji, Guo and Caverlee 2022, "MetaBalance: Improving Multi-Task Recommendations
    via Adapting Gradient Magnitudes of Auxiliary Tasks", https://arxiv.org/abs/2203.06801.

    For each shared parameter tensor k and objective i, with :math:`g_{ik}` the gradient in the
    current step and i = 0 the primary task,

    .. math::
        m_{ik} &\leftarrow \beta \, m_{ik} + (1 - \beta) \lVert g_{ik} \rVert \\
        f_{ik} &= r \, m_{0k} / m_{ik} + (1 - r)

    and the optimizer step is made with :math:`\sum_i f_{ik} g_{ik}`: larger gradients are scaled
    down, smaller ones up. :math:`r` is the relaxation (0: gradients as they are; 1: the norm of the
    primary gradient), :math:`\beta` the decay of the moving average :math:`m_{ik}` of gradient
    norms, which starts at zero; its bias cancels in the ratio. :math:`f_{ik}` is the factor that
    gradient i is multiplied by.

    This is what the released code does (facebookresearch/MetaBalance, ``metabalance.py``): norms by
    parameter tensor, scaled in both directions.

    Departures from that code:

    * Where it finds a parameter without gradient it skips all further parameters for that
      objective; here only that parameter is skipped.
    * A moving average of zero, of a gradient that has always been zero, causes no division by zero.
    * The shared parameters are those of the encoder; heads take their own gradients.

    The reported weight of an objective is :func:`metabalance_weights` over the encoder.
    """

    Options = MetaBalanceOptions
    options: MetaBalanceOptions

    def __init__(self, options: MetaBalanceOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self.averages = torch.zeros(0, dtype=torch.float64)  # one row by objective from step 1 on

    def step(self, step: TrainingStep) -> None:
        gradients = step.gradients()
        norms = _tensor_norms(gradients, step.placements)
        averages = self.averages if len(self.averages) else torch.zeros_like(norms)
        factors, self.averages = metabalance_factors(
            norms, averages, self.options.relaxation, self.options.beta
        )
        self.current = metabalance_weights(norms, factors)
        self._metrics = Quantity.NORM.row(step.names, norms.norm(dim=1).tolist())
        by_tensor, unscaled = iter(factors.T), [1.0] * len(gradients)
        combined: Gradient = []
        for number, placement in enumerate(step.placements):
            used = next(by_tensor) if placement == "encoder" else unscaled
            combined += weighted_sum([[gradient[number]] for gradient in gradients], used)
        apply_gradient(step, combined)

    def get_extra_state(self) -> Tensor:
        return self.averages

    def set_extra_state(self, state: Tensor) -> None:
        self.averages = state.clone()


def _tensor_norms(gradients: Sequence[Gradient], placements: Sequence[Placement]) -> Tensor:
    """Return the norms over the encoder's tensors, ``(objectives, tensors)``, copied at once."""
    encoder = [number for number, placement in enumerate(placements) if placement == "encoder"]
    places, values = [], []
    for row, gradient in enumerate(gradients):
        for column, number in enumerate(encoder):
            grad = gradient[number]
            if grad is not None:
                places.append((row, column))
                values.append(torch.linalg.vector_norm(grad))
    norms = torch.zeros(len(gradients), len(encoder), dtype=torch.float64)
    if values:
        rows, columns = torch.tensor(places).T
        norms[rows, columns] = torch.stack(values).cpu().double()
    return norms
