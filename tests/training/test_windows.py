"""Runs on long texts, against transformers directly: in overlapping windows, or both ends."""

import json
import shutil
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import auxlearn
from auxlearn.core.errors import DataError, RunError
from auxlearn.core.settings import Windowing
from auxlearn.data.batches import collate, eval_batches, pad_token_values, unpad_token_values
from auxlearn.data.tokens import Tokenization, TokenizedTexts, concatenate, consecutive
from auxlearn.encoders.load import load_encoder
from auxlearn.evaluation.evaluator import Classifier
from auxlearn.scoring.pseudo_likelihood import pseudo_log_likelihood
from tests import helpers
from tests.cli.helpers import call, error
from tests.training.conftest import probabilities_of, starter

LENGTH, STRIDE, MOST = 16, 5, 4  # the first as in ``starter``
WINDOWS = Windowing(text_window="windows", window_stride=STRIDE, max_windows=MOST)
SETTINGS = {"text_window": "windows", "window_stride": STRIDE, "max_windows": MOST}

#: Texts of one to eight lines, so of one window to more than are read.
TEXTS = [" ".join(helpers.LINES[n : n + 1 + n % 8]) for n in range(16)] + ["the parser"]


def rows_of(tokenizer, text, what="input_ids"):
    """Return the windows of a text, written out: slices of its tokens between special ones."""
    encoded = tokenizer(text, return_offsets_mapping=True, verbose=False)
    first, *inside, last = encoded[what]
    room = LENGTH - 2
    starts = range(0, max(1, len(inside) - STRIDE), room - STRIDE)
    return [[first, *inside[start : start + room], last] for start in starts][:MOST]


@pytest.fixture(scope="module")
def table(encoder_folder):
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder("bert"), split_special_tokens=True)
    arrays = Tokenization(tokenizer, LENGTH, WINDOWS).arrays(TEXTS)
    labels = torch.arange(len(TEXTS)) % 2
    texts = TokenizedTexts(**arrays, pad_id=tokenizer.pad_token_id, labels=labels)
    return tokenizer, texts


def test_a_table_has_the_windows_of_each_text(table):
    tokenizer, texts = table
    expected = [rows_of(tokenizer, text) for text in TEXTS]
    counts = [len(rows) for rows in expected]
    assert {1, MOST} <= set(counts)
    assert texts.window_counts(torch.arange(len(TEXTS))).tolist() == counts
    rows = texts.in_rows()
    found = rows.input_ids.split(rows.lengths.tolist())
    assert [row.tolist() for row in found] == list(chain(*expected))
    assert len(texts) == len(TEXTS)
    assert len(rows) == sum(counts)
    order = torch.tensor([7, 0, 16, 3])
    batch = collate(texts, order)
    assert batch.windows.tolist() == [counts[number] for number in order]
    assert batch.labels.tolist() == [1, 0, 0, 1]
    padded = zip(batch.input_ids, batch.attention_mask.bool(), strict=True)
    found = [ids[mask].tolist() for ids, mask in padded]
    assert found == list(chain(*(expected[number] for number in order)))
    # Parts of a batch are batches of parts, and values of tokens come back to their places.
    second = batch.part(slice(1, 3))
    again = collate(texts, order[1:3])
    for name in ("input_ids", "attention_mask", "words", "indices", "labels", "windows"):
        assert torch.equal(getattr(second, name), getattr(again, name)), name
    values, copy = torch.arange(len(texts.input_ids)), torch.zeros(len(texts.input_ids)).long()
    for rows in eval_batches(texts, 6):
        unpad_token_values(texts, pad_token_values(texts, values, rows, -1), rows, copy)
    assert torch.equal(values, copy)


def test_parts_and_selections_of_a_table_keep_their_windows(table):
    _, texts = table
    order = torch.tensor([7, 0, 16, 3])
    chosen = texts.select(order)
    for place, number in enumerate(order.tolist()):
        one, other = collate(chosen, torch.tensor([place])), collate(texts, torch.tensor([number]))
        assert torch.equal(one.input_ids, other.input_ids)
    first, second = consecutive(texts, [5, len(texts) - 5])
    joined = concatenate(first, second)
    for name in ("input_ids", "offsets", "windows", "labels"):
        assert torch.equal(getattr(joined, name), getattr(texts, name)), name


