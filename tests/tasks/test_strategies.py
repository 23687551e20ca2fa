"""Masking strategies: their formulas on texts small enough to work out by hand."""

import json
import math
import random
from collections import Counter
from itertools import pairwise

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from auxlearn.core.cache import TensorCache
from auxlearn.core.errors import ConfigError, DataError, EncoderError
from auxlearn.core.registry import TASKS
from auxlearn.core.validation import validate
from auxlearn.data import pos_tags, tokens
from auxlearn.data.batches import collate
from auxlearn.data.dataset import Split
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import rescale_to_mean
from auxlearn.tasks import informask, pmi as pmi_task, span as span_task
from auxlearn.tasks.base import MaskedLanguageModelling
from auxlearn.tasks.informask import best_mask
from auxlearn.testing.tiny_run import Circumstances, Objectives, TinyRun
from tests.helpers import HARD_TEXTS, LABELS, LINES, generator, one_line, tokenized
from tests.test_conformance import TASK_OPTIONS

DRAWS = 1000

#: Four standard deviations of a share over the draws.
NEAR = 4 * 0.5 / DRAWS**0.5


def prepared(name, encoder, folder, texts=LINES, pairs=None, **options):
    labels = tuple(number % 3 for number in range(len(texts)))
    if options.get("background") == "TEXTS":
        options["background"] = str(folder / "texts.txt")
        (folder / "texts.txt").write_text("\n".join(LINES[10:]))
    split = Split("train", tuple(texts), labels, LABELS, pairs)
    tokens = tokenized(encoder, texts, labels, pairs)
    return prepared_on(name, encoder, folder, tokens, split, **options)


def prepared_on(name, encoder, folder, texts, split=None, **options):
    cls = TASKS.get(name)
    task = cls(validate(cls.Options, options, name))
    task.prepare(context_of(encoder, folder, texts, split, name))
    return task


def context_of(encoder, folder, texts, split=None, name="task"):
    split = split or Split("train", ("",) * len(texts), None, LABELS)
    given = {"max_length": 128, "cache": TensorCache(folder), "seed": 0}
    return ObjectiveContext(name, encoder, split, texts, **given)


def whole(task):
    return collate(task.texts, torch.arange(len(task.texts)))


def flat(*texts):
    """Texts of given token ids, in which equal neighbours are the tokens of one word."""
    ids, words, offsets = [], [], [0]
    for text in texts:
        ids += [2, *text, 3]
        starts = [before != after for before, after in pairwise([None, *text])]
        words += [-1, *(sum(starts[: place + 1]) - 1 for place in range(len(text))), -1]
        offsets.append(len(ids))
    return TokenizedTexts(
        input_ids=torch.tensor(ids, dtype=torch.int32),
        words=torch.tensor(words, dtype=torch.int32),
        maskable=torch.tensor(words) >= 0,
        offsets=torch.tensor(offsets),
        pad_id=0,
    )


#: Every masking strategy, with the options that the tests of all of them use.
ALL = {
    name: options
    for name, options in TASK_OPTIONS.items()
    if issubclass(TASKS.get(name), MaskedLanguageModelling)
}
ALL["mixture"] = {"strategies": ["span", {"l3mask": {"unit": "word"}}], "weights": [1, 3]}


@pytest.mark.parametrize("name", ALL)
def test_the_mean_rate_of_every_text_is_the_set_one(trained_bert, tmp_path, name):
    texts = (*LINES, *HARD_TEXTS, "日", "")
    task = prepared(name, trained_bert, tmp_path, texts, **ALL[name])
    batch = whole(task)
    found = task.checked_probabilities(batch)
    means = found.sum(1) / batch.maskable.sum(1).clamp(min=1)
    assert means[:-2].tolist() == pytest.approx([0.15] * (len(texts) - 2), abs=1e-12)
    assert (means[-2:] == 0).all()


