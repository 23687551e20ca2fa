"""Cross-entropy, with label smoothing and class weights."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor, nn

from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.errors import ConfigError
from auxlearn.losses.base import PrimaryLoss
from auxlearn.objectives.base import labels_of
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.registry import register_loss
from auxlearn.settings import Settings


class ClassWeightOptions(Settings):
    """Settings of losses with a weight for each class."""

    class_weights: Literal["none", "balanced"] | dict[str, float] = Field(
        "none",
        description="Weight of the examples of each class: none; balanced, in inverse proportion "
        "to the class's number of training examples; or a weight for every label.",
    )


class CrossEntropyOptions(ClassWeightOptions):
    """Settings of the cross-entropy."""

    label_smoothing: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the target probability that is spread evenly over all classes.",
    )


@register_loss("cross_entropy")
class CrossEntropy(PrimaryLoss):
    """Mean cross-entropy of the class labels, in nats; the default.

    Label smoothing is that of Szegedy et al. 2016, `Rethinking the Inception Architecture
    <https://arxiv.org/abs/1512.00567>`_, section 7. ``balanced`` class weights are those of
    scikit-learn: examples / (classes * examples of the class).

    The loss is the mean over the examples of weight times loss. torch's own weighted mean divides
    by the sum of the weights instead, which gives an example another weight in each batch and
    another one with gradient accumulation.
    """

    Options = CrossEntropyOptions
    options: CrossEntropyOptions
    class_weights: Tensor | None = None

    def prepare(self, context: ObjectiveContext) -> None:
        """Compute the class weights."""
        self.class_weights = chosen_class_weights(self.options, context)

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the mean over the examples of class weight times cross-entropy."""
        logits = encoder.classify(batch)
        labels = labels_of(batch, logits)
        smoothing = self.options.label_smoothing
        if self.class_weights is None:
            return nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)
        losses = nn.functional.cross_entropy(
            logits, labels, label_smoothing=smoothing, reduction="none"
        )
        return (self.class_weights[labels] * losses).mean()


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
