"""A loss of the primary task: the Brier score."""

from torch import nn

from auxlearn.plugins import PrimaryLoss, labels_of, register_loss


@register_loss("brier")
class Brier(PrimaryLoss):
    """Mean squared distance of the class probabilities from the true class."""

    def loss(self, encoder, batch, generator):
        logits = encoder.classify(batch)
        truth = nn.functional.one_hot(labels_of(batch, logits), logits.shape[1])
        return (logits.softmax(-1) - truth).square().sum(-1).mean()
