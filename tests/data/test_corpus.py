"""Files of unlabelled texts."""

import pytest
import torch

from auxlearn.core.cache import TensorCache
from auxlearn.core.errors import DataError, is_blank
from auxlearn.core.settings import Windowing
from auxlearn.core.table import Table
from auxlearn.data import corpora, tokens
from auxlearn.data.tables import write_table
from auxlearn.encoders.load import load_encoder
from auxlearn.evaluation.predict import read_texts_file, texts_of
from auxlearn.evaluation.score import score
from tests import helpers
from tests.helpers import write_splits


@pytest.fixture
def cache(tmp_path):
    return TensorCache(tmp_path / "cache")


@pytest.fixture(params=[16, corpora.PIECE])
def read(request, cache, monkeypatch):
    """Return the texts of a corpus, which is read in pieces of so many bytes."""
    monkeypatch.setattr(corpora, "PIECE", request.param)
    return lambda path, *more, **given: tuple(
        corpora.read_corpus(path, cache, *more, **given).texts
    )


def table(folder, *rows):
    return write_splits(folder, more=rows) / "more.jsonl"


def test_the_named_column_of_a_table_is_read_and_text_where_there_is_none(tmp_path, read):
    path = table(tmp_path, {"sentence": "one", "text": "two"}, {"text": "two", "late": "three"})
    assert read(path, "sentence") == ("one",)
    assert read(path) == ("two", "two")
    assert read(path, "body") == ("two", "two")
    assert read(path, "late") == ("three",)
    path = table(tmp_path, {"sentence": "one"}, {"other": "two"})
    with pytest.raises(DataError, match=f"^{path} has no text column 'body': .*sentence, other"):
        read(path, "body")


def test_lines_are_those_that_predict_reads(tmp_path, read):
    content = "\ufeffone\r\ntwo \u2028 more\fhere\n\n \u200b\nthree\x85\rend\n"
    path = tmp_path / "more.txt"
    path.write_bytes(content.encode())
    texts = read(path)
    assert texts == ("one", "two \u2028 more\fhere", "three\x85\rend")
    found, _ = read_texts_file(path)
    assert [text for text in found.columns["text"] if not is_blank(text)] == list(texts)
    path.write_bytes(b"one and more of it\n\xff\n")
    with pytest.raises(DataError, match=r"more\.txt:2: not UTF-8"):
        read(path)


def test_lines_of_json_are_a_table_for_every_reader(tmp_path, read):
    path = table(tmp_path, {"text": "one", "n": 1}, {"text": "two", "body": "three"})
    path = path.rename(path.with_suffix(".txt"))
    assert read(path) == texts_of(path)[0].texts == ("one", "two")
    assert read(path, "body") == ("three",)
    assert read_texts_file(path)[0].columns["text"] == ["one", "two"]


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".tsv", ".parquet"])
def test_every_format_in_pieces_has_the_texts_of_the_whole(tmp_path, read, suffix):
    texts = [f'text {number} of "\u00fc"' for number in range(40)]
    path = tmp_path / f"more{suffix}"
    if suffix == ".txt":
        path.write_text("\n\n" + "\n \n".join(texts))
    else:
        write_table(path, Table("made", {"n": [*range(40)], "text": [*texts[:-1], None]}))
        texts = texts[:-1]
    assert read(path) == tuple(texts)


