"""Why a run that has compared branches applies a task or leaves it out, in one sentence by task."""

from __future__ import annotations

from collections.abc import Sequence

from auxlearn.results.record import Branch

#: What to try for a task that is left out.
ADVICE = (
    "what helps most often is related labelled data (--aux supervised), or masked language "
    "modelling of an unlabelled corpus of at least five times as many texts"
)


def account_of_branches(
    tasks: Sequence[str], branches: Sequence[Branch], evidence: float
) -> dict[str, str]:
    """Return the sentence of each auxiliary task of a run that has compared branches.

    Args:
        tasks: The auxiliary tasks.
        branches: All branches, one of which was taken.
        evidence: Standard errors by which a branch had to be better.
    """
    (taken,) = [one for one in branches if one.taken]
    single = next(one for one in branches if one.gain is None)
    found = {}
    for task in tasks:
        own = [one for one in branches if one.gain is not None and one.weights[task]]
        best = max(own, key=lambda one: one.gain or 0.0)
        if taken.weights[task]:
            found[task] = (
                f"{task}: applied with share {taken.weights[task]:.3g}; on dev its run was better "
                f"than the single task by {_gain(taken)} ({_metrics(taken, single)})"
            )
            continue
        why = (
            f"the better of its runs on dev ({best.title}) differed from the single task by "
            f"{_gain(best)} ({_metrics(best, single)}), where more than {evidence:g} standard "
            "errors were needed"
        )
        if (best.gain or 0.0) > evidence * (best.gain_error or 0.0):
            why = (
                f"{best.title} was better than the single task by {_gain(best)} "
                f"({_metrics(best, single)}), but {_why_not(best, taken)}"
            )
        found[task] = f"{task}: left out; {why}; {ADVICE}"
    return found


def _gain(branch: Branch) -> str:
    return f"{branch.gain:+.4f} ± {branch.gain_error:.4f} nats per example"


def _metrics(branch: Branch, single: Branch) -> str:
    return f"{branch.value:.3f} against {single.value:.3f} in the metric"


def _why_not(branch: Branch, taken: Branch) -> str:
    if taken.gain is None:
        return "had fewer correct predictions by more than their standard error"
    return f"{taken.title} was better still"
