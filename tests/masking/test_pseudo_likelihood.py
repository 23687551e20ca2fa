"""Pseudo-likelihoods, against minicons and against inputs masked by hand."""

from __future__ import annotations

import pytest
import torch
import transformers
from minicons.scorer import MaskedLMScorer

from auxlearn.encoders.load import load_encoder
from auxlearn.masking import pseudo_likelihood
from auxlearn.masking.pseudo_likelihood import masked_copy, score
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
    texts = tokenized(encoder, HARD_TEXTS)
    ours = score(encoder, texts)
    theirs, unknown = minicons_scores(folder, HARD_TEXTS)
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
    vocab = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "the",
        "un",
        "##mask",
        "##able",
        "token",
        "stays",
        ".",
    ]
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
    torch.testing.assert_close(score(encoder, texts), torch.tensor(expected), atol=1e-5, rtol=0)
    assert max(expected[1:-1]) - min(expected[1:-1]) > 1


def test_masked_copy_hides_the_target_and_the_rest_of_its_word():
    words = torch.tensor([[-1, 0, 1, 1, 1, 0, -1]]).expand(4, -1)
    hidden = masked_copy(words, torch.tensor([1, 2, 3, 4]))
    assert hidden.int().tolist() == [
        [0, 1, 0, 0, 0, 1, 0],
        [0, 0, 1, 1, 1, 0, 0],
        [0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 0, 0],
    ]


def test_sentence_pairs_are_scored_with_their_segments(trained_bert, trained_folder):
    texts = tokenized(trained_bert, ["The parser is faster."], pairs=["The tagger isn't better."])
    ours = score(trained_bert, texts)
    native = transformers.AutoModelForMaskedLM.from_pretrained(trained_folder("bert"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained_folder("bert"))
    encoded = tokenizer("The parser is faster.", "The tagger isn't better.", return_tensors="pt")
    assert encoded["token_type_ids"].sum() > 0
    for position in texts.maskable.nonzero().squeeze(1).tolist():
        token = int(encoded["input_ids"][0, position])
        word, segment = encoded.word_ids()[position], encoded.sequence_ids()[position]
        masked = encoded["input_ids"].clone()
        for other in range(position, masked.shape[1]):
            same = (encoded.word_ids()[other], encoded.sequence_ids()[other]) == (word, segment)
            if same:
                masked[0, other] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = native(**{**encoded, "input_ids": masked}).logits[0, position]
        assert float(ours[position]) == pytest.approx(
            float(logits.log_softmax(-1)[token]), abs=1e-5
        )


def test_scores_do_not_depend_on_order_company_or_budget(trained_bert, monkeypatch):
    texts = tokenized(trained_bert, LINES[:10])
    scores = score(trained_bert, texts).split(texts.lengths.tolist())

    turned = list(reversed(range(10)))
    reversed_scores = score(trained_bert, texts.select(torch.tensor(turned)))
    expected = torch.cat([scores[row] for row in turned])
    torch.testing.assert_close(reversed_scores, expected, atol=1e-5, rtol=0)

    alone = score(trained_bert, texts.select(torch.tensor([4])))
    torch.testing.assert_close(alone, scores[4], atol=1e-5, rtol=0)

    for budget in (1, 100):
        monkeypatch.setitem(pseudo_likelihood.TOKEN_BUDGET, "cpu", budget)
        small = score(trained_bert, texts)
        torch.testing.assert_close(small, torch.cat(scores), atol=1e-5, rtol=0)


def test_progress_counts_every_scored_token_once(trained_bert):
    texts = tokenized(trained_bert, LINES[:5])
    advanced = []
    score(trained_bert, texts, advanced.append)
    assert sum(advanced) == int(texts.maskable.sum())


def test_a_text_with_nothing_to_score(trained_bert):
    texts = tokenized(trained_bert, ["日本", ""])
    assert score(trained_bert, texts).tolist() == [0.0] * len(texts.input_ids)


def modes(encoder):
    return [module.training for module in encoder.modules()]


@pytest.mark.parametrize("mode", ["train", "eval", "mixed"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_encoder_is_left_as_it_was(trained_bert, monkeypatch, mode, fails):
    encoder = trained_bert
    encoder.train(mode != "eval")
    if mode == "mixed":
        encoder.body.embeddings.eval()
    encoder.body.embeddings.word_embeddings.weight.requires_grad_(False)
    before = helpers.snapshot(encoder)
    were, wanted = modes(encoder), [p.requires_grad for p in encoder.parameters()]
    texts = tokenized(encoder, LINES[:2])
    state = torch.random.get_rng_state()
    if fails:
        monkeypatch.setattr(type(encoder), "predict_tokens", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            score(encoder, texts)
    else:
        score(encoder, texts)
    assert modes(encoder) == were
    assert [p.requires_grad for p in encoder.parameters()] == wanted
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(p.grad is None for p in encoder.parameters())
    for name, tensor in encoder.tensors().items():
        assert torch.equal(tensor, before[name]), name
    assert torch.is_grad_enabled()


def test_dropout_plays_no_part(trained_bert):
    texts = tokenized(trained_bert, LINES[:2])
    still = score(trained_bert.eval(), texts)
    assert torch.equal(score(trained_bert.train(), texts), still)


def test_a_freshly_loaded_encoder_is_in_evaluation_mode_throughout(trained_bert):
    assert not any(modes(trained_bert))
