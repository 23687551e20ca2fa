"""``auxlearn predict`` and ``auxlearn evaluate`` with a finished run."""

from __future__ import annotations

import json
import shutil
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from transformers import pipeline

from auxlearn.cli import cli
from auxlearn.evaluation.evaluator import Classifier
from tests import helpers
from tests.cli.helpers import MAX_LENGTH, call, error, write_run

TEXTS = [text for text in helpers.LINES if len(text.split()) < 17][:8]


@pytest.fixture(scope="session")
def finished(tmp_path_factory, encoder_folder):
    """Folders of finished runs by encoder family."""

    @cache
    def run(family):
        folder = tmp_path_factory.mktemp("runs") / family
        return write_run(folder, encoder_folder(family), dataset="reviews")

    return lambda family="bert": run(family)


def by_pipeline(run, inputs) -> np.ndarray:
    """Probabilities of "no" and "yes" as transformers gives them."""
    classify = pipeline("text-classification", str(run / "model"), top_k=None, device="cpu")
    found = [{s["label"]: s["score"] for s in one} for one in classify(inputs, truncation=True)]
    return np.array([[one["no"], one["yes"]] for one in found])


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_probabilities_are_those_of_the_pipeline(finished, family):
    run = finished(family)
    classifier = Classifier.of_run(run)
    long = " ".join(TEXTS)
    assert len(classifier.tokenizer.tokenize(long)) > MAX_LENGTH
    texts = [*TEXTS, "Don't [MASK] the [SEP] 日本!", long]
    found = classifier.outputs(texts)
    assert found.shape == (len(texts), 2)
    assert np.ptp(found[:, 0]) > 1e-3  # texts differ, so that a mix-up would show
    np.testing.assert_allclose(found, by_pipeline(run, texts), atol=1e-6, rtol=0)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_terminal_that_lacks_a_letter_gets_another(finished, options):
    run = str(finished())
    result = CliRunner(charset="latin-1").invoke(cli, ["predict", run, *options, "日本"])
    assert result.exit_code == 0, result.output
    if options:
        assert json.loads(result.stdout)["text"] == "日本"
    else:
        assert result.stdout.endswith("\t??\n")


def test_without_texts_and_standard_input_none_are_predicted(finished, monkeypatch):
    monkeypatch.setattr("auxlearn.commands.predict.sys", SimpleNamespace(stdin=None))
    assert error("predict", finished()).startswith("no texts: give them after RUN")


def test_the_model_of_other_labels_is_not_that_of_the_run(finished, tmp_path):
    run = shutil.copytree(finished(), tmp_path / "run")
    config = run / "model" / "config.json"
    config.write_text(config.read_text().replace('"yes"', '"maybe"'))
    said = "is not the model of this run: it has the labels no, maybe, the run no, yes"
    assert said in error("predict", run, "a text")


def test_probabilities_of_pairs_are_those_of_the_pipeline(finished):
    pairs = list(zip(TEXTS[:4], TEXTS[4:], strict=True))
    found = Classifier.of_run(finished()).outputs(*zip(*pairs, strict=True))
    inputs = [{"text": text, "text_pair": pair} for text, pair in pairs]
    np.testing.assert_allclose(found, by_pipeline(finished(), inputs), atol=1e-6, rtol=0)
    assert len(Classifier.of_run(finished()).outputs([])) == 0


def test_predict_prints_label_probability_and_text_or_all_probabilities_as_json(finished):
    expected = Classifier.of_run(finished()).outputs(TEXTS)
    lines, documents = (
        call("predict", finished(), *TEXTS, *options).stdout.splitlines()
        for options in ([], ["--json"])
    )
    for line, document, text, row in zip(lines, documents, TEXTS, expected, strict=True):
        label = ("no", "yes")[row.argmax()]
        assert line == f"{label}\t{row.max():.4f}\t{text}"
        record = json.loads(document)
        assert (record["text"], record["label"]) == (text, label)
        assert record["probabilities"] == {"no": row[0], "yes": row[1]}


def test_predict_reads_arguments_files_and_standard_input_alike(finished, tmp_path):
    run = finished()
    expected = call("predict", run, *TEXTS).stdout
    plain = "\n\n".join(TEXTS) + "\n"
    rows = "".join(json.dumps({"text": text, "label": 3}) + "\n" for text in TEXTS)
    for suffix, content in (("txt", plain), ("jsonl", rows)):
        (tmp_path / f"texts.{suffix}").write_text(content)
        assert call("predict", run, "--file", tmp_path / f"texts.{suffix}").stdout == expected
        typed = call("predict", run, typed=content)
        assert typed.stdout == expected
        note = "blank lines are left out: lines 2, 4" if suffix == "txt" else ""
        assert note in typed.stderr
    (tmp_path / "odd.csv").write_text("body\nhello\n")
    assert call("predict", run, "--file", tmp_path / "odd.csv", "--text-column", "body").stdout


def test_predict_accepts_text_pairs(finished, tmp_path):
    rows = json.dumps({"text": TEXTS[0], "text_pair": TEXTS[1]}) + "\n"
    (tmp_path / "pairs.jsonl").write_text(rows)
    expected = Classifier.of_run(finished()).outputs(TEXTS[:1], TEXTS[1:2])
    for source in (["--file", tmp_path / "pairs.jsonl"], []):
        typed = None if source else rows
        record = json.loads(call("predict", finished(), "--json", *source, typed=typed).stdout)
        assert list(record["probabilities"].values()) == expected[0].tolist()
        assert record["text_pair"] == TEXTS[1]
    (tmp_path / "half.csv").write_text("text,text_pair\na,b\nthe goal,\n")
    done = call("predict", finished(), "--file", tmp_path / "half.csv")
    first, second = done.stdout.splitlines()  # of which one has no prediction, told by a note
    assert first.endswith("\ta\tb")
    assert second == "\t\tthe goal\t"
