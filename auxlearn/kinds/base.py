"""What a kind of labelled task is: how labels are read, trained on, decoded and scored.

A :class:`Kind` has no state. The primary task and ``supervised`` both take one, and so do the
readers, the encoder, the evaluation and the files of predictions: what differs from kind to kind is
in its class, and nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from auxlearn.core.errors import ConfigError, DataError
from auxlearn.core.lazy import np, torch
from auxlearn.core.registry import KINDS
from auxlearn.core.settings import Columns
from auxlearn.kinds.metrics import Metric
from auxlearn.kinds.predictions import Arrays, LabelMap, Labels, Names, SetPredictions

if TYPE_CHECKING:
    from torch import Tensor, nn

    from auxlearn.core.table import Table

#: Smallest probability whose logarithm is taken: predictions are stored with eight digits.
LEAST = 1e-8

#: Precision, recall, F1 and support of each class.
ClassScores: TypeAlias = dict[str, dict[str, float]]

#: Usual columns of lists of words, and of their tags.
WORDS = ("tokens", "words", "text")
WORD_LABELS = ("label", "tags", "ner_tags", "labels")

#: What some kinds are not offered for, with what to do instead: every other feature works with all
#: of them. The guide of the kinds shows which kind refuses what.
FEATURES = {
    "class weights and label smoothing": "there is no choice between the same classes each time: "
    "leave them out",
    "thresholds": "only several labels have any: leave --thresholds out",
    "unknown_labels count": "only single classes can be counted as wrong: leave it out",
    "decision argmax": "classes of the run are not combined there: leave it out",
    "labels (label maps)": "numbers have no names: leave --labels out",
    "combined labels": "only single classes of a model are one label of another set together: map "
    "each label of the model to one of its own",
    "pairs of splits": "no number is exactly right: leave 'pairs' out",
    "dev heads": "they are fitted to single classes: choose dev_head own",
    "selective": "it follows the confidence in a single class: choose another task",
    "pairs of texts": "the words of one text have labels",
    "windows of long texts": "a sentence is read as one row of tokens: leave --text-window windows "
    "out",
    "perturbations": "it shows what changes a class",
}


@dataclass(frozen=True)
class ReadLabels:
    """The labels of a table as a kind reads them."""

    labels: Sequence[Any]  # of each row, each of its names as ``columns.renamed`` has it
    #: How they are written: what is found in train holds for the other splits.
    form: str = ""
    notes: tuple[str, ...] = ()  # what was changed on reading, a sentence each
    found: Sequence[Any] = ()  # the labels as the table has them, where some were renamed


class Kind(ABC):
    """A kind of labelled task; unless its methods say otherwise, of lists of names.

    A label is what a reader returns for an example (names, numbers), and an encoded label what a
    split holds: numbers of classes, or a number. An output is what the head computes for an
    example: an array of logits, of each word if the kind is ``per_token``; of single classes, their
    probabilities.

    A further kind is one file, with a class under ``@register_kind("name")`` that is derived from
    this one, or from the kind that is most like it.
    """

    name: ClassVar[str]  # value of ``--kind``
    metrics: ClassVar[Mapping[str, Metric]]  # by name; the first one is the default
    compared: ClassVar[Mapping[str, Metric]] = {}  # those that comparisons have beside these
    #: Whether the default metric depends on the names of the labels, which the data say.
    metric_by_names: ClassVar[bool] = False
    #: Those of :data:`FEATURES` that are not offered.
    refuses: ClassVar[frozenset[str]] = frozenset(
        {
            "thresholds",
            "unknown_labels count",
            "decision argmax",
            "combined labels",
            "dev heads",
            "selective",
            "perturbations",
        }
    )
    per_token: ClassVar[bool] = False  # whether a text has a label for each of its words
    #: Pipeline of transformers for models with its head; "" if no class there has one.
    pipeline: ClassVar[str] = "text-classification"
    problem_type: ClassVar[str | None] = None  # of the exported configuration
    #: Columns of the text, and of the label, where none is named, the usual one first.
    text_columns: ClassVar[tuple[str, ...]] = ("text",)
    label_columns: ClassVar[tuple[str, ...]] = ("label",)
    columns_beside: ClassVar[tuple[str, ...]] = ()  # that labels are read from as well
    #: Labels that stand for none in a table of ``datasets``.
    missing: ClassVar[tuple[Any, ...]] = (None, "")
    unit: ClassVar[str] = "nats"  # of the loss of an example
    correct_title: ClassVar[str] = "gain in correct predictions"  # of one run over another
    #: For the model card: what a model is for, by data, count and labels, and its limits.
    purpose: ClassVar[str] = "to predict {labels} for texts of {data}"
    limits: ClassVar[str] = ""
    constant_title: ClassVar[str]  # what :meth:`constant` returns
    mistakes_title: ClassVar[str] = "greatest errors"  # which :meth:`fault` puts first
    eval_batch: ClassVar[int] = 128  # texts per forward pass without gradients
    balanced: ClassVar[str] = ""  # metric that is estimated on batches with as many of each class
    #: Metrics, and the loss, whose smooth form is known to be a mean over the examples, so that
    #: these may be put together to other batches.
    means: ClassVar[tuple[str, ...]] = ()
    sums_of_labels: ClassVar[bool] = False  # whether :meth:`sums` need labels alone

    def __reduce__(self) -> tuple[Callable[[str], Kind], tuple[str]]:
        return kind_of, (self.name,)  # copies, and what pickle reads, are the one object

    def offers(self, feature: str) -> bool:
        """Whether one of :data:`FEATURES` works with the kind."""
        return feature not in self.refuses

    def require(self, feature: str, which: str = "") -> None:
        """Refuse a feature that is not offered."""
        if not self.offers(feature):
            raise ConfigError(f"{feature}{which}: not offered for {self.name}; {FEATURES[feature]}")

    def is_one_of(self, names: Iterable[str]) -> bool:
        """Whether it is one of some kinds, or derived from one of them."""
        return not {*names}.isdisjoint(vars(cls).get("name") for cls in type(self).__mro__)

    # Reading

    def recognises(self, table: Table, columns: Columns) -> bool:
        """Whether the labels of a table are of the kind, by their types; a kind that cannot be told
        by them is named by ``--kind``.
        """
        return False

    @abstractmethod
    def read(self, table: Table, column: str, columns: Columns, form: str | None) -> ReadLabels:
        """Return the label of each row of a table, checked and renamed; ``columns`` has the rules
        of the user, and the kind if it was named, ``form`` is that of train for the other splits.
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

    def encode(self, label: Any, index: Mapping[str, int]) -> Any:
        """Return a label, also as JSON holds it, by the numbers of its names."""
        return tuple(index[name] for name in label)

    def written(self, label: Any, names: Names) -> Any:
        """Return an encoded label as JSON holds it."""
        return [names[number] for number in label]

    def label_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the outputs, by the sorted names that occur in train."""
        return names

    def advice(self, names: Names) -> str:
        """Return what helps where other splits have labels that train, of these names, lacks."""
        return "--labels gives a label the one that it stands for"

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

    def collect(
        self,
        outputs: Arrays,
        truth: Sequence[Any],
        labels: LabelMap,
        decision: Literal["sum", "argmax"],
        thresholds: np.ndarray | None,
    ) -> SetPredictions:
        """Return the predictions for a set by its outputs and its true labels."""
        predicted = [self.decode(output, thresholds) for output in outputs]
        return SetPredictions(self, labels.label_names, truth, predicted, outputs)

    def exported(self, constant: Any, thresholds: np.ndarray | None) -> dict[str, Any]:
        """Return the entries of ``config.json`` that predictions and their evaluation need."""
        entries = {"constant_prediction": constant}
        return entries if thresholds is None else entries | {"thresholds": thresholds.tolist()}

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

    def per_class(self, truth: Labels, predicted: Labels, names: Names) -> ClassScores:
        """Return the scores of each class; none for numbers."""
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

    def stored(self, line: Mapping[str, Any], names: Names) -> np.ndarray:
        """Return the numbers of a line of predictions: probabilities of each name (of each word,
        per token), or the predicted number.
        """
        probabilities = np.array(line["probabilities"], dtype=float)
        rows = (len(line["label"]),) if self.per_token else ()
        if probabilities.shape != (*rows, len(names)):
            raise ValueError("another number of probabilities than of labels")
        return probabilities

    @abstractmethod
    def output(self, stored: np.ndarray) -> np.ndarray:
        """Return an output with these probabilities, or this number."""

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

    def most_faults(self, label: Any, names: Names) -> int:
        """Return how many labels of an example can be wrong; 1 for numbers."""
        return 1

    # Settings and trials

    def untried(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what may help a run with these settings that has learned too little."""
        return ()

    def example(self, number: int, words: int, outputs: int) -> Any:
        """Return an encoded label for trials of plug-ins, of a text with that many words."""
        return (number % outputs,)

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


@cache
def _instance(cls: type[Kind]) -> Kind:
    if missing := sorted(cls.__abstractmethods__):
        raise ConfigError(
            f"kind '{cls.name}' ({cls.__module__}.{cls.__qualname__}) does not define "
            f"{', '.join(missing)}: define them, or derive it from another kind"
        )
    return cls()


def kind_of(name: str | None) -> Kind:
    """Return a kind by name; without one, classification."""
    return _instance(KINDS.get(name or "classification"))


def all_kinds() -> list[Kind]:
    return [kind_of(name) for name in KINDS.names()]
