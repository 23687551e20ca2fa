"""Loggers: what sends the record of a run to TensorBoard, Weights & Biases or MLflow."""

from __future__ import annotations

import os
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from auxlearn.core.errors import ConfigError, named_fault, shorten_middle
from auxlearn.core.files import write_text
from auxlearn.core.lazy import library
from auxlearn.core.progress import Reporter
from auxlearn.core.registry import register_reporter
from auxlearn.results.record import RunResults

#: File of a run folder by which trackers know the run, wherever the folder is.
IDENTITY = "tracker_id.txt"


@dataclass(frozen=True)
class ReportedRun:
    """The run that is reported."""

    folder: Path  # a resumed run has the same one
    settings: Mapping[str, Any]  # as in its ``config.yaml``

    @property
    def name(self) -> str:
        """Name of the folder, for trials and branches after that of their sweep or run."""
        folder = self.folder.absolute()
        inner = folder.parent.name in ("trials", "branches")
        return f"{folder.parent.parent.name}/{folder.name}" if inner else folder.name

    def identity(self) -> str:
        """Return the random id of the run, 16 hexadecimal digits, which its folder keeps."""
        path = self.folder / IDENTITY
        known = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
        if re.fullmatch("[0-9a-f]{16}", known):
            return known
        identity = secrets.token_hex(8)
        write_text(path, f"{identity}\n")
        return identity


class RunReporter(ABC):
    """Sends the record of a run to an experiment tracker while it is written.

    A reporter is made before the data are read, so that it can refuse what is not installed. It
    receives the entries of ``metrics.jsonl``, with the loss and weight of every objective, and at
    last the scores of the exported checkpoint. It is closed when the run ends, is interrupted or
    fails. Nothing that it does changes a result.

    A new one defines :meth:`log`::

        @register_reporter("print")
        class Print(RunReporter):
            def log(self, entry):
                print(entry["step"], numbers(entry))

    Args:
        run: The run that is reported.

    Attributes:
        name: The registered name, set by the decorator that registers the class.
        run: The run that is reported.

    Raises:
        ConfigError: The tracker's library is not installed, or refuses its store.
    """

    name: ClassVar[str]

    def __init__(self, run: ReportedRun) -> None:
        self.run = run

    @abstractmethod
    def log(self, entry: Mapping[str, Any]) -> None:
        """Send an entry of ``metrics.jsonl``, or the final scores.

        Args:
            entry: ``kind`` ("train", "eval" or "final"), ``step``, and numbers by name, such as
                ``epoch``, ``loss/primary``, ``weight/l3mask``, ``dev/accuracy`` and, of kind
                "final", ``final/test/accuracy``. A resumed run repeats the steps after its last
                checkpoint.
        """

    def close(self) -> None:
        """Send what is left; a resumed run may log again. By default do nothing."""


def numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in entry.items() if name not in ("kind", "step")}


def tracked_name(name: str) -> str:
    """Return the name of a set as every tracker takes it; one that is changed ends with a digest,
    so that no two become one.
    """
    plain = re.sub(r"[^\w.\- ]", "_", name)
    return name if plain == name else f"{plain}_{sha256(name.encode()).hexdigest()[:4]}"


class ForwardingReporter(Reporter):
    """Forwards all calls to a reporter, and log entries to trackers until one fails."""

    def __init__(self, reporter: Reporter, trackers: Sequence[RunReporter]) -> None:
        self._reporter = reporter
        self._trackers = list(trackers)

    def message(self, text: str) -> None:
        self._reporter.message(text)

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        with self._reporter.progress(title, total) as advance:
            yield advance

    def log(self, entry: dict[str, Any]) -> None:
        self._each(lambda tracker: tracker.log(dict(entry)))  # some change what they get
        self._reporter.log(entry)

    def log_scores(self, results: RunResults) -> None:
        """Send the scores of the exported checkpoint on every evaluated set to the trackers."""
        scores = {
            f"final/{tracked_name(name)}/{metric}": value
            for name, evaluation in results.evaluations.items()
            for metric, value in evaluation.all.metrics.items()
        }
        entry = {"kind": "final", "step": results.steps, **scores}
        self._each(lambda tracker: tracker.log(dict(entry)))

    def close(self) -> None:
        self._each(lambda tracker: tracker.close())

    def _each(self, call: Callable[[RunReporter], None]) -> None:
        for tracker in list(self._trackers):
            try:
                call(tracker)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a SystemExit would end the run as if all were well
                self._trackers.remove(tracker)
                self.message(
                    f"reporter {tracker.name} has failed ({named_fault(error)}): the run continues "
                    "without it"
                )


