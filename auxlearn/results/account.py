"""Why a rule that compares whole runs has applied each auxiliary task, or left it out."""

from __future__ import annotations

from collections.abc import Sequence

from auxlearn.kinds.metrics import difference, metric_title
from auxlearn.results.record import Branch

#: What to try for a task that is left out.
ADVICE = (
    "what helps most often is related labelled data (--aux supervised), or masked language "
    "modelling of an unlabelled corpus of at least five times as many texts"
)


def account_of_branches(
    tasks: Sequence[str],
    branches: Sequence[Branch],
    evidence: float,
    unit: str = "nats",
    metric: str = "accuracy",
    learned: bool = True,
) -> dict[str, str]:
    """Return the sentence of each auxiliary task; ``learned``: any branch has learned something."""
    if not learned:
        return {
            task: f"{task}: left out, and nothing is known of it: no run that was compared has "
            "learned anything"
            for task in tasks
        }
    (taken,) = [branch for branch in branches if branch.taken]
    single = next(branch for branch in branches if branch.gain is None)

    def gain(branch: Branch) -> str:
        return (
            f"{difference(metric, branch.value - single.value)} of {metric_title(metric)} "
            f"({branch.value:.3f} against {single.value:.3f}; gain in loss {branch.gain:+.4f} ± "
            f"{branch.gain_error:.4f} {unit} per example)"
        )

    sentences = {}
    for task in tasks:
        with_task = [
            branch for branch in branches if branch.gain is not None and branch.weights[task]
        ]
        best = max(with_task, key=lambda branch: branch.gain or 0.0)
        if taken.weights[task]:
            sentences[task] = (
                f"{task}: applied with share {taken.weights[task]:.3g}; on dev its run differed "
                f"from the single task by {gain(taken)}"
            )
            continue
        if (best.gain or 0.0) > evidence * (best.gain_error or 0.0):
            but = f"{taken.title} was better still"
            if taken.gain is None:
                but = "had fewer correct predictions by more than their standard error"
            why = f"{best.title} had a better loss than the single task, by {gain(best)}, but {but}"
        else:
            why = (
                f"the better of its runs on dev ({best.title}) differed from the single task by "
                f"{gain(best)}, where more than {evidence:g} standard errors of the loss were "
                "needed"
            )
        sentences[task] = f"{task}: left out; {why}; {ADVICE}"
    return sentences
