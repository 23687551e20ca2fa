"""Comparison of the methods of sweeps and runs."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np

from auxlearn.comparison.folds import compare_folds
from auxlearn.comparison.formats import Comparison
from auxlearn.comparison.methods import Method, joined_folds, methods_of, renamed
from auxlearn.comparison.power import minimum_detectable_difference
from auxlearn.comparison.restarts import Restarts, mean_restarts, restarts_of
from auxlearn.comparison.result import (
    AVERAGE,
    Block,
    DatasetRuns,
    MetricComparison,
    RankComparison,
    methods_in,
)
from auxlearn.comparison.runs import NamedRuns, Setting, named_runs
from auxlearn.comparison.scores import Predictions, read_predictions, scores_and_covariance
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
from auxlearn.core.arguments import RestartCount, UserPath, checked
from auxlearn.core.errors import ConfigError, SweepError, UserError, did_you_mean, shorten
from auxlearn.core.validation import Option
from auxlearn.kinds.metrics import metric_of, sign
from auxlearn.results.record import RunResults
from auxlearn.sweeps.published import named_by_sweep, read_published


@checked
def compare(
    *folders: UserPath,
    metrics: Annotated[Sequence[str], Option("METRIC", "--metric")] = (),
    sets: Annotated[Sequence[str], Option("SET", "--set")] = (),
    methods: Annotated[Sequence[str], Option("NAME", "--method")] = (),
    without: Annotated[Sequence[str], Option("NAME")] = (),
    names: Annotated[Mapping[str, str] | Sequence[str], Option("OLD=NEW", "--name")] = (),
    against: Annotated[str | None, Option("NAME")] = None,
    published: Annotated[str | None, Option("NAME")] = None,
    restarts: RestartCount = None,
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
    return compare_runs(
        named_runs(folders),
        metrics=metrics,
        sets=sets,
        methods=methods,
        without=without,
        names=names,
        against=against,
        published=published,
        restarts=restarts,
        power=power,
    )


def compare_runs(
    runs: NamedRuns,
    *,
    metrics: Sequence[str] = (),
    sets: Sequence[str] = (),
    methods: Sequence[str] = (),
    without: Sequence[str] = (),
    names: Mapping[str, str] | Sequence[str] = (),
    against: str | None = None,
    published: str | None = None,
    restarts: int | None = None,
    power: bool = False,
) -> Comparison:
    """Compare the methods of runs that have been read; for Args see :func:`compare`."""
    for metric in metrics:
        metric_of(metric)
    grouped: dict[Setting, list[DatasetRuns]] = defaultdict(list)
    for setting, members in joined_folds(renamed(methods_of(runs), names)).items():
        shared = tuple(pair for pair in setting if pair[0] != "dataset")
        grouped[shared].append(DatasetRuns(dict(setting), members))
    every = [data for group in grouped.values() for data in group]
    known = list(dict.fromkeys(method.name for data in every for method in data.methods))
    _check_names("method", [*methods, *without], known)
    shown = [name for name in methods or known if name not in without]
    _check_names("method", [] if against is None else [against], shown)
    blocks: list[Block] = []
    left_out: list[str] = []
    for shared, group in grouped.items():
        chosen = [data.only(shown) for data in group]
        chosen = [data for data in chosen if any(method.runs for method in data.methods)]
        by = list(dict.fromkeys(metrics)) or [dict(shared).get("metric", "accuracy")]
        columns = []
        for data in chosen:
            found = list(_columns(data, by, sets, against, restarts, power))
            columns += found
            if not found:
                where = f" on {', '.join(sets)}" if sets else ""
                left_out.append(f"{data.name} is left out: its runs have no {', '.join(by)}{where}")
        if columns:
            blocks.append(_block(dict(shared), chosen, columns))
    evaluated = {name for data in every for method in data.methods for name in method.sets}
    _check_names("evaluation set", sets, evaluated)
    compared = {column.metric for block in blocks for column in block.columns}
    missing = [metric for metric in metrics if metric not in compared]
    if missing or not blocks:
        wanted = ", ".join(missing or [*sets, *methods]) or "the methods that are left"
        raise SweepError(f"there are no scores for {wanted}: choose what the runs have")
    if restarts and not any(column.restarts for block in blocks for column in block.columns):
        raise ConfigError("restarts: there is no method without auxiliary tasks here to restart")
    notes = [*runs.notes, *left_out, *_unknown_labels(blocks), *_mixed_threads(blocks)]
    if published is None and runs.published:
        published = named_by_sweep(*runs.published)
        if published is None:
            notes.append(
                f"published results outside of the folder of the sweep are not read: name "
                f"{shorten(runs.published[0], 200)} by --published"
            )
    results, source = read_published(published) if published is not None else ([], "")
    return Comparison(blocks, against, runs.chosen_axes, results, source, notes, restarts)


def _unknown_labels(blocks: Sequence[Block]) -> list[str]:
    """Return how many examples of each set have labels that the models do not know."""
    counts = {
        (data.setting.get("dataset", ""), name): evaluation
        for block in blocks
        for data in block.datasets
        for method in data.methods
        for results in method.results.values()
        for name, evaluation in results.evaluations.items()
        if evaluation.unknown_labels and name != "dev"
    }
    return [
        f"{' '.join(place)}: the label of {evaluation.unknown_labels} of "
        f"{evaluation.all.examples} examples is unknown to the models; they count as wrong"
        for place, evaluation in counts.items()
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


def _columns(
    data: DatasetRuns,
    metrics: Sequence[str],
    sets: Sequence[str],
    against: str | None,
    restarts: int | None,
    power: bool,
) -> Iterator[MetricComparison]:
    """Yield the columns of a data set: of the given sets, or of all but dev beside test."""
    if data.folds and (restarts or power):
        name = "restarts" if restarts else "power"
        raise ConfigError(f"{name}: the folds of a cross-validation are no seeds: leave it out")
    evaluated = dict.fromkeys(name for method in data.methods for name in method.sets)
    in_order = sorted(evaluated, key=lambda name: (name == "dev") - (name == "test"))
    default = [name for name in in_order if name != "dev" or "test" not in evaluated]
    for name in dict.fromkeys(sets) if sets else default:
        if name not in evaluated:
            continue
        for column in (compare_folds if data.folds else _compare_on)(data, name, metrics, against):
            yield replace(
                column,
                restarts=_restarts(column, data, restarts) if restarts else {},
                detectable=_detectable(column, against) if power else math.nan,
            )


def _block(
    setting: Mapping[str, str],
    datasets: Sequence[DatasetRuns],
    columns: Sequence[MetricComparison],
) -> Block:
    """Return columns with the averages over data sets of those that have every data set."""
    methods = list(dict.fromkeys(method.name for data in datasets for method in data.methods))
    across = []
    for name, metric in dict.fromkeys((column.set, column.metric) for column in columns):
        members = [column for column in columns if (column.set, column.metric) == (name, metric)]
        complete = [m for m in methods if all(m in column.complete for column in members)]
        if len(members) == len(datasets) > 1 and complete:
            across.append(_across(members, complete))
    averages = [ranks.average for ranks in across]
    return Block(setting, datasets, methods, [*columns, *averages], across)


def _restarts(column: MetricComparison, runs: DatasetRuns, count: int) -> dict[str, Restarts]:
    """Return the best of several seeds of every method without auxiliary tasks."""
    restarts = {}
    for method in runs.methods:
        by_seed = column.scores.get(method.name, {})
        if not by_seed or any(method.results[seed].config["aux"] for seed in by_seed):
            continue
        if len(by_seed) <= count:
            raise ConfigError(
                f"restarts: the best of {count} seeds takes at least {count + 1}, and "
                f"'{method.name}' has {len(by_seed)} on {column.dataset} {column.set}: train more "
                "seeds, or ask for fewer restarts"
            )
        checkpoints = [method.results[seed].best for seed in by_seed]
        dev = [sign(best.metric) * best.value for best in checkpoints]
        restarts[method.name] = restarts_of(dev, list(by_seed.values()), count)
    return restarts


def _compare_on(
    runs: DatasetRuns, name: str, metrics: Sequence[str], against: str | None
) -> list[MetricComparison]:
    predictions, places = read_predictions([m for m in runs.methods if name in m.sets], name)
    return [
        _compare_by(runs.name, name, metric, predictions, places, against)
        for metric in metrics
        if predictions.knows(metric)
    ]


def _compare_by(
    dataset: str,
    name: str,
    metric: str,
    predictions: Predictions,
    places: Mapping[tuple[str, int], int],
    against: str | None,
) -> MetricComparison:
    values, covariance = scores_and_covariance(predictions, metric)
    scores: dict[str, dict[int, float]] = defaultdict(dict)
    for (method, seed), place in places.items():
        scores[method][seed] = float(values[place])
    column = Column(scores, places, covariance, predictions.examples, sign(metric))
    return MetricComparison(
        dataset=dataset,
        set=name,
        metric=metric,
        scores=dict(scores),
        means={m: float(np.mean(list(by_seed.values()))) for m, by_seed in scores.items()},
        noises={m: noise_of(column, {m: 1.0}, list(by_seed)) for m, by_seed in scores.items()},
        pairs=tuple(compare_methods(column, against if against in scores else None)),
        examples=predictions.examples,
    )


def example_intervals(results: RunResults, name: str) -> dict[str, tuple[float, float]]:
    """Return the 95% interval over examples of a run's scores; empty without predictions."""
    assert results.folder is not None
    method = Method("run", runs={0: results.folder}, results={0: results})
    try:
        predictions, places = read_predictions([method], name)
    except UserError:
        return {}
    ends: dict[str, tuple[float, float]] = {}
    for metric in results.evaluations[name].all.metrics:
        column = _compare_by("", name, metric, predictions, places, None)
        if not math.isnan(column.noises["run"].half_width()):
            ends[metric] = column.interval("run")
    return ends


