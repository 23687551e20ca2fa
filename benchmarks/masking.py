"""``python -m benchmarks.masking``: all masking strategies at one rate, beside each other.

Settings, draws and records are those of :mod:`benchmarks.horizon`: with its ``--output``, the
single task and ``random_mlm`` are not trained again. Each strategy is trained with the share 0.3
and, with ``--learned``, as ``meta`` would, with 0.1 or 0.5. What has a
record is not trained again, so that the benchmark runs in slices (``--minutes``).
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from auxlearn.comparison.plots import plot_ranks
from auxlearn.comparison.result import RankComparison
from auxlearn.comparison.statistics import holm, rank_methods, t_test
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import UserError
from auxlearn.core.files import write_text
from auxlearn.core.progress import Reporter
from auxlearn.data.load import load_dataset
from auxlearn.mask_analysis.masks import MaskReport, inspect_masks
from benchmarks.horizon.__main__ import folder_name, label, options_of, record_folder
from benchmarks.horizon.bed import (
    FOR_RULES,
    GRID,
    SETTINGS,
    SINGLE,
    Setting,
    Variant,
    settings_of,
    write_draw,
)
from benchmarks.horizon.record import record
from benchmarks.horizon.report import DEFAULT_EVIDENCE
from benchmarks.horizon.scores import DEFAULT_ORDER, Draw, Summary, summarise, taken, tried
from benchmarks.report import put
from benchmarks.tables import table

#: Settings with one task of masked language modelling on texts of their own data set.
BEDS = tuple(
    one for one in SETTINGS if one.aux in (("random_mlm",), ("l3mask",)) and not one.foreign
)
SHARE = next(one for one in GRID if one.share == 0.3)

#: Task and options of each strategy; the rate is 0.15 but where the strategy is about the rate.
STRATEGIES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "random": ("random_mlm", {}),
    "random 40%": ("random_mlm", {"probability": 0.4}),
    "random linear": ("random_mlm", {"schedule": "linear"}),
    "random cosine": ("random_mlm", {"schedule": "cosine"}),
    "random all mask": ("random_mlm", {"corruption": "mask"}),
    "random sampled": ("random_mlm", {"corruption": "sample"}),
    "whole word": ("whole_word", {}),
    "span": ("span", {}),
    "pmi": ("pmi", {}),
    "frequency": ("frequency", {}),
    "frequency reversed": ("frequency", {"reverse": True}),
    "pos": ("pos", {}),
    "pos reversed": ("pos", {"reverse": True}),
    "salient": ("salient", {}),
    "salient reversed": ("salient", {"reverse": True}),
    "l3mask": ("l3mask", {}),
    "l3mask words": ("l3mask", {"unit": "word"}),
    "l3mask reversed": ("l3mask", {"reverse": True}),
    "entropy": ("entropy", {}),
    "entropy reversed": ("entropy", {"reverse": True}),
    "informask": ("informask", {}),
    "informask reversed": ("informask", {"reverse": True}),
    "informask by token": ("informask", {"by": "token"}),
    "difference": ("difference", {}),
    "difference reversed": ("difference", {"reverse": True}),
    "selective": ("selective", {}),
    "selective reversed": ("selective", {"reverse": True}),
    "typhoon": ("typhoon", {}),
    "typhoon reversed": ("typhoon", {"reverse": True}),
    "span + l3mask": ("mixture", {"strategies": ["span", {"l3mask": {"unit": "word"}}]}),
}


def main() -> int:
    """Train and report; exit code 2 for bad input."""
    options = read_options()
    torch.set_num_threads(options.threads)
    try:
        if not options.no_run:
            train_missing(options)
        rows = read_all(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    texts = page(rows, options)
    if options.page:
        old = options.page.read_text(encoding="utf-8")
        write_text(options.page, put(old, f"masking {label(options)}", texts))
    print("\n\n".join(texts))
    return 0


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = options_of("masking", __doc__, list(FOR_RULES))
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--learned", action="store_true", help="the shares of meta as well")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="critical-difference diagram")
    return parser.parse_args()


def beds(options: argparse.Namespace) -> list[Setting]:
    """Return the settings that are asked for and whose data are there."""
    only = options.only or [""]
    named = [one for one in BEDS if any(part in one.name for part in only)]
    return [one for one in named if one.data is None or options.data is not None]


def train_missing(options: argparse.Namespace) -> None:
    """Train what has no record yet, all settings of a draw before the next draw."""
    end = math.inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    for draw in options.draws:
        for setting in beds(options):
            data = options.output / "data" / folder_name(setting) / str(draw)
            write_draw(setting, draw, options.data, data)
            single = train_one(options, setting, draw, "", SINGLE[0], data, end)
            for strategy in options.strategies if single else ():
                train_strategy(options, setting, draw, strategy, data, end)


def train_strategy(
    options: argparse.Namespace, setting: Setting, draw: int, strategy: str, data: Path, end: float
) -> None:
    """Train a strategy with the shares that ``meta`` would try, and look at its masks."""
    if task_of(setting, strategy, data, options) is None:
        return
    masks = strategy_folder(options, setting, draw, strategy) / "masks.json"
    if draw == options.draws[0] and not masks.is_file() and time.monotonic() < end:
        look(options, setting, draw, strategy, data, masks)
    if train_one(options, setting, draw, strategy, SHARE, data, end) and options.learned:
        second = second_share(summaries(options, setting, draw, strategy))
        variant = next(one for one in GRID if one.name == second)
        train_one(options, setting, draw, strategy, variant, data, end)


def train_one(
    options: argparse.Namespace,
    setting: Setting,
    draw: int,
    strategy: str,
    variant: Variant,
    data: Path,
    end: float,
) -> bool:
    """Train a run unless it has a record; whether there is one now."""
    folder = strategy_folder(options, setting, draw, strategy)
    path = folder / f"{variant.name.replace(' ', '_')}.npz"
    if path.is_file() or time.monotonic() > end:
        return path.is_file()
    settings = run_settings(options, setting, draw, strategy, variant, data)
    found = record(settings, {}, best=folder != record_folder(options, setting, draw))
    found.save(path)
    print(f"{setting.name}, {draw}, {strategy or 'single'} {variant.name}: {found.seconds:.1f} s")
    return True


def strategy_folder(
    options: argparse.Namespace, setting: Setting, draw: int, strategy: str
) -> Path:
    """Return the folder of the records of a strategy; that of the horizons where they have it."""
    folder = record_folder(options, setting, draw)
    if not strategy or STRATEGIES[strategy] == (setting.aux[0], {}):
        return folder
    own = folder / strategy.replace(" ", "_")
    single = folder / "single_0.npz"
    if single.is_file() and not (own / single.name).is_file():
        own.mkdir(parents=True, exist_ok=True)
        shutil.copy(single, own / single.name)
    return own


def run_settings(
    options: argparse.Namespace,
    setting: Setting,
    draw: int,
    strategy: str,
    variant: Variant,
    data: Path,
) -> dict[str, Any]:
    """Return the settings of a run of the horizons with another strategy."""
    base = {
        "encoder": options.encoder,
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "max_length": options.max_length,
        "learning_rate": options.learning_rate,
        "precision": options.precision,
        "device": "cpu",
        "cache_dir": str(options.output / "cache"),
        "eval_steps": options.eval_epochs * -(-setting.train // options.batch_size),
    }
    found = settings_of(setting, draw, variant, data, base)
    if "aux" in found:
        (given,) = found["aux"][0].values()
        task = task_of(setting, strategy, data, options)
        assert task is not None
        found["aux"] = ({task[0]: {**given, **task[1]}},)
    return found


def task_of(
    setting: Setting, strategy: str, data: Path, options: argparse.Namespace
) -> tuple[str, Mapping[str, Any]] | None:
    """Return task and options; ``None`` for a strategy without other texts to compare with."""
    task, given = STRATEGIES[strategy]
    if task != "difference":
        return task, given
    source = "pydocs" if setting.data else options.data and str(options.data / "sst2")
    if not source:
        return None
    path = data / "background.txt"
    if not path.is_file():
        texts = load_dataset(source).split("train").texts[:2000]
        write_text(path, "".join(f"{' '.join(text.split())}\n" for text in texts))
    return task, {**given, "background": str(path)}


def look(
    options: argparse.Namespace,
    setting: Setting,
    draw: int,
    strategy: str,
    data: Path,
    path: Path,
) -> None:
    """Write what a strategy masks, and how long preparing it took, nothing in the cache."""
    settings = run_settings(options, setting, draw, strategy, SHARE, data)
    ((name, given),) = settings["aux"][0].items()  # parts of speech are those of labelled texts
    settings["aux"] = ({name: {k: v for k, v in given.items() if k != "corpus"}},)
    cache = path.parent / "cache"
    config = RunConfig(**{**settings, "cache_dir": str(cache), "output": str(path.parent / "none")})
    started = time.perf_counter()
    found: MaskReport = inspect_masks(config.resolved(), texts=0, reporter=Reporter())
    shutil.rmtree(cache, ignore_errors=True)
    (spread,) = found.spreads.values()
    kinds = (*found.parts_of_speech, *found.frequencies)
    masks = {
        "seconds": time.perf_counter() - started,
        "tokens": found.tokens,
        "mean": spread.mean,
        "moved": spread.moved - spread.by_chance,
        "groups": {one.name: [one.tokens, one.ratio(name)] for one in kinds},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(masks))


def summaries(
    options: argparse.Namespace, setting: Setting, draw: int, strategy: str
) -> dict[str, Summary]:
    """Return the runs of a strategy in a draw by variant."""
    folder = strategy_folder(options, setting, draw, strategy)
    found = summarise(folder, label(options), setting.name, draw)
    return {one.variant: one for one in found}


#: Setting, draw and strategy of a row, its runs by variant, and what it masks.
Rows = dict[tuple[str, int, str], tuple[Draw, Mapping[str, Any] | None]]


def read_all(options: argparse.Namespace) -> Rows:
    """Return what has been recorded with an encoder, and add it to the file of results."""
    encoder = label(options)
    lines = options.results.read_text("utf-8").splitlines() if options.results.is_file() else []
    known = {tuple(one["key"]): one for one in map(json.loads, lines)}
    for setting in BEDS:
        for draw in FOR_RULES:
            for strategy in STRATEGIES if record_folder(options, setting, draw).is_dir() else ():
                runs = summaries(options, setting, draw, strategy)
                path = strategy_folder(options, setting, draw, strategy) / "masks.json"
                if "single 0" in runs and SHARE.name in runs:
                    key = (encoder, setting.name, draw, strategy)
                    masks = json.loads(path.read_text("utf-8")) if path.is_file() else None
                    kept = {n: asdict(one) for n, one in runs.items() if n in KEPT}
                    known[key] = {"key": key, "runs": kept, "masks": masks}
    write_text(options.results, "".join(json.dumps(known[key]) + "\n" for key in sorted(known)))
    return {
        (setting, draw, strategy): (
            {name: Summary(**run) for name, run in one["runs"].items()},
            one["masks"],
        )
        for (name, setting, draw, strategy), one in known.items()
        if name == encoder
    }


KEPT = ("single 0", *(one.name for one in GRID))


def page(rows: Rows, options: argparse.Namespace) -> list[str]:
    """Return the tables: gains and ranks, and what is masked."""
    strategies = [o for o in options.strategies if any(key[2] == o for key in rows)]
    texts: list[str] = []
    for title, learned in (("share 0.3", False), ("learned weight", True)):
        # A draw counts where all strategies have finished: gains and ranks are over the same draws.
        whole: dict[str, list[int]] = {}
        for setting, draw in sorted({key[:2] for key in rows if key[1] in options.draws}):
            runs = [rows.get((setting, draw, one), ({}, None))[0] for one in strategies]
            if all(one and (not learned or second_share(one) in one) for one in runs):
                whole.setdefault(setting, []).append(draw)
        scores: dict[str, dict[str, list[float]]] = {
            one: {
                setting: [test_accuracy(rows[setting, draw, one][0], learned) for draw in draws]
                for setting, draws in whole.items()
            }
            for one in strategies
        }
        scores["single task"] = {
            s: [100 * rows[s, d, strategies[0]][0]["single 0"].test["best"] for d in draws]
            for s, draws in whole.items()
        }
        texts += ranked(title, scores, options) if whole else ()
        if learned:
            runs = [rows[s, d, one][0] for s in whole for d in whole[s] for one in strategies]
            counts = Counter(map(chosen_share, runs)).most_common()
            said_so = ", ".join(f"`{name}` in {count}" for name, count in counts)
            texts += [f"Of {len(runs)} learned weights: {said_so}."] if runs else ()
    if not texts:
        return [f"No draw has all of: {', '.join(strategies) or 'no strategy'}."]
    head = f"**Encoder `{label(options)}`.**"
    return [head, *texts, *costs(rows, strategies), *finds(rows, strategies)]


def second_share(runs: Draw) -> str:
    """Return the name of the second share that ``meta`` tries."""
    return tried(runs, DEFAULT_ORDER, "calibrated", "best")[1]


def chosen_share(runs: Draw) -> str:
    """Return the name of the run that ``meta`` takes."""
    return taken(runs, DEFAULT_ORDER, "calibrated", "best", DEFAULT_EVIDENCE)


def test_accuracy(runs: Draw, learned: bool) -> float:
    """Return the test accuracy in percent, of the share 0.3 or of what ``meta`` takes."""
    return 100 * runs[chosen_share(runs) if learned else SHARE.name].test["best"]


def ranked(
    title: str, scores: Mapping[str, Mapping[str, Sequence[float]]], options: argparse.Namespace
) -> Iterator[str]:
    """Yield the table of one kind of weight, and what the tests say.

    Args:
        title: Of the kind of weight.
        scores: Test accuracy in percent by method, setting and draw.
        options: Of the command line.
    """
    single, control = scores["single task"], scores.get("random")
    settings = {name: len(draws) for name, draws in single.items()}
    ranks = rank_methods({n: [fmean(v) for v in own.values()] for n, own in scores.items()})
    blocks = rank_methods({n: [x for v in own.values() for x in v] for n, own in scores.items()})
    order = sorted(scores, key=lambda name: blocks.ranks[name])
    others = [name for name in order if control and name not in ("random", "single task")]
    tests = {name: against(scores[name], control) for name in others if control}
    p_values = dict(zip(others, holm([test[2] for test in tests.values()]), strict=True))
    lines = []
    for name in order:
        gains = [against({s: scores[name][s]}, {s: single[s]}) for s in settings]
        cells = ["" if name == "single task" else said(*gain) for gain in gains]
        if name == "single task":
            cells = [f"{fmean(draws):.1f}" for draws in single.values()]
        found = [said(*tests[name]), f"{p_values[name]:.2f}"] if name in tests else ["", ""]
        if name in tests and math.isnan(tests[name][1]):
            found[1] = ""
        place = [f"{blocks.ranks[name]:.1f}", f"{ranks.ranks[name]:.1f}"]
        lines.append([name, *place, *cells, *found])
    yield (
        f"With {title}: mean rank over draws and over settings (1 is best), test accuracy minus "
        "that of the single task in the same draw, and minus that of random masking over all "
        "draws, in points ± standard error, p by a paired t-test with Holm's correction:"
    )
    heads = [f"{name} ({draws})" for name, draws in settings.items()]
    yield table(["strategy", "rank", "by setting", *heads, "minus random", "p"], lines)
    names = [name for name in scores if name != "single task"]
    together = {
        s: [fmean(x) for x in zip(*(scores[n][s] for n in names), strict=True)] for s in single
    }
    mean = said(*against(together, single))
    yield f"The mean of all {len(names)} strategies is {mean} points from the single task."
    for one, what in ((blocks, "draws"), (ranks, "settings")):
        if not math.isnan(one.p_friedman):
            yield (
                f"Friedman's test over {one.datasets} {what}: p = {one.p_friedman:.3f}; mean "
                f"ranks that differ by {one.critical_difference:.1f} differ significantly "
                "(Nemenyi, 5%)."
            )
    if options.plot:
        figure = plot_ranks(RankComparison("test", "accuracy", blocks, {}, None))  # type: ignore[arg-type]
        place = options.plot.with_stem(f"{options.plot.stem}_{title.split()[0]}")
        figure.savefig(place, dpi=200, bbox_inches="tight")


def against(
    scores: Mapping[str, Sequence[float]], others: Mapping[str, Sequence[float]]
) -> tuple[float, float, float]:
    """Return mean, standard error and p-value of paired differences over all draws."""
    found = [a - b for name in scores for a, b in zip(scores[name], others[name], strict=True)]
    if len(found) < 2:
        return fmean(found), math.nan, math.nan
    variance = stdev(found) ** 2 / len(found)
    return fmean(found), math.sqrt(variance), t_test(fmean(found), variance, len(found) - 1)


def said(mean: float, error: float, p: float) -> str:
    """Return a difference with its standard error."""
    return f"{mean:+.1f}" if math.isnan(error) else f"{mean:+.1f} ± {error:.1f}"


def costs(rows: Rows, strategies: Sequence[str]) -> Iterator[str]:
    """Yield where the masks of each strategy fall."""
    lines = []
    for one in strategies:
        found = [masks for (_, _, name), (_, masks) in rows.items() if name == one and masks]
        cells = ["", ""]
        if found:
            cells = [f"{fmean(masks[key] for masks in found):.1%}" for key in ("mean", "moved")]
        lines.append([one, *cells])
    yield (
        "Mean rate, and share of masks on other tokens than under random masking, in the labelled "
        "texts of the first draws:"
    )
    yield table(["strategy", "mean rate", "masks elsewhere"], lines)


def finds(rows: Rows, strategies: Sequence[str]) -> Iterator[str]:
    """Yield how many times as often as random masking a strategy masks tokens of some kinds."""
    tokens: dict[str, int] = {}
    ratios: dict[str, dict[str, list[float]]] = {}
    for (_, _, name), (_, masks) in rows.items():
        for group, (count, ratio) in (masks or {"groups": {}})["groups"].items():
            tokens[group] = tokens.get(group, 0) + count
            ratios.setdefault(group, {}).setdefault(name, []).append(ratio)
    if not tokens:
        return
    frequent = sorted((one for one in tokens if "times" not in one), key=lambda one: -tokens[one])
    groups = [*frequent[:8], *sorted((o for o in tokens if "times" in o), key=len)]
    yield "Mask rate over that of random masking, by part of speech and by frequency in the texts:"
    yield table(
        ["strategy", *groups],
        [
            [one, *(f"{fmean(v):.2f}" if (v := ratios[g].get(one)) else "" for g in groups)]
            for one in strategies
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
