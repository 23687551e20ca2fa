"""The function that ``auxlearn train`` calls, and the way of every run to its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import SkipValidation

from auxlearn.core.arguments import Column, JobCount, checked
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, DataError, PluginError, plugin_title
from auxlearn.core.processes import joined, process_number
from auxlearn.core.progress import Reporter
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS
from auxlearn.core.settings import OODSource
from auxlearn.core.validation import validate
from auxlearn.data.dataset import TextDataset
from auxlearn.data.memory import in_memory, read_memory, refuse_for_files
from auxlearn.data.run_data import with_found_kind
from auxlearn.executors.jobs import Executor
from auxlearn.results.folder import RunFolder
from auxlearn.results.outputs import check_unowned
from auxlearn.results.record import RunResults


class NotGiven(Enum):
    """An argument that is left out; ``None`` in its place, as of a failed load, is a mistake."""

    NOT_GIVEN = "not given"


NOT_GIVEN = NotGiven.NOT_GIVEN


@checked
def train(
    config: Annotated[Any, SkipValidation] = NOT_GIVEN,
    reporter: Reporter | None = None,
    *,
    dataset: Any = NOT_GIVEN,
    dataset_name: str | None = None,
    split_column: Column | None = None,
    jobs: JobCount = 1,
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
        dataset: Folder, name of a data-set card, hub id, or data in memory; by default the built-in
            ``pydocs``. Data in memory are a DataFrame of pandas or polars, a ``pyarrow.Table``, a
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
    if dataset is None or config is None:
        raise DataError(
            f"{'config' if config is None else 'dataset'} is None: give the data set, or leave the "
            "argument out for the built-in one"
        )
    if config is not NOT_GIVEN and not isinstance(config, RunConfig):
        if dataset is not NOT_GIVEN or str(config).endswith((".yaml", ".yml")):
            raise ConfigError(
                "config is the data set, which is given once, or all settings as a RunConfig: "
                "auxlearn.load_config reads them from a file"
            )
        config, dataset = NOT_GIVEN, config
    memory = dataset is not NOT_GIVEN and in_memory(dataset)
    named = {} if memory or dataset is NOT_GIVEN else {"dataset": dataset}
    if config is NOT_GIVEN:
        config = _config({**settings, **named})
    elif settings or (dataset is not NOT_GIVEN and "dataset" in config.model_fields_set):
        twice = ", ".join(settings or ["dataset"])
        raise ConfigError(
            f"settings are given both by a RunConfig and by keywords ({twice}): use one of them"
        )
    else:  # model_copy(update=...) has checked nothing
        fields = {name: getattr(config, name) for name in config.model_fields_set}
        config = validate(RunConfig, fields | named, "settings")
        by_run = RunConfig().model_dump().keys() <= fields.keys()  # what a run wrote has all
        if not by_run and click.get_current_context(silent=True) is None:  # a command has looked
            config.check_effect(fields)
    data = None
    if memory:
        data = read_memory(dataset, config.columns, name=dataset_name, split_column=split_column)
    else:
        refuse_for_files(dataset_name, split_column)
    config = with_found_kind(config, data)
    if data is None:
        config = config.resolved()
    else:
        place = Path(data.fingerprint, data.name)
        config = config.model_copy(update={"dataset": str(place)}).resolved()
        folder = RunFolder.of(config)
        saved = {"dataset": str(folder.data_path / place), "output": str(folder.path)}
        config = config.model_copy(update=saved)
    return _train_showing(config, reporter, data, jobs, verbose)


def _train_showing(
    config: RunConfig, reporter: Reporter | None, data: TextDataset | None, jobs: int, verbose: bool
) -> RunResults:
    from auxlearn.executors.local import LocalExecutor
    from auxlearn.results.console import default_reporter

    place = RunFolder.of(config).path
    if not (place / "config.yaml").is_file():  # else it is a branch or trial that is given again
        check_unowned(place)
    shown = reporter or default_reporter(verbose and process_number() == 0)
    if not config.aux and config.weights != RunConfig().resolved().weights:
        shown.message(
            f"weights {config.weights.name} has nothing to weigh: name an auxiliary task (--aux)"
        )
    if jobs == 1:
        results = train_resolved(config, shown, data)
    else:
        with LocalExecutor(jobs) as executor:
            results = train_resolved(config, shown, data, executor)
    if reporter is None:  # who brings a reporter shows the results as well
        for line in results.warnings():
            shown.message(f"warning: {line}")
    return results


def train_resolved(
    config: RunConfig,
    reporter: Reporter | None = None,
    dataset: TextDataset | None = None,
    executor: Executor | None = None,
) -> RunResults:
    """Train by a rule of any kind: one run, or those that it compares, by an executor that the
    caller closes, or one after another in this process.
    """
    from auxlearn.encoders.device import usual_torch
    from auxlearn.training import run
    from auxlearn.training.plugin_checks import calling
    from auxlearn.training.setup import build_weighting
    from auxlearn.training.whole_runs.branches import train_branches
    from auxlearn.weighting.base import Branches

    reporter = reporter or Reporter()
    with usual_torch(), joined() as processes:
        if not processes.leads:
            return RunResults.load(run.follow(processes, dataset))
        if processes.count > 1 and executor is not None:
            raise ConfigError(
                f"jobs: {processes.count} processes train each run together here, so that runs "
                "follow one another: leave --jobs out, or start one process"
            )
        weighting = build_weighting(config)
        with calling(weighting, "branches"):
            rule = weighting.branches
        if rule is not None and not isinstance(rule, Branches):
            raise PluginError(f"branches of {plugin_title(weighting)} is neither Branches nor None")
        if rule is None:
            if executor is not None:
                reporter.message("jobs has no effect: one run is trained, in this process")
            results = run.train_run(config, weighting, reporter, dataset, processes)
        else:
            results = train_branches(config, rule, reporter, dataset, executor, processes)
        processes.share({"folder": str(results.folder)})
    return results


def _config(settings: Mapping[str, Any]) -> RunConfig:
    if any(in_memory(source) for source in _sets(settings.get("ood"))):
        raise DataError(
            "ood: a data set in memory cannot be named there (evaluate it after training, with "
            "auxlearn.evaluate(results, data)): give a path, or {'name': ..., 'dataset': PATH}"
        )
    for field, registry in {"aux": TASKS, "weights": WEIGHTINGS, "loss": LOSSES}.items():
        for key, name in product(settings.keys() - RunConfig.model_fields.keys(), registry.names()):
            option = key.removeprefix(f"{name}_")  # as on the command line
            is_chosen = settings.get(field) in (name, [name])
            if option != key or (is_chosen and key in registry.options(name).model_fields):
                raise ConfigError(f"{key}: write {field}={{'{name}': {{'{option}': ...}}}}")
    config: RunConfig = validate(RunConfig, dict(settings), "settings")
    config.check_effect(settings)
    return config


def _sets(value: Any) -> Sequence[Any]:
    """Return the out-of-distribution sets of a setting that are not in its written form."""
    sets = value if isinstance(value, list | tuple) else () if value is None else (value,)
    return [
        source
        for source in sets
        if not isinstance(source, OODSource | int | float | None)
        and not (
            isinstance(source, Mapping) and any(isinstance(value, str) for value in source.values())
        )
    ]
