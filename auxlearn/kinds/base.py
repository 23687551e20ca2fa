"""What a kind of labelled task is: how labels are read, trained on, decoded and scored.

A :class:`Kind` has no state. The primary task and ``supervised`` both take one, and so do the
readers, the encoder, the evaluation and the files of predictions: what differs from kind to kind is
in its class, and nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from auxlearn.core.errors import ConfigError, DataError
from auxlearn.core.lazy import Deferred
from auxlearn.core.metric_names import METRICS, TITLES
from auxlearn.core.settings import Columns, KindName

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor, nn

    from auxlearn.core.table import Table
else:
    torch = Deferred("torch")
    np = Deferred("numpy")  # commands that only list what there is do without it

#: Smallest probability whose logarithm is taken: predictions are stored with eight digits.
LEAST = 1e-8

#: Usual columns of lists of words, and of their tags.
WORDS = ("tokens", "words", "text")
WORD_LABELS = ("label", "tags", "ner_tags", "labels")

#: One for each example, and the names of all classes.
Labels: TypeAlias = "Sequence[Any] | np.ndarray"
Arrays: TypeAlias = "Sequence[np.ndarray] | np.ndarray"
Names: TypeAlias = Sequence[str]


@dataclass(frozen=True)
class ReadLabels:
    """The labels of a table as a kind reads them."""

    labels: list[Any]  # of each row
    #: How they are written: what is found in train holds for the other splits.
    form: str = ""
    notes: tuple[str, ...] = ()  # what was changed on reading, a sentence each


class Kind(ABC):
    """A kind of labelled task; unless its methods say otherwise, of lists of names.

    A label is what a reader returns for an example (names, numbers), and an encoded label what a
    split holds: numbers of classes, or a number. An output is what the head computes for an
    example: an array of logits, of each word if the kind is ``per_token``; of single classes, their
    probabilities.

    """

    name: ClassVar[KindName]  # value of ``--kind``
    per_token: ClassVar[bool] = False  # whether a text has a label for each of its words
    #: Pipeline of transformers for models with its head; "" if no class there has one.
    pipeline: ClassVar[str] = "text-classification"
    problem_type: ClassVar[str | None] = None  # of the exported configuration
    #: Columns of the text, and of the label, where none is named, the usual one first.
    text_columns: ClassVar[tuple[str, ...]] = ("text",)
    label_columns: ClassVar[tuple[str, ...]] = ("label",)
    columns_beside: ClassVar[tuple[str, ...]] = ()  # that labels are read from as well
    unit: ClassVar[str] = "nats"  # of the loss of an example
    constant_title: ClassVar[str]  # what :meth:`constant` returns
    eval_batch: ClassVar[int] = 128  # texts per forward pass without gradients
    compared: ClassVar[tuple[str, ...]] = ()  # metrics that comparisons have beside these

    def __reduce__(self) -> str:
        return "KIND"  # of its module: copies, and what pickle reads, are the one object

    @property
    def metrics(self) -> Mapping[str, str]:
        return METRICS[self.name]

    # Reading

    @abstractmethod
    def read(self, table: Table, column: str, columns: Columns, form: str | None) -> ReadLabels:
        """Return the label of each row of a table, checked; ``columns`` has the rules of the user,
        and the kind if it was named, ``form`` is that of train for the other splits.
        """

    def texts(self, table: Table, column: str) -> Table:
        """Return a table whose text column holds texts."""
        return table

    def written_text(self, text: str) -> Any:
        """Return a text as JSON holds it."""
        return text

    def check(self, table: Table, texts: Sequence[str], labels: Labels) -> None:
        """Check that labels fit their texts."""

    def check_train(self, where: str, names: Names, labels: Labels) -> None:
        """Check that something can be learned from the labels of train."""
        if len(names) < 2:
            raise DataError(f"{where} has fewer than two labels: there is nothing to learn")

    def remarks(self, labels: Labels) -> Iterable[str]:
        """Return what is doubtful about the encoded labels of train, a sentence each."""
        return ()

    def names(self, label: Any) -> tuple[str, ...]:
        """Return the names that a label is made of; none for a number."""
        return tuple(label)

    def renamed(self, label: Any, classes: Mapping[str, str]) -> Any:
        """Return a label with the classes that its names stand for."""
        return label

    def encode(self, label: Any, index: Mapping[str, int]) -> Any:
        """Return a label, also as JSON holds it, by the numbers of its names."""
        return tuple(index[name] for name in label)

    def written(self, label: Any, names: Names) -> Any:
        """Return an encoded label as JSON holds it."""
        return [names[number] for number in label]

    def label_names(self, found: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the outputs, by the sorted names that occur in train."""
        return found

    def implies(self, names: Names, name: str) -> bool:
        """Whether data with labels of these names may well have one that train lacks."""
        return False

    # Dividing

    def classes(self, label: Any) -> tuple[int, ...]:
        """Return the classes that an encoded label is made of; for a number its only output."""
        return tuple(label)

    def strata(self, labels: Labels, parts: int | None = None) -> list[int]:
        """Return the stratum of each example: by default the rarest class of its label. Numbers
        are divided into ``parts`` at most.
        """
        counts = Counter(c for label in labels for c in set(self.classes(label)))
        return [
            min(set(self.classes(label)), key=lambda c: (counts[c], c), default=-1)
            for label in labels
        ]

    # Training

    def head(self, usual: nn.Sequential) -> nn.Module:
        """Return a new head, by that of a text: a dense layer, tanh, dropout, an output layer."""
        return usual

    def logits_shape(self, rows: int, length: int, outputs: int) -> tuple[int, ...]:
        """Return the shape of the logits of a batch, by its rows, their length and the outputs."""
        return (rows, length, outputs) if self.per_token else (rows, outputs)

    @abstractmethod
    def targets(self, labels: Labels, classes: int) -> Tensor:
        """Return encoded labels as a tensor, ``(texts, ...)``, or of all words ``(words, ...)``."""

    def items(self, targets: Tensor) -> int:
        return len(targets)

    @abstractmethod
    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss, a scalar; both on one device."""

    def choices(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the choices between classes of a batch, for a kind that is made of any: logits
        ``(choices, classes)`` and true classes ``(choices,)``.
        """
        return logits, targets

    def outcomes(self, targets: Tensor) -> Tensor:
        """Return by number what each choice has as its truth, ``(choices,)``, to weight it by."""
        return targets

    def outcome_weights(self, weights: Sequence[float]) -> list[float]:
        """Return the weight of each outcome by those of the labels, in the order of the names."""
        return list(weights)

    @abstractmethod
    def smooth(self, logits: Tensor, targets: Tensor, metric: str) -> Tensor:
        """Return one minus a form of the metric that has a gradient (of an error, the error)."""

    def surrogate(self, logits: Tensor, targets: Tensor, metric: str) -> Tensor:
        """Return the smooth form of a metric, or the loss for anything else."""
        if metric in self.metrics:
            return self.smooth(logits, targets, metric)
        return self.loss(logits, targets)

    def constant_loss(self, targets: Tensor, metric: str) -> float:
        """Return the smooth form of a metric for the best prediction that is always the same; of
        every F1 and correlation, the loss of knowing nothing, 1.
        """
        return 1.0

    # Measuring

    def of_logits(self, logits: Tensor) -> Tensor:
        """Return the outputs of texts, in single precision, by the logits of a head for texts."""
        return logits.float()

    def mean_loss(self, truth: Labels, outputs: Arrays, classes: int, metric: str) -> float:
        """Return the mean loss of outputs, or the smooth form of a metric."""
        joined = np.concatenate if self.per_token else np.stack
        logits = torch.from_numpy(joined(list(outputs)))
        targets = self.targets(truth, classes)
        targets = targets.double() if targets.is_floating_point() else targets
        return float(self.surrogate(logits, targets, metric))

    @abstractmethod
    def decode(self, output: np.ndarray, thresholds: np.ndarray | None = None) -> Any:
        """Return the encoded label that an output predicts."""

    @abstractmethod
    def constant(self, labels: Labels) -> Any:
        """Return the encoded label (of a word, per token) that is best predicted for all."""

    def repeated(self, constant: Any, label: Any) -> Any:
        """Return a constant prediction for an example with that true label."""
        return constant

    def units(self, labels: Labels) -> list[Any]:
        """Return what is right or wrong of encoded labels, each the classes it is made of."""
        return [self.classes(label) for label in labels]

    @abstractmethod
    def scores(
        self, truth: Labels, predicted: Labels, outputs: Arrays | None, names: Names
    ) -> dict[str, float]:
        """Return the metrics of predictions; without outputs, those that need none."""

    def per_class(
        self, truth: Labels, predicted: Labels, names: Names
    ) -> dict[str, dict[str, float]]:
        """Return precision, recall, F1 and support of each class; none for numbers."""
        return {}

    def abridged(self, names: Names) -> bool:
        """Whether scores have what is of single labels only where they are of a whole set."""
        return True

    def confusion(self, truth: Labels, predicted: Labels, names: Names, whole: bool) -> Any:
        """Return the numbers of examples by true and predicted class, of single classes."""
        return []

    def best_thresholds(self, truth: Labels, outputs: Arrays) -> np.ndarray | None:
        """Return the thresholds that are best on examples, for a kind that has any."""
        return None

    @abstractmethod
    def line(self, output: np.ndarray) -> dict[str, Any]:
        """Return what a line of predictions holds besides the labels."""

    def shown(self, output: np.ndarray) -> Any:
        """Return the probability of each label, for tables; none for numbers, and for words."""
        return () if self.per_token else self.line(output).get("probabilities", ())

    @abstractmethod
    def stored(self, line: Mapping[str, Any], names: Names) -> np.ndarray:
        """Return the numbers of a line of predictions: probabilities, or the predicted number."""

    def kept(self, truth: Any, predicted: Any, output: np.ndarray, names: Names) -> np.ndarray:
        """Return of an output what a line of predictions would give."""
        labels = {"label": self.written(truth, names), "predicted": self.written(predicted, names)}
        return self.stored(labels | self.line(output), names)

    @abstractmethod
    def output(self, stored: np.ndarray) -> np.ndarray:
        """Return an output with these probabilities, or this number."""

    @abstractmethod
    def decisions(
        self, truth: Labels, outputs: Arrays
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Return the choices between classes that examples are made of, none for numbers:
        probabilities ``(choices, classes)``, true classes and the number of the example that each
        choice belongs to, ``(choices,)`` each.
        """

    # Comparing

    def counted(self, names: Names) -> tuple[str, ...]:
        """Return what has an F1 of its own: labels, types of spans; none for numbers."""
        return ()

    @abstractmethod
    def sums(self, truth: Labels, predicted: Labels, stored: Arrays, names: Names) -> np.ndarray:
        """Return numbers of each example whose sums give the metrics, ``(examples, numbers)``:
        first those of right, predicted and true items of each name that is :meth:`counted`.
        """

    @abstractmethod
    def of_sums(self, metric: str, sums: np.ndarray, names: Names) -> np.ndarray:
        """Return a metric, or ``f1:LABEL`` and the like, of sums of any leading shape."""

    def jackknife(self, metric: str, sums: np.ndarray, names: Names) -> np.ndarray:
        """Return a metric of all examples, then without each of them, ``(1 + examples,)``."""
        total = sums.sum(0)
        return self.of_sums(metric, np.concatenate([total[None], total - sums]), names)

    @abstractmethod
    def fault(self, truth: Any, predicted: Any) -> float:
        """Return how wrong a prediction is, 0 if it is right: wrong labels, or the error."""

    # Settings

    def default_metric(self, names: Names) -> str:
        """Return the metric of a run that names none."""
        return next(iter(self.metrics))

    def check_metric(self, metric: str, names: Names) -> None:
        """Check that a metric is one of labels with these names."""
        if metric not in self.metrics:
            raise ConfigError(
                f"metric: {metric} is not of {self.name}: choose {', '.join(self.metrics)}"
            )


def most_frequent(values: Iterable[Hashable]) -> Any:
    """Return the most frequent value; of several, the smallest."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))


def f1_of(right: int, said: int, there: int) -> dict[str, float]:
    """Return precision, recall, F1 and support by numbers of right, predicted and true items."""
    return {
        "precision": right / max(1, said),
        "recall": right / max(1, there),
        "f1": 2 * right / max(1, said + there),
        "support": there,
    }


def ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return a quotient, 0 where it is not defined."""
    above = np.asarray(above, dtype=float)
    return np.divide(above, below, out=np.zeros_like(above), where=np.asarray(below) > 0)


def constant_loss(classes: Tensor, metric: str) -> float:
    """Return the loss of the best constant prediction of classes, ``(choices,)``: for accuracy it
    is certain of the most frequent one, and the cross-entropy is the entropy of their shares.
    """
    shares = classes.unique(return_counts=True)[1].double() / len(classes)
    if metric == "accuracy":
        return 1 - float(shares.max())
    return 1.0 if metric in TITLES else -float((shares * shares.log()).sum())


def mean_over(owners: np.ndarray, values: np.ndarray, examples: int) -> np.ndarray:
    """Return the mean of the values of each example, 0 for one without any."""
    totals = np.bincount(owners, weights=values, minlength=examples)
    return totals / np.maximum(1, np.bincount(owners, minlength=examples))


def of_counts(
    metric: str, right: np.ndarray, said: np.ndarray, there: np.ndarray, names: Sequence[str]
) -> np.ndarray:
    """Return ``macro_f1``, ``f1:NAME``, ``precision:NAME`` or ``recall:NAME``, else micro-F1, from
    numbers of right, predicted and true items, ``(..., names)``; 0 where it is not defined.
    """
    which, colon, name = metric.partition(":")
    if colon:
        right, said, there = (one[..., names.index(name)] for one in (right, said, there))
    elif metric != "macro_f1":
        right, said, there = (one.sum(-1) for one in (right, said, there))
    parts = {"precision": (right, said), "recall": (right, there)}
    found = ratio(*parts.get(which, (2 * right, said + there)))
    return found.mean(-1) if metric == "macro_f1" else found


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def smooth_f1(chosen: Tensor, truth: Tensor, average: str) -> Tensor:
    r"""Return the F1 of expected counts: :math:`2 \sum p y / (\sum p + \sum y)`.

    p is the probability of each label to be chosen and y its truth, ``(examples, labels)`` each; if
    every probability is 0 or 1, ``micro`` equals the F1 of all choices together, and ``macro`` the
    mean over the labels that occur.
    """
    overlap, both = 2 * (chosen * truth).sum(0), chosen.sum(0) + truth.sum(0)
    if average == "micro":
        return overlap.sum() / both.sum()
    present = truth.sum(0) > 0  # a GPU is not waited for: absent labels add 0 and do not count
    return (overlap / both.where(present, 1)).sum() / present.sum().clamp(min=1)