#: Strategies that choose tokens in ways of their own; in the others the scores alone differ.
OWN = ("random_mlm", "whole_word", "span", "pmi", "mixture")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in OWN)) for name in ALL]
)
def test_tokens_are_chosen_as_often_as_the_probabilities_say(trained_bert, tmp_path, name):
    task = prepared(name, trained_bert, tmp_path, LINES[:6], **ALL[name])
    batch = whole(task)
    draws = generator(7)
    counts = sum(task.choose_tokens(batch, draws).double() for _ in range(DRAWS))
    off = (counts / DRAWS - task.checked_probabilities(batch))[batch.maskable].abs()
    # The rates of informask are counted themselves, over 40 masks.
    assert float(off.max()) < (NEAR if name != "informask" else 4 * 0.5 / 40**0.5)
    rate = float((counts / DRAWS)[batch.maskable].mean())
    assert rate == pytest.approx(0.15, abs=0.006)


def test_whole_words_are_masked_or_not(trained_bert, tmp_path):
    task = prepared("whole_word", trained_bert, tmp_path, probability=0.5)
    batch = whole(task)
    chosen = task.choose_tokens(batch, generator())
    several = 0
    for own, words, here in zip(chosen, batch.words, batch.maskable, strict=True):
        for word in words[here].unique():
            inside = own[here & (words == word)]
            several += len(inside) > 1
            assert inside.unique().numel() == 1
    assert several > 10
    assert 0.4 < float(chosen[batch.maskable].double().mean()) < 0.6


def test_lengths_of_spans_are_geometric_and_cut_at_ten():
    found = span_task.length_distribution()
    wanted = [0.2 * 0.8 ** (length - 1) / (1 - 0.8**10) for length in range(1, 11)]
    assert found.tolist() == pytest.approx(wanted, abs=1e-15)


def test_neighbours_are_masked_together_as_often_as_spans_say(trained_bert, tmp_path):
    """P(k and k + 1) = p u + p^2 (1 - u), u the probability that no span ends between them."""
    task = prepared("span", trained_bert, tmp_path, LINES[:1], probability=0.3)
    task.texts = flat(range(10, 34))  # 24 words of one token
    batch = whole(task)
    lengths = [0.0, *span_task.length_distribution().tolist()]
    ends = [1.0]  # probability that a span ends before word k
    for word in range(1, 25):
        ends.append(sum(ends[word - n] * lengths[n] for n in range(1, min(word, 10) + 1)))
    draws = generator(1)
    found = torch.stack([task.choose_tokens(batch, draws)[0, 1:-1] for _ in range(DRAWS)])
    both = (found[:, 1:] & found[:, :-1]).double().mean(0)
    wanted = [0.3 * (1 - ends[k + 1]) + 0.09 * ends[k + 1] for k in range(23)]
    assert both.tolist() == pytest.approx(wanted, abs=NEAR)
    assert found.double().mean(0).tolist() == pytest.approx([0.3] * 24, abs=NEAR)


def test_no_span_goes_from_one_text_of_a_pair_to_the_other(trained_bert, tmp_path, monkeypatch):
    task = prepared("span", trained_bert, tmp_path, LINES[:2], LINES[2:4])
    batch = whole(task)
    ten = torch.zeros(10, dtype=torch.float64)
    ten[9] = 1
    monkeypatch.setattr(span_task, "length_distribution", lambda: ten)
    units = task.units(batch, generator())
    for own, types, here in zip(units, batch.token_type_ids, batch.maskable, strict=True):
        assert not set(own[here & (types == 0)].tolist()) & set(own[here & (types == 1)].tolist())
        assert own[here].unique().numel() >= 2


A, B, C, D, E = ((number,) for number in range(10, 15))


