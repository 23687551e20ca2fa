"""Bad command lines and folders of runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from tests.hardening.case import Case, Place
from tests.hardening.inputs import GOOD, MANY, folder, pipe, sparse_file, writes


def with_run(place: Place) -> object:
    """Beside a finished run."""
    return place.copy_run()


def beside_a_run(make: Callable[[Place], object]) -> Callable[[Place], object]:
    """Make something beside a finished run."""
    return lambda place: (with_run(place), make(place))


#: By name: the command, the error line, and what makes the case.
COMMANDS: dict[str, tuple[Any, ...]] = {
    "unknown command": ("trian", r"unknown command 'trian': did you mean 'train'\?"),
    "unknown option": ("data check d --txt-column x", r"unknown option '--txt-column'"),
    "option without a value": ("train --seed", r"--seed"),
    "text for a number": ("train --epochs ten", r"'ten' is not a valid integer"),
    "a long value for a number": (["train", "--epochs", "9" * 5000], r"epochs"),
    "NaN for a rate": ("train --learning-rate nan", r"learning_rate"),
    "infinity for a rate": ("train --learning-rate inf", r"learning_rate"),
    "name of a set leads out": ("train --ood a/..", r"plain name"),
    "a length of one token": ("data check d --max-length 1", r"max_length"),
    "no encoder": (
        "data check d --encoder ''",
        r"a path is needed, not an empty text",
        writes("d/train.jsonl", MANY),
    ),
    "evaluate: a path of no characters": (
        "evaluate run --dataset ''",
        r"a path is needed, not an empty text|unknown data set ''",
        beside_a_run(writes("test.jsonl", GOOD)),
    ),
    "train: a task with the name of the primary one": (
        "train --aux random_mlm:primary",
        r"the name 'primary' is that of the primary task",
    ),
    "no run folder": ("predict '' a", r"a path is needed, not an empty text"),
    "no data set": ("evaluate run", r"missing option '--dataset'"),
    "no run": ("predict nowhere text", r"there is no run folder nowhere"),
    "run: long path": (["predict", "r" * 5000, "text"], r"(File name too long)"),
    "run: home of nobody": (
        "predict '~nosuchuser/r' text",
        r"is not a path|no run folder|no home folder",
    ),
    "predict: two sources": ("predict run a --file x", r"both on the command line"),
    "predict: empty text": ("predict run ' '", r"an empty text"),
    "predict: zero-width space": (["predict", "run", "\u200b"], r"an empty text"),
    "predict: not UTF-8": (
        ["predict", "run", "a\udcff"],
        r"the command line contains a text that is not UTF-8: a\\udcff",
    ),
    "predict: a long text": (
        ["predict", "run", "x" * 1_000_001],
        r"a text of 1,000,001 characters",
        with_run,
    ),
    "predict: a JSON key twice in the first line": (
        "predict run --file f.txt",
        r"f.txt:1: the key 'text' occurs twice",
        beside_a_run(writes("f.txt", '{"text": "b", "text": "c"}\n')),
    ),
    "predict: no file": ("predict run --file no.txt", r"there is no file no.txt", with_run),
    "predict: a folder for a file": (
        "predict run --file f",
        r"is not a regular",
        beside_a_run(folder("f")),
    ),
    "predict: a pipe for a file": (
        "predict run --file f",
        r"is not a regular",
        beside_a_run(pipe("f")),
    ),
    "predict: a large file": (
        "predict run --file f",
        r"is too large",
        beside_a_run(sparse_file("f", 5 * 1024**3)),
    ),
    "predict: no text column": (
        "predict run --file f.csv",
        r"has no column 'text'",
        beside_a_run(writes("f.csv", "a\nb\n")),
    ),
    "predict: corpus not UTF-8": (
        "predict run --file f.txt",
        r"f.txt:1: not UTF-8",
        beside_a_run(writes("f.txt", b"\xff\n")),
    ),
    "evaluate: no data": ("evaluate run --dataset ./no", r"no folder", with_run),
    "evaluate: no split": (
        "evaluate run --dataset d",
        r"has no split 'test': its splits are",
        beside_a_run(writes("d/dev.jsonl", GOOD)),
    ),
    "evaluate: other labels": (
        "evaluate run --dataset d",
        r"no counterpart for",
        beside_a_run(writes("d/test.jsonl", GOOD)),
    ),
    "evaluate: a long split": (
        ["evaluate", "run", "--dataset", "d", "--split", "s" * 3000],
        r"has no split 'sss",
        beside_a_run(writes("d/test.jsonl", GOOD)),
    ),
    "evaluate: home of nobody": (
        "evaluate run --dataset '~nosuchuser'",
        r"is not a path|no home folder",
        with_run,
    ),
    "evaluate: no column of second texts": (
        "evaluate run --dataset d --text-pair-column text_pair",
        r"has no text pair column 'text_pair'",
        beside_a_run(writes("d/test.jsonl", GOOD)),
    ),
    "score: a column of lines": (
        "score --encoder tiny --file f.txt --text-column body",
        r"f.txt has a text per line and no column 'body': leave --text-column out",
        writes("f.txt", "a\n"),
    ),
    "pretrain: a column of lines": (
        "pretrain --encoder tiny --corpus f.txt --text-column body --output o",
        r"f.txt has a text per line and no column 'body': leave --text-column out",
        writes("f.txt", "a\nb\n"),
    ),
    "pretrain: another column": (
        "pretrain --encoder tiny --corpus f.csv --text-column body --output o",
        r"f.csv has no column 'body' \(it has text\)",
        writes("f.csv", "text\na\nb\n"),
    ),
    "pretrain: labels of a corpus": (
        "pretrain --encoder tiny --corpus f.txt --label-column label --output o",
        r"a corpus has texts alone: leave --text-pair-column and --label-column out",
        writes("f.txt", "a\nb\n"),
    ),
    "pretrain: no corpus": (
        "pretrain --encoder tiny --corpus no.txt --output o",
        r"no.txt does not exist",
    ),
    "pretrain: a pipe for a corpus": (
        "pretrain --encoder tiny --corpus f --output o",
        r"is not a regular",
        pipe("f"),
    ),
    "predict: a document in JSON": (
        "predict run --file f.json",
        r"one object on each line and the suffix .jsonl",
        beside_a_run(writes("f.json", '[{"text": "a"}]')),
    ),
    "pretrain: corpus of nothing": (
        "pretrain --encoder tiny --corpus f --output o",
        r"contains no text",
        writes("f", "\u200b\n \n"),
    ),
}

#: Options that have an effect beside another one alone.
ALONE = {
    "train --max-windows 3": r"max_windows: .* no effect without text_window windows: add that",
    "train --text-window head --window-stride 3": r"window_stride: it has no effect without",
    "masks --window-stride 3 --encoder tiny": r"window_stride: it has no effect without",
    "train --lora-alpha 8": r"lora_alpha: it has no effect without lora_rank: add that, or leave",
    "train --perturbed-share 0.2": r"perturbed_share: it has no effect without perturbed_text",
    "train --final-patience 1": r"final_patience: it has no effect without final_epochs",
    "sweep s.yaml --gpus 1": r"gpus: the executor 'local' has no such option: .* ray or slurm",
    "sweep s.yaml --dry-run --slurm-partition a": r"slurm_partition: the executor 'local' has no",
    "sweep s.yaml --executor ray --slurm-minutes 5": r"slurm_minutes: the executor 'ray' has no",
    "sweep s.yaml --executor slurm --ray-address auto": r"or choose --executor ray",
}

#: By name: the error line, and what ``predict`` is given as standard input.
TYPED: dict[str, tuple[str, str | bytes]] = {
    "no input": (r"standard input contains no text", ""),
    "input not UTF-8": (r"standard input:2: not UTF-8", b"ok\ncaf\xe9\n"),
    "JSON surrogate": (r"standard input:1: half of a surrogate pair", '{"text": "\\ud83d"}\n'),
    "JSON without text": (
        r"standard input has no column 'text': its columns are label",
        '{"label": 1}\n',
    ),
    "JSON, then none": (r"standard input:2: not a JSON object", '{"text": "a"}\nb\n'),
    "a JSON key twice": (
        r"standard input:2: the key 'text' occurs twice",
        '{"text": "a"}\n{"text": "b", "text": "c"}\n',
    ),
    "deep JSON": (r"standard input:2: not a JSON object", '{"text": "a"}\n' + "[" * 20_000),
}

CASES: list[Case] = [
    *(
        Case(name, shlex.split(command) if isinstance(command, str) else command, *more)
        for name, (command, *more) in COMMANDS.items()
    ),
    *(
        Case(f"no effect: {command}", command.split(), line, writes("s.yaml", "name: s\n"))
        for command, line in ALONE.items()
    ),
    *(
        Case(f"predict: {name}", ("predict", "run"), line, with_run, typed=given)
        for name, (line, given) in TYPED.items()
    ),
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
]
