"""Audits of constructed data sets with known problems."""

from __future__ import annotations

import pytest

from auxlearn.data import run_data
from auxlearn.data.audit import audit, seen_in_train
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.run_data import RunData

NAMES = ("no", "yes")
TRAIN = Split("train", ("One.", "two", "TWO!", "three", "four"), (0, 1, 1, 0, 1), NAMES)
TEST = Split("test", ("One.", "one", "two", "five", "Four"), (0, 0, 0, 0, 0), NAMES)


@pytest.fixture(name="found")
def _found():
    other = Split("other", ("three", "six"), (0, 1), ("wrong", "right"))
    return audit(TextDataset("made", {"train": TRAIN, "test": TEST}, ood={"other": other}))


def test_counts(found):
    train, test = found.splits["train"], found.splits["test"]
    assert (train.examples, train.labels, train.missing_labels) == (5, {"no": 2, "yes": 3}, ())
    assert (test.examples, test.labels, test.missing_labels) == (5, {"no": 5, "yes": 0}, ("yes",))


def test_duplicates(found):
    assert found.splits["train"].duplicates == 1  # "TWO!" repeats "two"
    assert found.splits["test"].duplicates == 1  # "one" repeats "One."


def test_texts_in_train(found):
    train, test, other = (found.splits[name] for name in ("train", "test", "other"))
    assert (train.in_train_exact, train.in_train_normalised, train.texts_in_train) == (0, 0, 0)
    assert (test.in_train_exact, test.in_train_normalised, test.texts_in_train) == (2, 4, 3)
    assert (other.in_train_exact, other.in_train_normalised) == (1, 1)


def test_contradictory_labels_ignore_out_of_distribution_sets(found):
    assert found.contradictions == 2  # "two" and "four"; "three" of `other` means something else


def test_warnings(found):
    assert found.warnings() == [
        "train: the text of 1 example repeats an earlier one",
        "test has no example with the label yes",
        "test: the text of 1 example repeats an earlier one",
        "test: the text of 2 of 5 examples is also in train (4 if only letters and digits count)",
        "other: the text of 1 of 2 examples is also in train (1 if only letters and digits count)",
        "texts with more than one label: 2",
    ]


def test_clean_data_has_no_warnings():
    dev = Split("dev", ("five", "six"), (0, 1), NAMES)
    train = TRAIN.select([0, 1, 3, 4])
    assert audit(TextDataset("clean", {"train": train, "dev": dev})).warnings() == []


def test_a_dev_split_of_one_class_chooses_nothing():
    dev = Split("dev", ("five", "six"), (1, 1), NAMES)
    warnings = audit(TextDataset("made", {"train": TRAIN, "dev": dev})).warnings()
    assert any(line.startswith("dev has examples of one class only") for line in warnings)


def test_unlabelled_split():
    corpus = Split("corpus", ("seven", ""), None, NAMES)
    found = audit(TextDataset("made", {"train": TRAIN, "corpus": corpus}))
    assert found.splits["corpus"].labels == {}
    assert "corpus has 1 example with an empty text" in found.warnings()


def test_pairs_are_in_train_only_with_both_texts():
    train = Split("train", ("a", "c"), (0, 1), NAMES, ("b", "d"))
    test = Split("test", ("a", "a", "A", "b"), (0, 1, 0, 1), NAMES, ("b", "d", "b", "a"))
    assert seen_in_train(train, test) == [True, False, False, False]
    found = audit(TextDataset("pairs", {"train": train, "test": test}))
    assert (found.splits["test"].in_train_exact, found.splits["test"].in_train_normalised) == (1, 2)
    assert "test: the text pair of 1 example repeats an earlier one" in found.warnings()


def test_seen_in_train_compares_character_for_character():
    assert seen_in_train(TRAIN, TEST) == [True, False, True, False, False]
    assert seen_in_train(TRAIN, TRAIN) == [True] * 5


def test_data_that_were_audited_before_are_not_audited_again(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(run_data, "audit", lambda dataset: done.append(1) or audit(dataset))

    def warnings(texts):
        splits = {name: Split(name, texts, (0, 1), ("a", "b")) for name in ("train", "dev")}
        return RunData(TextDataset("d", splits), (), splits["train"], None, (), tmp_path).warnings

    first = warnings(("x", "y"))
    assert any("also in train" in line for line in first)
    assert warnings(("x", "y")) == first
    assert len(done) == 1
    assert warnings(("x", "x")) != first
    assert len(done) == 2
    for path in tmp_path.iterdir():
        path.write_text("{}")
    assert warnings(("x", "y")) == first, "a damaged file is not believed"
    assert len(done) == 3
