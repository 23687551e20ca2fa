"""The commands as functions: train, evaluate, predict, pretrain on data in files or in memory.

Each command of the command line parses its options and calls the function of its name. Mistakes
raise :class:`~auxlearn.core.errors.UserError` with the lines that the command line prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SkipValidation

from auxlearn.core.arguments import Column, Count, UserPath, checked
from auxlearn.core.config import RunConfig, validate
from auxlearn.core.errors import ConfigError, DataError
from auxlearn.core.files import expand
from auxlearn.core.processes import process_number
from auxlearn.core.progress import Reporter
from auxlearn.core.settings import LabelMap
from auxlearn.data.examples import columns_of
from auxlearn.data.memory import in_memory, read_memory, refuse_for_files
from auxlearn.data.run_data import with_found_kind
from auxlearn.results.folder import (
    FinishedRun,
    RunFolder,
    default_output,
    finished_folder as _finished,
)
from auxlearn.results.outputs import check_output_file
from auxlearn.results.record import RunResults

if TYPE_CHECKING:
    import pandas

    from auxlearn.comparison.ensemble import Ensemble
    from auxlearn.data.dataset import TextDataset
    from auxlearn.results.record import Evaluations
    from auxlearn.training.pretrain_folder import PretrainResults

__all__ = ["ensemble", "evaluate", "load_run", "predict", "pretrain", "score", "train"]


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
    data = read_memory(dataset, columns_of(config), name=dataset_name, split_column=split_column)
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
    from auxlearn.sweeps.branches import train
    from auxlearn.sweeps.executors import LocalExecutor

    shown = reporter or default_reporter(verbose and process_number() == 0)
    if jobs == 1:
        results = train(config, shown, data)
    else:
        with LocalExecutor(jobs) as executor:
            results = train(config, shown, data, executor)
    if reporter is None:  # who brings a reporter shows the results as well
        for line in results.warnings():
            shown.message(f"warning: {line}")
    return results


@checked
def load_run(path: UserPath) -> RunResults:
    """Return the results of a finished run.

    Args:
        path: The run folder.

    Raises:
        RunError: It is not a run folder, or the run is not finished.

    Examples:
        ``auxlearn.load_run("runs/first").to_frame()``
    """
    return RunResults.load(_finished(path))


@checked
def evaluate(
    run: FinishedRun,
    dataset: Any,
    *,
    split: str = "test",
    labels: LabelMap | None = None,
    decision: Literal["sum", "argmax"] = "sum",
    unknown_labels: Literal["error", "count"] | None = None,
    text_column: Column | None = None,
    text_pair_column: Column | None = None,
    label_column: Column | None = None,
    keep_null_labels: bool = False,
    split_column: Column | None = None,
    output: UserPath | None = None,
) -> Evaluations:
    """Evaluate a finished run on one or several data sets.

    A set needs no train split. If it has one, scores are also given on the unseen examples, those
    whose text does not occur in train.

    Args:
        run: The run folder, or the results that :func:`train` or :func:`load_run` returned.
        dataset: Folder, name of a data-set card, hub id, or data in memory as for :func:`train`; a
            table without splits is evaluated as a whole. Several sets are a list of paths, or a
            mapping of names to sets, none of them called train, dev, test or ``split``.
        split: Split to evaluate on.
        labels: Label of the set, or list of labels that are one class, by class of the model;
            classes without an entry, and without one in the data-set card, map to the label of the
            same name. By default the ``labels`` of the run.
        decision: How classes that map to the same label are combined: ``sum`` adds their
            probabilities, ``argmax`` takes the most likely class.
        unknown_labels: What a label is that the model does not know: an ``error``, or one whose
            examples ``count`` as wrong, of which ``unknown_labels`` of the scores is the number. By
            default that of the run.
        text_column: Column of the text; by default that of the run.
        text_pair_column: Column of the second text of a pair; by default that of the run.
        label_column: Column of the label; by default that of the run.
        keep_null_labels: Accept labels such as "nan" and "None" as names of classes.
        split_column: Column of a table in memory that names the split of each row.
        output: JSON file to write the results to.

    Returns:
        The scores by name of the set: the last part of a path, ``data`` for a set in memory.

    Raises:
        UserError: The run is not finished, a set cannot be read, or its labels match no classes.

    Examples:
        ``auxlearn.evaluate("runs/nli", {"hans": "data/hans", "hard": frame}).to_frame()``
    """
    folder = _finished(run)

    from auxlearn.evaluation.finished import evaluate_run, name_sets

    sets = name_sets(dataset, split)
    if output is not None:
        check_output_file(expand(Path(output)), _paths(sets.values()))
    given: dict[str, Any] = {
        "text_column": text_column,
        "text_pair_column": text_pair_column,
        "label_column": label_column,
        "keep_null_labels": keep_null_labels or None,
        "unknown_labels": unknown_labels,
    }
    columns = {name: value for name, value in given.items() if value is not None}
    found = evaluate_run(
        folder,
        sets,
        RunFolder(folder).read_config().model_copy(update=columns),
        split=split,
        labels=labels,
        decision=decision,
        split_column=split_column,
    )
    if output is not None:
        found.save(expand(Path(output)))
    return found


@checked
def predict(
    run: FinishedRun,
    texts: Any,
    text_pairs: Any = None,
    *,
    text_column: Column | None = None,
    text_pair_column: Column | None = None,
    output: UserPath | None = None,
) -> pandas.DataFrame:
    """Classify texts with a finished run.

    Args:
        run: The run folder, or the results that :func:`train` or :func:`load_run` returned.
        texts: A text, a list or Series of texts, or a table: a :class:`~pathlib.Path` of a file
            (.csv, .tsv, .jsonl, .parquet, or one text per line), a DataFrame, a mapping of columns
            to lists, a list of mappings, or a ``datasets.Dataset``.
        text_pairs: Second texts, if the run was trained on pairs and ``texts`` is a list.
        text_column: Column of the text in a table; by default that of the run, else ``text``.
        text_pair_column: Column of the second text in a table, likewise.
        output: File to write the table to: .csv, .tsv, .jsonl or .parquet.

    Returns:
        The table with all its columns, and further ones: ``predicted_label`` and
        ``probability_CLASS`` for each class. A DataFrame keeps its index; other texts are numbered
        from 0, by the index ``example``.

    Raises:
        UserError: The run is not finished, a column is missing, a text is empty, or the run was
            trained on pairs of texts and there are none.
    """
    folder = _finished(run)

    from auxlearn.evaluation.predict import classify, table_of

    source = table_of(texts, text_pairs)
    if text_pairs is not None and RunResults.load(folder).dataset.pairs is False:
        raise DataError("the run was trained on single texts: leave text_pairs out")
    place = None if output is None else expand(Path(output))
    table, _ = classify(folder, source, text_column, text_pair_column, place)
    return source.to_frame(table)


@checked
def ensemble(
    *runs: FinishedRun,
    method: str | None = None,
    split: str = "test",
    dataset: Any = None,
    text_column: Column | None = None,
    text_pair_column: Column | None = None,
    label_column: Column | None = None,
    output: UserPath | None = None,
) -> Ensemble:
    """Average the class probabilities of finished runs, such as the seeds of a method.

    On the sets that the runs were evaluated on, their stored predictions are averaged, and no model
    is loaded.

    Args:
        runs: At least two run folders, or results; with ``method``, the folder of one sweep.
        method: Method of the sweep whose finished runs are taken.
        split: Split, or out-of-distribution set of the runs.
        dataset: Another labelled data set, as for :func:`evaluate`; the models are run on it.
        text_column: Column of the text in ``dataset``; by default that of the first run.
        text_pair_column: Column of the second text of a pair, likewise.
        label_column: Column of the label, likewise.
        output: File to write the examples with their predictions to: .csv, .tsv, .jsonl or
            .parquet.

    Returns:
        Scores of each run, their mean, and those of the ensemble, with its predictions.

    Raises:
        UserError: A run is not finished, is given twice, or differs in data, labels or splits; a
            set cannot be read.

    Examples:
        ``auxlearn.ensemble("runs/seed-0", "runs/seed-1", "runs/seed-2").scores.macro_f1``
    """
    if method is None:
        folders = [_finished(run) for run in runs]
    elif len(runs) != 1 or isinstance(runs[0], RunResults):
        raise ConfigError(f"'{method}' is a method of one sweep: name the folder of that sweep")
    else:
        from auxlearn.comparison.runs import runs_of_method

        folders = runs_of_method(expand(Path(runs[0])), method)

    from auxlearn.comparison.ensemble import average_runs
    from auxlearn.evaluation.predict import check_table_file

    place = None if output is None else expand(Path(output))
    given = {
        "text_column": text_column,
        "text_pair_column": text_pair_column,
        "label_column": label_column,
    }
    columns = {name: value for name, value in given.items() if value is not None}
    if columns and dataset is None:
        raise ConfigError(f"{next(iter(columns))} is of another data set: name it by dataset")
    if place is not None:
        check_table_file(place, _read_by(folders) if dataset is None else _paths([dataset]))
    found = average_runs(folders, split, dataset, columns)
    if place is not None:
        found.save(place)
    return found


@checked
def pretrain(
    encoder: UserPath,
    output: UserPath,
    *,
    reporter: Reporter | None = None,
    verbose: bool = True,
    **settings: Any,
) -> PretrainResults:
    """Continue the pretraining of an encoder by masked language modelling.

    Args:
        encoder: Short name, folder, or hub id.
        output: Folder for the trained encoder and its tokenizer. The same call resumes.
        reporter: Shows progress in place of the console or the notebook.
        verbose: Whether progress and warnings are shown where there is no ``reporter``.
        settings: As for :func:`auxlearn.training.pretrain.pretrain`: ``dataset`` (a path, name,
            hub id, or data in memory as for :func:`train`) or ``corpus`` (a file, or a list of
            texts), ``steps``, ``batch_size``, ``learning_rate`` and others.

    Raises:
        UserError: The encoder, the texts, a setting or the output folder cannot be used.
    """
    from auxlearn.results.console import default_reporter
    from auxlearn.training import pretrain as module

    return module.pretrain(
        str(encoder), Path(output), reporter=reporter or default_reporter(verbose), **settings
    )


@checked
def score(
    encoder: UserPath,
    texts: Any,
    *,
    level: Literal["token", "word", "text"] = "token",
    passes: Count | None = None,
    max_length: Annotated[Count, Field(ge=4)] = 128,
    text_column: Column = "text",
    reporter: Reporter | None = None,
    verbose: bool = True,
    output: UserPath | None = None,
) -> pandas.DataFrame:
    """Score texts by the pseudo-log-likelihood of a masked language model.

    Args:
        encoder: Short name, folder, or hub id of an encoder with a masked-language-model head.
        texts: A text, a list or Series of texts, a DataFrame or another table in memory, or a
            :class:`~pathlib.Path` of a file: a table, or one text per line.
        level: What a row is.
        passes: Masked copies of each text; ``None``: one per token, which is exact.
        max_length: Tokens of a text, special ones included; what is beyond is not scored.
        text_column: Column of the text in a table.
        reporter: Shows progress in place of the console or the notebook.
        verbose: Whether progress and warnings are shown where there is no ``reporter``.
        output: File to write the table to: .csv, .tsv, .jsonl or .parquet.

    Returns:
        Number of the text (and of the word), the token, word or text, its log-probability in nats,
        and the entropy of the prediction; see :func:`~auxlearn.scoring.levels.score_levels`.

    Raises:
        UserError: The encoder cannot score, or the texts cannot be read.
    """
    import pandas as pd

    from auxlearn.data.tables import write_table
    from auxlearn.encoders.device import default_device
    from auxlearn.encoders.load import check_length, load_encoder
    from auxlearn.evaluation.predict import check_table_file, texts_of
    from auxlearn.results.console import default_reporter
    from auxlearn.scoring.levels import score_levels

    place = None if output is None else expand(Path(output))
    if place is not None:
        check_table_file(place, [encoder, *([texts] if isinstance(texts, Path) else [])])
    split = texts_of(texts, text_column)
    loaded = load_encoder(str(encoder), ["unused"])
    check_length(loaded.config, max_length)
    show = reporter or default_reporter(verbose)
    table = score_levels(
        loaded.to(default_device()), split, level, max_length, passes, show.progress
    )
    if place is not None:
        write_table(place, table)
    return pd.DataFrame(table.columns)


def _paths(sets: Iterable[Any]) -> list[Any]:
    """Return the data sets that are not in memory."""
    return [one for one in sets if not in_memory(one)]


def _read_by(runs: Sequence[Path]) -> list[str]:
    """Return the data sets of finished runs."""
    configs = [RunFolder(run).read_config() for run in runs]
    return [
        source
        for config in configs
        for source in (config.dataset, *(one.dataset for one in config.ood))
    ]


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
    from auxlearn.core.settings import OODSource

    sets = value if isinstance(value, list | tuple) else () if value is None else (value,)
    return [
        one
        for one in sets
        if not isinstance(one, OODSource) and not (isinstance(one, Mapping) and "dataset" in one)
    ]


def _with_dataset(config: RunConfig, path: Path) -> RunConfig:
    return config.model_copy(update={"dataset": str(path)})
