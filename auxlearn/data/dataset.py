"""What a data set is once it has been read: splits of texts with labels by number."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from auxlearn.errors import DataError, did_you_mean


@dataclass(frozen=True)
class Split:
    """Rows of one split, column by column.

    Attributes:
        name: "train", "dev", "test", or the name of an out-of-distribution set.
        texts: One text per row.
        labels: Per row an index into ``label_names``; ``None`` for unlabelled text.
        label_names: The names the labels stand for.
        text_pairs: The second text of each row of a sentence-pair task.
        meta: Further columns by name, such as the heuristic of a HANS row.
    """

    name: str
    texts: tuple[str, ...]
    labels: tuple[int, ...] | None
    label_names: tuple[str, ...]
    text_pairs: tuple[str, ...] | None = None
    meta: dict[str, tuple[str, ...]] = field(default_factory=dict)

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
        """SHA-256 (first 16 hex digits) of everything in it but its name."""
        content = [
            self.label_names,
            self.labels,
            self.texts,
            self.text_pairs,
            sorted(self.meta.items()),
        ]
        text = json.dumps(content, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def select(self, rows: list[int], name: str | None = None) -> Split:
        """Return the given rows, in the given order, as a split of their own."""

        def pick(column: Any) -> Any:
            return None if column is None else tuple(column[row] for row in rows)

        return replace(
            self,
            name=name or self.name,
            texts=pick(self.texts),
            labels=pick(self.labels),
            text_pairs=pick(self.text_pairs),
            meta={key: pick(values) for key, values in self.meta.items()},
        )


@dataclass(frozen=True)
class TextDataset:
    """A labelled data set for text classification.

    Attributes:
        name: Short name, as in results and tables.
        splits: At least "train"; "dev" and "test" where they exist.
        ood: Out-of-distribution evaluation sets by name.
        metric: The metric the field reports for it: "accuracy" or "macro_f1".
        notes: Sentences a user should read: what was done to the data on reading.
    """

    name: str
    splits: dict[str, Split]
    ood: dict[str, Split] = field(default_factory=dict)
    metric: str = "accuracy"
    notes: tuple[str, ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        """Label names of the train split; a model's output classes, in order."""
        return self.splits["train"].label_names

    def split(self, name: str) -> Split:
        """Return a split or an out-of-distribution set by name.

        Raises:
            DataError: There is none of that name.
        """
        everything = {**self.splits, **self.ood}
        if name not in everything:
            raise DataError(
                f"data set '{self.name}' has no split '{name}': {did_you_mean(name, everything)}"
            )
        return everything[name]

    @property
    def fingerprint(self) -> str:
        """SHA-256 (first 16 hex digits) of everything in it, names of splits included."""
        digest = hashlib.sha256()
        for name, split in sorted({**self.splits, **self.ood}.items()):
            digest.update(
                json.dumps(
                    [
                        name,
                        split.label_names,
                        split.labels,
                        split.texts,
                        split.text_pairs,
                        sorted(split.meta.items()),
                    ],
                    ensure_ascii=False,
                ).encode()
            )
        return digest.hexdigest()[:16]