@pytest.mark.parametrize("family", ["bert", "bart"])
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_logits_are_pooled_as_by_hand_whatever_the_batch(encoder_folder, family, pooling):
    encoder = load_encoder(str(encoder_folder(family)), ["a", "b", "c"]).eval()
    encoder.window_pooling = pooling
    arrays = Tokenization(encoder.tokenizer, LENGTH, WINDOWS).arrays(TEXTS)
    texts = TokenizedTexts(**arrays, pad_id=encoder.tokenizer.pad_token_id)
    expected, features = [], []
    with torch.no_grad():
        for number in range(len(texts)):
            rows = texts.in_rows().input_ids[texts.offsets[number] : texts.offsets[number + 1]]
            lengths = texts.in_rows().lengths[texts.rows_of(torch.tensor([number]))].tolist()
            apart = rows.long().split(lengths)
            logits = torch.cat([encoder.classifier(row[None]).logits for row in apart])
            expected.append(logits.mean(0) if pooling == "mean" else logits.max(0).values)
        expected = torch.stack(expected)
        for size in (1, 5, len(texts)):
            for rows in torch.randperm(len(texts)).split(size):
                batch = collate(texts, rows)
                logits, vectors = encoder.classify_with_features(batch)
                torch.testing.assert_close(logits, expected[rows], atol=1e-6, rtol=1e-5)
                assert vectors.shape == (len(rows), encoder.hidden_size)
                torch.testing.assert_close(vectors, encoder.features(batch))
    features = encoder.features(collate(texts, torch.tensor([16])))
    assert features.shape == (1, encoder.hidden_size)


def test_tokens_are_scored_in_their_window(encoder_folder, table):
    encoder = load_encoder(str(encoder_folder("bert")), ["a", "b"])
    _, texts = table
    few = texts.select(torch.tensor([2, 16]))
    found = pseudo_log_likelihood(encoder, few)
    rows = few.in_rows()
    for row in range(len(rows)):
        places = slice(int(rows.offsets[row]), int(rows.offsets[row + 1]))
        alone = pseudo_log_likelihood(encoder, rows.select(torch.tensor([row])))
        torch.testing.assert_close(found[places], alone, atol=1e-5, rtol=1e-5)


def test_a_word_is_tagged_in_the_window_with_most_context(table):
    tokenizer, texts = table
    starts = Tokenization(tokenizer, LENGTH, WINDOWS).word_starts(TEXTS)
    rows = texts.in_rows()
    before = 0
    for number, text in enumerate(TEXTS):
        candidates = {}
        windows = texts.rows_of(torch.tensor([number])).tolist()
        for row, offsets in zip(windows, rows_of(tokenizer, text, "offset_mapping"), strict=True):
            first, size = int(rows.offsets[row]), int(rows.lengths[row])
            begun = set()
            for place, (begin, end) in enumerate(offsets):
                if end == begin:
                    continue
                word = text[: begin + 1].count(" ")
                if word not in begun:
                    begun.add(word)
                    context = min(place, size - 1 - place)
                    candidates.setdefault(word, []).append((context, first + place))
        for word, found in candidates.items():
            best = max(found, key=lambda one: one[0])  # of equal ones the first
            assert starts[best[1]] == before + word
        own = starts[texts.offsets[number] : texts.offsets[number + 1]]
        assert int((own >= 0).sum()) == len(candidates)
        before += text.count(" ") + 1


# Whole runs.

UNROLLED = {"horizon": "steps", "unroll": 2, "mix": "scaled"}


@pytest.fixture(scope="module")
def start(tmp_path_factory, encoder_folder):
    """Train on texts of one to eight lines; return the results of a folder."""
    texts = [" ".join(helpers.LINES[(n + k) % 24] for k in range(1 + n % 8)) for n in range(30)]
    rows = [{"text": text, "label": helpers.LABELS[n % 2]} for n, text in enumerate(texts)]
    folder = tmp_path_factory.mktemp("runs")
    return starter(
        folder,
        {"train": rows[:14], "dev": rows[14:22], "test": rows[22:]},
        encoder=encoder_folder("bert"),
        epochs=2,
        cache_dir=folder / "cache",
        **SETTINGS,
    )


