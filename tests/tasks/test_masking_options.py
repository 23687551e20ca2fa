"""Options that masking strategies share: schedule, corruption, whole words, reverse order."""

import math
from dataclasses import replace

import pytest
import torch

from auxlearn.core.errors import ConfigError
from auxlearn.core.validation import validate
from auxlearn.data.batches import Batch, collate
from auxlearn.objectives.masking import choose, choose_units, mirrored, rescale_to_mean, unit_means
from auxlearn.tasks.base import MaskingOptions, ScoredMasking
from auxlearn.tasks.random_mlm import RandomMLM
from tests.helpers import LINES, context, generator, ragged, tokenized
from tests.training.harness import Harness

DRAWS = 4000


class ByPosition(ScoredMasking):
    name = "by_position"

    def scores(self, context):
        return torch.arange(len(self.texts.input_ids)) + 1.0


def prepared(cls, encoder, folder, texts=LINES, **options):
    task = cls(validate(cls.Options, options, cls.name))
    task.prepare(context(encoder, tokenized(encoder, texts), folder))
    return task


def some(task, rows=range(6)):
    return collate(task.texts, torch.tensor(list(rows)))


@pytest.mark.parametrize("steps", [1, 7, 100])
@pytest.mark.parametrize(
    ("schedule", "formula"),
    [
        ("linear", lambda when: 2 * (1 - when)),
        ("cosine", lambda when: 1 + math.cos(math.pi * when)),
    ],
)
def test_a_schedule_falls_from_twice_the_rate_to_none(schedule, formula, steps, monkeypatch):
    task = RandomMLM(MaskingOptions(schedule=schedule, probability=0.15))
    batch = collate(ragged([6]), torch.arange(1))
    rates = []
    monkeypatch.setattr(
        "auxlearn.tasks.base.choose",
        lambda given, source: rates.append(float(given[0, 1])) or given > 2,
    )
    for step in range(steps):
        task.begin_step(step, steps)
        task.choose_tokens(batch, generator())
        assert rates[-1] == pytest.approx(0.15 * formula((step + 0.5) / steps), abs=1e-12)
    assert sum(rates) / steps == pytest.approx(0.15, abs=1e-12)
    assert rates == sorted(rates, reverse=True)


def test_what_a_schedule_lifts_above_one_is_spread(trained_bert, tmp_path):
    task = prepared(ByPosition, trained_bert, tmp_path, schedule="linear", probability=0.5)
    batch = some(task)
    assert float(task.mask_probabilities(batch).max()) > 0.6
    task.begin_step(0, 100)
    wanted = 0.5 * 2 * (1 - 0.005)
    chosen = [task.choose_tokens(batch, generator(seed)) for seed in range(300)]
    rate = float(torch.stack(chosen)[:, batch.maskable].double().mean())
    assert rate == pytest.approx(wanted, abs=0.004)


def test_a_rate_above_one_half_cannot_begin_with_its_double():
    with pytest.raises(
        ConfigError, match=r"schedule linear begins with twice the probability 0\.6"
    ):
        validate(MaskingOptions, {"schedule": "linear", "probability": 0.6}, "random_mlm")


