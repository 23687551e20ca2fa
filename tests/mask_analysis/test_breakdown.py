"""Groups of tokens: parts of speech by the words that tokens begin in, and counts by hand."""

import numpy as np
import pytest

from auxlearn.core.settings import Windowing
from auxlearn.data import pos_tags
from auxlearn.data.dataset import Split
from auxlearn.data.tokens import Tokenization, TokenizedTexts
from auxlearn.mask_analysis.statistics import by_frequency, groups, ranked, token_table
from tests import helpers

BOTH_ENDS = Windowing(text_window="head+tail")
TEXT = "The state-of-the-art parser isn't trained (by Smith)."
KINDS = {"The": "DT", "state-of-the-art": "JJ", "parser": "NN", "isn't": "VBZ", "trained": "VBN"}


def token_tags(split, texts, tokenization, tagger):
    """The tags of all texts, or none where the tokens are those of others."""
    pieces = list(pos_tags.token_tags(split, texts, tokenization, tagger))
    return None if None in pieces else [tag for tags in pieces for tag in tags]


def tag(words):
    return [KINDS.get(word, "(" if word in "()" else "X") for word in words]


@pytest.mark.parametrize("make", [helpers.wordpiece, helpers.byte_level, helpers.unigram])
def test_every_piece_has_the_tag_of_its_word(make, tiny_bert, monkeypatch):
    tokenizer = make()
    texts = tokens_of(tokenizer, [TEXT], ["The parser"])
    split = Split("train", (TEXT,), None, (), ("The parser",))
    found = token_tags(split, texts, Tokenization(tokenizer, 64), tag)
    pieces = {}
    for token, kind in zip(texts.input_ids.tolist(), found, strict=True):
        if kind is not None:
            pieces[kind] = pieces.get(kind, "") + tokenizer.decode([token]).replace("##", "")
    shown = {kind: text.replace(" ", "").lower() for kind, text in pieces.items()}
    assert shown["JJ"] == "state-of-the-art"
    assert shown["DT"] == "thethe"
    assert shown["NN"] == "parserparser"
    assert shown["VBZ"] == "isn't"
    assert shown["("] == "()"
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    assert all(
        (kind is None) or token not in special
        for token, kind in zip(texts.input_ids.tolist(), found, strict=True)
    )


def tokens_of(tokenizer, texts, pairs=None, max_length=64):
    arrays = Tokenization(tokenizer, max_length).arrays(texts, pairs)
    return TokenizedTexts(**arrays, pad_id=tokenizer.pad_token_id)


def test_words_behind_a_truncation_are_not_tagged():
    tokenizer, seen = helpers.wordpiece(), []

    def spy(words):
        seen.append(words)
        return ["X"] * len(words)

    texts = tokens_of(tokenizer, [TEXT], max_length=4)
    found = token_tags(Split("train", (TEXT,), None, ()), texts, Tokenization(tokenizer, 4), spy)
    assert len(found) == len(texts.input_ids) == 4
    assert "parser" not in seen[0]


def test_words_in_the_middle_of_a_long_text_are_left_out():
    tokenizer = helpers.wordpiece()
    arrays = Tokenization(tokenizer, 6, BOTH_ENDS).arrays([TEXT])
    texts = TokenizedTexts(**arrays, pad_id=tokenizer.pad_token_id)
    split = Split("train", (TEXT,), None, ())
    whole = tokens_of(tokenizer, [TEXT])
    tags = token_tags(split, whole, Tokenization(tokenizer, 64), tag)
    found = token_tags(split, texts, Tokenization(tokenizer, 6, BOTH_ENDS), tag)
    assert found == [*tags[:2], *tags[-4:]]
    assert token_tags(split, texts, Tokenization(tokenizer, 6), tag) is None


def test_tokens_of_other_texts_have_no_tags():
    tokenizer = helpers.wordpiece()
    texts = tokens_of(tokenizer, ["the parser", "the corpus"])
    split = Split("train", ("the parser", "the tagger"), None, ())
    assert token_tags(split, texts, Tokenization(tokenizer, 64), tag) is None
    assert token_tags(split.select([0]), texts, Tokenization(tokenizer, 64), tag) is None


@pytest.fixture
def table():
    """Two tasks on two texts of which 'the' occurs ten times and every other token once."""
    tokenizer = helpers.wordpiece()
    texts = tokens_of(tokenizer, ["the the the the the parser", "the the the the the tagger"])
    maskable = texts.maskable.numpy()
    first = np.zeros(len(maskable))
    first[maskable] = [0.1] * 5 + [0.4] + [0.2] * 5 + [0.8]
    return token_table(texts, {"one": first, "other": maskable / 4})


TASKS = ["one", "other"]


def test_frequencies_in_powers_of_ten(table):
    rare, frequent = by_frequency(table, TASKS)
    assert (rare.name, rare.tokens) == ("1 to 9 times", 2)
    assert (frequent.name, frequent.tokens) == ("10 to 99 times", 10)
    assert rare.rates == pytest.approx({"one": 0.6, "other": 0.25})
    assert frequent.rates == pytest.approx({"one": 0.15, "other": 0.25})
    # Random masking has the mean of each text: 0.15 and 0.3.
    for group in (rare, frequent):
        assert group.random == pytest.approx({"one": 0.225, "other": 0.25})


def test_groups_are_ranked_and_tokens_without_a_key_are_left_out(table):
    counts = table.groupby("id")["id"].transform("size")
    tags = np.where(counts == 1, "NN", None)
    tags[0] = "DT"
    found = groups(table, TASKS, tags)
    nouns, article = ranked(found, "one")
    assert (nouns.name, nouns.tokens) == ("NN", 2)
    assert (article.name, article.tokens) == ("DT", 1)
    assert nouns.rates["one"] == pytest.approx(0.6)
