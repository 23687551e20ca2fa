"""Regret and harm: pure functions of records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from auxlearn.comparison.statistics import mean_interval
from benchmarks.regret.plan import ALPHAS, FIXED, SINGLE
from benchmarks.regret.records import Record


@dataclass(frozen=True)
class Outcome:
    """A method with a task in a setting; scores are means over seeds, 0 to 1.

    Attributes:
        setting: Name of the setting.
        task: The auxiliary task.
        method: Name of the method.
        seeds: Seeds that all of the compared methods have.
        single: Test score of the single task; ``None`` if it has not been trained.
        alpha: The best fixed auxiliary share on dev; ``None`` if the grid has gaps.
        best: Its test score.
        test: The method's test score.
        regret: ``best - test``.
        harm: ``single - test``.
        harm_paired: Harm in standard errors of the mean difference, paired by seed; ``None`` if
            that has no spread.
        harm_unpaired: Harm in standard errors of the difference of two independent means.
        constant: Runs that predict one class for every test example.
        time: Training time over that of fixed weights of the same seed, median.
        step_time: The same of one optimizer step.
        share: Auxiliary share of the weights at the end, mean.
        settled: Share of the steps after which the weights stay within .05 of their end, median.
    """

    setting: str
    task: str
    method: str
    seeds: int
    single: float | None
    alpha: float | None
    best: float | None
    test: float
    regret: float | None
    harm: float | None
    harm_paired: float | None
    harm_unpaired: float | None
    constant: int
    time: float | None
    step_time: float | None
    share: float | None
    settled: float | None


@dataclass(frozen=True)
class Summary:
    """A method over settings.

    Attributes:
        method: Name of the method.
        settings: How many settings have a regret.
        regret: Mean over the settings of the mean over their tasks.
        interval: Half the width of its 95% interval over settings, 0 with a single one.
        worst_regret: The largest of one setting and task.
        harm: Mean, as the regret.
        worst_harm: The largest in paired standard errors.
        harmful: Settings and tasks harmed by more than two paired standard errors.
        compared: Settings and tasks that have a harm.
        constant: Runs that predict one class for every test example.
        runs: Runs.
        time: Median over settings and tasks, over fixed weights.
        step_time: The same of one optimizer step.
        settled: Median over settings and tasks.
    """

    method: str
    settings: int
    regret: float | None
    interval: float | None
    worst_regret: float | None
    harm: float | None
    worst_harm: float | None
    harmful: int
    compared: int
    constant: int
    runs: int
    time: float | None
    step_time: float | None
    settled: float | None


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


def in_standard_errors(
    first: Sequence[float], second: Sequence[float]
) -> tuple[float | None, float | None]:
    """Return the mean difference in its standard errors, paired and unpaired.

    Args:
        first: One value for each seed.
        second: The same seeds in the same order.

    Returns:
        ``None`` where there are fewer than two seeds or no spread.
    """
    count = len(first)
    if count < 2:
        return None, None
    differences = [a - b for a, b in zip(first, second, strict=True)]
    paired = stdev(differences) / math.sqrt(count)
    unpaired = math.sqrt((stdev(first) ** 2 + stdev(second) ** 2) / count)
    mean = fmean(differences)
    # Equal differences leave a spread of rounding errors.
    return (
        mean / paired if paired > 1e-12 else None,
        mean / unpaired if unpaired > 1e-12 else None,
    )


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
    if chosen is not None:
        seeds = [seed for seed in chosen[1] if seed in records]
        if seeds:
            alpha = chosen[0]
            best = fmean(grid[alpha][seed].test for seed in seeds)
            regret = best - fmean(records[seed].test for seed in seeds)
    both = sorted(set(single) & set(records))
    plain = [single[seed].test for seed in both]
    own = [records[seed].test for seed in both]
    paired, unpaired = in_standard_errors(plain, own)
    fixed = [one for share, one in grid.items() if share > 0]
    shares = [one.share for one in records.values() if one.share is not None]
    rests = [one.settled for one in records.values() if one.settled is not None]
    return Outcome(
        setting=setting,
        task=task,
        method=name,
        seeds=len(records),
        single=fmean(plain) if both else None,
        alpha=alpha,
        best=best,
        test=fmean(record.test for record in records.values()),
        regret=regret,
        harm=fmean(plain) - fmean(own) if both else None,
        harm_paired=paired,
        harm_unpaired=unpaired,
        constant=sum(record.constant for record in records.values()),
        time=_over_fixed(records, fixed, lambda record: record.seconds),
        step_time=_over_fixed(records, fixed, lambda record: record.seconds / record.steps),
        share=fmean(shares) if shares else None,
        settled=median(rests) if rests else None,
    )


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
    """Return every method over the settings; the methods in their first order."""
    by_method: dict[str, list[Outcome]] = {}
    for outcome in found:
        by_method.setdefault(outcome.method, []).append(outcome)
    return [_summary(name, members) for name, members in by_method.items()]


def _summary(name: str, members: Sequence[Outcome]) -> Summary:
    regrets = _by_setting(members, "regret")
    harms = _by_setting(members, "harm")
    errors = [o.harm_paired for o in members if o.harm_paired is not None]
    # The single task has no auxiliary task: its runs are the same with each.
    runs = {(o.setting, o.task if name != SINGLE else ""): o for o in members}.values()

    def middle(attribute: str) -> float | None:
        values = [v for o in members if (v := getattr(o, attribute)) is not None]
        return median(values) if values else None

    return Summary(
        method=name,
        settings=len(regrets),
        regret=fmean(regrets) if regrets else None,
        interval=mean_interval(regrets) if regrets else None,
        worst_regret=max((o.regret for o in members if o.regret is not None), default=None),
        harm=fmean(harms) if harms else None,
        worst_harm=max(errors, default=None),
        harmful=sum(error > 2 for error in errors),
        compared=sum(o.harm is not None for o in members),
        constant=sum(o.constant for o in runs),
        runs=sum(o.seeds for o in runs),
        time=middle("time"),
        step_time=middle("step_time"),
        settled=middle("settled"),
    )


def _by_setting(members: Iterable[Outcome], attribute: str) -> list[float]:
    """Return the mean over the tasks of each setting: tasks of one setting share its data."""
    values: dict[str, list[float]] = {}
    for outcome in members:
        value = getattr(outcome, attribute)
        if value is not None:
            values.setdefault(outcome.setting, []).append(value)
    return [fmean(found) for found in values.values()]


def is_rule(method: str) -> bool:
    """Return whether a method is neither the single task nor a fixed share."""
    return method != SINGLE and not method.startswith(f"{FIXED} ")
