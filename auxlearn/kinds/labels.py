"""Labels: the values of a column as names of classes, checked, renamed and in order."""

from __future__ import annotations

import ast
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from auxlearn.core.errors import (
    DataError,
    and_more,
    describe,
    did_you_mean,
    is_blank,
    printable,
    shorten,
)
from auxlearn.core.settings import LONGEST_LABEL, label_text
from auxlearn.kinds.base import ReadLabels

if TYPE_CHECKING:
    from auxlearn.core.settings import Columns
    from auxlearn.core.table import Table

CODES = "codes"  # form of decimals that are names of classes

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")

NULL_LABELS = {
    *("-", "--", "?"),
    *("nan", "NaN", "NAN", "-nan", "None", "null", "Null", "NULL", "<null>", "(null)", r"\N"),
    *("NA", "N/A", "n/a", "<NA>", "NaT", "#N/A", "#NA", "#N/A N/A", "1.#QNAN", "-1.#IND"),
    *("#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NULL!", "#NUM!"),
}
"""What programs write for a missing value. "none" is not among them: it is a usual class.
"-" is SNLI's, where annotators do not agree."""

#: Those among them that no word has for its tag; others, such as NA and -, are tags.
_NO_TAGS = {"nan", "NaN", "NULL", "<NA>", "#N/A"}

#: Distinct whole numbers from which on a column is no longer taken for classes, unless they number
#: the classes one by one or each occurs :data:`FEW` times or more on average.
_MANY_NUMBERS, FEW = 50, 3

_DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|[+-]?\d+[eE][+-]?\d+")
#: A whole number as programs write a column of floats, in CSV for example.
_WHOLE_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,17})\.0")  # "-0.0" is how a rounded -0.3 is written
#: A number with a decimal comma, or several numbers; and a share in percent.
_OTHER_NUMBER = re.compile(
    r"[+-]?(\d+(,\d+)+(\.\d+|[eE][+-]?\d+)?|\d{1,3}(\.\d{3})+,\d+|\d+([.,]\d+)?\s*%)"
)
_VARIATION = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")  # selectors of forms of emoji
_SPAN, _DIVIDER = re.compile("O|[BI]-.+"), re.compile(r"[\s,;|]+")
_MAPPING = re.compile(r"\s*\[?\s*\{\s*(['\"]).*\1\s*:", re.DOTALL)  # or a list of such
#: What begins as a list of texts, or is one of numbers as numpy writes more than 1,000 of them.
_BROKEN = re.compile(
    r"\s*(?:array\()?\[(?:['\"]|\s*[-0-9][^\[\]]*[\s,]\.\.\.[\s,]*(?:[-0-9][^\[\]]*)?\])"
)
_LIST = re.compile(r"(array|tensor)?[\[({].*[\])}]", re.DOTALL)
SEPARATORS = "|;,<#/+& "


def read_names(
    table: Table,
    column: str,
    rows: Iterable[Sequence[Any]],
    kind: str,
    columns: Columns,
    form: str | None,
) -> ReadLabels:
    """Return the names of the labels of each row, checked alone and together. If one is a decimal
    such as ``401.9`` or ``250.00``, they are :data:`CODES`: ``428.0`` is another one than ``428``.
    """
    rows = list(rows)
    if form is None:
        texts = {
            str(value)
            for values in rows
            for value in values
            if isinstance(value, str)
            or (isinstance(value, Decimal) and value != value.to_integral_value())
        }
        form = CODES if columns.codes or any(map(_is_code, texts)) else ""
    # Only single classes are guessed from values that may be numbers as well.
    guessed = kind == "classification" != columns.kind
    # A data set has few classes and many examples: each class is checked once.
    known: dict[tuple[type, Any], str] = {}
    labels = []
    for row, values in enumerate(rows):
        names = []
        for value in values:
            key = (type(value), value) if isinstance(value, str | int | float) else None
            name = known.get(key) if key is not None else None
            if name is None:
                place = f"{table.place(row)}: "
                name = checked_label(value, place, shorten(column), kind, guessed, form == CODES)
                if key is not None:
                    known[key] = name
            names.append(name)
        labels.append(tuple(names))
    _check_missing(table, column, labels, kind, columns.keep_null_labels)
    if kind == "classification":
        _check_classes(table, column, [name for (name,) in labels], guessed, columns.renamed)
    changed = [(v, name) for (of, v), name in known.items() if of is str and name not in (v, "")]
    shown = [f"labels such as '{value}' are read as '{name}'" for value, name in changed[:1]]
    return ReadLabels(labels, form, tuple(shown))


