"""The task `space`: what is sampled, shared and predicted, and what it costs."""

import math
from dataclasses import replace

import pytest
import torch

from auxlearn.core.errors import ConfigError, EncoderError
from auxlearn.core.validation import validate
from auxlearn.data.batches import collate
from auxlearn.data.dataset import Split
from auxlearn.kinds.base import kind_of
from auxlearn.kinds.words import NO_TAG
from auxlearn.tasks.space import Space, SpaceOptions, frequencies
from tests import helpers
from tests.helpers import LABELS, LINES, tokenized, without_dropout

BATCH = 4


@pytest.fixture
def encoder(loaded):
    return without_dropout(loaded("bert"))


@pytest.fixture
def make(encoder, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(LINES[3:12]))

    def made(seed=0, corpora=0, **options):
        options |= {"corpus": [str(corpus)] * corpora} if corpora else {}
        task = Space(validate(SpaceOptions, options, "space"))
        labels = [number % 3 for number in range(len(LINES))]
        texts = replace(tokenized(encoder, LINES), labels=torch.tensor(labels))
        if encoder.kind.per_token:
            begins = texts.maskable & (texts.words % 3 > 0)
            tags = torch.where(begins, texts.input_ids.long() % 3, NO_TAG)
            texts = replace(texts, labels=None, tags=tags)
        encoder.heads.clear()
        context = helpers.context(encoder, texts, tmp_path, seed)
        context.name, context.split = "space", Split("train", LINES, tuple(labels), LABELS)
        task.prepare(context)
        return task, task.stream(BATCH, seed, "space")

    return made


def losses_of(task, stream, encoder, step):
    task.begin_step(step, 100)
    generator = torch.Generator().manual_seed(step)
    found = task.loss(encoder, stream.batch(step), generator)
    members = {number: loss.detach() for number, loss in found.members.items()}
    return replace(found, loss=found.loss.detach(), members=members)


@pytest.fixture
def passes(encoder, monkeypatch):
    """Tokens of each pass through the encoder."""
    found, encode = [], encoder.encode

    def counted(batch, *given):
        found.append(batch.input_ids.numel())
        return encode(batch, *given)

    monkeypatch.setattr(encoder, "encode", counted)
    return found


def test_a_step_samples_without_replacement_and_uniformly(make):
    task, _ = make(corpora=1)
    assert len(task.members) == 40
    counts = torch.zeros(40)
    for step in range(2000):
        numbers = task.sampled(step)
        assert len(set(numbers)) == 3
        assert list(numbers) == sorted(numbers)
        counts[list(numbers)] += 1
    expected = 2000 * 3 / 40
    deviation = math.sqrt(2000 * 3 / 40 * (1 - 3 / 40))
    assert float((counts - expected).abs().max()) < 4 * deviation
    assert task.sampled(7) == make(corpora=1)[0].sampled(7)
    assert any(task.sampled(step) != make(seed=1, corpora=1)[0].sampled(step) for step in range(3))


def test_all_24_objectives_need_16_passes_and_share_two_heads(make, encoder, passes):
    task, stream = make(per_step=24)
    passes.clear()
    result = losses_of(task, stream, encoder, 0)
    assert len(passes) == 16
    assert len(result.members) == 24
    assert list(encoder.heads) == ["space/label"]
    assert all(loss.isfinite() and loss > 0 for loss in result.members.values())
    mean = sum(float(loss) for loss in result.members.values()) / 24
    assert float(result.loss) == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize("corpora", [0, 1, 4])
def test_cost_grows_with_the_sample_and_not_with_the_space(make, encoder, passes, corpora):
    """24, 40 and 88 objectives: n bounds passes and tokens of a step; heads stay the same."""
    task, stream = make(corpora=corpora, per_step=3)
    assert len(task.members) == 24 + 16 * corpora
    longest = int(task.texts.lengths.max())
    for step in range(20):
        passes.clear()
        losses_of(task, stream, encoder, step)
        assert len(passes) <= 3
        assert sum(passes) <= 3 * BATCH * 2 * longest  # a slot for each token at most
        assert len(stream.indices(step)) <= 3 * BATCH
    size = encoder.hidden_size
    assert sum(p.numel() for p in encoder.heads.parameters()) == size * (size + 1) + 3 * (size + 1)


