"""The space of objectives beside single tasks and restarts, on draws of one setting of the horizon.

Trains what has no record yet (``--minutes`` bounds it), and prints the table of
``docs/results/space.md``; single task, its restarts and ``random_mlm`` are those of
``benchmarks/results/horizon.jsonl``::

    python -m benchmarks.space --output runs/space --draws 0 1 2 3 4
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from auxlearn import RunConfig, train
from auxlearn.core.files import write_text
from auxlearn.results.tables import markdown_table
from benchmarks.common import RESULTS
from benchmarks.horizon.bed import SETTINGS, write_draw

SETTING = SETTINGS[0]
FIXED = {"fixed": {"alpha": 0.3, "mix": "steps"}}
#: Task, its options beside the corpus, and the weighting.
VARIANTS: dict[str, tuple[str, Mapping[str, Any], Any]] = {
    "`l3mask`, share 0.3": ("l3mask", {}, FIXED),
    "`space`, n = 3, `aang`": ("space", {"per_step": 3}, "aang"),
    "`space`, n = 6, `aang`": ("space", {"per_step": 6}, "aang"),
    "`space`, n = 3, share 0.3": ("space", {"per_step": 3}, FIXED),
    "`space`, n = 6, share 0.3": ("space", {"per_step": 6}, FIXED),
}
#: What tables call the records of the horizon.
KNOWN = {
    "steps 0.1": "`random_mlm`, share 0.1",
    "steps 0.3": "`random_mlm`, share 0.3",
    "steps 0.5": "`random_mlm`, share 0.5",
}


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/space"), metavar="DIR")
    parser.add_argument("--results", type=Path, default=RESULTS / "space.jsonl", metavar="FILE")
    parser.add_argument("--draws", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", default="", metavar="TEXT", help="variants whose name has it")
    parser.add_argument("--minutes", type=float, help="begin no further run after this time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    end = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    records = read(options.results)
    done = {(one["draw"], one["variant"]) for one in records}
    for draw in options.draws:
        folder = options.output / "data" / str(draw)
        for name in (one for one in VARIANTS if options.only in one):
            if (draw, name) in done or (end is not None and time.monotonic() > end):
                continue
            write_draw(SETTING, draw, None, folder)
            records.append(trained(draw, name, folder, options.output))
            write_text(options.results, "".join(json.dumps(one) + "\n" for one in records))
            print(records[-1], flush=True)
    print(table(records + horizon(), options.draws))


def read(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file, if it exists."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def trained(draw: int, name: str, folder: Path, output: Path) -> dict[str, Any]:
    """Train one run as `benchmarks.horizon` does, and return its record."""
    task, given, weights = VARIANTS[name]
    config = RunConfig(
        dataset=str(folder),
        encoder="tiny",
        aux=({task: {**given, "corpus": str(folder / "unlabelled" / "corpus.jsonl")}},),
        weights=weights,
        seed=draw,
        epochs=10,
        batch_size=16,
        max_length=64,
        eval_steps=-(-SETTING.train // 16),
        patience=0,
        keep_model=False,
        device="cpu",
        cache_dir=str(output / "cache"),
        output=str(output / "runs" / f"{draw}-{list(VARIANTS).index(name)}"),
    )
    found = train(config)
    return {
        "draw": draw,
        "variant": name,
        "dev": found.evaluations["dev"].all.accuracy,
        "test": found.evaluations["test"].all.accuracy,
        "seconds": round(found.seconds["training"], 1),
        "weights": found.weights,
        "factors": found.factors,
    }


def horizon() -> list[dict[str, Any]]:
    """Return the records of single task and ``random_mlm``, and restarts chosen on dev."""
    rows = [one for one in read(RESULTS / "horizon.jsonl") if one["setting"] == SETTING.name]
    found: dict[tuple[int, str], dict[str, Any]] = {
        (one["draw"], one["variant"]): {
            "draw": one["draw"],
            "variant": KNOWN.get(one["variant"], one["variant"]),
            "dev": one["dev"]["best"],
            "test": one["test"]["best"],
            "seconds": one["seconds"],
        }
        for one in rows
        if one["encoder"] == "tiny"
    }
    every = list(found.values())
    for draw in {one["draw"] for one in every}:
        for count in (3, 5):
            runs = [found.get((draw, f"single {number}")) for number in range(count)]
            if all(runs):
                best = max((run for run in runs if run), key=lambda run: run["dev"])
                seconds = sum(run["seconds"] for run in runs if run)
                name = f"best of {count} restarts"
                every.append({**best, "variant": name, "seconds": seconds})
    return every


def table(records: Sequence[Mapping[str, Any]], draws: Sequence[int]) -> str:
    """Return test accuracy minus that of the single task, in points with standard errors."""
    by = {(one["draw"], one["variant"]): one for one in records}
    names = [*KNOWN.values(), *VARIANTS, "best of 3 restarts", "best of 5 restarts"]
    rows = []
    for name in names:
        pairs = [
            (by[draw, "single 0"], by[draw, name])
            for draw in draws
            if (draw, name) in by and (draw, "single 0") in by
        ]
        gains = [100 * (one["test"] - single["test"]) for single, one in pairs]
        if len(gains) > 1:
            error = statistics.stdev(gains) / len(gains) ** 0.5
            seconds = statistics.fmean(one["seconds"] / single["seconds"] for single, one in pairs)
            accuracy = 100 * statistics.fmean(one["test"] for _, one in pairs)
            gain = f"{statistics.fmean(gains):+.1f} ± {error:.1f}"
            rows.append([name, str(len(gains)), f"{accuracy:.1f}", gain, f"{seconds:.1f}"])
    heads = ["method", "draws", "test accuracy", "minus single task", "times its time"]
    return markdown_table(heads, rows)


if __name__ == "__main__":
    main()
