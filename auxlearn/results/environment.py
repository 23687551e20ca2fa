"""The environment of a run: versions, git revision, hardware."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from auxlearn.core.errors import RunError
from auxlearn.core.files import read_record, write_checked_json

FILE = "environment.json"

#: Packages that compute, or whose versions change what is read.
_PACKAGES = "auxlearn torch transformers tokenizers datasets higher scikit-learn numpy"


@dataclass(frozen=True)
class Environment:
    """What ``environment.json`` of a run folder holds."""

    versions: dict[str, str]  # of Python and of each package that computes
    git_revision: str | None = None  # none outside a git checkout
    platform: str = ""
    cpu: str = ""
    cores: int | None = None  # logical ones of the processor
    threads: int = 1  # those that torch computes with
    gpus: list[str] = field(default_factory=list)
    #: Peak resident memory of the process so far, in MB, where it is known.
    peak_memory_mb: float | None = None
    #: The same of the memory that torch has allocated on the GPU.
    peak_gpu_memory_mb: float | None = None

    @classmethod
    def load(cls, folder: Path) -> Environment:
        advice = f"delete {folder} to train again"
        try:
            return read_record(cls, folder / FILE, RunError, advice)
        except FileNotFoundError:
            raise RunError(f"{folder / FILE} is missing: {advice}") from None

    def save(self, folder: Path) -> None:
        write_checked_json(folder / FILE, asdict(self))


def changed_versions(before: Environment) -> str:
    """Return a warning about other versions of what computes than before; "" if there are none."""
    now = _versions()
    changed = [
        f"{name} {now[name]} (before: {before.versions[name]})"
        for name in ("torch", "transformers", "tokenizers")
        if before.versions.get(name, now[name]) != now[name]
    ]
    if not changed:
        return ""
    return (
        f"warning: the run is resumed with {' and '.join(changed)}: its digits may differ from "
        "those of an uninterrupted one"
    )


def with_peak_memory(environment: Environment) -> Environment:
    """Return an environment with the memory that this process has needed so far."""
    import torch

    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes on Linux
    peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    environment = replace(environment, peak_memory_mb=round(peak / 1e6, 1))
    if not torch.cuda.is_initialized():
        return environment
    peak = torch.cuda.max_memory_allocated()
    return replace(environment, peak_gpu_memory_mb=round(peak / 1e6, 1))


def describe_environment() -> Environment:
    import torch

    return Environment(
        versions=dict(_versions()),
        git_revision=_git_revision(Path(__file__).parent),
        platform=platform.platform(),
        cpu=_cpu_name(),
        cores=os.cpu_count(),
        threads=torch.get_num_threads(),
        gpus=[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    )


# None of these changes while a process lives, so they are looked up once for all of its runs.


@cache
def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES.split():
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


@cache
def _git_revision(folder: Path) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


@cache
def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