@pytest.fixture(scope="module")
def trained(start):
    """A run with a task that follows the primary batch, one that scores, and one with a head."""
    reporter = helpers.Messages()
    results = start("run", reporter, aux=("mask_tuning", "l3mask", "simcse"), window_pooling="max")
    return results, reporter.lines


@pytest.mark.filterwarnings("ignore:tokens per text")  # some have more than four windows
def test_predictions_are_those_of_transformers_pooled(trained, start):
    results, _ = trained
    folder = results.folder / "model"
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
    texts = auxlearn.load_dataset(str(start.folder / "data")).splits["test"].texts
    expected = []
    for text in texts:
        rows = tokenizer(
            text,
            truncation=True,
            stride=model.config.window_stride,
            max_length=tokenizer.model_max_length,
            return_overflowing_tokens=True,
            padding=True,
            return_tensors="pt",
        )
        rows.pop("overflow_to_sample_mapping")
        with torch.no_grad():
            logits = model(**rows).logits[: model.config.max_windows]
        expected.append(logits.max(0).values.softmax(-1).numpy())
    assert model.config.window_pooling == "max"
    np.testing.assert_allclose(probabilities_of(results), expected, atol=1e-6)
    frame = auxlearn.predict(results, list(texts))
    columns = [f"probability_{label}" for label in results.dataset.label_names]
    np.testing.assert_allclose(frame[columns].to_numpy(), expected, atol=1e-6)
    again = auxlearn.evaluate(results, start.folder / "data")["data"]
    assert again.all == results.evaluations["test"].all


@pytest.mark.parametrize(
    "settings",
    [
        {"weights": {"meta": UNROLLED}, "aux": "random_mlm"},
        {"weights": {"tartan": {}}, "aux": ("simcse", "selective")},
        {"loss": "span_cutoff", "perturbed_text": "add"},
    ],
    ids=lambda one: "-".join(map(str, one)),
)
def test_objectives_and_weightings_take_windows(start, settings, request):
    results = start(request.node.callspec.id.replace("/", "-"), epochs=1, **settings)
    assert np.isfinite(probabilities_of(results)).all()
    found = auxlearn.evaluate(results, start.folder / "data")["data"]
    assert found.all == results.evaluations["test"].all


@pytest.mark.parametrize("kind", ["multi_label", "regression", "token_classification"])
def test_other_kinds_of_labels_take_windows(start, tmp_path, kind):
    words = " ".join(helpers.LINES).split()

    def example(number):
        tokens = words[number : number + 6 + 5 * (number % 8)]
        if kind == "token_classification":
            return {"tokens": tokens, "tags": ["B-X" if "a" in one else "O" for one in tokens]}
        found = [one for one in ("parser", "tagger", "corpus") if one in tokens]
        return {"text": " ".join(tokens), "label": found if kind == "multi_label" else len(tokens)}

    rows = [example(number) for number in range(40)]
    helpers.write_splits(tmp_path, train=rows[:20], dev=rows[20:30], test=rows[30:])
    results = start(kind, dataset=tmp_path)
    again = auxlearn.evaluate(results, tmp_path)[tmp_path.name]
    assert again.all == results.evaluations["test"].all
    assert again.loss == pytest.approx(results.evaluations["test"].loss, abs=1e-6)
    if kind == "token_classification":
        classifier = Classifier.of_run(results.folder)
        outputs = classifier.outputs([" ".join(rows[37]["tokens"])])
        assert len(outputs[0]) == len(rows[37]["tokens"]) > LENGTH
        read = (np.abs(outputs[0]).max(1) < 29).sum()  # the others are cut off
        assert read > 2 * LENGTH - 2 - STRIDE - 4
    else:
        usual = {one: auxlearn.RunConfig.model_fields[one].default for one in SETTINGS}
        cut = start(f"{kind}-head", dataset=tmp_path, **usual)
        assert cut.evaluations["test"].loss != results.evaluations["test"].loss


