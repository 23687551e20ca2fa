"""A whole sweep, as the function that ``auxlearn sweep`` calls."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SkipValidation
from pydantic_core import to_jsonable_python

from auxlearn.core.arguments import Column, Count, JobCount, UserPath, checked
from auxlearn.core.errors import ConfigError, DataError, describe
from auxlearn.core.files import expand, user_path
from auxlearn.core.progress import Reporter
from auxlearn.core.settings import Columns
from auxlearn.core.validation import Option, validate
from auxlearn.data.dataset import TextDataset
from auxlearn.data.memory import in_memory, is_table, read_memory, refuse_for_files
from auxlearn.executors.jobs import Executor, executor_maker
from auxlearn.sweeps.folder import PLAN, SweepFolder, SweepResults
from auxlearn.sweeps.plan import expand_cells, plan_trials
from auxlearn.sweeps.published import check_published
from auxlearn.sweeps.sweep_file import SweepFile, read_sweep


def sweep_of(
    source: str | os.PathLike[str] | Mapping[str, Any] | SweepFile,
    output: str | os.PathLike[str] | None,
    dataset_name: str | None = None,
    split_column: str | None = None,
) -> tuple[SweepFile, SweepFolder, list[Path]]:
    """Return a sweep, its folder, and the folders that were made for data in memory, innermost
    first; these are saved under ``data/``.
    """
    dataset: TextDataset | None = None
    if isinstance(source, SweepFile):
        sweep = source
    elif isinstance(source, Mapping):
        content = dict(source)
        base = content.get("base")
        if isinstance(base, Mapping) and in_memory(base.get("dataset", "")):
            named = {"name": dataset_name, "split_column": split_column}
            dataset = read_memory(base["dataset"], _columns(base), **named)
            content["base"] = {**base, "dataset": _place(dataset)}
        sweep = validate(SweepFile, _plain(content), "sweep")
    elif isinstance(source, str | os.PathLike):
        sweep = read_sweep(user_path(source, ConfigError))
    else:
        raise ConfigError(
            f"{describe(source)} ({type(source).__name__}) is no sweep: give the path of a sweep "
            "file, or a mapping with the same keys"
        )
    if dataset is None:
        refuse_for_files(dataset_name, split_column)
    folder = SweepFolder(expand(Path(output) if output is not None else f"sweeps/{sweep.name}"))
    folder.check()
    check_published(sweep.published, folder.path)
    made: list[Path] = []
    if dataset is not None:
        place = folder.path / _place(dataset)
        sweep = sweep.model_copy(update={"base": {**sweep.base, "dataset": str(place)}})
        cells = expand_cells(sweep)  # nothing is written for a sweep that is refused
        if not sweep.search:
            plan_trials(sweep, cells)
        made = [path for path in (place, *place.parents) if not path.exists()]
        if made:
            folder.save_data(dataset, place, _columns(sweep.base))
    return sweep, folder, made


def _columns(base: Mapping[str, Any]) -> Any:
    named = {name: base[name] for name in Columns.model_fields if name in base}
    return validate(Columns, named, "sweep: base")


def _place(dataset: TextDataset) -> str:
    """Return where data in memory are saved, relative to the folder of the sweep."""
    return f"data/{dataset.fingerprint}/{dataset.name}"


def _plain(content: Mapping[str, Any]) -> Any:
    """Return a mapping as a YAML file would have it."""

    def fallback(value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(value)
        if hasattr(value, "tolist") and getattr(value, "ndim", 2) <= 1:  # of numpy
            return value.tolist()
        if is_table(value):
            raise DataError(
                "sweep: a data set in memory can be the 'dataset' of 'base' only: save it as a "
                "folder with train.jsonl, dev.jsonl and test.jsonl, and name the folder"
            )
        raise ConfigError(
            f"sweep: {describe(value)} ({type(value).__name__}) cannot stand in a sweep: give a "
            "text, a number, a list or a mapping"
        )

    try:
        return to_jsonable_python(content, fallback=fallback)
    except ValueError as error:
        raise ConfigError(f"sweep: too many levels of lists and mappings ({error})") from None


@checked
def sweep(
    source: Annotated[str | os.PathLike[str] | Mapping[str, Any] | SweepFile, SkipValidation],
    *,
    output: Annotated[UserPath | None, Option("FOLDER")] = None,
    dataset_name: str | None = None,
    split_column: Column | None = None,
    jobs: JobCount | None = None,
    executor: Annotated[str | Mapping[str, Any] | Executor, SkipValidation] = "local",
    threads: Annotated[Count, Field(le=1024)] | None = None,
    retry_failed: bool = False,
    cache_dir: Annotated[UserPath | None, Option("FOLDER")] = None,
    reporter: Reporter | None = None,
    verbose: bool = True,
) -> SweepResults:
    """Run every trial of a sweep, or those that are left of it, and return their results.

    The same call resumes a sweep that was stopped: finished trials are not run again. No failure
    stops the other trials; ``results.failed`` has them.

    Args:
        source: Path of a sweep file, or a mapping with the same keys. The ``dataset`` of its
            ``base`` can be data in memory as for :func:`auxlearn.train`; they are saved in the
            sweep's folder, under ``data/``.
        output: Sweep folder; by default ``sweeps/NAME``.
        dataset_name: Name of data in memory in results and tables; by default ``data-`` and a
            fingerprint of the examples.
        split_column: Column of data in memory with the split of each row; by default ``split`` if
            there is one.
        jobs: Maximum number of trials at a time; by default 1 (local) or 100 (slurm).
        executor: What runs the trials: ``local`` (processes of this machine), ``ray`` or ``slurm``,
            with options as in ``{"slurm": {"partition": "gpu", "gpus": 1}}``; or an executor of
            one's own, which the caller closes and which has ``jobs`` and ``threads`` of its own.
        threads: CPU threads per trial; by default ``OMP_NUM_THREADS``, or else the number of cores
            divided by ``jobs`` (local).
        retry_failed: Run failed trials again.
        cache_dir: Cache of tokenised texts and pseudo-likelihood scores; by default
            ``$AUXLEARN_CACHE``, else the folder ``auxlearn`` in the user's cache folder.
        reporter: Shows the progress in place of the console or the notebook.
        verbose: Whether progress is shown where there is no ``reporter``.

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
    make = executor_maker(executor, jobs, threads)
    read, folder, made = sweep_of(source, output, dataset_name, split_column)

    from auxlearn.results.console import default_reporter
    from auxlearn.sweeps.execute import run_sweep

    try:
        with make(folder.path) as engine:
            records = run_sweep(
                read,
                folder,
                engine,
                retry_failed=retry_failed,
                cache_dir=None if cache_dir is None else os.fspath(cache_dir),
                reporter=reporter or default_reporter(verbose),
            )
    except Exception:
        if made and not (folder.path / PLAN).exists():  # it was refused, and leaves nothing
            shutil.rmtree(made[0], ignore_errors=True)
            with suppress(OSError):  # the first one that is not empty
                for path in made[1:]:
                    path.rmdir()
        raise
    files = folder.recorded_files()
    return SweepResults(read.name, folder.path.absolute(), read.axes, tuple(records), files)