def test_pmi_is_the_minimum_over_segmentations(tmp_path):
    """Counted by hand: a b c 4 times, d e 2 times apart and once together, c alone 4 times."""
    texts = [(A, B, C)] * 4 + [(C, D), (C, E), (C, D), (C, E), (D, E)]
    counts = pmi_task.ngram_counts(texts, 2, TensorCache(tmp_path))
    words, pairs, triples = 22, 13, 4
    assert (counts[1][()], counts[2][()], counts[3][()]) == (words, pairs, triples)
    found = pmi_task.pmi(counts)
    p = {A: 4 / words, B: 4 / words, C: 8 / words, D: 3 / words, E: 3 / words}
    ab, bc = 4 / pairs, 4 / pairs
    assert found[A, B] == pytest.approx(math.log(ab**2 / (p[A] * p[B])))
    assert found[B, C] == pytest.approx(math.log(bc**2 / (p[B] * p[C])))
    three = [math.log(1 / parts) for parts in (p[A] * bc, ab * p[C], p[A] * p[B] * p[C])]
    assert found[A, B, C] == pytest.approx(min(three))  # p(abc) = 1: all of the triples
    assert (D, E) not in found  # once only
    assert all(len(gram) < 4 for gram in found)


@pytest.mark.parametrize("min_count", [1, 3])
def test_ngrams_are_counted_in_pieces_as_all_at_once(tmp_path, monkeypatch, min_count):
    monkeypatch.setattr(pmi_task, "PLACES", 7)
    monkeypatch.setattr(pmi_task, "PIECE_TOKENS", 40)
    draw, kinds = random.Random(0), (A, B, C, D, (10, 11), (11,))
    texts = [tuple(draw.choices(kinds, k=draw.randrange(12))) for _ in range(90)]
    for some in (texts, texts[:1], [(A,)], [()]):
        found = pmi_task.ngram_counts(some, min_count, TensorCache(tmp_path))
        for n in range(1, 6):
            grams = [words[at : at + n] for words in some for at in range(len(words) - n + 1)]
            wanted = {g: c for g, c in Counter(grams).items() if n == 1 or c >= min_count}
            assert found[n] == {(): len(grams), **wanted}
    assert list(tmp_path.iterdir()) == []


def test_an_ngram_that_does_not_attract_is_no_collocation(tmp_path):
    texts = [(A, B), (A, C), (D, B), (D, C)] * 3  # independent: p(ab) = p(a) p(b) * 4
    found = pmi_task.pmi(pmi_task.ngram_counts(texts, 2, TensorCache(tmp_path)))
    assert set(found) == {(A, B), (A, C), (D, B), (D, C)}
    repel = [(A, A), (A, A), (A, A), (A, B), (B, A), (B, B), (B, B), (B, B)] * 2
    found = pmi_task.pmi(pmi_task.ngram_counts(repel, 2, TensorCache(tmp_path)))
    assert set(found) == {(A, A), (B, B)}


def test_the_longest_collocation_is_marked_first():
    words = (A, B, C, A, B, D)
    assert list(pmi_task.cut(words, {(A, B), (A, B, C), (C, A)})) == [(0, 3), (3, 5), (5, 6)]


def test_collocations_are_masked_whole_and_with_words_of_several_tokens(trained_bert, tmp_path):
    rows = [[10, 10, 11, 12, 13], [10, 10, 11, 14, 12], [10, 10, 11, 15, 16], [17, 18, 19, 20, 21]]
    texts = flat(*rows)
    task = prepared_on("pmi", trained_bert, tmp_path, texts, min_count=3, probability=0.5)
    assert pmi_task.collocations(texts, 3, 9, TensorCache(tmp_path)) == {((10, 10), (11,))}
    batch = whole(task)
    units = task.units(batch, generator())
    assert units[0].tolist() == [-1, 0, 0, 0, 2, 3, -1]
    assert units[3].tolist() == [-1, 0, 1, 2, 3, 4, -1]
    for seed in range(20):
        chosen = task.choose_tokens(batch, generator(seed))
        assert (chosen[:3, 1] == chosen[:3, 2]).all()
        assert (chosen[:3, 1] == chosen[:3, 3]).all()


