"""Markdown of the benchmark reports: descriptions of the machine, tables, sections of pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from auxlearn.core.files import write_text


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


def write_section(page: Path, name: str, texts: Sequence[str]) -> None:
    """Put paragraphs between the markers of a section of a page.

    Raises:
        SystemExit: The page has no such markers.
    """
    content, count = re.subn(
        rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
        lambda match: match[1] + "\n\n".join(texts) + "\n" + match[2],
        page.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    if count != 1:
        raise SystemExit(f"the page needs the markers <!-- {name} --> and <!-- /{name} --> once")
    write_text(page, content)