@register_reporter("tensorboard")
class TensorBoard(RunReporter):
    """Writes event files to ``tensorboard/`` of the run folder; repeated steps replace earlier
    ones.
    """

    def __init__(self, run: ReportedRun) -> None:
        super().__init__(run)
        tensorboard = library("torch.utils.tensorboard", "reporter tensorboard", "tensorboard")
        self._make_writer = tensorboard.SummaryWriter
        self._writer: Any = None

    def log(self, entry: Mapping[str, Any]) -> None:
        if self._writer is None:
            folder = self.run.folder / "tensorboard"
            self._writer = self._make_writer(str(folder), purge_step=entry["step"])
        for name, value in numbers(entry).items():
            self._writer.add_scalar(name, value, entry["step"])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@register_reporter("wandb")
class WandB(RunReporter):
    """Logs to Weights & Biases, in the project ``WANDB_PROJECT`` or ``auxlearn``.

    wandb's own environment variables say where to: ``WANDB_MODE=offline`` writes files alone, for
    ``wandb sync``, in ``wandb/`` of the working folder or of ``WANDB_DIR``. Each trial of a sweep
    and each branch of ``meta`` is a run of its own. A resumed run continues under the same id; the
    steps that it repeats are there twice, with equal values.
    """

    def __init__(self, run: ReportedRun) -> None:
        super().__init__(run)
        self._wandb = library("wandb", "reporter wandb", "wandb")
        self._run: Any = None

    def log(self, entry: Mapping[str, Any]) -> None:
        if self._run is None:
            self._run = self._wandb.init(
                project=os.environ.get("WANDB_PROJECT") or "auxlearn",
                id=self.run.identity(),
                name=self.run.name,
                config=dict(self.run.settings),
                reinit="create_new",  # a run that the user has open is left alone
                resume="allow",
                settings=self._wandb.Settings(silent=True, console="off", x_disable_stats=True),
            )
            self._run.define_metric("*", step_metric="step")
        self._run.log({**numbers(entry), "step": entry["step"]})

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None


#: Tags of a run in MLflow: the id that its run folder keeps, and where that folder is.
MLFLOW_IDENTITY, FOLDER = "auxlearn.id", "auxlearn.folder"

#: Longest value of a parameter that every store accepts.
LONGEST = 500


@register_reporter("mlflow")
class MLflow(RunReporter):
    """Logs to MLflow, in the experiment ``MLFLOW_EXPERIMENT_NAME`` or ``auxlearn``.

    ``MLFLOW_TRACKING_URI`` names the store. The settings are parameters of the run, long ones
    cut. A resumed run continues the same run in MLflow; the steps that it repeats are there twice,
    with equal values.
    """

    def __init__(self, run: ReportedRun) -> None:
        super().__init__(run)
        self._entities = library("mlflow.entities", "reporter mlflow", "mlflow")
        exceptions = library("mlflow.exceptions", "reporter mlflow", "mlflow")
        try:
            self._client = library("mlflow.tracking", "reporter mlflow", "mlflow").MlflowClient()
        except exceptions.MlflowException as error:  # the store of MLFLOW_TRACKING_URI
            raise ConfigError(f"reporter mlflow: {' '.join(str(error).split())}") from error
        self._id = ""

    def log(self, entry: Mapping[str, Any]) -> None:
        if not self._id:
            self._id = self._begin()
        now, step = int(time.time() * 1000), entry["step"]
        metrics = [
            self._entities.Metric(name, float(value), now, step)
            for name, value in numbers(entry).items()
        ]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        if self._id:
            self._client.set_terminated(self._id)
            self._id = ""

    def _begin(self) -> str:
        """Return the id of the run, a new one unless the run folder has one already."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "auxlearn"
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        identity = self.run.identity()
        filtered = f"tags.`{MLFLOW_IDENTITY}` = '{identity}'"
        if earlier := self._client.search_runs([experiment], filtered, max_results=1):
            return str(earlier[0].info.run_id)
        tags = {MLFLOW_IDENTITY: identity, FOLDER: str(self.run.folder.absolute())}
        run = self._client.create_run(experiment, run_name=self.run.name, tags=tags)
        cut = {key: shorten_middle(str(value), LONGEST) for key, value in self.run.settings.items()}
        parameters = [self._entities.Param(key, value) for key, value in cut.items()]
        self._client.log_batch(run.info.run_id, params=parameters)
        return str(run.info.run_id)
