"""The comparison of ways to read long texts: its draws and its table."""

from __future__ import annotations

import argparse
import json
from types import SimpleNamespace

import pytest

from benchmarks.long_texts import WAYS, report, write_draw
from tests import helpers


def write_data(folder, more):
    splits = {
        name: [{"text": f"{name} {n} {more}", "label": "ab"[n % 2]} for n in range(count)]
        for name, count in {"train": 40, "test": 9}.items()
    }
    helpers.write_splits(folder, **splits)


def test_draws_differ_in_train_and_dev_and_have_one_test(tmp_path):
    write_data(tmp_path, " ")
    options = argparse.Namespace(
        dataset=str(tmp_path), output=tmp_path / "out", train=20, dev=10, test=5
    )
    found = []
    for draw in (0, 1):
        folder = write_draw(options, draw)
        texts = {
            name: [
                json.loads(line)["text"]
                for line in (folder / f"{name}.jsonl").read_text().splitlines()
            ]
            for name in ("train", "dev", "test")
        }
        assert [len(texts[name]) for name in texts] == [20, 10, 5]
        assert not set(texts["train"]) & set(texts["dev"])
        found.append(texts)
    assert found[0]["train"] != found[1]["train"]
    assert found[0]["test"] == found[1]["test"]


def test_the_table_has_differences_of_draws_with_their_standard_error():
    def results(accuracy, seconds):
        test = SimpleNamespace(all=SimpleNamespace(accuracy=accuracy), loss=0.5)
        return SimpleNamespace(evaluations={"test": test}, steps=80, seconds={"training": seconds})

    draws = [(0.5, 0.75), (0.6, 0.75), (0.55, 0.7)]  # differences 25, 15 and 15
    found = [
        {way: results(one if way == "head" else other, 2) for way in WAYS} for one, other in draws
    ]
    options = argparse.Namespace(encoder="tiny", train=300, dataset="data")
    lines = report(options, found).splitlines()
    assert lines[0] == "tiny, 3 draws of 300 texts of data"
    (head,) = [line for line in lines if line.startswith("| head |")]
    assert head.split("|")[2:4] == [" 55.0 ", "  "]
    (mean,) = [line for line in lines if line.startswith("| windows, mean |")]
    assert " +18.3 ± 3.3 " in mean  # the standard deviation 5.77, divided by the root of 3


@pytest.mark.slow
def test_the_program_trains_every_way_once(tmp_path, monkeypatch, capsys):
    from benchmarks import long_texts

    write_data(tmp_path / "data", "of many words " * 20)
    arguments = ["--dataset", tmp_path / "data", "--output", tmp_path / "out", "--max-length", "16"]
    arguments += ["--train", "20", "--dev", "10", "--epochs", "1", "--draws", "0", "1"]
    monkeypatch.setattr("sys.argv", ["long_texts", *map(str, arguments)])
    assert long_texts.main() == 0
    first = capsys.readouterr()
    assert len(first.err.splitlines()) >= 2 * len(WAYS)
    assert long_texts.main() == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert "draw" not in again.err
