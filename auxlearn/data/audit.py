"""What is wrong with a data set, found before a training rather than after it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.splits import text_keys


@dataclass(frozen=True)
class SplitAudit:
    """What one split holds.

    Texts are compared by their letters and digits, case-folded, except for ``in_train_exact``.
    In pair tasks "a text" is both texts of a row together.

    Attributes:
        rows: Number of rows.
        labels: Rows per label, in the order of the label names; empty if it is unlabelled.
        missing_labels: Label names without a row.
        empty_texts: Rows with an empty text, which only a program can bring about.
        repeated_rows: Rows whose text stands in an earlier row of the split.
        in_train_exact: Rows whose text, character for character, is in train; 0 for train.
        in_train_normalised: Rows whose text, normalised, is in train; 0 for train.
        texts_in_train: Different normalised texts among those.
    """

    rows: int
    labels: dict[str, int]
    missing_labels: tuple[str, ...]
    empty_texts: int
    repeated_rows: int
    in_train_exact: int = 0
    in_train_normalised: int = 0
    texts_in_train: int = 0


@dataclass(frozen=True)
class Audit:
    """What a data set holds, and what its user should know before trusting a figure.

    Attributes:
        name: Name of the data set.
        splits: One entry per split and out-of-distribution set.
        contradictions: Different texts with more than one label, over all splits together;
            out-of-distribution sets are left out, as their labels can mean something else.
        pairs: Whether the rows are pairs of texts.
    """

    name: str
    splits: dict[str, SplitAudit]
    contradictions: int
    pairs: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dictionaries, lists and numbers."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the whole audit as short sentences, one for each line of a log."""
        return [*self._counts(), *self.warnings()]

    def warnings(self) -> list[str]:
        """Return only the sentences about faults; none if there are none."""
        return list(self._warnings())

    def _counts(self) -> Iterator[str]:
        for name, split in self.splits.items():
            counts = ", ".join(f"{label} {count}" for label, count in split.labels.items())
            yield f"{name}: {_rows(split.rows)}" + (f" ({counts})" if counts else ", unlabelled")

    def _warnings(self) -> Iterator[str]:
        text = "text pair" if self.pairs else "text"
        for name, split in self.splits.items():
            if split.missing_labels:
                yield f"{name} has no row with the label {', '.join(split.missing_labels)}"
            if split.empty_texts:
                yield f"{name} has {_rows(split.empty_texts)} with an empty text"
            if split.repeated_rows:
                yield f"{name}: the {text} of {_rows(split.repeated_rows)} repeats an earlier one"
            if split.in_train_normalised:
                yield (
                    f"{name}: the {text} of {split.in_train_exact} of {_rows(split.rows)} is also "
                    f"in train ({split.in_train_normalised} if only letters and digits count)"
                )
        if self.contradictions:
            yield f"{text}s with more than one label: {self.contradictions}"


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def audit(dataset: TextDataset) -> Audit:
    """Look through a data set for what makes its figures doubtful.

    Args:
        dataset: The data set, with its out-of-distribution sets if they are read.

    Returns:
        Counts by split, repeated texts, texts shared with train and contradictory labels.
    """
    train = dataset.splits["train"]
    train_exact = set(text_keys(train, exact=True))
    train_normalised = set(text_keys(train))
    labels_of: dict[tuple[str, ...], set[str]] = defaultdict(set)
    splits = {}
    for name, split in {**dataset.splits, **dataset.ood}.items():
        keys = text_keys(split)
        count = Counter(split.labels or ())
        seen = [] if name == "train" else [key for key in keys if key in train_normalised]
        exact = [] if name == "train" else text_keys(split, exact=True)
        labels = {
            label: count[number]
            for number, label in enumerate(split.label_names)
            if split.labels is not None
        }
        splits[name] = SplitAudit(
            rows=len(split),
            labels=labels,
            missing_labels=tuple(label for label, rows in labels.items() if rows == 0),
            empty_texts=sum(any(not part for part in key) for key in keys),
            repeated_rows=len(keys) - len(set(keys)),
            in_train_exact=sum(key in train_exact for key in exact),
            in_train_normalised=len(seen),
            texts_in_train=len(set(seen)),
        )
        if name in dataset.splits and split.labels is not None:
            for key, number in zip(keys, split.labels, strict=True):
                labels_of[key].add(split.label_names[number])
    return Audit(
        name=dataset.name,
        splits=splits,
        contradictions=sum(len(labels) > 1 for labels in labels_of.values()),
        pairs=train.text_pairs is not None,
    )


def seen_in_train(train: Split, split: Split) -> list[bool]:
    """Return for each row of a split whether its text, character for character, is in train.

    In pair tasks both texts must be those of one row of train.
    """
    known = set(text_keys(train, exact=True))
    return [key in known for key in text_keys(split, exact=True)]
