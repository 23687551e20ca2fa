"""Whole-word masking: all tokens of a word are masked, or none."""

from __future__ import annotations

import torch
from torch import Tensor

from auxlearn.core.registry import register_task
from auxlearn.data.batches import Batch
from auxlearn.tasks.random_mlm import RandomMLM


@register_task("whole_word")
class WholeWord(RandomMLM):
    """Mask whole words with the same probability.

    Devlin et al. 2019, the later release of `BERT <https://github.com/google-research/bert>`_:
    every word of a text is masked with ``probability``, with all of its tokens. Words are those of
    the tokenizer; in scripts without spaces each token is one.

    It departs from the release in this point: each word is chosen independently; there, words are
    taken in random order until 15% of the tokens are masked.
    """

    def units(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the words."""
        return batch.words
