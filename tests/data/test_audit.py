"""Audits of constructed data sets with known problems, and lengths of texts."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from auxlearn.core.cache import TensorCache
from auxlearn.core.settings import Windowing
from auxlearn.data import run_data
from auxlearn.data.audit import (
    audit,
    describe_cut,
    describe_lengths,
    seen_in_train,
    token_lengths,
    unknown_in,
    whole_lengths,
    word_lengths,
)
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.load import load_dataset
from auxlearn.data.run_data import RunData
from auxlearn.data.tokens import Tokenization
from auxlearn.kinds.base import kind_of
from tests import helpers
from tests.helpers import tokenized

NAMES = ("no", "yes")
TRAIN = Split("train", ("One.", "two", "TWO!", "three", "four"), (0, 1, 1, 0, 1), NAMES)
TEST = Split("test", ("One.", "one", "two", "five", "Four"), (0, 0, 0, 0, 0), NAMES)


@pytest.fixture(name="found")
def _found():
    other = Split("other", ("three", "six"), (0, 1), ("wrong", "right"))
    return audit(TextDataset("made", {"train": TRAIN, "test": TEST}, ood={"other": other}))


def test_warnings(found):
    assert list(found.warnings()) == [
        "train: the text of 0 examples repeats an earlier one (1 if only letters and digits count)",
        "test has no example with the label yes, which macro-F1 counts there only where it is "
        "predicted",
        "test: the text of 0 examples repeats an earlier one (1 if only letters and digits count)",
        "test: the text of 2 of 5 examples is also in train (4 if only letters and digits count)",
        "other: the text of 1 of 2 examples is also in train (1 if only letters and digits count)",
        "texts with more than one label: 1",
    ]


def test_texts_that_choose_the_model_and_test_it_are_counted():
    splits = {"train": TRAIN, "dev": replace(TEST, name="dev"), "test": TEST.select([0, 3])}
    said = "texts in both dev and test, so that they test the model that they have chosen: 2"
    assert said in audit(TextDataset("made", splits)).remarks
    del splits["test"]
    assert said not in audit(TextDataset("made", splits)).remarks


@pytest.mark.parametrize(
    ("kind", "labels", "constant"),
    [
        ("classification", (0, 1), False),
        ("classification", (1, 1), True),
        ("multi_label", ((0, 1), (0, 1)), True),
        ("multi_label", ((0, 1), (0,)), False),
        ("regression", (2.5, 2.5), True),
        ("token_classification", ((1, 1), (1,)), True),
        ("token_classification", ((1, 0), (1, 0)), False),
    ],
)
def test_a_constant_dev_split_of_any_kind_chooses_nothing(kind, labels, constant):
    dev = Split("dev", ("five", "six"), labels, NAMES, kind=kind_of(kind))
    clean = TRAIN.select([0, 1, 3, 4])
    said = list(audit(TextDataset("made", {"train": clean, "dev": dev})).warnings())
    assert any(line.startswith("dev has the same label throughout") for line in said) == constant
    assert constant or kind != "classification" or said == []


def test_near_repeats_are_counted_apart_and_contradict_nothing():
    """As in SciERC: abstracts that differ by the entities that are marked in them."""
    texts = ("[A] of [B] c", "[a] of [b] c", "[A] of [b] c", "x", "x")
    train = Split("train", texts, (0, 1, 0, 1, 0), NAMES)
    found = audit(TextDataset("made", {"train": train}))
    assert (found.splits["train"].duplicates, found.splits["train"].duplicates_normalised) == (1, 3)
    assert found.contradictions == 1  # "x" alone


#: Names of two classes that look alike, and whether they are read as one.
ALIKE = {
    "byte order mark": ("positive", "\ufeffpositive", True),
    "zero width": ("positive", "positive\u200b", True),
    "Unicode form": ("caf\u00e9", "cafe\u0301", True),
    "capitals": ("Positive", "positive", False),
    "soft hyphen": ("positive", "posi\u00adtive", False),
    "quotation marks": ("positive", "'positive'", False),
    "leading zeros": ("1", "01", False),
}


@pytest.mark.parametrize("case", ALIKE)
def test_labels_that_look_alike_are_one_or_named(case):
    first, second, is_one = ALIKE[case]
    rows = {"text": list("abcd"), "label": [first, second, "negative", first]}
    found = load_dataset({"train": rows, "dev": rows})
    said = [line for line in audit(found).warnings() if "differ only in" in line]
    assert len(found.label_names) == 3 - is_one
    assert len(said) == (not is_one)
    lists = {"text": list("abcd"), "label": [[first], [second, "negative"], [], [first]]}
    found = load_dataset({"train": lists, "dev": lists})
    assert len(found.label_names) == 3 - is_one


def test_numbers_far_from_zero_and_columns_of_texts_that_are_not_read_are_named():
    def remarks(labels, **further):
        rows = {"text": [f"t{n}" for n in range(6)], "label": labels, **further}
        return " ".join(audit(load_dataset({"train": rows, "dev": rows})).remarks)

    prices = np.array([8e5, 2.5e5, 6e5, 4.1e5, 1e5, 2e5]) + 0.5
    said = remarks(prices.tolist())
    assert f"mean {prices.mean():.4g} and standard deviation {prices.std():.4g}" in said
    assert "standard deviation 1.708e-06" in remarks([n / 1e6 for n in range(6)])
    assert remarks([n / 2 for n in range(6)]) == ""
    few = remarks([0.5, 1.5] * 3)
    assert "2 different numbers in 6 examples are predicted" in few
    bodies = [f"a longer text of many words {n}" for n in range(6)]
    assert "column 'body' holds texts that are not read" in remarks(list("ababab"), body=bodies)
    named = remarks(list("ababab"), hypothesis=list("ababab"))
    assert "column 'hypothesis' holds texts that are not read" in named
    for mark in "|;,":
        joined = remarks(["a", f"a{mark}b", "c"] * 2)
        assert f"label 'a{mark}b' is read as a class of its own" in joined
    assert "labels that differ only in" in remarks([True, 0, 1] * 2)
    assert remarks(["Paris, UK", "London, UK"] * 3) == ""
    values = ["a", "nan", "N/A", "none", "nan", "?"]
    for column, what in {"text": "texts", "text_pair": "second texts"}.items():
        missing = remarks(list("ababab"), **{column: values})
        said = f"{what} that look like a missing value: 3 ('nan', 'N/A')"
        assert missing == f"train, dev: {said}"
    assert remarks(list("ababab"), source=["a site on the web"] * 6, id=list("uvwxyz")) == ""


#: Texts and labels that are read as they stand, and what is said of them; "" if nothing is.
AS_THEY_STAND = {
    "a space before the quotation mark": ("ab", [' "x"', ' "y"'], "each label stands in quotation"),
    "single quotation marks": (["'a'", "'b'"], "xy", "each text stands in quotation"),
    "one text that is a quotation": (["'a'", "b"], "xy", ""),
    "lists": (["['a', 'b']", "['c']"], "xy", "each text is a list (['a', 'b'])"),
    "one list, and what begins like one": (["['a', 'b']", "[E1] a [/E1]"], "xy", ""),
    "fastText's lines": (["__label__x a b", "__label__y c"], "xy", "each text has its label in it"),
    "a word and its tag as texts": (["Ann B-PER", "went O"], "xy", "each text has its label in it"),
    "one text that has its label": (["__label__x a b", "c"], "xy", ""),
    "texts that end with a grade": (["blood type O", "type O"], "xy", ""),
    "commas alone": ("abc", ["x, y", "x, z", "y, z"], "label 'x, y' (and 2 more) is read as a"),
    "commas in names": ("abc", ["Sci, Tech", "Arts, Film", "Arts, Music"], ""),
    "doccano": (
        "abcd",
        ["all#neg", "neg", "all#pos", "pos"],
        "label 'all#neg' (and 1 more) is read",
    ),
    "plus signs": ("abcd", ["x+y", "y+x", "x", "z"], "label 'x+y' (and 1 more) is read"),
    "two parts of a name": ("abc", ["FOOD#PRICES", "FOOD#QUALITY", "BAR#PRICES"], ""),
    "classes of which half are coded": (
        "abcdefgh",
        ["pos", "1", "neg", "0"] * 2,
        "labels of which some are whole numbers (0, 1) and others names (neg, pos)",
    ),
    "grades": ("abcd", ["A+", "A", "B+", "B"], ""),
    "a second header": ("abcdefg", [*"xyxyxy", "gold"], "labels with a single example: 'gold'"),
    "fastText": ("ab", ["__label__x", "__label__x__label__y"], "label '__label__x__label__y' is"),
    "a tag for each word": (["a b c", "d e f"], ["O O PER", "PER O O"], "such as 'O O PER' have"),
    "a word and its tag": ("abcd", ["B-X", "I-X", "O", "O"], "such as 'B-X' have as many parts"),
    "lists of one label": ("abc", [["x"], ["y"], ["x"]], "each list of train has one label"),
    "names of as many words": (["a city", "a town"], ["New York", "New Jersey"], ""),
    "words at two places": (["a city", "town"], ["York West", "West York"], ""),
}


@pytest.mark.parametrize("case", AS_THEY_STAND)
def test_what_programs_write_around_texts_and_labels_is_said(case):
    texts, labels, said = AS_THEY_STAND[case]
    rows = {"text": [*texts], "label": [*labels]}
    remarks = audit(load_dataset({"train": rows, "dev": rows})).remarks
    assert len(remarks) == bool(said)
    assert said in " ".join(remarks)


def test_pairs_are_in_train_only_with_both_texts():
    train = Split("train", ("a", "c"), (0, 1), NAMES, ("b", "d"))
    test = Split("test", ("a", "a", "A", "b"), (0, 1, 0, 1), NAMES, ("b", "d", "b", "a"))
    assert seen_in_train(train, test) == [True, False, False, False]
    found = audit(TextDataset("pairs", {"train": train, "test": test}))
    assert (found.splits["test"].in_train_exact, found.splits["test"].in_train_normalised) == (1, 2)
    assert (
        "test: the text pair of 0 examples repeats an earlier one (1 if only letters and digits "
        "count)"
    ) in found.warnings()
    # Character for character.
    assert seen_in_train(TRAIN, TEST) == [True, False, True, False, False]
    assert seen_in_train(TRAIN, TRAIN) == [True] * 5


def test_data_that_were_audited_before_are_not_audited_again(tmp_path, monkeypatch, caplog):
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
    one, other = tmp_path.iterdir()
    one.write_bytes(other.read_bytes())
    assert warnings(("x", "y")) == first
    assert warnings(("x", "x")) != first, "a file in the place of another is not believed"
    assert len(done) == 3
    for path in tmp_path.iterdir():
        path.write_text("{}")
    caplog.clear()
    assert warnings(("x", "y")) == first, "a damaged file is not believed"
    assert len(done) == 4
    assert "is damaged: its content is computed again" in caplog.text


TEXTS = ("the parser", "the parser is the parser", "the", "the tagger is")


def test_words_are_counted_over_both_texts_of_a_pair():
    found = word_lengths(Split("train", TEXTS, None, ()))
    assert (found.unit, found.longest, found.median, found.mean) == ("words", 5, 2.5, 2.75)
    assert found.truncated is None
    tagged = Split("train", ("New\u00a0York is", "a"), ((0, 1), (1,)), ("B-X", "O"))
    tagged = replace(tagged, kind=kind_of("token_classification"))
    assert word_lengths(tagged).longest == 2
    pairs = word_lengths(Split("train", TEXTS[:1], None, (), text_pairs=TEXTS[1:2]))
    assert pairs.longest == 7


@pytest.mark.parametrize(("maximum", "share"), [(3, 0.75), (4, 0.5), (7, 0.0)])
def test_tokens_are_counted_before_truncation(tiny_bert, maximum, share):
    found = token_lengths(tiny_bert.tokenizer, Split("train", TEXTS, None, ()), maximum)
    assert (found.unit, found.longest) == ("tokens", 7)  # five words, [CLS] and [SEP]
    assert found.truncated == share


def test_a_run_says_how_many_texts_are_cut_and_what_is_kept(tiny_bert, tmp_path):
    cache, split = TensorCache(tmp_path), Split("train", TEXTS, None, ())
    cut = partial(Tokenization, tiny_bert.tokenizer)
    for _ in range(2):  # computed, then read from the cache
        texts = tokenized(tiny_bert, TEXTS, max_length=5)
        whole = whole_lengths(cut(5), split, texts, cache)
        assert whole.tolist() == [4, 7, 3, 5]
    assert describe_lengths(whole, cut(5)) == (
        "tokens per text of train: median 4, 95% have at most 7; "
        "1 of 4 are longer than the 5 of max_length and are cut, which keeps 89.5% of all tokens"
    )
    assert describe_lengths(whole, cut(7)).endswith("none is longer than the 7 of max_length")
    # A second window of 5 tokens has two new ones: one is of the window before, two are special.
    windows = Windowing(text_window="windows", window_stride=1, max_windows=2)
    assert describe_lengths(whole, cut(5, windows)).endswith(
        "are read in at most 2 windows, which keeps 100.0% of all tokens"
    )
    longer = whole.copy()
    longer[1] += 1
    assert "keeps 95.0% of all tokens" in describe_lengths(longer, cut(5, windows))
    assert describe_cut(cut(5, windows), split, texts, cache) == []
    fewer = windows.model_copy(update={"max_windows": 1})
    (line,) = describe_cut(cut(5, fewer), split, texts, cache)
    assert line.endswith("are read in at most 1 windows, which keeps 89.5% of all tokens")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["the parser ☃ the"] * 3 + ["☃ ☃"], "35.7% of the tokens are unknown .* in 1 example all"),
        (["the parser ☃ the"], "25.0% of the tokens are unknown to this encoder: to it"),
        (["the parser the parser"], None),
    ],
)
@pytest.mark.parametrize("pairs", [False, True])
def test_the_share_of_unknown_tokens_is_said_of_texts_and_of_tokens(texts, expected, pairs):
    tokenizer = helpers.wordpiece()
    split = Split("train", tuple(texts), None, (), tuple(texts) if pairs else None)
    tokenized = Tokenization(tokenizer, 64).tokenize(split.texts, split.text_pairs)
    for found in (
        token_lengths(tokenizer, split, 64).unknown,
        unknown_in("train", tokenized, tokenizer.unk_token_id),
    ):
        assert found is None if expected is None else re.match(f"train: {expected}", found), found
