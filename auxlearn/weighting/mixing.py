r"""How weighted objectives become one optimizer step: by gradients or by steps of their own.

With weights :math:`w_i`, gradients :math:`g_i` (the primary task at index 0) and the optimizer
:math:`U`, the option ``mix`` is one of

* ``gradients``: :math:`\theta' = U(\theta, \sum_i w_i g_i)`, the gradient of the weighted sum of
  the losses. This is what papers mean by a loss weight. Under Adam a gradient that is many times as
  long, as that of masked language modelling at first, fills the second moments of the shared
  parameters, and the primary task hardly moves.
* ``scaled``: the same, with each :math:`g_i` first scaled to the norm of :math:`g_0` over the
  shared parameters. The norms are moving averages (MetaBalance, He et al. 2022,
  https://arxiv.org/abs/2203.06801, with relaxation 1 and one norm by objective instead of one by
  tensor).
* ``steps``: :math:`\theta' = \theta + u_0 + \sum_{i>0} (w_i / w_0) u_i` with an optimizer step
  :math:`u_i = U_i(g_i)` and moments of its own for each objective
  (:mod:`auxlearn.weighting.optimizer_steps`). The primary task keeps the step that it has alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.errors import PluginError, describe
from auxlearn.core.metric_names import Quantity
from auxlearn.core.validation import Described, Settings
from auxlearn.weighting.base import KeptWeights, Mix, TrainingStep, Weighting, apply_gradient
from auxlearn.weighting.gradients import Gradient, combine, shared_gradient, weighted_sum
from auxlearn.weighting.optimizer_steps import SeparateSteps, gram_matrices

#: Decay of the moving averages of gradient norms, MetaBalance's default.
NORM_DECAY = 0.9

MIX_DESCRIPTION = (
    "What is weighted: the gradients of the objectives (gradients), their gradients scaled to the "
    "norm of the primary task's (scaled), or optimizer steps of their own, each with its own "
    "moments (steps)."
)


def metabalance_factors(
    norms: Tensor, averages: Tensor, relaxation: float, beta: float
) -> tuple[Tensor, Tensor]:
    """Return the factors :math:`f_{ik}` and the new moving averages :math:`m_{ik}` of MetaBalance.

    All are by objective and parameter tensor, ``(objectives, tensors)``; a norm is 0 where an
    objective does not depend on a tensor. The factors of the primary task are 1.
    """
    averages = beta * averages + (1 - beta) * norms
    ratios = torch.where(averages > 0, averages[0] / averages, torch.zeros_like(averages))
    factors = relaxation * ratios + (1 - relaxation)
    factors[0] = 1
    return factors, averages


def equal_weights(count: int) -> Tensor:
    """Return ``1 / count`` for each of ``count`` objectives, float64."""
    return torch.full((count,), 1 / count, dtype=torch.float64)


def shared_gram(step: TrainingStep, gradients: Sequence[Gradient]) -> Tensor:
    """Return the Gram matrix of gradients over the shared parameters, ``(objectives, ...)``."""
    (gram,) = gram_matrices([shared_gradient(gradient, step.placements) for gradient in gradients])
    return gram


class MixOptions(Described):
    """Options of every rule that weights losses."""

    mix: Mix = Field("gradients", description=MIX_DESCRIPTION)


class LossMixture(nn.Module):
    """Makes optimizer steps with weighted objectives, and keeps the state that this needs."""

    _averages: Tensor

    def __init__(self, mix: Mix, count: int) -> None:
        super().__init__()
        self.mix = mix
        self.separate = SeparateSteps(count)
        self.register_buffer("_averages", torch.zeros(count, 1, dtype=torch.float64))
        self._factors: list[float] = []

    def step(
        self, step: TrainingStep, weights: Tensor, gradients: Sequence[Gradient] | None = None
    ) -> None:
        """Make the optimizer step; an objective of weight 0 is not trained on."""
        if gradients is None:
            if self.mix == "gradients" or int((weights > 0).sum()) == 1:
                step.backward(weights)
                step.optimizer_step()
                return
            gradients = step.gradients()
        if self.mix == "steps":
            kept: list[Gradient] = [
                gradient if weight > 0 else [None] * len(gradient)
                for gradient, weight in zip(gradients, weights.tolist(), strict=True)
            ]
            self.separate.step(step, kept, weights, [True] * len(kept))
        else:
            factors = self.measured_factors(gradients, step)
            apply_gradient(step, weighted_sum(gradients, weights * factors))

    def measured_factors(self, gradients: Sequence[Gradient], step: TrainingStep) -> Tensor:
        """Return :meth:`factors` of gradients; their norms are computed only if needed."""
        if self.mix != "scaled":
            return torch.ones(len(self._averages), dtype=torch.float64)
        return self.factors(shared_gram(step, gradients).diagonal().sqrt())

    def factors(self, norms: Tensor) -> Tensor:
        """Return what gradients are multiplied by before they are weighted, ``(objectives,)``.

        To be called once a step: it updates the moving averages of the norms if ``mix`` is
        ``scaled``.
        """
        if self.mix != "scaled":
            return torch.ones_like(norms)
        factors, self._averages = metabalance_factors(
            norms[:, None], self._averages, 1.0, NORM_DECAY
        )
        self._factors = factors[:, 0].tolist()
        return factors[:, 0]

    def metrics(self, names: Sequence[str]) -> dict[str, float]:
        """Return ``scale/NAME``, the factors of the last step; nothing if there were none."""
        return Quantity.SCALE.row(names, self._factors) if self._factors else {}


class LossWeighting(Weighting):
    """A rule whose weights are known before the step: it trains on the weighted losses.

    A subclass defines :attr:`~Weighting.weights`; one below zero raises the loss of its objective,
    or leaves it out by ``mix: steps``. How the weighted losses become one optimizer step is a
    matter of option ``mix``, and kept in a checkpoint without the subclass's doing.

    Attributes:
        mixture: Makes the optimizer steps.
    """

    Options = MixOptions

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        mix = options.mix if isinstance(options, MixOptions) else "gradients"
        self.mixture = LossMixture(mix, len(self.objectives))

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step on the weighted losses."""
        self.mixture.step(step, self.weights)

    def metrics(self) -> dict[str, float]:
        """Metrics of the last step, with the factors of scaled gradients."""
        return super().metrics() | self.mixture.metrics(self.objectives)


