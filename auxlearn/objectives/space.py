"""The space of objectives: which combinations are legal, and how a text is read in an order.

Pure functions of AANG's axes (Dery et al. 2023, https://arxiv.org/abs/2205.14082): data, transform
of the input, representation and output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from auxlearn.data.batches import Batch

Transform = Literal["none", "mask", "replace", "bert"]
Representation = Literal["bidirectional", "left_to_right", "right_to_left", "random"]
Output = Literal["denoise", "label", "tf", "tf_idf", "capital"]

#: The data that have labels.
TASK_TEXT = "task"


class Combination(NamedTuple):
    """One objective of the space."""

    data: str  # texts that it is computed on
    transform: Transform  # what becomes of the chosen tokens
    representation: Representation  # which tokens each token attends to
    output: Output  # what is predicted


def combinations(
    data: Sequence[str],
    transforms: Sequence[Transform],
    representations: Sequence[Representation],
    outputs: Sequence[Output],
) -> list[Combination]:
    """Return the legal combinations, each once.

    Labels are known of the task's own texts alone, and are not predicted in one direction, as in
    the authors' code (``get_illegal_sets`` of ``searchspace_options.py``).

    >>> orders = ("bidirectional", "left_to_right", "right_to_left", "random")
    >>> len(combinations(["task"], ["none", "mask", "bert"], orders, ["denoise", "label"]))
    18
    """
    every = map(Combination._make, product(data, transforms, representations, outputs))
    return [
        one
        for one in dict.fromkeys(every)
        if one.output != "label"
        or (one.data == TASK_TEXT and one.representation in ("bidirectional", "random"))
    ]


def reading_order(
    representation: Representation, batch: Batch, generator: torch.Generator
) -> Tensor | None:
    """Return when each token is read, ``(batch, length)``, float64; ``None`` if all attend to all.

    A token attends to itself and to those that are read before it. In random order (the
    permutations of XLNet, Yang et al. 2019, https://arxiv.org/abs/1906.08237, eq. 3) special tokens
    come first, together, and the first token of a text, which stands for the text, last: it attends
    to all others, and none attends to it. One number is drawn for each token but padding.
    """
    if representation == "bidirectional":
        return None
    places = torch.arange(batch.input_ids.shape[1], dtype=torch.float64).expand(
        batch.input_ids.shape
    )
    if representation == "left_to_right":
        return places
    if representation == "right_to_left":
        return -places
    inside = batch.attention_mask.bool()
    order = torch.zeros(inside.shape, dtype=torch.float64)
    order[inside] = torch.rand(int(inside.sum()), generator=generator, dtype=torch.float64)
    order[batch.words < 0] = -1
    order[:, 0] = 2
    return order


def attends_in_order(order: Tensor, batch: Batch) -> Tensor:
    """Return what each token attends to, ``(batch, length, length)``; padding, to itself too."""
    inside = batch.attention_mask.bool()[:, None]
    own = torch.eye(order.shape[1], dtype=torch.bool)
    return (order[:, None] <= order[:, :, None]) & inside | own


class Slots(NamedTuple):
    """Texts with a slot behind them for each token that is to be predicted."""

    batch: Batch  # token ids, attention mask and segments of texts and slots
    attends: Tensor  # which tokens and slots each attends to, (batch, length + slots, ...), bool
    positions: Tensor  # position of each in its text, (batch, length + slots)
    predicted: Tensor  # slots of ``chosen``, in its row-major order, ``(batch, length + slots)``


def with_slots(batch: Batch, order: Tensor, chosen: Tensor, mask_id: int) -> Slots:
    """Give each chosen token a slot that predicts it from the tokens that are read before it.

    A token that stays in the text must not be seen where it is predicted. XLNet computes a second
    stream of states for this (section 2.3); here it is a mask token behind the text, with the
    position of the token, to which nothing else attends.
    """
    length, counts = chosen.shape[1], chosen.sum(1)
    width = int(counts.max()) if len(counts) else 0
    places = chosen.long().argsort(dim=1, descending=True, stable=True)[:, :width]
    filled = torch.arange(width) < counts[:, None]
    slots = torch.full_like(places, mask_id)
    inside = batch.attention_mask.bool()[:, None]
    before = (order[:, None] < order.gather(1, places)[:, :, None]) & inside
    own = torch.eye(width, dtype=torch.bool).expand(len(places), -1, -1)
    unseen = torch.zeros(len(places), length, width, dtype=torch.bool)
    types = batch.token_type_ids
    return Slots(
        replace(
            batch,
            input_ids=torch.cat([batch.input_ids, slots], 1),
            attention_mask=torch.cat([batch.attention_mask, filled.long()], 1),
            token_type_ids=None
            if types is None
            else torch.cat([types, types.gather(1, places)], 1),
        ),
        torch.cat(
            [torch.cat([attends_in_order(order, batch), unseen], 2), torch.cat([before, own], 2)], 1
        ),
        torch.cat([torch.arange(length).expand(len(places), -1), places], 1),
        torch.cat([torch.zeros_like(chosen), filled], 1),
    )