def test_pairs_are_refused_before_anything_is_written(start, tmp_path):
    rows = [{"text": f"a {n}", "text_pair": "b", "label": n % 2} for n in range(20)]
    helpers.write_splits(tmp_path, train=rows)
    with helpers.one_line(DataError, "text_window: windows is for single texts"):
        start("pairs", dataset=tmp_path)
    assert not (start.folder / "pairs").exists()


@pytest.fixture(scope="module")
def cut(tmp_path_factory, encoder_folder):
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
def kept(cut):
    return cut("kept")


@pytest.fixture(scope="module")
def lean(cut, kept):
    reporter = helpers.Messages()
    results = cut("lean", reporter, keep_model=False)
    (line,) = [line for line in reporter.lines if line.startswith("tokens per text of train")]
    assert "12 of 12 are longer than the 16 of max_length and are cut, which keeps" in line
    said = [line for line in reporter.lines if line.startswith("tokens per text of ")]
    assert [line.split(":")[0].split()[-1] for line in said] == ["train", "dev", "test"]
    assert all("are longer than the 16 of max_length and are cut" in line for line in said)
    return results


def test_predictions_after_the_run_see_the_tokens_that_it_saw(kept, cut):
    split = auxlearn.load_dataset(str(cut.folder / "data")).splits["test"]
    found = Classifier.of_run(kept.folder).outputs(split.texts)
    np.testing.assert_allclose(found, probabilities_of(kept), atol=2e-7)
    scores = auxlearn.evaluate(kept, cut.folder / "data")["data"]
    assert scores.all == kept.evaluations["test"].all
    # The same weights see other tokens where a text is cut at its end.
    classifier = Classifier.of_run(kept.folder)
    assert classifier.windowing.text_window == "head+tail"
    head = replace(classifier, windowing=Windowing())
    assert np.abs(head.outputs(split.texts) - probabilities_of(kept)).max() > 1e-4
    card = (kept.folder / "model" / "README.md").read_text()
    assert "from their beginning and their end" in card


def test_every_part_of_a_run_sees_the_window(kept, cut):
    records = helpers.read_lines(kept.folder / "perturbations.jsonl")
    texts = {tuple(record["input_ids"]) for record in records}
    split = auxlearn.load_dataset(str(cut.folder / "data")).splits["train"]
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


def test_a_run_without_its_model_has_the_same_results(kept, lean, cut, tmp_path):
    names = {path.name for path in lean.folder.iterdir()}
    assert not names & {"model", "heads", "adapter", "checkpoint"}
    assert list(lean.evaluations) == ["dev", "test"]
    assert {"predictions", "results.json"} <= names
    assert kept.config["keep_model"]
    assert not lean.config["keep_model"]
    assert kept.reproducible() == lean.reproducible()
    assert cut("lean", keep_model=False) == lean  # finished
    reporter = helpers.Messages()
    assert cut("lean", reporter, gradient_log_steps=2) == lean  # neither makes another run
    assert "was trained without gradient_log_steps and a model: delete it" in reporter.lines[-2]
    printed = call("train", "--config", lean.folder / "config.yaml", "--output", lean.folder)
    assert "model:      not kept" in printed.stdout
    run = shutil.copytree(kept.folder, tmp_path / "run")
    shutil.rmtree(run / "model")
    printed = call("train", "--config", run / "config.yaml", "--output", run)
    assert f"model:      {run / 'model'} was deleted" in printed.stdout
    assert "was deleted since it was trained" in printed.stderr
    assert "was trained without" not in printed.stderr


def test_what_needs_the_model_says_so_in_one_line_and_the_rest_works(lean, kept, cut):
    said = "kept no model (keep_model is off): train it with "
    for give in (
        lambda: auxlearn.predict(lean, ["a text"]),
        lambda: auxlearn.evaluate(lean, cut.folder / "data"),
    ):
        with pytest.raises(RunError) as caught:
            give()
        assert said in str(caught.value)
    assert said in error("predict", lean.folder, "a text")
    page = auxlearn.report(lean.folder, output=cut.folder / "lean.html").read_text()
    assert "the run kept no model" in page
    compared = auxlearn.compare(lean.folder).to_frame()
    assert len(compared) > 0
    frame = auxlearn.perturbations(lean).to_frame()
    assert frame.equals(auxlearn.perturbations(kept).to_frame())
