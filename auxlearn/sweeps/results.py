"""What a sweep returns in Python: its folder and one record for each trial."""

from __future__ import annotations

import html
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auxlearn.sweeps.folder import TrialRecord
from auxlearn.wording import shorten

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, repr=False)
class SweepResults:
    """The trials of a sweep; as a path it is the sweep's folder, so ``auxlearn.compare`` takes it.

    Attributes:
        name: Name of the sweep.
        folder: Its folder.
        axes: What trials differ in apart from the seed, in order.
        trials: One record for each trial, failed ones included.
    """

    name: str
    folder: Path
    axes: tuple[str, ...]
    trials: tuple[TrialRecord, ...]

    def __fspath__(self) -> str:
        return os.fspath(self.folder)

    @property
    def failed(self) -> tuple[TrialRecord, ...]:
        """The trials without results."""
        return tuple(trial for trial in self.trials if not trial.finished)

    def __repr__(self) -> str:
        states = Counter(trial.state for trial in self.trials)
        shown = ", ".join(f"{count} {state}" for state, count in states.items())
        place = shorten(str(self.folder), 200)
        return f"<SweepResults in {place}: {len(self.trials)} trials, {shown}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.to_frame().to_html()}"

    def to_frame(self) -> pandas.DataFrame:
        """Return one row for each trial.

        The columns are the axes, seed, state, whether its hyper-parameters were chosen on dev,
        the metrics of each set (``dev_accuracy``, ``test_macro_f1``, ...), the epoch of the best
        checkpoint, the error of a failed trial, and the run folder. Metrics of sets other than dev
        are those of the chosen trials only.
        """
        import pandas

        rows = []
        for trial in self.trials:
            row: dict[str, Any] = dict(trial.cell)
            row |= {"seed": trial.seed, "state": trial.state, "chosen": trial.chosen}
            for name, metrics in {"dev": trial.dev, **trial.evaluations}.items():
                row |= {f"{name}_{metric}": value for metric, value in metrics.items()}
            row |= {"best_epoch": trial.best_epoch, "error": trial.error}
            row["folder"] = str(self.folder / "trials" / trial.digest)
            rows.append(row)
        frame = pandas.DataFrame(rows)
        last = ["best_epoch", "error", "folder"]  # behind the metrics that only some rows have
        return frame[[*(name for name in frame if name not in last), *last]]
