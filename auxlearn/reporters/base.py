"""Base class of what sends the record of a run to an experiment tracker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from auxlearn.errors import ConfigError


@dataclass(frozen=True)
class ReportedRun:
    """The run that is reported.

    Attributes:
        folder: The run folder. A resumed run has the same one.
        settings: The settings of the run, as in its ``config.yaml``.
    """

    folder: Path
    settings: Mapping[str, Any]


class RunReporter(ABC):
    """Sends the record of a run to an experiment tracker while it is written.

    A reporter is made before the data are read, so that it can refuse what is not installed. It
    receives the entries of ``metrics.jsonl``, with the loss and weight of every objective, and is
    closed when training ends, is interrupted or fails. Nothing that it does changes a result.

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
        ConfigError: The tracker's library is not installed.
    """

    name: ClassVar[str]

    def __init__(self, run: ReportedRun) -> None:
        self.run = run

    @abstractmethod
    def log(self, entry: Mapping[str, Any]) -> None:
        """Send an entry of ``metrics.jsonl``.

        Args:
            entry: ``kind`` ("train" or "eval"), ``step``, ``epoch``, and numbers by name, such as
                ``loss/primary``, ``weight/l3mask`` and ``dev/accuracy``. A resumed run repeats the
                steps after its last checkpoint.
        """

    def close(self) -> None:
        """Send what is left; a resumed run may log again. By default do nothing."""


def numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of an entry by name, without its kind and step."""
    return {name: value for name, value in entry.items() if name not in ("kind", "step")}


def not_installed(name: str) -> ConfigError:
    """Return the error that says how to install the library of a reporter."""
    return ConfigError(
        f"reporter {name} is asked for but not installed: pip install 'auxlearn[{name}]'"
    )
