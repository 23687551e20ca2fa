"""Views of a running sweep: a live table on a terminal, lines elsewhere, a bar in a notebook."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from auxlearn.core.metric_names import Quantity, sign
from auxlearn.core.progress import Reporter
from auxlearn.executors.jobs import FAILURES, Outcome
from auxlearn.results.console import default_reporter, in_notebook, output
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import Trial

#: Maximum number of trials in the live table; running trials have precedence, then the latest.
TABLE_LINES = 24
#: Seconds between two progress lines without a terminal.
LINE_SECONDS = 60.0


@dataclass
class SweepProgress:
    """State of a running sweep, as views show it."""

    total: int  # number of trials
    slots: int  # maximum number of trials at a time
    #: "waiting", "running", "locked", "finished" or how it failed, by trial.
    states: dict[str, str] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    #: Wall time of each trial that finished since the sweep was started.
    seconds: list[float] = field(default_factory=list)
    #: Start of each running trial on the monotonic clock, in seconds.
    started: dict[str, float] = field(default_factory=dict)

    def count(self, *states: str) -> int:
        """Return how many trials are in one of the states."""
        return sum(state in states for state in self.states.values())

    @property
    def ended(self) -> int:
        """Number of trials that have finished or failed."""
        return self.count("finished", *FAILURES)

    @property
    def seconds_left(self) -> float | None:
        """Estimate of the remaining time; ``None`` before the first trial has finished."""
        if not self.seconds:
            return None
        mean = sum(self.seconds) / len(self.seconds)
        now = time.monotonic()
        running = [max(0.0, mean - (now - begun)) for begun in self.started.values()]
        waiting = self.total - self.ended - len(running)
        return (sum(running) + waiting * mean) / max(1, min(self.slots, waiting + len(running)))


class View:
    """Shows the progress of a sweep through a reporter: a bar, and a line for each failure."""

    reporter = Reporter()
    _advance: Callable[[int], None] | None = None
    _done = 0

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter

    def message(self, text: str) -> None:
        self.reporter.message(text)

    def update(self, progress: SweepProgress) -> None:
        """Show the progress; called every half second."""
        if self._advance is None:
            self._bar = self.reporter.progress("trials of the sweep", progress.total)
            self._advance = self._bar.__enter__()
        self._advance(progress.ended - self._done)
        self._done = progress.ended

    def trial_ended(self, trial: Trial, outcome: Outcome, progress: SweepProgress) -> None:
        if outcome.state in FAILURES:
            self.message(f"{outcome.state}: {trial.title}: {outcome.error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._advance is not None:
            self._bar.__exit__(None, None, None)


class ConsoleView(View):
    """Shows the state of every trial, its best dev metric so far, and the remaining time."""

    def __init__(self, console: Console, folder: SweepFolder) -> None:
        self.console = console
        self.folder = folder
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._best: dict[str, tuple[float, float]] = {}
        self._read_completely: set[str] = set()
        self._line_due = time.monotonic() + LINE_SECONDS

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def message(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)

    def trial_ended(self, trial: Trial, outcome: Outcome, progress: SweepProgress) -> None:
        if outcome.state == "interrupted":
            return
        parts = [f"{progress.ended}/{progress.total}", outcome.state, trial.title]
        self._read_best(trial)
        if outcome.state == "finished" and trial.digest in self._best:
            metric = trial.config.metric
            parts.append(f"dev {metric} {self._best[trial.digest][1]:.3f}")
        if outcome.error:
            parts.append(outcome.error)
        if self._live is None or outcome.state in FAILURES:
            self.message("  ".join(parts))

    def update(self, progress: SweepProgress) -> None:
        if self._live:
            self._live.update(self._table(progress), refresh=True)
        elif time.monotonic() >= self._line_due:
            self._line_due = time.monotonic() + LINE_SECONDS
            self.message(_summary(progress))

    def _table(self, progress: SweepProgress) -> RenderableType:
        table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
        for head in ("trial", "state", "best dev"):
            table.add_column(head, no_wrap=True, overflow="ellipsis")
        colours = {"finished": "green", "waiting": "dim", "locked": "yellow"}
        colours |= dict.fromkeys(FAILURES, "red")
        for trial in self._shown(progress):
            state = progress.states[trial.digest]
            if trial.digest not in self._read_completely:
                self._read_best(trial)
            if state in ("finished", *FAILURES):
                self._read_completely.add(trial.digest)
            epoch, value = self._best.get(trial.digest, (0.0, None))
            if state == "running":
                state = f"epoch {epoch:.0f} of {trial.config.epochs}" if epoch else "first epoch"
            best = "" if value is None else f"{value:.3f}"
            table.add_row(Text(trial.title), Text(state, style=colours.get(state, "")), best)
        return Group(table, Text(_summary(progress)))

    def _shown(self, progress: SweepProgress) -> Sequence[Trial]:
        trials = list(progress.trials.values())
        if len(trials) <= TABLE_LINES:
            return trials
        active = [t for t in trials if progress.states[t.digest] in ("running", "locked")]
        ended = [t for t in trials if progress.states[t.digest] in ("finished", *FAILURES)]
        active = active[:TABLE_LINES]
        return [*ended[max(0, len(ended) - TABLE_LINES + len(active)) :], *active]

    def _read_best(self, trial: Trial) -> None:
        """Read the epoch that a trial has reached and its best dev metric so far."""
        entries = _evaluations(self.folder.run(trial.digest).metrics_path)
        metric = trial.config.metric
        values = [entry[Quantity.DEV.key(metric)] for entry in entries]
        if values:
            best = max(values, key=lambda value: sign(metric) * value)
            self._best[trial.digest] = (entries[-1]["epoch"], best)


def default_view(folder: SweepFolder, verbose: bool) -> View:
    """Return what shows the progress of a sweep that was started from Python."""
    if verbose and not in_notebook():
        return ConsoleView(output(stderr=True), folder)
    return View(default_reporter(verbose))


def _evaluations(path: Path) -> list[dict[str, Any]]:
    """Return the entries of evaluations in ``metrics.jsonl``; other lines are not parsed."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError:
        return []
    entries = [json.loads(line) for line in lines if line.endswith("\n") and '"eval"' in line]
    return [entry for entry in entries if entry["kind"] == "eval"]


def _summary(progress: SweepProgress) -> str:
    parts = [f"{progress.count('finished')} of {progress.total} trials finished"]
    named = {"running": ("running",), "running in another process": ("locked",), "failed": FAILURES}
    for name, states in named.items():
        if count := progress.count(*states):
            parts.append(f"{count} {name}")
    if (left := progress.seconds_left) and left > 0:
        parts.append(f"about {duration(left)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
