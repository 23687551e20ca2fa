"""Inputs that would take all memory, or wait for ever."""

from __future__ import annotations

from collections.abc import Callable

from tests.hardening.case import Case, Place
from tests.hardening.cases_encoders import encoder, setting
from tests.hardening.inputs import CHECK, GOOD, MANY, config, parquet, pipe, train, writes

DATA = ("--dataset", "d", "--encoder", "encoder", "--cache-dir", "cache")
AS_TEXT = ("--text-column", "label")


def beside(*parts: Callable[[Place], object]) -> Callable[[Place], object]:
    return lambda place: [part(place) for part in parts]


def trainable(place: Place) -> None:
    place.write("d/train.jsonl", MANY)
    place.copy_encoder()


def repeated_texts(place: Place) -> None:
    import pyarrow

    indices = pyarrow.array([0] * 6000, pyarrow.int32())
    texts = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["x" * 900_000]))
    parquet(text=texts, label=["a", "b"] * 3000)(place)


def repeated_in_lists(place: Place) -> None:
    import pyarrow

    indices = pyarrow.array([0] * 6000, pyarrow.int32())
    texts = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["x" * 900_000]))
    texts = pyarrow.ListArray.from_arrays(pyarrow.array(range(0, 6001, 10), pyarrow.int32()), texts)
    parquet(text=["a text"] * 600, label=["a", "b"] * 300, more=texts)(place)


def nothing_repeated(place: Place) -> None:
    import pyarrow

    parquet(text=pyarrow.nulls(10**9))(place)


def columns(*names: str) -> tuple[str, ...]:
    return (*CHECK, *names)


CASES: list[Case] = [
    Case("parquet: a text 6,000 times", CHECK, r"more than 4,294,967,296 bytes", repeated_texts),
    Case("parquet: a text in lists", CHECK, r"more than 4,294,967,296 bytes", repeated_in_lists),
    Case("parquet: a billion nulls", CHECK, r"more than 4,294,967,296 bytes", nothing_repeated),
    encoder("a billion labels", r"num_labels is 1000000000: at most", setting(num_labels=10**9)),
    encoder(
        "a billion labels inside",
        r"num_labels is 1000000000",
        setting(text_config={"num_labels": 10**9}),
    ),
    Case(
        "train: a pipe for probabilities",
        ["train", *DATA, "--loss", "poe", "--poe-bias", "p.csv"],
        r"p.csv .*not a regular file",
        beside(trainable, pipe("p.csv")),
        leaves=("cache",),
    ),
    Case(
        "train: a pipe for a plug-in",
        ["train", "--plugin", "p.py"],
        r"p.py does not exist",
        pipe("p.py"),
    ),
    Case(
        "report: a pipe for an output",
        ["report", "run", "--output", "p"],
        r"p is not a regular file: choose another --output",
        beside(Place.copy_run, pipe("p")),
    ),
    Case(
        "predict: a pipe for an output",
        ["predict", "run", "a text", "--output", "p.csv"],
        r"p.csv is not a regular file: choose another --output",
        beside(Place.copy_run, pipe("p.csv")),
    ),
    Case(
        "config: 3,000 tasks",
        train(),
        r"aux: Tuple should have at most 100 items",
        config("aux: [" + ", ".join(["random_mlm"] * 3000) + "]"),
    ),
    Case(
        "config: 3,000 plug-ins",
        train(),
        r"plugins: Tuple should have at most 100 items",
        config("plugins: [" + ", ".join(["p.py"] * 3000) + "]"),
    ),
    # ------------------------------------------------------------- two roles of one column
    *(
        Case(
            f"columns: {' '.join(names)}",
            columns(*names),
            rf"column '{names[1]}' is that of the .* and of the .*: name another one",
            writes("d/train.jsonl", GOOD),
        )
        for names in (
            ("--text-column", "label"),
            ("--text-pair-column", "text"),
            ("--text-pair-column", "label"),
            ("--label-column", "text"),
            ("--text-column", "body", "--label-column", "body"),
        )
    ),
    Case(
        "columns: the label as text in training",
        ["train", *DATA, *AS_TEXT],
        r"column 'label' is that of the text and of the label",
        trainable,
        leaves=("cache",),
    ),
    Case(
        "columns: the label as second text of a set",
        train(),
        r"column 'label' is that of the text-pair and of the label",
        beside(
            trainable,
            config("dataset: d\nencoder: encoder\nood: [{dataset: d, text_pair_column: label}]"),
        ),
    ),
    Case(
        "columns: the label as text in evaluation",
        ["evaluate", "run", "--dataset", "d", *AS_TEXT],
        r"column 'label' is that of the text and of the label",
        beside(Place.copy_run, trainable),
    ),
    Case(
        "columns: the label as text in pretraining",
        [*("pretrain", "--encoder", "tiny", "--dataset", "d", "--output", "o"), *AS_TEXT],
        r"column 'label' is that of the text and of the label",
        trainable,
    ),
]
