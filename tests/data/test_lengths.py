"""Lengths of texts, and how many of them are truncated."""

from __future__ import annotations

import json

import pytest

from auxlearn.core.cache import TensorCache
from auxlearn.core.settings import Windowing
from auxlearn.data.audit import describe_lengths, token_lengths, whole_lengths, word_lengths
from auxlearn.data.dataset import Split
from auxlearn.data.tokens import HEAD
from tests.cli.helpers import call
from tests.helpers import tokenized

TEXTS = ("the parser", "the parser is the parser", "the", "the tagger is")


def test_words_are_counted_over_both_texts_of_a_pair():
    found = word_lengths(Split("train", TEXTS, None, ()))
    assert (found.unit, found.longest, found.median, found.mean) == ("words", 5, 2.5, 2.75)
    assert found.truncated is None
    pairs = word_lengths(Split("train", TEXTS[:1], None, (), text_pairs=TEXTS[1:2]))
    assert pairs.longest == 7


@pytest.mark.parametrize(("maximum", "share"), [(3, 0.75), (4, 0.5), (7, 0.0)])
def test_tokens_are_counted_before_truncation(tiny_bert, maximum, share):
    found = token_lengths(tiny_bert.tokenizer, Split("train", TEXTS, None, ()), maximum)
    assert (found.unit, found.longest) == ("tokens", 7)  # five words, [CLS] and [SEP]
    assert found.truncated == share


def test_a_run_says_how_many_texts_are_cut_and_what_is_kept(tiny_bert, tmp_path):
    cache, split = TensorCache(tmp_path), Split("train", TEXTS, None, ())
    for _ in range(2):  # computed, then read from the cache
        texts = tokenized(tiny_bert, TEXTS, max_length=5)
        whole = whole_lengths(tiny_bert.tokenizer, split, texts, 5, cache)
        assert whole.tolist() == [4, 7, 3, 5]
    assert describe_lengths(whole, 5, HEAD, 2) == (
        "tokens per text of train: median 4, 95% have at most 7; "
        "1 of 4 are longer than the 5 of max_length and are cut, which keeps 89.5% of all tokens"
    )
    assert describe_lengths(whole, 7, HEAD, 2).endswith("none is longer than the 7 of max_length")
    # A second window of 5 tokens has two new ones: one is of the window before, two are special.
    windows = Windowing(text_window="windows", window_stride=1, max_windows=2)
    assert describe_lengths(whole, 5, windows, 2).endswith(
        "are read in at most 2 windows, which keeps 100.0% of all tokens"
    )
    longer = whole.copy()
    longer[1] += 1
    assert "keeps 95.0% of all tokens" in describe_lengths(longer, 5, windows, 2)


def test_the_audit_of_many_labels_is_short(tmp_path):
    rows = [{"text": f"text {i}", "label": f"label {i % 500}"} for i in range(1500)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    shown = call("data", "check", tmp_path).stdout
    assert "(485 others)" in shown
    assert len(shown) < 3000
    report = json.loads(call("data", "check", tmp_path, "--json").stdout)
    assert len(report["splits"]["train"]["labels"]) == 500
    assert report["lengths"]["train"]["longest"] == 2
