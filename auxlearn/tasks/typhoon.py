"""Typhoon: tokens that the loss of the primary task depends on, as training proceeds."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.registry import register_task
from auxlearn.data.batches import Batch
from auxlearn.data.tokens import vocabulary_ids
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import rescale_to_mean
from auxlearn.tasks.base import ScoredMasking, ScoredMaskingOptions


class TyphoonOptions(ScoredMaskingOptions):
    decay: float = Field(0.9, ge=0, lt=1)
    """Share of the past in the moving average of a step."""


@register_task("typhoon")
class Typhoon(ScoredMasking):
    r"""Mask the token types more often at which the primary loss has a large gradient.

    Abdurrahman, Elezabi and Xu 2023, `Typhoon <https://arxiv.org/abs/2303.15619>`_. Each token type
    :math:`v` has a score :math:`s_v \leftarrow \beta s_v + (1 - \beta) g_v`, where :math:`g_v` is
    the mean, over the tokens of the type in the batch of the primary task, of the norm of the
    primary loss's gradient with respect to the token's input embedding, divided by the mean norm
    in the batch. A type that was not seen yet has the mean score of the others; in the first step
    masking is random. The paper's second version finds, in 90 runs, no strategy reliably better
    than random masking.

    It departs from the paper in these points: norms are relative to the batch, so that neither the
    weight of the primary task nor its falling loss changes scores; the gradient is that with
    respect to the embedding, not to the one-hot vector of the token; the rate is exact in every
    text, not on average. With a weighting that unrolls optimizer steps it stays random masking.
    """

    Options = TyphoonOptions
    options: TyphoonOptions
    watches_primary = True

    def scores(self, context: ObjectiveContext) -> Tensor:
        """Return equal scores; and forget what was seen."""
        size = vocabulary_ids(context.encoder.tokenizer)[-1] + 1
        self.average = torch.zeros(size, dtype=torch.float64)
        self.seen = torch.zeros(len(self.average), dtype=torch.bool)
        return torch.ones((), dtype=torch.float64).expand(len(self.texts.input_ids))

    def observe_primary(self, token_ids: Tensor, gradients: Tensor) -> None:
        ids, norms = token_ids.flatten(), gradients.flatten(0, -2).double().norm(dim=-1)
        ids, norms = ids[norms > 0], norms[norms > 0]  # padding has no gradient
        if not len(norms):
            return
        totals = torch.zeros_like(self.average).index_add_(0, ids, norms / norms.mean())
        counts = ids.bincount(minlength=len(totals))
        here = counts > 0
        means = totals[here] / counts[here]
        decay = torch.where(self.seen[here], self.options.decay, 0.0)
        self.average[here] = decay * self.average[here] + (1 - decay) * means
        self.seen |= here

    def mask_probabilities(self, batch: Batch) -> Tensor:
        mean = self.average[self.seen].mean() if self.seen.any() else 1.0
        scores = torch.where(self.seen, self.average, mean)[batch.input_ids]
        probabilities = rescale_to_mean(scores, batch.maskable, self.options.probability)
        return self.arranged(probabilities, batch)

    def state_dict(self) -> dict[str, Tensor]:
        return {"average": self.average, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.average, self.seen = state["average"].clone(), state["seen"].clone()
