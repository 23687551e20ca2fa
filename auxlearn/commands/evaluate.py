"""``auxlearn evaluate``: metrics of a finished run on a data set."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from auxlearn.commands.help import Example, ExampleCommand

if TYPE_CHECKING:
    from auxlearn.config import RunConfig
    from auxlearn.data.dataset import Split
    from auxlearn.results.record import RunResults


EXAMPLES = (
    Example(
        "Metrics on the test split of another data set",
        "auxlearn evaluate runs/reviews --dataset data/other_reviews",
    ),
    Example(
        "Another split and other column names, as JSON",
        "auxlearn evaluate runs/reviews --dataset data/columns --split dev --text-column body "
        "--json",
    ),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--dataset",
    required=True,
    help="Data set: folder, name of a data-set card, or Hugging Face hub id.",
)
@click.option("--split", default="test", show_default=True, help="Split to evaluate on.")
@click.option("--text-column", help="Column of the text; by default that of the run.")
@click.option(
    "--text-pair-column", help="Column of the second text of a pair; by default that of the run."
)
@click.option("--label-column", help="Column of the label; by default that of the run.")
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def command(
    run: Path,
    dataset: str,
    split: str,
    text_column: str | None,
    text_pair_column: str | None,
    label_column: str | None,
    as_json: bool,
) -> None:
    """Evaluate the finished run in folder RUN on a split of a data set.

    The data set needs no train split. If it has one, metrics are also given on the unseen examples,
    those whose text does not occur in train. Labels are matched by name, or as the data-set card of
    the run's training data maps them: the three classes of MultiNLI to the two of HANS, for
    example.
    """
    import numpy as np

    from auxlearn.commands.console import print_results
    from auxlearn.config import OODSource
    from auxlearn.data.audit import seen_in_train
    from auxlearn.data.ood import OODSet, card_subsets, map_labels, with_cards
    from auxlearn.evaluation.classifier import Classifier, check_finished
    from auxlearn.evaluation.metrics import reduce_predictions
    from auxlearn.evaluation.ood import evaluate_ood, map_predictions, true_labels
    from auxlearn.local_files import name_problem
    from auxlearn.reporting.tables import metrics_table, seen_sentences
    from auxlearn.results.folder import RunFolder
    from auxlearn.results.record import RunResults

    check_finished(run)
    config = RunFolder(run).read_config()
    given = {
        "text_column": text_column,
        "text_pair_column": text_pair_column,
        "label_column": label_column,
    }
    config = config.model_copy(update={key: name for key, name in given.items() if name})
    evaluated, train = _read(dataset, split, config)
    classifier = Classifier.of_run(run)
    trained = RunResults.load(run)
    name = Path(dataset).name.split(":")[-1]
    name = "evaluation" if name_problem(name) else name
    source = OODSource.model_validate({"dataset": dataset, "name": name, "split": split})
    source = with_cards(source, trained.dataset.name, classifier.label_names)
    source = source.model_copy(update={"subsets": card_subsets(source, evaluated)})
    labels = map_labels(classifier.label_names, evaluated.label_names, source.labels, split)
    probabilities = classifier.probabilities(evaluated.texts, evaluated.text_pairs)
    ood = OODSet(source, evaluated, labels)
    found = reduce_predictions(
        [(np.arange(len(evaluated)), probabilities)],
        true_labels(evaluated, ood),
        len(labels.label_names),
        lambda block: map_predictions(block, labels, source.decision),
    )
    results = evaluate_ood(
        ood,
        found,
        None,
        seen_in_train(train, evaluated) if train else [False] * len(evaluated),
        majority=_majority(trained),
    )
    if as_json:
        click.echo(json.dumps(asdict(results), indent=2, ensure_ascii=False))
        return
    lines = seen_sentences({split: results})
    if train is None:
        lines = [f"{dataset} has no train split to look for these texts in"]
    table = metrics_table({split: results})
    print_results(f"{run} on {split} of {dataset}", "", table, "", *lines)


def _read(dataset: str, split: str, config: RunConfig) -> tuple[Split, Split | None]:
    """Return the split to evaluate on, and the train split of the same set if there is one."""
    from auxlearn.data.examples import columns_of
    from auxlearn.data.folders import data_files, read_evaluation_split, split_name
    from auxlearn.data.load import load_dataset
    from auxlearn.errors import DataError
    from auxlearn.local_files import user_path

    columns = columns_of(config)
    folder = user_path(dataset, DataError)
    if folder.is_dir() and "train" not in data_files(folder):
        return read_evaluation_split(folder, split, columns=columns), None
    found = load_dataset(dataset, columns=columns)
    name = split if split in found.ood else split_name(split)
    return found.split(name), found.splits["train"]


def _majority(results: RunResults) -> int:
    """Return the class that the majority baseline of the run always predicts.

    It is the one class with predictions in the baseline's confusion matrix.
    """
    _, predicted = next(iter(results.evaluations.values())).majority.class_counts()
    return max(predicted, key=lambda number: predicted[number])
