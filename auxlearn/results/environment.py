"""Where a figure was made: versions, revision, hardware."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = (
    "auxlearn",
    "torch",
    "transformers",
    "tokenizers",
    "datasets",
    "higher",
    "scikit-learn",
    "numpy",
)


def describe_environment() -> dict[str, Any]:
    """Return versions of what computes, the git revision of the source, and the hardware."""
    import torch

    cuda = torch.cuda.is_available()
    return {
        "versions": dict(_versions()),
        "git_revision": _git_revision(Path(__file__).parent),
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        if cuda
        else [],
    }


# What a process has imported stays as it is, so these are looked up once, for all of its runs.


@cache
def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


@cache
def _git_revision(folder: Path) -> str | None:
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


@cache
def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
