"""Losses with a weight for each class."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from auxlearn.errors import ConfigError
from auxlearn.losses.base import PrimaryLoss
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.settings import Settings


class ClassWeightOptions(Settings):
    """Settings of losses with a weight for each class."""

    class_weights: Literal["none", "balanced"] | dict[str, float] = Field(
        "none",
        description="Weight of the examples of each class: none; balanced, in inverse proportion "
        "to the class's number of training examples; or a weight for every label.",
    )


class ClassWeightedLoss(PrimaryLoss):
    """Base class of losses that are a mean over the examples of class weight times loss.

    torch's own weighted means divide by the sum of the weights instead, which gives an example
    another weight in each batch and another one with gradient accumulation. ``balanced`` class
    weights are those of scikit-learn: examples / (classes * examples of the class).
    """

    Options = ClassWeightOptions
    options: ClassWeightOptions
    class_weights: Tensor | None = None

    def prepare(self, context: ObjectiveContext) -> None:
        """Compute the class weights."""
        self.class_weights = chosen_class_weights(self.options, context)

    def weighted_mean(self, losses: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of the losses, each times the weight of its gold class; a scalar.

        Args:
            losses: Loss of each example, ``(batch,)``.
            labels: Gold classes, ``(batch,)``.
        """
        return (
            losses if self.class_weights is None else self.class_weights[labels] * losses
        ).mean()


def chosen_class_weights(options: ClassWeightOptions, context: ObjectiveContext) -> Tensor | None:
    """Return the weight of each class, ``(classes,)``, on the encoder's device.

    Returns:
        ``None`` if no weights are asked for.

    Raises:
        ConfigError: A class has no example, or the listed weights do not fit the labels.
    """
    chosen, names = options.class_weights, context.split.label_names
    if chosen == "none":
        return None
    if isinstance(chosen, dict):
        weights = _listed(chosen, names)
    else:
        weights = balanced_class_weights(context.split.labels or (), names)
    return weights.to(context.device)


def balanced_class_weights(labels: tuple[int, ...], label_names: tuple[str, ...]) -> Tensor:
    """Return weights in inverse proportion to class frequencies, ``(classes,)``, by scikit-learn.

    Raises:
        ConfigError: A class has no example.
    """
    missing = sorted(set(range(len(label_names))) - set(labels))
    if missing:
        raise ConfigError(
            f"class_weights: balanced is not defined, as train has no example of "
            f"'{label_names[missing[0]]}': list the weights instead"
        )
    weights = compute_class_weight(
        "balanced", classes=np.arange(len(label_names)), y=np.asarray(labels)
    )
    return torch.as_tensor(weights, dtype=torch.float32)


def _listed(weights: dict[str, float], label_names: tuple[str, ...]) -> Tensor:
    if set(weights) != set(label_names):
        raise ConfigError(
            f"class_weights lists {', '.join(sorted(weights))}: list every label once, "
            f"{', '.join(label_names)}"
        )
    values = [weights[name] for name in label_names]
    if min(values) < 0 or max(values) == 0:
        raise ConfigError("class_weights: weights are at least 0, and one is more than 0")
    return torch.tensor(values)
