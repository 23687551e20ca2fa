"""Comparison of the methods of sweeps and runs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from auxlearn.comparison.folds import compare_folds
from auxlearn.comparison.formats import html, latex, markdown, pair_rows, score_rows
from auxlearn.comparison.methods import Method, joined_folds, methods_of, renamed
from auxlearn.comparison.power import minimum_detectable_difference
from auxlearn.comparison.restarts import Restarts, mean_restarts, restarts_of
from auxlearn.comparison.result import (
    AVERAGE,
    Block,
    ComparisonData,
    DatasetRuns,
    MetricComparison,
    RankComparison,
    methods_in,
)
from auxlearn.comparison.runs import NamedRuns, Setting, named_runs
from auxlearn.comparison.scores import (
    Predictions,
    check_metric,
    metric_title,
    read_predictions,
    scores_and_covariance,
)
from auxlearn.comparison.statistics import (
    Column,
    Pair,
    compare_methods,
    correct,
    make_pair,
    mean_noise,
    noise_of,
    rank_methods,
    wins,
)
from auxlearn.comparison.tables import Layout
from auxlearn.core.arguments import Count, UserPath, checked
from auxlearn.core.errors import ConfigError, SweepError, UserError, did_you_mean, shorten
from auxlearn.core.files import expand
from auxlearn.core.metric_names import RANGES, sign
from auxlearn.results.record import RunResults
from auxlearn.sweeps.published import named_by_sweep, read_published

if TYPE_CHECKING:
    import pandas as pd


class Comparison(ComparisonData):
    """Comparison of the methods of sweeps and runs; see :class:`ComparisonData` for its content."""

    def __repr__(self) -> str:
        methods = {name for block in self.blocks for name in block.methods}
        sets = {one.name for block in self.blocks for one in block.datasets}
        parts = [f"{len(methods)} methods", f"{len(sets)} data set{'s' * (len(sets) != 1)}"]
        for block in self.blocks[:3]:
            column = block.columns[-1]
            if column.best is not None:
                value = Layout().score(column.means[column.best], column.metric)
                where = f"{metric_title(column.metric)} on {column.dataset} {column.set}"
                parts.append(f"best {where}: {column.best} {value}")
        return f"<Comparison of {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        return html(self)

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each method, data set, evaluation set and metric (0 to 1)."""
        import pandas as pd

        return pd.DataFrame(score_rows(self))

    def pairs_frame(self) -> pd.DataFrame:
        """Return one row for every two methods, with their difference, interval and p-values."""
        import pandas as pd

        return pd.DataFrame(pair_rows(self))

    def to_markdown(self, decimals: int = 1, show: Sequence[str] = ()) -> str:
        """Return the whole comparison in Markdown."""
        return markdown(self, Layout(decimals, tuple(show)))

    def to_latex(self, decimals: int = 1, show: Sequence[str] = ()) -> str:
        """Return the tables in LaTeX, for booktabs; for Args see :meth:`to_markdown`."""
        return latex(self, Layout(decimals, tuple(show)))

    def save(self, folder: str | Path, decimals: int = 1, show: Sequence[str] = ()) -> list[Path]:
        """Write tables and plots into a folder."""
        from auxlearn.comparison.formats import save

        return save(self, expand(folder), Layout(decimals, tuple(show)))


