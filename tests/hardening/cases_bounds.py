"""Inputs that would take all memory, or wait for ever."""

from __future__ import annotations

from collections.abc import Callable

from tests.hardening.case import Case, Place, cases
from tests.hardening.cases_encoders import encoders, setting
from tests.hardening.inputs import (
    CHECK,
    GOOD,
    MANY,
    SWEEP,
    config,
    parquet,
    pipe,
    sweep,
    train,
    writes,
)

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
    *cases(
        "parquet",
        CHECK,
        {
            "a text 6,000 times": (r"more than 4,294,967,296 bytes", repeated_texts),
            "a text in lists": (r"more than 4,294,967,296 bytes", repeated_in_lists),
            "a billion nulls": (r"more than 4,294,967,296 bytes", nothing_repeated),
        },
    ),
    *encoders(
        {
            "a billion labels": (r"num_labels is 1000000000: at most", setting(num_labels=10**9)),
            "a billion labels inside": (
                r"num_labels is 1000000000",
                setting(text_config={"num_labels": 10**9}),
            ),
        }
    ),
    *cases(
        "config",
        train(),
        {
            "3,000 tasks": (
                r"aux: Tuple should have at most 100 items",
                "aux: [" + ", ".join(["random_mlm"] * 3000) + "]",
            ),
            "3,000 plug-ins": (
                r"plugins: Tuple should have at most 100 items",
                "plugins: [" + ", ".join(["p.py"] * 3000) + "]",
            ),
            "100,001 values": (
                r"it or its aliases stand for more than 100,000 values",
                "report_to: [" + ",".join("a" * 100_001) + "]",
            ),
        },
        config,
    ),
    *cases(
        "sweep",
        SWEEP,
        {
            "a search of nothing": (
                r"search.space.epochs has no values",
                "name: a\nsearch: {space: {epochs: []}}",
            ),
            "an axis twice": (
                r"'epochs' is an axis of both",
                "name: a\ngrid: {epochs: [1]}\nsearch: {space: {epochs: [2]}}",
            ),
            "unknown published results": (
                r"published: there are no published results 'nope': known: l3masking_table3",
                "name: a\npublished: nope",
            ),
            "nothing to exclude": (
                r"exclude: epochs has no value '7': known: 1, 2",
                "name: a\ngrid: {epochs: [1, 2]}\nexclude: [{epochs: 7}]",
            ),
            "three unknown axes": (
                r"unknown setting 'nosuch0': see `auxlearn train --help`",
                "name: a\ngrid: {nosuch0: [1], nosuch1: [1], nosuch2: [1]}",
            ),
        },
        sweep,
    ),
    *(
        Case(
            f"sweep: no such axis in {where}",
            SWEEP,
            r"'runs/\{zz\}': no axis 'zz' has a label to put there: known: aux",
            sweep(f"name: a\n{more}"),
        )
        for where, more in {
            "base": "base: {init_from: 'runs/{zz}'}\ngrid: {aux: [[], l3mask]}",
            "grid": "grid: {aux: [{random_mlm: {corpus: 'runs/{zz}'}}]}",
            "a search": "grid: {aux: [[]]}\nbase: {init_from: 'runs/{zz}'}\n"
            "search: {space: {epochs: [1]}}",
        }.items()
    ),
    *(
        Case(
            f"sweep: {what} that cannot be used",
            ["sweep", "s.yaml", *more],
            line,
            beside(trainable, sweep(f"name: a\nseeds: 2\nbase: {{{settings}}}")),
        )
        for what, settings, more, line in (
            ("a data set", "dataset: nowhere/d, encoder: encoder", (), r"no folder 'nowhere/d'"),
            ("a column", "dataset: d, text_column: txt", (), r"no text column 'txt'"),
            ("a further set", "dataset: d, ood: [nowhere/d]", (), r"no folder 'nowhere/d'"),
            ("an encoder", "dataset: d, encoder: ./nowhere", (), r"./nowhere does not exist"),
            ("a cache", "dataset: d", ("--cache-dir", "s.yaml/c"), r"cannot write to s.yaml/c"),
        )
    ),
    *(
        Case(
            f"columns: {' '.join(names)}",
            columns(*names),
            rf"column '{names[1]}' is that of the .* and of the .*: name another one",
            writes("d/train.jsonl", GOOD),
        )
        for names in (
            ("--text-column", "label"),
            ("--text-column", "text_pair"),
            ("--text-pair-column", "text"),
            ("--text-pair-column", "label"),
            ("--label-column", "text"),
            ("--text-column", "body", "--label-column", "body"),
        )
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
    Case("train: 400 digits", ["train", "--epochs", "9" * 400], r"epochs: .*at most 18 digits"),
    Case("train: 31 digits", ["train", "--batch-size", "9" * 31], r"batch_size: .*18 digits"),
    Case("train: a huge rank", ["train", "--lora-rank", "100000000"], r"lora_rank: .*1024"),
    Case("train: NUL in the cache", ["train", "--cache-dir", "a\0b"], r"no null character"),
    Case("train: no output", ["train", "--output", ""], r"output: a path is needed"),
    Case(
        "train: NUL in a bias",
        ["train", "--loss", "poe", "--poe-bias", "a\0.csv"],
        r"bias: a path has no null character",
    ),
    Case(
        "score: an unknown word", ["score", "--encoder", "tiny", "\u6f22\u5b57"], r"knows no word"
    ),
    Case("score: a long word", ["score", "--encoder", "tiny", "q" * 101], r"knows no word"),
    Case("score: not UTF-8", ["score", "--encoder", "tiny", "a\udcff"], r"surrogate"),
    Case("score: a text and a file", ["score", "--encoder", "tiny", "a", "--file", "x"], r"twice"),
    Case("score: a long text", ["score", "--encoder", "tiny", "x" * 1_000_001], r"1,000,001"),
    Case(
        "score: 23 digits",
        ["score", "--encoder", "tiny", "a", "--passes", "9" * 23],
        r"passes: .*at most 18 digits",
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
            config(
                "dataset: d\nencoder: encoder\n"
                "ood: [{dataset: d, split: train, text_pair_column: label}]"
            ),
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
