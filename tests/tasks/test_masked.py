"""Masked-language-modelling tasks: loss, mask probabilities, state."""

import math
from contextlib import contextmanager

import pytest
import torch
from pydantic import ValidationError

from auxlearn.core.errors import EncoderError
from auxlearn.core.registry import TASKS
from auxlearn.data.batches import collate
from auxlearn.encoders.load import load_encoder
from auxlearn.objectives import masking
from auxlearn.objectives.masking import rescale_to_mean
from auxlearn.scoring import pseudo_likelihood as cached
from auxlearn.scoring.pseudo_likelihood import pseudo_log_likelihood
from auxlearn.tasks import l3mask
from auxlearn.tasks.base import MaskedLanguageModelling
from auxlearn.tasks.l3mask import L3Mask, L3MaskOptions
from auxlearn.tasks.random_mlm import RandomMLM
from tests.helpers import HARD_TEXTS, LABELS, LINES, context, generator, ragged, tokenized


def value(loss):
    return float(loss.detach())


def prepared(cls, encoder, folder, texts=LINES, **options):
    task = cls(cls.Options(**options))
    task.prepare(context(encoder, tokenized(encoder, texts), folder))
    return task


@contextmanager
def predictions_of(encoder):
    """Keep what the token head is asked for: batches and positions."""
    seen, predict = [], type(encoder).predict_tokens
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(encoder),
            "predict_tokens",
            lambda *given: seen.append(given[1:]) or predict(*given),
        )
        yield seen


def batch_of(task, rows=range(4)):
    return collate(task.texts, torch.tensor(list(rows)))


class Everything(MaskedLanguageModelling):
    name = "everything"

    def mask_probabilities(self, batch):
        return batch.maskable.double()


class Nothing(Everything):
    def mask_probabilities(self, batch):
        return torch.zeros(batch.input_ids.shape)


def test_the_loss_is_the_mean_cross_entropy_of_the_chosen_tokens(trained_bert, tmp_path):
    task = prepared(Everything, trained_bert, tmp_path)
    batch = batch_of(task)
    with predictions_of(trained_bert) as seen:
        loss = task.loss(trained_bert, batch, generator())
    ((given, positions),) = seen
    ids = given.input_ids
    assert torch.equal(positions, batch.maskable)
    native = trained_bert.language_model(
        input_ids=ids,
        attention_mask=batch.attention_mask,
        token_type_ids=batch.token_type_ids,
        labels=batch.input_ids.masked_fill(~batch.maskable, -100),
    )
    torch.testing.assert_close(loss, native.loss, rtol=1e-5, atol=1e-6)
    mask = trained_bert.tokenizer.mask_token_id
    assert 0.6 < (ids == mask)[batch.maskable].float().mean() < 0.95
    assert torch.equal(ids[~batch.maskable], batch.input_ids[~batch.maskable])


def test_where_nothing_is_chosen_the_loss_is_a_zero_with_a_graph(trained_bert, tmp_path):
    task = prepared(Nothing, trained_bert, tmp_path)
    loss = task.loss(trained_bert, batch_of(task), generator())
    assert value(loss) == 0.0
    embedding = trained_bert.body.get_input_embeddings().weight
    (gradient,) = torch.autograd.grad(loss, embedding)
    assert (gradient == 0).all()


def test_random_tokens_are_never_special(trained_bert, tmp_path):
    task = prepared(RandomMLM, trained_bert, tmp_path)
    tokenizer = trained_bert.tokenizer
    special = set(tokenizer.all_special_ids)
    assert set(task.random_ids.tolist()) == set(range(len(tokenizer))) - special


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: p[:, :-1], "expected a tensor of shape"),
        (lambda p: p + 1.5, r"expected values in \[0, 1\]"),
        (lambda p: p - 0.5, r"expected values in \[0, 1\]"),
        (lambda p: p * math.nan, r"expected values in \[0, 1\]"),
        (lambda p: p * 0 + 0.15, "expected zero at special tokens and padding"),
    ],
)
def test_invalid_mask_probabilities_are_refused(trained_bert, tmp_path, spoil, message):
    class Spoiled(MaskedLanguageModelling):
        name = "spoiled"

        def mask_probabilities(self, batch):
            return spoil(batch.maskable * 0.15)

    task = prepared(Spoiled, trained_bert, tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        task.loss(trained_bert, batch_of(task), generator())
    assert "mask_probabilities of task 'spoiled'" in str(caught.value)


class FirstMaskable(Everything):
    """Mask the first token of each text that may be masked: exactly one."""

    def choose_tokens(self, batch, generator):
        return batch.maskable & (batch.maskable.cumsum(1) == 1)


def test_a_strategy_may_choose_the_tokens_of_a_text_together(trained_bert, tmp_path):
    task = prepared(FirstMaskable, trained_bert, tmp_path)
    batch = batch_of(task)
    assert task.items(batch, generator()) == len(batch)
    with predictions_of(trained_bert) as seen:
        task.loss(trained_bert, batch, generator())
    ((_, positions),) = seen
    assert torch.equal(positions, task.choose_tokens(batch, generator()))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda chosen: chosen[:, :-1], "expected a tensor of shape"),
        (lambda chosen: chosen.long(), "expected a bool tensor, got torch.int64"),
        (lambda chosen: ~chosen, "expected no special tokens or padding among the chosen"),
    ],
)
def test_invalid_choices_are_refused(trained_bert, tmp_path, spoil, message):
    class Spoiled(FirstMaskable):
        name = "spoiled"

        def choose_tokens(self, batch, generator):
            return spoil(super().choose_tokens(batch, generator))

    task = prepared(Spoiled, trained_bert, tmp_path)
    with pytest.raises(ValueError, match=f"choose_tokens of task 'spoiled': {message}"):
        task.loss(trained_bert, batch_of(task), generator())