def test_collocations_are_marked_in_pieces_as_all_at_once(trained_bert, tmp_path, monkeypatch):
    texts = (*LINES, *HARD_TEXTS)
    task = prepared("pmi", trained_bert, tmp_path, texts, min_count=3)
    at_once = torch.full_like(task.unit, -1)
    best = pmi_task.collocations(task.texts, 3, 10_000, TensorCache(tmp_path))
    for words, places in pmi_task.runs(task.texts):
        for start, stop in pmi_task.cut(words, best):
            at_once[places[start][0] : places[stop - 1][1]] = task.texts.words[places[start][0]]
    monkeypatch.setattr(pmi_task, "CHUNK_TEXTS", 5)
    again = prepared("pmi", trained_bert, tmp_path, texts, min_count=3)
    assert torch.equal(task.unit, at_once)
    assert torch.equal(again.unit, at_once)
    assert (at_once != task.texts.words).any(), "there are collocations"


def test_ngrams_may_be_counted_on_another_file(trained_bert, tmp_path):
    path = tmp_path / "more.txt"
    path.write_text("the parser of the tagger\n" * 4)
    task = prepared("pmi", trained_bert, tmp_path, LINES[:4], counts=str(path), min_count=4)
    assert (task.unit != task.texts.words).any(), "the file has collocations"
    assert len(task.texts) == 4


def test_frequency_is_the_surprisal_of_the_counts(trained_bert, tmp_path):
    texts = flat([10, 11], [10, 12], [10, 10])
    task = prepared_on("frequency", trained_bert, tmp_path, texts, probability=0.5)
    found = task.mask_probabilities(whole(task))[:, 1:3]
    common, rare = -math.log(4 / 6), -math.log(1 / 6)
    wanted = [[common / (common + rare), rare / (common + rare)]] * 2 + [[0.5, 0.5]]
    assert found.tolist() == [pytest.approx(row) for row in wanted]
    options = {"probability": 0.5, "reverse": True}
    backwards = prepared_on("frequency", trained_bert, tmp_path, texts, **options)
    found = backwards.mask_probabilities(whole(task))[:, 1:3]
    assert found.tolist() == [pytest.approx(row[::-1]) for row in wanted]


def test_parts_of_speech_have_their_weights(trained_bert, tmp_path, monkeypatch):
    tags = {"the": "DT", "parser": "NNP", "is": "VBZ", "faster": "JJR"}

    def tagger(words):
        return [tags.get(word.lower(), ".") for word in words]

    monkeypatch.setattr("auxlearn.tasks.pos.find_tagger", lambda: (tagger, "by hand"))
    weights = {"NN": 1, "NNP": 3, "J": 2, "VB": 0}
    task = prepared("pos", trained_bert, tmp_path, ["the parser is faster"], weights=weights)
    batch = whole(task)
    words = batch.words[0][batch.maskable[0]]
    scores = torch.tensor([0.0, 3.0, 0.0, 2.0])[words][None]
    wanted = rescale_to_mean(scores, torch.ones_like(scores, dtype=torch.bool), 0.15)
    found = task.mask_probabilities(batch)[batch.maskable]
    torch.testing.assert_close(found[None], wanted)
    for weights in ({}, {"NNP": 0}, {"ZZ": 1}):  # masking would be uniform
        with pytest.raises(ConfigError, match=r"weights name no part of speech .* DT, JJR, NNP"):
            prepared("pos", trained_bert, tmp_path, ["the parser is faster"], weights=weights)


