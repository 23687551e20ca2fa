"""The choice of hyper-parameters, on dev alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from auxlearn.sweeps.plan import SweepFile, Trial

#: Gives the metrics on dev of a trial by its digest, or ``None`` if it has not finished.
DevFigures = Callable[[str], Mapping[str, float] | None]


def chosen_trials(sweep: SweepFile, trials: Sequence[Trial], dev: DevFigures) -> set[str]:
    """Return the digests of the trials with the best hyper-parameters.

    Trials that differ only in the axes to choose from, and in the seed, form a group. Of its
    values the one with the highest mean over seeds on dev is chosen; of equals the first. A value
    of which a seed has failed is only chosen if there is none without.

    Args:
        sweep: Says what is chosen.
        trials: All trials.
        dev: Their figures on dev. Nothing else is looked at.
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
            scored = [(_standing(members, sweep, dev), members) for members in values.values()]
            best = max(scored, key=lambda pair: pair[0])[1]
        chosen |= {trial.digest for trial in best}
    return chosen


def mean_dev(trials: Sequence[Trial], sweep: SweepFile, dev: DevFigures) -> float | None:
    """Return the mean over trials of the dev metric, ``None`` if one has not finished."""
    figures = [dev(trial.digest) for trial in trials]
    if any(found is None for found in figures):
        return None
    return fmean(
        found[sweep.select.metric or trial.config.metric]
        for trial, found in zip(trials, figures, strict=True)
        if found is not None
    )


def _standing(members: Sequence[Trial], sweep: SweepFile, dev: DevFigures) -> tuple[bool, float]:
    finished = [trial for trial in members if dev(trial.digest) is not None]
    score = mean_dev(finished, sweep, dev) if finished else None
    return len(finished) == len(members), float("-inf") if score is None else score
