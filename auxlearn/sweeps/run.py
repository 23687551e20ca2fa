"""A whole sweep as one function, which ``auxlearn sweep`` calls."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Literal

from auxlearn.reporting.notebook import default_reporter
from auxlearn.sweeps.execute import View, run_sweep
from auxlearn.sweeps.executors import Executor, make_executor
from auxlearn.sweeps.results import SweepResults
from auxlearn.sweeps.source import sweep_of
from auxlearn.sweeps.sweep_file import SweepFile
from auxlearn.sweeps.view import ReporterView


def sweep(
    source: str | os.PathLike[str] | Mapping[str, Any] | SweepFile,
    *,
    output: str | os.PathLike[str] | None = None,
    dataset_name: str | None = None,
    split_column: str | None = None,
    jobs: int | None = None,
    executor: Literal["local", "ray", "slurm"] | Executor = "local",
    threads: int | None = None,
    gpus: float | None = None,
    ray_address: str | None = None,
    slurm_partition: str | None = None,
    slurm_minutes: int = 240,
    retry_failed: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    view: View | None = None,
) -> SweepResults:
    """Run every trial of a sweep, or those that are left of it, and return their results.

    The same call resumes a sweep that was stopped: finished trials are not run again. No failure
    stops the other trials; ``results.failed`` has them.

    Args:
        source: Path of a sweep file, or a mapping with the same keys. The ``dataset`` of its
            ``base`` can be data in memory as for :func:`auxlearn.train`; they are saved in the
            sweep's folder, under ``data/``.
        output: The sweep's folder; by default ``sweeps/NAME``.
        dataset_name: Name of data in memory in results and tables; by default ``data-`` and a
            fingerprint of the examples.
        split_column: Column of data in memory with the split of each row; by default ``split`` if
            there is one.
        jobs: Maximum number of trials at a time; by default 1 (local) or 100 (slurm).
        executor: What runs the trials: processes of this machine, Ray, SLURM, or an engine of
            one's own, which the caller closes and to which ``jobs`` to ``slurm_minutes`` do not
            apply.
        threads: CPU threads per trial; by default the number of cores divided by ``jobs`` (local).
        gpus: GPUs per trial; by default 1 if there are any (ray, which also takes fractions) or 0
            (slurm).
        ray_address: Address of a running Ray cluster, or ``auto``.
        slurm_partition: SLURM partition.
        slurm_minutes: Time limit of a SLURM job.
        retry_failed: Run failed trials again.
        cache_dir: Cache of tokenised texts and pseudo-likelihood scores; by default
            ``~/.cache/auxlearn``.
        view: Shows the progress; by default a progress bar in a notebook, and nothing elsewhere.

    Returns:
        The results, which ``auxlearn.compare`` and ``auxlearn.report`` take like a folder.

    Raises:
        UserError: The sweep has unknown or invalid entries, its folder cannot be written, or the
            user stopped it.

    Examples:
        ::

            results = auxlearn.sweep(
                {
                    "name": "weights",
                    "base": {"dataset": frame, "encoder": "bert", "aux": "random_mlm"},
                    "grid": {"weights": ["fixed", "meta"]},
                },
                jobs=2,
            )
            auxlearn.compare(results)
    """
    read, folder = sweep_of(source, output, dataset_name, split_column)
    cache = None if cache_dir is None else os.fspath(cache_dir)
    with ExitStack() as stack:
        shown = view or stack.enter_context(ReporterView(default_reporter()))
        if isinstance(executor, Executor):
            engine = executor
        else:
            engine = stack.enter_context(
                make_executor(
                    executor,
                    folder.path,
                    jobs=jobs,
                    threads=threads,
                    gpus=gpus,
                    ray_address=ray_address,
                    slurm_partition=slurm_partition,
                    slurm_minutes=slurm_minutes,
                )
            )
        records = run_sweep(
            read, folder, engine, retry_failed=retry_failed, cache_dir=cache, view=shown
        )
    return SweepResults(read.name, folder.path, read.axes, tuple(records))
