"""What a reader of a comparison must know of the runs, one sentence each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from auxlearn.comparison.result import Block


def unknown_labels(blocks: Sequence[Block]) -> list[str]:
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


def mixed_threads(blocks: Sequence[Block]) -> list[str]:
    """Return how many runs computed with each number of threads, if they differ."""
    runs = {
        results.folder: results.environment.threads
        for block in blocks
        for one in block.datasets
        for method in one.methods
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
