"""Runs in MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from auxlearn.registry import register_reporter
from auxlearn.reporters.base import ReportedRun, RunReporter, not_installed, numbers

#: Tag that tells which run folder a run in MLflow is of.
FOLDER = "auxlearn.folder"

#: Longest value of a parameter that every store accepts.
LONGEST = 500


@register_reporter("mlflow")
class MLflow(RunReporter):
    """Logs to MLflow, in the experiment ``MLFLOW_EXPERIMENT_NAME`` or ``auxlearn``.

    ``MLFLOW_TRACKING_URI`` names the store. The settings are parameters of the run. A resumed run
    continues the same run in MLflow; the steps that it repeats are there twice, with equal values.
    """

    def __init__(self, run: ReportedRun) -> None:
        super().__init__(run)
        try:
            from mlflow.entities import Metric, Param
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise not_installed("mlflow") from None
        self._metric, self._parameter = Metric, Param
        self._client = MlflowClient()
        self._id = ""

    def log(self, entry: Mapping[str, Any]) -> None:
        """Log every number of an entry at its step."""
        if not self._id:
            self._id = self._begin()
        now, step = int(time.time() * 1000), entry["step"]
        metrics = [
            self._metric(name, float(value), now, step) for name, value in numbers(entry).items()
        ]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        """Mark the run as finished."""
        if self._id:
            self._client.set_terminated(self._id)
            self._id = ""

    def _begin(self) -> str:
        """Return the id of the run, a new one unless the run folder has one already."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "auxlearn"
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        folder = str(self.run.folder.absolute())
        for run in self._client.search_runs([experiment]):
            if run.data.tags.get(FOLDER) == folder:
                return str(run.info.run_id)
        run = self._client.create_run(
            experiment, run_name=self.run.folder.name, tags={FOLDER: folder}
        )
        parameters = [
            self._parameter(key, str(value)[:LONGEST]) for key, value in self.run.settings.items()
        ]
        self._client.log_batch(run.info.run_id, params=parameters)
        return str(run.info.run_id)
