"""Ensembles: the mean of the predictions of several finished runs.

Lakshminarayanan et al. (2017, https://arxiv.org/abs/1612.01474) average the predictions of networks
that differ in the seed: the probabilities of classes, labels, or tags of words, or the numbers.
What the runs have stored of the sets that they were evaluated on is averaged; no model is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from auxlearn.comparison.methods import runs_of_method
from auxlearn.core.arguments import UserPath, checked
from auxlearn.core.errors import (
    ConfigError,
    DataError,
    RunError,
    describe,
    did_you_mean,
    some_of,
)
from auxlearn.core.files import expand
from auxlearn.core.table import Table
from auxlearn.core.validation import Option
from auxlearn.data.dataset import Split, split_name
from auxlearn.data.run_data import load_run_data
from auxlearn.data.tables import FORMATS, write_table
from auxlearn.evaluation.predict import prediction_columns
from auxlearn.kinds.base import Kind
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.kinds.metrics import metric_title
from auxlearn.results.folder import RunFolder, finished_folder, recorded_inputs
from auxlearn.results.outputs import check_output_file
from auxlearn.results.predictions import Stored, read_stored
from auxlearn.results.record import RunResults, Scores

if TYPE_CHECKING:
    import pandas

#: The probabilities of two labels that differ by no more are equal as they are stored.
STORED_DIGIT = 2e-8


@dataclass(frozen=True, repr=False, eq=False)  # arrays have no truth to compare by
class Ensemble:
    """Several runs and the mean of their predictions on one evaluation set.

    Attributes:
        set: Name of the evaluation set.
        label_names: The classes, labels or tags, in the order of the probabilities.
        runs: Scores of each run alone, by its folder.
        scores: Scores of the ensemble, which predicts by the mean probabilities, or the mean
            numbers, as a run does by its own. Of runs whose thresholds were chosen on dev, those of
            the ensemble are, too.
        first: Results of the first run, whose data the texts are.
        labels: The true label of each example, by number.
        probabilities: Mean probabilities, ``(examples, classes)``; of tags, a list of ``(words,
            tags)``, and of numbers their means, ``(examples, 1)``.
        kind: Kind of the labels.
        thresholds: Probability from which on each of several labels is predicted; ``None`` for 0.5.
    """

    set: str
    label_names: tuple[str, ...]
    runs: Mapping[Path, Scores]
    scores: Scores
    first: RunResults
    labels: Any
    probabilities: Any
    kind: Kind = CLASSIFICATION
    thresholds: np.ndarray | None = None

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{metric_title(name)} {value:.3f} (mean of the runs {self.mean(name):.3f})"
            for name, value in self.scores.metrics.items()
        )
        return f"<Ensemble of {len(self.runs)} runs on {self.set}: {shown}>"

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html())

    def mean(self, metric: str) -> float:
        """Return the mean of a metric of the runs.

        Raises:
            ConfigError: The runs have no such metric.
        """
        if metric not in self.scores.metrics:
            hint = did_you_mean(str(metric), self.scores.metrics)
            raise ConfigError(f"the runs have no metric {describe(metric)}: {hint}")
        return fmean(scores.metrics[metric] for scores in self.runs.values())

    def to_frame(self) -> pandas.DataFrame:
        """Return the metrics of each run, their mean, and those of the ensemble."""
        import pandas

        rows = {str(path): scores.metrics for path, scores in self.runs.items()}
        rows["mean"] = {metric: self.mean(metric) for metric in self.scores.metrics}
        rows["ensemble"] = self.scores.metrics
        return pandas.DataFrame.from_dict(rows, orient="index", columns=list(self.scores.metrics))

    def to_dict(self) -> dict[str, Any]:
        return {
            "set": self.set,
            "runs": {str(path): scores.to_dict() for path, scores in self.runs.items()},
            "mean": {metric: self.mean(metric) for metric in self.scores.metrics},
            "ensemble": self.scores.to_dict(),
        }

    def predictions(self) -> pandas.DataFrame:
        """Return each example with its label, the predicted label and the mean probabilities."""
        import pandas

        return pandas.DataFrame(self.table().columns).rename_axis("example")

    def table(self) -> Table:
        """Return :meth:`predictions` as a table."""
        split = self._read_texts()
        columns: dict[str, Any] = {"text": list(split.texts)}
        if split.text_pairs is not None:
            columns["text_pair"] = list(split.text_pairs)
        columns["label"] = [self.kind.written(label, self.label_names) for label in self.labels]
        outputs = list(map(self.kind.output, self.probabilities))
        added = prediction_columns(self.kind, outputs, self.label_names, self.thresholds)
        return Table(self.set, columns | added)

    @checked
    def save(self, path: UserPath) -> None:
        """Write :meth:`predictions` as .csv, .tsv, .jsonl or .parquet, atomically."""
        path = expand(path)
        check_output_file(path, FORMATS)
        write_table(path, self.table())

    def _read_texts(self) -> Split:
        """Read the examples of the set again, as the first run did."""
        run = Path(self.first)  # refused if it is another run by now
        config = RunFolder(run).read_config()
        data = load_run_data(config, None)
        split = data.evaluated(self.set, recorded_inputs(run))
        if split is None or data.dataset.fingerprint != self.first.dataset.fingerprint:
            raise DataError(
                f"data set {config.dataset} has changed since the runs were trained, so that the "
                "predictions cannot be written beside their texts: restore it"
            )
        return split


@checked
def ensemble(
    *runs: UserPath,
    method: Annotated[str | None, Option("NAME")] = None,
    split: str = "test",
    output: UserPath | None = None,
) -> Ensemble:
    """Average the stored predictions of finished runs, such as the seeds of a method.

    They are the probabilities of classes, labels, or tags of words, or the numbers. No model is
    loaded.

    Args:
        runs: At least two run folders, or results; with ``method``, the folder of one sweep.
        method: Method whose finished runs are taken, of the folder of a sweep.
        split: Split, or out-of-distribution set that the runs were evaluated on.
        output: File for the examples with their predictions: .csv, .tsv, .jsonl or .parquet.

    Returns:
        Scores of each run, their mean, and those of the ensemble, with its predictions.

    Raises:
        UserError: A run is not finished, is given twice, or differs in data, labels or splits.

    Examples:
        ``auxlearn.ensemble("runs/seed-0", "runs/seed-1", "runs/seed-2").scores.macro_f1``
    """
    if method is None:
        folders = [finished_folder(run) for run in runs]
    elif len(runs) != 1:
        raise ConfigError(f"'{method}' is a method of one sweep: name the folder of that sweep")
    else:
        folders = runs_of_method(expand(runs[0]), method)
    place = None if output is None else expand(output)
    if place is not None:
        configs = [RunFolder(run).read_config() for run in folders]
        read = [name for c in configs for name in (c.dataset, *(ood.dataset for ood in c.ood))]
        check_output_file(place, FORMATS, read)
    results = _read(folders)
    name, kind = _set_of(results, split), results[folders[0]].kind
    labels, label_names, members = _stored(results, name, kind)
    mean = _mean(members)
    outputs = list(map(kind.output, mean))
    thresholds = _thresholds(results, kind)
    predicted = [kind.decode(output, thresholds) for output in outputs]

    from auxlearn.evaluation.metrics import score

    result = Ensemble(
        name,
        label_names,
        {run: of_run.evaluations[name].all for run, of_run in results.items()},
        score(kind, labels, predicted, outputs, label_names),
        results[folders[0]],
        labels,
        mean if kind.per_token else np.stack(mean),
        kind,
        thresholds,
    )
    if place is not None:
        result.save(place)
    return result


def _read(runs: Sequence[Path]) -> dict[Path, RunResults]:
    """Read the results of the runs, which must be of the same data."""
    if len(runs) < 2:
        raise RunError("an ensemble takes at least two runs: name more run folders")
    read: dict[Path, RunResults] = {}
    for run in runs:
        finished_folder(run)
        if run.resolve() in {other.resolve() for other in read}:
            raise RunError(f"{run} is given twice: name each run once")
        read[run] = RunResults.load(run)
    first, data = runs[0], read[runs[0]].dataset
    for run, results in read.items():
        other = results.dataset
        if other.label_names != data.label_names:
            raise RunError(
                f"{first} and {run} have different labels ({some_of(data.label_names)}; "
                f"{some_of(other.label_names)}): an ensemble takes runs of the same labels"
            )
        if other.fingerprint != data.fingerprint:
            raise RunError(
                f"{first} and {run} were trained on different data or splits ({data.name}, "
                f"fingerprint {data.fingerprint}; {other.name}, {other.fingerprint}): an ensemble "
                "takes runs of the same data"
            )
    by_digest: dict[str, Path] = {}
    for run, results in read.items():
        if (same := by_digest.setdefault(results.digest, run)) is not run:
            raise RunError(f"{same} and {run} have the same settings and seed: leave one out")
    return read


def _thresholds(runs: Mapping[Path, RunResults], kind: Kind) -> np.ndarray | None:
    """Return the thresholds of the mean: the best on dev, if runs have chosen theirs there."""
    if all(results.config.get("thresholds") != "dev" for results in runs.values()):
        return None
    dev, _, on_dev = _stored(runs, "dev", kind)
    return kind.best_thresholds(dev, list(map(kind.output, _mean(on_dev))))


def _stored(
    runs: Mapping[Path, RunResults], name: str, kind: Kind
) -> tuple[list[Any], tuple[str, ...], dict[Path, list[np.ndarray]]]:
    """Return the labels of a set with their names, and what each run has stored of it."""
    stored: dict[Path, Stored] = {}
    first, label_names = next((run, results.names_of(name)) for run, results in runs.items())
    for run, results in runs.items():
        names = results.names_of(name)
        of_run = stored[run] = read_stored(run, name, kind, names)
        if kind.offers("decision argmax"):
            _check_decision(run, name, np.array(of_run.predicted), np.array(of_run.values))
        if names != label_names or of_run.truth != stored[first].truth:
            raise RunError(
                f"{first} and {run} were evaluated on different examples of '{name}': an ensemble "
                "takes runs of the same data"
            )
    return stored[first].truth, label_names, {run: of_run.values for run, of_run in stored.items()}


def _mean(members: Mapping[Path, Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Return the mean over runs for each example."""
    return [np.mean(values, axis=0) for values in zip(*members.values(), strict=True)]


def _check_decision(run: Path, name: str, predicted: np.ndarray, probabilities: np.ndarray) -> None:
    """Check that a run predicted the labels that are most likely by what it has stored."""
    best = probabilities.argmax(1)
    of_prediction = probabilities[np.arange(len(predicted)), predicted]
    if (probabilities.max(1) - of_prediction > STORED_DIGIT)[best != predicted].any():
        raise RunError(
            f"{run} predicted '{name}' by the most likely class of the model (decision: argmax), "
            "which the mean probabilities of labels do not give: an ensemble takes sets that were "
            "evaluated with decision: sum"
        )


def _set_of(runs: Mapping[Path, RunResults], split: str) -> str:
    """Return the evaluation set of a name, which all runs must have."""
    for run, results in runs.items():
        name = split if split in results.evaluations else split_name(split)
        if name not in results.evaluations:
            hint = did_you_mean(split, results.evaluations)
            raise RunError(f"{run} has no predictions for '{split}': {hint}")
    return name