def test_data_are_read_in_turn_and_only_where_they_are_needed(make):
    task, stream = make(corpora=1)
    for step in range(20):
        rows = stream.indices(step)
        data = (rows >= len(LINES)).long().tolist()
        wanted = task.data_of(step)
        assert data == wanted * BATCH
        needed = {task.combinations[number].data for number in task.sampled(step)}
        assert needed == {task.data[number] for number in wanted}


def test_denoising_both_ways_is_masked_language_modelling(make, encoder):
    """Against transformers' own loss of each text: the mean over its masked tokens."""
    task, stream = make(transform="mask", representation="bidirectional", output="denoise")
    batch = stream.batch(0)
    result = losses_of(task, stream, encoder, 0)
    draws = torch.Generator().manual_seed(0)
    drawn = torch.rand(int(batch.maskable.sum()), generator=draws, dtype=torch.float64) < 0.15
    chosen = torch.zeros_like(batch.maskable).masked_scatter(batch.maskable, drawn)
    assert chosen.any()
    ids = batch.input_ids.masked_fill(chosen, encoder.tokenizer.mask_token_id)
    labels = batch.input_ids.masked_fill(~chosen, -100)
    losses = [
        encoder.language_model(
            input_ids=ids[row, None],
            attention_mask=batch.attention_mask[row, None],
            labels=labels[row, None],
        ).loss.item()
        for row in range(len(batch))
        if chosen[row].any()
    ]
    assert float(result.loss) == pytest.approx(sum(losses) / len(batch), rel=1e-5)


@pytest.mark.parametrize("kind", ["classification", "token_classification"])
def test_micro_batches_add_up_with_two_kinds_of_data(make, encoder, kind):
    """Parts of a batch, weighted by their examples, give the label loss of the whole."""
    encoder.kind = kind_of(kind)
    task, stream = make(corpora=1, transform="none", representation="bidirectional", per_step=3)
    step = next(s for s in range(9) if task.data_of(s) == [0, 1])
    (label,) = (n for n in task.sampled(step) if task.combinations[n].output == "label")
    batch = stream.batch(step)
    task.begin_step(step, 9)

    def loss(part):
        found = task.loss(encoder, part, torch.Generator().manual_seed(0))
        return found.members[label].item() if label in found.members else 0.0

    for size in (1, 3, 5):
        parts = [
            collate(task.texts, batch.indices[start : start + size])
            for start in range(0, len(batch), size)
        ]
        total = sum(loss(part) * len(part) / len(batch) for part in parts)
        assert total == pytest.approx(loss(batch), rel=1e-5)


def test_frequencies_of_tokens_in_their_texts():
    texts = helpers.ragged([5, 4])
    ids = torch.tensor([1, 7, 7, 8, 2, 1, 8, 9, 2], dtype=texts.input_ids.dtype)
    maskable = torch.tensor([0, 1, 1, 1, 0, 0, 1, 1, 0], dtype=torch.bool)
    tf, tf_idf = frequencies(replace(texts, input_ids=ids, maskable=maskable))
    assert tf.tolist() == [0, 10, 10, 5, 0, 0, 10, 10, 0]
    # 7 is in one of two texts, 8 in both, 9 in one.
    rare, common = math.log(1 + 3 / 2), math.log(1 + 3 / 3)
    expected = [0, 10, 10, 10 * common / (2 * rare), 0, 0, 10 * common / rare, 10, 0]
    assert tf_idf.tolist() == pytest.approx(expected, rel=1e-6)


def test_what_cannot_be_trained_is_refused_in_one_line(make, loaded, tmp_path):
    with pytest.raises(ConfigError, match="no legal objective"):
        make(output="label", representation="left_to_right")
    deberta = loaded("deberta-v2")
    texts = tokenized(deberta, LINES)
    for representation in ("random", "left_to_right"):
        task = Space(SpaceOptions(representation=representation))
        with pytest.raises(EncoderError, match="'deberta-v2' does not take"):
            task.prepare(helpers.context(deberta, texts, tmp_path))
    labelled = replace(texts, labels=torch.zeros(len(LINES), dtype=torch.int64))
    Space(SpaceOptions(representation="bidirectional")).prepare(
        helpers.context(deberta, labelled, tmp_path)
    )
