"""One of several classes for each text or pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from auxlearn.core.errors import DataError
from auxlearn.core.lazy import np, torch
from auxlearn.core.registry import register_kind
from auxlearn.kinds.base import ClassScores, Kind, ReadLabels
from auxlearn.kinds.labels import check_no_tags, read_names
from auxlearn.kinds.metrics import Metric, constant_loss, f1_of, of_counts, ratio, smooth_f1
from auxlearn.kinds.predictions import Arrays, LabelMap, Labels, Names, SetPredictions

if TYPE_CHECKING:
    from torch import Tensor

    from auxlearn.core.settings import Columns
    from auxlearn.core.table import Table

#: Classes beyond which what is recorded for each class, or each pair of classes, is abridged.
MANY_LABELS = 100

#: Lists of a sparse confusion matrix.
SPARSE_KEYS = ("true", "predicted", "count")


@register_kind("classification")
class Classification(Kind):
    """One class for each text; cross-entropy; accuracy and macro-F1.

    Outputs are probabilities. There may be thousands of classes: beyond :data:`MANY_LABELS`, the
    confusion matrix is sparse, and parts of a set have no scores of single classes.
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        "accuracy": Metric("accuracy", "accuracy"),
        "macro_f1": Metric(
            "macro-F1", "f1", note="mean over the classes that occur in labels or predictions"
        ),
    }
    compared: ClassVar[Mapping[str, Metric]] = {
        "weighted_f1": Metric("weighted F1", "f1"),
        "mcc": Metric("MCC", "matthews_correlation", least=-1.0),
    }
    refuses = frozenset({"thresholds"})
    # "-" is SNLI's where no label has a majority, -100 a class that torch ignores.
    missing = (None, "", "-", -100)
    purpose = "to classify texts of {data} into {count} classes: {labels}"
    limits = "Every text is assigned one of the classes above, even if none applies."
    constant_title = "the most frequent class of train"
    mistakes_title = "most certain predictions"
    balanced = "macro_f1"
    means = ("accuracy", "cross_entropy")
    sums_of_labels = True

    def read(self, table: Table, column: str, columns: Columns, form: str | None) -> ReadLabels:
        rows = [(value,) for value in table.columns[column]]
        read = read_names(table, column, rows, self.name, columns, form)
        names = [name for (name,) in read.labels]
        if columns.kind is None and form is None:  # train, which comes first
            check_no_tags(table, column, names, table.columns[columns.text], self.name)
        labels = [columns.renamed.get(name, name) for name in names]
        return ReadLabels(labels, read.form, read.notes, names)

    def check_train(self, where: str, names: Names, labels: Labels) -> None:
        if len(names) < 2:
            raise DataError(f"{where} has a single class, '{names[0]}': a classifier needs two")

    def names(self, label: str) -> tuple[str, ...]:
        return (label,)

    def advice(self, names: Names) -> str:
        numbers = all(name.lstrip("+-").isdecimal() for name in names)
        return "--labels gives a label its class, --unknown-labels count counts them as wrong" + (
            ", --kind regression predicts numbers" if numbers else ""
        )

    def encode(self, label: str, index: Mapping[str, int]) -> int:
        return index[label]

    def written(self, label: int, names: Names) -> str:
        return names[label]

    def classes(self, label: int) -> tuple[int, ...]:
        return (label,)

    def strata(self, labels: Labels, parts: int | None = None) -> list[int]:
        return list(labels)

    def targets(self, labels: Labels, classes: int) -> Tensor:
        return torch.as_tensor(labels)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits, targets)

    def smooth(self, logits: Tensor, targets: Tensor, metric: str) -> Tensor:
        """Return the expected error of classes drawn by the probabilities, or one minus the F1 of
        expected counts over the classes of the labels.
        """
        chosen = logits.softmax(-1)
        if metric == "accuracy":
            return 1 - chosen.gather(-1, targets[:, None]).mean()
        wanted = torch.nn.functional.one_hot(targets, logits.shape[-1]).to(chosen)
        return 1 - smooth_f1(chosen, wanted, "macro")

    def constant_loss(self, targets: Tensor, metric: str) -> float:
        return constant_loss(targets, metric)

    def collect(
        self,
        outputs: Arrays,
        truth: Sequence[Any],
        labels: LabelMap,
        decision: Literal["sum", "argmax"],
        thresholds: np.ndarray | None,
    ) -> SetPredictions:
        values, predicted = map_predictions(outputs, labels, decision)
        return SetPredictions(
            self, labels.label_names, np.array(truth), predicted, values, labels.known
        )

    def exported(self, constant: int, thresholds: np.ndarray | None) -> dict[str, Any]:
        return {}  # the results say which class the baseline predicts

    def of_logits(self, logits: Tensor) -> Tensor:
        return logits.float().softmax(-1)

    def mean_loss(self, truth: Labels, outputs: Arrays, classes: int, metric: str) -> float:
        """Return it for the examples whose label is one of the first ``classes``."""
        knows = np.asarray(truth) < classes
        if not knows.any():
            raise DataError(
                "the model knows none of the labels of the examples: map them by 'labels'"
            )
        truth, outputs = np.asarray(truth)[knows], np.asarray(outputs)[knows, :classes]
        if not metric:
            of_truth = outputs[np.arange(len(truth)), truth]
            return float(-np.log(np.clip(of_truth, 1e-300, None)).mean())
        logits = torch.from_numpy(outputs).clamp(min=1e-300).log()
        return float(self.surrogate(logits, self.targets(truth, classes), metric))

    def decode(self, output: np.ndarray, thresholds: np.ndarray | None = None) -> int:
        return int(output.argmax())

    def constant(self, labels: Labels) -> int:
        return int(np.bincount(labels).argmax())

    def scores(
        self, truth: Labels, predicted: Labels, outputs: Arrays | None, names: Names
    ) -> dict[str, float]:
        """Return those of scikit-learn to the last digit, which takes a second to load, and longer
        for its checks of the arguments than for the counts.
        """
        right, guessed, there = self._counts(truth, predicted, names)
        f1 = 2 * right / np.maximum(guessed + there, 1)
        return {
            "accuracy": float((np.asarray(truth) == np.asarray(predicted)).mean()),
            "macro_f1": float(f1[guessed + there > 0].mean()),  # over the classes that occur
        }

    def per_class(self, truth: Labels, predicted: Labels, names: Names) -> ClassScores:
        counts = (numbers.tolist() for numbers in self._counts(truth, predicted, names))
        return {name: f1_of(*row) for name, *row in zip(names, *counts, strict=False)}

    def abridged(self, names: Names) -> bool:
        return len(names) > MANY_LABELS

    def confusion(self, truth: Labels, predicted: Labels, names: Names, whole: bool) -> Any:
        count, true = len(names), np.asarray(truth, dtype=np.int64)
        cells = true * count + np.asarray(predicted)
        if not self.abridged(names):
            counts = np.bincount(cells[true < count], minlength=count**2)
            return counts.reshape(count, count).tolist()
        if not whole:
            return {}
        cells, counts = np.unique(cells, return_counts=True)
        lists = (values.tolist() for values in (*np.divmod(cells, count), counts))
        return dict(zip(SPARSE_KEYS, lists, strict=True))

    def _counts(
        self, truth: Labels, predicted: Labels, names: Names
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return how many examples of each class are right, predicted and there."""
        true = np.asarray(truth, dtype=np.int64)
        guessed = np.asarray(predicted, dtype=np.int64)
        count = max(len(names), 1 + int(max(true.max(initial=-1), guessed.max(initial=-1))))
        right = np.bincount(true[true == guessed], minlength=count)
        return right, np.bincount(guessed, minlength=count), np.bincount(true, minlength=count)

    def line(self, output: np.ndarray) -> dict[str, Any]:
        return {"probabilities": [round(p, 8) for p in output.tolist()]}

    def shown(self, output: np.ndarray) -> np.ndarray:
        return output

    def stored(self, line: Mapping[str, Any], names: Names) -> np.ndarray:
        probabilities = super().stored(line, names)
        if not (abs(probabilities.sum() - 1) < 1e-5 and probabilities.min() >= 0):
            raise ValueError("no probabilities of classes, which sum to 1")
        return probabilities

    def output(self, stored: np.ndarray) -> np.ndarray:
        return stored

    def counted(self, names: Names) -> tuple[str, ...]:
        return tuple(names)

    def sums(self, truth: Labels, predicted: Labels, stored: Arrays, names: Names) -> np.ndarray:
        """Return the true and the predicted class, whose counts would be too many."""
        return np.stack([truth, predicted], 1)

    def of_sums(self, metric: str, sums: np.ndarray, names: Names) -> np.ndarray:
        """Return a metric of numbers of right, predicted and true examples of each class, all as in
        scikit-learn. Macro-F1 is the mean over the classes that occur in labels or predictions; MCC
        is the correlation coefficient of Gorodkin (2004,
        https://doi.org/10.1016/j.compbiolchem.2004.09.006), 0 where it is not defined.
        """
        right, guessed, there = np.split(sums, 3, axis=-1)
        examples = there.sum(-1)
        if metric == "accuracy":
            return ratio(right.sum(-1), examples)
        if metric == "mcc":
            covariance = right.sum(-1) * examples - (there * guessed).sum(-1)
            spread = (examples**2 - (there**2).sum(-1)) * (examples**2 - (guessed**2).sum(-1))
            return ratio(covariance, np.sqrt(spread))
        if ":" in metric:
            return of_counts(metric, right, guessed, there, names)
        f1 = ratio(2 * right, there + guessed)
        if metric == "weighted_f1":
            return ratio((there * f1).sum(-1), examples)
        return ratio(f1.sum(-1), (there + guessed > 0).sum(-1))

    def jackknife(self, metric: str, sums: np.ndarray, names: Names) -> np.ndarray:
        # There are as many scores without an example as pairs of a true and a predicted class.
        classes, (truth, guessed) = len(names), sums.T.astype(np.int64)
        counted = (truth[truth == guessed], guessed, truth)
        counts = [np.bincount(numbers, minlength=classes) for numbers in counted]
        total = np.concatenate(counts).astype(float)
        cells, places = np.unique(truth * classes + guessed, return_inverse=True)
        (true, guess), rows = np.divmod(cells, classes), np.arange(len(cells))
        left = np.tile(total, (len(cells), 1))
        left[rows, true] -= true == guess
        left[rows, classes + guess] -= 1
        left[rows, 2 * classes + true] -= 1
        scores = self.of_sums(metric, np.concatenate([total[None], left]), names)
        return np.concatenate([scores[:1], scores[1:][places]])

    def fault(self, truth: int, predicted: int) -> float:
        return float(truth != predicted)

    def untried(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        return () if config["metric"] == "macro_f1" else ("metric macro_f1",)

    def example(self, number: int, words: int, outputs: int) -> int:
        return number % outputs


def map_predictions(
    probabilities: Arrays, labels: LabelMap, decision: Literal["sum", "argmax"]
) -> tuple[np.ndarray, np.ndarray]:
    """Map class probabilities to those of the labels of a set, ``(examples, labels)``, summed where
    several classes have one label, and to predicted labels, ``(examples,)``: ``sum`` predicts by
    the sums, ``argmax`` the label of the most likely class, as in McCoy et al. (2019,
    https://arxiv.org/abs/1902.01007) for HANS.
    """
    by_class, shape = np.asarray(probabilities), (len(probabilities), len(labels.label_names))
    if labels.targets == tuple(range(shape[1])):
        summed = by_class
    else:
        summed = np.zeros(shape)
        for number, target in enumerate(labels.targets):
            summed[:, target] += by_class[:, number]
    if decision == "sum":
        return summed, summed.argmax(1)
    return summed, np.asarray(labels.targets)[by_class.argmax(1)]
