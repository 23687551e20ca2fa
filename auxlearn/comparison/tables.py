"""The tables of a comparison, and what notes and legend say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from auxlearn.comparison.methods import Method
from auxlearn.comparison.power import POWER
from auxlearn.comparison.result import Block, ComparisonData, MetricComparison, RankComparison
from auxlearn.comparison.scores import metric_title
from auxlearn.comparison.statistics import ALPHA, MINIMUM_SEEDS, Pair
from auxlearn.core.errors import ConfigError, describe
from auxlearn.core.metric_names import ERRORS
from auxlearn.results.tables import Cell, Grid

#: What tables can show besides scores.
SHOW = ("seeds", "epochs", "minutes", "pairs")
#: Marks a score that may be as good as the best, or as that of the method compared with.
SAME = "≈"
#: Mark scores that are significantly better or worse than that of the method compared with.
BETTER, WORSE = "▲", "▼"


@dataclass(frozen=True)
class Layout:
    """What tables look like."""

    decimals: int = 1  # of scores in percent, 0 to 6
    show: tuple[str, ...] = ()  # what to add to the scores, of SHOW

    def __post_init__(self) -> None:
        if not isinstance(self.decimals, Integral) or not 0 <= self.decimals <= 6:
            raise ConfigError(f"decimals: {describe(self.decimals)} is no number from 0 to 6")
        for name in self.show:
            if name not in SHOW:
                raise ConfigError(f"show: there is no '{name}': known: {', '.join(SHOW)}")

    def score(self, value: float, metric: str, sign: str = "") -> str:
        """Return a score in percent; that of an error in the unit of the labels."""
        if metric in ERRORS:
            return f"{value:{sign}z.{self.decimals + 2}f}"
        return f"{100 * value:{sign}z.{self.decimals}f}"  # z: no -0.0


def score_grid(block: Block, layout: Layout, against: str | None) -> Grid:
    """Lay out methods by data sets, sets and metrics; below a rule, what is no method."""
    heads = [("", "method"), *_heads(block)]
    seeds = "seeds" in layout.show or len(_seed_counts(block)) > 1
    extra = [name for name in ("epochs", "minutes") if name in layout.show]
    if seeds:
        heads.insert(1, ("", "runs" if block.folds else "seeds"))
    heads += [("", "epochs to best" if name == "epochs" else name) for name in extra]

    def line(name: str, count: str, scores: list[Cell], times: list[Cell]) -> list[Cell]:
        return [Cell(name), *([Cell(count)] if seeds else []), *scores, *times]

    lines: list[list[Cell]] = []
    rules: list[int] = []
    for name in block.methods:
        runs = block.runs_of(name)
        scores = [_score(column, name, layout, against) for column in block.columns]
        times = [_mean(runs, one) for one in extra]
        lines.append(line(name, _span([len(one.runs) for one in runs]), scores, times))
    for name in block.methods:
        known = [column.restarts[name] for column in block.columns if name in column.restarts]
        if known:
            rules = rules or [len(lines)]
            scores = [_best_of(column, name, layout) for column in block.columns]
            minutes = _mean(block.runs_of(name), "minutes", known[0].count)  # of all of them
            times = [minutes if one == "minutes" else Cell("") for one in extra]
            count = _span([one.seeds for one in known])
            lines.append(line(known[0].name(name), count, scores, times))
    if not all(math.isnan(column.detectable) for column in block.columns):
        rules.append(len(lines))
        found = [_detectable(column, layout) for column in block.columns]
        lines.append(line("detectable", "", found, [Cell("")] * len(extra)))
    return Grid(heads, lines, rules)


def rank_grid(found: RankComparison, layout: Layout) -> Grid:
    """Lay out the comparison across data sets, best average rank first."""
    heads = ["method", "average rank", "wins/ties/losses", "average", "95% interval"]
    lines = []
    for name in sorted(found.ranks.ranks, key=lambda name: found.ranks.ranks[name]):
        mean, half = found.average.means[name], found.average.noises[name].half_width()
        low, middle, high = (
            layout.score(value, found.metric) for value in (mean - half, mean, mean + half)
        )
        rank, record = f"{found.ranks.ranks[name]:.2f}", "/".join(map(str, found.records[name]))
        lines.append([name, rank, record, middle, f"{low} to {high}"])
    return Grid.of(heads, lines)


def rank_notes(found: RankComparison) -> list[str]:
    lines = ["Wins, ties and losses against other methods: significant differences on data sets."]
    if not math.isnan(found.ranks.p_friedman):
        lines.append(
            f"Friedman's test over data sets: p = {p_text(found.ranks.p_friedman)}. Nemenyi's "
            f"critical difference of average ranks: {found.ranks.critical_difference:.2f}."
        )
    if found.ranks.datasets < 5:
        lines.append("Tests over data sets have little power with fewer than five of them.")
    return lines


def pair_grid(column: MetricComparison, layout: Layout) -> Grid:
    heads = ["pair", "difference", "95% interval", "P(first beats second)", "p (Holm)"]
    lines: list[list[str | Cell]] = []
    for pair in sorted(column.pairs, key=lambda pair: (pair.p, -abs(pair.difference))):
        difference, low, high = (
            layout.score(value, column.metric, "+")
            for value in (pair.difference, pair.low, pair.high)
        )
        lines.append(
            [
                f"{pair.first} - {pair.second}",
                difference,
                "-" if math.isnan(pair.low) else f"{low} to {high}",
                f"{pair.beats:.2f}",
                Cell(p_text(pair.p), best=pair.significant),
            ]
        )
    return Grid.of(heads, lines)


def matrix_grid(column: MetricComparison, layout: Layout) -> Grid:
    """Lay out a significance matrix: the score of the line minus that of the column."""
    by_names = {pair.names: pair for pair in column.pairs}

    def cell(row: str, name: str) -> Cell:
        pair = by_names.get(frozenset((row, name)))
        if pair is None:
            return Cell("")
        value = pair.difference if pair.first == row else -pair.difference
        return Cell(layout.score(value, column.metric, "+"), best=pair.significant)

    names = list(column.scores)
    lines = [[Cell(row), *(cell(row, name) for name in names)] for row in names]
    return Grid.of(["row - column", *names], lines)


def column_title(column: MetricComparison) -> str:
    return f"{column.dataset}, {column.set} {metric_title(column.metric)}"


@dataclass(frozen=True)
class Part:
    """A table of a comparison with what is said of it."""

    title: str
    grid: Grid
    caption: str = ""  # what its numbers are, in one sentence; "" where the title says it
    notes: Sequence[str] = ()  # what a reader must know, one sentence each
    marks: str = ""  # what the marks in it mean; "" without any
    matrix: Grid | None = None  # the same as a matrix of methods

    @property
    def line(self) -> str:
        return ". ".join(filter(None, [self.title, self.caption]))


def parts(comparison: ComparisonData, block: Block, layout: Layout) -> Iterator[Part]:
    """Yield the tables of a block: scores, ranks across data sets, and pairs if asked for."""
    yield Part(
        block.title,
        score_grid(block, layout, comparison.against),
        caption(block),
        block_notes(block),
        marks(comparison, block),
    )
    for found in block.across:
        title = f"Across {found.ranks.datasets} data sets: {found.set} {metric_title(found.metric)}"
        yield Part(title, rank_grid(found, layout), notes=rank_notes(found))
    for column in block.columns if "pairs" in layout.show else ():
        if column.pairs:
            matrix = matrix_grid(column, layout)
            yield Part(column_title(column), pair_grid(column, layout), matrix=matrix)


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
    seeds = _span(counts)
    unit = "fold" if block.folds else "seed"
    several = max(counts) > 1
    spread = f"mean ± standard deviation over {seeds} {unit}s" if several else f"one {unit}"
    errors = [metric_title(metric) for metric in metrics if metric in ERRORS]
    unit = " in percent" if len(errors) < len(metrics) else " in the unit of the labels"
    if 0 < len(errors) < len(metrics):
        unit += f" ({', '.join(errors)} in the unit of the labels)"
    return f"{what[:1].upper()}{what[1:]}{unit}{where}, {spread}."


def marks(comparison: ComparisonData, block: Block) -> str:
    """Return what the marks in a table mean, in one sentence."""
    if len(block.methods) < 2:
        return ""
    if comparison.against in block.methods:
        return (
            f"{BETTER} {WORSE}: significantly better or worse than {comparison.against}; "
            f"{SAME}: not significantly different from it."
        )
    lacking = any(column.incomplete for column in block.columns)
    best = "Best of the methods with all folds in bold" if lacking else "Best in bold"
    return f"{best}; {SAME}: not significantly worse than the best."


def legend(comparison: ComparisonData, layout: Layout) -> list[str]:
    """Return how differences were tested and what was chosen, one sentence each."""
    lines = []
    tested = [block for block in comparison.blocks if len(block.methods) > 1]
    family = f"with {comparison.against}" if comparison.against else "of two methods"
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
    columns = [column for block in comparison.blocks for column in block.columns]
    if not all(math.isnan(column.detectable) for column in columns):
        lines.append(
            "Detectable: if one method is truly better than all others by this much, its "
            f"difference from another is significant with probability {POWER:g}."
        )
    if comparison.restarts:
        lines.append(
            f"Control (no method): {comparison.restarts} runs with different seeds, of which the "
            "best by dev is kept, at the cost of all of them: the mean score over all subsets of "
            "the seeds, with its standard error over seeds (jackknife). Nothing is tested against "
            "it."
        )
    if comparison.chosen:
        lines.append(
            f"{', '.join(comparison.chosen)}: chosen on dev by the mean over seeds; scores on "
            "other sets were read for the chosen value only."
        )
    return lines


def block_notes(block: Block) -> list[str]:
    """Return the notes under a table: chosen values, missing seeds, runs that say little."""
    notes = []
    several = len(block.datasets) > 1
    for data in block.datasets:
        for method in data.methods:
            who = f"{method.name} on {data.name}" if several else method.name
            if method.chosen and method.runs:
                values = ", ".join(f"{axis} {value}" for axis, value in method.chosen.items())
                notes.append(f"{who}: {values} (chosen on dev)")
            every = range(1, block.folds + 1)
            if method.runs and (absent := [fold for fold in every if fold not in method.folds]):
                which = _numbered("fold", absent)
                notes.append(f"{who}: no scores for {which}, which do not enter the mean")
            parts = {f", fold {fold}": one for fold, one in sorted(method.folds.items())}
            for fold, part in (parts or {"": method}).items():
                for reason in dict.fromkeys(part.missing.values()):
                    missing = [s for s, why in sorted(part.missing.items()) if why == reason]
                    what = _numbered("seed", missing)
                    notes.append(f"{who}{fold}: no scores for {what} ({reason})")
            degenerate = sum(found.degenerate is not None for found in method.results.values())
            if degenerate:
                notes.append(
                    f"{who}: degenerate for {degenerate} of {len(method.runs)} "
                    f"{'runs' if method.folds else 'seeds'} (predictions for dev no better than "
                    "chance)"
                )
            shares = [
                [weight for name, weight in one.weights.items() if name != "primary"]
                for one in method.results.values()
            ]
            unused = sum(bool(of_tasks) and not any(of_tasks) for of_tasks in shares)
            if unused:
                notes.append(
                    f"{who}: no auxiliary task applied at the end in {unused} of "
                    f"{len(method.runs)} runs (all weights but that of the primary task are 0)"
                )
        folds = {fold for method in data.methods for fold in method.folds}
        for column in block.columns:
            absent = sorted(folds.difference(*column.scores.values()))
            if absent and ":" in column.metric and column.dataset == data.name:
                notes.append(
                    f"{column_title(column)}: no example of the class in "
                    f"{_numbered('fold', absent)}, which do not enter the mean"
                )
    tested = [one for one in block.columns if not block.folds or one.set == "test"]
    seeds = (pair.seeds for column in tested for pair in column.pairs)
    fewest = min(seeds, default=MINIMUM_SEEDS)
    if fewest < MINIMUM_SEEDS:
        unit = "fold" if block.folds else "seed"
        notes.append(
            f"where two methods have {fewest} {unit}{'s' * (fewest != 1)} in common, no difference "
            f"is significant, however large: at least {MINIMUM_SEEDS} are needed"
        )
    return notes


def _numbered(what: str, numbers: Sequence[int]) -> str:
    return f"{what}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _heads(block: Block) -> list[tuple[str, str]]:
    several_sets = len({column.set for column in block.columns}) > 1
    several_metrics = len({column.metric for column in block.columns}) > 1
    alone = len(block.datasets) == 1
    neither = alone and not several_sets and not several_metrics
    heads = []
    for column in block.columns:
        parts = [column.set] if several_sets or neither else []
        parts += [metric_title(column.metric)] if several_metrics or neither else []
        heads.append(("" if alone else column.dataset, " ".join(parts)))
    return heads


def _score(column: MetricComparison, name: str, layout: Layout, against: str | None) -> Cell:
    if name not in column.scores:
        return Cell("-")
    count = len(column.scores[name])
    show_sd = count > 1 and not column.averaged
    spread = layout.score(column.sd(name), column.metric) if show_sd else ""
    mean = layout.score(column.means[name], column.metric)
    if against in column.scores:
        pair = next((one for one in column.pairs if name in one.names), None)
        return Cell(mean, spread, False, "" if name == against else _mark(pair, name))
    pair = next((one for one in column.pairs if one.names == {name, column.best}), None)
    tie = "" if pair is None or pair.significant else _mark(pair, name)
    return Cell(mean, spread, len(column.scores) > 1 and name == column.best, tie)


def _mark(pair: Pair | None, name: str) -> str:
    if pair is None or pair.seeds < MINIMUM_SEEDS:  # nothing was tested
        return ""
    if not pair.significant:
        return SAME
    return BETTER if pair.first == name else WORSE


def _best_of(column: MetricComparison, name: str, layout: Layout) -> Cell:
    """Lay out the expected score of the best of several seeds."""
    if name not in column.restarts:
        return Cell("-")
    best = column.restarts[name]
    mean, error = (layout.score(value, column.metric) for value in (best.mean, best.error))
    return Cell(f"{mean} (s.e. {error})")


def _detectable(column: MetricComparison, layout: Layout) -> Cell:
    found = column.detectable
    if math.isfinite(found):
        return Cell(layout.score(found, column.metric))
    return Cell("" if math.isnan(found) else "none")


def _mean(runs: Sequence[Method], what: str, times: int = 1) -> Cell:
    values = [value for one in runs for value in one.by_seed(what).values()]
    return Cell(f"{times * float(np.mean(values)):.1f}" if values else "-")


def _seed_counts(block: Block) -> list[int]:
    """Return the different numbers of seeds of the scores, ascending."""
    columns = [column for column in block.columns if not column.averaged]
    return sorted({len(by_seed) for column in columns for by_seed in column.scores.values()})


def _span(counts: Sequence[int]) -> str:
    lowest, highest = min(counts, default=0), max(counts, default=0)
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"
