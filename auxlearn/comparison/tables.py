"""The tables of a comparison as DataFrames of texts, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from auxlearn.comparison.methods import Method
from auxlearn.comparison.power import POWER
from auxlearn.comparison.restarts import Restarts
from auxlearn.comparison.result import Block, MetricComparison, RankComparison
from auxlearn.comparison.statistics import ALPHA, MINIMUM_SEEDS, Pair
from auxlearn.core.errors import ConfigError, describe
from auxlearn.kinds.metrics import metric_of, metric_title
from auxlearn.results.record import RunResults
from auxlearn.results.tables import Bold, text_table

if TYPE_CHECKING:
    from pandas import DataFrame

#: Marks a score that may be as good as the best, or as that of the method compared with.
SAME = "≈"
#: Mark scores that are significantly better or worse than that of the method compared with.
BETTER, WORSE = "▲", "▼"


@dataclass(frozen=True)
class RunColumn:
    """A number of each run that tables and files show beside the scores, as the mean over runs."""

    heading: str
    of_run: Callable[[RunResults], float]
    adds_up: bool = False  # whether the best of several runs takes that of all of them


#: What can be shown of runs besides scores. A further one needs an entry here, and nothing else.
RUN_COLUMNS = {
    "epochs": RunColumn("epochs to best", lambda results: results.best_epoch),
    "minutes": RunColumn("minutes", lambda results: sum(results.seconds.values()) / 60, True),
}


@dataclass(frozen=True)
class Layout:
    """What tables look like."""

    decimals: int = 1  # of scores in percent, 0 to 6
    show: Sequence[str] = ()  # what to add to the scores: of RUN_COLUMNS, seeds or pairs

    def __post_init__(self) -> None:
        is_number = isinstance(self.decimals, Integral) and not isinstance(self.decimals, bool)
        if not is_number or not 0 <= self.decimals <= 6:
            raise ConfigError(f"decimals: {describe(self.decimals)} is no number from 0 to 6")
        known = ("seeds", *RUN_COLUMNS, "pairs")
        if not isinstance(self.show, list | tuple):
            raise ConfigError(f"show: give a list of {', '.join(known)}")
        for name in self.show:
            if name not in known:
                raise ConfigError(f"show: there is no '{name}': known: {', '.join(known)}")

    def score(self, value: float, metric: str, sign: str = "") -> str:
        """Return a score in percent; that of an error in the unit of the labels; - for NaN."""
        if math.isnan(value):
            return "-"
        if metric_of(metric).is_error:
            return f"{value:{sign}z.{self.decimals + 2}f}"
        return f"{100 * value:{sign}z.{self.decimals}f}"  # z: no -0.0


@dataclass(frozen=True)
class Part:
    """A table of a comparison with what is said of it."""

    title: str
    table: DataFrame
    caption: str = ""  # what its numbers are, in one sentence; "" where the title says it
    marks: str = ""  # what the marks in it mean; "" without any
    notes: Sequence[str] = ()  # what a reader must know, one sentence each


def parts(block: Block, layout: Layout, against: str | None) -> Iterator[Part]:
    """Yield the tables of a block: scores, ranks across data sets, and pairs if asked for."""
    table, marks = score_table(block, layout, against), _marks(block, against)
    yield Part(block.title, table, caption(block), marks, notes(block))
    for ranks in block.across:
        title = f"Across {ranks.ranks.datasets} data sets: {ranks.set} {metric_title(ranks.metric)}"
        yield Part(title, rank_table(ranks, layout), notes=rank_notes(ranks))
    for column in block.columns if "pairs" in layout.show else ():
        if column.pairs:
            yield Part(column_title(column), pair_table(column, layout))


def score_table(block: Block, layout: Layout, against: str | None) -> DataFrame:
    """Return methods by data sets, sets and metrics; controls and what is detectable come last."""
    counted = "seeds" in layout.show or len(_seed_counts(block)) > 1
    extra = [RUN_COLUMNS[name] for name in RUN_COLUMNS if name in layout.show]
    unit = "runs" if block.folds else "seeds"
    heads = _heads(block)
    lines: list[dict[tuple[str, str], str]] = []

    def line(name: str, count: str, scores: Sequence[str], numbers: Sequence[str]) -> None:
        cells = {("", "method"): name} | ({("", unit): count} if counted else {})
        cells |= dict(zip(heads, scores, strict=True))
        lines.append(cells | {("", e.heading): n for e, n in zip(extra, numbers, strict=True)})

    for name in block.methods:
        methods = block.runs_of(name)
        counts = [len(method.runs) for method in methods]
        scores = [_score(column, name, layout, against) for column in block.columns]
        means = [mean_of(methods, e) if any(counts) else math.nan for e in extra]
        numbers = ["-" if math.isnan(mean) else f"{mean:.1f}" for mean in means]
        line(name, _span(counts), scores, numbers)
    for name in block.methods:
        best = [column.restarts.get(name) for column in block.columns]
        if known := [restarts for restarts in best if restarts is not None]:
            scores = [
                "-" if restarts is None else _expected(restarts, column.metric, layout)
                for restarts, column in zip(best, block.columns, strict=True)
            ]
            sums = [known[0].count * mean_of(block.runs_of(name), e) for e in extra]
            numbers = [f"{n:.1f}" if e.adds_up else "" for n, e in zip(sums, extra, strict=True)]
            seeds = _span([restarts.seeds for restarts in known])
            line(known[0].name(name), seeds, scores, numbers)
    if not all(math.isnan(column.detectable) for column in block.columns):
        scores = [_detectable(column, layout) for column in block.columns]
        line("detectable", "", scores, [""] * len(extra))
    return text_table(list(lines[0]), (list(cells.values()) for cells in lines))


def mean_of(methods: Sequence[Method], column: RunColumn) -> float:
    """Return the mean over runs of a number; of folds, over the means of their seeds."""
    by_seed = [method.by_seed(column.of_run) for method in methods]
    return float(np.mean([value for values in by_seed for value in values.values()]))


def rank_table(comparison: RankComparison, layout: Layout) -> DataFrame:
    """Return the comparison across data sets, best average rank first."""
    heads = ["method", "average rank", "wins/ties/losses", "average", "95% interval"]
    lines = []
    ranks, average = comparison.ranks.ranks, comparison.average
    for name in sorted(ranks, key=lambda name: ranks[name]):
        mean = layout.score(average.means[name], comparison.metric)
        low, high = (layout.score(end, comparison.metric) for end in average.interval(name))
        record = "/".join(map(str, comparison.records[name]))
        lines.append([name, f"{ranks[name]:.2f}", record, mean, f"{low} to {high}"])
    return text_table(heads, lines)


def rank_notes(comparison: RankComparison) -> list[str]:
    lines = ["Wins, ties and losses against other methods: significant differences on data sets."]
    if not math.isnan(comparison.ranks.p_friedman):
        lines.append(
            f"Friedman's test over data sets: p = {p_text(comparison.ranks.p_friedman)}. Nemenyi's "
            f"critical difference of average ranks: {comparison.ranks.critical_difference:.2f}."
        )
    if comparison.ranks.datasets < 5:
        lines.append("Tests over data sets have little power with fewer than five of them.")
    return lines


def pair_table(column: MetricComparison, layout: Layout) -> DataFrame:
    heads = ["pair", "difference", "95% interval", "P(first beats second)", "p (Holm)"]
    lines = []
    for pair in sorted(column.pairs, key=lambda pair: (pair.p, -abs(pair.difference))):
        difference, low, high = (
            layout.score(value, column.metric, "+")
            for value in (pair.difference, pair.low, pair.high)
        )
        interval = "-" if math.isnan(pair.low) else f"{low} to {high}"
        p_value = Bold(p_text(pair.p)) if pair.significant else p_text(pair.p)
        names = f"{pair.first} - {pair.second}"
        beats = "-" if math.isnan(pair.beats) else f"{pair.beats:.2f}"
        lines.append([names, difference, interval, beats, p_value])
    return text_table(heads, lines)


def column_title(column: MetricComparison) -> str:
    return f"{column.dataset}, {column.set} {metric_title(column.metric)}"


def p_text(value: float) -> str:
    """Return a p-value.

    >>> p_text(0.0312), p_text(1e-7)
    ('.031', '<.001')
    """
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def caption(block: Block) -> str:
    """Return what the scores of a table are, in one sentence."""
    sets = list(dict.fromkeys(column.set for column in block.columns))
    metrics = list(dict.fromkeys(column.metric for column in block.columns))
    what = metric_title(metrics[0]) if len(metrics) == 1 else "Scores"
    where = f" on {sets[0]}" if len(sets) == 1 else ""
    counts = _seed_counts(block)
    unit = "fold" if block.folds else "seed"
    spread = f"one {unit}"
    if max(counts) > 1:
        spread = f"mean ± standard deviation over {_span(counts)} {unit}s"
    errors = [metric_title(metric) for metric in metrics if metric_of(metric).is_error]
    scale = " in percent" if len(errors) < len(metrics) else " in the unit of the labels"
    if 0 < len(errors) < len(metrics):
        scale += f" ({', '.join(errors)} in the unit of the labels)"
    return f"{what[:1].upper()}{what[1:]}{scale}{where}, {spread}."


def _marks(block: Block, against: str | None) -> str:
    """Return what the marks in a table mean, in one sentence."""
    if len(block.methods) < 2:
        return ""
    if against in block.methods:
        return (
            f"{BETTER} {WORSE}: significantly better or worse than {against}; {SAME}: not "
            "significantly different from it."
        )
    lacking = any(column.incomplete for column in block.columns)
    best = "Best of the methods with all folds in bold" if lacking else "Best in bold"
    return f"{best}; {SAME}: not significantly worse than the best."


def legend(
    blocks: Sequence[Block], against: str | None, restarts: int | None, chosen: Sequence[str]
) -> list[str]:
    """Return how differences were tested and what was chosen, one sentence each."""
    lines = []
    tested = [block for block in blocks if len(block.methods) > 1]
    family = f"with {against}" if against else "of two methods"
    if any(block.folds for block in tested):
        lines.append(
            f"Over folds, significant (level {ALPHA:g}): by the corrected resampled t-test of "
            "Nadeau and Bengio (2003) on the means over seeds of each fold, as folds share "
            "training examples, which makes a plain t-test over folds optimistic. On other sets "
            f"than test nothing is tested. Holm's correction over all comparisons {family} in a "
            "column."
        )
    if not all(block.folds for block in tested):
        lines.append(
            f"Significant (level {ALPHA:g}): neither the seeds (paired t-test) nor seeds and "
            "examples together (crossed t-test) explain the difference. Both tests assume that "
            "differences of seeds are normal. Holm's correction over all comparisons "
            f"{family} in a column."
        )
    if not all(math.isnan(column.detectable) for block in blocks for column in block.columns):
        lines.append(
            "Detectable: if one method is truly better than all others by this much, its "
            f"difference from another is significant with probability {POWER:g}; none: the runs "
            "are too few, or too equal, to say."
        )
    if restarts:
        lines.append(
            f"Control (no method): {restarts} runs with different seeds, of which the best by dev "
            "is kept, at the cost of all of them: the mean score over all subsets of the seeds, "
            "with its standard error over seeds (jackknife). Nothing is tested against it."
        )
    if chosen:
        lines.append(
            f"{', '.join(chosen)}: chosen on dev by the mean over seeds; scores on other sets were "
            "read for the chosen value only."
        )
    return lines


def notes(block: Block) -> list[str]:
    """Return the notes under a table: chosen values, missing seeds, runs that say little."""
    lines = []
    for data in block.datasets:
        for method in data.methods:
            who = f"{method.name} on {data.name}" if len(block.datasets) > 1 else method.name
            lines += [f"{who}{line}" for line in _method_notes(method, block.folds)]
        folds = {fold for method in data.methods for fold in method.folds}
        for column in block.columns:
            absent = sorted(folds.difference(*column.scores.values()))
            if absent and ":" in column.metric and column.dataset == data.name:
                lines.append(
                    f"{column_title(column)}: no example of the class in "
                    f"{_numbered('fold', absent)}, which do not enter the mean"
                )
    tested = [column for column in block.columns if not block.folds or column.set == "test"]
    seeds = (pair.seeds for column in tested for pair in column.pairs)
    fewest = min(seeds, default=MINIMUM_SEEDS)
    if fewest < MINIMUM_SEEDS:
        unit = "fold" if block.folds else "seed"
        count = f"{fewest} {unit}" if fewest == 1 else f"{fewest} {unit}s"
        lines.append(
            f"where two methods have {count} in common, no difference is significant, however "
            f"large: at least {MINIMUM_SEEDS} are needed"
        )
    return lines


def _method_notes(method: Method, folds: int) -> Iterator[str]:
    """Yield what must be known of a method, each to follow its name."""
    if method.chosen and method.runs:
        values = ", ".join(f"{axis} {value}" for axis, value in method.chosen.items())
        yield f": {values} (chosen on dev)"
    absent = [fold for fold in range(1, folds + 1) if fold not in method.folds]
    if method.runs and absent:
        yield f": no scores for {_numbered('fold', absent)}, which do not enter the mean"
    by_fold = {f", fold {fold}": part for fold, part in sorted(method.folds.items())}
    for fold, part in (by_fold or {"": method}).items():
        for reason in dict.fromkeys(part.missing.values()):
            missing = [seed for seed, why in sorted(part.missing.items()) if why == reason]
            yield f"{fold}: no scores for {_numbered('seed', missing)} ({reason})"
        for reason, count in part.unchosen.items():
            trials = "1 trial" if count == 1 else f"{count} trials"
            yield f"{fold}: without {trials} of other values to choose among ({reason})"
    results = method.results.values()
    degenerate = sum(run.degenerate is not None for run in results)
    if degenerate:
        yield (
            f": degenerate for {degenerate} of {len(method.runs)} "
            f"{'runs' if method.folds else 'seeds'} (predictions for dev no better than chance)"
        )
    shares = [[w for name, w in run.weights.items() if name != "primary"] for run in results]
    unused = sum(bool(of_tasks) and not any(of_tasks) for of_tasks in shares)
    if unused:
        yield (
            f": no auxiliary task applied at the end in {unused} of {len(method.runs)} runs (all "
            "weights but that of the primary task are 0)"
        )


def _numbered(what: str, numbers: Sequence[int]) -> str:
    plural = "s" if len(numbers) > 1 else ""
    return f"{what}{plural} {', '.join(map(str, numbers))}"


def _heads(block: Block) -> list[tuple[str, str]]:
    several_sets = len({column.set for column in block.columns}) > 1
    several_metrics = len({column.metric for column in block.columns}) > 1
    alone = len(block.datasets) == 1
    neither = alone and not several_sets and not several_metrics
    heads = []
    for column in block.columns:
        names = [column.set] if several_sets or neither else []
        names += [metric_title(column.metric)] if several_metrics or neither else []
        # With one data set, one set and one metric for several data sets, their names say it all.
        data = "" if alone else column.dataset
        heads.append((data, " ".join(names)) if names else ("", data))
    return heads


def _score(column: MetricComparison, name: str, layout: Layout, against: str | None) -> str:
    if name not in column.scores:
        return "-"
    text = layout.score(column.means[name], column.metric)
    if len(column.scores[name]) > 1 and not column.averaged:
        text += f" ± {layout.score(column.sd(name), column.metric)}"
    if against in column.scores:
        pair = next((pair for pair in column.pairs if name in pair.names), None)
        return text + ("" if name == against else _mark(pair, name))
    if len(column.scores) > 1 and column.is_best(name):
        return Bold(text)
    pair = next((pair for pair in column.pairs if pair.names == {name, column.best}), None)
    return text + ("" if pair is None or pair.significant else _mark(pair, name))


def _mark(pair: Pair | None, name: str) -> str:
    if pair is None or pair.seeds < MINIMUM_SEEDS:  # nothing was tested
        return ""
    if not pair.significant:
        return f" {SAME}"
    return f" {BETTER}" if pair.first == name else f" {WORSE}"


def _expected(best: Restarts, metric: str, layout: Layout) -> str:
    return f"{layout.score(best.mean, metric)} (s.e. {layout.score(best.error, metric)})"


def _detectable(column: MetricComparison, layout: Layout) -> str:
    if math.isfinite(column.detectable):
        return layout.score(column.detectable, column.metric)
    return "" if math.isnan(column.detectable) else "none"


def _seed_counts(block: Block) -> list[int]:
    """Return the different numbers of seeds of the scores, ascending."""
    columns = [column for column in block.columns if not column.averaged]
    return sorted({len(by_seed) for column in columns for by_seed in column.scores.values()})


def _span(counts: Sequence[int]) -> str:
    lowest, highest = min(counts, default=0), max(counts, default=0)
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"
