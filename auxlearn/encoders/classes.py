"""Which rows of a checkpoint's classifier belong to the classes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn


def keep_classes(
    classifier: Any,
    names: Mapping[int, str],
    label_names: Sequence[str],
    info: Mapping[str, Any],
) -> bool | None:
    """Keep the output layer of a classifier if it is for the same labels; else re-initialise it.

    transformers keeps any output layer that has the same number of rows, whatever the labels are.

    Args:
        classifier: The classifier as it was loaded, with ``len(label_names)`` rows.
        names: Label of each row in the checkpoint.
        label_names: Label of each row that is wanted.
        info: What ``from_pretrained`` returns with ``output_loading_info``.

    Returns:
        Whether the layer was kept; ``None`` if the checkpoint has none.
    """
    name, layer = _output_layer(classifier)
    if f"{name}.weight" in info["missing_keys"]:
        return None
    if f"{name}.weight" in {key for key, *_ in info["mismatched_keys"]}:
        return False  # another number of labels: transformers has re-initialised it
    own = [names.get(number) for number in range(len(names))]
    if sorted(map(str, own)) == sorted(label_names):
        order = [own.index(label) for label in label_names]
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(parameter[order].clone())
        return True
    for parameter in layer.parameters():
        vars(parameter).pop("_is_hf_initialized", None)  # else transformers leaves it as it is
    classifier._init_weights(layer)
    return False


def _output_layer(classifier: Any) -> tuple[str, nn.Linear]:
    """Return name and module of the last linear layer outside the body."""
    body = f"{classifier.base_model_prefix}."
    layers = [
        (name, module)
        for name, module in classifier.named_modules()
        if isinstance(module, nn.Linear) and not name.startswith(body)
    ]
    return layers[-1]
