"""Whatever a file holds, its reader returns a value or raises a ``UserError`` of a few lines.

The number of examples per test is ``AUXLEARN_FUZZ_EXAMPLES``, by default 40.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyarrow import parquet

from auxlearn.core.config import RunConfig, load_config
from auxlearn.core.errors import UserError, is_blank
from auxlearn.core.yaml_files import parse_yaml
from auxlearn.data.dataset import TextDataset
from auxlearn.data.examples import read_corpus
from auxlearn.data.folders import read_folder
from auxlearn.data.load import DatasetCard, read_card
from auxlearn.results.record import RunResults
from auxlearn.sweeps.plan import expand_cells
from auxlearn.sweeps.sweep_file import read_sweep
from tests.results import examples

EXAMPLES = int(os.environ.get("AUXLEARN_FUZZ_EXAMPLES", "40"))

#: Characters and lines of an error at most.
LONGEST, MOST_LINES = 1000, 8

fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=EXAMPLES == 40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -1, 0, 2**63])
WORDS = st.sampled_from(
    ["good", "bad", "nan", "None", "", " ", "\u200b", "0.5", "7", "a|b", "[1]", "\x1b", "x" * 300]
)
PLAIN = st.none() | st.booleans() | NUMBERS | WORDS | st.text(max_size=20)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)
COLUMNS = st.sampled_from(["text", "text_pair", "label", "id"]) | st.text(max_size=5)


@contextmanager
def refused_well(kind: type[Exception] = UserError) -> Iterator[None]:
    """Allow an error that is a few lines which can be shown."""
    try:
        yield
    except kind as error:
        message = re.sub(r"/\S+/", "", str(error))  # the folder, which can be of any length
        assert 0 < len(message) <= LONGEST, message
        assert message.count("\n") < MOST_LINES
        message.encode()


def read(path: Path, suffix: str, content: bytes) -> TextDataset | None:
    """Read a train file of some content; ``None`` if it is refused."""
    for old in path.iterdir():
        old.unlink()
    (path / f"train{suffix}").write_bytes(content)
    dataset = None
    with refused_well():
        dataset = read_folder(path)
    if dataset is None:
        return None
    train = dataset.splits["train"]
    assert len(train.label_names) >= 2
    assert all(isinstance(text, str) and not is_blank(text) for text in train.texts)
    assert set(train.labels or ()) <= set(range(len(train.label_names)))
    assert len(dataset.fingerprint) == 16
    return dataset


def spoil(content: bytes, edits: list[tuple[float, bytes]]) -> bytes:
    """Replace bytes at some places, given as shares of the length."""
    for place, new in edits:
        start = int(place * len(content))
        content = content[:start] + new + content[start + len(new) :]
    return content


EDITS = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.sampled_from([b"", b'"', b"{", b"\n", b"\0", b"\xff", b"\\", b",", b"\t", b"[" * 50])
        | st.binary(max_size=3),
    ),
    max_size=4,
)
ROWS = st.lists(st.dictionaries(COLUMNS, VALUES, max_size=5), max_size=6)
GOOD_ROWS = [{"text": f"text {i}", "label": ("good", "bad")[i % 2]} for i in range(6)]


@fuzz
@given(rows=ROWS, edits=EDITS, good=st.booleans())
def test_json_lines(tmp_path, rows, edits, good):
    lines = [json.dumps(row) for row in (GOOD_ROWS if good else []) + rows]
    read(tmp_path, ".jsonl", spoil("\n".join(lines).encode(), edits))


@fuzz
@given(rows=ROWS)
def test_json_lines_that_are_in_order_are_read(tmp_path, rows):
    lines = [json.dumps({**row, **good}) for row, good in zip(rows, GOOD_ROWS, strict=False)]
    usable = len(rows) >= 2 and not any("text_pair" in row for row in rows)
    usable = usable and "\\ud" not in "".join(lines)
    dataset = read(tmp_path, ".jsonl", "\n".join(lines).encode())
    assert (dataset is not None) or not usable


@fuzz
@given(
    suffix=st.sampled_from([".csv", ".tsv"]),
    header=st.sampled_from(["text,label", "text\tlabel", "label,text,id", ""])
    | st.text(max_size=9),
    rows=st.lists(st.lists(WORDS | st.text(max_size=9), max_size=4), max_size=6),
    edits=EDITS,
)
def test_csv_and_tsv(tmp_path, suffix, header, rows, edits):
    mark = "," if suffix == ".csv" else "\t"
    text = "\n".join([header, *(mark.join(cells) for cells in rows)])
    read(tmp_path, suffix, spoil(text.encode("utf-8", "surrogatepass"), edits))


@fuzz
@given(content=st.binary(max_size=60), edits=EDITS)
def test_parquet(tmp_path, content, edits, good_parquet):
    read(tmp_path, ".parquet", spoil(good_parquet, edits) if edits else content)


@pytest.fixture(scope="module")
def good_parquet(tmp_path_factory):
    path = tmp_path_factory.mktemp("parquet") / "train.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(GOOD_ROWS), path)
    return path.read_bytes()


@fuzz
@given(content=st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_corpora(tmp_path, content):
    (tmp_path / "corpus.txt").write_bytes(content)
    with refused_well():
        split = read_corpus(tmp_path / "corpus.txt")
        assert split.texts
        assert not any(is_blank(text) for text in split.texts)


#: Pieces of YAML, put together in any order.
PIECES = """a:|b: &x|*x|- |  |? |: |<<: |!!int |!!python/name:os |1|0x|.nan|2024-02-31|---
|...|null|true|seed: |aux: |ood: |grid: |weights: |name: |seeds: |
|"""
YAML = st.lists(
    st.sampled_from([*PIECES.split("|"), *"{}[],'\"#%@`~!>&"]) | st.text(max_size=4), max_size=14
).map("".join)
SETTINGS = st.dictionaries(
    st.sampled_from([*RunConfig.model_fields, "x"]), VALUES, min_size=1, max_size=3
)


@fuzz
@given(text=YAML)
def test_yaml(text):
    with refused_well(ValueError):
        parse_yaml(text)


@fuzz
@given(
    content=YAML.map(lambda text: text.encode("utf-8", "surrogatepass"))
    | SETTINGS.map(lambda values: json.dumps(values).encode())
)
def test_configurations(tmp_path, content):
    (tmp_path / "c.yaml").write_bytes(content)
    with refused_well():
        assert isinstance(load_config(tmp_path / "c.yaml"), RunConfig)


SWEEPS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("s") | VALUES,
        "seeds": VALUES | st.integers(),
        "base": SETTINGS | VALUES,
        "grid": st.dictionaries(st.sampled_from(["epochs", "seed", "x", "aux"]), VALUES, max_size=3)
        | VALUES,
        "cases": VALUES,
        "search": VALUES,
        "select": VALUES,
        "compare": VALUES,
    },
)


@fuzz
@given(values=SWEEPS)
def test_sweep_files(tmp_path, values):
    (tmp_path / "s.yaml").write_text(json.dumps(values))
    with refused_well():
        expand_cells(read_sweep(tmp_path / "s.yaml"))


CARDS = st.dictionaries(st.sampled_from([*DatasetCard.model_fields, "x"]), VALUES)


@fuzz
@given(values=CARDS)
def test_cards(tmp_path, values):
    (tmp_path / "c.yaml").write_text(json.dumps(values))
    with refused_well():
        read_card(tmp_path / "c.yaml")


@fuzz
@given(
    key=st.sampled_from(["config", "dataset", "best", "evaluations", "environment", "steps", "x"]),
    value=VALUES,
    edits=EDITS,
)
def test_results(tmp_path, key, value, edits):
    examples.results().save(tmp_path)
    path = tmp_path / "results.json"
    values = {**json.loads(path.read_text()), key: value}
    path.write_bytes(spoil(json.dumps(values).encode(), edits))
    with refused_well():
        RunResults.load(tmp_path)
