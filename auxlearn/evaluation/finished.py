"""Evaluation of a finished run on further data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from auxlearn.core.arguments import Column, UserPath, checked
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import DataError, did_you_mean, some_of
from auxlearn.core.files import expand, name_problem, user_path
from auxlearn.core.settings import Columns, LabelMap, OODSource, each_label_once, labels_as_texts
from auxlearn.core.validation import Option
from auxlearn.data.audit import doubtful_texts
from auxlearn.data.dataset import CORE_SPLITS, Split, split_name
from auxlearn.data.leaks import count_trained_on
from auxlearn.data.load import load_evaluated
from auxlearn.data.memory import in_memory, is_table, refuse_for_files
from auxlearn.data.ood import OODSet, card_subsets, check_pairs, match_labels, with_cards
from auxlearn.kinds.base import kind_of
from auxlearn.results.console import default_reporter
from auxlearn.results.folder import RunFolder, finished_folder, model_of
from auxlearn.results.outputs import JSON, check_output_file
from auxlearn.results.record import Evaluations, RunResults


@checked
def evaluate(
    run: UserPath,
    dataset: Any,
    *,
    split: str = "test",
    labels: Annotated[LabelMap | None, Option("CLASS=LABEL")] = None,
    decision: Literal["sum", "argmax"] = "sum",
    unknown_labels: Literal["error", "count"] | None = None,
    text_column: Column | None = None,
    text_pair_column: Column | None = None,
    label_column: Column | None = None,
    keep_null_labels: bool = False,
    split_column: Column | None = None,
    output: UserPath | None = None,
    verbose: bool = True,
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
        decision: How classes that stand for the same label are combined: their probabilities are
            added (``sum``), or the most likely class counts (``argmax``).
        unknown_labels: What labels of a set are that the run does not know: an ``error``, or their
            examples ``count`` as wrong, of which ``unknown_labels`` of the scores is the number; by
            default as in the run.
        text_column: Column of the text; by default that of the run.
        text_pair_column: Column of the second text of a pair; by default that of the run.
        label_column: Column of the label; by default that of the run.
        keep_null_labels: Accept labels such as nan, None, null and NA, which usually stand for a
            missing value, as names of classes.
        split_column: Column of a table in memory that names the split of each row.
        output: JSON file for all results.
        verbose: Whether it is shown how the sets were read.

    Returns:
        The scores by name of the set: the last part of a path, ``data`` for a set in memory.

    Raises:
        UserError: The run is not finished, a set cannot be read, or its labels match no classes.

    Examples:
        ``auxlearn.evaluate("runs/nli", {"hans": "data/hans", "hard": frame}).to_frame()``
    """
    folder = finished_folder(run)
    model_of(folder)
    sets = name_sets(dataset, split)
    if output is not None:
        read_sets = [dataset for dataset in sets.values() if not in_memory(dataset)]
        check_output_file(expand(output), JSON, read_sets)
    config, trained = RunFolder(folder).read_config(), RunResults.load(folder)
    kind = trained.kind
    if decision != "sum":
        kind.require("decision argmax")
    joined, targets = (None, None) if labels is None else _label_maps(labels)
    changes: dict[str, Any] = {
        "text_column": text_column,
        "text_pair_column": text_pair_column,
        "label_column": label_column,
        "keep_null_labels": keep_null_labels or None,
        "unknown_labels": unknown_labels,
        "labels": joined,
    }
    config = config.model_copy(update={n: v for n, v in changes.items() if v is not None})
    if not any(map(in_memory, sets.values())):
        refuse_for_files(None, split_column)
    classes = trained.dataset.label_names
    read = {
        name: read_evaluated(data, split, config, split_column, classes)
        for name, data in sets.items()
    }
    reporter = default_reporter(verbose)
    for name, (evaluated, _) in read.items():
        for note in (*evaluated.notes, *doubtful_texts(evaluated)):
            reporter.message(f"{name}: {note}")
    mapped: dict[str, OODSet] = {}
    if foreign := sorted(labels_as_texts(labels or {}).keys() - set(trained.dataset.label_names)):
        raise DataError(
            f"labels: the map names {some_of(foreign)}, which the model does not know: "
            + did_you_mean(foreign[0], trained.dataset.label_names)
        )
    for name, (evaluated, _) in read.items():
        source = OODSource(
            dataset=str(sets[name]) if not in_memory(sets[name]) else name,
            name=name,
            split=split,
            labels=targets,
            decision=decision,
            unknown_labels=config.unknown_labels,
        )
        mapped[name] = mapped_set(trained, source, evaluated)

    from auxlearn.encoders.device import usual_torch
    from auxlearn.evaluation.evaluator import Classifier

    evaluations = Evaluations()
    with usual_torch():
        classifier = Classifier.of_run(folder)
        for name, (evaluated, train) in read.items():
            if seen := count_trained_on(RunFolder(folder).model_path, evaluated):
                reporter.message(
                    f"{name}: the text of {seen:,} of {len(evaluated):,} examples is among those "
                    "that the run was trained on"
                )
            evaluations[name] = classifier.evaluate(mapped[name], train)
    for note in classifier.notes:
        reporter.message(note)
    if output is not None:
        evaluations.save(expand(output))
    return evaluations


