"""Batches: padding and its inverse, order, independence of streams."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from auxlearn.data import batches
from auxlearn.data.batches import (
    BatchStream,
    UniformStream,
    collate,
    eval_batches,
    pad_token_values,
    unpad_token_values,
)
from tests.helpers import LINES, ragged, tokenized

lengths_of_rows = st.lists(st.integers(2, 9), min_size=1, max_size=40)


@settings(max_examples=80, deadline=None)
@given(lengths_of_rows, st.data())
def test_unpad_token_values_inverts_pad_token_values(lengths, data):
    texts = ragged(lengths)
    order = data.draw(st.permutations(range(len(lengths))))
    rows = torch.tensor(order[: data.draw(st.integers(1, len(order)))])
    flat = torch.rand(sum(lengths), generator=torch.Generator().manual_seed(0))
    padded = pad_token_values(texts, flat, rows, -5)
    assert padded.shape == (len(rows), int(texts.lengths[rows].max()))
    back = torch.full_like(flat, 9.0)
    unpad_token_values(texts, padded, rows, back)
    for index, row in enumerate(rows.tolist()):
        start, end = texts.offsets[row : row + 2].tolist()
        assert torch.equal(padded[index, : end - start], flat[start:end])
        assert (padded[index, end - start :] == -5).all()
        assert torch.equal(back[start:end], flat[start:end])
    untouched = torch.ones(len(lengths), dtype=torch.bool)
    untouched[rows] = False
    assert int((back == 9.0).sum()) == int(texts.lengths[untouched].sum())


def test_collate(tiny_bert):
    texts = tokenized(tiny_bert, LINES[:4], labels=[0, 1, 2, 1])
    rows = torch.tensor([3, 0])
    batch = collate(texts, rows)
    expected = tiny_bert.tokenizer([LINES[3], LINES[0]], padding=True, return_tensors="pt")
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert torch.equal(getattr(batch, name), expected[name])
    assert (batch.labels.tolist(), batch.indices.tolist(), len(batch)) == ([1, 0], [3, 0], 2)
    padding = batch.attention_mask == 0
    assert padding.any()
    assert not batch.maskable[padding].any()
    assert (batch.words[padding] == -1).all()
    words = [-1 if word is None else word for word in expected.word_ids(0)]
    assert batch.words[0].tolist() == words
    for name in ("input_ids", "attention_mask", "words", "indices", "labels", "token_type_ids"):
        assert getattr(batch, name).dtype == torch.int64, name


@settings(max_examples=60, deadline=None)
@given(lengths_of_rows, st.integers(1, 9), st.integers(0, 5))
def test_every_text_occurs_once_per_epoch(lengths, batch_size, seed):
    stream = BatchStream(ragged(lengths), batch_size, seed, "primary")
    steps = stream.steps_per_epoch
    assert steps == -(-len(lengths) // batch_size)
    for epoch in range(2):
        rows = [stream.indices(epoch * steps + step) for step in range(steps)]
        assert sorted(torch.cat(rows).tolist()) == list(range(len(lengths)))
        assert sum(len(part) != batch_size for part in rows) <= 1


def sequence(stream, steps):
    return [stream.indices(step).tolist() for step in steps]


def test_a_batch_depends_on_seed_name_and_step_only():
    texts = ragged([3, 5, 4, 6, 8, 2, 7, 9, 5, 4, 3] * 4)
    steps = list(range(30))
    whole = sequence(BatchStream(texts, 4, 0, "primary"), steps)
    assert sequence(BatchStream(texts, 4, 0, "primary"), steps) == whole
    # Random access, as after a kill, gives what reading in order gives.
    order = torch.randperm(30, generator=torch.Generator().manual_seed(3)).tolist()
    jumping = dict(zip(order, sequence(BatchStream(texts, 4, 0, "primary"), order), strict=True))
    assert [jumping[step] for step in steps] == whole
    # Another use of the global generators is no use of the stream's.
    with torch.random.fork_rng():
        torch.manual_seed(99)
        assert sequence(BatchStream(texts, 4, 0, "primary"), steps) == whole
    for seed, name in [(1, "primary"), (0, "l3mask")]:
        assert sequence(BatchStream(texts, 4, seed, name), steps) != whole
    assert whole[:11] != whole[11:22]  # every epoch has an order of its own


def test_batches_group_texts_of_similar_length(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    texts = ragged(torch.randint(2, 60, (400,), generator=generator).tolist())

    def padding(stream):
        spread = [texts.lengths[stream.indices(step)] for step in range(stream.steps_per_epoch)]
        return sum(int((lengths.max() - lengths).sum()) for lengths in spread)

    bucketed = padding(BatchStream(texts, 8, 0, "primary"))
    monkeypatch.setattr(batches, "BUCKET_BATCHES", 1)
    assert bucketed < padding(BatchStream(texts, 8, 0, "primary")) / 5


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_eval_batches_cover_every_text_once(batch_size):
    texts = ragged([3, 9, 4, 4, 6, 2, 8])
    found = eval_batches(texts, batch_size)
    assert sorted(torch.cat(found).tolist()) == list(range(7))
    assert all(len(rows) <= batch_size for rows in found)
    lengths = texts.lengths[torch.cat(found)]
    assert (lengths.diff() <= 0).all()


@pytest.mark.parametrize(
    ("rows", "size", "batches"), [(20, 4, 5), (23, 4, 5), (3, 8, 1), (8, 8, 1)]
)
def test_uniform_batches_are_full_and_repeat_no_text_within_an_epoch(rows, size, batches):
    stream = UniformStream(ragged([5] * rows), size, 0, "validation")
    assert stream.steps_per_epoch == batches
    seen = set()
    for epoch in range(40):
        drawn = [stream.indices(epoch * batches + step).tolist() for step in range(batches)]
        assert {len(batch) for batch in drawn} == {min(size, rows)}
        together = [row for batch in drawn for row in batch]
        assert len(set(together)) == len(together)
        seen |= set(together)
    assert seen == set(range(rows))
    again = UniformStream(ragged([5] * rows), size, 0, "validation")
    assert torch.equal(again.indices(7), stream.indices(7))