def test_a_step_tells_its_tasks_which_it_is(trained_bert, tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(RandomMLM, "begin_step", lambda self, *given: heard.append(given))
    task = prepared(RandomMLM, trained_bert, tmp_path, schedule="cosine")
    step = Harness(trained_bert, [("random_mlm", task)]).training_step
    for number in (0, 7):  # as after a kill
        step.begin(number)
        step.backward((0.5, 0.5))
    assert heard == [(0, step.total_steps), (7, step.total_steps)]


@pytest.mark.parametrize("corruption", ["bert", "mask", "random", "keep", "sample"])
def test_what_a_chosen_token_becomes(trained_bert, tmp_path, corruption):
    task = prepared(RandomMLM, trained_bert, tmp_path, corruption=corruption, probability=1.0)
    batch = some(task, range(16))
    mask, special = trained_bert.tokenizer.mask_token_id, trained_bert.tokenizer.all_special_ids
    with trained_bert.evaluating():
        found = task._corrupt(trained_bert, batch, batch.maskable, generator())[batch.maskable]
    originals = batch.input_ids[batch.maskable]
    if corruption == "mask":
        assert (found == mask).all()
    elif corruption == "keep":
        assert torch.equal(found, originals)
    elif corruption == "bert":
        assert 0.7 < float((found == mask).double().mean()) < 0.9
    else:
        assert not torch.isin(found, torch.tensor(special)).any()
        assert float((found == originals).double().mean()) < 0.5


def test_samples_come_from_the_prediction_at_the_masked_position(trained_bert, tmp_path):
    """Chi-squared distance of 4,000 samples of one token from the encoder's softmax."""
    task = prepared(RandomMLM, trained_bert, tmp_path, texts=LINES[:1], corruption="sample")
    batch = some(task, range(1))
    place = int(batch.maskable[0].nonzero()[3])
    chosen = torch.zeros_like(batch.maskable)
    chosen[0, place] = True
    repeated = Batch(
        **{
            field: None if value is None else value.repeat(DRAWS, *[1] * (value.dim() - 1))
            for field, value in vars(batch).items()
        }
    )
    with trained_bert.evaluating(), torch.no_grad():
        found = task._corrupt(trained_bert, repeated, chosen.repeat(DRAWS, 1), generator(3))
        ids = batch.input_ids.masked_fill(chosen, trained_bert.tokenizer.mask_token_id)
        logits = trained_bert.predict_tokens(replace(batch, input_ids=ids), chosen)[0]
    wanted = logits[task.random_ids].double().softmax(0) * DRAWS
    counts = found[:, place].bincount(minlength=len(logits))[task.random_ids]
    frequent = wanted > 5
    distance = ((counts - wanted).square() / wanted)[frequent].sum()
    assert float(distance) < 3 * int(frequent.sum())
    assert int(frequent.sum()) > 3


#: Words of two texts, of which those with -1 cannot be masked.
UNITS = torch.tensor([[-1, 0, 0, 2, 2, 2, -1], [-1, 0, 1, -1, -1, -1, -1]])


def test_the_mean_of_a_unit_is_that_of_its_tokens():
    maskable = UNITS >= 0
    maskable[0, 4] = False  # an unknown subword counts for nothing
    values = torch.tensor([[9.0, 0.1, 0.3, 0.2, 9.0, 0.6, 9.0], [9.0, 0.5, 0.7, 9, 9, 9, 9]])
    wanted = [[0, 0.2, 0.2, 0.4, 0, 0.4, 0], [0, 0.5, 0.7, 0, 0, 0, 0]]
    found = unit_means(values, UNITS, maskable)
    torch.testing.assert_close(found, torch.tensor(wanted).double(), atol=1e-7, rtol=0)


def test_units_are_chosen_whole_with_their_mean_probability():
    maskable = UNITS >= 0
    given = torch.tensor([[0, 0.1, 0.3, 0.2, 0.4, 0.6, 0], [0, 0.5, 1, 0, 0, 0, 0.0]])
    draws = generator()
    found = torch.stack([choose_units(given, UNITS, maskable, draws) for _ in range(DRAWS)])
    assert torch.equal(found[:, 0, 1], found[:, 0, 2])
    assert torch.equal(found[:, 0, 3], found[:, 0, 5])
    assert torch.equal(found[:, 0, 4], found[:, 0, 5])
    rates = found.double().mean(0)
    # Four standard deviations of a binomial share.
    assert float((rates - unit_means(given, UNITS, maskable)).abs().max()) < 4 * 0.5 / DRAWS**0.5
    assert not found[:, ~maskable].any()
    assert found[:, 1, 2].all()


def test_single_tokens_are_units_too():
    given = torch.rand(3, 8, generator=generator())
    maskable = torch.ones(3, 8, dtype=torch.bool)
    units = torch.arange(8).repeat(3, 1)
    one, other = choose_units(given, units, maskable, generator(1)), choose(given, generator(1))
    assert torch.equal(one, other)


def test_the_reverse_order_keeps_mean_and_distribution():
    maskable = torch.tensor([[False, True, True, True, True, False], [False] + [True] * 5])
    given = torch.tensor([[0, 0.1, 0.4, 0.2, 0.3, 0], [0, 0.2, 0.2, 0.2, 0.5, 0.9]]).double()
    wanted = [[0, 0.4, 0.1, 0.3, 0.2, 0], [0, (0.2 + 0.5 + 0.9) / 3] + [1.6 / 3] * 2 + [0.2, 0.2]]
    found = mirrored(given, maskable)
    torch.testing.assert_close(found, torch.tensor(wanted).double(), atol=1e-7, rtol=0)
    torch.testing.assert_close(found.sum(1), given.sum(1))


def test_the_reverse_of_probabilities_that_reach_one_does_not_exceed_it():
    scores = torch.rand(200, 12, generator=generator(), dtype=torch.float64) ** 8
    maskable = torch.ones(200, 12, dtype=torch.bool)
    given = rescale_to_mean(scores, maskable, 0.3)
    found = mirrored(given, maskable)
    assert float(given.max()) == float(found.max()) == 1
    torch.testing.assert_close(found.sum(1), given.sum(1), atol=1e-12, rtol=0)


@pytest.mark.parametrize("unit", ["token", "word"])
@pytest.mark.parametrize("reverse", [False, True])
def test_every_arrangement_keeps_the_mean_of_every_text(trained_bert, tmp_path, unit, reverse):
    task = prepared(ByPosition, trained_bert, tmp_path, unit=unit, reverse=reverse)
    batch = some(task, range(12))
    found = task.checked_probabilities(batch)
    means = found.sum(1) / batch.maskable.sum(1)
    assert means.tolist() == pytest.approx([0.15] * 12, abs=1e-12)
    split = 0
    for own, words, here in zip(found, batch.words, batch.maskable, strict=True):
        values = own[here].round(decimals=12).tolist()
        assert values == sorted(values, reverse=reverse)
        by_word = {}
        for value, word in zip(values, words[here].tolist(), strict=True):
            by_word.setdefault(word, set()).add(value)
        split += sum(len(kinds) > 1 for kinds in by_word.values())
    assert bool(split) == (unit == "token")
    chosen = task.choose_tokens(batch, generator())
    assert chosen.any()
    for own, words, here in zip(chosen, batch.words, batch.maskable, strict=True):
        for word in words[here].unique() if unit == "word" else ():
            assert own[here & (words == word)].unique().numel() == 1
    plain = prepared(ByPosition, trained_bert, tmp_path)
    scores = torch.zeros_like(found)
    scores[batch.maskable] = plain.mask_probabilities(batch)[batch.maskable]
    if (unit, reverse) == ("token", False):
        torch.testing.assert_close(found, rescale_to_mean(scores, batch.maskable, 0.15))
