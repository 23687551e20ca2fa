"""Files of unlabelled texts."""

import json
import os
import signal
import sys

import pandas
import pyarrow.parquet
import pytest
import torch
from datasets import ClassLabel, Features, Value

from auxlearn.core.cache import TensorCache
from auxlearn.core.errors import DataError, UserError, is_blank
from auxlearn.core.settings import Windowing
from auxlearn.core.table import Table
from auxlearn.data import corpora, parquet, tables, tokens
from auxlearn.data.tables import read_table, write_table
from auxlearn.encoders.load import load_encoder
from auxlearn.evaluation.predict import read_texts_file, texts_of
from auxlearn.evaluation.score import score
from tests import helpers
from tests.helpers import one_line, write_splits


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
    fault = f"^{path} has no text column 'body': .*sentence, other .rename that of the texts"
    with pytest.raises(DataError, match=fault):
        read(path, "body")


def test_lines_are_those_that_predict_reads(tmp_path, read):
    content = "\ufeffone\r\n\ufefftwo \u2028 more\fhere\n\n \u200b\n\ufeffthree\x85\rend\n"
    path = tmp_path / "more.txt"
    path.write_bytes(content.encode())
    texts = read(path)
    assert texts == ("one", "two \u2028 more\fhere", "three\x85\rend")
    found, _ = read_texts_file(path)
    assert [text for text in found.columns["text"] if not is_blank(text)] == list(texts)
    for content, expected in (
        (b"one\rtwo\r", ["one", "two"]),
        (b"the first and long one\nthe last\rone", ["the first and long one", "the last\rone"]),
        (b"one\0\ntwo", None),
    ):
        path.write_bytes(content)
        for reader in (read, lambda path: read_texts_file(path)[0].columns["text"]):
            if expected:
                assert list(reader(path)) == expected
            else:
                with pytest.raises(DataError, match=r"more\.txt:1: a null character"):
                    reader(path)
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


def test_what_a_format_has_no_form_for_is_written_as_missing(tmp_path):
    nan, hashed = float("nan"), 2**63 + 5
    table = Table("made", {"x": [0.5, nan], "of": [[nan, 1.0], []], "hash": [hashed, 1]})
    for suffix in ("jsonl", "csv", "parquet"):
        write_table(tmp_path / f"a.{suffix}", table)
    first, second = (tmp_path / "a.jsonl").read_text().splitlines()
    assert first == f'{{"x": 0.5, "of": [null, 1.0], "hash": {hashed}}}'
    assert second == '{"x": null, "of": [], "hash": 1}'
    assert (tmp_path / "a.csv").read_text() == f'x,of,hash\n0.5,"[null, 1.0]",{hashed}\n,[],1\n'
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet")["hash"].to_pylist() == [hashed, 1]


