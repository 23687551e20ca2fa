"""Regret and harm: pure functions of records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from auxlearn.comparison.statistics import MINIMUM_SEEDS
from benchmarks.regret.plan import ALPHAS, FIXED, SINGLE
from benchmarks.regret.records import Record


@dataclass(frozen=True)
class Outcome:
    """A method with a task in a setting; scores are 0 to 1.

    Attributes:
        setting: Name of the setting.
        task: The auxiliary task.
        method: Name of the method.
        seeds: Seeds of the method.
        test: Test score, mean over seeds.
        deviation: Its sample standard deviation; ``None`` with one seed.
        single: Test score of the single task, mean over the seeds that both have; ``None`` without
            such seeds.
        single_deviation: Its sample standard deviation; ``None`` with fewer than two such seeds.
        difference: Test score minus that of the single task, mean over these seeds.
        error: Its standard error, paired by seed; ``None`` with fewer than
            :data:`~auxlearn.comparison.statistics.MINIMUM_SEEDS` seeds or without spread.
        grid: Test score of every fixed share, over the seeds that all shares have; empty if one
            of them is missing.
        grid_seeds: How many seeds these are.
        alpha: The best fixed auxiliary share on dev; ``None`` if the grid has gaps.
        best: Its test score, over the seeds that the method has.
        regret: ``best`` minus the method's test score of the same seeds.
        constant: Runs that predict one class for every test example.
        worsened: Those of them whose seed predicts several classes as a single task.
        time: Training time over that of fixed weights of the same seed, median.
        step_time: The same of one optimizer step.
        share: Auxiliary share of the weights at the end, mean.
        weights: Weight of each objective at the end, mean.
        settled: Share of the steps after which the weights stay within .05 of their end, median.
    """

    setting: str
    task: str
    method: str
    seeds: int
    test: float
    deviation: float | None
    single: float | None
    single_deviation: float | None
    difference: float | None
    error: float | None
    grid: Mapping[float, float]
    grid_seeds: int
    alpha: float | None
    best: float | None
    regret: float | None
    constant: int
    worsened: int
    time: float | None
    step_time: float | None
    share: float | None
    weights: Mapping[str, float]
    settled: float | None

    @property
    def errors_below(self) -> float | None:
        """How many standard errors the method is below the single task."""
        if self.difference is None or self.error is None:
            return None
        # Where a single seed differs, mean and standard error are equal but for rounding.
        return round(-self.difference / self.error, 9)


@dataclass(frozen=True)
class Summary:
    """A method with a task over settings.

    Attributes:
        method: Name of the method.
        task: The auxiliary task.
        settings: Settings in which it can be compared with the single task.
        difference: Mean over settings of its test score minus that of the single task.
        difference_error: Standard error over settings; ``None`` with fewer than two.
        worst: The largest number of standard errors below the single task.
        below_one: Settings in which it is below by more than one standard error.
        below_two: By more than two.
        with_error: Settings that have a standard error.
        worsened: Runs that predict one class where the single task does not.
        runs: Runs.
        regrets: Settings that have a regret.
        regret: Mean over these settings.
        regret_error: Its standard error over settings; ``None`` with fewer than two.
        time: Median over settings, over fixed weights.
        step_time: The same of one optimizer step.
        settled: Median over settings.
    """

    method: str
    task: str
    settings: int
    difference: float | None
    difference_error: float | None
    worst: float | None
    below_one: int
    below_two: int
    with_error: int
    worsened: int
    runs: int
    regrets: int
    regret: float | None
    regret_error: float | None
    time: float | None
    step_time: float | None
    settled: float | None


@dataclass(frozen=True)
class Difference:
    """A method beside another with the same task in a setting.

    Attributes:
        setting: Name of the setting.
        task: The auxiliary task.
        method: Name of the method.
        seeds: Seeds that both have.
        mean: Its test score minus that of the other, mean over these seeds.
        error: Its standard error, paired by seed; ``None`` as of :func:`paired`.
    """

    setting: str
    task: str
    method: str
    seeds: int
    mean: float
    error: float | None


#: Records by seed.
BySeed = Mapping[int, Record]


def best_alpha(grid: Mapping[float, BySeed]) -> tuple[float, list[int]] | None:
    """Return the fixed share with the highest mean on dev, and the seeds it was chosen by.

    Only seeds that every share has count; of equal means the smallest share wins. ``None`` if a
    share of the grid is missing or no seed has them all.
    """
    if set(grid) != {0.0, *ALPHAS}:
        return None
    seeds = sorted(set.intersection(*(set(records) for records in grid.values())))
    if not seeds:
        return None
    means = {alpha: fmean(records[s].dev for s in seeds) for alpha, records in grid.items()}
    return max(sorted(means), key=lambda alpha: means[alpha]), seeds


def paired(first: Sequence[float], second: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean of ``first - second`` and its standard error.

    Args:
        first: One value for each seed, at least one.
        second: The same seeds in the same order.

    Returns:
        ``None`` as the error with fewer than :data:`MINIMUM_SEEDS` seeds, whose spread says
        nothing, or where all differences are equal.
    """
    differences = [a - b for a, b in zip(first, second, strict=True)]
    error = standard_error(differences) if len(differences) >= MINIMUM_SEEDS else None
    # Equal differences leave a spread of rounding errors.
    return fmean(differences), None if error is None or error < 1e-12 else error


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of a mean; ``None`` for fewer than two values."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def outcomes(records: Iterable[Record]) -> list[Outcome]:
    """Return the outcome of every method with every task in every setting.

    The single task and the fixed shares are among the methods: their regret is that of always
    training so.
    """
    singles: dict[str, dict[int, Record]] = {}
    by_method: dict[tuple[str, str], dict[str, dict[int, Record]]] = {}
    for record in records:
        if record.method == SINGLE:
            singles.setdefault(record.setting, {})[record.seed] = record
        else:
            methods = by_method.setdefault((record.setting, record.task), {})
            methods.setdefault(record.method, {})[record.seed] = record
    found = []
    for (setting, task), methods in by_method.items():
        single = singles.get(setting, {})
        grid: dict[float, BySeed] = {0.0: single} if single else {}
        for one in methods.values():
            alpha = next(iter(one.values())).alpha
            if alpha is not None:
                grid[alpha] = one
        contestants = {SINGLE: single, **methods} if single else methods
        for name, one in contestants.items():
            found.append(_outcome(setting, task, name, one, single, grid))
    return found