@pytest.mark.parametrize("cls", [RandomMLM, L3Mask])
def test_texts_may_come_from_a_corpus(cls, trained_bert, tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(HARD_TEXTS))
    task = prepared(cls, trained_bert, tmp_path / "cache", corpus=str(path))
    assert len(task.texts) == len(HARD_TEXTS)
    assert value(task.loss(trained_bert, batch_of(task), generator())) > 0


@pytest.mark.parametrize("mean", [0.15, 0.5])
def test_l3mask_by_its_formulas(trained_bert, tmp_path, mean):
    """Equations 3 and 4 of the paper, text by text, in plain Python."""
    task = prepared(L3Mask, trained_bert, tmp_path, texts=HARD_TEXTS, probability=mean)
    scores = pseudo_log_likelihood(trained_bert, task.texts).double()
    rows = torch.arange(len(HARD_TEXTS))
    probabilities = task.mask_probabilities(collate(task.texts, rows))
    capped = 0
    for row in rows.tolist():
        inside = range(int(task.texts.offsets[row]), int(task.texts.offsets[row + 1]))
        maskable = [i for i in inside if task.texts.maskable[i]]
        unlikely = {i: 1 - math.exp(float(scores[i])) for i in maskable}
        alpha = mean * len(maskable) / sum(unlikely.values())
        expected = {i: alpha * c for i, c in unlikely.items()}
        while max(expected.values()) > 1 + 1e-15:
            excess = sum(p - 1 for p in expected.values() if p > 1)
            others = [i for i, p in expected.items() if p < 1]
            expected = {
                i: min(p, 1.0) + (excess / len(others) if p < 1 else 0.0)
                for i, p in expected.items()
            }
            capped += 1
        found = {i: float(probabilities[row, i - inside[0]]) for i in maskable}
        assert found == pytest.approx(expected, abs=1e-6)
        assert sum(found.values()) / len(found) == pytest.approx(mean, abs=1e-12)
    batch = collate(task.texts, rows)
    assert (probabilities[~batch.maskable] == 0).all()
    assert probabilities.dtype == torch.float64
    spread = probabilities[batch.maskable]
    assert spread.max() - spread.min() > mean  # likely tokens are hardly masked, unlikely ones are


def test_l3mask_gives_each_text_its_own_probabilities(trained_bert, tmp_path, monkeypatch):
    # The batch mixes texts of several shards and chunks.
    monkeypatch.setattr(cached, "SHARD_TEXTS", 5)
    monkeypatch.setattr(masking, "CHUNK_TEXTS", 5)
    task = prepared(L3Mask, trained_bert, tmp_path)
    whole = task.mask_probabilities(collate(task.texts, torch.arange(len(LINES))))
    mixed = torch.tensor([17, 3, 3, 9])
    some = task.mask_probabilities(collate(task.texts, mixed))
    torch.testing.assert_close(some, whole[mixed, : some.shape[1]], rtol=0, atol=0)
    assert (whole[mixed, some.shape[1] :] == 0).all()


def test_l3mask_does_not_change_with_the_encoder(trained_bert, tmp_path):
    """The probabilities are of the pretrained encoder, whatever it is trained to later."""
    task = prepared(L3Mask, trained_bert, tmp_path)
    batch = batch_of(task)
    before = task.mask_probabilities(batch)
    with torch.no_grad():
        for parameter in trained_bert.parameters():
            parameter.add_(0.1)
    assert torch.equal(task.mask_probabilities(batch), before)


