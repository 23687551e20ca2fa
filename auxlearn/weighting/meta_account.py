"""Why a task that has to pass a gate is applied or not, in one sentence by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from auxlearn.metric_keys import Quantity


def account_of_steps(
    rows: Sequence[Mapping[str, Any]],
    tasks: Sequence[str],
    best_step: int,
    gate: float,
    gate_end: int,
) -> dict[str, str]:
    """Return the sentence of each auxiliary task of a rule that applies it once past a gate.

    Args:
        rows: Entries of ``metrics.jsonl``; weights are logged every few steps.
        tasks: The auxiliary tasks.
        best_step: Step of the exported checkpoint.
        gate: Weight from which on one task is applied.
        gate_end: Step after which no further task is applied.
    """
    found = {}
    for task in tasks:
        weights = [
            (row["step"], row[Quantity.WEIGHT.key(task)])
            for row in rows
            if Quantity.WEIGHT.key(task) in row
        ]
        candidates = [
            row[Quantity.CANDIDATE.key(task)] for row in rows if Quantity.CANDIDATE.key(task) in row
        ]
        applied = [(step, weight) for step, weight in weights if weight > 0]
        if not applied:
            highest = f"at most {max(candidates):.3f}" if candidates else "never learned"
            found[task] = (
                f"{task}: not applied; its weight was {highest}, and {gate:.3g} by step {gate_end} "
                "is what the gate asks for; a derivative over a few steps does not see what helps "
                "later, horizon run does"
            )
            continue
        first, last = applied[0][0], applied[-1][0]
        highest = f"{max(weight for _, weight in applied):.3f}"
        until = "" if last == weights[-1][0] else f" to {last}"
        exported = [weight for step, weight in weights if step <= best_step]
        now = exported[-1] if exported else 0.0
        there = (
            f"the exported checkpoint (step {best_step}) was trained with it, weight {now:.3f}"
            if first <= best_step
            else f"the exported checkpoint (step {best_step}) is from before, without it"
        )
        found[task] = f"{task}: applied from step {first}{until}, weight up to {highest}; {there}"
    return found