TABLES = {
    "quoted.csv": '\ufeffn,text\r\n1,"a\r\nb ""c"", d\re"\r\n2,  \r\n,\r\n3,three\r\n',
    "empty.csv": "text\n",
    "quoted.tsv": 'n\ttext\n1\t"said ""no"""\n2\t"more"\n\n3\t"three"\n',
    "joined.csv": "text\n\ufeffone\ntwo\n\ufeff\ufeffthree\n",
    "of a Mac.tsv": "n\ttext\r1\tone\r2\ttwo\r",
    "late mark.tsv": 'n\ttext\n1\t"one"\n2\t"two"\n3\t3" long\n',
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_in_pieces_have_the_texts_of_the_whole(tmp_path, read, name):
    path = tmp_path / name
    path.write_bytes(TABLES[name].encode())
    whole = [text for text in read_table(path).columns["text"] if not is_blank(text)]
    assert "\ufeff" not in "".join(whole)
    if not whole:
        with pytest.raises(DataError, match="contains no text"):
            read(path)
    else:
        assert read(path) == tuple(whole)


def test_class_names_of_parquet_are_those_of_the_whole(tmp_path, read, monkeypatch):
    monkeypatch.setattr(parquet, "MOST_ROWS", 2)
    names = ClassLabel(names=["1", "zero", "ten"])
    path = tmp_path / "more.parquet"
    for values in ([2, 0, -1, 1, 1], ["1", "1", "1", "-1", "0"]):
        table = pyarrow.table({"text": values, "n": [*range(5)]})
        features = Features({"text": names, "n": Value("int64")})
        info = features.arrow_schema.metadata
        pyarrow.parquet.write_table(table.replace_schema_metadata(info), path)
        whole = [text for text in read_table(path).columns["text"] if text is not None]
        assert read(path) == tuple(whole)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_tables_larger_than_a_data_file_are_read_a_piece_at_a_time(
    tmp_path, cache, monkeypatch, suffix
):
    for module in (tables, parquet):
        monkeypatch.setattr(module, "LARGEST_FILE", 100)
    monkeypatch.setattr(corpora, "PIECE", 500)
    path, texts = tmp_path / f"more{suffix}", [f"text {number}" for number in range(300)]
    write_table(path, Table("made", {"text": texts, "n": [*range(300)]}))
    with pytest.raises(DataError, match=r"at most 100|more than 100"):
        read_table(path)
    pieces = list(corpora._texts(path, None, False, lambda size: None, {}))
    assert len(pieces) > 3
    assert max(sum(map(len, piece)) for piece in pieces) < 1500
    assert tuple(corpora.read_corpus(path, cache).texts) == tuple(texts)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_a_bad_text_in_a_later_piece_of_a_table_is_named_by_its_row(tmp_path, read, suffix):
    path, texts = tmp_path / f"more{suffix}", [f"text {number}" for number in range(300)]
    texts[200] = "x" * 1_000_001
    write_table(path, Table("made", {"text": texts, "n": [*range(300)]}))
    place = ", row 201" if suffix == ".parquet" else ":202"
    with pytest.raises(DataError, match=rf"more{suffix}{place}: a text of 1,000,001 characters"):
        read(path)


def test_texts_on_the_disk_are_a_sequence(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(corpora, "AT_ONCE", 3)
    lines = [f"text {number}" for number in range(10)]
    path = tmp_path / "more.txt"
    path.write_text("\n".join(lines))
    texts = corpora.read_corpus(path, cache).texts
    monkeypatch.setattr(corpora, "_texts", None)  # not read again
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "datasets", None)  # nor imported before a text is needed
        again = corpora.read_corpus(path.rename(tmp_path / "other.txt"), cache).texts
        assert (len(again), again.content_key) == (10, texts.content_key)
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
    if fault == "\0":
        with pytest.raises(DataError, match=r"more\.txt:8: a null character"):
            read(path.rename(tmp_path / "more.txt"))
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


@pytest.mark.parametrize(
    ("processes", "windowing"),
    [(1, {}), (1, {"text_window": "head+tail"}), (2, {"text_window": "windows"})],
)
def test_mapped_tokens_are_those_of_texts_in_memory(
    one_layer, tmp_path, cache, monkeypatch, processes, windowing
):
    monkeypatch.setenv("OMP_NUM_THREADS", str(processes))
    monkeypatch.setattr(tokens, "MAPPED_TEXTS", 20)
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


def test_tokenising_goes_on_where_a_kill_has_ended_it(one_layer, tmp_path, cache, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(tokens, "MAPPED_TEXTS", 20)
    monkeypatch.setattr(tokens, "SHOW_PROGRESS", 1)
    monkeypatch.setattr(tokens, "CHUNK_TEXTS", 7)
    path = tmp_path / "more.txt"
    path.write_text("\n".join(f"text {number}" for number in range(70)))
    how = tokens.Tokenization(load_encoder(str(one_layer), ["unused"]).tokenizer, 16)
    split = corpora.read_corpus(path, cache)
    read, real = [], tokens.Tokenization._chunk

    def chunk(self, texts, pairs):
        if "text 49" in texts and "text 49" not in read:
            read.append("text 49")
            raise SystemExit
        read.extend(texts)
        return real(self, texts, pairs)

    monkeypatch.setattr(tokens.Tokenization, "_chunk", chunk)
    with pytest.raises(SystemExit):
        how.tokenize_split(split, cache)
    assert list(cache.folder.glob("*.map")) == []
    read[:] = ["text 49"]
    found = how.tokenize_split(split, cache)
    assert read[1:] == [f"text {number}" for number in range(40, 70)]
    monkeypatch.undo()
    expected = how.tokenize(tuple(split.texts))
    torch.testing.assert_close(found.input_ids, expected.input_ids, rtol=0, atol=0)
    torch.testing.assert_close(found.offsets, expected.offsets, rtol=0, atol=0)
    assert list(cache.folder.glob("*-*")) == []


def test_a_process_that_dies_while_it_tokenises_is_one_line(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    path = tmp_path / "more.txt"
    path.write_text("\n".join(f"text {number}" for number in range(20)))
    texts = corpora.read_corpus(path, cache).texts

    def fail(columns, rank):
        os.kill(os.getpid(), signal.SIGKILL)

    with one_line(UserError, "one of the 2 processes that tokenise was ended", "OMP_NUM_THREADS=1"):
        list(texts.mapped(fail, slice(None), tmp_path / "made.map", 5))
    assert not (tmp_path / "made.map").exists()


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_rows_and_columns_that_are_not_read_are_said(tmp_path, cache, suffix):
    rows = [{"text": text, "text_pair": "b"} for text in ("one", "", "two", None, "three")]
    path = tmp_path / f"rows{suffix}"
    frame = pandas.DataFrame(rows)
    if suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        (frame.to_csv if suffix == ".csv" else frame.to_parquet)(path, index=False)
    expected = [
        f"{path}: 2 of 5 rows have no text and are left out",
        f"{path}: the column text_pair is not read, as a corpus has single texts",
    ]
    for _ in ("read", "from the cache"):
        split = corpora.read_corpus(path, cache)
        assert list(split.texts) == ["one", "two", "three"]
        assert list(split.notes) == expected
    lines = tmp_path / "lines.txt"
    lines.write_text("one\n\ntwo\n")
    assert corpora.read_corpus(lines, cache).notes == ()
    lines.write_text("-DOCSTART-\n\nthe O\ncat B-X\n")
    (note,) = corpora.read_corpus(lines, cache).notes
    assert note.startswith(f"{lines}: each line is read as a text, though it ends in a tag")


@pytest.mark.parametrize("reader", ["read", "read_texts_file"])
def test_a_document_in_json_is_not_read_by_its_lines(reader, read, tmp_path):
    path = tmp_path / "more.json"
    path.write_text('[{"text": "one"}, {"text": "two"}]')
    with pytest.raises(DataError, match=r"one object on each line and the suffix \.jsonl"):
        {"read": read, "read_texts_file": read_texts_file}[reader](path)
    for divider in ("", "\n"):
        (tmp_path / "texts.txt").write_text(f'[{divider}{{"text": "one"}},\n{{"text": "two"}}]\n')
        with one_line(DataError, "texts.txt is an array of JSON"):
            {"read": read, "read_texts_file": read_texts_file}[reader](tmp_path / "texts.txt")


@pytest.mark.parametrize("reader", ["read", "read_texts_file"])
@pytest.mark.parametrize("header", ["text,label", 'id\t"text"', "Label; Text"])
def test_a_table_is_not_read_by_its_lines(reader, read, tmp_path, header):
    path = tmp_path / "texts.txt"
    path.write_text(f"\n{header}\na b,1\n")
    with one_line(DataError, "begins with the header of a table", "end its name with .csv"):
        {"read": read, "read_texts_file": read_texts_file}[reader](path)
    path.write_text("review\tstars\n\nfine\t5\n")
    with one_line(DataError, "has 2 cells in each line, divided by tabs: end its name with .tsv"):
        {"read": read, "read_texts_file": read_texts_file}[reader](path)
    path.write_text("text, images\tand their labels\nno tab\n")
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
