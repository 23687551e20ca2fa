"""Runs on both ends of long texts, and runs that keep no model."""

import json

import numpy as np
import pytest

import auxlearn
from auxlearn.core.errors import ConfigError, DataError, RunError
from auxlearn.core.files import write_manifest
from auxlearn.evaluation.evaluator import Classifier
from auxlearn.results.folder import RunFolder
from tests import helpers
from tests.cli.helpers import call, error
from tests.training.conftest import probabilities_of, starter


@pytest.fixture(scope="module")
def start(tmp_path_factory, encoder_folder):
    """Train on long texts whose label depends on the end; return the results of a folder."""
    rows = [
        {"text": f"{line} {line} {helpers.LINES[number % 5]}", "label": helpers.LABELS[number % 2]}
        for number, line in enumerate(helpers.LINES)
    ]
    # A further split with labels of its own is no set of the run.
    own = [{"text": "a text", "label": label} for label in "xy"]
    return starter(
        tmp_path_factory.mktemp("runs"),
        {"train": rows[:12], "dev": rows[12:18], "test": rows[18:], "own": own},
        encoder=encoder_folder("bert"),
        aux="mask_tuning",
        epochs=1,
        text_window="head+tail",
    )


@pytest.fixture(scope="module")
def kept(start):
    return start("kept")


@pytest.fixture(scope="module")
def lean(start, kept):
    reporter = helpers.Messages()
    results = start("lean", reporter, keep_model=False)
    (line,) = [line for line in reporter.lines if line.startswith("tokens per text of train")]
    assert "12 of 12 are longer than the 16 of max_length and are cut, which keeps" in line
    return results


def test_predictions_after_the_run_see_the_tokens_that_it_saw(kept, start):
    split = auxlearn.load_dataset(str(start.folder / "data")).splits["test"]
    found = Classifier.of_run(kept.folder).probabilities(split.texts)
    np.testing.assert_allclose(found, probabilities_of(kept), atol=2e-7)
    scores = auxlearn.evaluate(kept, start.folder / "data")["data"]
    assert scores.all == kept.evaluations["test"].all
    # The same weights see other tokens where a text is cut at its end.
    classifier = Classifier.of_run(kept.folder)
    assert classifier.windowing.text_window == "head+tail"
    head = Classifier(classifier.model, classifier.tokenizer, classifier.device)
    assert np.abs(head.probabilities(split.texts) - probabilities_of(kept)).max() > 1e-4
    card = (kept.folder / "model" / "README.md").read_text()
    assert "from their beginning and their end" in card


def test_every_part_of_a_run_sees_the_window(kept, start):
    records = helpers.read_lines(kept.folder / "perturbations.jsonl")
    texts = {tuple(record["input_ids"]) for record in records}
    split = auxlearn.load_dataset(str(start.folder / "data")).splits["train"]
    tokenizer = Classifier.of_run(kept.folder).tokenizer
    expected = set()
    for text in split.texts:
        ids = tokenizer(text, verbose=False)["input_ids"]
        expected.add(tuple([*ids[:5], *ids[-11:]] if len(ids) > 16 else ids))
    assert texts == expected
    shown = call("masks", kept.folder, "--aux", "random_mlm", "--json").stdout
    masks = json.loads(shown)
    assert masks["tokens"] == sum(
        token not in tokenizer.all_special_ids for ids in expected for token in ids
    )


def test_the_window_is_of_a_model_that_is_trained_further_its_own(kept, start):
    from auxlearn.encoders.load import load_encoder

    encoder = load_encoder(str(kept.folder / "model"), helpers.LABELS)
    encoder.save(start.folder / "further", 16)
    assert "text_window" not in json.loads((start.folder / "further" / "config.json").read_text())
    damaged = RunFolder(kept.folder).model_path / "config.json"
    content = damaged.read_text()
    try:
        damaged.write_text(content.replace('"head+tail"', '"tail"'))
        write_manifest(damaged.parent)
        with pytest.raises(auxlearn.UserError, match="text_window is 'tail'"):
            Classifier.of_run(kept.folder)
    finally:
        damaged.write_text(content)
        write_manifest(damaged.parent)


def test_pairs_have_one_window(start, tmp_path):
    rows = [{"text": f"a {n}", "text_pair": "b", "label": n % 2} for n in range(20)]
    helpers.write_splits(tmp_path, train=rows)
    with helpers.one_line(DataError, "text_window: head+tail is for single texts"):
        start("pairs", dataset=tmp_path)
    with pytest.raises(ConfigError, match="text_window"):
        start("other", text_window="tail")


def test_a_run_without_its_model_has_the_same_results(kept, lean, start):
    names = {path.name for path in lean.folder.iterdir()}
    assert not names & {"model", "heads", "adapter", "checkpoint"}
    assert list(lean.evaluations) == ["dev", "test"]
    assert {"predictions", "results.json"} <= names
    one, other = kept.reproducible(), lean.reproducible()
    assert one.pop("config").pop("keep_model")
    assert not other.pop("config").pop("keep_model")
    assert one == other
    assert start("lean", keep_model=False) == lean  # finished
    assert start("lean") == lean  # whether it is kept makes no other run
    printed = call("train", "--config", lean.folder / "config.yaml", "--output", lean.folder)
    assert "model:      not kept" in printed.stdout


def test_what_needs_the_model_says_so_in_one_line_and_the_rest_works(lean, kept, start):
    said = "kept no model (keep_model is off): train it with --keep-model and another --output"
    for give in (
        lambda: auxlearn.predict(lean, ["a text"]),
        lambda: auxlearn.evaluate(lean, start.folder / "data"),
    ):
        with pytest.raises(RunError) as caught:
            give()
        assert said in str(caught.value)
    assert said in error("predict", lean.folder, "a text")
    page = auxlearn.report(lean.folder, output=start.folder / "lean.html").read_text()
    assert "the run kept no model" in page
    compared = auxlearn.compare(lean.folder).to_frame()
    assert len(compared) > 0
    frame = auxlearn.perturbations(lean).to_frame()
    assert frame.equals(auxlearn.perturbations(kept).to_frame())