class GramWeighting(KeptWeights):
    """A rule that only needs the Gram matrix of the gradients over the shared parameters.

    Gradients are combined over the parameters that the objectives share, those of the encoder; a
    head belongs to one objective and takes the gradient of that unweighted. A subclass defines
    :meth:`weigh`. With a single objective that is not called: its gradient has weight 1.

    Attributes:
        weighs_zeros: Whether objectives whose gradient is zero, such as that of a batch without a
            masked token, are weighed as well. If not, their weight is 0.
    """

    weighs_zeros: bool = True

    @abstractmethod
    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        """Return a weight for each objective.

        Args:
            gram: Inner products of the gradients over the shared parameters, the primary task
                first, ``(objectives, objectives)``, float64, on the CPU.
            step: The step that they belong to.

        Returns:
            ``(objectives,)``, of any dtype. One below zero raises the loss of its objective.
        """

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step with the weighted sum of the gradients."""
        gradients = step.gradients()
        gram = shared_gram(step, gradients)
        norms = gram.diagonal().sqrt()
        self._metrics = Quantity.NORM.row(step.names, norms.tolist())
        here = (norms != 0) | self.weighs_zeros  # norms that are no numbers are weighed
        if len(gradients) > 1 and here.any():
            self.current = here.double()
            if here.sum() > 1:
                weights = torch.as_tensor(self.weigh(gram[here][:, here], step)).to(gram)
                # A single number would be taken for all of them.
                finite = bool(weights.isfinite().all()) or not bool(gram.isfinite().all())
                if weights.shape != (count := int(here.sum()),) or not finite:
                    raise PluginError(
                        f"weigh of {type(self).__name__} returns {describe(weights.tolist())}: "
                        f"return {count} finite weights"
                    )
                self.current[here] = weights
        apply_gradient(step, combine(gradients, self.current, step.placements))
