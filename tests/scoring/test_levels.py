"""Scores of tokens, words and texts against sums by hand, and their cache."""

import numpy as np
import pytest
import torch
import transformers

import auxlearn
from auxlearn.core.cache import TensorCache
from auxlearn.core.errors import EncoderError
from auxlearn.data.dataset import Split
from auxlearn.encoders.load import load_encoder
from auxlearn.scoring import pseudo_likelihood as cached
from auxlearn.scoring.levels import score_levels
from auxlearn.scoring.pseudo_likelihood import (
    log_probability_and_entropy,
    pseudo_log_likelihood,
    score_texts,
)
from tests import helpers
from tests.helpers import LABELS, LINES, tokenized

TEXTS = ("The parser reads a file.", "A tagger learns words, slowly.")


@pytest.fixture(scope="module")
def scorer(trained_folder):
    folder = trained_folder("roberta")
    return folder, load_encoder(str(folder), LABELS)


@pytest.fixture(scope="module")
def tables(scorer):
    _, encoder = scorer
    split = Split("texts", TEXTS, None, ())
    return {level: score_levels(encoder, split, level, 64) for level in ("token", "word", "text")}


def test_tokens_have_their_pseudo_likelihoods(scorer, tables):
    """Which are those of minicons."""
    _, encoder = scorer
    texts = tokenized(encoder, TEXTS)
    expected = pseudo_log_likelihood(encoder, texts)[texts.maskable].tolist()
    assert tables["token"].columns["log_probability"] == pytest.approx(expected, abs=1e-5)


def test_entropies_are_those_of_the_masked_predictions(scorer, tables):
    folder, _ = scorer
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    encoded = tokenizer(TEXTS[0], return_tensors="pt")
    words = encoded.word_ids(0)
    inside = [place for place, word in enumerate(words) if word is not None]
    expected = []
    for place in inside:
        ids = encoded["input_ids"].clone()
        later = [other for other in inside if other >= place and words[other] == words[place]]
        ids[0, later] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = model(ids, attention_mask=encoded["attention_mask"]).logits[0, place]
        expected.append(torch.distributions.Categorical(logits=logits.double()).entropy().item())
    assert tables["token"].columns["entropy"][: len(inside)] == pytest.approx(expected, abs=1e-5)


def test_words_and_texts_are_sums_over_tokens(tables):
    tokens, words, texts = (tables[level].columns for level in ("token", "word", "text"))
    sums, means = {}, {}
    for text, word, score, entropy in zip(
        *(tokens[name] for name in ("text", "word", "log_probability", "entropy")), strict=True
    ):
        sums.setdefault((text, word), []).append(score)
        means.setdefault(text, []).append(entropy)
    keys = list(zip(words["text"], words["word"], strict=True))
    assert keys == sorted(sums)
    assert words["log_probability"] == pytest.approx([sum(sums[key]) for key in keys])
    assert words["tokens"] == [len(sums[key]) for key in keys]
    assert max(words["tokens"]) > 1
    assert texts["log_probability"] == pytest.approx(
        [sum(sum(v) for (text, _), v in sums.items() if text == row) for row in (0, 1)]
    )
    assert texts["entropy"] == pytest.approx([sum(v) / len(v) for _, v in sorted(means.items())])
    assert texts["form"] == list(TEXTS)
    assert "parser" in words["form"]
    assert len(tokens["form"]) == sum(texts["tokens"])


def test_unknown_tokens_have_rows_and_no_score(trained_folder, tmp_path):
    encoder = str(trained_folder("bert"))
    texts, kept = ["the parser ☃☃ reads", "☃", "the parser reads"], tmp_path / "scores.csv"
    reporter = helpers.Messages()
    found = {
        level: auxlearn.score(encoder, texts, level=level, output=kept, reporter=reporter)
        for level in ("token", "word", "text")
    }
    assert sum("(text 0, 1)" in line for line in reporter.lines) == 3, reporter.lines
    tokens, words, whole = found.values()
    lacking = tokens["form"] == "[UNK]"
    assert lacking.sum() == 2
    assert (tokens["log_probability"].isna() == lacking).all()
    sums = tokens.groupby("text")["log_probability"].sum(min_count=1)  # none of no numbers
    np.testing.assert_allclose(whole["log_probability"], sums, rtol=1e-12)
    assert whole["unscored"].tolist() == [1, 1, 0]
    scored = (~lacking).groupby(tokens["text"]).sum()
    assert whole["tokens"].tolist() == scored.tolist()
    assert words["log_probability"].isna().sum() == 2
    assert kept.read_text().splitlines()[2] == "1,☃,0,1,,"
    known = auxlearn.score(encoder, texts[2:], level="text", reporter=(quiet := helpers.Messages()))
    assert known["log_probability"][0] == pytest.approx(whole["log_probability"][2], rel=1e-6)
    assert not [line for line in quiet.lines if "does not know" in line]


def test_the_entropy_of_a_uniform_prediction_is_the_logarithm_of_the_vocabulary():
    logits = torch.zeros(1, 7)
    found = log_probability_and_entropy(logits, torch.tensor([3]))
    expected = torch.tensor(7.0).log()
    torch.testing.assert_close(found, torch.stack([-expected, expected])[None])


def test_a_newly_initialised_head_is_refused(scorer, monkeypatch):
    _, encoder = scorer
    monkeypatch.setattr(encoder, "new_language_model_head", True)
    with pytest.raises(EncoderError, match=r"'score' needs a pretrained .*head`$"):
        score_levels(encoder, Split("texts", TEXTS, None, ()), "token", 64)


def test_scores_of_packed_and_plain_linear_layers_are_cached_apart(
    trained_bert, tmp_path, monkeypatch
):
    """In bfloat16 they differ in the first decimal place."""
    texts = tokenized(trained_bert, LINES[:3])
    made = []
    for packed in (True, False, True, False):
        monkeypatch.setattr("auxlearn.scoring.forward.packing_works", lambda dtype, p=packed: p)
        monkeypatch.setattr(
            cached,
            "pseudo_log_likelihood",
            lambda *_, p=packed: made.append(p) or torch.zeros(len(texts.words)),
        )
        score_texts(trained_bert, texts, TensorCache(tmp_path), dtype=torch.bfloat16)
    assert made == [True, False]


def counted(monkeypatch, most=99):
    """Numbers of texts that are scored at once; so many times."""
    scored = []

    def counting(encoder, texts, *arguments):
        if len(scored) == most:
            raise KeyboardInterrupt
        scored.append(len(texts))
        return pseudo_log_likelihood(encoder, texts, *arguments)

    monkeypatch.setattr(cached, "pseudo_log_likelihood", counting)
    return scored


def scores(encoder, texts, folder):
    return score_texts(encoder, texts, TensorCache(folder))


def test_an_interrupted_scoring_resumes_at_the_next_shard(trained_bert, tmp_path, monkeypatch):
    texts = tokenized(trained_bert, LINES)
    monkeypatch.setattr(cached, "SHARD_TEXTS", 6)
    undisturbed = scores(trained_bert, texts, tmp_path / "other")
    counted(monkeypatch, most=2)
    with pytest.raises(KeyboardInterrupt):
        scores(trained_bert, texts, tmp_path / "cache")
    scored = counted(monkeypatch)
    assert torch.equal(scores(trained_bert, texts, tmp_path / "cache"), undisturbed)
    assert scored == [6, 6]
