"""Markdown of the benchmark reports: descriptions of the machine, and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any


def machine(found: dict[str, Any], said: str) -> str:
    """Return a sentence on the machine and the settings of a measurement."""
    about, settings = found["machine"], found["settings"]
    packages = about["packages"]
    clock = "wall time" if about["clock"] == "wall" else "processor time of the process"
    gpu = f", {about['gpu']['name']}, CUDA {about['gpu']['cuda']}" if about["gpu"] else ""
    return (
        f"Taken on {about['processor']}{gpu}, {about['threads']} of {about['cores']} cores, load "
        f"{about['load'][0]:.1f}; {clock}; torch {packages['torch']}, transformers "
        f"{packages['transformers']}; {said.format(**settings)}."
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are numeric."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def mean_and_error(values: Sequence[float]) -> str:
    """Return the mean of differences with its standard error, of two or more."""
    error = f" ± {stdev(values) / len(values) ** 0.5:.1f}" if len(values) > 1 else ""
    return f"{fmean(values):+.1f}{error}"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines; none if it does not exist."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]
