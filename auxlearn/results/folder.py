"""The run folder: who owns it, what lies where.

=====================  ==========================================================
``config.yaml``        the resolved configuration and its hash
``inputs.json``        digests of data, encoder and plug-ins that the results follow from
``environment.json``   versions, git revision, hardware
``metrics.jsonl``      losses, weights and dev figures by step
``results.json``       the figures; written last, so its presence means finished
``model/``             the classifier and tokenizer as transformers reads them
``checkpoint/``        what an unfinished run goes on from
``plots/``             pictures
``predictions/``       class probabilities of every evaluated row
=====================  ==========================================================
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from auxlearn.config import RunConfig, load_config
from auxlearn.errors import ConfigError, RunError, RunInUse
from auxlearn.files import write_text
from auxlearn.results.environment import describe_environment
from auxlearn.results.record import FILE

#: How long a claim waits for those who only ask whether a folder is in use.
ASKING_SECONDS = 0.2


def default_output(config: RunConfig) -> Path:
    """Return ``runs/`` and a name made of the settings; equal settings lead to the same folder."""
    parts = [
        Path(config.dataset).name,
        Path(config.encoder).name,
        "+".join(choice.name for choice in config.aux) or "single",
        config.weights.name,
        f"seed{config.seed}",
        config.digest[:8],
    ]
    return Path("runs") / "-".join(parts)


class RunFolder:
    """A run's folder, held by one process at a time.

    Args:
        path: Where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self.model_path = path / "model"
        self.checkpoint_path = path / "checkpoint"
        self.plots_path = path / "plots"
        self.predictions_path = path / "predictions"

    @property
    def finished(self) -> bool:
        """Whether the run has come to its results."""
        return (self.path / FILE).is_file()

    def read_config(self) -> RunConfig:
        """Return the configuration of the run in this folder.

        Raises:
            RunError: It is not a run folder.
        """
        path = self.path / "config.yaml"
        if not path.is_file():
            raise RunError(f"{self.path} is not a run folder: it holds no config.yaml")
        return load_config(path)

    @property
    def in_use(self) -> bool:
        """Whether a process holds the folder at this moment.

        Asking takes a shared lock for a moment: who asks at the same time gets one as well, and
        who wants to claim the folder waits that long.
        """
        try:
            handle = os.open(self.path / ".lock", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(handle)  # gives the lock back

    @property
    def holder(self) -> str:
        """Who has claimed the folder last, such as ``"process 4711 on node3"``; or nothing."""
        try:
            return (self.path / ".holder").read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    @contextmanager
    def claimed(self, config: RunConfig) -> Iterator[None]:
        """Hold the folder for a configuration.

        Raises:
            RunError: The folder holds another configuration's run or something else.
            RunInUse: Another process is at work in it.
        """
        existing = self.path / "config.yaml"
        self._refuse_what_is_not_ours(config)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # The lock file is never replaced: a lock belongs to the file, not to its name.
            lock = FileLock(self.path / ".lock")
            lock.acquire(timeout=ASKING_SECONDS, poll_interval=ASKING_SECONDS / 10)
        except Timeout:
            raise RunInUse(
                f"{self.holder or 'another process'} is at work in {self.path}: wait for it"
            ) from None
        except OSError as error:
            raise RunError(
                f"cannot write to {self.path} ({error.strerror}): choose another --output"
            ) from None
        try:
            if not self.in_use:  # what is locked has been moved away between finding and locking it
                raise RunInUse(f"another process has just moved {self.path}: try again")
            write_text(self.path / ".holder", f"process {os.getpid()} on {platform.node()}\n")
            if not existing.is_file():
                describe_environment().save(self.path)
                write_text(existing, config.to_yaml())
            yield
        finally:
            lock.release()

    def _refuse_what_is_not_ours(self, config: RunConfig) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file: choose another --output")
        if (self.path / "config.yaml").is_file():
            try:
                differing = self.read_config().differs_from(config)
                reason = f"its {', '.join(differing)} differ{'s' * (len(differing) == 1)}"
            except ConfigError:
                differing, reason = ["config.yaml"], "its config.yaml cannot be read"
            if differing:
                raise RunError(
                    f"{self.path} holds the run of another configuration ({reason}): "
                    "choose another --output or delete the folder"
                )
        elif self.path.is_dir() and any(
            # A run killed while it began has left its lock, temporary files or environment.json.
            not entry.name.startswith(".") and entry.name != "environment.json"
            for entry in self.path.iterdir()
        ):
            raise RunError(f"{self.path} is not empty and holds no run: choose another --output")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the rows of ``metrics.jsonl``; a last line cut short by a kill is left out."""
        return read_jsonl(self.metrics_path)

    def cut_metrics(self, last_step: int) -> None:
        """Drop rows of steps that a resumed run is going to make again."""
        rows = [row for row in self.read_metrics() if row["step"] <= last_step]
        write_text(self.metrics_path, "".join(json.dumps(row) + "\n" for row in rows))

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Add one row."""
        with self.metrics_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a JSON-lines file, or nothing if there is no file."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
