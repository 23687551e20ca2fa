"""One training, and a whole sweep, as the functions that ``auxlearn train`` and ``sweep`` call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from auxlearn.core.arguments import Column, Count, UserPath, checked
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, DataError, describe, shorten, text_of
from auxlearn.core.files import expand
from auxlearn.core.processes import process_number
from auxlearn.core.progress import Reporter
from auxlearn.core.settings import Columns, OODSource
from auxlearn.core.validation import validate
from auxlearn.core.yaml_files import DEEPEST
from auxlearn.data.dataset import TextDataset
from auxlearn.data.memory import in_memory, is_table, read_memory, refuse_for_files
from auxlearn.data.run_data import with_found_kind
from auxlearn.results.folder import RunFolder
from auxlearn.results.record import RunResults
from auxlearn.sweeps.executors import Executor, check_engine, make_executor
from auxlearn.sweeps.folder import SweepFolder, SweepResults
from auxlearn.sweeps.plan import expand_cells, plan_trials
from auxlearn.sweeps.sweep_file import SweepFile, read_sweep
from auxlearn.sweeps.view import View, default_view


@checked
def train(
    config: Annotated[Any, SkipValidation] = None,
    reporter: Reporter | None = None,
    *,
    dataset: Any = None,
    dataset_name: str | None = None,
    split_column: Column | None = None,
    jobs: Count = 1,
    verbose: bool = True,
    **settings: Any,
) -> RunResults:
    """Train and evaluate, or resume an unfinished run, or return the results of a finished one.

    Data in memory are saved in the run folder, under ``data/``, and ``config.yaml`` names that
    folder: the same call resumes the run, and so does
    ``auxlearn train --config RUN/config.yaml --output RUN``. The results are those of the same data
    in files, to the last digit.

    Args:
        config: The data set, as ``dataset``; or all settings as a
            :class:`~auxlearn.core.config.RunConfig`.
        reporter: Shows progress in place of the console or the notebook.
        verbose: Whether progress and warnings are shown where there is no ``reporter``.
        dataset: Folder, name of a data-set card, hub id, or data in memory: a pandas DataFrame, a
            mapping of columns to lists, a list of mappings, a ``datasets.Dataset``, a mapping of
            splits to these such as a ``datasets.DatasetDict``, or what
            :func:`auxlearn.load_dataset` returned.
        dataset_name: Name of data in memory in results and tables; by default ``data-`` and a
            fingerprint.
        split_column: Column of a single table in memory that names the split of each row; by
            default ``split`` if there is one. Without it, all rows are train, of which a part is
            held out as dev.
        jobs: Runs at a time, for a rule that compares whole runs: ``meta`` by default. Each is a
            process, with a GPU of its own if there are several.
        settings: Any field of :class:`~auxlearn.core.config.RunConfig`, such as ``encoder``,
            ``aux``, ``weights``, ``seed`` and ``output``.

    Returns:
        The results, which are also in the run folder, ``results.folder``.

    Raises:
        UserError: Anything a user can fix; the subclasses say what kind.

    Examples:
        ::

            results = auxlearn.train(dataset=frame, encoder="bert", aux="l3mask", weights="meta")
            results.evaluations["test"].all.macro_f1
            auxlearn.predict(results, ["A quiet, moving film."])
    """
    if config is not None and not isinstance(config, RunConfig):
        if dataset is not None or str(config).endswith((".yaml", ".yml")):
            raise ConfigError(
                "config is the data set, which is given once, or all settings as a RunConfig: "
                "auxlearn.load_config reads them from a file"
            )
        config, dataset = None, config
    if config is None:
        names = {"dataset": dataset} if dataset is not None and not in_memory(dataset) else {}
        config = _config({**settings, **names})
    elif settings or (dataset is not None and "dataset" in config.model_fields_set):
        twice = ", ".join(settings or ["dataset"])
        raise ConfigError(
            f"settings are given both by a RunConfig and by keywords ({twice}): use one of them"
        )
    else:  # model_copy(update=...) has checked nothing
        names = {} if dataset is None or in_memory(dataset) else {"dataset": dataset}
        given = {name: getattr(config, name) for name in config.model_fields_set}
        config = validate(RunConfig, given | names, "settings")
    if dataset is None or not in_memory(dataset):
        refuse_for_files(dataset_name, split_column)
        return _train(with_found_kind(config, None), reporter, None, jobs, verbose)
    data = read_memory(dataset, config.columns, name=dataset_name, split_column=split_column)
    config = with_found_kind(config, data)
    place = Path(data.fingerprint, data.name)
    config = config.model_copy(update={"dataset": str(place)}).resolved()
    folder = RunFolder.of(config)
    saved = {"dataset": str(folder.data_path / place), "output": str(folder.path)}
    return _train(config.model_copy(update=saved), reporter, data, jobs, verbose)


def _train(
    config: RunConfig, reporter: Reporter | None, data: TextDataset | None, jobs: int, verbose: bool
) -> RunResults:
    from auxlearn.results.console import default_reporter
    from auxlearn.sweeps import branches
    from auxlearn.sweeps.executors import LocalExecutor

    shown = reporter or default_reporter(verbose and process_number() == 0)
    if not config.aux and config.weights.name != RunConfig.model_fields["weights"].default.name:
        shown.message(
            f"weights {config.weights.name} has nothing to weigh: name an auxiliary task (--aux)"
        )
    if jobs == 1:
        results = branches.train(config, shown, data)
    else:
        with LocalExecutor(jobs) as executor:
            results = branches.train(config, shown, data, executor)
    if reporter is None:  # who brings a reporter shows the results as well
        for line in results.warnings():
            shown.message(f"warning: {line}")
    return results


def _config(settings: Mapping[str, Any]) -> RunConfig:
    if any(in_memory(one) for one in _sets(settings.get("ood"))):
        raise DataError(
            "ood: a data set in memory cannot be named there (evaluate it after training, with "
            "auxlearn.evaluate(results, data)): give a path, or {'name': ..., 'dataset': PATH}"
        )
    config: RunConfig = validate(RunConfig, dict(settings), "settings")
    config.check_effect(settings)
    return config


def _sets(value: Any) -> Sequence[Any]:
    """Return the out-of-distribution sets of a setting that are not in its written form."""
    sets = value if isinstance(value, list | tuple) else () if value is None else (value,)
    return [
        one
        for one in sets
        if not isinstance(one, OODSource) and not (isinstance(one, Mapping) and "dataset" in one)
    ]


def sweep_of(
    source: str | os.PathLike[str] | Mapping[str, Any] | SweepFile,
    output: str | os.PathLike[str] | None,
    dataset_name: str | None = None,
    split_column: str | None = None,
) -> tuple[SweepFile, SweepFolder]:
    """Return a sweep and its folder; data in memory are saved in the folder, under ``data/``."""
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
        sweep = validate(SweepFile, _plain(content, "sweep"), "sweep")
    elif isinstance(source, str | os.PathLike):
        sweep = read_sweep(Path(source))
    else:
        raise ConfigError(
            f"{describe(source)} ({type(source).__name__}) is no sweep: give the path of a sweep "
            "file, or a mapping with the same keys"
        )
    if dataset is None:
        refuse_for_files(dataset_name, split_column)
    folder = SweepFolder(expand(Path(output) if output is not None else f"sweeps/{sweep.name}"))
    folder.check()
    if dataset is not None:
        place = folder.path / _place(dataset)
        sweep = sweep.model_copy(update={"base": {**sweep.base, "dataset": str(place)}})
        cells = expand_cells(sweep)  # nothing is written for a sweep that is refused
        if not sweep.search:
            plan_trials(sweep, cells)
        if not place.is_dir():
            folder.save_data(dataset, place, _columns(sweep.base))
    return sweep, folder


def _columns(base: Mapping[str, Any]) -> Any:
    given = {name: base[name] for name in Columns.model_fields if name in base}
    return validate(Columns, given, "sweep: base")


def _place(dataset: TextDataset) -> str:
    """Return where data in memory are saved, relative to the folder of the sweep."""
    return f"data/{dataset.fingerprint}/{dataset.name}"


def _plain(value: Any, where: str) -> Any:
    """Return a value as a YAML file would have it."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if where.count(".") + where.count("[") > DEEPEST:
        raise ConfigError(f"{shorten(where)}: more than {DEEPEST} levels of lists and mappings")
    in_place = where.rpartition(".")[2].partition("[")[0] == "dataset"
    a_list = isinstance(value, list | tuple)
    table = is_table(value) and not (a_list and not value)
    if table and (in_place or not (a_list or isinstance(value, Mapping))):
        raise DataError(
            f"{where}: a data set in memory can be the 'dataset' of 'base' only: save it as a "
            "folder with train.jsonl, dev.jsonl and test.jsonl, and name the folder"
        )
    if isinstance(value, Mapping):
        return {key: _plain(one, f"{where}.{shorten(text_of(key))}") for key, one in value.items()}
    if a_list:
        return [_plain(one, f"{where}[{number}]") for number, one in enumerate(value)]
    if hasattr(value, "tolist") and getattr(value, "ndim", 2) <= 1:  # of numpy
        return value.tolist()
    raise ConfigError(
        f"{where}: {describe(value)} ({type(value).__name__}) cannot stand in a sweep: give a "
        "text, a number, a list or a mapping"
    )


@checked
def sweep(
    source: Annotated[str | os.PathLike[str] | Mapping[str, Any] | SweepFile, SkipValidation],
    *,
    output: UserPath | None = None,
    dataset_name: str | None = None,
    split_column: Column | None = None,
    jobs: Count | None = None,
    executor: Annotated[Literal["local", "ray", "slurm"] | Executor, SkipValidation] = "local",
    threads: Annotated[Count, Field(le=1024)] | None = None,
    gpus: Annotated[float, Field(ge=0)] | None = None,
    ray_address: str | None = None,
    slurm_partition: str | None = None,
    slurm_minutes: Count | None = None,
    retry_failed: bool = False,
    cache_dir: UserPath | None = None,
    view: View | None = None,
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
        executor: What runs the trials: processes of this machine, Ray, or SLURM; or an engine of
            one's own, which the caller closes and to which ``jobs`` to ``slurm_minutes`` do not
            apply.
        threads: CPU threads per trial; by default ``OMP_NUM_THREADS``, or else the number of cores
            divided by ``jobs`` (local).
        gpus: GPUs per trial; by default 1 if there are any (ray, which also takes fractions) or 0
            (slurm).
        ray_address: Address of a running Ray cluster, or ``auto``.
        slurm_partition: SLURM partition.
        slurm_minutes: Time limit of a SLURM job in minutes; by default 240.
        retry_failed: Run failed trials again.
        cache_dir: Cache of tokenised texts and pseudo-likelihood scores; by default
            ``~/.cache/auxlearn``.
        view: Shows the progress in place of the console or the notebook.
        verbose: Whether progress is shown where there is no ``view``.

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
    own: dict[str, Any] = {"gpus": gpus, "ray_address": ray_address}
    own |= {"slurm_partition": slurm_partition, "slurm_minutes": slurm_minutes}
    if not isinstance(executor, Executor):
        check_engine(executor, **own)
    read, folder = sweep_of(source, output, dataset_name, split_column)

    from auxlearn.sweeps.execute import run_sweep

    cache = None if cache_dir is None else os.fspath(cache_dir)
    with ExitStack() as stack:
        shown = view or stack.enter_context(default_view(folder, verbose))
        if isinstance(executor, Executor):
            engine = executor
        else:
            made = make_executor(executor, folder.path, jobs, threads, **own)
            engine = stack.enter_context(made)
        records = run_sweep(
            read, folder, engine, retry_failed=retry_failed, cache_dir=cache, view=shown
        )
    return SweepResults(read.name, folder.path, read.axes, tuple(records))
