"""``auxlearn score`` and ``auxlearn.score``."""

import json

import pandas as pd
import pytest

import auxlearn
from auxlearn.core.errors import UserError
from tests.cli.helpers import call, error
from tests.helpers import one_line

TEXTS = ["The parser reads a file.", "A tagger learns words."]


def test_the_command_prints_and_writes_what_the_function_returns(one_layer, tmp_path):
    frame = auxlearn.score(one_layer, TEXTS, level="word")
    shown = call("score", "--encoder", one_layer, "--level", "word", *TEXTS).stdout
    assert [json.loads(line) for line in shown.splitlines()] == frame.to_dict("records")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    arguments = ["--encoder", one_layer, "--level", "word", "--file", tmp_path / "texts.txt"]
    call("score", *arguments, "--output", tmp_path / "scores.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "scores.csv"), frame)


def test_a_text_is_scored_by_the_sum_of_its_tokens(one_layer):
    tokens, whole = (
        auxlearn.score(one_layer, TEXTS[0], level=level) for level in ("token", "text")
    )
    assert tokens["log_probability"].sum() == pytest.approx(whole["log_probability"][0])


def test_bad_input(one_layer, tmp_path):
    assert "score needs texts" in error("score", "--encoder", one_layer)
    command = ["score", "--encoder", one_layer, "a text", "--output", tmp_path / "scores.doc"]
    assert "names no format" in error(*command)
    with pytest.raises(UserError, match="there is no text"):
        auxlearn.score(one_layer, [])


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, " ", 3])
@pytest.mark.parametrize("make", [list, pd.Series, lambda texts: pd.DataFrame({"text": texts})])
def test_a_missing_value_is_no_text(one_layer, missing, make):
    with one_line(UserError, "column 'text'"):
        auxlearn.score(one_layer, make(["a", missing]))


def test_a_table_in_memory_is_read_by_its_column(one_layer):
    expected = auxlearn.score(one_layer, TEXTS)
    frame = pd.DataFrame({"id": [1, 2], "text": TEXTS})
    pd.testing.assert_frame_equal(auxlearn.score(one_layer, frame), expected)
    named = frame.rename(columns={"text": "body"})
    pd.testing.assert_frame_equal(auxlearn.score(one_layer, named, text_column="body"), expected)
    with pytest.raises(UserError, match=r"no column 'text' of texts in .*: known: body, id"):
        auxlearn.score(one_layer, named)


@pytest.mark.parametrize("text", ["中文字", "x" * 101])
@pytest.mark.parametrize("level", ["token", "word", "text"])
def test_texts_of_which_the_encoder_knows_nothing_are_an_error_of_one_line(text, level):
    line = error("score", "--encoder", "tiny", "--level", level, text)
    assert "the encoder knows no word or character of" in line
    # Beside others, they have no scores.
    frame = auxlearn.score("tiny", [text, TEXTS[0]], level=level)
    assert set(frame["text"]) == {1}
