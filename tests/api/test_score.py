"""``auxlearn score`` and ``auxlearn.score``."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import auxlearn
from auxlearn.errors import UserError
from tests.cli.helpers import call, error

TEXTS = ["The parser reads a file.", "A tagger learns words."]


@pytest.fixture
def folder(one_layer):
    return one_layer


def test_the_command_prints_and_writes_what_the_function_returns(folder, tmp_path):
    frame = auxlearn.score(folder, TEXTS, level="word")
    shown = call("score", "--encoder", folder, "--level", "word", *TEXTS).stdout
    assert [json.loads(line) for line in shown.splitlines()] == frame.to_dict("records")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    arguments = ["--encoder", folder, "--level", "word", "--file", tmp_path / "texts.txt"]
    call("score", *arguments, "--output", tmp_path / "scores.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "scores.csv"), frame)


def test_a_text_is_scored_by_the_sum_of_its_tokens(folder):
    tokens, whole = (auxlearn.score(folder, TEXTS[0], level=level) for level in ("token", "text"))
    assert tokens["log_probability"].sum() == pytest.approx(whole["log_probability"][0])


def test_bad_input(folder, tmp_path):
    assert "score needs texts" in error("score", "--encoder", folder)
    assert "names no format" in error(
        "score", "--encoder", folder, "a text", "--output", tmp_path / "scores.doc"
    )
    with pytest.raises(UserError, match="a text is empty"):
        auxlearn.score(folder, ["a", " "])
