"""Further labelled data sets: sampling, heads, dev metrics, and equality with the primary task."""

from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from auxlearn.core.errors import ConfigError, DataError
from auxlearn.core.validation import validate
from auxlearn.data.batches import MixedStream, collate, sampling_probabilities
from auxlearn.objectives.context import InputTracker
from auxlearn.tasks.supervised import Supervised, SupervisedOptions
from tests import helpers
from tests.training.harness import CLASSES, Harness


def write_set(folder, labels, name="train", lines=helpers.LINES):
    rows = [{"text": line, "label": labels[n % len(labels)]} for n, line in enumerate(lines)]
    return helpers.write_splits(folder, **{name: rows})


@pytest.fixture
def encoder(loaded):
    return helpers.without_dropout(loaded("bert"))


@pytest.fixture
def prepared(encoder, tmp_path):
    def make(tracker=None, **options):
        task = Supervised(validate(SupervisedOptions, options, "supervised"))
        texts = helpers.tokenized(encoder, helpers.LINES, CLASSES)
        context = helpers.context(encoder, texts, tmp_path / "cache")
        context.name, context.tracker = "supervised", tracker or InputTracker()
        task.prepare(context)
        return task

    return make


@pytest.mark.parametrize(
    ("smoothing", "expected"),
    [(1.0, [0.6, 0.3, 0.1]), (0.0, [1 / 3] * 3), (0.5, [0.4727, 0.3343, 0.1930])],
)
def test_sets_are_sampled_as_requested(smoothing, expected):
    probabilities = sampling_probabilities([600, 300, 100], smoothing)
    torch.testing.assert_close(
        probabilities, torch.tensor(expected, dtype=torch.float64), atol=1e-4, rtol=0
    )
    stream = MixedStream(
        helpers.ragged([4] * 11, [0] * 11), (6, 3, 2), probabilities, 2, 0, "mixed"
    )
    counts = Counter(stream.set_of(step) for step in range(10_000))
    for number, probability in enumerate(probabilities.tolist()):
        assert abs(counts[number] / 10_000 - probability) < 0.01


def test_each_batch_is_of_one_set_and_every_epoch_of_a_set_has_all_of_it():
    texts, probabilities = helpers.ragged([4] * 10, [0] * 10), sampling_probabilities([6, 4], 1.0)
    stream = MixedStream(texts, (6, 4), probabilities, 2, 3, "mixed")
    seen = {0: [], 1: []}
    for step in range(40):
        indices = stream.indices(step)
        number = stream.set_of(step)
        assert ((indices >= 6) == bool(number)).all()
        seen[number] += indices.tolist()
    for number, whole in ((0, set(range(6))), (1, set(range(6, 10)))):
        assert set(seen[number][: len(whole)]) == whole
    # A resumed run asks for a later step first.
    again = MixedStream(texts, (6, 4), probabilities, 2, 3, "mixed")
    assert torch.equal(again.indices(39), stream.indices(39))


def test_how_a_set_was_read_is_said(encoder, tmp_path):
    folder = write_set(tmp_path / "more", helpers.LABELS, lines=[f"['a', {n}]" for n in range(30)])
    context = helpers.context(
        encoder, helpers.tokenized(encoder, helpers.LINES, CLASSES), tmp_path / "cache"
    )
    said = []
    context.name, context.say = "supervised", said.append
    Supervised(validate(SupervisedOptions, {"datasets": str(folder)}, "supervised")).prepare(
        context
    )
    assert [line.partition(": data set more: ")[2][:25] for line in said[:2]] == [
        "no dev split: 3 of the 30",
        "train: each text is a lis",
    ]


def test_with_the_primary_tasks_own_data_it_is_the_primary_task_twice(prepared, encoder, tmp_path):
    folder = write_set(tmp_path / "same", helpers.LABELS)
    write_set(folder, helpers.LABELS, "dev")
    task = prepared(datasets=str(folder))
    assert torch.equal(task.sets[0].train.labels, torch.tensor(CLASSES))
    mine, native = encoder.heads[task.sets[0].head], encoder.classifier
    with torch.no_grad():
        for layer, its in ((mine[0], native.bert.pooler.dense), (mine[3], native.classifier)):
            layer.load_state_dict(its.state_dict())
    helpers.without_dropout(encoder)  # that of the new head
    step = Harness(encoder, [("supervised", task)]).training_step
    step.auxiliaries = (replace(step.auxiliaries[0], stream=step.primary),)
    step.begin(0)
    primary, auxiliary = step.gradients()
    torch.testing.assert_close(step.losses["primary"], step.losses["supervised"])
    compared = 0
    for place, one, other in zip(step.placements, primary, auxiliary, strict=True):
        if place == "encoder" and one is not None:
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
            compared += 1
    assert compared > 10
    by_layer = dict(zip((id(p) for p in step.parameters), auxiliary, strict=True))
    natives = dict(zip((id(p) for p in step.parameters), primary, strict=True))
    for layer, its in ((mine[0], native.bert.pooler.dense), (mine[3], native.classifier)):
        torch.testing.assert_close(by_layer[id(layer.weight)], natives[id(its.weight)])


