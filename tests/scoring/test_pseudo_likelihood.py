"""Pseudo-likelihoods, against minicons and against inputs masked by hand."""

import re
from itertools import pairwise
from unittest.mock import Mock

import pytest
import torch
import transformers
from minicons.scorer import MaskedLMScorer

from auxlearn.core.errors import EncoderError
from auxlearn.data.tokens import UNSPACED
from auxlearn.encoders.load import load_encoder
from auxlearn.scoring import pseudo_likelihood
from auxlearn.scoring.forward import TargetPass
from auxlearn.scoring.pseudo_likelihood import pseudo_log_likelihood
from tests import helpers
from tests.helpers import HARD_TEXTS, LABELS, LINES, tokenized


def minicons_scores(folder, texts):
    """Token ids and log-probabilities of each text by minicons, special tokens left out."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.batch_encode_plus = tokenizer.__call__  # gone from transformers 5
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    scorer = MaskedLMScorer(model, device="cpu", tokenizer=tokenizer, PLL_metric="within_word_l2r")
    found = []
    for text in texts:
        prepared = list(scorer.prepare_text(text, PLL_metric="within_word_l2r"))
        (logprobs,) = scorer.compute_stats(prepared, return_tensors=True)
        found.append((prepared[0][2], logprobs))
    return found, tokenizer.unk_token_id


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_scores_equal_those_of_minicons(family, trained_folder):
    folder = trained_folder(family)
    encoder = load_encoder(str(folder), LABELS)
    given = list(HARD_TEXTS)
    if family == "roberta":  # minicons takes 日本 for one word there, unlike BERT's tokenizer
        given = [text for text in given if not re.search(f"[{UNSPACED}]", text)]
    texts = tokenized(encoder, given)
    ours = pseudo_log_likelihood(encoder, texts)
    theirs, unknown = minicons_scores(folder, given)
    compared, unknown_words = 0, 0
    for row, (ids, logprobs) in enumerate(theirs):
        inside = slice(int(texts.offsets[row]) + 1, int(texts.offsets[row + 1]) - 1)
        assert texts.input_ids[inside].tolist() == ids.tolist()
        known = ids != unknown
        assert texts.maskable[inside].tolist() == known.tolist()
        torch.testing.assert_close(ours[inside][known], logprobs[known], atol=1e-5, rtol=0)
        assert (ours[inside][~known] == 0).all()
        compared += int(known.sum())
        unknown_words += int((~known).sum())
    assert compared == int(texts.maskable.sum()) > 120
    assert (unknown_words > 0) == (family == "bert")  # a byte-level vocabulary knows everything
    # Were all probabilities near zero, nearly equal log-probabilities would prove little.
    probabilities = ours[texts.maskable].exp()
    assert (probabilities > 0.3).float().mean() > 0.1
    assert (probabilities < 0.01).float().mean() > 0.1
    words = texts.words[texts.maskable]
    assert int((words[1:] == words[:-1]).sum()) > 20  # words of several tokens are there


@pytest.fixture
def handmade(tmp_path):
    """A BERT whose vocabulary is written out, so that the tokens below are known."""
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab += ["the", "un", "##mask", "##able", "token", "stays", "."]
    tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(vocab)})
    with torch.random.fork_rng():
        torch.manual_seed(11)
        config = transformers.BertConfig(
            vocab_size=len(vocab), initializer_range=0.5, **helpers.SIZE
        )
        model = transformers.BertForMaskedLM(config)
    return helpers.write(tmp_path, model, tokenizer)


def test_a_word_of_three_subwords_by_hand(handmade):
    encoder = load_encoder(str(handmade), LABELS)
    texts = tokenized(encoder, ["The unmaskable token stays."])
    # [CLS] the un ##mask ##able token stays . [SEP]
    assert texts.input_ids.tolist() == [2, 5, 6, 7, 8, 9, 10, 11, 3]
    masked = [
        (1, 5, [2, 4, 6, 7, 8, 9, 10, 11, 3]),  # the
        (2, 6, [2, 5, 4, 4, 4, 9, 10, 11, 3]),  # un: all of its word is hidden
        (3, 7, [2, 5, 6, 4, 4, 9, 10, 11, 3]),  # ##mask: un is seen, ##able is not
        (4, 8, [2, 5, 6, 7, 4, 9, 10, 11, 3]),  # ##able: un and ##mask are seen
        (5, 9, [2, 5, 6, 7, 8, 4, 10, 11, 3]),
        (6, 10, [2, 5, 6, 7, 8, 9, 4, 11, 3]),
        (7, 11, [2, 5, 6, 7, 8, 9, 10, 4, 3]),
    ]
    native = transformers.AutoModelForMaskedLM.from_pretrained(handmade)
    expected = [0.0]
    with torch.no_grad():
        for position, token, ids in masked:
            logits = native(input_ids=torch.tensor([ids])).logits[0, position]
            expected.append(float(logits.log_softmax(-1)[token]))
    expected.append(0.0)
    torch.testing.assert_close(
        pseudo_log_likelihood(encoder, texts), torch.tensor(expected), atol=1e-5, rtol=0
    )
    assert max(expected[1:-1]) - min(expected[1:-1]) > 1


def test_sentence_pairs_are_scored_with_their_segments(trained_bert, trained_folder):
    texts = tokenized(trained_bert, ["The parser is faster."], pairs=["The tagger isn't better."])
    ours = pseudo_log_likelihood(trained_bert, texts)
    native = transformers.AutoModelForMaskedLM.from_pretrained(trained_folder("bert"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained_folder("bert"))
    encoded = tokenizer("The parser is faster.", "The tagger isn't better.", return_tensors="pt")
    assert encoded["token_type_ids"].sum() > 0
    for position in texts.maskable.nonzero().squeeze(1).tolist():
        token = int(encoded["input_ids"][0, position])
        word, segment = encoded.word_ids()[position], encoded.sequence_ids()[position]
        masked = encoded["input_ids"].clone()
        for other in range(position, masked.shape[1]):
            if (encoded.word_ids()[other], encoded.sequence_ids()[other]) == (word, segment):
                masked[0, other] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = native(**{**encoded, "input_ids": masked}).logits[0, position]
        assert float(ours[position]) == pytest.approx(
            float(logits.log_softmax(-1)[token]), abs=1e-5
        )


def test_scores_do_not_depend_on_order_other_texts_or_budget(trained_bert, monkeypatch):
    texts = tokenized(trained_bert, LINES[:10])
    scores = pseudo_log_likelihood(trained_bert, texts).split(texts.lengths.tolist())

    turned = list(reversed(range(10)))
    reversed_scores = pseudo_log_likelihood(trained_bert, texts.select(torch.tensor(turned)))
    expected = torch.cat([scores[row] for row in turned])
    torch.testing.assert_close(reversed_scores, expected, atol=1e-5, rtol=0)

    alone = pseudo_log_likelihood(trained_bert, texts.select(torch.tensor([4])))
    torch.testing.assert_close(alone, scores[4], atol=1e-5, rtol=0)

    for budget in (1, 100):
        monkeypatch.setitem(pseudo_likelihood.TOKEN_BUDGET, "cpu", budget)
        small = pseudo_log_likelihood(trained_bert, texts)
        torch.testing.assert_close(small, torch.cat(scores), atol=1e-5, rtol=0)


def modes(encoder):
    return [module.training for module in encoder.modules()]


@pytest.mark.parametrize("fails", [False, True])
def test_the_encoder_is_left_as_it_was(trained_bert, monkeypatch, fails):
    encoder = trained_bert.train()
    encoder.body.embeddings.eval()
    encoder.body.embeddings.word_embeddings.weight.requires_grad_(False)
    before = helpers.snapshot(encoder)
    were, wanted = modes(encoder), [p.requires_grad for p in encoder.parameters()]
    texts = tokenized(encoder, LINES[:2])
    state = torch.random.get_rng_state()
    if fails:
        monkeypatch.setattr(TargetPass, "logits", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pseudo_log_likelihood(encoder, texts)
    else:
        pseudo_log_likelihood(encoder, texts)
    assert modes(encoder) == were
    assert [p.requires_grad for p in encoder.parameters()] == wanted
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(p.grad is None for p in encoder.parameters())
    for name, tensor in encoder.tensors().items():
        assert torch.equal(tensor, before[name]), name
    assert torch.is_grad_enabled()


def by_hand(encoder, texts, groups):
    """Log-probabilities by masking, in each text, the given groups of positions together."""
    mask_id = encoder.tokenizer.mask_token_id
    scores = torch.zeros(len(texts.input_ids))
    for row in range(len(texts)):
        start, end = texts.offsets[row : row + 2].tolist()
        ids, words = texts.input_ids[start:end].long(), texts.words[start:end].tolist()
        for group in groups(texts.maskable[start:end].nonzero().squeeze(1).tolist()):
            copy = ids.clone()
            for target in group:
                later = [p for p in range(target, len(ids)) if words[p] == words[target]]
                copy[later] = mask_id
            with torch.no_grad():
                logits = encoder.language_model(input_ids=copy[None]).logits[0]
            for target in group:
                scores[start + target] = logits[target].log_softmax(-1)[ids[target]]
    return scores


@pytest.mark.parametrize("passes", [2, 5])
def test_each_pass_scores_every_kth_token(trained_bert, passes):
    texts = tokenized(trained_bert, HARD_TEXTS)
    expected = by_hand(
        trained_bert, texts, lambda targets: [targets[turn::passes] for turn in range(passes)]
    )
    found = pseudo_log_likelihood(trained_bert, texts, passes=passes)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    exact = pseudo_log_likelihood(trained_bert, texts)
    assert (found - exact).abs().max() > 0.1  # another estimate, not the same


def test_as_many_passes_as_tokens_are_exact(trained_bert):
    texts = tokenized(trained_bert, LINES[:4])
    many = pseudo_log_likelihood(trained_bert, texts, passes=128)
    torch.testing.assert_close(many, pseudo_log_likelihood(trained_bert, texts), atol=1e-5, rtol=0)


def counted(monkeypatch):
    shapes = []
    plain = TargetPass.states

    def states(self, batches):
        shapes.append([tuple(batch.input_ids.shape) for batch in batches])
        return plain(self, batches)

    monkeypatch.setattr(TargetPass, "states", states)
    return shapes


def test_equal_copies_are_computed_once(trained_bert, monkeypatch):
    text, other = "The parser is faster.", "The tagger is faster."
    texts = tokenized(trained_bert, [text, text, other, text])
    one, two = (tokenized(trained_bert, [t]) for t in (text, other))
    alone, aside = (pseudo_log_likelihood(trained_bert, t) for t in (one, two))
    shapes = counted(monkeypatch)
    found = pseudo_log_likelihood(trained_bert, texts)
    torch.testing.assert_close(found, torch.cat([alone, alone, aside, alone]), atol=1e-6, rtol=0)
    ids = [t.input_ids[t.maskable].tolist() for t in (one, two)]
    assert len(ids[0]) > len({*ids[0]} & {*ids[1]}) > 0
    distinct = set()
    for t in (one, two):
        for target in t.maskable.nonzero().squeeze(1).tolist():
            hidden = (t.words == t.words[target]) & (torch.arange(len(t.words)) >= target)
            distinct.add(tuple(t.input_ids.masked_fill(hidden, -1).tolist()))
    assert sum(rows for batch in shapes for rows, _ in batch) == len(distinct)
    assert len(distinct) < int(one.maskable.sum() + two.maskable.sum())


def test_a_batch_that_does_not_fit_is_halved(trained_bert, monkeypatch):
    texts = tokenized(trained_bert, LINES[:6])
    expected = pseudo_log_likelihood(trained_bert, texts)
    plain = TargetPass.states
    tried = []

    def states(self, batches):
        tried.append(sum(batch.input_ids.numel() for batch in batches))
        if tried[-1] > 100:
            raise torch.OutOfMemoryError("no memory")
        return plain(self, batches)

    monkeypatch.setattr(TargetPass, "states", states)
    torch.testing.assert_close(
        pseudo_log_likelihood(trained_bert, texts), expected, atol=1e-5, rtol=0
    )
    # One batch is refused, then its half and so on; the budget has learned from each.
    refused = [size for size in tried if size > 100]
    assert refused == tried[: len(refused)]
    assert all(later <= earlier // 2 for earlier, later in pairwise(refused))
    assert len(refused) > 1


def test_a_single_text_that_does_not_fit_is_an_error(trained_bert, monkeypatch):
    refused = Mock(side_effect=torch.OutOfMemoryError("no memory"))
    monkeypatch.setattr(TargetPass, "states", refused)
    with pytest.raises(EncoderError, match=r"not have the memory to score one text of \d+ tokens"):
        pseudo_log_likelihood(trained_bert, tokenized(trained_bert, LINES[:1]))
