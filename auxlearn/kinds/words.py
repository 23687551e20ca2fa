"""What kinds with a label for each word share: lists of words, and the tokens that begin them."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from auxlearn.core.errors import DataError, describe, shorten
from auxlearn.core.settings import Columns
from auxlearn.kinds.base import WORD_LABELS, WORDS, ClassScores, Kind
from auxlearn.kinds.columns import find_text, is_list, is_number, named, values_of
from auxlearn.kinds.labels import whole_list
from auxlearn.kinds.metrics import f1_of, of_counts
from auxlearn.kinds.predictions import Arrays, Labels, Names

if TYPE_CHECKING:
    from auxlearn.core.table import Table

#: Usual columns of the heads of words.
HEADS = ("label", "head", "heads", "arcs")

#: Target of a token that begins no word, which the loss leaves out.
NO_TAG = -100

#: Logit of what is predicted for certain, of a word without a token: finite.
CERTAIN = 30.0

_WHITE = re.compile(r"\s")


#: How many items of each name are right, predicted and there.
Counts: TypeAlias = tuple[Counter[str], Counter[str], Counter[str]]


class WordKind(Kind):
    """A label for each word of a text, predicted from the first token of the word.

    Words are joined by single spaces, so that all that works on texts works on these, and are
    tokenised as that text.
    """

    per_token = True
    refuses = Kind.refuses | {"pairs of texts"}
    per_word: ClassVar[tuple[str, ...]]  # metrics that are shares of the words
    text_columns = WORDS

    def example(self, number: int, words: int, outputs: int) -> Any:
        return tuple(word % outputs for word in range(words))

    def texts(self, table: Table, column: str) -> Table:
        words = [
            None if value is None else " ".join(_words(value, table.place(row), column))
            for row, value in enumerate(table.columns[column])
        ]
        if words and {*"".join(filter(None, words))} <= {*"_ "}:
            raise DataError(f"{table.where}: every word is _: the texts were left out of this copy")
        return replace(table, columns={**table.columns, column: words})

    def units(self, labels: Labels) -> list[Any]:
        return [(number,) for label in labels for number in self.classes(label)]

    def written_text(self, text: str) -> list[str]:
        return text.split(" ")

    def check(self, table: Table, texts: Sequence[str], labels: Labels) -> None:
        for row, (text, tags) in enumerate(zip(texts, labels, strict=True)):
            if (words := len(text.split(" "))) != len(tags):
                raise DataError(
                    f"{table.place(row)}: {words} words but {len(tags)} tags: each word has one, "
                    "in the column that --label-column names"
                )

    @abstractmethod
    def by_word(
        self, logits: np.ndarray, starts: np.ndarray, words: int, constant: Any
    ) -> np.ndarray:
        """Return the output of a text by the logits of its tokens, without padding. ``starts`` is
        the number of the word that begins at each token, from 0, and -1 elsewhere; ``constant`` is
        predicted for the words that are cut off or have no token.
        """

    @abstractmethod
    def _counts(self, truth: Labels, predicted: Labels, names: Names) -> Counts:
        """Return how many of each of :meth:`counted` are right, predicted, and there."""

    def per_class(self, truth: Labels, predicted: Labels, names: Names) -> ClassScores:
        right, guessed, there = self._counts(truth, predicted, names)
        return {
            name: f1_of(right[name], guessed[name], there[name])
            for name in self.counted(names)
            if guessed[name] or there[name]
        }

    def sums(self, truth: Labels, predicted: Labels, stored: Arrays, names: Names) -> np.ndarray:
        """Return counts by name, then how many words are right by each metric, and words."""
        rows, named = [], self.counted(names)
        for label, guess in zip(truth, predicted, strict=True):
            counts = self._counts([label], [guess], names)
            right = self._right_words(label, guess, names)
            rows.append([*(each[name] for each in counts for name in named), *right, len(label)])
        return np.array(rows, dtype=float)

    @abstractmethod
    def _right_words(self, truth: Any, predicted: Any, names: Names) -> list[float]:
        """Return how many words of an example are right by each metric of :attr:`per_word`."""

    def fault(self, truth: Sequence[Any], predicted: Sequence[Any]) -> float:
        return float(sum(label != guess for label, guess in zip(truth, predicted, strict=True)))

    def most_faults(self, label: Sequence[Any], names: Names) -> int:
        return len(label)

    def of_sums(self, metric: str, sums: np.ndarray, names: Names) -> np.ndarray:
        named = self.counted(names)
        right, guessed, there, words = np.split(sums, [len(named) * n for n in (1, 2, 3)], axis=-1)
        if metric in self.per_word:
            place = self.per_word.index(metric)
            return np.asarray(words[..., place] / np.maximum(1, words[..., -1]))
        return of_counts(metric, right, guessed, there, named)


def word_labels(table: Table, columns: Columns) -> list[Any] | None:
    """Return the labels of the words of a table: lists beside lists of words. Where texts stand
    beside their words, a label is of the text unless it is a list as long as that of the words.
    """
    words = values_of(table, find_text(table.columns, columns, WORDS))
    labels = values_of(table, columns.label, WORD_LABELS)
    of_text = named(table.columns, columns.label, ("label", "labels")) in table.columns
    aligned = (
        columns.text not in table.columns or not of_text or _lengths(words) == _lengths(labels)
    )
    lists = all(isinstance(value, list | tuple) for value in words)
    listed_cells = labels and all(map(is_list, [*words, *labels]))
    return labels if words and aligned and (lists or listed_cells) else None


def heads_of(table: Table, label: str = "label") -> list[Any]:
    """Return the heads of words: of the column that is named or a usual one, unless all are _."""
    name = named(table.columns, label, HEADS)
    column = table.columns.get(name, [])
    first = next((value[0] for value in column if isinstance(value, list | tuple) and value), "")
    is_arc = isinstance(first, list | tuple) and bool(first)
    is_head = is_number(first[0] if is_arc else first) and (is_arc or name in HEADS[1:])
    return column if is_head and labels_in(column) else []


def labels_in(column: list[Any]) -> set[str]:
    """Return the labels of words in lists; CoNLL-U writes _ for one that is left out."""
    lists = [value for value in column if isinstance(value, list | tuple)]
    return {str(label) for value in lists for label in value} - {"_"}


def _lengths(column: list[Any]) -> list[int]:
    return [len(value) if isinstance(value, list | tuple) else -1 for value in column]


def word_pairs(truth: Labels, predicted: Labels) -> list[tuple[Any, Any]]:
    """Return the true and the predicted label of each word."""
    both = zip(truth, predicted, strict=True)
    return [pair for labels in both for pair in zip(*labels, strict=True)]


def list_of(value: Any, place: str) -> Any:
    """Return the items of a list, of a list in a cell, or of a text divided by white space."""
    if not isinstance(value, str):
        return value
    items = None if value.lstrip().startswith(("(", "{")) else whole_list(value, f"{place}: ")
    return value.split() if items is None else items


def _words(value: Any, place: str, column: str) -> list[str]:
    words = list_of(value, place)
    if isinstance(value, str) and not any(isinstance(word, str) for word in words):
        words = value.split()  # a text such as [2019]
    shown = shorten(column)
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise DataError(
            f"{place}: a list of words is needed in column '{shown}', not {describe(value)}"
        )
    if not words:
        raise DataError(f"{place}: empty text in column '{shown}': fill it in or delete the row")
    if "" in (stripped := [word.strip() for word in words]):
        raise DataError(f"{place}: column '{shown}' has an empty word: remove it and its tag")
    # A no-break space, as in "10 000", keeps a word with a space in it one word of the text.
    return [_WHITE.sub("\u00a0", word) for word in stripped]