@pytest.mark.parametrize("pairs", [None, tuple(LINES[10:20])])
def test_tags_in_pieces_are_those_of_each_text(trained_bert, tmp_path, monkeypatch, pairs):
    monkeypatch.setattr(tokens, "CHUNK_TEXTS", 3)
    split = Split("train", tuple(LINES[:10]), None, LABELS, pairs)
    texts = tokenized(trained_bert, split.texts, None, pairs)
    context = context_of(trained_bert, tmp_path, texts, split)

    def tagger(words):
        return [word[:2] for word in words]

    found = context.token_tags(tagger)
    one_by_one = []
    for number in range(10):
        alone = texts.select(torch.tensor([number]))
        own = context_of(trained_bert, tmp_path, alone, split.select([number]))
        one_by_one += own.token_tags(tagger)
    assert found == one_by_one
    scores = context.tag_scores(tagger, lambda tag: float(tag == "th"))
    assert scores.dtype == torch.float64
    assert scores.tolist() == [float(tag == "th") for tag in found]
    assert 0 < int(scores.sum()) < len(found)


def test_without_a_tagger_one_line_says_what_to_install(trained_bert, tmp_path, monkeypatch):
    monkeypatch.setattr("auxlearn.tasks.pos.find_tagger", lambda: None)
    with one_line(ConfigError, "pos needs a part-of-speech tagger: install one", pos_tags.ADVICE):
        prepared("pos", trained_bert, tmp_path)


def test_texts_that_were_perturbed_have_no_tags(trained_bert, tmp_path):
    split = Split("train", tuple(LINES[:3]), None, LABELS)
    texts = tokenized(trained_bert, LINES[3:6])
    with pytest.raises(ConfigError, match="perturbed_text has changed"):
        prepared_on("salient", trained_bert, tmp_path, texts, split)


def test_names_and_numbers_are_masked_first(trained_bert, tmp_path):
    text = "the parser of Smith is better on the 10 short words of the corpus we use in the tests"
    task = prepared("salient", trained_bert, tmp_path, [text, "the corpus is short"])
    batch = whole(task)
    found = task.mask_probabilities(batch)
    words = text.split()
    for place in batch.maskable[0].nonzero().squeeze(1).tolist():
        first = words[int(batch.words[0, place])] in ("Smith", "10")
        assert (float(found[0, place]) > 0.3) == first
    assert found[1][batch.maskable[1]].tolist() == pytest.approx([0.15] * 4)


def test_entropy_is_that_of_the_prediction_at_the_masked_position(trained_bert, tmp_path):
    task = prepared("entropy", trained_bert, tmp_path, LINES[:3])
    batch = whole(task)
    scores = torch.zeros(batch.input_ids.shape, dtype=torch.float64)
    with trained_bert.evaluating(), torch.no_grad():
        for row, column in batch.maskable.nonzero().tolist():
            length = int(batch.attention_mask[row].sum())
            ids = batch.input_ids[row : row + 1, :length].clone()
            same = batch.words[row, :length] == batch.words[row, column]
            same[:column] = False
            ids[0, same] = trained_bert.tokenizer.mask_token_id
            logits = trained_bert.language_model(input_ids=ids).logits[0, column].double()
            scores[row, column] = torch.distributions.Categorical(logits=logits).entropy()
    wanted = rescale_to_mean(scores, batch.maskable, 0.15)
    torch.testing.assert_close(task.mask_probabilities(batch), wanted, atol=1e-6, rtol=0)
    assert len(list(tmp_path.glob("*.safetensors"))) >= 1


def test_informative_relevance_by_hand(trained_bert, tmp_path):
    """Tokens 10 and 11 go together, 12 with anything: the best single mask is 10 or 11."""
    texts = flat([10, 11, 12], [10, 11, 12], [12, 13], [12, 14])
    task = prepared_on("informask", trained_bert, tmp_path, texts, probability=1 / 3)
    found = task._pmi(torch.tensor([10, 11, 12]))
    together, never = math.log(4 * 2 / (2 * 2)), math.log(4 * 2 / (2 * 4))
    wanted = [[math.log(2), together, never], [together, math.log(2), never], [never, never, 0.0]]
    assert found.tolist() == [pytest.approx(row) for row in wanted]
    for seed in range(30):
        draws = generator(seed)
        assert best_mask(found, 1 / 3, 30, False, draws).tolist()[2] is False
        assert best_mask(found, 1 / 3, 30, True, draws).tolist() == [False, False, True]
    rates = task.mask_probabilities(whole(task))
    assert rates[0, 3] == 0
    assert rates[0, 1:3].sum() == pytest.approx(1)


