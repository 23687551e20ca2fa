"""Lengths of texts, and how many of them are truncated."""

from __future__ import annotations

import json

import pytest

from auxlearn.data.dataset import Split
from auxlearn.data.lengths import describe_lengths, token_lengths, word_lengths
from tests.cli.helpers import call
from tests.helpers import ragged

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


def test_a_run_says_how_many_texts_are_cut():
    line = describe_lengths(ragged([3, 5, 8, 8]), 8)
    assert line == (
        "tokens per text of train: median 6, 95% have at most 8; "
        "2 of 4 reach the 8 of max_length, where texts are cut"
    )
    assert describe_lengths(ragged([3, 5]), 8).endswith("none reaches the 8 of max_length")


def test_the_audit_of_many_labels_is_short(tmp_path):
    rows = [{"text": f"text {i}", "label": f"label {i % 500}"} for i in range(1500)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    shown = call("data", "check", tmp_path).stdout
    assert "(485 others)" in shown
    assert len(shown) < 3000
    report = json.loads(call("data", "check", tmp_path, "--json").stdout)
    assert len(report["splits"]["train"]["labels"]) == 500
    assert report["lengths"]["train"]["longest"] == 2
