"""``python -m benchmarks.long_texts``: how long texts are read, compared over draws.

Every draw takes other training and dev examples of a data set of long texts; the test examples are
the same. Each way to read them is trained on each draw with the same settings. What has results is
not trained again, so that the benchmark runs in slices.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from auxlearn import train
from auxlearn.core.errors import UserError
from auxlearn.data.load import load_dataset
from auxlearn.results.folder import RunFolder
from auxlearn.results.record import RunResults
from benchmarks.horizon.bed import write_split
from benchmarks.tables import mean_and_error, table

#: Settings of each way to read long texts; the first is what the others are compared with.
WAYS: dict[str, Mapping[str, Any]] = {
    "head": {"text_window": "head"},
    "head+tail": {"text_window": "head+tail"},
    "windows, mean": {"text_window": "windows"},
    "windows, max": {"text_window": "windows", "window_pooling": "max"},
}


def main() -> int:
    """Train what has no results, and print the table; exit code 2 for bad input."""
    options = read_options()
    torch.set_num_threads(options.threads)
    try:
        found = [measure(options, draw) for draw in options.draws]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report(options, found))
    return 0


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True, help="folder of a data set of long texts")
    parser.add_argument("--output", type=Path, required=True, help="folder of data and runs")
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--train", type=int, default=300, help="training examples of a draw")
    parser.add_argument("--dev", type=int, default=100, help="dev examples of a draw")
    parser.add_argument("--test", type=int, default=500, help="test examples, the same in all")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--draws", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def measure(options: argparse.Namespace, draw: int) -> dict[str, RunResults]:
    """Return the results of every way on a draw."""
    data = write_draw(options, draw)
    found = {}
    for way, settings in WAYS.items():
        folder = options.output / "runs" / str(draw) / way.replace(", ", "-")
        finished = RunFolder(folder).finished
        found[way] = train(
            dataset=str(data),
            encoder=options.encoder,
            max_length=options.max_length,
            epochs=options.epochs,
            seed=draw,
            keep_model=False,
            output=folder,
            cache_dir=options.output / "cache",
            verbose=False,
            **settings,
        )
        if not finished:
            print(f"draw {draw}, {way}: {accuracy(found[way]):.1f}", file=sys.stderr, flush=True)
    return found


def write_draw(options: argparse.Namespace, draw: int) -> Path:
    """Write train, dev and test of a draw as a data set."""
    folder: Path = options.output / "data" / str(draw)
    dataset = load_dataset(options.dataset)
    pool, test = dataset.splits["train"], dataset.splits["test"]
    order = list(range(len(pool)))
    random.Random(draw).shuffle(order)
    parts = {
        "train": (pool, order[: options.train]),
        "dev": (pool, order[options.train : options.train + options.dev]),
        "test": (test, list(range(min(options.test, len(test))))),
    }
    for name, (split, rows) in parts.items():
        write_split(folder / f"{name}.jsonl", split.select(rows))
    return folder


def accuracy(results: RunResults) -> float:
    """Return the test accuracy of a run, in percent."""
    return 100 * results.evaluations["test"].all.accuracy


def report(options: argparse.Namespace, found: Sequence[Mapping[str, RunResults]]) -> str:
    """Return the table: accuracies, differences of each draw, log loss and time of training."""
    first = next(iter(WAYS))
    rows = []
    for way in WAYS:
        scores = [accuracy(one[way]) for one in found]
        gains = [accuracy(one[way]) - accuracy(one[first]) for one in found]
        seconds = [one[way].seconds["training"] / one[first].seconds["training"] for one in found]
        rows.append(
            [
                way,
                f"{fmean(scores):.1f}",
                "" if way == first else mean_and_error(gains),
                f"{fmean(one[way].evaluations['test'].loss for one in found):.3f}",
                f"{fmean(one[way].steps for one in found):.0f}",
                f"{fmean(seconds):.1f}",
            ]
        )
    title = f"{options.encoder}, {len(found)} draws of {options.train} texts of {options.dataset}"
    heads = ["reading", "test accuracy", f"minus {first}", "log loss", "steps", "time"]
    return "\n".join([title, "", table(heads, rows)])


if __name__ == "__main__":
    sys.exit(main())
