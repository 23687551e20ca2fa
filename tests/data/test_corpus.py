"""Files of unlabelled texts."""

import pytest

from auxlearn.core.errors import DataError, is_blank
from auxlearn.data.examples import read_corpus
from auxlearn.encoders.load import load_encoder
from auxlearn.evaluation.predict import read_texts_file, texts_of
from auxlearn.evaluation.score import score
from tests import helpers
from tests.helpers import write_splits


def table(folder, *rows):
    return write_splits(folder, more=rows) / "more.jsonl"


def test_the_named_column_of_a_table_is_read_and_text_where_there_is_none(tmp_path):
    path = table(tmp_path, {"sentence": "one", "text": "two"})
    assert read_corpus(path, "sentence").texts == ("one",)
    assert read_corpus(path).texts == ("two",)
    assert read_corpus(path, "body").texts == ("two",)
    path = table(tmp_path, {"sentence": "one"})
    with pytest.raises(DataError, match=f"^{path} has no text column 'body': its columns are sen"):
        read_corpus(path, "body")


def test_lines_are_those_that_predict_reads(tmp_path):
    content = "\ufeffone\r\ntwo \u2028 more\fhere\n\n \u200b\nthree\x85\rend\n"
    path = tmp_path / "more.txt"
    path.write_bytes(content.encode())
    texts = read_corpus(path).texts
    assert texts == ("one", "two \u2028 more\fhere", "three\x85\rend")
    found, _ = read_texts_file(path)
    assert [text for text in found.columns["text"] if not is_blank(text)] == list(texts)
    path.write_bytes(b"one\n\xff\n")
    with pytest.raises(DataError, match=r"more\.txt:2: not UTF-8"):
        read_corpus(path)


def test_lines_of_json_are_a_table_for_every_reader(tmp_path):
    path = table(tmp_path, {"text": "one", "n": 1}, {"text": "two", "body": "three"})
    path = path.rename(path.with_suffix(".txt"))
    assert read_corpus(path).texts == texts_of(path)[0].texts == ("one", "two")
    assert read_corpus(path, "body").texts == ("three",)
    assert read_texts_file(path)[0].columns["text"] == ["one", "two"]


@pytest.mark.parametrize("read", [read_corpus, read_texts_file])
def test_a_document_in_json_is_not_read_by_its_lines(read, tmp_path):
    path = tmp_path / "more.json"
    path.write_text('[{"text": "one"}, {"text": "two"}]')
    with pytest.raises(DataError, match=r"one object on each line and the suffix \.jsonl"):
        read(path)


def test_what_is_cut_of_a_corpus_and_of_texts_to_score_is_said(one_layer, tmp_path, capsys):
    loaded = load_encoder(str(one_layer), ["unused"])
    lines = ["a short one", "word " * 100]
    (tmp_path / "long.txt").write_text("\n".join(lines))
    counts = [len(ids) for ids in loaded.tokenizer(lines)["input_ids"]]
    kept = f"keeps {(counts[0] + 64) / sum(counts):.1%} of all tokens"
    context = helpers.context(loaded, helpers.tokenized(loaded, lines, [0, 1]), tmp_path)
    said = []
    context.say = said.append
    context.texts_of(str(tmp_path / "long.txt"))
    assert len(said) == 1
    assert "1 of 2 are longer than the 64 of max_length and are cut" in said[0]
    assert kept in said[0]
    (tmp_path / "short.txt").write_text(lines[0])
    context.texts_of(str(tmp_path / "short.txt"))
    assert len(said) == 1
    for texts in (lines, lines[:1]):
        score(str(one_layer), texts, level="text", max_length=64, passes=1)
        assert (kept in capsys.readouterr().err) == (len(texts) == 2)
