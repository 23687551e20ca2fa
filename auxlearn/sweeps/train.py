"""One training as a function, which ``auxlearn train`` calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import SkipValidation

from auxlearn.core.arguments import Column, Count, checked
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, DataError
from auxlearn.core.files import expand
from auxlearn.core.processes import process_number
from auxlearn.core.progress import Reporter
from auxlearn.core.settings import OODSource
from auxlearn.core.validation import validate
from auxlearn.data.dataset import TextDataset
from auxlearn.data.memory import in_memory, read_memory, refuse_for_files
from auxlearn.data.run_data import with_found_kind
from auxlearn.results.folder import RunFolder, default_output
from auxlearn.results.record import RunResults


@checked
def train(
    config: Annotated[RunConfig | None, SkipValidation] = None,
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
        config: The settings; or give them as keywords.
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
    if config is None:
        names = {"dataset": dataset} if dataset is not None and not in_memory(dataset) else {}
        config = _config({**settings, **names})
    elif not isinstance(config, RunConfig):
        raise ConfigError(
            f"the settings are a {type(config).__name__}: give a RunConfig, or settings as "
            "keywords, such as dataset=... and encoder=..."
        )
    elif settings or (dataset is not None and "dataset" in config.model_fields_set):
        twice = ", ".join(settings or ["dataset"])
        raise ConfigError(
            f"settings are given both by a RunConfig and by keywords ({twice}): use one of them"
        )
    elif dataset is not None and not in_memory(dataset):
        config = _config({**config.model_dump(exclude_unset=True), "dataset": dataset})
    if dataset is None or not in_memory(dataset):
        refuse_for_files(dataset_name, split_column)
        return _train(with_found_kind(config, None), reporter, None, jobs, verbose)
    data = read_memory(dataset, config.columns, name=dataset_name, split_column=split_column)
    config = with_found_kind(config, data)
    place = Path(data.fingerprint, data.name)
    config = _with_dataset(config, place).resolved()
    folder = expand(config.output) if config.output else default_output(config)
    config = _with_dataset(config, RunFolder(folder).data_path / place)
    config = config.model_copy(update={"output": str(folder)})
    return _train(config, reporter, data, jobs, verbose)


def _train(
    config: RunConfig,
    reporter: Reporter | None,
    data: TextDataset | None,
    jobs: int,
    verbose: bool,
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
    """Return the configuration that keywords describe."""
    if any(in_memory(one) for one in _sets(settings.get("ood"))):
        raise DataError(
            "ood: a data set in memory cannot be named there: evaluate it after training, with "
            "auxlearn.evaluate(results, data)"
        )
    return validate(RunConfig, dict(settings), "settings")


def _sets(value: Any) -> Sequence[Any]:
    """Return the out-of-distribution sets of a setting that are not in its written form."""
    sets = value if isinstance(value, list | tuple) else () if value is None else (value,)
    return [
        one
        for one in sets
        if not isinstance(one, OODSource) and not (isinstance(one, Mapping) and "dataset" in one)
    ]


def _with_dataset(config: RunConfig, path: Path) -> RunConfig:
    return config.model_copy(update={"dataset": str(path)})
