"""Data sets in memory: splits of texts with integer labels."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from auxlearn.core.errors import DataError, did_you_mean, shorten, some_of
from auxlearn.core.settings import Columns
from auxlearn.core.table import Table
from auxlearn.kinds.base import Kind
from auxlearn.kinds.choose import CLASSIFICATION

if TYPE_CHECKING:
    import numpy as np
    import pandas


#: The splits with a fixed meaning; all other splits are further evaluation sets.
CORE_SPLITS = ("train", "dev", "test")

SPLIT_COLUMN = "split"  # column that divides a single table into splits, if the table has it


#: Columns by whose values predictions are joined to their examples, and the most characters there.
ID_COLUMNS = ("id", "idx", "guid", "uid", "example_id")
LONGEST_ID = 64

_MOST_SPLITS = 100  # different values of a column that names splits
_HELD_OUT = re.compile("test|eval|valid|hold.?out", re.IGNORECASE)


def split_name(stem: str) -> str:
    """Return the split that a file or hub split of this name holds.

    >>> split_name("validation"), split_name("Test"), split_name("hard_cases")
    ('dev', 'test', 'hard_cases')
    """
    lower = stem.lower()
    if lower in ("validation", "valid", "val"):
        return "dev"
    return lower if lower in CORE_SPLITS else stem


#: Names of a split that has none of its usual names, as ``datasets`` and GLUE have them.
_FURTHER_NAMES = {
    "training": "train",
    "development": "dev",
    "devel": "dev",
    "validate": "dev",
    "validation_matched": "dev",
    "dev_matched": "dev",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
    "test_matched": "test",
}


def split_names(names: Iterable[str]) -> dict[str, str]:
    """Return the split that each file or hub split of a data set holds. Of two by other names of
    one split, the second keeps its own.

    >>> split_names(["train", "validation", "dev", "eval"])
    {'train': 'train', 'validation': 'validation', 'dev': 'dev', 'eval': 'test'}
    """
    names = list(names)
    splits: dict[str, str] = {}
    for name in sorted(names, key=lambda name: name not in CORE_SPLITS):
        split = split_name(name)
        splits[name] = name if split in splits.values() and name.lower() != split else split
    for name in splits:
        further = _FURTHER_NAMES.get(name.lower())
        if further and further not in splits.values():
            splits[name] = further
    return {name: splits[name] for name in names}


def find_split(name: str, splits: Collection[str]) -> str:
    """Return the name under which a data set has the split that is asked for."""
    usual = name if name in splits else split_name(name)
    return usual if usual in splits else _FURTHER_NAMES.get(name.lower(), usual)


def in_reading_order(names: Iterable[str]) -> list[str]:
    """Return train, dev and test, as far as they are there, then the others by name."""
    known = set(names)
    return [*(name for name in CORE_SPLITS if name in known), *sorted(known - {*CORE_SPLITS})]


def as_one_split(table: Table, columns: Columns, split: str) -> Table:
    """Return a table that is read as one split; refuse rows that a column says are of others."""
    used = (columns.text, columns.text_pair, columns.label)
    for name in (name for name in table.columns if name not in used and split in CORE_SPLITS):
        values = {one.strip() if isinstance(one, str) else "" for one in table.columns[name]}
        if len(values) > _MOST_SPLITS:
            continue
        names = {split_names([one])[one] for one in values}
        others = names & {*CORE_SPLITS} - {split}
        if name == SPLIT_COLUMN and others:
            advice = f", but all rows are read as {split}: write one table of all, or remove it"
        elif len(names) > 1 and (
            names <= {*CORE_SPLITS}
            or {"train", "test"} <= names
            or ("train" in names and any(map(_HELD_OUT.search, values)))
        ):
            advice = f": if it divides the table into splits, rename it to '{SPLIT_COLUMN}', else "
            advice += "remove it"
        else:
            continue
        shown = some_of(sorted(values))
        raise DataError(f"{table.where}: column '{shorten(name)}' holds {shown}{advice}")
    return table


class Tables(Mapping[str, Table]):
    """The tables of the splits of a data set, each of which is read when it is asked for."""

    def __init__(self, readers: Mapping[str, Callable[[], Table]], columns: Columns) -> None:
        self._readers, self._columns = readers, columns

    def __getitem__(self, split: str) -> Table:
        return as_one_split(self._readers[split](), self._columns, split)

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


@dataclass(frozen=True, repr=False)
class Split:
    """Examples of one split, column by column."""

    name: str
    texts: Sequence[str]  # a tuple, or of a corpus what stays on the disk
    #: Indices into ``label_names``, or what the kind has in their place; ``None`` if unlabelled.
    labels: tuple[Any, ...] | None
    label_names: tuple[str, ...]
    #: Second text of each example of a sentence-pair task.
    text_pairs: tuple[str, ...] | None = None
    #: Further columns by name, such as the heuristic of a HANS example.
    meta: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kind: Kind = CLASSIFICATION
    notes: tuple[str, ...] = field(default=(), compare=False)  # what was changed on reading

    def __post_init__(self) -> None:
        columns = {"labels": self.labels, "text_pairs": self.text_pairs, **self.meta}
        for column, values in columns.items():
            if values is not None and len(values) != len(self.texts):
                raise DataError(
                    f"split '{self.name}' has {len(self.texts)} texts "
                    f"but {len(values)} values in '{column}'"
                )

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def fingerprint(self) -> str:
        """SHA-256 (first 16 hex digits) of the whole content except the name."""
        text = json.dumps(self.content, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def content(self) -> list[Any]:
        """What the split holds, except its name, as JSON has it."""
        meta = sorted(self.meta.items())
        return [self.label_names, self.labels, self.texts, self.text_pairs, meta]

    @property
    def ids(self) -> list[dict[str, str]]:
        """For each example, its short value in a column that tells all apart, if there is one."""
        for name in ID_COLUMNS:
            values = self.meta.get(name, ())
            if len(set(values)) == len(self) and max(map(len, values)) <= LONGEST_ID:
                return [{name: value} for value in values]
        return [{} for _ in self.texts]

    def rows(
        self, text: str = "text", text_pair: str = "text_pair", label: str = "label"
    ) -> Iterator[dict[str, Any]]:
        """Yield each example as a mapping of columns to values, the label by its name."""
        # Such a column would take the place of the text or label, or seem to be a second text.
        meta = {k: values for k, values in self.meta.items() if k not in (text, text_pair, label)}
        for row, first in enumerate(self.texts):
            example: dict[str, Any] = {text: self.kind.written_text(first)}
            if self.text_pairs is not None:
                example[text_pair] = self.text_pairs[row]
            if self.labels is not None:
                example[label] = self.kind.written(self.labels[row], self.label_names)
            yield example | {name: values[row] for name, values in meta.items()}

    def __repr__(self) -> str:
        pairs = "" if self.text_pairs is None else ", pairs of texts"
        labels = some_of(self.label_names) if self.labels is not None else "none"
        return f"<Split {shorten(self.name)}: {len(self):,} examples{pairs}, labels {labels}>"

    def select(self, indices: Sequence[int] | np.ndarray, name: str | None = None) -> Split:
        """Return a split of the examples with the given indices, in the given order."""

        def take(column: Any) -> Any:
            if hasattr(column, "select"):
                return column.select(indices)
            return None if column is None else tuple(column[index] for index in indices)

        return replace(
            self,
            name=name or self.name,
            texts=take(self.texts),
            labels=take(self.labels),
            text_pairs=take(self.text_pairs),
            meta={key: take(values) for key, values in self.meta.items()},
        )


@dataclass(frozen=True, repr=False)
class TextDataset:
    """A labelled data set."""

    name: str  # short name for results and tables
    splits: dict[str, Split]  # always "train"; "dev" and "test" where they exist
    #: Out-of-distribution evaluation sets by name.
    ood: dict[str, Split] = field(default_factory=dict)
    metric: str = ""  # the one that is usually reported for a data set of that name
    notes: tuple[str, ...] = ()  # sentences for the user, such as what was changed on reading
    class_names: tuple[str, ...] = ()  # the names of all classes in order, if the source says them
    #: Labels by split as they were in memory, if they were renamed: what a saved copy holds, so
    #: that the same settings read it.
    found_labels: dict[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        everything = self.everything.items()
        sizes = ", ".join(f"{shorten(name)} {len(split):,}" for name, split in everything)
        labels = f"labels {some_of(self.label_names)}" if "train" in self.splits else "no train"
        return f"<TextDataset {shorten(self.name)}: {sizes}; {labels}>"

    def to_frame(self) -> pandas.DataFrame:
        """Return all examples: columns ``split``, ``text``, ``text_pair``, ``label`` and others."""
        import pandas

        return pandas.DataFrame(
            [
                {"split": name} | row | {"split": name}
                for name, split in self.everything.items()
                for row in split.rows()
            ]
        )

    @property
    def everything(self) -> dict[str, Split]:
        """The splits and the out-of-distribution sets by name."""
        return self.splits | self.ood

    @property
    def label_names(self) -> tuple[str, ...]:
        """Label names of the train split: the classes of a model, in order."""
        return self.splits["train"].label_names

    @property
    def kind(self) -> Kind:
        return self.splits["train"].kind

    def split(self, name: str) -> Split:
        """Return a split or an out-of-distribution set by name."""
        if not isinstance(name, str) or name not in self.everything:
            hint = did_you_mean(str(name), self.everything)
            raise DataError(f"data set '{self.name}' has no split '{name}': {hint}")
        return self.everything[name]

    @property
    def fingerprint(self) -> str:
        """SHA-256 (first 16 hex digits) of the whole content, names of splits included."""
        digest = hashlib.sha256()
        for name, split in sorted(self.everything.items()):
            digest.update(json.dumps([name, *split.content], ensure_ascii=False).encode())
        return digest.hexdigest()[:16]
