"""Base class of rules that compute weights from the Gram matrix of the objectives' gradients.

Gradients are combined over the parameters that the objectives share, those of the encoder. A head
belongs to one objective and takes the gradient of that objective unweighted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from auxlearn.core.metric_names import Quantity
from auxlearn.core.validation import Settings
from auxlearn.weighting.base import TrainingStep, Weighting, apply_gradient
from auxlearn.weighting.gradients import combine, shared_gradient
from auxlearn.weighting.optimizer_steps import gram_matrices


class GramWeighting(Weighting):
    """A rule that only needs the Gram matrix of the gradients over the shared parameters.

    A subclass defines :meth:`weigh`. With a single objective that is not called: its gradient has
    weight 1.
    """

    buffers = ("_weights",)

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._weights = torch.ones(len(objectives), dtype=torch.float64)

    @abstractmethod
    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        """Return a weight for each objective.

        Args:
            gram: Inner products of the gradients over the shared parameters, the primary task
                first, ``(objectives, objectives)``, float64, on the CPU.
            step: The step that they belong to.

        Returns:
            ``(objectives,)``, float64, on the CPU.
        """

    @property
    def weights(self) -> Tensor:
        """Weights of the last step over the shared parameters; 1 each before the first."""
        return self._weights.clone()

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step with the weighted sum of the gradients."""
        gradients = step.gradients()
        (gram,) = gram_matrices(
            [shared_gradient(gradient, step.placements) for gradient in gradients]
        )
        norms = gram.diagonal().sqrt().tolist()
        self._metrics = Quantity.NORM.row(step.names, norms)
        if len(gradients) > 1:
            self._weights = self.weigh(gram, step)
        apply_gradient(step, combine(gradients, self._weights, step.placements))