def differences(records: Iterable[Record], other: str) -> list[Difference]:
    """Compare every rule with another one, in each setting and with each task.

    Args:
        records: Finished trials.
        other: The rule that is subtracted.

    Returns:
        None for the single task, the fixed shares and the other rule itself.
    """
    by_method: dict[tuple[str, str, str], dict[int, float]] = {}
    for record in records:
        if is_rule(record.method):
            name = (record.setting, record.task, record.method)
            by_method.setdefault(name, {})[record.seed] = record.test
    found = []
    for (setting, task, method), tests in by_method.items():
        others = by_method.get((setting, task, other), {})
        both = sorted(set(tests) & set(others))
        if method != other and both:
            mean, error = paired([tests[seed] for seed in both], [others[seed] for seed in both])
            found.append(Difference(setting, task, method, len(both), mean, error))
    return found


def _outcome(
    setting: str,
    task: str,
    name: str,
    records: BySeed,
    single: BySeed,
    grid: Mapping[float, BySeed],
) -> Outcome:
    chosen = best_alpha(grid)
    alpha, best, regret = None, None, None
    by_share: dict[float, float] = {}
    if chosen is not None:
        for one, by_seed in sorted(grid.items()):
            by_share[one] = fmean(by_seed[seed].test for seed in chosen[1])
        seeds = [seed for seed in chosen[1] if seed in records]
        if seeds:
            alpha = chosen[0]
            best = fmean(grid[alpha][seed].test for seed in seeds)
            regret = best - fmean(records[seed].test for seed in seeds)
    tests = [record.test for record in records.values()]
    both = sorted(set(single) & set(records))
    references = [single[seed].test for seed in both]
    difference, error = None, None
    if both:
        difference, error = paired([records[seed].test for seed in both], references)
    constant = [seed for seed, record in records.items() if record.constant]
    fixed = [one for share, one in grid.items() if share > 0]
    shares = [one.share for one in records.values() if one.share is not None]
    rests = [one.settled for one in records.values() if one.settled is not None]
    return Outcome(
        setting=setting,
        task=task,
        method=name,
        seeds=len(records),
        test=fmean(tests),
        deviation=stdev(tests) if len(tests) > 1 else None,
        single=fmean(references) if references else None,
        single_deviation=stdev(references) if len(references) > 1 else None,
        difference=difference,
        error=error,
        grid=by_share,
        grid_seeds=len(chosen[1]) if chosen else 0,
        alpha=alpha,
        best=best,
        regret=regret,
        constant=len(constant),
        worsened=sum(seed in single and not single[seed].constant for seed in constant),
        time=_over_fixed(records, fixed, lambda record: record.seconds),
        step_time=_over_fixed(records, fixed, lambda record: record.seconds / record.steps),
        share=fmean(shares) if shares else None,
        weights=_mean_weights(records.values()),
        settled=median(rests) if rests else None,
    )


def _mean_weights(records: Iterable[Record]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for record in records:
        for name, weight in record.weights.items():
            found.setdefault(name, []).append(weight)
    return {name: fmean(values) for name, values in found.items()}


def _over_fixed(
    records: BySeed, fixed: Sequence[BySeed], value: Callable[[Record], float]
) -> float | None:
    ratios = []
    for seed, record in records.items():
        beside = [value(one[seed]) for one in fixed if seed in one]
        if beside:
            ratios.append(value(record) / fmean(beside))
    return median(ratios) if ratios else None


def summaries(found: Iterable[Outcome]) -> list[Summary]:
    """Return every method with every task over the settings, in their first order."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in found:
        groups.setdefault((outcome.method, outcome.task), []).append(outcome)
    return [_summary(*names, members) for names, members in groups.items()]


def _summary(method: str, task: str, members: Sequence[Outcome]) -> Summary:
    differences = [o.difference for o in members if o.difference is not None]
    regrets = [o.regret for o in members if o.regret is not None]
    below = [one for o in members if (one := o.errors_below) is not None]

    def middle(attribute: str) -> float | None:
        values = [v for o in members if (v := getattr(o, attribute)) is not None]
        return median(values) if values else None

    return Summary(
        method=method,
        task=task,
        settings=len(differences),
        difference=fmean(differences) if differences else None,
        difference_error=standard_error(differences),
        worst=max(below, default=None),
        below_one=sum(errors > 1 for errors in below),
        below_two=sum(errors > 2 for errors in below),
        with_error=len(below),
        worsened=sum(o.worsened for o in members),
        runs=sum(o.seeds for o in members),
        regrets=len(regrets),
        regret=fmean(regrets) if regrets else None,
        regret_error=standard_error(regrets),
        time=middle("time"),
        step_time=middle("step_time"),
        settled=middle("settled"),
    )


def is_rule(method: str) -> bool:
    """Return whether a method is neither the single task nor a fixed share."""
    return method != SINGLE and not method.startswith(f"{FIXED} ")
