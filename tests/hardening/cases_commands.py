"""Bad command lines, files beside a run, and columns."""

from __future__ import annotations

import shlex
from typing import Any

from tests.hardening.inputs import (
    CHECK,
    GOOD,
    MANY,
    Case,
    Make,
    Place,
    cases,
    folder,
    of_encoder,
    parquet,
    pipe,
    sparse_file,
    together,
    writes,
)

run = Place.copy_run
trainable = of_encoder(lambda model: None)


def beside_a_run(make: Make) -> Make:
    return together(run, make)


def nulls(place: Place) -> None:
    import pyarrow

    parquet(text=pyarrow.nulls(10**9))(place)


MEMORY: dict[str, Any] = {
    "a billion nulls": (r"more than 4,294,967,296 bytes", nulls),
}
TRAIN = "train --dataset d --encoder encoder --cache-dir cache"
SCORE, PRETRAIN = "score --encoder tiny", "pretrain --encoder tiny --output o"
A_PATH = r"a path is needed, not an empty text"
TEST = beside_a_run(writes("d/test.jsonl", GOOD))
SAME = r"column 'label' is that of the text and of the label"

#: By name: the command, the error line, and what makes the case.
COMMANDS: dict[str, tuple[Any, ...]] = {
    "report: a file": ("report f", r"there is no folder f: check the path", writes("f", "a\n")),
    "masks: an option of train": (
        "masks --aux random_mlm --epochs 1",
        r"unknown option '--epochs': (see|did you mean '--(?!epochs))",
    ),
    "unknown command": ("trian", r"unknown command 'trian': did you mean 'train'\?"),
    "unknown option": ("data check d --txt-column x", r"unknown option '--txt-column'"),
    "option without a value": ("train --seed", r"--seed"),
    "text for a number": ("train --epochs ten", r"'ten' is not a valid integer"),
    "5,000 digits": (f"train --epochs {'9' * 5000}", r"epochs"),
    "400 digits": (f"train --epochs {'9' * 400}", r"epochs: .*at most 18 digits"),
    "31 digits": (f"train --batch-size {'9' * 31}", r"batch_size: .*18 digits"),
    "a huge rank": ("train --lora-rank 100000000", r"lora_rank: .*1024"),
    "NaN for a rate": ("train --learning-rate nan", r"learning_rate"),
    "infinity for a rate": ("train --learning-rate inf", r"learning_rate"),
    "name of a set leads out": ("train --ood a/..", r"plain name"),
    "a length of one token": ("data check d --max-length 1", r"max_length"),
    "no encoder": ("data check d --encoder ''", A_PATH, writes("d/train.jsonl", MANY)),
    "train: a task with the name of the primary one": (
        "train --aux random_mlm:primary",
        r"the name 'primary' is that of the primary task",
    ),
    "train: NUL in the cache": ("train --cache-dir a\0b", r"no null character"),
    "train: no output": ("train --output ''", r"output: a path is needed"),
    "train: NUL in a bias": ("train --loss poe --poe-bias a\0.csv", r"path has no null character"),
    "train: a pipe for probabilities": (
        f"{TRAIN} --loss poe --poe-bias p.csv",
        r"p.csv .*not a regular file",
        together(trainable, pipe("p.csv")),
    ),
    "train: a pipe for a plug-in": ("train --plugin p.py", r"p.py is no file", pipe("p.py")),
    "train: the label as text": (f"{TRAIN} --text-column label", SAME, trainable),
    "no run folder": ("predict '' a", A_PATH),
    "masks: no run folder": ("masks ''", A_PATH),
    "masks: a corpus of no name": (
        "masks --dataset d --encoder tiny --aux random_mlm --corpus ''",
        A_PATH,
        writes("d/train.jsonl", MANY),
    ),
    "pretrain: a corpus of no name": (f"{PRETRAIN} --corpus ''", A_PATH),
    "no data set": ("evaluate run", r"missing option '--dataset'"),
    "no run": ("predict nowhere text", r"there is no run folder nowhere"),
    "run: long path": (f"predict {'r' * 5000} text", r"(File name too long)"),
    "run: home of nobody": ("predict '~nosuchuser/r' a", r"is not a path|no run|no home folder"),
    "predict: two sources": ("predict run a --file x", r"both on the command line"),
    "predict: empty text": ("predict run ' '", r"an empty text"),
    "predict: zero-width space": ("predict run \u200b", r"an empty text"),
    "predict: not UTF-8": ("predict run a\udcff", r"contains a text that is not UTF-8: a\\udcff"),
    "predict: a long text": (f"predict run {'x' * 1_000_001}", r"a text of 1,000,001 char", run),
    "predict: a JSON key twice in the first line": (
        "predict run --file f.txt",
        r"f.txt:1: bad JSON .the key 'text' occurs twice",
        beside_a_run(writes("f.txt", '{"text": "b", "text": "c"}\n')),
    ),
    "evaluate: a table for scores": (
        "evaluate run --dataset d --output x.csv",
        r"'x.csv' names no format: end it with .json$",
        run,
    ),
    "report: another format": (
        "report run --output x.pdf",
        r"'x.pdf' names no format: end it with .html, .htm$",
        run,
    ),
    "train: an option twice": (
        "train --aux random_mlm --alpha 0.3 --fixed-alpha 0.4",
        r"option '--fixed-alpha' is given twice: leave one of them out",
    ),
    "train: a file of no name": ("train --config ''", r"'--config': a path is needed"),
    "sweep: a metric of another kind": (
        "sweep s.yaml",
        r"metric: mae is not of classification: choose accuracy",
        together(
            writes("d/train.jsonl", MANY),
            writes("s.yaml", "name: s\nbase: {dataset: d, metric: mae}\n"),
        ),
    ),
    "sweep: a dry run into the folder of a run": (
        "sweep s.yaml --dry-run --output run",
        r"run is the folder of a run: choose another --output",
        beside_a_run(writes("s.yaml", "name: s\nbase: {dataset: d}\n")),
    ),
    "score: a missing text in lines of JSON": (
        "score --encoder tiny --file f.txt",
        r"f.txt:2: empty text in column 'text'",
        writes("f.txt", '{"text": "a"}\n{"text": null}\n'),
    ),
    "score: a missing text in a table": (
        "score --encoder tiny --file f.csv",
        r"f.csv:3: empty text in column 'text'",
        writes("f.csv", "text,n\na,1\n,2\n"),
    ),
    "pretrain: a number for a text": (
        "pretrain --encoder tiny --corpus f.txt --output o",
        r"f.txt:3: 5 is no text \(column 'text'\)",
        writes("f.txt", '{"text": "a"}\n{"text": null}\n{"text": 5}\n'),
    ),
    "pretrain: a corpus of tagged words": (
        "pretrain --encoder tiny --corpus f.conll --output o",
        r"f.conll has no text column 'text': its columns are tokens, tags",
        writes("f.conll", "a O\nb O\n"),
    ),
    "predict: no file": ("predict run --file no.txt", r"there is no file no.txt", run),
    "predict: a folder": ("predict run --file f", r"not a regular", beside_a_run(folder("f"))),
    "predict: a pipe": ("predict run --file f", r"not a regular", beside_a_run(pipe("f"))),
    "predict: a large file": (
        "predict run --file f",
        r"is too large",
        beside_a_run(sparse_file("f", 5 * 1024**3)),
    ),
    "predict: no text column": (
        "predict run --file f.csv",
        r"has no text column 'text'",
        beside_a_run(writes("f.csv", "a\nb\n")),
    ),
    "predict: corpus not UTF-8": (
        "predict run --file f.txt",
        r"f.txt:1: not UTF-8",
        beside_a_run(writes("f.txt", b"\xff\n")),
    ),
    "predict: a document in JSON": (
        "predict run --file f.json",
        r"one object on each line and the suffix .jsonl",
        beside_a_run(writes("f.json", '[{"text": "a"}]')),
    ),
    "compare: a metric twice": (
        "compare run --metric accuracy --metric accuracy",
        r"metric accuracy is given twice: leave one of them out",
        run,
    ),
    "compare: a set twice": (
        "compare run --set test --set test",
        r"set test is given twice: leave one of them out",
        run,
    ),
    "predict: a spreadsheet": (
        "predict run --file f.XLSX",
        r"f.XLSX: a spreadsheet cannot be read: save it as .csv",
        beside_a_run(writes("f.XLSX", "text")),
    ),
    "score: a compressed file": (
        f"{SCORE} --file f.csv.gz",
        r"f.csv.gz: a packed file cannot be read: unpack it",
        writes("f.csv.gz", b"\x1f\x8b\x08"),
    ),
    "predict: a pipe for an output": (
        "predict run a --output p.csv",
        r"p.csv is not a regular file: choose another --output",
        beside_a_run(pipe("p.csv")),
    ),
    "report: a pipe for an output": (
        "report run --output p",
        r"p is not a regular file: choose another --output",
        beside_a_run(pipe("p")),
    ),
    "evaluate: a path of no characters": (
        "evaluate run --dataset ''",
        r"a path is needed, not an empty text|unknown data set ''",
        beside_a_run(writes("test.jsonl", GOOD)),
    ),
    "evaluate: no run": ("evaluate nowhere --dataset d", r"there is no run folder nowhere: check"),
    "evaluate: no data": ("evaluate run --dataset ./no", r"no folder", run),
    "evaluate: no split": (
        "evaluate run --dataset d",
        r"has no split 'test': its splits are",
        beside_a_run(writes("d/dev.jsonl", GOOD)),
    ),
    "evaluate: other labels": (
        "evaluate run --dataset d",
        r"'d' has the labels bad, good, the model knows no, yes: no counterpart for",
        TEST,
    ),
    "evaluate: a long split": (
        f"evaluate run --dataset d --split {'s' * 3000}",
        r"has no split 'sss",
        TEST,
    ),
    "evaluate: home of nobody": (
        "evaluate run --dataset '~nosuchuser'",
        r"is not a path|no home folder",
        run,
    ),
    "evaluate: no column of second texts": (
        "evaluate run --dataset d --text-pair-column text_pair",
        r"has no text pair column 'text_pair'",
        TEST,
    ),
    "evaluate: the label as text": (
        "evaluate run --dataset d --text-column label",
        SAME,
        together(run, trainable),
    ),
    "score: an unknown word": (f"{SCORE} \u6f22\u5b57", r"knows no word"),
    "score: a long word": (f"{SCORE} {'q' * 101}", r"knows no word"),
    "score: not UTF-8": (f"{SCORE} a\udcff", r"surrogate"),
    "score: a text and a file": (f"{SCORE} a --file x", r"twice"),
    "score: a long text": (f"{SCORE} {'x' * 1_000_001}", r"1,000,001"),
    "score: 23 digits": (f"{SCORE} a --passes {'9' * 23}", r"passes: .*at most 18 digits"),
    "score: a column of lines": (
        f"{SCORE} --file f.txt --text-column body",
        r"f.txt has a text per line and no column 'body': leave --text-column out",
        writes("f.txt", "a\n"),
    ),
    "pretrain: a column of lines": (
        f"{PRETRAIN} --corpus f.txt --text-column body",
        r"f.txt has a text per line and no column 'body': leave --text-column out",
        writes("f.txt", "a\nb\n"),
    ),
    "pretrain: another column": (
        f"{PRETRAIN} --corpus f.csv --text-column body",
        r"f.csv has no text column 'body': its columns are text",
        writes("f.csv", "text\na\nb\n"),
    ),
    "pretrain: labels of a corpus": (
        f"{PRETRAIN} --corpus f.txt --label-column label",
        r"a corpus has texts alone: leave --text-pair-column and --label-column out",
        writes("f.txt", "a\nb\n"),
    ),
    "pretrain: the label as text": (f"{PRETRAIN} --dataset d --text-column label", SAME, trainable),
    "pretrain: no corpus": (f"{PRETRAIN} --corpus no.txt", r"no.txt does not exist"),
    "pretrain: a pipe for a corpus": (f"{PRETRAIN} --corpus f", r"is not a regular", pipe("f")),
    "pretrain: corpus of nothing": (
        f"{PRETRAIN} --corpus f",
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
        r"standard input has no text column 'text': its columns are label",
        '{"label": 1}\n',
    ),
    "JSON, then none": (r"standard input:2: bad JSON", '{"text": "a"}\nb\n'),
    "a JSON key twice": (
        r"standard input:2: bad JSON .the key 'text' occurs twice",
        '{"text": "a"}\n{"text": "b", "text": "c"}\n',
    ),
    "rows without text": (r"input:2: empty text .*and 1 more", '\n{"text": " "}\n{"text": null}\n'),
    "a number for a second text": (
        r"input:1: column 'text_pair' must hold text, but this is 3",
        '{"text": "a", "text_pair": 3}\n',
    ),
    "rows without their second texts": (
        r"input:1: empty text in column 'text_pair'",
        '{"text": "a", "text_pair": ""}\n{"text": "a"}\n',
    ),
    "deep JSON": (r"standard input:2: bad JSON", '{"text": "a"}\n' + "[" * 20_000),
}