def _is_code(text: str) -> bool:
    """Return whether a text is a decimal, and no whole number as programs write it (1.0)."""
    return bool(_DECIMAL.fullmatch(text.strip())) and not _WHOLE_DECIMAL.fullmatch(text.strip())


def _is_fraction(text: str) -> bool:
    return bool(_DECIMAL.fullmatch(text.strip())) and not float(text).is_integer()


def _check_missing(
    table: Table, column: str, labels: Sequence[Sequence[str]], kind: str, keep_null: bool
) -> None:
    """Check that no label is missing. ``-``, ``--`` and ``?`` stand for one unless there is ``+``,
    ``++`` or ``!``; ``-100`` unless another number is negative; ``-1`` beside names.
    """
    names = {name for names in labels for name in names}
    missing = {""}
    if not keep_null:
        negative = {name for name in names if re.fullmatch("-[0-9]+", name)}
        missing |= negative if negative == {"-100"} else set()
        others = names - {"-1", "-100"}
        if others and not any(re.match(r"[+-]?\.?[0-9]", name) for name in others):
            missing |= {"-1", "-100"}
        signs = {"-", "--"} if names & {"+", "++"} else set()
        signs |= {"?"} if "!" in names else set()
        missing |= _NO_TAGS if kind == "token_classification" else NULL_LABELS - signs
    rows = [row for row, names in enumerate(labels) if not missing.isdisjoint(names)]
    if rows:
        name = next(name for name in labels[rows[0]] if name in missing)
        what = f"the label '{name}' (a missing value?)" if name else "missing label"
        accept = ", or accept it as a class by --keep-null-labels" if name else ""
        raise DataError(
            f"{table.place(rows[0])}: {what} in column '{shorten(column)}'"
            f"{and_more(len(rows) - 1)}: fill it in or delete the row{accept}"
        )


def checked_label(
    value: Any, place: str, column: str, kind: str, guessed: bool = False, codes: bool = False
) -> str:
    """Return the name of a label, "" if it is missing; errors as for :func:`read_names`."""
    is_list = isinstance(value, list | tuple | dict)
    if isinstance(value, str) and kind != "token_classification":
        is_list = whole_list(value, place) is not None or (  # not a name such as "(none)"
            bool(_LIST.fullmatch(value.strip())) and not {*value}.isdisjoint(",'\"")
        )
    if is_list and isinstance(value, list) and [*map(type, value)] == [int, int, str]:
        raise DataError(
            f"{place}column '{column}' holds {describe(value)}: spans of characters are not read: "
            "write words, each with a tag (columns tokens and tags)"
        )
    if is_list and _MAPPING.match(str(value)):
        raise DataError(
            f"{place}column '{column}' holds {describe(value)}, a mapping: write the name of the "
            "label, or a list of names (spans of characters are not read)"
        )
    if is_list:
        rule, where = "an example has one label", ", in runs with --kind multi_label"
        if kind == "multi_label":
            rule, where = "a label is a text", ""
        raise DataError(
            f"{place}column '{column}' holds {describe(value)}: {rule}; several are one list in "
            f"JSON, or joined by |{where}"
        )
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    try:
        is_number = isinstance(value, float) or (codes and isinstance(value, Decimal))
        if kind == "classification" and not guessed and is_number:
            value = str(value) if math.isfinite(value) else value
        name = label_name(value, codes)
    except ValueError:  # also of a number of too many digits
        raise DataError(
            f"{place}a label is text, a whole number or true/false, but column '{column}' "
            f"holds {describe(value)}; numbers are predicted by runs with --kind regression"
        ) from None
    if is_blank(name) and printable(name) == name:
        return ""
    is_text = isinstance(value, str)
    if guessed and is_text and (_is_fraction(name) or _OTHER_NUMBER.fullmatch(name)):
        raise DataError(
            f"{place}the label {shorten(name)} in column '{column}' looks like a number (4.5, "
            "with --kind regression), like several labels (joined by |, with --kind "
            "multi_label), or like the code of a class (with --kind classification)"
        )
    if len(name) > LONGEST_LABEL:
        raise DataError(
            f"{place}a label of {len(name):,} characters in column '{column}' ({shorten(name)}): "
            "is it the column of the text? (another column is named with --label-column)"
        )
    if printable(name) != name:
        raise DataError(
            f"{place}the label '{shorten(name)}' in column '{column}' holds a control character: "
            "remove it"
        )
    return name


