"""``python -m benchmarks.masking``: all masking strategies at one rate, beside each other.

Settings, draws and records are those of :mod:`benchmarks.horizon`: with its ``--output``, the
single task and ``random_mlm`` are not trained again. Each strategy is trained with the share 0.3
and, with ``--learned``, as ``meta`` would, with 0.1 or 0.5. What has a result is not trained again,
so that the benchmark runs in slices (``--minutes``).
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
from dataclasses import asdict, dataclass
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
from benchmarks.horizon.__main__ import (
    base_settings,
    folder_name,
    label,
    options_of,
    record_folder,
)
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
from benchmarks.tables import read_lines, table, write_section

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


#: Setting, draw and strategy of a row, its runs by variant, and what it masks.
Rows = dict[tuple[str, int, str], tuple[Draw, Mapping[str, Any] | None]]


def main() -> int:
    """Train and report; exit code 2 for bad input."""
    options = read_options()
    torch.set_num_threads(options.threads)
    try:
        rows = read_all(options)
        if not options.no_run:
            train_missing(options, rows)
            rows = read_all(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    texts = page(rows, options)
    if options.page:
        write_section(options.page, f"masking {label(options)}", texts)
    print("\n\n".join(texts))
    return 0


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = options_of("masking", __doc__, list(FOR_RULES))
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--learned", action="store_true", help="the shares of meta as well")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="critical-difference diagram")
    return parser.parse_args()


def train_missing(options: argparse.Namespace, rows: Rows) -> None:
    """Train what has no result yet, all settings of a draw before the next draw."""
    end = math.inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    named = [one for one in BEDS if any(part in one.name for part in options.only or [""])]
    settings = [one for one in named if one.data is None or options.data is not None]
    for draw in options.draws:
        for setting in settings:
            for strategy in options.strategies:
                case = Case(options, setting, draw, strategy)
                write_draw(setting, draw, options.data, case.data)
                if case.task is not None:
                    case.train_missing(*rows.get((setting.name, draw, strategy), ({}, None)), end)


@dataclass(frozen=True)
class Case:
    """A strategy on a draw of a setting; the single task without a strategy."""

    options: argparse.Namespace
    setting: Setting
    draw: int
    strategy: str = ""

    @property
    def data(self) -> Path:
        """Folder of the data of the draw."""
        return Path(self.options.output, "data", folder_name(self.setting), str(self.draw))

    @property
    def folder(self) -> Path:
        """Folder of the records; that of the horizons for what they have trained."""
        folder = record_folder(self.options, self.setting, self.draw)
        if not self.strategy or STRATEGIES[self.strategy] == (self.setting.aux[0], {}):
            return folder
        return folder / self.strategy.replace(" ", "_")

    @property
    def task(self) -> tuple[str, Mapping[str, Any]] | None:
        """Task and options; ``None`` for a strategy without other texts to compare with."""
        task, given = STRATEGIES[self.strategy]
        if task != "difference":
            return task, given
        sets = self.options.data
        source = "pydocs" if self.setting.data else sets and str(sets / "sst2")
        if not source:
            return None
        path = self.data / "background.txt"
        if not path.is_file():
            texts = load_dataset(source).split("train").texts[:2000]
            write_text(path, "".join(f"{' '.join(text.split())}\n" for text in texts))
        return task, {**given, "background": str(path)}

    def settings(self, variant: Variant) -> dict[str, Any]:
        """Return the settings of a run of the horizons with this strategy."""
        base = base_settings(self.options, self.setting)
        found = settings_of(self.setting, self.draw, variant, self.data, base)
        if "aux" in found:
            (given,) = found["aux"][0].values()
            assert self.task is not None
            found["aux"] = ({self.task[0]: {**given, **self.task[1]}},)
        return found

    def summaries(self) -> dict[str, Summary]:
        """Return the runs that have a record here, by variant."""
        found = summarise(self.folder, label(self.options), self.setting.name, self.draw)
        return {one.variant: one for one in found}

    def train_missing(self, known: Draw, masks: Mapping[str, Any] | None, end: float) -> None:
        """Train the shares that ``meta`` would try, and look at the masks of the first draw."""
        if self.draw == FOR_RULES[0] and masks is None and time.monotonic() < end:
            self.look()
        if SHARE.name not in known:
            self.train(SHARE, end)
        runs = {**self.summaries(), **known}
        if self.options.learned and SHARE.name in runs and second_share(runs) not in runs:
            self.train(next(one for one in GRID if one.name == second_share(runs)), end)

    def train(self, variant: Variant, end: float) -> None:
        """Train a run that has no record, after the single task that it is compared with."""
        alone = Case(self.options, self.setting, self.draw)
        if variant != SINGLE[0]:
            alone.train(SINGLE[0], end)
        path = self.folder / f"{variant.name.replace(' ', '_')}.npz"
        if path.is_file() or time.monotonic() > end:
            return
        if self.folder != alone.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(alone.folder / "single_0.npz", self.folder)
        seconds = record(self.settings(variant), path)
        name = f"{self.strategy or 'single'} {variant.name}"
        print(f"{self.setting.name}, {self.draw}, {name}: {seconds:.1f} s")

    def look(self) -> None:
        """Write what a strategy masks."""
        path = self.folder / "masks.json"
        if path.is_file():
            return
        settings = self.settings(SHARE)
        ((name, given),) = settings["aux"][0].items()  # parts of speech are those of labelled texts
        settings["aux"] = ({name: {k: v for k, v in given.items() if k != "corpus"}},)
        config = RunConfig(**settings, output=str(path.parent / "none")).resolved()
        found: MaskReport = inspect_masks(config, texts=0, reporter=Reporter())
        (spread,) = found.spreads.values()
        kinds = (*found.parts_of_speech, *found.frequencies)
        masks = {
            "tokens": found.tokens,
            "mean": spread.mean,
            "moved": spread.moved,
            "groups": {
                one.name: [one.tokens, one.rates[name] / (one.random[name] or math.inf)]
                for one in kinds
            },
        }
        write_text(path, json.dumps(masks))


def read_all(options: argparse.Namespace) -> Rows:
    """Return what has been recorded with an encoder, and add it to the file of results."""
    encoder, kept = label(options), {one.name for one in (SINGLE[0], *GRID)}
    known = {tuple(one["key"]): one for one in read_lines(options.results)}
    for setting in BEDS:
        for draw in FOR_RULES:
            for strategy in STRATEGIES if record_folder(options, setting, draw).is_dir() else ():
                key = (encoder, setting.name, draw, strategy)
                row = known.get(key, {"runs": {}, "masks": None})
                case = Case(options, setting, draw, strategy)
                found = case.summaries().items()
                runs = {n: asdict(one) for n, one in found if n in kept} | row["runs"]
                path = case.folder / "masks.json"
                masks = row["masks"] or (json.loads(path.read_text()) if path.is_file() else None)
                if "single 0" in runs and SHARE.name in runs:
                    known[key] = {"key": key, "runs": runs, "masks": masks}
    write_text(options.results, "".join(json.dumps(known[key]) + "\n" for key in sorted(known)))
    return {
        (setting, draw, strategy): (
            {name: Summary(**run) for name, run in one["runs"].items()},
            one["masks"],
        )
        for (name, setting, draw, strategy), one in known.items()
        if name == encoder
    }


def page(rows: Rows, options: argparse.Namespace) -> list[str]:
    """Return the tables: gains and ranks, and what is masked."""
    strategies = [o for o in options.strategies if any(key[2] == o for key in rows)]
    texts: list[str] = []
    for title, learned in (("share 0.3", False), ("learned weight", True)):
        finished = {
            key: one
            for key, (one, _) in rows.items()
            if key[1] in options.draws and (not learned or second_share(one) in one)
        }
        used = {k: one[chosen_share(one) if learned else SHARE.name] for k, one in finished.items()}
        own = [o for o in strategies if not learned or any(key[2] == o for key in finished)]
        # A draw counts where all of them have finished: gains and ranks are over the same draws.
        whole: dict[str, list[int]] = {}
        for setting, draw in sorted({key[:2] for key in finished}):
            if all((setting, draw, one) in finished for one in own):
                whole.setdefault(setting, []).append(draw)
        if not whole or len(own) < min(2, len(strategies)):
            continue
        scores: dict[str, dict[str, list[float]]] = {
            one: {
                s: [100 * used[s, d, one].test["best"] for d in draws] for s, draws in whole.items()
            }
            for one in own
        }
        scores["single task"] = {
            s: [100 * finished[s, d, own[0]]["single 0"].test["best"] for d in draws]
            for s, draws in whole.items()
        }
        texts += ranked(title, scores, options)
        if learned:
            counts = Counter(used[s, d, o].variant for s in whole for d in whole[s] for o in own)
            said_so = ", ".join(f"`{name}` in {count}" for name, count in counts.most_common())
            texts.append(f"Of {counts.total()} learned weights: {said_so}.")
    if not texts:
        return [f"No draw has all of: {', '.join(strategies) or 'no strategy'}."]
    texts.insert(0, f"**Encoder `{label(options)}`.**")
    return [*texts, *places(rows, strategies), *finds(rows, strategies)]


def chosen_share(runs: Draw) -> str:
    """Return the name of the run that ``meta`` takes."""
    return taken(runs, DEFAULT_ORDER, "calibrated", "best", DEFAULT_EVIDENCE)


def second_share(runs: Draw) -> str:
    """Return the name of the second share that ``meta`` tries."""
    return tried(runs, DEFAULT_ORDER, "calibrated", "best")[1]


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
        "draws, in points ± standard error, p by a paired t-test over draws with Holm's correction "
        "(the draws of a setting share its test set, so that p is too small):"
    )
    heads = [f"{name} ({draws})" for name, draws in settings.items()]
    yield table(["strategy", "rank", "by setting", *heads, "minus random", "p over draws"], lines)
    names = [name for name in scores if name != "single task"]
    every = average(scores, names)
    over_draws = against(every, single)
    of_settings = [{"": [fmean(draws) for draws in one.values()]} for one in (every, single)]
    least = min(holm([against(scores[name], single)[2] for name in names]))
    yield (
        f"The mean of all {len(names)} strategies is {said(*over_draws)} points from the single "
        f"task (p = {over_draws[2]:.2f} over draws, {against(*of_settings)[2]:.2f} over "
        f"{len(settings)} settings). Of single strategies against the single task the smallest p "
        f"over draws is {least:.2f} after Holm's correction."
    )
    if pairs := [name for name in names if f"{name} reversed" in scores]:
        reverses = average(scores, [f"{name} reversed" for name in pairs])
        mean = said(*against(average(scores, pairs), reverses))
        yield f"Scores minus their reverses ({', '.join(pairs)}): {mean} points."
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


def average(
    scores: Mapping[str, Mapping[str, Sequence[float]]], names: Sequence[str]
) -> dict[str, list[float]]:
    """Return the mean of some methods, by setting and draw."""
    return {
        setting: [fmean(x) for x in zip(*(scores[name][setting] for name in names), strict=True)]
        for setting in scores[names[0]]
    }


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


def places(rows: Rows, strategies: Sequence[str]) -> Iterator[str]:
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
