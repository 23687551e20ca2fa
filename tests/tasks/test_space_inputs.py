"""The space of objectives: which combinations are legal, and in which order a text is read."""

from typing import get_args

import pytest
import torch

from auxlearn.data.batches import collate
from auxlearn.tasks.space import (
    Output,
    Representation,
    Transform,
    attends_in_order,
    combinations,
    reading_order,
    with_slots,
)
from tests.helpers import ragged

TRANSFORMS, REPRESENTATIONS = get_args(Transform), get_args(Representation)


def space(data, outputs):
    return combinations(data, TRANSFORMS, REPRESENTATIONS, outputs)


def test_task_text_alone_has_the_24_objectives_of_the_paper():
    found = space(["task"], ["denoise", "label"])
    assert TRANSFORMS == ("none", "mask", "replace", "bert")
    denoise = [one[1:3] for one in found if one.output == "denoise"]
    label = [one[1:3] for one in found if one.output == "label"]
    every = ("bidirectional", "left_to_right", "right_to_left", "random")
    assert denoise == [(t, r) for t in TRANSFORMS for r in every]  # 16
    assert label == [(t, r) for t in TRANSFORMS for r in ("bidirectional", "random")]  # 8
    assert len(found) == len(set(found)) == 24
    assert space(["task"], ["denoise", "label", "denoise"]) == found


def test_a_corpus_adds_16_objectives_that_denoise_it():
    found = space(["task", "corpus"], ["denoise", "label"])
    added = set(found) - set(space(["task"], ["denoise", "label"]))
    assert len(found) == 40
    assert {one.data for one in added} == {"corpus"}
    assert {one.output for one in added} == {"denoise"}
    assert len({one[1:3] for one in added}) == 16
    assert len(space(["task", "corpus_0", "corpus_1"], ["denoise", "label"])) == 56
    assert len(space(["task", "corpus"], get_args(Output))) == 24 + 2 * 16 + 3 * 16


@pytest.fixture
def batch():
    return collate(ragged([6, 4]), torch.arange(2))


def reads(representation, batch, seed=0):
    return reading_order(representation, batch, torch.Generator().manual_seed(seed))


def test_directions_are_triangles(batch):
    assert reads("bidirectional", batch) is None
    left = attends_in_order(reads("left_to_right", batch), batch)
    right = attends_in_order(reads("right_to_left", batch), batch)
    square = torch.ones(6, 6, dtype=torch.bool)
    assert torch.equal(left[0], square.tril())
    assert torch.equal(right[0], square.triu())
    for found, whole in ((left, square.tril()), (right, square.triu())):
        whole = whole.clone()
        whole[:, 4:] = False  # padding is not attended to, and attends to itself
        assert torch.equal(found[1], whole | torch.eye(6, dtype=torch.bool))


def test_a_random_order_is_a_permutation_with_the_first_token_last(batch):
    order = reads("random", batch)
    attends = attends_in_order(order, batch)
    inner = (batch.words[0] >= 0).nonzero().squeeze(1)
    # Each token sees one more than the one read before it: a permutation.
    assert sorted(attends[0][inner][:, inner].sum(1).tolist()) == [*range(1, len(inner) + 1)]
    assert attends[0, 0].all()
    assert attends[0, 1:, 0].sum() == 0
    assert attends[1, 0].tolist() == [True] * 4 + [False] * 2
    ends = ((batch.words[0] < 0) & (torch.arange(6) > 0)).nonzero().squeeze(1)
    assert attends[0][:, ends].all()
    assert not torch.equal(order, reads("random", batch, seed=1))


def test_an_order_does_not_depend_on_padding(batch):
    alone = collate(ragged([6, 4]), torch.tensor([0]))
    wide = collate(ragged([6, 9]), torch.arange(2))
    assert torch.equal(reads("random", alone)[0], reads("random", wide)[0, :6])


def test_slots_are_as_many_as_the_chosen_tokens_and_unseen(batch):
    chosen = torch.zeros_like(batch.maskable)
    chosen[0, [2, 3]] = chosen[1, 1] = True
    found = with_slots(batch, reads("left_to_right", batch), chosen, mask_id=99)
    assert found.batch.input_ids[:, 6:].tolist() == [[99, 99], [99, 99]]
    assert found.batch.attention_mask[:, 6:].tolist() == [[1, 1], [1, 0]]
    assert found.predicted.nonzero().tolist() == [[0, 6], [0, 7], [1, 6]]
    assert found.positions[0].tolist() == [0, 1, 2, 3, 4, 5, 2, 3]
    assert found.attends[0, 6].tolist() == [True, True, *[False] * 4, True, False]
    assert found.attends[0, 7].tolist() == [True] * 3 + [False] * 4 + [True]
    assert not found.attends[:, :6, 6:].any()
