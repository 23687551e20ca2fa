"""The space of objectives beside single tasks and restarts, on draws of one setting of the horizon.

Trains what has no record yet (``--minutes`` bounds it), and writes the tables of
``docs/results/space.md``; single task, its restarts and ``random_mlm`` are those of
``benchmarks/results/horizon.jsonl``::

    python -m benchmarks.space --output runs/space --page docs/results/space.md
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from auxlearn import RunConfig, train
from auxlearn.comparison.statistics import holm
from auxlearn.core.files import write_text
from auxlearn.tasks.space import Space, SpaceOptions
from benchmarks.common import RESULTS
from benchmarks.horizon.bed import FOR_RULES, SETTINGS, write_draw
from benchmarks.horizon.scores import Summary, by_draw
from benchmarks.masking import against, chosen_share, said
from benchmarks.tables import read_lines, table, write_section

SETTING = SETTINGS[0]
FIXED = {"fixed": {"alpha": 0.3, "mix": "steps"}}
HALF = {"fixed": {"alpha": 0.5, "mix": "steps"}}
MIXED = {"fixed": {"alpha": 0.3, "mix": "gradients"}}
#: Task, its options beside the corpus, and the weighting.
VARIANTS: dict[str, tuple[str, Mapping[str, Any], Any]] = {
    "`l3mask`, share 0.3": ("l3mask", {}, FIXED),
    "`space`, n = 3, `aang`": ("space", {"per_step": 3}, "aang"),
    "`space`, n = 6, `aang`": ("space", {"per_step": 6}, "aang"),
    "`space`, n = 3, share 0.3": ("space", {"per_step": 3}, FIXED),
    "`space`, n = 6, share 0.3": ("space", {"per_step": 6}, FIXED),
    "`space`, n = 3, `meta`": ("space", {"per_step": 3}, "meta"),
    "`space`, n = 6, `meta`": ("space", {"per_step": 6}, "meta"),
    "`space`, n = 3, share 0.5": ("space", {"per_step": 3}, HALF),
    "`space`, n = 3, share 0.3 of the gradient": ("space", {"per_step": 3}, MIXED),
}
#: What tables call the records of the horizon.
KNOWN = {
    "steps 0.1": "`random_mlm`, share 0.1",
    "steps 0.3": "`random_mlm`, share 0.3",
    "steps 0.5": "`random_mlm`, share 0.5",
}
#: The method that all others are compared with as well.
LEARNED = "`random_mlm`, `meta`"
#: Restarts that cost as much as `meta`.
CONTROL = "best of 5 restarts"


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/space"), metavar="DIR")
    parser.add_argument("--results", type=Path, default=RESULTS / "space.jsonl", metavar="FILE")
    parser.add_argument("--draws", nargs="+", type=int, default=list(FOR_RULES))
    parser.add_argument("--only", default="", metavar="TEXT", help="variants whose name has it")
    parser.add_argument("--no-run", action="store_true", help="report on what has finished")
    parser.add_argument("--page", type=Path, help="page whose section of tables is replaced")
    parser.add_argument("--minutes", type=float, help="begin no further run after this time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    end = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    records = read_lines(options.results)
    done = {(record["draw"], record["variant"]) for record in records}
    for draw in options.draws:
        folder = options.output / "data" / str(draw)
        for name in (one for one in VARIANTS if options.only in one):
            late = end is not None and time.monotonic() > end
            if options.no_run or late or (draw, name) in done:
                continue
            write_draw(SETTING, draw, None, folder)
            records.append(trained(draw, name, folder, options.output))
            write_text(options.results, "".join(json.dumps(one) + "\n" for one in records))
            print(records[-1], flush=True)
    tables = [gains(records + horizon(), options.draws), shares(records), factors(records)]
    print("\n\n".join(tables))
    if options.page:
        write_section(options.page, "space", tables)


def settings_of(
    draw: int, aux: Mapping[str, Any], weights: Any, folder: Path, output: Path
) -> RunConfig:
    """Return the settings of a run of `benchmarks.horizon` with another task."""
    return RunConfig(
        dataset=str(folder),
        encoder="tiny",
        aux=(aux,),
        weights=weights,
        seed=draw,
        epochs=10,
        batch_size=16,
        max_length=64,
        eval_steps=-(-SETTING.train // 16),
        patience=0,
        keep_model=False,
        device="cpu",
        cache_dir=str(folder.parents[1] / "cache"),
        output=str(output),
    )


def trained(draw: int, name: str, folder: Path, output: Path) -> dict[str, Any]:
    """Train one run, and return its record."""
    task, given, weights = VARIANTS[name]
    aux = {task: {**given, "corpus": str(folder / "unlabelled" / "corpus.jsonl")}}
    place = output / "runs" / f"{draw}-{list(VARIANTS).index(name)}"
    found = train(settings_of(draw, aux, weights, folder, place))
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
    """Return the records of single task and ``random_mlm``; restarts and weight chosen on dev."""
    summaries = [Summary(**row) for row in read_lines(RESULTS / "horizon.jsonl")]
    every = []
    for draw, runs in by_draw(summaries, "tiny", ("single 0", *KNOWN))[SETTING.name].items():
        named = {KNOWN.get(name, name): run for name, run in runs.items()}
        named[LEARNED] = runs[chosen_share(runs)]
        for count in (3, 5):
            seeds = [runs.get(f"single {number}") for number in range(count)]
            if all(seeds):
                best = max((run for run in seeds if run), key=lambda run: run.dev["best"])
                named[f"best of {count} restarts"] = best
        every += [
            {"draw": draw, "variant": name, "test": run.test["best"]} for name, run in named.items()
        ]
    return every


def gains(records: Sequence[Mapping[str, Any]], draws: Sequence[int]) -> str:
    """Return test accuracy minus that of the single task, of restarts and of ``meta``, in points.

    Standard errors are those of the differences of the same draws; p of the first by a paired
    t-test over draws with Holm's correction. All draws have one test set, whose choice it leaves
    out: `auxlearn compare` asks for a test over examples as well, which needs their predictions.
    """
    of: dict[str, dict[int, float]] = {}
    alone = {record["draw"] for record in records if record["variant"] == "single 0"}
    for record in records:
        if record["draw"] in alone.intersection(draws):
            of.setdefault(record["variant"], {})[record["draw"]] = 100 * record["test"]
    names = ["best of 3 restarts", CONTROL, *KNOWN.values(), LEARNED, *VARIANTS]
    names = [name for name in names if len(of.get(name, {})) > 1]

    def minus(name: str, other: str) -> tuple[float, float, float]:
        both = of[name].keys() & of[other].keys()
        return against({"": [of[name][n] for n in both]}, {"": [of[other][n] for n in both]})

    found = {name: minus(name, "single 0") for name in names}
    rows = []
    for name, p in zip(names, holm([one[2] for one in found.values()]), strict=True):
        own = of[name].values()
        others = [
            said(*minus(name, other)) if other in names and name != other else ""
            for other in (CONTROL, LEARNED)
        ]
        accuracy = f"{statistics.fmean(own):.1f}"
        cells = [others[0], said(*found[name]), f"{p:.2f}", others[1]]
        rows.append([name, str(len(own)), accuracy, *cells])
    heads = ["method", "draws", "test accuracy", f"minus {CONTROL}", "minus single task"]
    heads += ["p over draws", f"minus {LEARNED}"]
    return table(heads, rows)


def shares(records: Sequence[Mapping[str, Any]]) -> str:
    """Say which shares ``meta`` has taken."""
    taken = [row["weights"]["space"] for row in records if "`meta`" in row["variant"]]
    counts = ", ".join(f"{share:g} in {count}" for share, count in Counter(taken).most_common())
    return f"Of {len(taken)} shares that `meta` learned: {counts}."


def factors(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the learned weights of the factors, mean and standard deviation over the draws."""
    rows = []
    of = {
        n: [r["factors"]["space"] for r in records if r["variant"] == n and "space" in r["factors"]]
        for n in VARIANTS
    }
    learned = {name: found for name, found in of.items() if len(found) > 1 and "aang" in name}
    members = Space(SpaceOptions(corpus=("corpus",))).members
    for axis in ("data", "transform", "representation", "output"):
        for value in dict.fromkeys(one[axis] for one in members):
            first = sum(one[axis] == value for one in members) / len(members)
            row = [f"{axis} `{value}`", f"{first:.2f}"]
            for tables in learned.values():
                values = [one[axis][value] for one in tables]
                row.append(f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}")
            rows.append(row)
    return table(["weight of", "at first", *learned], rows)


if __name__ == "__main__":
    main()