def _check_classes(
    table: Table, column: str, labels: list[str], guessed: bool, renamed: Collection[str]
) -> None:
    """Check that the labels of a table look like classes; what the user has renamed is one."""
    names, shown = dict.fromkeys(labels), shorten(column)
    numbers = [int(name) for name in names if _WHOLE_NUMBER.fullmatch(name)]
    many = len(numbers) == len(names) >= _MANY_NUMBERS and len(labels) < FEW * len(names)
    if many and guessed and max(numbers) - min(numbers) >= len(numbers):
        raise DataError(
            f"{table.where}: column '{shown}' holds {len(names):,} different numbers "
            f"in {len(labels):,} rows, which look like numbers to predict (--kind regression), "
            "not like classes; if they are classes, name --kind classification"
        )
    if name := joined_label(names, renamed):
        raise DataError(
            f"{table.place(labels.index(name))}: the label '{shorten(name)}' in column "
            f"'{shown}' joins other labels: an example has one label; several, joined by |, are "
            "read by runs with --kind multi_label; --labels says that it is one"
        )


def joined_label(
    names: Iterable[str], single: Collection[str] = (), separators: str = SEPARATORS
) -> str:
    """Return the first of distinct names that joins others of them by a separator, such as ``|``,
    or as ``<a><b>``, but for those that are known to be ``single``; "" if none does.
    """
    known = set(names)
    for name in names:
        if name in single:
            continue
        for separator in separators:
            parts = parts_of(name, separator)
            if len(parts) > 1 and all(part in known for part in parts):
                return name
    return ""


def look_joined(names: Sequence[str], divides: str, may_divide: str) -> list[str]:
    """Return labels that look like several: a part by a mark that ``divides`` is in another; a part
    by a comma or ``#`` is a label; or all parts are in others, one of which is a label or at
    another place there, unlike in ``FOOD#PRICES, FOOD#QUALITY, BAR#PRICES``.
    """
    for mark in divides + may_divide:
        parts = {name: parts_of(name, mark) for name in names}
        count = Counter(part for split in parts.values() for part in {*split} if part)
        at = {(part, place) for split in parts.values() for place, part in enumerate(split)}
        places = Counter(part for part, _ in at)
        several = {name: split for name, split in parts.items() if len(split) > 1}
        whole = {name for name, split in several.items() if all(count[part] > 1 for part in split)}
        moved = any(part in parts or places[part] > 1 for name in whole for part in parts[name])
        joined = [
            name
            for name, split in several.items()
            if (name in whole and moved)
            or (mark in divides and any(count[part] > 1 for part in split))
            or (mark in ",#" and any(part in parts for part in split))
        ]
        if joined:
            return joined
    return []


def parts_of(name: str, separator: str) -> list[str]:
    if separator == "<":
        return re.findall("<[^<>]+>", name) if re.fullmatch("(<[^<>]+>)+", name) else [name]
    return [part.strip() for part in name.split(separator)]


def check_renamed(renamed: Mapping[str, str], labels: Iterable[str]) -> None:
    """Check that every label that is to be renamed is in the data."""
    known = set(labels)
    for label, name in renamed.items():
        if label not in known:
            shown = shorten(label)
            raise DataError(
                f"labels: the data have no label '{shown}' that '{shorten(name)}' could stand for: "
                f"{did_you_mean(shown, map(shorten, known))}"
            )


def label_name(value: Any, codes: bool = False) -> str:
    """Return the label name for a value of a file, "" for an empty text: the digits of a whole
    number, also of 1.0 unless texts are ``codes``; "true" and "false" for booleans.
    """
    name = label_text(value)
    if not isinstance(name, str):
        raise ValueError(f"{describe(value)} cannot name a class")
    is_float = _WHOLE_DECIMAL.fullmatch(name) and not codes
    return str(int(name.partition(".")[0])) if is_float else name


