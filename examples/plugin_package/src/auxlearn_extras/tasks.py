"""Which of the frequent words does a text have?"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.plugins import (
    AuxiliaryTask,
    Batch,
    ConfigError,
    ObjectiveContext,
    Settings,
    SharedEncoder,
    register_task,
    upload,
)


class FrequentWordsOptions(Settings):
    """Settings of the task."""

    words: int = Field(100, ge=1, description="Number of the most frequent tokens to predict.")


@register_task("frequent_words")
class FrequentWords(AuxiliaryTask):
    """Predict from a text's representation which of the most frequent tokens it has.

    The loss is the binary cross-entropy, in nats, averaged over texts and tokens.
    """

    Options = FrequentWordsOptions
    options: FrequentWordsOptions

    def prepare(self, context: ObjectiveContext) -> None:
        """Count the tokens and add the head."""
        super().prepare(context)
        tokens = self.texts.input_ids[self.texts.maskable].long()
        if not len(tokens):
            raise ConfigError("frequent_words needs texts with tokens that are not special ones")
        counts = torch.bincount(tokens)
        number = min(self.options.words, int((counts > 0).sum()))
        self.words = counts.argsort(descending=True, stable=True)[:number]
        size = context.encoder.hidden_size
        self.head = context.add_head("words", lambda: nn.Linear(size, number))

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the mean binary cross-entropy."""
        logits = encoder.apply_head(self.head, encoder.features(batch))
        tokens = batch.input_ids.masked_fill(~batch.maskable, -1)
        present = (tokens[:, :, None] == self.words).any(1)
        return nn.functional.binary_cross_entropy_with_logits(
            logits, upload(present, logits.device).to(logits)
        )
