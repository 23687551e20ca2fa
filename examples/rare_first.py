"""An auxiliary task in twenty lines: mask words that are rare in the training texts.

Use it with ``auxlearn train --plugin examples/rare_first.py --aux rare_first``.
"""

import torch

from auxlearn.plugins import MaskedLanguageModelling, register_task, rescale_to_mean


@register_task("rare_first")
class RareFirst(MaskedLanguageModelling):
    """Mask tokens with probabilities proportional to minus the logarithm of their frequency."""

    def prepare(self, context):
        super().prepare(context)
        counts = torch.bincount(self.texts.input_ids).double()
        self.surprisal = -(counts / counts.sum()).log()

    def mask_probabilities(self, batch):
        scores = self.surprisal[batch.input_ids]
        return rescale_to_mean(
            scores.masked_fill(~batch.maskable, 0), batch.maskable, self.options.probability
        )