def released_surprisal(surprisals, special, mean):
    """What the released code does with the scores of a text, as it is described.

    Zeros stand in for the special tokens before the minimum and the maximum are taken.
    """
    values = [0.0 if skip else value for value, skip in zip(surprisals, special, strict=True)]
    low, high = min(values), max(values)
    scaled = [(value - low) / (high - low) for value in values]
    count = special.count(False)
    return [mean * count * value / math.fsum(scaled) for value in scaled]


def test_surprisal_is_the_released_procedure(trained_bert, tmp_path, monkeypatch):
    draws = torch.Generator().manual_seed(0)
    lengths = torch.randint(5, 40, (60,), generator=draws).tolist()
    texts = ragged(lengths)
    # The most likely token of a text must be masked as well, only less often.
    logprobs = -5 * torch.rand(sum(lengths), generator=draws, dtype=torch.float64) - 0.01
    monkeypatch.setattr(l3mask, "score_texts", lambda *given, **options: logprobs)
    task = L3Mask(L3MaskOptions(score="surprisal"))
    task.texts = texts
    scores = task.scores(context(trained_bert, texts, tmp_path))
    found = torch.cat([*masking.rescale_texts(texts, scores, 0.1)])
    parts = zip(*(one.split(lengths) for one in (found, logprobs, texts.maskable)), strict=True)
    for own, logs, maskable in parts:
        expected = released_surprisal((-logs).tolist(), (~maskable).tolist(), 0.1)
        assert max(expected) <= 1
        assert own.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-15)
        assert float(own[maskable].min()) > 0
    with pytest.raises(ValidationError):
        L3MaskOptions(score="likelihood")


class Bar:
    """Counts what a progress bar would be told."""

    def __init__(self):
        self.total, self.done = None, 0

    @contextmanager
    def __call__(self, title, total):
        self.total = total
        yield self.advance

    def advance(self, count):
        self.done += count


def test_l3mask_scores_once_and_fills_the_progress_bar(trained_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(cached, "SHARD_TEXTS", 10)
    scored = []

    def counting(encoder, texts, *given):
        scored.append(len(texts))
        return pseudo_log_likelihood(encoder, texts, *given)

    monkeypatch.setattr(cached, "pseudo_log_likelihood", counting)

    def prepare(seed=0, labels=LABELS, texts=LINES, **options):
        encoder = load_encoder(str(trained_folder("bert")), labels, seed)
        bar = Bar()
        task = L3Mask(L3MaskOptions(**options))
        given = context(encoder, tokenized(encoder, texts), tmp_path, seed)
        given.progress = bar
        task.prepare(given)
        assert bar.done == bar.total == int(task.texts.maskable.sum())
        return task

    first = prepare()
    assert scored == [10, 10, 4]
    # Seeds, classes and all that comes after scoring share the scores.
    for again in (prepare(), prepare(seed=4), prepare(labels=("a", "b"))):
        assert torch.equal(again.probabilities, first.probabilities)
    prepare(score="surprisal", probability=0.3)
    assert scored == [10, 10, 4]
    # Another text costs its own shard only.
    prepare(texts=[*LINES[:-1], "The parser is new."])
    assert scored == [10, 10, 4, 4]


@pytest.mark.parametrize("name", ["random_mlm", "l3mask", "mask_tuning"])
def test_a_newly_initialised_head_is_refused(trained_bert, tmp_path, name, monkeypatch):
    monkeypatch.setattr(trained_bert, "new_language_model_head", True)
    with pytest.raises(EncoderError, match=f"'{name}' needs a pretrained .* --random-head"):
        prepared(TASKS.get(name), trained_bert, tmp_path)


WAYS = (
    ({}, None, torch.float32),
    ({"passes": 3}, 3, torch.float32),
    ({"precision": "bf16"}, None, torch.bfloat16),
    ({"passes": 3, "precision": "bf16"}, 3, torch.bfloat16),
)


def test_options_reach_the_scorer_and_the_cache_keeps_them_apart(trained_bert, tmp_path):
    texts = tokenized(trained_bert, LINES[:3])
    found = []
    for options, passes, dtype in WAYS * 2:  # the second time out of the cache
        task = L3Mask(L3MaskOptions(**options))
        task.prepare(context(trained_bert, texts, tmp_path))
        logprobs = pseudo_log_likelihood(trained_bert, texts, passes=passes, dtype=dtype)
        for row, own in enumerate(task.probabilities.split(texts.lengths.tolist())):
            inside = slice(*texts.offsets[row : row + 2].tolist())
            where = texts.maskable[inside][None]
            wanted = rescale_to_mean(-torch.expm1(logprobs[inside].double())[None], where, 0.15)
            torch.testing.assert_close(own[None], wanted, atol=1e-6, rtol=0)
        found.append(task.probabilities)
    assert len(list(tmp_path.glob("*.safetensors"))) == len(WAYS)
    assert all(not torch.equal(found[0], other) for other in found[1 : len(WAYS)])
