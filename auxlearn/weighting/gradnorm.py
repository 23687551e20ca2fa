r"""Weights that balance gradient norms (Chen, Badrinarayanan, Lee and Rabinovich 2018, "GradNorm:
Gradient Normalization for Adaptive Loss Balancing").

With :math:`G_i = w_i \lVert \nabla L_i \rVert`, their mean :math:`\bar G`, and the relative
inverse rate of training :math:`r_i = (L_i / L_i(0)) / \mathrm{mean}_j (L_j / L_j(0))`, the weights
descend :math:`\sum_i | G_i - \bar G r_i^\alpha |`, where the target is held constant, and are then
scaled to sum to the number of objectives (Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.metric_keys import Quantity
from auxlearn.registry import register_weighting
from auxlearn.weighting.base import TrainingStep, apply, dot, mix, read
from auxlearn.weighting.learned import Learned, LearnedOptions

#: A weight never falls below this: it could not rise again.
LEAST = 1e-4


class GradNormOptions(LearnedOptions):
    """Settings of GradNorm."""

    alpha: float = Field(
        1.5, ge=0, description="How hard objectives that lag behind are pulled; 0: equal norms."
    )
    learning_rate: float = Field(0.025, gt=0, description="Learning rate of Adam on the weights.")


@register_weighting("gradnorm")
class GradNorm(Learned):
    """Weights that bring all objectives to train at like rates.

    The norms are over the whole body. The paper takes its last layer alone, to save time; here the
    gradients of all layers are at hand.
    """

    Options = GradNormOptions
    options: GradNormOptions

    def __init__(self, options: GradNormOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._weights = self.initial_weights() * len(self.objectives)
        self._first = torch.zeros_like(self._weights)
        self.optimizer = torch.optim.Adam([self._weights], lr=options.learning_rate)

    @property
    def weights(self) -> Tensor:
        """The weights, which sum to the number of objectives."""
        return self._weights.clone()

    def step(self, step: TrainingStep) -> None:
        """Update the parameters; the losses of the very first step are kept, whatever it is."""
        super().step(step)
        if not self._first.any():
            self._first.copy_(read([step.losses[name] for name in step.names]))

    def learn(self, step: TrainingStep) -> None:
        """Train on the weighted losses, and move the weights towards balanced norms."""
        gradients = step.gradients()
        body = [place == "body" for place in step.parts]
        norms = []
        for gradient in gradients:
            shared = [g if inside else None for g, inside in zip(gradient, body, strict=True)]
            norms.append(dot(shared, shared).sqrt())
        weights = self.weights
        apply(step, mix(gradients, weights))
        found = read([*norms, *(step.losses[name] for name in step.names)])
        sizes, losses = found.split(len(norms))
        self._record = dict(zip(map(Quantity.NORM.key, step.names), sizes.tolist(), strict=True))
        self._move(sizes, losses)

    def _move(self, norms: Tensor, losses: Tensor) -> None:
        if not self._first.any():
            self._first.copy_(losses)
        progress = losses / self._first.clamp(min=1e-12)
        weighted = self._weights * norms
        target = weighted.mean() * (progress / progress.mean()) ** self.options.alpha
        self._weights.grad = (weighted - target).sign() * norms
        self.optimizer.step()
        bounded = self._weights.clamp(min=LEAST)
        self._weights.copy_(self.floored(bounded * (len(bounded) / bounded.sum())))

    def state_dict(self) -> dict[str, Tensor]:
        """Weights, the first losses, and the state of the optimizer."""
        moments = self.optimizer.state[self._weights]
        return {"weights": self._weights, "first": self._first, **moments}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self._weights.copy_(state["weights"])
        self._first.copy_(state["first"])
        moments = {k: v.clone() for k, v in state.items() if k not in ("weights", "first")}
        if moments:
            self.optimizer.state[self._weights] = moments
