"""Markdown of the benchmark reports: descriptions of the machine, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
