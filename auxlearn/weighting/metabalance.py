r"""MetaBalance: auxiliary gradients brought to the size of the primary one (He, Feng, Cheng, Ji,
Guo and Caverlee 2022, "MetaBalance: Improving Multi-Task Recommendations via Adapting Gradient
Magnitudes of Auxiliary Tasks", https://arxiv.org/abs/2203.06801).

For each shared parameter tensor k and objective i, with :math:`g_{ik}` the gradient in step t and
i = 0 the primary task,

.. math::
    m_{ik} &\leftarrow \beta \, m_{ik} + (1 - \beta) \lVert g_{ik} \rVert \\
    f_{ik} &= r \, m_{0k} / m_{ik} + (1 - r)

and the step is made with :math:`\sum_i f_{ik} g_{ik}`: larger gradients are made smaller and
smaller ones larger. ``r`` is the relaxation (0: gradients as they are; 1: the primary's magnitude),
:math:`\beta` the decay of the moving average, which starts at zero; its bias cancels in the ratio.

This is what the released code does (facebookresearch/MetaBalance, ``metabalance.py``): magnitudes
by parameter tensor, brought closer from both sides. Cost: the gradient of each objective is kept;
one norm per objective and tensor.

Departures from that code:

* Where it meets a parameter without gradient it leaves out the rest of the parameters for that
  objective; here only that parameter is left out.
* A moving average of zero, of a gradient that has always been zero, gives no division by zero.
* Shared are the parameters of the body; heads take their own gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.config import Settings
from auxlearn.metric_keys import Quantity
from auxlearn.registry import register_weighting
from auxlearn.weighting.base import Gradient, Part, TrainingStep, Weighting, apply, mix


def metabalance_factors(
    norms: Tensor, averages: Tensor, relaxation: float, beta: float
) -> tuple[Tensor, Tensor]:
    """Return what each gradient is multiplied by, and the new moving averages.

    Args:
        norms: Norm of the gradient by objective and parameter tensor, the primary task first,
            ``(objectives, tensors)``; 0 where an objective does not reach a tensor.
        averages: Moving averages from the step before, of the same shape; zeros at the start.
        relaxation: ``r``, from 0 to 1.
        beta: Decay of the moving averages, from 0 to less than 1.

    Returns:
        Factors and moving averages, both ``(objectives, tensors)``. The factors of the primary
        task are 1.
    """
    averages = beta * averages + (1 - beta) * norms
    ratios = torch.where(averages > 0, averages[0] / averages, torch.zeros_like(averages))
    factors = relaxation * ratios + (1 - relaxation)
    factors[0] = 1
    return factors, averages


class MetaBalanceOptions(Settings):
    """Settings of MetaBalance."""

    relaxation: float = Field(
        0.7,
        ge=0,
        le=1,
        description="How far auxiliary gradients are brought to the primary one's magnitude; "
        "0: not at all, 1: all the way.",
    )
    beta: float = Field(0.9, ge=0, lt=1, description="Decay of the moving averages of magnitudes.")


@register_weighting("metabalance")
class MetaBalance(Weighting):
    """Bring auxiliary gradients to the primary one's magnitude, tensor by tensor (He et al. 2022).

    The weight of an objective is the norm of its scaled gradient over that of its gradient, both
    over the whole body.
    """

    Options = MetaBalanceOptions
    options: MetaBalanceOptions

    def __init__(self, options: MetaBalanceOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._weights = torch.ones(len(self.objectives), dtype=torch.float64)
        self._averages: Tensor | None = None
        self._record: dict[str, float] = {}

    @property
    def weights(self) -> Tensor:
        """The weights of the last step; 1 each before the first."""
        return self._weights.clone()

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step with the scaled gradients."""
        gradients = step.gradients()
        norms = _norms(gradients, step.parts)
        averages = torch.zeros_like(norms) if self._averages is None else self._averages
        factors, self._averages = metabalance_factors(
            norms, averages, self.options.relaxation, self.options.beta
        )
        sizes = norms.norm(dim=1)
        scaled = (factors * norms).norm(dim=1)
        self._weights = torch.where(sizes > 0, scaled / sizes, torch.ones_like(sizes))
        self._record = dict(zip(map(Quantity.NORM.key, step.names), sizes.tolist(), strict=True))
        columns = iter(factors.T)
        ones = torch.ones(len(gradients))
        mixed: Gradient = []
        for number, place in enumerate(step.parts):
            used = next(columns) if place == "body" else ones
            mixed += mix([[gradient[number]] for gradient in gradients], used)
        apply(step, mixed)

    def record(self) -> dict[str, float]:
        """Norm of each objective's gradient over the shared parameters."""
        return self._record

    def state_dict(self) -> dict[str, Tensor]:
        """The moving averages, and the weights of the last step."""
        averages = {} if self._averages is None else {"averages": self._averages}
        return {"weights": self._weights, **averages}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self._weights = state["weights"].clone()
        self._averages = state["averages"].clone() if "averages" in state else None


def _norms(gradients: Sequence[Gradient], parts: Sequence[Part]) -> Tensor:
    """Norms over the body, ``(objectives, tensors)``, float64, on the CPU; one wait for a GPU."""
    body = [number for number, place in enumerate(parts) if place == "body"]
    places, found = [], []
    for row, gradient in enumerate(gradients):
        for column, number in enumerate(body):
            part = gradient[number]
            if part is not None:
                places.append((row, column))
                found.append(torch.linalg.vector_norm(part))
    norms = torch.zeros(len(gradients), len(body), dtype=torch.float64)
    if found:
        rows, columns = torch.tensor(places).T
        norms[rows, columns] = torch.stack(found).cpu().double()
    return norms
