"""The registered comparison of rules: points on lines, rules read from records, its tables."""

import argparse
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from auxlearn import RunConfig, train
from auxlearn.data.load import load_dataset
from auxlearn.evaluation.paired import log_losses
from benchmarks import two_ends
from benchmarks.horizon.bed import Setting, write_split
from benchmarks.two_ends import SINGLE, Bed, Case, read_all

FIRST, SECOND = "random_mlm, corpus", "simcse, corpus"
SETTINGS = tuple(
    Setting(f"pydocs 24, {name}", None, 24, tuple(name.split(",")[0].split(" + ")), "corpus")
    for name in (FIRST, SECOND, "random_mlm + simcse")
)
BED = Bed("tiny", range(1), SETTINGS, {"epochs": 4, "batch_size": 6, "encoder": "tiny"})


def small_draw(setting, draw, data, folder):
    for name, count in (("train", 24), ("dev", 12), ("test", 12)):
        write_split(
            folder / f"{name}.jsonl", load_dataset("pydocs").split(name).select([*range(count)])
        )
    (folder / "unlabelled").mkdir(exist_ok=True)
    texts = load_dataset("pydocs").split("train").texts[30:60]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "unlabelled" / "corpus.jsonl").write_text(lines)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Shares 0 and 0.5 of two tasks, as recorded, and the settings of their runs."""
    output = tmp_path_factory.mktemp("two_ends")
    options = argparse.Namespace(output=output, results=output / "r.jsonl", data=None, encoder=None)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_ends, "TINY", BED)
        patch.setattr(two_ends, "write_draw", small_draw)
        record = two_ends.train_run

        def train_run(settings, *rest):
            seen.append(settings)
            return record(settings, *rest)

        patch.setattr(two_ends, "train_run", train_run)
        for what in (SINGLE, 0.5):
            for setting in SETTINGS:
                Case(options, BED, setting, 0).train_missing(what)
            if what == SINGLE:  # models that are gone are trained again
                two_ends.shutil.rmtree(Case(options, BED, SETTINGS[0], 0).models)
    return output, seen


def test_runs_are_recorded_once_and_models_deleted(trained):
    output, seen = trained
    records = [json.loads(one) for one in (output / "r.jsonl").read_text().splitlines()]
    assert [one["run"] for one in records] == [SINGLE, f"{FIRST} 0.5", f"{SECOND} 0.5"]
    assert len(seen) == 4
    assert not list(output.glob("models/*/*/*"))
    assert {*records[2]["views"]} == {"best", "late", "middle", "0.5 0.5", "0.5 1", "1 0.5", "1 1"}


def exported(settings, folder):
    """Return the tensors of the model that an ordinary run exports."""
    train(RunConfig(**settings, patience=0, output=str(folder)))
    return load_file(folder / "model" / "model.safetensors")


def test_points_are_those_of_exported_models_averaged_by_hand(trained, tmp_path):
    output, (single, _, first, second) = trained
    if "aux" in first:
        first, second = second, first
    by_task = {(one.get("aux") or [{"": 0}])[0].copy().popitem()[0]: one for one in trained[1]}
    zero, a, b = (
        exported(by_task[name], tmp_path / (name or "single"))
        for name in ("", "random_mlm", "simcse")
    )
    runs = read_all(output / "r.jsonl")["tiny", "pydocs 24", 0]
    test = load_dataset(single["dataset"]).split("test")
    for run, view, levels in (
        (SINGLE, "best", (0, 0)),
        (f"{FIRST} 0.5", "middle", (0.5, 0)),
        (f"{FIRST} 0.5", "best", (1, 0)),
        (f"{SECOND} 0.5", "middle", (0, 0.5)),
        (f"{SECOND} 0.5", "0.5 1", (0.5, 1)),
    ):
        x, y = levels
        point = {k: (1 - x - y) * zero[k] + x * a[k] + y * b[k] for k in zero}
        save_file(point, tmp_path / "single" / "model" / "model.safetensors", {"format": "pt"})
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "single" / "model")
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "single" / "model")
        batch = tokenizer(
            [*test.texts], truncation=True, max_length=64, padding=True, return_tensors="pt"
        )
        with torch.no_grad():
            probabilities = model.eval()(**batch).logits.double().softmax(-1).numpy()
        expected = log_losses(probabilities, np.array(test.labels), 1.0)
        np.testing.assert_allclose(runs[run].views[view].test, expected, rtol=1e-3)
        right = probabilities.argmax(1) == np.array(test.labels)
        assert (runs[run].views[view].test_right == right).all()
