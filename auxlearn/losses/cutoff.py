"""Common part of Span Cutoff and HiddenCut: agreement with a pass that sees less of the text."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.errors import ConfigError, EncoderError
from auxlearn.core.validation import Described
from auxlearn.data.batches import Batch
from auxlearn.encoders.cutting import check_cuttable
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.losses.base import PrimaryLoss, jensen_shannon, reversed_jensen_shannon
from auxlearn.objectives.base import labels_of
from auxlearn.objectives.context import ObjectiveContext


class CutoffOptions(Described):
    share: float = Field(0.1, gt=0, lt=1)
    """Share of a text's tokens that are cut out."""

    cut_weight: float = Field(1.0, ge=0)
    """Weight of the cross-entropy of the pass without the span."""

    divergence_weight: float = Field(1.0, ge=0)
    """Weight of the divergence of the two passes' class probabilities."""

    divergence: Literal["js", "released"] = "js"
    """js: the Jensen-Shannon divergence of the paper; released: what the authors' code computes in
    its place, with the two arguments of each KL divergence exchanged."""


class CutoffLoss(PrimaryLoss):
    """``CE(p) + cut_weight CE(p_cut) + divergence_weight D(p, p_cut)``, means over the examples.

    Gradients go through both passes.
    """

    Options = CutoffOptions
    options: CutoffOptions
    compilable = False

    def prepare(self, context: ObjectiveContext) -> None:
        try:
            check_cuttable(context.encoder)
        except EncoderError as error:
            raise ConfigError(f"loss '{self.name}': {error}") from None

    @abstractmethod
    def cut_logits(
        self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator
    ) -> Tensor:
        """Return the class logits of a pass without a span of each text, ``(batch, classes)``."""

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        logits = encoder.classify(batch)
        cut = self.cut_logits(encoder, batch, generator)
        return cutoff_loss(logits, cut, labels_of(batch, logits), self.options)


def cutoff_loss(
    logits: Tensor, cut_logits: Tensor, labels: Tensor, options: CutoffOptions
) -> Tensor:
    """Return the mean loss over the examples, a scalar in nats."""
    log_p, log_cut = logits.log_softmax(-1), cut_logits.log_softmax(-1)
    diverge = jensen_shannon if options.divergence == "js" else reversed_jensen_shannon
    return (
        nn.functional.nll_loss(log_p, labels)
        + options.cut_weight * nn.functional.nll_loss(log_cut, labels)
        + options.divergence_weight * diverge(log_p, log_cut).mean()
    )


def share_of_lengths(batch: Batch, share: float) -> Tensor:
    """Return floor(share * length) of each text, in tokens, ``(batch,)``."""
    return (batch.attention_mask.sum(1).double() * share).long()


def spans(starts: Tensor, lengths: Tensor, width: int) -> Tensor:
    """Return the tokens of one span per text, ``(batch, width)``, bool."""
    positions = torch.arange(width, device=starts.device)
    return (positions >= starts[:, None]) & (positions < (starts + lengths)[:, None])
