"""Bad command lines and folders of runs."""

from __future__ import annotations

from collections.abc import Callable

from tests.hardening.case import Case, Place
from tests.hardening.inputs import GOOD, MANY, folder, pipe, sparse_file, writes


def with_run(place: Place) -> object:
    """Beside a finished run."""
    return place.copy_run()


def beside_a_run(make: Callable[[Place], object]) -> Callable[[Place], object]:
    """Make something beside a finished run."""
    return lambda place: (with_run(place), make(place))


COMMANDS = [
    Case("unknown command", ["trian"], r"unknown command 'trian': did you mean 'train'\?"),
    Case(
        "unknown option",
        ["data", "check", "d", "--txt-column", "x"],
        r"unknown option '--txt-column'",
    ),
    Case("option without a value", ["train", "--seed"], r"--seed"),
    Case("text for a number", ["train", "--epochs", "ten"], r"'ten' is not a valid integer"),
    Case("a long value for a number", ["train", "--epochs", "9" * 5000], r"epochs"),
    Case("NaN for a rate", ["train", "--learning-rate", "nan"], r"learning_rate"),
    Case("infinity for a rate", ["train", "--learning-rate", "inf"], r"learning_rate"),
    Case("name of a set leads out", ["train", "--ood", "a/.."], r"plain name"),
    Case("a length of one token", ["data", "check", "d", "--max-length", "1"], r"max-length"),
    *(
        Case(
            f"no output: {command[0]}",
            [*command, "--output", ""],
            r"a path is needed, not an empty text",
            with_run,
        )
        for command in (
            ["evaluate", "run", "--dataset", "d"],
            ["predict", "run", "a"],
            ["ensemble", "run", "run"],
            ["compare", "run"],
            ["report", "run"],
            ["masks", "--encoder", "tiny"],
            ["perturbations", "run"],
            ["score", "--encoder", "tiny", "a"],
            ["pretrain", "--encoder", "tiny"],
            ["sweep", "s.yaml"],
        )
    ),
    Case(
        "no encoder",
        ["data", "check", "d", "--encoder", ""],
        r"a path is needed, not an empty text",
        writes("d/train.jsonl", MANY),
    ),
    Case(
        "evaluate: a path of no characters",
        ["evaluate", "run", "--dataset", ""],
        r"a path is needed, not an empty text|unknown data set ''",
        lambda place: (place.copy_run(), place.write("test.jsonl", GOOD)),
    ),
    Case(
        "train: a task with the name of the primary one",
        ["train", "--aux", "random_mlm:primary"],
        r"the name 'primary' is that of the primary task",
    ),
    Case("no run folder", ["predict", "", "a"], r"a path is needed, not an empty text"),
    Case("no data set", ["evaluate", "run"], r"missing option '--dataset'"),
    Case("no run", ["predict", "nowhere", "text"], r"there is no run folder nowhere"),
    Case("run: long path", ["predict", "r" * 5000, "text"], r"(File name too long)"),
    Case(
        "run: home of nobody",
        ["predict", "~nosuchuser/r", "text"],
        r"is not a path|no run folder|no home folder",
    ),
    Case(
        "predict: two sources", ["predict", "run", "a", "--file", "x"], r"both on the command line"
    ),
    Case("predict: empty text", ["predict", "run", " "], r"an empty text"),
    Case("predict: zero-width space", ["predict", "run", "\u200b"], r"an empty text"),
    Case(
        "predict: not UTF-8",
        ["predict", "run", "a\udcff"],
        r"the command line contains a text that is not UTF-8: a\\udcff",
    ),
    Case(
        "predict: a long text",
        ["predict", "run", "x" * 1_000_001],
        r"a text of 1,000,001 characters",
        with_run,
    ),
    Case(
        "predict: no input",
        ["predict", "run"],
        r"standard input contains no text",
        with_run,
        typed="",
    ),
    Case(
        "predict: input not UTF-8",
        ["predict", "run"],
        r"standard input:2: not UTF-8",
        with_run,
        typed=b"ok\ncaf\xe9\n",
    ),
    Case(
        "predict: JSON surrogate",
        ["predict", "run"],
        r"standard input:1: half of a surrogate pair",
        with_run,
        typed='{"text": "\\ud83d"}\n',
    ),
    Case(
        "predict: JSON without text",
        ["predict", "run"],
        r"standard input has no column 'text': its columns are label",
        with_run,
        typed='{"label": 1}\n',
    ),
    Case(
        "predict: JSON, then none",
        ["predict", "run"],
        r"standard input:2: not a JSON object",
        with_run,
        typed='{"text": "a"}\nb\n',
    ),
    Case(
        "predict: a JSON key twice",
        ["predict", "run"],
        r"standard input:2: the key 'text' occurs twice",
        with_run,
        typed='{"text": "a"}\n{"text": "b", "text": "c"}\n',
    ),
    Case(
        "predict: a JSON key twice in the first line",
        ["predict", "run", "--file", "f.txt"],
        r"f.txt:1: the key 'text' occurs twice",
        beside_a_run(writes("f.txt", '{"text": "b", "text": "c"}\n')),
    ),
    Case(
        "predict: deep JSON",
        ["predict", "run"],
        r"standard input:2: not a JSON object",
        with_run,
        typed='{"text": "a"}\n' + "[" * 20_000,
    ),
    Case(
        "predict: no file",
        ["predict", "run", "--file", "no.txt"],
        r"there is no file no.txt",
        with_run,
    ),
    Case(
        "predict: a folder for a file",
        ["predict", "run", "--file", "f"],
        r"is not a regular",
        beside_a_run(folder("f")),
    ),
    Case(
        "predict: a pipe for a file",
        ["predict", "run", "--file", "f"],
        r"is not a regular",
        beside_a_run(pipe("f")),
    ),
    Case(
        "predict: a large file",
        ["predict", "run", "--file", "f"],
        r"is too large",
        beside_a_run(sparse_file("f", 5 * 1024**3)),
    ),
    Case(
        "predict: no text column",
        ["predict", "run", "--file", "f.csv"],
        r"has no column 'text'",
        lambda place: (place.copy_run(), place.write("f.csv", "a\nb\n")),
    ),
    Case(
        "predict: corpus not UTF-8",
        ["predict", "run", "--file", "f.txt"],
        r"f.txt:1: not UTF-8",
        beside_a_run(writes("f.txt", b"\xff\n")),
    ),
    Case(
        "evaluate: no data",
        ["evaluate", "run", "--dataset", "./no"],
        r"no folder",
        lambda place: place.copy_run(),
    ),
    Case(
        "evaluate: no split",
        ["evaluate", "run", "--dataset", "d"],
        r"has no split 'test': its splits are",
        lambda place: (place.copy_run(), place.write("d/dev.jsonl", GOOD)),
    ),
    Case(
        "evaluate: other labels",
        ["evaluate", "run", "--dataset", "d"],
        r"no counterpart for",
        lambda place: (place.copy_run(), place.write("d/test.jsonl", GOOD)),
    ),
    Case(
        "evaluate: a long split",
        ["evaluate", "run", "--dataset", "d", "--split", "s" * 3000],
        r"has no split 'sss",
        lambda place: (place.copy_run(), place.write("d/test.jsonl", GOOD)),
    ),
    Case(
        "evaluate: home of nobody",
        ["evaluate", "run", "--dataset", "~nosuchuser"],
        r"is not a path|no home folder",
        lambda place: place.copy_run(),
    ),
    Case(
        "pretrain: no corpus",
        ["pretrain", "--encoder", "tiny", "--corpus", "no.txt", "--output", "o"],
        r"no.txt does not exist",
    ),
    Case(
        "pretrain: a pipe for a corpus",
        ["pretrain", "--encoder", "tiny", "--corpus", "f", "--output", "o"],
        r"is not a regular",
        pipe("f"),
    ),
    Case(
        "pretrain: corpus of nothing",
        ["pretrain", "--encoder", "tiny", "--corpus", "f", "--output", "o"],
        r"contains no text",
        writes("f", "\u200b\n \n"),
    ),
]

CASES: list[Case] = COMMANDS