@checked
def compare(
    *folders: UserPath,
    metrics: Sequence[str] = (),
    sets: Sequence[str] = (),
    methods: Sequence[str] = (),
    without: Sequence[str] = (),
    names: Mapping[str, str] | Sequence[str] = (),
    against: str | None = None,
    published: str | None = None,
    restarts: Annotated[Count, Field(ge=2)] | None = None,
    power: bool = False,
) -> Comparison:
    """Compare the methods of sweeps and runs.

    Runs with the same settings but for the seed are one method; methods on the same data set with
    the same encoder are compared with each other. Sweeps and runs need not all have finished; what
    is missing is named.

    Args:
        folders: Folders of sweeps and of runs, or results of them.
        metrics: Metrics of the kind of labels, of single classes also ``weighted_f1`` and ``mcc``,
            and ``f1:LABEL``, ``precision:LABEL`` or ``recall:LABEL`` of a class, a label or a type
            of spans; by default the metric that checkpoints were selected by.
        sets: Evaluation sets; by default test, or dev without a test set, and every
            out-of-distribution set.
        methods: Names of the methods to show, in this order; by default all.
        without: Names of methods to leave out.
        names: New names by the names of methods, data sets and encoders, or texts ``OLD=NEW``; used
            by all other arguments.
        against: Compare every method with this one only; the correction is for these comparisons.
        published: Name or path of published results; by default those that a sweep names, which
            come with the package or are in its folder.
        restarts: Control of equal cost: what the best by dev of this many seeds (at least 2) of
            every method without auxiliary tasks scores on average, as training it so often costs as
            much as a method that trains so many times. There must be more seeds.
        power: Add the minimum detectable difference: how much better than the others a method must
            be to be found out with probability 0.8. It is simulated, which takes seconds.

    Raises:
        UserError: A folder is no sweep or run or is damaged, nothing has finished, a name is not
            there, there are too few seeds, or runs were evaluated on different examples.
    """
    parts = (metrics, sets, methods, without, names, against, published, restarts, power)
    return compare_runs(named_runs(folders), Asked(*parts))


@dataclass(frozen=True)
class Asked:
    """What is asked of a comparison: the parameters of :func:`compare`."""

    metrics: Sequence[str] = ()
    sets: Sequence[str] = ()
    methods: Sequence[str] = ()
    without: Sequence[str] = ()
    names: Mapping[str, str] | Sequence[str] = ()
    against: str | None = None
    published: str | None = None
    restarts: int | None = None
    power: bool = False


def compare_runs(found: NamedRuns, asked: Asked) -> Comparison:
    """Compare the methods of runs that have been read."""
    for metric in asked.metrics:
        check_metric(metric)
    for what, given in (("metric", asked.metrics), ("set", asked.sets)):
        if twice := [one for one in dict.fromkeys(given) if list(given).count(one) > 1]:
            raise ConfigError(f"{what} {shorten(twice[0])} is given twice: leave one of them out")
    against, without, sets, restarts = asked.against, asked.without, asked.sets, asked.restarts
    grouped: dict[Setting, list[DatasetRuns]] = defaultdict(list)
    for setting, members in joined_folds(renamed(methods_of(found), asked.names)).items():
        key = tuple(pair for pair in setting if pair[0] != "dataset")
        grouped[key].append(DatasetRuns(dict(setting), members))
    everyone = {m.name: None for group in grouped.values() for one in group for m in one.methods}
    compared = [] if against is None else [against]
    _check_names("method", [*asked.methods, *without, *compared], everyone)
    chosen = [name for name in asked.methods or everyone if name not in without]
    if against is not None and against not in chosen:
        raise ConfigError(f"'{against}' is left out, so that nothing can be compared with it")
    blocks = []
    for key, group in grouped.items():
        left = []
        for data in group:
            methods = [one for name in chosen for one in data.methods if one.name == name]
            if any(method.runs for method in methods):
                left.append(DatasetRuns(data.setting, methods))
        if left:
            blocks.append(_block(dict(key), left, asked))
    available = {s for block in blocks for one in block.datasets for s in _sets(one)}
    _check_names("evaluation set", sets, available)
    blocks = [block for block in blocks if block.columns]
    if not blocks:
        wanted = ", ".join([*asked.metrics, *sets, *asked.methods]) or "the methods that are left"
        raise SweepError(f"there are no scores for {wanted}: nothing to compare")
    if restarts and not any(column.restarts for block in blocks for column in block.columns):
        raise ConfigError("restarts: there is no method without auxiliary tasks here to restart")
    notes = [*found.notes, *_unknown_labels(blocks), *_mixed_threads(blocks)]
    beside = asked.published
    if not beside and found.published:
        beside = named_by_sweep(*found.published)
        if beside is None:
            notes.append(
                f"published results outside of the folder of the sweep are not read: name "
                f"{shorten(found.published[0], 200)} by --published"
            )
    results, source = read_published(beside) if beside else ([], "")
    return Comparison(blocks, against, found.chosen_axes, results, source, notes, restarts)