def _detectable(column: MetricComparison, against: str | None) -> float:
    """Return the minimum detectable difference; NaN for a single method."""
    methods = len(column.scores)
    if methods < 2:
        return math.nan
    one_sided = against in column.scores
    return minimum_detectable_difference(column.pairs, methods, column.examples, one_sided)


def _across(columns: Sequence[MetricComparison], methods: Sequence[str]) -> RankComparison:
    first, datasets = columns[0], [column.dataset for column in columns]
    better = sign(first.metric)
    ranks = rank_methods({m: [better * column.means[m] for column in columns] for m in methods})
    average = MetricComparison(
        dataset=f"{AVERAGE} of data sets" if AVERAGE in datasets else AVERAGE,
        set=first.set,
        metric=first.metric,
        scores={m: _mean_by_seed([column.scores[m] for column in columns]) for m in methods},
        means={m: float(np.mean([column.means[m] for column in columns])) for m in methods},
        noises={m: mean_noise([column.noises[m] for column in columns]) for m in methods},
        pairs=tuple(_average_pairs(columns, methods)),
        examples=sum(column.examples for column in columns),
        averaged=True,
        restarts={
            m: mean_restarts([column.restarts[m] for column in columns])
            for m in first.restarts
            if all(m in column.restarts for column in columns)
        },
    )
    records = wins(methods, [column.pairs for column in columns])
    return RankComparison(first.set, first.metric, ranks, records, average)


def _mean_by_seed(scores: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the mean over data sets of each seed that all of them have."""
    common = sorted(set(scores[0]).intersection(*scores))
    return {seed: float(np.mean([by_seed[seed] for by_seed in scores])) for seed in common}


def _average_pairs(columns: Sequence[MetricComparison], methods: Sequence[str]) -> list[Pair]:
    """Compare averages: the runs and examples of different data sets are independent."""
    by_names = [{pair.names: pair for pair in column.pairs} for column in columns]
    averages = []
    for a, b in itertools.combinations(methods, 2):
        names = frozenset((a, b))
        if any(names not in pairs for pairs in by_names):
            continue
        pairs = [of_column[names] for of_column in by_names]
        difference = float(np.mean([p.difference * (1 if p.first == a else -1) for p in pairs]))
        beats = float(np.mean([p.beats if p.first == a else 1 - p.beats for p in pairs]))
        if sign(columns[0].metric) * difference < 0:
            a, b, difference, beats = b, a, -difference, 1 - beats
        noise = mean_noise([pair.noise for pair in pairs])
        seeds = min(pair.seeds for pair in pairs)
        averages.append(make_pair(a, b, seeds, difference, beats, noise))
    return correct(averages)