def test_informask_counts_in_pieces_as_all_at_once(trained_bert, tmp_path, monkeypatch):
    at_once = prepared("informask", trained_bert, tmp_path, LINES)
    for name in ("CHUNK_TEXTS", "COUNTED_TEXTS", "PIECE_TOKENS"):
        monkeypatch.setattr(informask, name, 7)
    task = prepared("informask", trained_bert, tmp_path, LINES)
    texts = task.texts
    found = task.scores(context_of(trained_bert, tmp_path, texts, name="informask"))
    assert torch.equal(task.probabilities, at_once.probabilities)
    present = torch.zeros(len(texts), int(texts.input_ids.max()) + 1, dtype=torch.int64)
    rows = torch.arange(len(texts)).repeat_interleave(texts.lengths)
    present[rows[texts.maskable], texts.input_ids[texts.maskable].long()] = 1
    assert torch.equal(torch.from_numpy(task._pairs.toarray()).long(), present.T @ present)
    # Of 40 masks, each has 0.15 times the number of tokens, rounded up or down.
    sizes = torch.zeros(len(texts), dtype=torch.float64).index_add_(0, rows, found)
    exact = 0.15 * torch.zeros(len(texts)).index_add_(0, rows, texts.maskable.float())
    assert (sizes >= 40 * exact.floor()).all()
    assert (sizes <= 40 * exact.ceil()).all()
    assert found.tolist() == [int(count) for count in found]


def test_masks_of_informask_have_the_number_of_tokens_that_the_rate_says():
    draws = generator()
    pmi = torch.rand(10, 10, generator=draws, dtype=torch.float64)
    sizes = torch.tensor([int(best_mask(pmi, 0.15, 5, False, draws).sum()) for _ in range(DRAWS)])
    assert set(sizes.tolist()) == {1, 2}
    assert float(sizes.double().mean()) == pytest.approx(1.5, abs=NEAR)
    assert best_mask(pmi[:0, :0], 0.15, 5, False, draws).tolist() == []


def test_rates_by_token_are_the_mean_of_those_by_text(trained_bert, tmp_path):
    by_text = prepared("informask", trained_bert, tmp_path, LINES[:8])
    by_token = prepared("informask", trained_bert, tmp_path, LINES[:8], by="token")
    given = context_of(trained_bert, tmp_path, by_text.texts, name="informask")
    counts = by_text.scores(given)
    ids, here = by_token.texts.input_ids.long(), by_token.texts.maskable
    found = ids[here].unique().tolist()
    means = {token: float(counts[here & (ids == token)].mean()) for token in found}
    batch = whole(by_token)
    scores = batch.input_ids.clone().double().apply_(lambda token: means.get(int(token), 0.0))
    wanted = rescale_to_mean(scores, batch.maskable, 0.15)
    found = by_token.mask_probabilities(batch)
    torch.testing.assert_close(found, wanted)  # both count the same masks


