"""An auxiliary task in twenty lines: mask the words that are rare in the training texts.

Use it with ``auxlearn train --plugin examples/rare_first.py --aux rare_first``.
"""

import torch

import auxlearn
from auxlearn.masking.probabilities import rescale_to_mean


@auxlearn.register_task("rare_first")
class RareFirst(auxlearn.MaskedLanguageModelling):
    """Mask a token in proportion to minus the logarithm of its share of all tokens."""

    def prepare(self, context):
        super().prepare(context)
        counts = torch.bincount(self.texts.input_ids).double()
        self.surprisal = -(counts / counts.sum()).log()

    def mask_probabilities(self, batch):
        scores = self.surprisal[batch.input_ids]
        return rescale_to_mean(
            scores.masked_fill(~batch.maskable, 0), batch.maskable, self.options.probability
        )
