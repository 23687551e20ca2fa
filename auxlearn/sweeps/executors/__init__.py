"""Engines that run the trials of a sweep: processes of this machine, Ray, SLURM."""

from __future__ import annotations

from pathlib import Path

from auxlearn.core.errors import ConfigError, did_you_mean, shorten
from auxlearn.sweeps.executors.local import LocalExecutor
from auxlearn.sweeps.executors.ray import RayExecutor
from auxlearn.sweeps.executors.slurm import SlurmExecutor
from auxlearn.sweeps.jobs import Executor

__all__ = ["Executor", "LocalExecutor", "RayExecutor", "SlurmExecutor", "make_executor"]

ENGINES = ("local", "ray", "slurm")

#: Options that some engines alone have.
_OWN = {"gpus": ("ray", "slurm"), "ray_address": ("ray",), "slurm_partition": ("slurm",)}
_OWN["slurm_minutes"] = _OWN["slurm_partition"]


def check_engine(engine: str, **given: object) -> None:
    """Check that there is an engine, and that it has the options that are given."""
    if engine not in ENGINES:
        shown = shorten(str(engine))
        raise ConfigError(f"executor: unknown engine '{shown}': {did_you_mean(shown, ENGINES)}")
    for name, engines in _OWN.items():
        if given.get(name) is not None and engine not in engines:
            raise ConfigError(
                f"{name}: the executor '{engine}' has no such option: leave it out, or choose "
                f"--executor {' or '.join(engines)}"
            )


def make_executor(
    engine: str,
    folder: Path,
    jobs: int | None,
    threads: int | None,
    gpus: float | None,
    ray_address: str | None,
    slurm_partition: str | None,
    slurm_minutes: int | None,
) -> Executor:
    """Return an engine for the sweep in a folder; the arguments are those of `auxlearn.sweep`."""
    if engine == "ray":
        return RayExecutor(jobs, threads, gpus, ray_address)
    if engine == "slurm":
        return SlurmExecutor(
            folder / "slurm", jobs or 100, threads, gpus, slurm_minutes or 240, slurm_partition
        )
    return LocalExecutor(jobs or 1, threads)
