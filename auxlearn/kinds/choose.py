"""The kinds by name, the kind of a table of labels, and what each kind is not offered for."""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_args

from auxlearn.core.errors import ConfigError
from auxlearn.core.settings import Columns, KindName
from auxlearn.kinds.base import WORD_LABELS, WORDS, Kind
from auxlearn.kinds.labels import listed

if TYPE_CHECKING:
    from auxlearn.core.table import Table


class _Kinds(Mapping[KindName, Kind]):
    """The kinds by name, each of which is loaded when it is asked for."""

    def __getitem__(self, name: KindName) -> Kind:
        kind: Kind = importlib.import_module(f"auxlearn.kinds.{name}").KIND
        return kind

    def __iter__(self) -> Iterator[KindName]:
        return iter(get_args(KindName))

    def __len__(self) -> int:
        return len(get_args(KindName))


KINDS = _Kinds()

CLASSIFICATION = KINDS["classification"]

#: A number that is no whole one, as text.
_FRACTION = re.compile(r"\s*[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?\s*")

#: Every kind but single classes.
_BUT_CLASSES = tuple(name for name in KINDS if name != CLASSIFICATION.name)

#: What some kinds are not offered for, with what to do instead: every other feature works with all
#: of them. The guide of the kinds shows this table.
REFUSED: dict[str, tuple[tuple[KindName, ...], str]] = {
    "class weights and label smoothing": (
        ("regression", "dependency"),
        "there is no choice between the same classes each time: leave them out",
    ),
    "thresholds": (
        tuple(name for name in KINDS if name != "multi_label"),
        "only several labels have any: leave --thresholds out",
    ),
    "unknown_labels count": (
        _BUT_CLASSES,
        "only single classes can be counted as wrong: leave it out",
    ),
    "decision argmax": (_BUT_CLASSES, "classes of the run are not combined there: leave it out"),
    "labels (label maps)": (("regression",), "numbers have no names: leave --labels out"),
    "combined labels": (
        _BUT_CLASSES,
        "only single classes of a model are one label of another set together: map each label of "
        "the model to one of its own",
    ),
    "pairs of splits": (("regression",), "no number is exactly right: leave 'pairs' out"),
    "dev heads": (_BUT_CLASSES, "they are fitted to single classes: choose dev_head own"),
    "selective": (_BUT_CLASSES, "it follows the confidence in a single class: choose another task"),
    "pairs of texts": (("token_classification", "dependency"), "the words of one text have labels"),
    "windows of long texts": (
        ("dependency",),
        "a sentence is read as one row of tokens: leave --text-window windows out",
    ),
    "perturbations": (_BUT_CLASSES, "it shows what changes a class"),
}


def kind_of(name: KindName | None) -> Kind:
    """Return a kind by name; without one, classification."""
    return KINDS[name or "classification"]


def require(kind: Kind, feature: str, which: str = "") -> None:
    """Refuse a feature that is not offered for a kind."""
    refused, advice = REFUSED[feature]
    if kind.name in refused:
        raise ConfigError(f"{feature}{which}: not offered for {kind.name}; {advice}")


def find_kind(table: Table, given: Columns) -> Kind:
    """Return the kind that the labels of a table have, by their types. Lists beside lists of words
    are tags, or heads where no tags differ. Where texts stand beside their words, a label is of the
    text unless it is a list as long as that of the words.
    """
    label = given.label

    def values(column: str, usual: tuple[str, ...]) -> list[Any]:
        found = table.columns.get(named(table.columns, column, usual or (column,)), [])
        return [value for value in found if value is not None and value != ""]

    of_text = named(table.columns, label, ("label", "labels")) in table.columns
    words, tags = values(find_text(table.columns, given, WORDS), ()), values(label, WORD_LABELS)
    aligned = given.text not in table.columns or not of_text or _lengths(words) == _lengths(tags)
    lists = all(isinstance(one, list | tuple) for one in words)
    if words and aligned and (lists or (tags and all(map(_is_list, [*words, *tags])))):
        heads = heads_of(table, label)
        untagged = heads == tags or len(_labels_in(tags)) < 2
        return KINDS["dependency" if heads and untagged else "token_classification"]
    present = values(label, ("label", "labels", "score"))
    if present and all(map(_is_list, present)):
        return KINDS["multi_label"]
    numbers = present and all(map(_is_number, present)) and any(map(_has_fraction, present))
    return KINDS["regression"] if numbers and not _are_codes(present) else CLASSIFICATION


def heads_of(table: Table, label: str = "label") -> list[Any]:
    """Return the heads of words: of the column that is named or a usual one, unless all are _."""
    _, *usual = KINDS["dependency"].label_columns
    name = named(table.columns, label, KINDS["dependency"].label_columns)
    column = table.columns.get(name, [])
    first = next((value[0] for value in column if isinstance(value, list | tuple) and value), "")
    is_arc = isinstance(first, list | tuple) and bool(first)
    is_head = _is_number(first[0] if is_arc else first) and (is_arc or name in usual)
    return column if is_head and _labels_in(column) else []


def _labels_in(column: list[Any]) -> set[str]:
    """Return the labels of words in lists; CoNLL-U writes _ for one that is left out."""
    lists = [value for value in column if isinstance(value, list | tuple)]
    return {str(one) for value in lists for one in value} - {"_"}


def named(columns: Collection[str], name: str, usual: tuple[str, ...]) -> str:
    """Return the column that is named, or the first usual one that there is."""
    if name != usual[0] or name in columns:
        return name
    return next((one for one in usual if one in columns), name)


def find_text(columns: Collection[str], given: Columns, usual: tuple[str, ...]) -> str:
    """Return the column of the text: the one that is named, or the first usual one there is."""
    return given.text_column or next((one for one in usual if one in columns), given.text)


def _lengths(column: list[Any]) -> list[int]:
    return [len(value) if isinstance(value, list | tuple) else -1 for value in column]


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, str) and listed(value) is not None)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return bool(_FRACTION.fullmatch(value))
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _are_codes(numbers: Iterable[Any]) -> bool:
    """Return whether texts are numbered as no program writes numbers: 01.17, 250.00 and 401.9."""
    texts = [one.strip().lstrip("+-") for one in numbers if isinstance(one, str)]
    digits = {one.partition(".")[2] for one in texts}
    ragged = len({len(one) for one in digits}) > 1 and any(
        len(one) > 1 and one.endswith("0") for one in digits
    )
    return ragged or any(re.match("0[0-9]", one) for one in texts)


def _has_fraction(value: Any) -> bool:
    number = float(value)
    return number == number and not number.is_integer()