def test_each_set_has_its_own_classes_and_head(prepared, encoder, tmp_path):
    one = write_set(tmp_path / "one", ("yes", "no"), lines=helpers.LINES[:9])
    write_set(one, ("yes", "no"), "dev", helpers.LINES[9:13])
    two = write_set(tmp_path / "two", ("a", "b", "c", "d"), lines=helpers.LINES[:8])
    write_set(two, ("a", "b", "c", "d"), "dev", helpers.LINES[8:16])
    task = prepared(datasets=[str(one), {"dataset": str(two), "name": "other"}])
    assert [encoder.heads[each.head][3].out_features for each in task.sets] == [2, 4]
    assert task.starts.tolist() == [0, 9]
    assert task.stream(2, 0, "again").texts is task.texts, "the tokens are held twice"
    for place, each in zip((0, 9), task.sets, strict=True):
        memory = each.train.input_ids.untyped_storage().data_ptr()
        assert memory == task.texts.input_ids.untyped_storage().data_ptr()
        assert torch.equal(
            collate(each.train, torch.tensor([3])).input_ids,
            collate(task.texts, torch.tensor([place + 3])).input_ids,
        )
    for indices, number in ((torch.tensor([0, 8]), 0), (torch.tensor([9, 16]), 1)):
        batch = collate(task.texts, indices)
        loss = task.loss(encoder, batch, torch.Generator())
        logits = encoder.apply_head(task.sets[number].head, encoder.features(batch))
        labels = task.sets[number].train.labels[indices - task.starts[number]]
        expected = -logits.log_softmax(-1)[torch.arange(2), labels].mean()
        torch.testing.assert_close(loss, expected)

    with encoder.evaluating(), torch.no_grad():
        metrics = task.evaluate(encoder)
        dev = helpers.collated(task.sets[1].dev)
        predicted = encoder.apply_head(task.sets[1].head, encoder.features(dev)).argmax(1)
    assert list(metrics)[:2] == ["one/accuracy", "one/macro_f1"]
    assert dict(list(metrics.items())[2:]) == {
        "other/accuracy": accuracy_score(dev.labels, predicted),
        "other/macro_f1": f1_score(dev.labels, predicted, average="macro"),
    }


def test_what_is_read_is_tracked_and_a_missing_dev_split_is_held_out(prepared, tmp_path):
    read = []

    class Tracker(InputTracker):
        def dataset(self, objective, source, columns, dataset):
            read.append((objective, source, sorted(dataset.splits)))

    lines = [f"{line} {number}" for line in helpers.LINES for number in range(3)]
    folder = write_set(tmp_path / "set", ("yes", "no"), lines=lines)
    task = prepared(Tracker(), datasets=str(folder), batch_size=3)
    assert read == [("supervised", str(folder), ["dev", "train"])]
    assert len(task.sets[0].train) + len(task.sets[0].dev) == len(lines)
    assert task.batch_size == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "supervised needs a labelled data set: name a folder, card or hub id"),
        ({"datasets": "nowhere/to/be/found"}, "there is no folder 'nowhere/to/be/found'"),
        ({"datasets": pd.DataFrame({"text": ["a"], "label": ["b"]})}, "write a path, card name"),
        ({"datasets": ["a/x", "b/x"]}, "two sets are named 'x': give one another name"),
        ({"datasets": "x", "smoothing": -1}, "smoothing"),
        ({"datasets": [{"dataset": "x", "colour": 1}]}, "colour"),
        ({"datasets": "./bare"}, "label"),
    ],
)
def test_options_that_do_not_fit_are_refused(prepared, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    rows = [{"text": "A parser."}]
    helpers.write_splits(tmp_path / "bare", train=rows, dev=rows)
    with pytest.raises((ConfigError, DataError), match=message):
        prepared(**options)