def _unknown_labels(blocks: Sequence[Block]) -> list[str]:
    """Return how many examples of each set have labels that the models do not know."""
    counts = {
        (one.setting.get("dataset", ""), name): (evaluation.unknown_labels, evaluation.all.examples)
        for block in blocks
        for one in block.datasets
        for method in one.methods
        for results in method.results.values()
        for name, evaluation in results.evaluations.items()
        if evaluation.unknown_labels and name != "dev"
    }
    return [
        f"{' '.join(place)}: the label of {count} of {total} examples is unknown to the models; "
        "they count as wrong"
        for place, (count, total) in counts.items()
    ]


def _mixed_threads(blocks: Sequence[Block]) -> list[str]:
    """Return how many runs computed with each number of threads, if they differ."""
    runs = {
        results.folder: results.environment.threads
        for method in methods_in(blocks)
        for results in method.results.values()
        if not results.environment.gpus
    }
    counts = Counter(runs.values())
    if len(counts) < 2:
        return []
    shown = ", ".join(f"{count} with {threads}" for threads, count in sorted(counts.items()))
    return [
        f"the runs computed with different numbers of CPU threads ({shown}), which changes the "
        "last digits of sums and may lead training elsewhere: give a sweep one by --threads"
    ]


def _check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no {kind} '{name}': {did_you_mean(name, known)}")


def _sets(runs: DatasetRuns) -> list[str]:
    """Return the names of the evaluation sets of a setting: test, others, dev."""
    every = dict.fromkeys(
        name
        for method in runs.methods
        for results in method.results.values()
        for name in results.evaluations
    )
    return sorted(every, key=lambda name: (name == "dev") - (name == "test"))


def _block(setting: Mapping[str, str], datasets: Sequence[DatasetRuns], asked: Asked) -> Block:
    metrics = asked.metrics or [setting.get("metric", "accuracy")]
    against, sets, restarts = asked.against, asked.sets, asked.restarts
    columns = []
    for runs in datasets:
        found = _sets(runs)
        default = [name for name in found if name != "dev" or "test" not in found]
        for name in [one for one in sets if one in found] if sets else default:
            compare_set = compare_folds if runs.folds else _compare_on
            for column in compare_set(runs, name, metrics, against):
                best = _restarts(column, runs, restarts) if restarts else {}
                detectable = _detectable(column, against) if asked.power else math.nan
                columns.append(replace(column, restarts=best, detectable=detectable))
    methods = list(dict.fromkeys(m.name for runs in datasets for m in runs.methods))
    across = []
    if len(datasets) > 1:
        for name, metric in dict.fromkeys((one.set, one.metric) for one in columns):
            members = [one for one in columns if (one.set, one.metric) == (name, metric)]
            complete = [
                m for m in methods if all(m in {*one.scores} - one.incomplete for one in members)
            ]
            if len(members) == len(datasets) and complete:
                across.append(_across(members, complete, against))
    averages = [one.average for one in across]
    return Block(setting, datasets, methods, [*columns, *averages], across)


def _restarts(column: MetricComparison, runs: DatasetRuns, count: int) -> dict[str, Restarts]:
    """Return the best of several seeds of every method without auxiliary tasks."""
    if runs.folds:
        raise ConfigError(
            "restarts: the folds of a cross-validation are no seeds: leave restarts out"
        )
    found = {}
    for method in runs.methods:
        by_seed = column.scores.get(method.name, {})
        if not by_seed or any(method.results[seed].config["aux"] for seed in by_seed):
            continue
        if len(by_seed) <= count:
            raise ConfigError(
                f"restarts: the best of {count} seeds takes at least {count + 1}, and "
                f"'{method.name}' has {len(by_seed)} on {column.dataset} {column.set}: train more "
                "seeds" + (", or ask for fewer restarts" if len(by_seed) > 2 else "")
            )
        best = [method.results[seed].best for seed in by_seed]
        dev = [sign(one.metric) * one.value for one in best]
        found[method.name] = restarts_of(dev, list(by_seed.values()), count)
    return found


def _compare_on(
    runs: DatasetRuns, name: str, metrics: Sequence[str], against: str | None
) -> list[MetricComparison]:
    found, places = read_predictions([m for m in runs.methods if m.has(name)], name)
    known = [one for one in metrics if found.knows(one)]
    return [_compare_by(runs.name, name, metric, found, places, against) for metric in known]


