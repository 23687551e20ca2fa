"""An auxiliary task in twenty lines: mask long tokens more often than short ones.

Use it with ``auxlearn train --plugin examples/long_first.py --aux long_first``.
"""

import torch

from auxlearn.plugins import MaskedLanguageModelling, register_task, rescale_to_mean


@register_task("long_first")
class LongFirst(MaskedLanguageModelling):
    """Mask tokens with probabilities proportional to their numbers of characters."""

    def prepare(self, context):
        super().prepare(context)
        tokenizer = context.encoder.tokenizer
        tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        self.characters = torch.tensor([len(token) for token in tokens])

    def mask_probabilities(self, batch):
        scores = self.characters[batch.input_ids]
        return rescale_to_mean(scores, batch.maskable, self.options.probability)
