"""An auxiliary task with a head of its own: is a text longer than most?"""

from torch import nn

from auxlearn.plugins import AuxiliaryTask, classification_head, register_task, upload


@register_task("long_or_short")
class LongOrShort(AuxiliaryTask):
    """Tell texts longer than the median from shorter ones."""

    def prepare(self, context):
        super().prepare(context)
        self.median = self.texts.lengths.median()
        self.head = context.add_head("length", lambda: classification_head(context.encoder, 2))

    def loss(self, encoder, batch, generator):
        logits = encoder.apply_head(self.head, encoder.features(batch))
        is_long = (batch.attention_mask.sum(1) > self.median).long()
        return nn.functional.cross_entropy(logits, upload(is_long, logits.device))
