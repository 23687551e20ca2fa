"""Heads of objectives that classify texts."""

from __future__ import annotations

from torch import nn

from auxlearn.encoders.shared import SharedEncoder


def classification_head(encoder: SharedEncoder, classes: int) -> nn.Module:
    """Return a newly initialised head from :meth:`SharedEncoder.features` to class logits.

    It is BERT's pooler and classifier: a dense layer, tanh, dropout and an output layer, with
    weights drawn as those of the encoder's own heads.

    Args:
        encoder: The encoder whose features it takes; gives sizes, dropout and initialisation.
        classes: Number of classes.
    """
    config, size = encoder.config, encoder.hidden_size
    dropout = getattr(config, "classifier_dropout", None)
    for name in ("hidden_dropout_prob", "dropout", "hidden_dropout"):
        dropout = getattr(config, name, None) if dropout is None else dropout
    dense, output = nn.Linear(size, size), nn.Linear(size, classes)
    deviation = float(getattr(config, "initializer_range", getattr(config, "init_std", 0.02)))
    for layer in (dense, output):
        nn.init.normal_(layer.weight, std=deviation)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(dense, nn.Tanh(), nn.Dropout(dropout or 0.0), output)
