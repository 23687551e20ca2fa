"""Mask neighbouring words in pairs: tokens that are chosen together."""

import torch

from auxlearn.plugins import MaskedLanguageModelling, register_task, uniform


@register_task("word_pairs")
class WordPairs(MaskedLanguageModelling):
    """Mask whole words, two neighbours at a time."""

    def mask_probabilities(self, batch):
        return uniform(batch.maskable, self.options.probability)

    def choose_tokens(self, batch, generator):
        pairs = batch.words // 2 + 1  # 0: special tokens and padding
        draws = torch.rand(len(batch), int(pairs.max()) + 1, generator=generator)
        return batch.maskable & (draws.gather(1, pairs) < self.options.probability)
