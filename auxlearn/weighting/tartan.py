"""META-TARTAN (Dery, Michel, Talwalkar and Neubig 2022, "Should We Be Pre-training?", ICLR).

Each objective's logit rises by the cosine between its gradient and a validation gradient, both
over the body at the current parameters. The validation gradient is read through a fresh head that
is fitted to validation rows in every update. Neither the optimizer nor the softmax is
differentiated; the derivative of what is actually done is :mod:`auxlearn.weighting.meta`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.registry import register_weighting
from auxlearn.weighting.base import (
    DevHead,
    Gradient,
    Part,
    TrainingStep,
    ValidationOptions,
    apply,
    dot,
    mix,
    read,
)
from auxlearn.weighting.learned import LogitOptions, LogitWeighting, scales


class TartanOptions(LogitOptions, ValidationOptions):
    """Settings of META-TARTAN; the defaults are those of its released code."""

    learning_rate: float = Field(0.01, gt=0, description="Learning rate of the logits.")
    optimizer: Literal["adam", "momentum", "sgd"] = Field(
        "sgd", description="What moves the logits; momentum is SGD with momentum 0.9."
    )


@register_weighting("tartan")
class Tartan(LogitWeighting):
    """Weights that follow cosines with the validation gradient, as META-TARTAN's paper has it.

    The logits move first, and the update is made with the new weights (Algorithm 1). The head is
    fitted to other validation rows than the gradient is taken on.
    """

    Options = TartanOptions
    options: TartanOptions

    #: Parameters over which gradients are compared.
    compared: ClassVar[tuple[Part, ...]] = ("body",)
    #: Whether the update is made with the weights from before the logits move.
    late: ClassVar[bool] = False

    @property
    def dev_head(self) -> DevHead:
        """A tanh layer and a linear one, fitted to the body's features."""
        return "fitted"

    def learn(self, step: TrainingStep) -> None:
        """Move the logits by the cosines, and make the update."""
        totals: list[Gradient] = []
        cosines: list[Tensor] = []
        for draw, gradients in enumerate(step.micro_gradients()):
            validation = self._restrict(step.validation_gradient(draw), step)
            cosines.append(self._cosines(gradients, validation, step))
            if totals:
                gradients = [mix(pair, (1, 1)) for pair in zip(totals, gradients, strict=True)]
            totals = gradients
        weights = self.weights
        self.descend_logits(-torch.stack(cosines).mean(0))
        factors = self.factors_of(totals, step)
        self._record |= scales(step.names, factors)
        apply(step, mix(totals, factors * (weights if self.late else self.weights)))

    def _cosines(
        self, gradients: list[Gradient], validation: Gradient, step: TrainingStep
    ) -> Tensor:
        compared = [self._restrict(gradient, step) for gradient in gradients]
        own = [dot(gradient, gradient) for gradient in compared]
        along = [dot(gradient, validation) for gradient in compared]
        found = read([dot(validation, validation), *own, *along])
        size, norms = found[0].sqrt(), found[1 : 1 + len(own)].sqrt()
        cosines = found[1 + len(own) :] / (norms * size).clamp(min=1e-30)
        self._record = {"norm/validation": float(size)}
        for name, norm, cosine in zip(step.names, norms.tolist(), cosines.tolist(), strict=True):
            self._record[f"norm/{name}"] = norm
            self._record[f"cosine/{name}"] = cosine
        return cosines

    def _restrict(self, gradient: Gradient, step: TrainingStep) -> Gradient:
        return [
            part if place in self.compared else None
            for part, place in zip(gradient, step.parts, strict=True)
        ]


@register_weighting("tartan_released")
class TartanReleased(Tartan):
    """META-TARTAN as its released code has it, slips included, for comparison with it.

    Beside :class:`Tartan`: no attention mask in training and in the validation gradient, so that
    padding is attended to; gradients are compared over the language-model head as well, which the
    validation gradient does not reach, so that the cosine of a masked-language-model objective
    shrinks; the body is run anew in every step of the head's fit, although it rests; the update is
    made with the weights from before the logits move; the validation loss is the cross-entropy of
    uniform draws, whatever metric selects the checkpoint; the gradient of the classification head
    is clipped apart from all else. The settings of a run that belong to it, and what remains
    different, are in ``docs/weighting.md``.
    """

    compared = ("body", "other")
    late = True
    attends_to_padding = True
    follows_metric = False
    clips_apart = True

    @property
    def dev_head(self) -> DevHead:
        """As :class:`Tartan` has it, on features that are computed in every step of the fit."""
        return "refitted"
