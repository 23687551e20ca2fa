r"""META-TARTAN: weights that follow cosines with a validation gradient.

Dery, Michel, Talwalkar and Neubig 2022, "Should We Be Pre-training? An Argument for End-task Aware
Training as an Alternative", https://arxiv.org/abs/2109.07437, Algorithm 1.

Weights are :math:`w = \mathrm{softmax}(z)`. With :math:`g_i` the gradient of objective i and v the
validation gradient, both over the encoder at the current parameters, the logits are updated with
the surrogate gradient

.. math:: \delta_i = -\cos(g_i, v),

averaged over the micro-batches of the step: a mean of cosines is not the cosine of the mean, so
that gradient accumulation learns other weights (`aang` too). The validation loss is computed with a
newly initialised head that is fitted to validation examples in every step. Neither the optimizer
nor the softmax is differentiated; :mod:`auxlearn.weighting.meta` has the exact derivative of a
step.

Departs from the paper in the validation loss of ``tartan``, which is a smooth form of the metric
that selects the checkpoint (:mod:`auxlearn.evaluation.metrics`); the paper has the cross-entropy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.metric_names import Quantity
from auxlearn.core.registry import register_weighting
from auxlearn.weighting.base import DevHead, TrainingStep, ValidationOptions
from auxlearn.weighting.gradients import (
    Gradient,
    Placement,
    dot,
    gather_scalars,
    restricted,
    weighted_sum,
)
from auxlearn.weighting.learned import LogitOptions, LogitWeighting, alignment_metrics, cosines_with


def tartan_logit_gradient(cosines: Tensor) -> Tensor:
    r"""Return :math:`\delta` from cosines by micro-batch and objective, ``(objectives,)``."""
    return -cosines.mean(0)


def added(totals: list[Gradient], gradients: list[Gradient]) -> list[Gradient]:
    """Return the sums of the gradients of objectives over the micro-batches so far."""
    pairs = zip(totals, gradients, strict=True) if totals else ()
    return [weighted_sum(pair, (1, 1)) for pair in pairs] or gradients


class TartanOptions(LogitOptions, ValidationOptions):
    """Options of META-TARTAN; the defaults are those of its released code."""

    learning_rate: float = Field(0.01, gt=0)
    """Learning rate of the logits."""

    optimizer: Literal["adam", "sgd"] = "sgd"
    """Optimizer of the logits."""


@register_weighting("tartan")
class Tartan(LogitWeighting):
    """Weights that follow cosines with the validation gradient, as in META-TARTAN's paper.

    The logits are updated first, and the optimizer step is made with the new weights (Algorithm 1).
    The head is fitted to other validation examples than the validation gradient is computed on.
    """

    Options = TartanOptions
    options: TartanOptions

    #: Parameters over which gradients are compared, by placement.
    compared: ClassVar[tuple[Placement, ...]] = ("encoder",)
    #: Whether the optimizer step is made with the weights from before the update of the logits.
    uses_previous_weights: ClassVar[bool] = False

    @property
    def dev_head(self) -> DevHead:
        """A tanh layer and a linear layer, fitted to the encoder's features."""
        return "fitted"

    def learn(self, step: TrainingStep) -> None:
        totals: list[Gradient] = []
        cosines: list[Tensor] = []
        for index, gradients in enumerate(step.micro_gradients()):
            validation = self.validation_gradient(step, index)
            cosines.append(self._cosines(gradients, validation, step))
            totals = added(totals, gradients)
        previous = self.weights
        self.apply_logit_gradient(tartan_logit_gradient(torch.stack(cosines)))
        weights = previous if self.uses_previous_weights else self.weights
        self.mixture.step(step, weights, totals)

    def validation_gradient(self, step: TrainingStep, index: int) -> Gradient:
        """Return a validation gradient over the parameters that are compared."""
        return restricted(step.validation_gradient(index), step.placements, self.compared)

    def account(
        self, rows: Sequence[Mapping[str, Any]], exported: int, steps: int
    ) -> dict[str, str]:
        """Return what each weight has become, and the cosine that it has followed."""
        trained = [row for row in rows if row["step"] <= exported]
        sentences = {}
        for name, first in zip(self.objectives[1:], self.initial_weights()[1:], strict=True):
            weight_key, cosine_key = Quantity.WEIGHT.key(name), Quantity.COSINE.key(name)
            weights = [row[weight_key] for row in trained if weight_key in row]
            cosines = [row[cosine_key] for row in trained if cosine_key in row]
            if weights and cosines:
                mean = sum(cosines) / len(cosines)
                sentences[name] = (
                    f"{name}: weight {first:.3f} at first, {weights[-1]:.3f} at the exported "
                    "checkpoint; the cosine of its gradient with that of dev was on average "
                    f"{mean:+.3f} in {len(cosines)} recorded steps"
                )
        return sentences

    def _cosines(
        self, gradients: list[Gradient], validation: Gradient, step: TrainingStep
    ) -> Tensor:
        """Return the cosine of each objective with the validation gradient, and note it."""
        cosines, norms, norm = self.compare(gradients, validation, step)
        self._metrics = alignment_metrics(step.names, norms, cosines, norm)
        return cosines

    def compare(
        self, gradients: Sequence[Gradient], validation: Gradient, step: TrainingStep
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return cosines of gradients with the validation gradient, their norms, and the norm of
        that, all over the parameters that are compared.
        """
        compared = [restricted(gradient, step.placements, self.compared) for gradient in gradients]
        squares = [dot(gradient, gradient) for gradient in compared]
        products = [dot(gradient, validation) for gradient in compared]
        values = gather_scalars([dot(validation, validation), *squares, *products])
        norm, norms = values[0].sqrt(), values[1 : 1 + len(squares)].sqrt()
        return cosines_with(values[1 + len(squares) :], norms, norm), norms, norm


@register_weighting("tartan_released")
class TartanReleased(Tartan):
    """META-TARTAN as in its released code, slips included, for comparison with it.

    Differences from :class:`Tartan`: no attention mask in training and in the validation gradient,
    so that padding is attended to; gradients are compared over the language-model head as well,
    which the validation loss does not depend on, so that the cosine of a masked-language-modelling
    objective shrinks; the features are computed again in every step of the head's fit, although the
    encoder is frozen; the optimizer step is made with the weights from before the update of the
    logits; the validation loss is the cross-entropy on uniformly drawn batches, whatever metric
    selects the checkpoint; the gradient of the classification head is clipped separately. The
    settings of a run that belong to it, and the differences that remain, are in
    ``docs/weightings/tartan_released.md``.
    """

    compared = ("encoder", "other_head")
    uses_previous_weights = True
    attends_to_padding = True
    follows_metric = False
    clips_apart = True

    @property
    def dev_head(self) -> DevHead:
        """As in :class:`Tartan`, on features that are computed in every step of the fit."""
        return "refitted"