def name_sets(dataset: Any, split: str) -> dict[str, Any]:
    if isinstance(dataset, Mapping) and not _is_one_set(dataset, split):
        sets = {str(name): source for name, source in dataset.items()}
        for name in sets:
            if problem := name_problem(name):
                raise DataError(f"the name of a data set: {problem}")
    elif isinstance(dataset, Mapping) and (
        not all(map(in_memory, dataset.values())) or _has_sets_and_splits(dataset, split)
    ):
        raise DataError(
            "sets to evaluate on are named by other names than those of splits (train, dev, test): "
            "rename them, or name the set that the splits are of, as in {'name': {'test': data}}"
        )
    elif isinstance(dataset, list | tuple) and not all(isinstance(d, Mapping) for d in dataset):
        sets = {}
        for source in dataset:
            if in_memory(source):
                raise DataError(
                    f"a {type(source).__name__} in a list of data sets is not a path: name sets in "
                    "memory, as in {'name': data}"
                )
            sets[_free_name(source, sets)] = source
    else:
        sets = {_free_name(dataset, {}): dataset}
    if not sets:
        raise DataError("there is no data set to evaluate on: name one")
    return sets


def mapped_set(trained: RunResults, source: OODSource, evaluated: Split) -> OODSet:
    """Return a set to evaluate a run on, with its labels mapped to the classes of the run."""
    classes = trained.dataset.label_names
    source = with_cards(source, trained.dataset.name, classes)
    source = source.model_copy(update={"subsets": card_subsets(source, evaluated)})
    check_pairs(source.name, evaluated, trained.dataset.pairs)
    return OODSet(source, *match_labels(classes, evaluated, source))


class _EvaluatedColumns(Columns):
    """Columns of a run, in a further set."""

    only_evaluated = True


def read_evaluated(
    dataset: Any,
    split: str,
    config: RunConfig,
    split_column: str | None,
    label_names: Sequence[str] = (),
) -> tuple[Split, Split | None]:
    """Return the split to evaluate a run with such classes on, and the train split of the same set
    if there is one.
    """
    columns = _EvaluatedColumns(**dict(config.columns) | {"kind": kind_of(config.kind).name})
    columns = columns.of_model(label_names)
    return load_evaluated(dataset, split, columns, split_column=split_column)


def _is_one_set(dataset: Mapping[Any, Any], split: str) -> bool:
    names = {split_name(str(name)) for name in dataset}
    return is_table(dataset) or not names.isdisjoint({split_name(split), *CORE_SPLITS})


def _has_sets_and_splits(dataset: Mapping[Any, Any], split: str) -> bool:
    """Return whether names may be those of sets, of which all but a split would be left out."""
    names = {split_name(str(name)) for name in dataset}
    is_mixed = "train" not in names and not names <= {split_name(split), *CORE_SPLITS}
    return is_mixed and type(dataset) is dict and not is_table(dataset)


def _free_name(dataset: Any, taken: Mapping[str, Any]) -> str:
    """Return the last part of a path or name, with a number if it is taken."""
    name = "data" if in_memory(dataset) else user_path(dataset).resolve().name.split(":")[-1]
    name = "evaluation" if name_problem(name) else name
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def _label_maps(labels: Mapping[str, Any]) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the labels that are read as one class, and the label of every other class."""
    by_class = labels_as_texts(labels)
    alone = {name: texts[0] for name, texts in by_class.items() if len(texts) == 1}
    try:
        joined = each_label_once({n: texts for n, texts in by_class.items() if n not in alone})
        for name in alone:  # several classes may have one label, but not one of a list
            each_label_once(joined | {name: by_class[name]})
    except ValueError as error:
        raise DataError(f"labels: {error}") from None
    return joined, alone
