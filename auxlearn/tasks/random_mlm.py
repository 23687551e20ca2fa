"""Random token masking, the masked language modelling of BERT and RoBERTa."""

from __future__ import annotations

from torch import Tensor

from auxlearn.core.registry import register_task
from auxlearn.data.batches import Batch
from auxlearn.objectives.masking import uniform
from auxlearn.tasks.base import MaskedLanguageModelling


@register_task("random_mlm")
class RandomMLM(MaskedLanguageModelling):
    """Mask every token with the same probability.

    Devlin et al. 2019, `BERT <https://arxiv.org/abs/1810.04805>`_, section 3.1; "random token
    masking" (RTM) in L3Masking.
    """

    def mask_probabilities(self, batch: Batch) -> Tensor:
        """Return the same probability for every maskable token."""
        return uniform(batch.maskable, self.options.probability)
