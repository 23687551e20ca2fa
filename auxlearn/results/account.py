"""Why a rule that compares whole runs has applied each auxiliary task, or left it out."""

from __future__ import annotations

from collections.abc import Sequence

from auxlearn.kinds.metrics import difference, metric_title, sign
from auxlearn.results.record import Branch

#: What to try for a task that is left out.
ADVICE = (
    "what helps most often is related labelled data (--aux supervised), or masked language "
    "modelling of an unlabelled corpus of at least five times as many texts"
)


def account_of_branches(
    tasks: Sequence[str], branches: Sequence[Branch], metric: str, learned: bool = True
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

    def against_single(branch: Branch) -> str:
        return (
            f"{branch.title} has {branch.value:.3f} {metric_title(metric)} on dev, "
            f"{difference(metric, branch.gain or 0.0)} against {single.value:.3f} of the single "
            "task"
        )

    sentences = {}
    for task in tasks:
        if taken.weights[task]:
            sentences[task] = f"{task}: applied; {against_single(taken)}"
            continue
        with_task = [branch for branch in branches if branch.weights[task]]
        best = max(with_task, key=lambda branch: sign(metric) * branch.value)
        why = f"the best branch with it, {against_single(best)}"
        if taken is not single:
            why += f", and {taken.title}, without it, {taken.value:.3f}"
        sentences[task] = f"{task}: left out; {why}; {ADVICE}"
    return sentences