def _compare_by(
    dataset: str,
    name: str,
    metric: str,
    found: Predictions,
    places: Mapping[tuple[str, int], int],
    against: str | None,
) -> MetricComparison:
    values, covariance = scores_and_covariance(found, metric)
    scores: dict[str, dict[int, float]] = {}
    for (method, seed), place in places.items():
        scores.setdefault(method, {})[seed] = float(values[place])
    column = Column(scores, places, covariance, found.examples, sign(metric))
    one_sided = against if against in scores else None
    pairs = compare_methods(column, one_sided)
    noises = {m: noise_of(column, {m: 1.0}, list(by_seed)) for m, by_seed in scores.items()}
    means = {m: float(np.mean(list(by_seed.values()))) for m, by_seed in scores.items()}
    return MetricComparison(
        dataset, name, metric, scores, means, noises, tuple(pairs), found.examples
    )


def example_intervals(results: RunResults, name: str) -> dict[str, tuple[float, float]]:
    """Return the 95% interval over examples of a run's scores; empty without predictions."""
    assert results.folder is not None
    method = Method("run", runs={0: results.folder}, results={0: results})
    try:
        found, places = read_predictions([method], name)
    except UserError:
        return {}
    ends: dict[str, tuple[float, float]] = {}
    for metric in results.evaluations[name].all.metrics:
        column = _compare_by("", name, metric, found, places, None)
        mean, half = column.means["run"], column.noises["run"].half_width()
        if not math.isnan(half):
            least, most = RANGES.get(metric, (0.0, 1.0))
            ends[metric] = (max(least, mean - half), min(most, mean + half))
    return ends


def _detectable(column: MetricComparison, against: str | None) -> float:
    """Return the minimum detectable difference; NaN over folds and for a single method."""
    methods = len(column.scores)
    if column.by_fold or methods < 2:
        return math.nan
    one_sided = against in column.scores
    return minimum_detectable_difference(column.pairs, methods, column.examples, one_sided)


def _across(
    columns: Sequence[MetricComparison], methods: Sequence[str], against: str | None
) -> RankComparison:
    first, datasets = columns[0], [one.dataset for one in columns]
    better = sign(first.metric)
    ranks = rank_methods({name: [better * one.means[name] for one in columns] for name in methods})
    average = MetricComparison(
        dataset=f"{AVERAGE} of data sets" if AVERAGE in datasets else AVERAGE,
        set=first.set,
        metric=first.metric,
        scores={name: _mean_by_seed([one.scores[name] for one in columns]) for name in methods},
        means={name: float(np.mean([one.means[name] for one in columns])) for name in methods},
        noises={name: mean_noise([one.noises[name] for one in columns]) for name in methods},
        pairs=tuple(_average_pairs(columns, methods)),
        examples=sum(one.examples for one in columns),
        averaged=True,
        restarts={
            name: mean_restarts([one.restarts[name] for one in columns])
            for name in first.restarts
            if all(name in one.restarts for one in columns)
        },
    )
    records = wins(methods, [column.pairs for column in columns])
    return RankComparison(first.set, first.metric, ranks, records, average)


def _mean_by_seed(scores: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the mean over data sets of each seed that all of them have."""
    common = sorted(set(scores[0]).intersection(*scores))
    return {seed: float(np.mean([one[seed] for one in scores])) for seed in common}


def _average_pairs(columns: Sequence[MetricComparison], methods: Sequence[str]) -> list[Pair]:
    """Compare averages: the runs and examples of different data sets are independent."""
    by_names = [{pair.names: pair for pair in column.pairs} for column in columns]
    found = []
    for names in by_names[0]:
        if not names <= set(methods) or any(names not in one for one in by_names):
            continue
        a, b = sorted(names, key=list(methods).index)
        pairs = [one[names] for one in by_names]
        difference = float(np.mean([p.difference * (1 if p.first == a else -1) for p in pairs]))
        beats = float(np.mean([p.beats if p.first == a else 1 - p.beats for p in pairs]))
        if sign(columns[0].metric) * difference < 0:
            a, b, difference, beats = b, a, -difference, 1 - beats
        noise = mean_noise([pair.noise for pair in pairs])
        seeds = min(pair.seeds for pair in pairs)
        found.append(make_pair(a, b, seeds, difference, beats, noise))
    return correct(found)