def test_released_rates_are_read_by_token_id(trained_bert, tmp_path):
    texts = flat([10, 11], [10, 12])
    path = tmp_path / "rates.json"
    path.write_text(json.dumps({"10": 0.1, "11": 0.3, "7": 1.0}))
    options = {"by": "token", "rates": str(path), "probability": 0.2}
    task = prepared_on("informask", trained_bert, tmp_path, texts, **options)
    found = task.mask_probabilities(whole(task))
    assert found[:, 1:3].tolist() == [pytest.approx([0.1, 0.3]), pytest.approx([0.4, 0.0])]
    for content, message in (
        ("[1]", r"rates.json is no JSON object of token id to rate"),
        ('{"-1": 0.2}', r"a rate of token -1, which is none of the encoder's \d+ tokens: give"),
        ('{"100000000000000": 0.2}', r"rates.json has a rate of token 100000000000000, which"),
        ('{"10": 1.5}', "rates outside 0 to 1"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            prepared_on("informask", trained_bert, tmp_path, texts, **options)


def test_similarity_is_that_to_the_nearest_anchor(trained_bert, tmp_path):
    texts = flat([10, 11, 12], [10, 11, 12])
    path = tmp_path / "texts.txt"
    path.write_text("a tagger")
    options = {"background": str(path), "anchors": 2, "probability": 0.2}
    task = prepared_on("difference", trained_bert, tmp_path, texts, **options)
    assert task.anchors.tolist() == [10, 11]  # all three are equal: the first ones
    weight = trained_bert.body.get_input_embeddings().weight.detach().double()
    unit = weight[[10, 11, 12]] / weight[[10, 11, 12]].norm(dim=1, keepdim=True)
    third = max(0.0, float((unit[2] @ unit[:2].T).max()))
    wanted = rescale_to_mean(torch.tensor([[1, 1, third]]), torch.ones(1, 3) > 0, 0.2)
    found = task.mask_probabilities(whole(task))[:1, 1:4]
    torch.testing.assert_close(found, wanted, atol=1e-7, rtol=0)


def test_selective_asks_a_classifier_without_each_token(trained_bert, tmp_path):
    task = prepared("selective", trained_bert, tmp_path, LINES[:9])
    batch = whole(task)
    body, mask = trained_bert.body, trained_bert.tokenizer.mask_token_id

    def feature(ids):
        return body(input_ids=ids[None]).last_hidden_state[0, 0].double()

    wanted = torch.zeros(batch.input_ids.shape, dtype=torch.float64)
    with trained_bert.evaluating(), torch.no_grad():
        lengths = batch.attention_mask.sum(1).tolist()
        rows = [ids[:n] for ids, n in zip(batch.input_ids, lengths, strict=True)]
        seen = torch.stack([feature(ids) for ids in rows]).numpy()
        classifier = LogisticRegression(max_iter=1000).fit(seen, batch.labels.numpy())
        for row, ids in enumerate(rows):
            full = classifier.predict_proba(feature(ids)[None].numpy())[0]
            for place in batch.maskable[row].nonzero().squeeze(1).tolist():
                without = ids.clone()
                without[place] = mask
                less = classifier.predict_proba(feature(without)[None].numpy())[0]
                wanted[row, place] = abs(less[full.argmax()] - full.max())
    expected = rescale_to_mean(wanted, batch.maskable, 0.15)
    torch.testing.assert_close(task.mask_probabilities(batch), expected, atol=2e-3, rtol=0)
    spread = expected[batch.maskable]
    assert float(spread.max() - spread.min()) > 0.1


def test_scores_of_typhoon_are_moving_averages_by_type(trained_bert, tmp_path):
    texts = flat([10, 11], [12, 13])
    task = prepared_on("typhoon", trained_bert, tmp_path, texts, probability=0.5, decay=0.75)
    batch = whole(task)
    assert task.mask_probabilities(batch)[:, 1:3].tolist() == [[0.5, 0.5]] * 2
    ids = torch.tensor([[10, 10, 11, 0]])
    first = torch.tensor([[[3.0, 4.0], [0.0, 1.0], [0.0, 6.0], [0.0, 0.0]]])  # norms 5, 1, 6
    task.observe_primary(ids, first)
    assert task.average[[10, 11]].tolist() == pytest.approx([3 / 4, 6 / 4])
    task.observe_primary(ids[:, 2:], 9 * first[:, 2:])  # a type alone has the mean norm
    a, b = 3 / 4, 0.75 * 6 / 4 + 0.25
    assert task.average[[10, 11]].tolist() == pytest.approx([a, b])
    found = task.mask_probabilities(batch)[:, 1:3]
    assert found.tolist() == [pytest.approx([a / (a + b), b / (a + b)]), [0.5, 0.5]]
    assert not task.seen[0]


def test_typhoon_sees_the_gradients_of_the_primary_loss(tmp_path):
    """Compared with transformers alone, on the texts of the batch."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TASKS.get("typhoon"), "observe_primary", lambda _, *given: seen.append(given))
        run = TinyRun(Objectives([("typhoon", {})]), Circumstances(tmp_path, dropout=False))
        state = {name: tensor.clone() for name, tensor in run.encoder.state_dict().items()}
        run.train(0, 1)
    (ids, gradients) = seen[0]
    assert len(seen) == 1
    run.encoder.load_state_dict(state)
    batch = run.step.primary.batch(0)
    assert torch.equal(ids, batch.input_ids)
    model = run.encoder.classifier
    embedded = run.encoder.body.get_input_embeddings()(batch.input_ids).detach().requires_grad_()
    inputs = {"inputs_embeds": embedded, "attention_mask": batch.attention_mask}
    model(**inputs, token_type_ids=batch.token_type_ids, labels=batch.labels).loss.backward()
    norms = gradients.norm(dim=-1)
    wanted = embedded.grad.norm(dim=-1)
    torch.testing.assert_close(norms / norms.mean(), wanted / wanted.mean(), rtol=1e-4, atol=1e-5)
    assert float(wanted.std()) > 0
    assert not run.encoder.body.get_input_embeddings()._forward_hooks


def test_typhoon_refuses_embeddings_without_a_gradient(tmp_path):
    run = TinyRun(Objectives([("typhoon", {})]), Circumstances(tmp_path, freeze="embeddings"))
    with pytest.raises(EncoderError, match="the embeddings are frozen: leave --freeze"):
        run.train(0, 1)


def test_a_mixture_masks_each_text_by_one_of_its_strategies(trained_bert, tmp_path):
    options = {"strategies": ["frequency", {"frequency": {"reverse": True}}, "whole_word"]}
    task = prepared("mixture", trained_bert, tmp_path, weights=(1, 2, 1), **options)
    batch = whole(task)
    parts = [part.mask_probabilities(batch) for part in task.parts]
    wanted = (parts[0] + 2 * parts[1] + parts[2]) / 4
    torch.testing.assert_close(task.mask_probabilities(batch), wanted)
    draws = generator()
    state = draws.get_state()
    found = task.choose_tokens(batch, draws)
    draws.set_state(state)
    torch.rand(len(batch), generator=draws, dtype=torch.float64)
    each = [part.choose_tokens(batch, draws) for part in task.parts]
    for row, own in enumerate(found):
        assert any(torch.equal(own, one[row]) for one in each)
    task.begin_step(0, 10)
    assert all(part.options.schedule == "constant" for part in task.parts)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mixture", {}, "mixture has no strategies to mix"),
        ("mixture", {"strategies": ["simcse"]}, "'simcse' is no masking strategy"),
        (
            "mixture",
            {"strategies": [{"span": {"probability": 0.3}}]},
            "span has probability of its own",
        ),
        ("mixture", {"strategies": ["span"], "weights": [1, 2]}, "2 weights for 1 strategies"),
        ("mixture", {"strategies": ["span"], "weights": [0]}, "one is more than 0"),
        ("selective", {"texts": LINES[:1]}, "selective needs texts with labels, of two or more"),
        ("difference", {}, "name a file of texts of other domains by background"),
        ("informask", {"unit": "word"}, "unit word and rates go with by: token"),
        ("pos", {"weights": {"NN": -1}}, "greater than or equal to 0"),
    ],
)
def test_what_does_not_fit_is_refused(trained_bert, tmp_path, name, options, message):
    with pytest.raises(ConfigError, match=message):
        prepared(name, trained_bert, tmp_path, **options)
