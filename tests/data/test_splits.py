"""Stratified splitting."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter

import pytest
from sklearn.model_selection import StratifiedGroupKFold

from auxlearn import load_dataset
from auxlearn.core.errors import DataError
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.load import with_dev
from auxlearn.data.splits import (
    choose_held_out,
    hold_out,
    hold_out_of_many,
    normalise,
    take_fold,
    text_keys,
)


def make_split(rows: list[tuple[str, int]], classes: int = 3) -> Split:
    texts, labels = zip(*rows, strict=True)
    names = tuple(f"c{number}" for number in range(classes))
    ids = tuple(str(number) for number in range(len(rows)))
    return Split("train", texts, labels, names, meta={"id": ids})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Hello, World_2!", "helloworld2"),
        ("!!! ", "!!!"),
        ("Caf\u00e9 au-lait", "caf\u00e9aulait"),
        ("Cafe\u0301", "caf\u00e9"),  # the accent as a character of its own
        ("\u0939\u093f, \u0939\u0947", "\u0939\u093f\u0939\u0947"),  # vowel signs of Hindi
        ("soup \U0001f600", "soup"),
    ],
)
def test_marks_belong_to_their_letters(text, key):
    assert normalise(text) == key


UNEVEN = make_split([(f"text {i}", 0 if i < 140 else 1 if i < 190 else 2) for i in range(200)])


def test_the_held_out_share_is_stratified_where_there_are_labels():
    rest, dev = hold_out(UNEVEN, 0.1, seed=0)
    assert Counter(dev.labels) == {0: 14, 1: 5, 2: 1}
    assert Counter(rest.labels) == {0: 126, 1: 45, 2: 9}
    assert (rest.name, dev.name) == ("train", "dev")
    split = Split("corpus", tuple(f"t{i}" for i in range(10)), None, ())
    rest, dev = hold_out(split, 0.2, seed=0)
    assert (len(rest), len(dev), dev.labels) == (8, 2, None)


def test_no_example_is_lost_duplicated_or_reordered():
    rest, dev = hold_out(UNEVEN, 0.3, seed=5, name="meta")
    assert dev.name == "meta"
    ids = [int(row) for row in (*rest.meta["id"], *dev.meta["id"])]
    assert sorted(ids) == list(range(200))
    for part in (rest, dev):
        own = [int(row) for row in part.meta["id"]]
        assert own == sorted(own)
        assert part.texts == tuple(UNEVEN.texts[row] for row in own)
        assert part.labels == tuple(UNEVEN.labels[row] for row in own)


def test_the_choice_depends_on_the_seed_only_and_not_on_the_order_of_examples():
    first = hold_out(UNEVEN, 0.1, seed=3)
    random.seed(99)
    state = random.getstate()
    assert hold_out(UNEVEN, 0.1, seed=3) == first
    assert random.getstate() == state
    assert hold_out(UNEVEN, 0.1, seed=4) != first
    order = random.Random(1).sample(range(200), 200)
    _, shuffled = hold_out(UNEVEN.select(order), 0.1, seed=3)
    assert set(first[1].texts) == set(shuffled.texts)


def test_equal_texts_stay_together():
    rows = [(f"{'A' if i % 2 else 'a'} text {i % 60}{'!' * (i % 3)}", i % 3) for i in range(240)]
    for seed in range(20):
        rest, dev = hold_out(make_split(rows), 0.25, seed)
        assert set(text_keys(rest)).isdisjoint(text_keys(dev))
        assert len(dev) == 60


def test_pairs_are_equal_only_if_both_texts_are():
    split = Split("train", ("a", "a", "A!"), (0, 1, 0), ("x", "y"), ("b", "c", "B."))
    keys = text_keys(split)
    assert keys[0] == keys[2] != keys[1]
    assert len(set(text_keys(split, exact=True))) == 3


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9, 0.99])
def test_every_class_with_two_texts_is_on_both_sides(share):
    for seed in range(50):
        draw = random.Random(seed)
        # Several rows a text, classes of one text and of few, and texts of one class only.
        owner = {text: draw.choice([0, 0, 0, 0, 1, 2, 3]) for text in range(12)}
        keys = [(str(draw.randrange(12)),) for _ in range(40)]
        labels = [owner[int(key[0])] for key in keys]
        held = set(choose_held_out(labels, keys, share, seed))
        for label in set(labels):
            rows = [row for row in range(40) if labels[row] == label]
            sides = {row in held for row in rows}
            distinct = {keys[row] for row in rows}
            assert sides == ({True, False} if len(distinct) > 1 else {False})


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_rare_class_whose_texts_also_carry_a_frequent_label(share):
    keys = [("a",), ("b",), ("a",), ("b",), ("c",), ("d",)]
    labels = [1, 1, 0, 0, 0, 0]
    for seed in range(20):
        held = set(choose_held_out(labels, keys, share, seed))
        assert len(held & {0, 1}) == 1
        assert (0 in held) == (2 in held)
        assert (1 in held) == (3 in held)


def test_examples_held_out_with_a_rare_class_count_for_the_frequent_one():
    labels = [1, 1] + [0] * 20
    keys = [(text,) for text in "ab" + "aaaaabbbbb" + "cdefghijkl"]
    for seed in range(20):
        held = choose_held_out(labels, keys, 0.25, seed)
        assert Counter(labels[row] for row in held) == {0: 5, 1: 1}


@pytest.mark.parametrize("copies", [1, 3, 30])
def test_of_many_texts_few_are_held_out_whatever_their_order(copies):
    texts = tuple(f"Text {number % (300 // copies)}{'.' * (number % 2)}" for number in range(300))
    split = Split("train", texts, None, ())
    held = hold_out_of_many(split, 40, lambda count: None)
    chosen = {normalise(texts[row]) for row in held}
    rows = [row for row, text in enumerate(texts) if normalise(text) in chosen]
    assert held == rows  # with all their copies
    assert 40 - copies < len(held) <= 40
    order = random.Random(0).sample(range(300), 300)
    other = hold_out_of_many(split.select(order), 40, lambda count: None)
    assert sorted(order[row] for row in other) == held


def test_of_many_texts_those_with_too_many_copies_are_kept():
    split = Split("train", ("two", "one", "two", "One!", "two"), None, ())
    assert hold_out_of_many(split, 2, lambda count: None) == [1, 3]
    with pytest.raises(DataError, match=r"\(different texts: 2, each more than 1 times\)"):
        hold_out_of_many(split, 1, lambda count: None)


def test_of_each_of_many_texts_a_digest_is_in_memory():
    count = 50_000
    split = Split("train", tuple(map(str, range(count))), None, ())
    tracemalloc.start()
    held = hold_out_of_many(split, 100, lambda count: None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 90 < len(held) <= 100
    assert peak < 1.5 * 8 * count


ONE_TEXT = [("Same text.", 0), ("same text", 1)] * 10


@pytest.mark.parametrize(
    ("split", "share", "said"),
    [
        *((UNEVEN, share, "must lie between 0 and 1") for share in (0.0, 1.0, -0.1, float("nan"))),
        (
            make_split(ONE_TEXT),
            0.1,
            r"too small to hold .* texts: 1, each in a stratum of labels of its",
        ),
        (make_split([("a", 0), ("A", 0), ("b", 1)]), 0.5, "too small"),
        (
            make_split([("a", 0), ("b", 1), ("c", 2)]),
            0.5,
            r": 3, each in a stratum .* split dev",
        ),
    ],
)
def test_nothing_can_be_held_out(split, share, said):
    with pytest.raises(DataError, match=said):
        hold_out(split, share, seed=0)


def test_of_texts_without_labels_no_class_is_named():
    with pytest.raises(DataError, match=r"different texts: 1\): add examples$"):
        hold_out(Split("corpus", ("a", "a"), None, ()), 0.5, seed=0, name="held out")


@pytest.mark.parametrize(("count", "held"), [(10, 1), (24, 2), (60, 6), (200, 20)])
def test_numbers_are_held_out_by_their_share_however_few(count, held):
    rows = [{"text": f"text {number}", "label": number / 7} for number in range(count)]
    splits = load_dataset(rows).splits
    assert (len(splits["train"]), len(splits["dev"])) == (count - held, held)


def as_folds(split: Split, count: int) -> list[TextDataset]:
    dataset = TextDataset("set", {"train": split, "test": UNEVEN})
    return [take_fold(dataset, f"{number}/{count}") for number in range(1, count + 1)]


def test_each_example_is_tested_once_and_equal_texts_stay_together():
    rows = [(f"Text {i % 80}{'!' * (i % 3)}", i % 80 % 3) for i in range(120)]
    split = make_split(rows)
    tested = []
    for part in as_folds(split, 5):
        train, test = part.splits["train"], part.splits["test"]
        assert len(train) + len(test) == 120
        assert set(text_keys(train)).isdisjoint(text_keys(test))
        tested += test.meta["id"]
        assert "the test split of the data set (200) is not read" in part.notes[-1]
    assert sorted(map(int, tested)) == list(range(120))


def test_folds_are_as_even_as_those_of_scikit_learn():
    draws = random.Random(0)
    rows = [(f"text {draws.randrange(150)}", 0) for _ in range(240)]
    rows = [(text, min(2, int(text[5:]) % 5)) for text, _ in rows]
    split = make_split(rows)
    labels, groups = split.labels, [key[0] for key in text_keys(split)]

    def spread(folds: list[Counter]) -> float:
        return max(
            max(fold[label] for fold in folds) - min(fold[label] for fold in folds)
            for label in range(3)
        )

    own = [Counter(part.splits["test"].labels) for part in as_folds(split, 5)]
    judge = StratifiedGroupKFold(5, shuffle=True, random_state=0).split(labels, labels, groups)
    others = [Counter(labels[index] for index in test) for _, test in judge]
    assert spread(own) <= max(2, spread(others))


def test_folds_do_not_depend_on_the_order_of_the_examples_and_need_texts():
    with pytest.raises(DataError, match=r"^2 distinct training texts cannot be"):
        as_folds(make_split([("a", 0), ("a", 0), ("b", 1)]), 3)
    turned = UNEVEN.select(list(range(200))[::-1])
    for one, other in zip(as_folds(UNEVEN, 4), as_folds(turned, 4), strict=True):
        assert one.splits["test"].texts == other.splits["test"].texts[::-1]


def test_dev_of_a_fold():
    dataset = TextDataset("set", {"train": UNEVEN})
    part = with_dev(dataset, seed=0, fold="2/4")
    held = set(part.splits["dev"].texts)
    assert len(part.splits["dev"]) == 15
    assert held.isdisjoint(part.splits["test"].texts)
    assert held.isdisjoint(part.splits["train"].texts)
    own = TextDataset("set", {"train": UNEVEN, "dev": make_split([("own", 0)])})
    assert with_dev(own, seed=0, fold="2/4").splits["dev"].texts == ("own",)


def test_notes_are_of_what_is_read():
    lacks = "has labels that train lacks: x; their 1 of 1 examples count as wrong"
    split = make_split([(f"text {number}", number == 8) for number in range(9)], classes=2)
    other = make_split([("own", 0)])
    splits = {"train": split, "dev": other, "test": other}
    dataset = TextDataset("set", splits, notes=(f"dev {lacks}", f"test {lacks}"))
    notes = [take_fold(dataset, f"{number}/3").notes for number in (1, 2, 3)]
    assert {one[0] for one in notes} == {f"dev {lacks}"}
    assert not any(lacks in note for one in notes for note in one[1:])
    alone = [number for number, one in enumerate(notes, 1) if one[-1].endswith("folds: c1")]
    assert [1 in take_fold(dataset, f"{n}/3").splits["test"].labels for n in (1, 2, 3)] == [
        number in alone for number in (1, 2, 3)
    ]