def looks_of(name: str) -> str:
    """Return what a name has in common with those that look like it."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    visible = (character for character in folded if unicodedata.category(character) != "Cf")
    plain = _VARIATION.sub("", "".join(visible))
    unquoted = " ".join(plain.split()).strip("\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb ")
    return re.sub("^0+(?=[0-9]+$)", "", unquoted) or plain


def sort_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Return distinct label names sorted by value if all are whole numbers, else alphabetically."""
    distinct = set(names)
    if all(_WHOLE_NUMBER.fullmatch(name) for name in distinct):
        return tuple(sorted(distinct, key=lambda name: (int(name), name)))
    return tuple(sorted(distinct))


_LONGEST_LIST = 50_000  # characters of a list of Python, whose parser takes much memory

#: The list in an array as numpy and torch write it for programmers.
_ARRAY = re.compile(r"(?:array|tensor|Index)\((\[.*\])(?:,\s*dtype=[^\[\]]*)?\)", re.DOTALL)
#: The set in one that cannot be changed, and one without items, as Python writes them.
_SET = re.compile(r"frozenset\((\{.*\})\)|(?:frozen)?set\(()\)", re.DOTALL)

#: An item of a list as Python and numpy write it, and the space behind it where numpy has no comma.
_ITEM = re.compile(
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\w.+-]+)(\s+(?=['"\w.+-]))?""", re.DOTALL
)


def check_no_tags(
    table: Table, column: str, names: Sequence[str], texts: Sequence[Any], kind: str
) -> None:
    """Refuse labels that are a tag for each word: of spans, or as many as each text has words;
    labels of a list, here divided by spaces, only where they are as many.
    """
    counts = [len(name.split()) for name in names]
    aligned = counts == [len(str(text).split()) for text in texts]
    for name in dict.fromkeys(names) if aligned or kind == "classification" else ():
        tags = {*_DIVIDER.split(name)}
        each = aligned and len({*counts}) > 1
        if len(tags) > 1 and (each or all(map(_SPAN.fullmatch, tags))):
            raise DataError(
                f"{table.place(names.index(name))}: the label '{shorten(name)}' in column "
                f"'{shorten(column)}' looks like a tag for each word: --kind token_classification "
                f"reads such tags; otherwise name --kind {kind}"
            )


def _as_item_of_python(item: re.Match[str]) -> str:
    name = "None" if item[1] == "nan" else item[1]  # a missing value of pandas
    return f"{name}," if item[2] else name


def whole_list(cell: str, place: str) -> list[Any] | None:
    """Return the list that a cell holds as :func:`listed` does; refuse one without its end, with a
    word in no quotation marks, or whose items numpy has left out.
    """
    items = listed(cell)
    if items is None and _BROKEN.match(cell):
        raise DataError(f"{place}{describe(cell)} is no whole list: write all of it in JSON")
    return items


def listed(cell: str) -> list[Any] | None:
    """Return the list that a cell of text holds, in JSON or as Python or numpy writes it.

    >>> listed('["a", 1]'), listed("['a', 'b']"), listed("['a' 'b']"), listed("[1. 0.]")
    (['a', 1], ['a', 'b'], ['a', 'b'], [1.0, 0.0])
    >>> listed("array(['a', 'b'], dtype='<U1')"), listed("tensor([1, 0])")
    (['a', 'b'], [1, 0])
    >>> listed("[[2, 'obj'], (0, 'root')]"), listed("[E1] Ann [/E1]"), listed("(a)")
    ([[2, 'obj'], (0, 'root')], None, None)
    """
    text = cell.strip()
    if array := _ARRAY.fullmatch(text):
        text = array[1]
    elif of_set := _SET.fullmatch(text):
        text = of_set[1] or "[]"
    if not text.startswith(("[", "(", "{")):
        return None
    with suppress(ValueError, RecursionError):
        items = json.loads(text)
        return items if isinstance(items, list) else None
    if len(text) > _LONGEST_LIST:
        return None
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        items = ast.literal_eval(_ITEM.sub(_as_item_of_python, text))
        if isinstance(items, list | tuple | set) and ... not in items:
            return sorted(items, key=str) if isinstance(items, set) else list(items)
    return None
