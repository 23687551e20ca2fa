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


def make_executor(
    engine: str,
    folder: Path,
    jobs: int | None,
    threads: int | None,
    gpus: float | None,
    ray_address: str | None,
    slurm_partition: str | None,
    slurm_minutes: int,
) -> Executor:
    """Return an engine for the sweep in a folder; the arguments are those of `auxlearn.sweep`."""
    if engine not in ENGINES:
        shown = shorten(str(engine))
        raise ConfigError(f"executor: unknown engine '{shown}': {did_you_mean(shown, ENGINES)}")
    if engine == "ray":
        return RayExecutor(jobs, threads, gpus, ray_address)
    if engine == "slurm":
        return SlurmExecutor(
            folder / "slurm", jobs or 100, threads, gpus, slurm_minutes, slurm_partition
        )
    return LocalExecutor(jobs or 1, threads)
