"""Audit of a data set: class counts, duplicates, leakage from train, contradictory labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from auxlearn.core.errors import some_of
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.splits import text_keys


@dataclass(frozen=True)
class SplitAudit:
    """Audit of one split. Texts, or both texts of a pair together, are compared by their letters
    and digits, case-folded.
    """

    examples: int
    #: Examples per label, in the order of the label names; empty if it is unlabelled.
    labels: dict[str, int]
    missing_labels: tuple[str, ...]  # label names without an example
    empty_texts: int  # only a split that a program made can have any: the readers refuse them
    duplicates: int  # examples whose text also occurs earlier in the split
    in_train_exact: int = 0  # examples whose text is in train to the letter; 0 for train itself
    in_train_normalised: int = 0  # examples whose text is in train
    texts_in_train: int = 0  # distinct texts among those


@dataclass(frozen=True)
class Audit:
    """Audit of a data set: what a user should know before trusting its results."""

    name: str
    splits: dict[str, SplitAudit]  # one entry per split and out-of-distribution set
    #: Distinct texts with more than one label, over all splits; out-of-distribution sets do not
    #: count, as their labels can have another meaning.
    contradictions: int
    pairs: bool = False  # whether the examples are pairs of texts

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dictionaries, lists and numbers."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the audit as lines of text: the class counts of each split, then the warnings."""
        return [*self._counts(), *self.warnings()]

    def warnings(self) -> list[str]:
        """Return one sentence per problem; an empty list if there are none."""
        return list(self._warnings())

    def _counts(self) -> Iterator[str]:
        for name, split in self.splits.items():
            counts = some_of([f"{label} {count}" for label, count in split.labels.items()], 20)
            yield f"{name}: {_examples(split.examples)}" + (
                f" ({counts})" if counts else ", unlabelled"
            )

    def _warnings(self) -> Iterator[str]:
        text = "text pair" if self.pairs else "text"
        for name, split in self.splits.items():
            if split.missing_labels:
                yield f"{name} has no example with the label {some_of(split.missing_labels)}"
            if split.empty_texts:
                yield f"{name} has {_examples(split.empty_texts)} with an empty text"
            if split.duplicates:
                count = _examples(split.duplicates)
                yield f"{name}: the {text} of {count} repeats an earlier one"
            if split.in_train_normalised:
                yield (
                    f"{name}: the {text} of {split.in_train_exact} of "
                    f"{_examples(split.examples)} is also in train ("
                    f"{split.in_train_normalised} if only letters and digits count)"
                )
        if self.contradictions:
            yield f"{text}s with more than one label: {self.contradictions}"


def _examples(count: int) -> str:
    return f"{count} example" if count == 1 else f"{count} examples"


def audit(dataset: TextDataset) -> Audit:
    """Check a data set for problems that make its results doubtful."""
    train = dataset.splits["train"]
    train_exact = set(text_keys(train, exact=True))
    train_normalised = set(text_keys(train))
    labels_of: dict[tuple[str, ...], set[str]] = defaultdict(set)
    splits = {}
    for name, split in {**dataset.splits, **dataset.ood}.items():
        keys = text_keys(split)
        count = Counter(c for label in split.labels or () for c in split.kind.classes(label))
        seen = [] if name == "train" else [key for key in keys if key in train_normalised]
        exact = [] if name == "train" else text_keys(split, exact=True)
        labels = {
            label: count[number]
            for number, label in enumerate(split.label_names)
            if split.labels is not None
        }
        splits[name] = SplitAudit(
            examples=len(split),
            labels=labels,
            missing_labels=tuple(label for label, number in labels.items() if number == 0),
            empty_texts=sum(any(not text for text in key) for key in keys),
            duplicates=len(keys) - len(set(keys)),
            in_train_exact=sum(key in train_exact for key in exact),
            in_train_normalised=len(seen),
            texts_in_train=len(set(seen)),
        )
        if name in dataset.splits and split.labels is not None:
            for key, number in zip(keys, split.labels, strict=True):
                labels_of[key].add(str(split.kind.written(number, split.label_names)))
    return Audit(
        name=dataset.name,
        splits=splits,
        contradictions=sum(len(labels) > 1 for labels in labels_of.values()),
        pairs=train.text_pairs is not None,
    )


def seen_in_train(train: Split, split: Split) -> list[bool]:
    """Return for each example of a split whether its exact text, or pair of texts, is in train."""
    known = set(text_keys(train, exact=True))
    return [key in known for key in text_keys(split, exact=True)]
