"""``auxlearn score`` and ``auxlearn.score``."""

import json

import pandas as pd
import pytest

import auxlearn
from auxlearn.core.errors import UserError
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
    with pytest.raises(UserError, match="there is no text"):
        auxlearn.score(folder, [])


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, " ", 3])
@pytest.mark.parametrize("make", [list, pd.Series, lambda texts: pd.DataFrame({"text": texts})])
def test_a_missing_value_is_no_text(folder, missing, make):
    with pytest.raises(UserError, match="column 'text'") as caught:
        auxlearn.score(folder, make(["a", missing]))
    assert "\n" not in str(caught.value)


def test_a_table_in_memory_is_read_by_its_column(folder):
    expected = auxlearn.score(folder, TEXTS)
    frame = pd.DataFrame({"id": [1, 2], "text": TEXTS})
    pd.testing.assert_frame_equal(auxlearn.score(folder, frame), expected)
    named = frame.rename(columns={"text": "body"})
    pd.testing.assert_frame_equal(auxlearn.score(folder, named, text_column="body"), expected)
    with pytest.raises(UserError, match=r"no column 'text' of texts in .*: known: body, id"):
        auxlearn.score(folder, named)


@pytest.mark.parametrize("text", ["中文字", "x" * 101])
@pytest.mark.parametrize("level", ["token", "word", "text"])
def test_texts_of_which_the_encoder_knows_nothing_are_an_error_of_one_line(text, level):
    line = error("score", "--encoder", "tiny", "--level", level, text)
    assert "the encoder knows no word or character of" in line
    # Beside others, they have no scores.
    frame = auxlearn.score("tiny", [text, TEXTS[0]], level=level)
    assert set(frame["text"]) == {1}
