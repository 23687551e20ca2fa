"""Rules that weigh objectives by the inner products of their gradients.

Gradients are combined over the parameters that objectives share, the body of the encoder. A head
has one objective alone and takes that one's gradient as it is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from auxlearn.config import Settings
from auxlearn.metric_keys import Quantity
from auxlearn.weighting.base import Gradient, Part, TrainingStep, Weighting, apply, mix
from auxlearn.weighting.step_derivative import inner_products


class GramWeighting(Weighting):
    """A rule that needs no more than the Gram matrix of the gradients over the shared parameters.

    A subclass defines :meth:`weigh`. With a single objective there is nothing to weigh, and it is
    trained on as it is.
    """

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._weights = torch.ones(len(objectives), dtype=torch.float64)
        self._record: dict[str, float] = {}

    @abstractmethod
    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        """Return a weight for each objective.

        Args:
            gram: Inner products of the gradients over the shared parameters, the primary task
                first, ``(objectives, objectives)``, float64, on the CPU.
            step: The step they come from.

        Returns:
            ``(objectives,)``, float64, on the CPU.
        """

    @property
    def weights(self) -> Tensor:
        """The weights of the last step over the shared parameters; 1 each before the first."""
        return self._weights.clone()

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step with the gradients combined."""
        gradients = step.gradients()
        (gram,) = inner_products([shared(gradient, step.parts) for gradient in gradients])
        norms = gram.diagonal().sqrt().tolist()
        self._record = dict(zip(map(Quantity.NORM.key, step.names), norms, strict=True))
        if len(gradients) > 1:
            self._weights = self.weigh(gram, step)
        apply(step, mix_shared(gradients, self._weights, step.parts))

    def record(self) -> dict[str, float]:
        """Norm of each objective's gradient over the shared parameters."""
        return self._record

    def state_dict(self) -> dict[str, Tensor]:
        """The weights of the last step, for the record alone."""
        return {"weights": self._weights}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self._weights = state["weights"].clone()


def shared(gradient: Gradient, parts: Sequence[Part]) -> Gradient:
    """Return a gradient over the shared parameters, ``None`` in place of the heads."""
    return [part if place == "body" else None for part, place in zip(gradient, parts, strict=True)]


def unshared(gradient: Gradient, parts: Sequence[Part]) -> Gradient:
    """Return a gradient over the heads, ``None`` in place of the shared parameters."""
    return [None if place == "body" else part for part, place in zip(gradient, parts, strict=True)]


def mix_shared(gradients: Sequence[Gradient], weights: Tensor, parts: Sequence[Part]) -> Gradient:
    """Return the weighted sum over the shared parameters, and over the heads the plain sum.

    Args:
        gradients: One per objective, each with the same number of parameters.
        weights: One per objective.
        parts: Where each parameter belongs.
    """
    weighted = mix([shared(gradient, parts) for gradient in gradients], weights)
    heads = mix([unshared(gradient, parts) for gradient in gradients], torch.ones(len(gradients)))
    return [
        inside if place == "body" else outside
        for inside, outside, place in zip(weighted, heads, parts, strict=True)
    ]