#: Options that name a column of another kind.
COLUMNS = (
    "--text-column label",
    "--text-column text_pair",
    "--text-pair-column text",
    "--text-pair-column label",
    "--label-column text",
    "--text-column body --label-column body",
)
#: Commands that write a file or folder.
WRITING = (
    "evaluate run --dataset d",
    "predict run a",
    "ensemble run run",
    "compare run",
    "report run",
    "masks --encoder tiny",
    "perturbations run",
    "score --encoder tiny a",
    "pretrain --encoder tiny",
    "sweep s.yaml",
)

CASES: list[Case] = [
    *(
        Case(
            name,
            shlex.split(command) if "'" in command else command.split(" "),
            *more,
            leaves=("cache",) if "--cache-dir cache" in command else (),
        )
        for name, (command, *more) in COMMANDS.items()
    ),
    *cases("parquet", CHECK, MEMORY),
    *(
        Case(f"no effect: {command}", command.split(), line, writes("s.yaml", "name: s\n"))
        for command, line in ALONE.items()
    ),
    *(
        Case(f"predict: {name}", ("predict", "run"), line, run, typed=given)
        for name, (line, given) in TYPED.items()
    ),
    *(
        Case(f"no output: {command}", [*command.split(), "--output", ""], A_PATH, run)
        for command in WRITING
    ),
    *(
        Case(
            f"columns: {names}",
            (*CHECK, *names.split()),
            rf"column '{names.split()[1]}' is that of the .* and of the .*: name another one",
            writes("d/train.jsonl", GOOD),
        )
        for names in COLUMNS
    ),
]
