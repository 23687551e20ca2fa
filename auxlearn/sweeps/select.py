"""Selection of hyper-parameters on dev."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from auxlearn.sweeps.plan import Trial
from auxlearn.sweeps.sweep_file import SweepFile

#: Returns the dev metrics of a trial by its digest, or ``None`` if it has not finished.
DevMetrics = Callable[[str], Mapping[str, float] | None]


def chosen_trials(sweep: SweepFile, trials: Sequence[Trial], dev: DevMetrics) -> set[str]:
    """Return the digests of the trials with the best hyper-parameters.

    Trials that differ only in the selected axes and in the seed form a group. In each group, the
    value with the highest mean over seeds on dev is chosen, and the first of equal values. A value
    with a failed seed is only chosen if every value has one.

    Args:
        sweep: Defines the axes to choose from.
        trials: All trials.
        dev: Their metrics on dev; no other metrics are used.
    """
    groups: dict[tuple[str, ...], dict[tuple[str, ...], list[Trial]]] = {}
    for trial in trials:
        fixed = tuple(v for axis, v in trial.cell.items() if axis not in sweep.chosen_axes)
        values = groups.setdefault(fixed, {})
        values.setdefault(tuple(trial.cell.values()), []).append(trial)
    chosen: set[str] = set()
    for values in groups.values():
        if len(values) == 1:
            best = next(iter(values.values()))
        else:
            scored = [(_selection_key(members, sweep, dev), members) for members in values.values()]
            best = max(scored, key=lambda pair: pair[0])[1]
        chosen |= {trial.digest for trial in best}
    return chosen


def mean_dev(trials: Sequence[Trial], sweep: SweepFile, dev: DevMetrics) -> float | None:
    """Return the mean over trials of the dev metric, ``None`` if one has not finished."""
    metrics = [dev(trial.digest) for trial in trials]
    if any(found is None for found in metrics):
        return None
    return fmean(
        found[sweep.select.metric or trial.config.metric]
        for trial, found in zip(trials, metrics, strict=True)
        if found is not None
    )


def _selection_key(
    members: Sequence[Trial], sweep: SweepFile, dev: DevMetrics
) -> tuple[bool, float]:
    """Return whether all seeds have finished, and the mean dev metric of those that have."""
    finished = [trial for trial in members if dev(trial.digest) is not None]
    score = mean_dev(finished, sweep, dev) if finished else None
    return len(finished) == len(members), float("-inf") if score is None else score
