"""Records of trials: pure functions of the results and of the logged weights of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from auxlearn.core.errors import DataError
from auxlearn.core.files import write_text
from auxlearn.core.metric_names import Quantity
from auxlearn.results.folder import RunFolder
from auxlearn.results.record import RunResults
from benchmarks.regret.plan import Method, Setting

#: Weights have settled when they stay this close to where they end.
TOLERANCE = 0.05

#: Rows of ``metrics.jsonl``.
Rows = Sequence[Mapping[str, Any]]
#: Auxiliary share of the weights by step.
Course = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Record:
    """A finished trial.

    Attributes:
        setting: Name of the setting.
        task: The auxiliary task; empty for the single task.
        method: Name of the method.
        alpha: Fixed auxiliary share, 0 for the single task; ``None`` for a rule.
        seed: Of the run.
        dev: The setting's metric on dev, 0 to 1.
        test: On test.
        constant: Whether one class is predicted for every test example.
        seconds: Of training, evaluations on dev included.
        steps: Optimizer steps.
        course: Auxiliary share of a rule's weights by step; empty for a fixed share.
        weights: Weight of each objective at the end.
        revision: Of the code that trained it.
    """

    setting: str
    task: str
    method: str
    alpha: float | None
    seed: int
    dev: float
    test: float
    constant: bool
    seconds: float
    steps: int
    course: Course = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    revision: str = ""

    @property
    def share(self) -> float | None:
        """Auxiliary share of the weights at the end; ``None`` if no weights were recorded."""
        return self.course[-1][1] if self.course else self.alpha

    @property
    def settled(self) -> float | None:
        """See :func:`settled`."""
        return settled(self.course, self.steps)


def course_of(rows: Rows) -> Course:
    """Return the auxiliary share of the weights by step, 0 to 1, to four digits.

    Rows without weights are left out. Weights need not sum to 1 (those of uncertainty do not), so
    the share is of their sum.
    """
    course = []
    for row in rows:
        weights = Quantity.WEIGHT.read(row)
        total = sum(weights.values())
        if len(weights) > 1 and total > 0:
            course.append((int(row["step"]), round(1 - weights["primary"] / total, 4)))
    return tuple(course)


def settled(course: Course, steps: int, tolerance: float = TOLERANCE) -> float | None:
    """Return the step from which the weights stay near where they end, as a share of all steps.

    Args:
        course: Auxiliary share by step; known at the steps that were logged only.
        steps: All optimizer steps.
        tolerance: How near, as a difference of shares.

    Returns:
        0 if they were near in the first row already; ``None`` without weights.
    """
    if not course or not steps:
        return None
    end = course[-1][1]
    away = [number for number, (_, share) in enumerate(course) if abs(share - end) > tolerance]
    return course[away[-1] + 1][0] / steps if away else 0.0


def record_of(
    setting: Setting, method: Method, seed: int, results: RunResults, rows: Rows
) -> Record:
    """Return the record of a finished run."""
    dev, test = results.evaluations["dev"], results.evaluations["test"]
    return Record(
        setting=setting.name,
        task=method.task,
        method=method.name,
        alpha=method.alpha,
        seed=seed,
        dev=getattr(dev.all, setting.metric),
        test=getattr(test.all, setting.metric),
        constant=test.constant_prediction is not None,
        seconds=results.seconds["training"],
        steps=results.steps,
        course=course_of(rows) if method.alpha is None else (),
        weights={name: round(weight, 4) for name, weight in results.weights.items()},
        revision=results.environment.git_revision or "",
    )


def read_record(path: Path, setting: Setting, method: Method, seed: int) -> Record | None:
    """Read a run folder; ``None`` if the run has not finished."""
    folder = RunFolder(path)
    if not folder.finished:
        return None
    return record_of(setting, method, seed, RunResults.load(path), folder.read_metrics())


class RecordFile:
    """Records of finished trials, one JSON object on each line, which outlive the run folders.

    Args:
        path: The file; it need not exist.

    Raises:
        DataError: A line is not a record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: dict[str, Record] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for number, line in enumerate(lines, start=1):
            try:
                content = json.loads(line)
                trial = content.pop("trial")
                content["course"] = tuple((step, share) for step, share in content["course"])
                self._records[json.dumps(trial, sort_keys=True)] = Record(**content)
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{path}, line {number}: not a record of a trial: restore the file, or name "
                    "another one with --records"
                ) from error

    def __len__(self) -> int:
        return len(self._records)

    def get(self, trial: Mapping[str, Any]) -> Record | None:
        """Return the record of a trial; ``None`` if there is none."""
        return self._records.get(json.dumps(trial, sort_keys=True))

    def add(self, trial: Mapping[str, Any], record: Record) -> None:
        """Add the record of a trial; :meth:`save` writes it."""
        self._records[json.dumps(trial, sort_keys=True)] = record

    def save(self) -> None:
        """Write all records, ordered by trial."""
        lines = []
        for trial, record in sorted(self._records.items()):
            lines.append(json.dumps({"trial": json.loads(trial), **asdict(record)}) + "\n")
        write_text(self.path, "".join(lines))