def test_texts_on_the_disk_are_a_sequence(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(corpora, "AT_ONCE", 3)
    lines = [f"text {number}" for number in range(10)]
    path = tmp_path / "more.txt"
    path.write_text("\n".join(lines))
    texts = corpora.read_corpus(path, cache).texts
    monkeypatch.setattr(corpora, "_texts", None)  # not read again
    again = corpora.read_corpus(path.rename(tmp_path / "other.txt"), cache).texts
    assert again.content_key == texts.content_key
    for rows in ([*range(10)], [], [5, 0, 0, 3], [2, 3, 4]):
        some, expected = again.select(rows), [lines[row] for row in rows]
        assert list(some) == some[:] == expected
        assert some[1:3] == expected[1:3]
        assert some[-1:] == expected[-1:]
        assert len(some) == len(rows)
    assert (texts[4], texts[-1]) == ("text 4", "text 9")
    keys = {texts.select(rows).content_key for rows in ([0, 1], [1, 0], [0])}
    assert len(keys | {texts.content_key}) == 4


FAULTS = {
    '{"text": 1}': "must hold text",
    "{": "bad JSON",
    "\0": "null character",
    "[]": "a JSON object is needed",
    '{"text": "\\ud800"}': "half of a surrogate pair",
    '{"text": "a", "text": "b"}': "occurs twice",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_by_its_line_in_whichever_piece_it_is(tmp_path, read, cache, fault):
    path, line = tmp_path / "more.jsonl", '{"text": "one"}'
    path.write_text("\n".join([*[line] * 7, fault, *[line] * 7]))
    with pytest.raises(DataError, match=rf"more\.jsonl:8: .*{FAULTS[fault]}"):
        read(path)
    assert [*cache.folder.glob("*.arrow"), *cache.folder.glob(".*.part")] == []


def test_a_line_without_end_is_refused(tmp_path, read, monkeypatch):
    monkeypatch.setattr(corpora, "LONGEST_LINE", 50)
    path = tmp_path / "more.txt"
    path.write_text("short\n" + "x" * corpora.PIECE + "y" * 50)
    with pytest.raises(DataError, match=r"more\.txt:2: more than 50 bytes in a line"):
        read(path)


DAMAGES = {
    "one bit": lambda path: path.write_bytes(path.read_bytes().replace(b"several", b"sevural", 1)),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:500]),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_texts_in_the_cache_are_read_again(tmp_path, read, cache, damage, caplog):
    path = tmp_path / "more.txt"
    path.write_text("one of several texts\n" * 100)
    texts = read(path)
    (stored,) = cache.folder.glob("*.arrow")
    DAMAGES[damage](stored)
    assert read(path) == texts
    said = f"cache file {stored} is damaged: its content is computed again"
    assert [record.getMessage() for record in caplog.records] == [said]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    "windowing", [{}, {"text_window": "windows"}, {"text_window": "head+tail"}]
)
def test_mapped_tokens_are_those_of_texts_in_memory(
    one_layer, tmp_path, cache, monkeypatch, processes, windowing
):
    monkeypatch.setenv("OMP_NUM_THREADS", str(processes))
    monkeypatch.setattr(corpora, "MAPPED_TEXTS", 20)
    monkeypatch.setattr(tokens, "SHOW_PROGRESS", 1)
    monkeypatch.setattr(tokens, "CHUNK_TEXTS", 7)
    lines = [f"{number} texts \u4e2d\u6587 of words " + "more " * number for number in range(50)]
    path = tmp_path / "more.txt"
    path.write_text("\n".join(lines))
    how = tokens.Tokenization(
        load_encoder(str(one_layer), ["unused"]).tokenizer, 16, Windowing(**windowing)
    )
    split = corpora.read_corpus(path, cache)
    rows = [0, 1, *range(3, 40), 49]
    for some in (split, split.select(rows)):
        found = how.tokenize_split(some, cache)
        for field, expected in vars(how.tokenize(tuple(some.texts))).items():
            torch.testing.assert_close(getattr(found, field), expected, rtol=0, atol=0)
    assert list(cache.folder.glob("*.map")) == []


@pytest.mark.parametrize("reader", ["read", "read_texts_file"])
def test_a_document_in_json_is_not_read_by_its_lines(reader, read, tmp_path):
    path = tmp_path / "more.json"
    path.write_text('[{"text": "one"}, {"text": "two"}]')
    with pytest.raises(DataError, match=r"one object on each line and the suffix \.jsonl"):
        {"read": read, "read_texts_file": read_texts_file}[reader](path)


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
