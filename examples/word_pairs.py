"""Mask neighbouring words in pairs: tokens that are chosen together."""

from auxlearn.plugins import MaskedLanguageModelling, register_task, uniform


@register_task("word_pairs")
class WordPairs(MaskedLanguageModelling):
    """Mask whole words, two neighbours at a time."""

    def mask_probabilities(self, batch):
        return uniform(batch.maskable, self.options.probability)

    def units(self, batch, generator):
        return batch.words // 2  # -1 for special tokens and padding
