"""Base class of the losses of the primary task, class weights and divergences."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from auxlearn.core.errors import ConfigError
from auxlearn.core.validation import Described
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.kinds.base import Kind
from auxlearn.objectives.base import Objective
from auxlearn.objectives.context import ObjectiveContext


class PrimaryLoss(Objective):
    """The loss that the classifier is trained with.

    It may look at the texts several times, change them, or use values of each example that it has
    computed in :meth:`prepare`. Evaluation, the validation loss of learned weights and the exported
    model are those of the classifier, whatever the loss.

    A new loss defines :meth:`loss`::

        @register_loss("brier")
        class Brier(PrimaryLoss):
            def loss(self, encoder, batch, generator):
                logits = encoder.classify(batch)
                truth = one_hot(labels_of(batch, logits), logits.shape[1])
                return (logits.softmax(-1) - truth).square().sum(-1).mean()

    Attributes:
        compilable: Whether the loss can be computed with a compiled encoder, or with gradient
            checkpointing.
        kinds: Kinds of labels that it is a loss of, and of all that are derived from these.
        facts: Numbers about what the loss has prepared, by name, such as the accuracy of a bias
            model; they are recorded with the results, under ``auxiliary`` and ``primary``.
    """

    compilable: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...]] = ("classification",)
    facts: Mapping[str, float] = {}

    @classmethod
    def takes(cls, kind: Kind) -> bool:
        """Whether it is a loss of a kind of labels."""
        return kind.is_one_of(cls.kinds)

    @abstractmethod
    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the mean loss over the examples of a labelled mini-batch, a scalar.

        With gradient accumulation the losses of micro-batches are weighted by their numbers of
        examples, or of words where these have the labels. ``encoder.classify(batch)`` returns the
        class logits; ``batch.labels`` are the classes, ``batch.indices`` numbers of training
        examples, with ``context.split.texts``. A task that changes the primary batch, such as
        ``mask_tuning``, has changed it. See :meth:`Objective.loss
        <auxlearn.objectives.base.Objective.loss>` for the parameters.
        """


class ClassWeightOptions(Described):
    class_weights: Literal["none", "balanced"] | dict[str, float] = "none"
    """Weight of the examples of each class: none; balanced, in inverse proportion to the class's
    number of training examples; or a weight for every label. Of several labels, that of the
    examples that have it; of tags, that of the words."""


class ClassWeightedLoss(PrimaryLoss):
    """Base class of losses that are a mean over the choices of an example's class, weighted.

    A choice is that of a class for an example, of a tag for a word, or of whether an example has a
    label. torch's own weighted means divide by the sum of the weights instead, which gives an
    example another weight in each batch and another one with gradient accumulation. ``balanced``
    weights are those of scikit-learn: choices / (classes * choices of the class), where each of
    several labels is a choice of its own between two classes.
    """

    Options = ClassWeightOptions
    options: ClassWeightOptions
    class_weights: Tensor | None = None

    def prepare(self, context: ObjectiveContext) -> None:
        self.class_weights = chosen_class_weights(self.options, context)

    def weighted_mean(self, losses: Tensor, outcomes: Tensor) -> Tensor:
        """Return the mean of the losses, each times the weight of its true class; a scalar."""
        if self.class_weights is not None:
            losses = self.class_weights[outcomes] * losses
        return losses.sum() / max(1, len(losses))  # a part of a batch may have no word


def chosen_class_weights(options: ClassWeightOptions, context: ObjectiveContext) -> Tensor | None:
    """Return the weight of each outcome on the encoder's device, ``(outcomes,)``, if any."""
    chosen, split = options.class_weights, context.split
    if chosen == "none":
        return None
    kind, names = split.kind, split.label_names
    if isinstance(chosen, dict):
        weights = torch.tensor(kind.outcome_weights(_listed(chosen, names)))
    else:
        outcomes = kind.outcomes(kind.targets(split.labels or (), len(names)))
        weights = balanced_weights(outcomes, len(kind.outcome_weights([1.0] * len(names))))
    return weights.to(context.device)


def balanced_weights(outcomes: Tensor, count: int) -> Tensor:
    """Return scikit-learn's weights inverse to frequencies, ``(count,)``; 1 for what is absent."""
    counts = outcomes.bincount(minlength=count).double()
    weights = len(outcomes) / ((counts > 0).sum() * counts)
    return weights.where(counts > 0, 1.0).float()


def _listed(weights: dict[str, float], label_names: tuple[str, ...]) -> list[float]:
    if set(weights) != set(label_names):
        raise ConfigError(
            f"class_weights lists {', '.join(sorted(weights))}: list every label once, "
            f"{', '.join(label_names)}"
        )
    values = [weights[name] for name in label_names]
    if min(values) < 0 or max(values) == 0:
        raise ConfigError("class_weights: weights are at least 0, and one is more than 0")
    return values


def gold(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the value of the gold class of each example, ``(batch,)``."""
    return probabilities.gather(-1, labels[:, None]).squeeze(-1)


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(p || q) of each example, ``(batch,)``, given their logarithms."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def symmetric_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return (KL(p || q) + KL(q || p)) / 2 of each example, ``(batch,)``."""
    return (kl_divergence(log_p, log_q) + kl_divergence(log_q, log_p)) / 2


def jensen_shannon(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return (KL(p || m) + KL(q || m)) / 2 of each example, m = (p + q) / 2, ``(batch,)``."""
    log_m = _log_mean(log_p, log_q)
    return (kl_divergence(log_p, log_m) + kl_divergence(log_q, log_m)) / 2


def reversed_jensen_shannon(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return (KL(m || p) + KL(m || q)) / 2 of each example, m = (p + q) / 2: what the released code
    of Cutoff and HiddenCut calls the Jensen-Shannon divergence; it is unbounded.
    """
    log_m = _log_mean(log_p, log_q)
    return (kl_divergence(log_m, log_p) + kl_divergence(log_m, log_q)) / 2


def _log_mean(log_p: Tensor, log_q: Tensor) -> Tensor:
    return torch.logaddexp(log_p, log_q) - math.log(2)
