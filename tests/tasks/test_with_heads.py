"""Tasks with heads of their own, and consistency, against computations from their formulas."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, rel_entr, softmax

from auxlearn.core import rng
from auxlearn.core.errors import ConfigError, DataError
from auxlearn.data.dataset import Split
from auxlearn.encoders.load import load_encoder
from auxlearn.kinds.choose import KINDS
from auxlearn.tasks.consistency import Consistency
from auxlearn.tasks.replaced_tokens import ReplacedTokens
from auxlearn.tasks.sentence_order import SentenceOrder, divide
from auxlearn.tasks.simcse import SimCSE
from tests import helpers


@pytest.fixture
def encoder(encoder_folder):
    return load_encoder(str(encoder_folder("bert")), helpers.LABELS)


@pytest.fixture
def prepared(encoder, tmp_path):
    def make(cls, lines=helpers.LINES, pairs=None, **options):
        task = cls(cls.Options(**options))
        texts = helpers.tokenized(encoder, lines, [n % 3 for n in range(len(lines))], pairs)
        context = helpers.context(encoder, texts, tmp_path)
        context.split = Split("train", tuple(lines), None, (), pairs and tuple(pairs))
        task.prepare(context)
        return task

    return make


def drops(number=0):
    """Dropout as it is in a step."""
    return rng.seeded(0, "test", number)


def test_simcse_is_the_cross_entropy_of_finding_the_second_pass(encoder, prepared):
    task = prepared(SimCSE, temperature=0.1)
    batch = helpers.collated(helpers.tokenized(encoder, helpers.LINES[:5]))
    encoder.train()
    with drops():
        loss = task.loss(encoder, batch, torch.Generator())
    with drops():
        passes = [
            encoder.apply_head(task.head, encoder.features(batch)).detach().double().numpy()
            for _ in range(2)
        ]
    first, second = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in passes)
    assert not np.allclose(first, second)
    expected = -np.diag(log_softmax(first @ second.T / 0.1, axis=1)).mean()
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    loss.backward()
    assert encoder.body.embeddings.word_embeddings.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_consistency_is_the_mean_of_both_divergences(encoder, prepared, temperature):
    task = prepared(Consistency, temperature=temperature)
    texts = helpers.tokenized(encoder, helpers.LINES[:6], [0, 1, 2, 0, 1, 2])
    batch = helpers.collated(texts)
    encoder.train()
    with drops():
        loss = task.loss(encoder, batch, torch.Generator())
    with drops():
        p, q = (
            softmax(encoder.classify(batch).detach().double().numpy() / temperature, axis=1)
            for _ in range(2)
        )
    expected = (rel_entr(p, q) + rel_entr(q, p)).sum(1).mean() / 2
    assert expected > 0
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    encoder.eval()
    assert task.loss(encoder, batch, torch.Generator()).item() == pytest.approx(0, abs=1e-6)


def bernoulli(logits):
    """Absent and there, of several labels, one choice each."""
    there = expit(logits)
    return np.stack([1 - there, there], -1)


@pytest.mark.parametrize("kind", ["multi_label", "token_classification", "regression"])
def test_consistency_of_other_labels_is_that_of_their_choices(encoder, prepared, kind):
    encoder.kind = KINDS[kind]
    task = prepared(Consistency)
    draw = helpers.generator()
    shape, targets = (3, 1), torch.zeros(3)
    here = torch.ones(3, dtype=torch.bool)
    if kind == "multi_label":
        shape, targets = (3, 4), torch.zeros(3, 4)
    elif kind == "token_classification":
        here = torch.tensor([[0, 1, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
        shape, targets = (3, 5, 4), torch.where(here, 2, -100)
    passes = [torch.randn(shape, generator=draw, requires_grad=True) for _ in range(2)]
    x, y = (logits.detach().double().numpy() for logits in passes)
    if kind == "regression":
        expected, items = ((x - y) ** 2).mean(), 3
    else:
        p, q = (bernoulli(one) if kind == "multi_label" else softmax(one, -1) for one in (x, y))
        each = (rel_entr(p, q) + rel_entr(q, p)).sum(-1) / 2
        expected, items = each[here.numpy()].mean(), int(here.sum())

    def loss_of(padding=0, rows=slice(None)):
        pad = (0, 0, 0, padding) if kind == "token_classification" else (0, 0)
        logits = iter([torch.nn.functional.pad(one[rows], pad, value=9.0) for one in passes])
        tags = torch.nn.functional.pad(targets[rows], pad[2:], value=-100)
        batch = SimpleNamespace(targets=tags)
        seen = SimpleNamespace(classify=lambda batch: next(logits))
        return task.loss(seen, batch, None), task.items(batch, None)

    loss, count = loss_of()
    assert (loss.item(), count) == (pytest.approx(expected, rel=1e-6), items)
    assert loss_of(padding=7)[0].item() == pytest.approx(expected, rel=1e-6)
    parts = [loss_of(rows=slice(0, 1)), loss_of(rows=slice(1, 3))]
    assert sum(one * n for one, n in parts).item() / items == pytest.approx(expected, rel=1e-6)
    assert torch.autograd.grad(loss, passes[0])[0].abs().sum() > 0


def test_consistency_of_trees_is_refused(encoder, prepared):
    encoder.kind = KINDS["dependency"]
    with helpers.one_line(ConfigError, "consistency", "dependency"):
        prepared(Consistency)


LONG = [
    "The parser is fast. It reads a file! Then it stops.",
    "No end in sight",
    'She said "Stop." He did (at last.) and all of that was good.',
    "Version 3.11 is out",
]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (LONG[0], ("The parser is fast.", "It reads a file! Then it stops.")),
        (LONG[1], None),
        (LONG[2], ('She said "Stop." He did (at last.)', "and all of that was good.")),
        (LONG[3], None),
        ("One.  ", None),
        ("", None),
    ],
)
def test_texts_are_divided_at_the_sentence_end_nearest_to_the_middle(text, parts):
    assert divide(text) == parts


def test_sentence_order_learns_from_both_orders(encoder, prepared, caplog):
    task = prepared(SentenceOrder, [*LONG, *LONG[1::2]])
    assert "uses 2 of 6 texts" in caplog.text
    assert task.texts.labels.tolist() == [0, 0, 1, 1]
    tokenizer = encoder.tokenizer
    ids = [one.input_ids.tolist() for one in map(task.texts.select, torch.arange(4)[:, None])]
    ordered, swapped = tokenizer(*divide(LONG[0])), tokenizer(*divide(LONG[0])[::-1])
    assert ids[0] == ordered["input_ids"]
    assert ids[2] == swapped["input_ids"]
    batch = helpers.collated(task.texts)
    logits = encoder.apply_head(task.head, encoder.features(batch))
    expected = -log_softmax(logits.detach().double().numpy(), axis=1)[range(4), [0, 0, 1, 1]].mean()
    assert task.loss(encoder, batch, torch.Generator()).item() == pytest.approx(expected, abs=1e-6)


def test_both_texts_of_a_pair_are_divided(prepared):
    task = prepared(SentenceOrder, LONG[:2], LONG[2:])
    assert len(task.texts) == 4


def test_sentence_order_refuses_texts_of_one_sentence(prepared):
    with pytest.raises(DataError, match="'task' needs texts of at least two sentences, and none"):
        prepared(SentenceOrder, LONG[1::2])


def test_replaced_tokens_is_detection_and_a_share_of_generation(encoder, prepared):
    task = prepared(ReplacedTokens, probability=0.4, generator_weight=0.5)
    batch = helpers.collated(helpers.tokenized(encoder, helpers.LINES[:6]))
    seen = []
    encode = encoder.encode

    def keep(given):
        seen.append(given)
        return encode(given)

    encoder.encode = keep
    loss = task.loss(encoder, batch, torch.Generator().manual_seed(1))
    masked, replaced = seen
    chosen = masked.input_ids == encoder.tokenizer.mask_token_id
    assert 0 < int(chosen.sum()) < int(batch.maskable.sum())
    assert not (chosen & ~batch.maskable).any()
    changed = replaced.input_ids != batch.input_ids
    assert changed.any()
    assert not (changed & ~chosen).any()

    hidden = encode(replaced).last_hidden_state[batch.maskable]
    logits = encoder.apply_head(task.head, hidden).squeeze(-1).detach().double().numpy()
    truth = changed[batch.maskable].numpy()
    detection = np.where(truth, np.logaddexp(0, -logits), np.logaddexp(0, logits)).sum()
    words = encoder.predict_tokens(masked, chosen).detach().double().numpy()
    originals = batch.input_ids[chosen].numpy()
    generation = -log_softmax(words, axis=1)[np.arange(len(words)), originals].sum()
    tokens = int(batch.maskable.sum())
    expected = detection / tokens + 0.5 * generation / (0.4 * tokens)
    assert loss.item() == pytest.approx(expected, abs=2e-6)
    loss.backward()
    assert encoder.heads[task.head][0].weight.grad.abs().sum() > 0
