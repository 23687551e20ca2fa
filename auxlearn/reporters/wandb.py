"""Runs in Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from auxlearn.registry import register_reporter
from auxlearn.reporters.base import ReportedRun, RunReporter, not_installed, numbers


@register_reporter("wandb")
class WandB(RunReporter):
    """Logs to Weights & Biases, in the project ``WANDB_PROJECT`` or ``auxlearn``.

    wandb's own environment variables say where to: ``WANDB_MODE=offline`` writes files under
    ``wandb/`` of the run folder alone, for ``wandb sync``. A resumed run continues under the same
    id; the steps that it repeats are there twice, with equal values.
    """

    def __init__(self, run: ReportedRun) -> None:
        super().__init__(run)
        try:
            import wandb
        except ImportError:
            raise not_installed("wandb") from None
        self._wandb = wandb
        self._run: Any = None

    def log(self, entry: Mapping[str, Any]) -> None:
        """Log every number of an entry over its step."""
        if self._run is None:
            folder = self.run.folder.absolute()
            self._run = self._wandb.init(
                project=os.environ.get("WANDB_PROJECT") or "auxlearn",
                id=sha256(str(folder).encode()).hexdigest()[:16],
                name=folder.name,
                config=dict(self.run.settings),
                dir=str(folder),
                resume="allow",
                settings=self._wandb.Settings(silent=True, console="off", x_disable_stats=True),
            )
            self._run.define_metric("*", step_metric="step")
        self._run.log({**numbers(entry), "step": entry["step"]})

    def close(self) -> None:
        """Finish the run in wandb."""
        if self._run is not None:
            self._run.finish(quiet=True)
            self._run = None
