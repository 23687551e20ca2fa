"""What is kept of the predictions for a set, and how its labels are those of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from auxlearn.kinds.base import Kind

#: One for each example, and the names of all classes.
Labels: TypeAlias = "Sequence[Any] | np.ndarray"
Arrays: TypeAlias = "Sequence[np.ndarray] | np.ndarray"
Names: TypeAlias = Sequence[str]


@dataclass(frozen=True)
class LabelMap:
    """Mapping of the classes of a model and the labels of an evaluation set to common classes."""

    #: The common classes; labels that the model does not know follow the others.
    label_names: tuple[str, ...]
    targets: tuple[int, ...]  # index into ``label_names`` for each class of the model
    labels: tuple[int, ...]  # index into ``label_names`` for each label of the set
    known: int  # number of the common classes that the model can predict


@dataclass(frozen=True)
class SetPredictions:
    """What is kept of the predictions for a set, one entry for each example."""

    kind: Kind
    names: Names
    truth: Labels  # true labels, encoded
    predicted: Labels  # predicted labels, encoded
    outputs: Arrays
    known: int | None = None  # how many of the names the model knows, the first ones; all if None

    @property
    def unknown(self) -> int:
        """Number of the examples whose label the model does not know."""
        return 0 if self.known is None else sum(int(label >= self.known) for label in self.truth)

    def loss(self, metric: str = "") -> float:
        """Return the mean loss, or the smooth form of a metric, of the labels that it knows."""
        classes = len(self.names) if self.known is None else self.known
        return self.kind.mean_loss(self.truth, self.outputs, classes, metric)

    def metrics(self) -> dict[str, float]:
        return self.kind.scores(self.truth, self.predicted, self.outputs, self.names)
