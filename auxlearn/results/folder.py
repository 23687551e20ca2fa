"""The run folder: its files, and the lock that one process at a time holds.

=====================  ==========================================================
``config.yaml``        the resolved configuration and its hash
``inputs.json``        digests of the data, encoder and plug-ins that the results depend on
``environment.json``   versions, git revision, hardware
``metrics.jsonl``      losses, weights and dev metrics by step, see :mod:`auxlearn.metric_keys`
``results.json``       the results; written last, so its presence means that the run is finished
``model/``             the classifier and tokenizer as transformers reads them
``heads/``             heads of auxiliary tasks and losses, where they have any
``checkpoint/``        checkpoints that an unfinished run resumes from
``plots/``             plots of losses, weights and dev metrics
``predictions/``       class probabilities of every evaluated example
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

#: Seconds to wait for a lock: :attr:`RunFolder.in_use` holds it for a moment.
LOCK_TIMEOUT = 0.2


def default_output(config: RunConfig) -> Path:
    """Return the folder in ``runs/`` named by the settings; equal settings have the same folder."""
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
    """Access to the files of a run, with a lock for the process that runs it.

    Args:
        path: Path of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self.model_path = path / "model"
        self.heads_path = path / "heads"
        self.checkpoint_path = path / "checkpoint"
        self.plots_path = path / "plots"
        self.predictions_path = path / "predictions"

    @property
    def finished(self) -> bool:
        """Whether the run has written its results."""
        return (self.path / FILE).is_file()

    def read_config(self) -> RunConfig:
        """Return the configuration of the run in this folder.

        Raises:
            RunError: The path is not a run folder.
        """
        path = self.path / "config.yaml"
        if not path.is_file():
            raise RunError(f"{self.path} is not a run folder: it has no config.yaml")
        return load_config(path)

    @property
    def in_use(self) -> bool:
        """Whether a process has locked the folder at this moment.

        The test takes a shared lock for a moment. Other processes can test at the same time, and
        a process that wants to lock the folder waits for the end of the test.
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
            os.close(handle)  # releases the shared lock

    @property
    def lock_owner(self) -> str:
        """The process that locked the folder last, as ``"process 4711 on node3"``; "" if none."""
        try:
            return (self.path / ".lock_owner").read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    @contextmanager
    def locked(self, config: RunConfig) -> Iterator[None]:
        """Lock the folder within the block; create it for the configuration where it is missing.

        Args:
            config: Configuration of the run.

        Raises:
            RunError: The folder belongs to a run of another configuration, is not a run folder, or
                cannot be written.
            RunInUse: Another process is running in it.
        """
        existing = self.path / "config.yaml"
        self._check_folder_belongs_to(config)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # The lock file is never replaced: a lock belongs to the file, not to its name.
            lock = FileLock(self.path / ".lock")
            lock.acquire(timeout=LOCK_TIMEOUT, poll_interval=LOCK_TIMEOUT / 10)
        except Timeout:
            owner = self.lock_owner or "another process"
            raise RunInUse(f"{owner} is running in {self.path}: wait until it has ended") from None
        except OSError as error:
            raise RunError(
                f"cannot write to {self.path} ({error.strerror}): choose another --output"
            ) from None
        try:
            if not self.in_use:  # the locked file was moved after it had been opened
                raise RunInUse(f"another process has just moved {self.path}: try again")
            write_text(self.path / ".lock_owner", f"process {os.getpid()} on {platform.node()}\n")
            if not existing.is_file():
                describe_environment().save(self.path)
                write_text(existing, config.to_yaml())
            yield
        finally:
            lock.release()

    def _check_folder_belongs_to(self, config: RunConfig) -> None:
        """Raise ``RunError`` unless the folder is empty or has a run of the configuration."""
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
            # A run killed at its very start leaves its lock, temporary files or environment.json.
            not entry.name.startswith(".") and entry.name != "environment.json"
            for entry in self.path.iterdir()
        ):
            raise RunError(
                f"{self.path} is not empty and is not a run folder: choose another --output"
            )

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the entries of ``metrics.jsonl``; an incomplete last line is left out."""
        return read_jsonl(self.metrics_path)

    def truncate_metrics(self, last_step: int) -> None:
        """Remove the entries after a step, which a resumed run will write again."""
        entries = [entry for entry in self.read_metrics() if entry["step"] <= last_step]
        write_text(self.metrics_path, "".join(json.dumps(entry) + "\n" for entry in entries))

    def append_metrics(self, entry: dict[str, Any]) -> None:
        """Append an entry to ``metrics.jsonl``."""
        with self.metrics_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a JSON-lines file; an empty list if there is no file."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
