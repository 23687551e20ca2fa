"""Engines that run the trials of a sweep: processes of this machine, Ray, SLURM."""

from __future__ import annotations

from auxlearn.sweeps.executors.base import Executor
from auxlearn.sweeps.executors.local import LocalExecutor
from auxlearn.sweeps.executors.ray import RayExecutor
from auxlearn.sweeps.executors.slurm import SlurmExecutor

__all__ = ["Executor", "LocalExecutor", "RayExecutor", "SlurmExecutor"]
