r"""OL-AUX: auxiliary weights that follow inner products with the primary gradient (Lin, Baweja,
Kantor and Held 2019, "Adaptive Auxiliary Task Weighting for Reinforcement Learning", NeurIPS 32,
https://papers.nips.cc/paper/2019/hash/0e900ad84f63618452210ab8baae0218-Abstract.html).

What is minimised is :math:`\log L_0 + \sum_i w_i \log L_i`: the logarithms bring losses of
different scales together. An SGD step of rate :math:`\alpha` changes :math:`\log L_0` by
:math:`-\alpha \, w_i \langle \nabla \log L_0, \nabla \log L_i \rangle` on account of auxiliary task
i, to first order. So, after every N steps, the weights ascend the mean of these inner products over
the N steps and are kept from turning negative:

.. math:: w_i \leftarrow \max\bigl(0, \; w_i + \eta \, \mathrm{mean}_{t}
    \langle \nabla \log L_0, \nabla \log L_i \rangle_t \bigr)

with :math:`w_i = 1` at the start, gradients over the shared parameters, and :math:`\eta` the
``learning_rate``. No validation rows: the primary task's training loss decides.

Cost: the gradient of each objective is kept; one inner product per objective.

Departures from the code of one of the authors (Xingyu-Lin/auxiliary-tasks-rl, ``olaux/ddpg.py``,
by its own account not the one behind the paper's figures):

* The whole is multiplied by :math:`L_0`, held constant, so that the primary gradient stays as it
  is; under Adam the scale is without effect.
* That code's primary gradient for the inner products is that of the whole weighted sum; here it is
  the primary task's own, as in the paper.
* Its :math:`\eta` is 5 times the parameters' learning rate of 1e-3; here the product is the option.
  Its moving mean over four gradients is left out.
* ``least`` is added to every loss before the logarithm, there to auxiliary losses alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.metric_keys import Quantity
from auxlearn.registry import register_weighting
from auxlearn.weighting.base import TrainingStep, apply, dot, mix
from auxlearn.weighting.gram import shared
from auxlearn.weighting.learned import Learned, LearnedOptions


def log_slopes(products: Tensor, losses: Tensor, least: float) -> Tensor:
    """Return the inner products of the gradients of log losses with the primary one's.

    Args:
        products: Inner product of each loss's gradient with the primary one's, ``(objectives,)``.
        losses: ``(objectives,)``, the primary task first.
        least: What is added to a loss before the logarithm.
    """
    shifted = losses + least
    return products / (shifted * shifted[0])


def log_coefficients(weights: Tensor, losses: Tensor, least: float) -> Tensor:
    """Return the weights of losses whose sum has the gradient of weighted log losses, times the
    primary loss: ``weights * losses[0] / losses``, each loss with ``least`` added.
    """
    shifted = losses + least
    return weights * (shifted[0] / shifted)


class OLAuxOptions(LearnedOptions):
    """Settings of OL-AUX."""

    learning_rate: float = Field(0.005, gt=0, description="Learning rate of the weights.")
    every: int = Field(
        5, ge=1, description="Steps over whose mean the weights move: the horizon N."
    )
    least: float = Field(
        0.02, gt=0, description="Added to a loss before its logarithm, for stability near zero."
    )


@register_weighting("ol_aux")
class OLAux(Learned):
    """Weights that grow while a task's gradient agrees with the primary one (Lin et al. 2019)."""

    Options = OLAuxOptions
    options: OLAuxOptions

    def __init__(self, options: OLAuxOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        start = self.initial_weights()
        self._weights = start / start[0]
        self._sums = torch.zeros_like(self._weights)
        self._count = torch.zeros((), dtype=torch.int64)

    @property
    def weights(self) -> Tensor:
        """The weights of the log losses; the primary task's is 1."""
        return self._weights.clone()

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step on the log losses, whether the weights move or rest."""
        self.learn(step)

    def learn(self, step: TrainingStep) -> None:
        """Train on the weighted log losses, and every N steps move the weights."""
        gradients = step.gradients()
        losses = torch.stack([step.losses[name].double() for name in step.names])
        body = [shared(gradient, step.parts) for gradient in gradients]
        products = torch.stack([dot(gradient, body[0]).to(losses) for gradient in body])
        losses, products = torch.stack([losses, products]).cpu()  # one wait for a GPU
        least = self.options.least
        apply(step, mix(gradients, log_coefficients(self._weights, losses, least)))
        self._record = {}
        if self.moves(step):
            slopes = log_slopes(products, losses, least)
            names = step.names[1:]
            self._record = dict(
                zip(map(Quantity.SLOPE.key, names), slopes[1:].tolist(), strict=True)
            )
            self._move(slopes)

    def _move(self, slopes: Tensor) -> None:
        self._sums = self._sums + slopes
        self._count += 1
        if int(self._count) < self.options.every:
            return
        mean = self._sums / self.options.every
        moved = (self._weights + self.options.learning_rate * mean).clamp(min=0)
        moved[0] = 1
        moved = self.floored(moved)
        self._weights = moved / moved[0]
        self._sums = torch.zeros_like(self._sums)
        self._count.zero_()

    def state_dict(self) -> dict[str, Tensor]:
        """The weights, and the inner products since they last moved."""
        return {"weights": self._weights, "sums": self._sums, "count": self._count}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self._weights = state["weights"].clone()
        self._sums = state["sums"].clone()
        self._count = state["count"].clone()
