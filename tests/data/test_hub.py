"""Data sets of the hub: a fake hub, and a hub that cannot be reached."""

from __future__ import annotations

import socket
import time
from unittest.mock import Mock

import datasets
import huggingface_hub
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from huggingface_hub.errors import HFValidationError

from auxlearn.core.errors import DataError
from auxlearn.core.settings import Columns
from auxlearn.data import hub
from auxlearn.data.hub import load_hub
from auxlearn.data.load import load_dataset
from auxlearn.data.memory import read_memory
from tests.helpers import one_line

PAIRS = Columns(text_column="premise", text_pair_column="hypothesis")


def nli(*rows: tuple[str, str, int]) -> Dataset:
    features = Features(
        {
            "premise": Value("string"),
            "hypothesis": Value("string"),
            "label": ClassLabel(names=["entailment", "neutral", "contradiction"]),
            "idx": Value("int32"),
        }
    )
    premises, hypotheses, labels = zip(*rows, strict=True)
    columns = {"premise": premises, "hypothesis": hypotheses, "label": labels}
    return Dataset.from_dict({**columns, "idx": range(len(rows))}, features=features)


@pytest.fixture(name="serve")
def _serve(monkeypatch):
    """Let the hub answer with given splits; return the calls that it got."""
    calls: list[tuple] = []

    def serve(answer):
        def load_dataset_builder(path, config=None, **kwargs):
            calls.append((path, config, kwargs))
            if isinstance(answer, Exception):
                raise answer
            return Mock(
                config=Mock(data_files=None),
                info=Mock(builder_name="parquet"),
                as_dataset=lambda: DatasetDict(answer),
            )

        monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
        monkeypatch.setattr(hub, "_why_unreachable", lambda *ids: None)
        return calls

    return serve


def test_numbers_without_names_and_booleans(serve):
    for labels, names in (([10, 9], ("9", "10")), ([True, False], ("false", "true"))):
        serve({"train": Dataset.from_dict({"text": ["x", "y"], "label": labels})})
        assert load_hub("some/set").label_names == names
    serve({"train": Dataset.from_dict({"text": ["x", "y"], "label": [0, 2]})})
    with pytest.raises(DataError, match="class 2, but only 2 names are known"):
        load_hub("some/set", label_names=["a", "b"])


def test_minus_one_is_hidden_only_where_classes_have_names(serve):
    signs = Dataset.from_dict({"text": ["x", "y", "z"], "label": [-1, 0, 1]})
    serve({"train": signs, "test": signs.select([0])})
    found = [load_hub("some/set"), read_memory({"train": signs, "test": signs.select([0])})]
    for dataset in found:
        assert dataset.splits["train"].label_names == ("-1", "0", "1")
        assert dataset.splits["train"].labels == (0, 1, 2)
        assert dataset.splits["test"].labels == (0,)
        assert dataset.notes == ()
    assert read_memory(signs).splits == read_memory(signs.to_pandas()).splits
    # Of named classes, it is hidden.
    named = nli(("a", "b", 0), ("c", "d", 2), ("e", "f", -1))
    assert read_memory({"train": named}, PAIRS).splits["train"].texts == ("a", "c")


def test_incomplete_examples_are_left_out_and_counted(serve):
    serve({"train": nli(("a", "b", 0), ("", "d", 2), ("e", "f", 1), ("g", "h", -1), ("i", " ", 1))})
    dataset = load_hub("some/set", columns=PAIRS)
    assert dataset.splits["train"].texts == ("a", "e")
    assert dataset.splits["train"].meta == {"idx": ("0", "2")}
    assert [note.split(": ")[1] for note in dataset.notes] == [
        "2 examples with an empty text were left out",
        "1 examples without a label were left out",
    ]
    split = nli(("a", "b", 0), ("c", "d", 2), ("g", "h", -1))
    serve({"train": split, "test": split})
    said = "train, test each: 1 examples without a label were left out"
    assert load_hub("some/set", columns=PAIRS).notes == (said,)


@pytest.mark.parametrize(
    ("split_map", "columns", "expected"),
    [
        (
            None,
            {"text_column": "text"},
            "split 'train' has no text column 'text': its columns are ",
        ),
        (None, {"text_pair_column": "x"}, "has no text pair column 'x': its columns are premise, "),
        (None, {"label_column": "gold"}, "has no label column 'gold': its columns"),
        ({"train": "trian"}, {}, "there is no split 'trian', did you mean 'train'?"),
        ({"test": "train"}, {}, "has no train split: its splits are test"),
    ],
)
def test_missing_parts(serve, split_map, columns, expected):
    serve({"train": nli(("a", "b", 0), ("c", "d", 2))})
    with one_line(DataError, expected):
        load_hub("some/set", None, split_map, PAIRS.model_copy(update=columns))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (RuntimeError("Dataset scripts are no longer supported"), "scripts are not"),
        (
            ValueError(
                "Config name is missing.\nPlease pick one among the available configs: ['a']"
            ),
            "has the configurations a: write one of them after the id and a colon (ID:a)",
        ),
        (OSError("disk\nfull"), "cannot be read: disk full; or put train.jsonl"),
    ],
)
def test_a_data_set_that_cannot_be_read(serve, answer, expected):
    serve(answer)
    with one_line(DataError, expected):
        load_hub("some/set")


def unreachable(monkeypatch, tmp_path, endpoint: str) -> tuple[str, float]:
    """Ask a hub at an address that gives no answer; return the message and the seconds."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    start = time.monotonic()
    parts = ("the hub cannot be reached", "put train.jsonl, dev.jsonl and test.jsonl")
    with one_line(DataError, *parts) as caught:
        load_hub("some/set")
    seconds = time.monotonic() - start
    assert huggingface_hub.constants.HF_HUB_OFFLINE is False
    return str(caught.value), seconds


@pytest.mark.parametrize("listens", [False, True])
def test_a_hub_that_refuses_or_does_not_answer_fails_in_seconds(monkeypatch, tmp_path, listens):
    monkeypatch.setattr("auxlearn.core.hub.TIMEOUT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        if not listens:
            server.close()
        text, seconds = unreachable(monkeypatch, tmp_path, address)
    assert ("Timeout" in text) == listens
    assert seconds < 5


def test_offline_mode_is_named_and_a_data_set_that_the_hub_does_not_have(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(DataError, match=r"cannot be reached \(HF_HUB_OFFLINE is set\)"):
        load_hub("some/set")
    with one_line(DataError, "no local copy", "`auxlearn data get acl_arc --from PATH"):
        load_dataset("acl_arc")
    refuse = Mock(side_effect=HFValidationError("no such id"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", refuse)
    with pytest.raises(DataError, match="the hub has no data set 'some/set' that may be read"):
        load_hub("some/set")


def test_the_local_cache_is_used_if_the_hub_cannot_be_reached(serve, monkeypatch):
    seen = []
    serve({"train": nli(("a", "b", 0), ("c", "d", 2))})
    answer = datasets.load_dataset_builder
    monkeypatch.setattr(
        datasets,
        "load_dataset_builder",
        lambda *args, **options: (
            seen.append(huggingface_hub.constants.HF_HUB_OFFLINE) or answer(*args, **options)
        ),
    )
    monkeypatch.setattr(hub, "_why_unreachable", lambda *ids: "no cable")
    dataset = load_hub("some/set", columns=PAIRS)
    assert seen == [True]
    assert dataset.notes == ("the hub cannot be reached (no cable): read from the local cache",)
