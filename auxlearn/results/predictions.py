"""The files of ``predictions/`` in a run folder: one JSON line for each evaluated example."""

from __future__ import annotations

from pathlib import Path

from auxlearn.errors import RunError


def prediction_lines(run: Path, name: str) -> list[str]:
    """Return the lines of a run's predictions for an evaluation set; there is at least one.

    Args:
        run: The run folder.
        name: The evaluation set.

    Raises:
        RunError: There is no such file, or it cannot be read, is empty or ends within a line.
    """
    path = predictions_path(run, name)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise RunError(f"{run} holds no predictions for '{name}'") from None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RunError(f"{path} is damaged: it is not UTF-8") from None
    if len(lines) < 2 or lines[-1]:
        raise RunError(f"{path} is damaged: it is empty or ends within a line")
    return lines[:-1]


def predictions_path(run: Path, name: str) -> Path:
    """Return the file of a run's predictions for an evaluation set."""
    return run / "predictions" / f"{name}.jsonl"


def other_predictions(run: Path, name: str) -> RunError:
    """Return the error for predictions that are not those of the run's results."""
    return RunError(
        f"{run}: the predictions for '{name}' are not those that results.json describes: delete "
        "the folder and run again"
    )
