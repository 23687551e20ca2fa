"""Examples from the columns of a table."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from auxlearn.core.errors import (
    DataError,
    PluginError,
    and_more,
    describe,
    is_blank,
    plugin_title,
    shorten,
    some_of,
    suggestion,
)
from auxlearn.core.settings import Columns, label_text
from auxlearn.core.table import HALF_A_PAIR, Table, is_encodable
from auxlearn.data.dataset import (
    CORE_SPLITS,
    Split,
    TextDataset,
    find_split,
    in_reading_order,
)
from auxlearn.data.parquet import check_one_meaning
from auxlearn.data.tables import as_json, divided_otherwise
from auxlearn.kinds.base import Kind, ReadLabels, kind_of
from auxlearn.kinds.choose import CLASSIFICATION, find_kind
from auxlearn.kinds.columns import find_text, is_list, named, passed_over
from auxlearn.kinds.labels import check_renamed, sort_labels

LACKED = "has labels that train lacks"

PREDICTED_LABEL = "predicted_label"  # column that predictions are written to
LOG_PROBABILITY = "log_probability"  # column that scores of texts are written to

LONGEST_TEXT = 1_000_000  # characters of a text: tokenising one takes some 200 bytes per character

_SENTENCE_NUMBER = re.compile(r"(?i)sent(ence)?[ _.:-]*(#|id|idx|index|no|nr|num|number)?\.?")

_HIDDEN = "its labels are hidden"

_BYTES = re.compile(r"b(['\"]).*\1", re.DOTALL)  # as PAWS-QQP is, made with Python 3


def check_distinct(columns: Columns, read: Sequence[str] = ("text", "text_pair", "label")) -> None:
    """Check that no column is to be read as two: the label would be a text, or one text both."""
    names = {role: getattr(columns, role) for role in read}
    for (role, name), (other, same) in itertools.combinations(names.items(), 2):
        if name == same:
            roles = [one.replace("_", "-") for one in (role, other)]
            raise DataError(
                f"column '{shorten(name)}' is that of the {roles[0]} and of the {roles[1]}: name "
                f"another one for either (--{roles[0]}-column, --{roles[1]}-column)"
            )


def with_kind_of(table: Table, columns: Columns) -> Columns:
    """Return columns with the kind of the labels of a table, unless it is given."""
    if columns.kind:
        return columns
    return columns.model_copy(update={"kind": find_kind(table, columns).name})


@dataclass(frozen=True)
class RawExamples:
    """Checked examples whose labels are names, not yet class indices."""

    table: Table
    texts: list[str]
    #: One label per example, by its names; ``None`` if the table has no label column.
    labels: list[Any] | None
    text_pairs: list[str] | None = None
    meta: dict[str, list[str]] = field(default_factory=dict)  # every other column, as text
    found_labels: tuple[Any, ...] = ()  # labels as the table has them, before any was renamed
    kind: Kind = CLASSIFICATION
    form: str | None = None  # how the labels are written
    notes: tuple[str, ...] = ()  # what was changed on reading
    class_names: tuple[str, ...] = ()  # all names of classes in order, if the source says them


def parse_examples(
    table: Table, columns: Columns, *, labelled: bool = True, form: str | None = None
) -> RawExamples:
    """Check the rows of a table and return them as examples; ``form`` is that of train."""
    if len(table) == 0:
        raise DataError(f"{table.where} has no rows")
    check_distinct(columns)
    _check_rows_are_texts(table)
    _check_answers(table)
    kind = kind_of(with_kind_of(table, columns).kind)
    notes = passed_over(table.columns, columns.label, kind.label_columns)
    columns = _found_columns(table, columns, kind)
    if columns.renamed:
        kind.require("labels (label maps)")
    if columns.unknown_labels == "count":
        kind.require("unknown_labels count")
    needed = {"text": True, "text-pair": columns.text_pair_column is not None, "label": labelled}
    for role, is_needed in needed.items():
        name = getattr(columns, role.replace("-", "_"))
        if is_needed and name not in table.columns:
            advice = ""
            if role == "label" and kind.columns_beside:  # another column would not do alone
                several = " and ".join((kind.label_columns[1], *kind.columns_beside))
                advice = f"kind {kind.name} needs the columns {several}, as .conllu files have"
            raise no_column(table, name, role, advice)
        if role != "label" and name in table.columns and all(map(is_empty, table.columns[name])):
            raise DataError(
                f"{table.where}: column '{shorten(name)}' is empty in every row: leave it out, or "
                f"name another column with --{role}-column"
            )
    table = _without_incomplete_rows(table, columns, kind)
    has_pairs = columns.text_pair in table.columns
    has_labels = columns.label in table.columns
    class_names = [label_text(name) for name in (table.class_names or {}).get(columns.label, ())]
    if class_names:  # one of which may well be "None"
        columns = columns.model_copy(update={"keep_null_labels": True})
    if has_pairs:
        kind.require("pairs of texts")
    if has_labels:
        both = zip(table.columns[columns.text], table.columns[columns.label], strict=True)
        rows = (
            f"{text}\t{label}".replace("\ufeff", "").replace("\t ", "\t") for text, label in both
        )
        header = f"{columns.text}\t{columns.label}".lower()
        heads = [row for row, cells in enumerate(rows) if cells.lower() == header]
        if heads:
            more = and_more(len(heads) - 1)
            raise DataError(f"{table.place(heads[0])}: the header again{more}: delete the row")
    used = {columns.text, columns.text_pair, columns.label}
    texts = text_values(kind.texts(table, columns.text), columns.text)
    found = kind.read(table, columns.label, columns, form) if has_labels else None
    if has_labels and (not isinstance(found, ReadLabels) or len(found.labels) != len(table)):
        raise PluginError(
            f"read of {plugin_title(kind)} does not fit: it returns ReadLabels with one label for "
            f"each row, which are {len(table):,} here"
        )
    labels = None if found is None else found.labels
    if labels is not None:
        kind.check(table, texts, labels)
    return RawExamples(
        table=table,
        texts=texts,
        labels=None if labels is None else list(labels),
        text_pairs=text_values(table, columns.text_pair) if has_pairs else None,
        meta={
            name: [_as_text(value, table, row) for row, value in enumerate(values)]
            for name, values in table.columns.items()
            if name not in used
        },
        found_labels=() if found is None else tuple(found.found or found.labels),
        kind=kind,
        form=None if found is None else found.form,
        notes=tuple(dict.fromkeys((*table.notes, *notes, *(found.notes if found else ())))),
        class_names=tuple(dict.fromkeys(columns.renamed.get(one, one) for one in class_names)),
    )


def _check_rows_are_texts(table: Table) -> None:
    """Refuse a table with a word in each row, which a column gathers into sentences."""
    number = next((name for name in table.columns if _SENTENCE_NUMBER.fullmatch(name)), None)
    if number is None or len(set(map(str, table.columns[number]))) > len(table) / 2:
        return
    if any(len(str(value).split()) > 2 for value in table.columns[number]):  # as "Sentence: 1" has
        return
    others = [values for name, values in table.columns.items() if name != number]
    if all(len(str(value).split()) <= 1 for values in others for value in values):
        raise DataError(
            f"{table.where}: column '{shorten(number)}' numbers sentences of which each row is a "
            "word: write a row for each sentence, with lists in the columns 'tokens' and 'tags', "
            "or a .conll file, with a line for each word and its tag"
        )


def _check_answers(table: Table) -> None:
    """Refuse labels that annotators have not accepted, as prodigy writes them."""
    answers = table.columns.get("answer", [])
    other = [row for row, answer in enumerate(answers) if answer in ("reject", "ignore")]
    if other and all(answer in ("accept", "reject", "ignore") for answer in answers):
        raise DataError(
            f"{table.place(other[0])}: column 'answer' holds '{answers[other[0]]}'"
            f"{and_more(len(other) - 1)}: delete rows whose label is not accepted, or the column"
        )


def _found_columns(table: Table, columns: Columns, kind: Kind) -> Columns:
    """Return columns with the names that text and label have in a table."""
    label = named(table.columns, columns.label, kind.label_columns)
    if kind.per_token and columns.label_column is None:  # a label beside tags is of the text
        firsts = {
            name: next(iter(table.columns.get(name, [])), None) for name in kind.label_columns
        }
        label = next((name for name, first in firsts.items() if is_list(first)), label)
    return columns.model_copy(
        update={
            "text_column": find_text(table.columns, columns, kind.text_columns),
            "label_column": label,
        }
    )


def _without_incomplete_rows(table: Table, columns: Columns, kind: Kind) -> Table:
    """Remove rows that the owner of a table of ``datasets`` left without text or label; note it."""
    if table.class_names is None:
        return table
    labels = table.columns.get(columns.label, [])
    texts = (table.columns.get(name, []) for name in (columns.text, columns.text_pair))
    empty = {row for column in texts for row, value in enumerate(column) if is_empty(value)}
    missing = Kind.missing if columns.keep_null_labels else kind.missing
    hidden = {row for row, label in enumerate(labels) if label in missing} - empty
    without = {"with an empty text": empty, "without a label": hidden}
    notes = [f"{len(rows)} examples {how} were left out" for how, rows in without.items() if rows]
    if notes:
        left_out = empty | hidden
        table = table.select([row for row in range(len(table)) if row not in left_out])
    if len(table) == 0:
        raise DataError(f"{table.where} has no labelled examples: its labels or texts are hidden")
    return replace(table, notes=(*table.notes, *notes))


def _hidden_labels(table: Table, columns: Columns, train: Table) -> str:
    """Return why a split has no labels, as the test splits of GLUE; "" if it has some."""
    if len(table) == 0:
        return "it has no rows"
    kind = kind_of(columns.kind)
    if _found_columns(table, columns, kind).label not in table.columns:
        return f"it has no label column '{_found_columns(train, columns, kind).label}'"
    labels, known = (
        {
            str(item)
            for label in one.columns.get(_found_columns(one, columns, kind).label, [])
            for item in (label if isinstance(label, list | tuple) and label else [label])
        }
        for one in (table, train)
    )
    hidden = {"-1", "-1.0"} - known
    return _HIDDEN if labels <= {"None", "", *hidden} else ""


def parse_splits(
    tables: Iterable[tuple[str, Table]], columns: Columns
) -> tuple[dict[str, RawExamples], list[str]]:
    """Check the examples of each split, train first; leave out those without labels or texts."""
    raw_splits: dict[str, RawExamples] = {}
    notes = []
    form = None
    changed: dict[str, list[str]] = {}  # splits by what was changed on reading
    train: Table | None = None
    for name, table in tables:
        given, columns = columns, with_kind_of(table, columns)  # that of train, which comes first
        text = find_text(table.columns, columns, kind_of(columns.kind).text_columns)
        fault = "" if text in table.columns else f"it has no column '{columns.text}'"
        for column, what in {PREDICTED_LABEL: "predictions", LOG_PROBABILITY: "scores"}.items():
            if train and column in table.columns and column not in train.columns:
                fault = f"its column '{column}' holds {what}"
        if name not in CORE_SPLITS and fault:
            notes.append(f"{shorten(Path(table.where).name)} was left out: {fault}")
            continue
        reason = _hidden_labels(table, columns, train) if train else ""
        # Beside the splits, texts without labels are those to predict.
        left_out = name not in CORE_SPLITS and reason == _HIDDEN
        if reason and (left_out or name == "test" or table.class_names is not None):
            notes.append(f"{table.where}: left out, as {reason}")
            continue
        train = table if name == "train" else train
        raw = parse_examples(table, given, labelled=name in CORE_SPLITS, form=form)
        form = raw.form if form is None else form
        raw_splits[name] = raw
        first = next(iter(raw_splits.values()))
        if not raw.class_names:  # what are numbers to train may be names here
            check_one_meaning(raw.found_labels, first.class_names, table.where)
        for note in raw.notes:
            changed.setdefault(note, []).append(name)
    for note, names in changed.items():
        each = " each" if len(names) > 1 and note[:1].isdecimal() else ""  # a count of one split
        notes.append(f"{', '.join(names)}{each}: {note}")
    return raw_splits, notes


def to_split(
    examples: RawExamples, name: str, label_names: tuple[str, ...] | None = None, advice: str = ""
) -> Split:
    """Return a split whose labels are indices into ``label_names``, by default its own ones."""
    label_names = own_names(examples) if label_names is None else label_names
    index = {label: number for number, label in enumerate(label_names)}
    labels = None
    if examples.labels is not None:
        unknown = _unknown(examples, label_names)
        if unknown:
            first = next(
                row
                for row, label in enumerate(examples.labels)
                if not unknown.keys().isdisjoint(examples.kind.names(label))
            )
            raise DataError(
                f"{examples.table.place(first)}: {name} {LACKED}: "
                f"{some_of(map(repr, unknown))}; train has {some_of(list(map(repr, label_names)))}"
                f"{advice}"
            )
        labels = tuple(examples.kind.encode(label, index) for label in examples.labels)
    return Split(
        name=name,
        texts=tuple(examples.texts),
        labels=labels,
        label_names=label_names,
        text_pairs=None if examples.text_pairs is None else tuple(examples.text_pairs),
        meta={key: tuple(values) for key, values in examples.meta.items()},
        kind=examples.kind,
        notes=examples.notes,
    )


def without_labels(table: Table, columns: Columns, name: str) -> Split:
    """Return the texts of a table as a split without labels, whatever these are."""
    columns = with_kind_of(table, columns)
    kind = kind_of(columns.kind)
    found = _found_columns(table, columns, kind)
    if found.text not in table.columns:  # said with all columns
        raise no_column(table, found.text, "text")
    labels = {found.label, *kind.label_columns}
    kept = {name: values for name, values in table.columns.items() if name not in labels}
    return to_split(parse_examples(replace(table, columns=kept), columns, labelled=False), name)


def own_names(examples: RawExamples) -> tuple[str, ...]:
    """Return the names of the classes: those that the source says, or those that occur."""
    return examples.class_names or present_names(examples)


def present_names(examples: RawExamples) -> tuple[str, ...]:
    names = {name for label in examples.labels or () for name in examples.kind.names(label)}
    return examples.kind.label_names(sort_labels(names))


def _unknown(examples: RawExamples, label_names: tuple[str, ...]) -> dict[str, None]:
    known = set(label_names)
    names = (name for label in examples.labels or () for name in examples.kind.names(label))
    return dict.fromkeys(name for name in names if name not in known)


def read_dataset(
    tables: Mapping[str, Table],
    columns: Columns,
    name: str,
    where: str,
    label_names: tuple[str, ...] | None = None,
) -> TextDataset:
    """Read the splits of a data set. Their classes are ``label_names``, those of the source, or the
    labels of train; a further split with other ones keeps its own.
    """
    if "train" not in tables:
        raise DataError(f"{where} has no train split: its splits are {some_of(tables) or 'none'}")
    raw_splits, notes = parse_splits(
        ((split, tables[split]) for split in in_reading_order(tables)), columns
    )
    train = raw_splits["train"]
    kind, present = train.kind, present_names(train)
    label_names = label_names or train.class_names
    foreign = sort_labels(set(present) - set(label_names or present))
    if foreign and not columns.only_evaluated:
        raise DataError(
            f"{where} has the labels {some_of(map(repr, foreign))}, which are not among those "
            f"expected: {some_of(map(repr, label_names))}"
        )
    if not columns.only_evaluated:
        found = (
            label_name
            for examples in raw_splits.values()
            for label in examples.found_labels
            for label_name in kind.names(label)
        )
        check_renamed(columns.renamed, found)
        kind.check_train(train.table.where, present, train.labels or [])
    unknown = {label for examples in raw_splits.values() for label in _unknown(examples, present)}
    implied = {label for label in unknown if kind.implies(present, label)}
    names = label_names or (sort_labels((*present, *implied)) if implied else present)
    splits = {}
    for split, examples in raw_splits.items():
        if (examples.text_pairs is None) != (train.text_pairs is None):
            both = (examples, train) if examples.text_pairs is None else (train, examples)
            raise DataError(
                f"{both[0].table.where} has no second texts but {both[1].table.where} has: "
                "name the column with --text-pair-column or take it out of every split"
            )
        splits[split], note = _by_names_of_train(examples, split, names, present, columns)
        notes += [note] if note else []
        usual = find_split(split, CORE_SPLITS)
        if usual in CORE_SPLITS and usual != split:
            notes.append(f"split '{split}' is a further evaluation set, as there is {usual} too")
    return TextDataset(
        name=name,
        splits=splits,
        notes=tuple(notes),
        class_names=label_names,
        found_labels={
            split: examples.found_labels
            for split, examples in raw_splits.items()
            if columns.renamed
        },
    )


def _by_names_of_train(
    examples: RawExamples,
    split: str,
    names: tuple[str, ...],
    present: tuple[str, ...],
    columns: Columns,
) -> tuple[Split, str]:
    """Return a split by the classes of train, and a note on labels that are none of them."""
    lacked = sort_labels(_unknown(examples, names))
    counts = columns.unknown_labels == "count" and lacked != present_names(examples)
    if split != "train" and counts:
        found = to_split(examples, split, (*names, *lacked))
        if not lacked:
            return found, ""
        count = sum(label in lacked for label in examples.labels or ())
        return found, (
            f"{split} {LACKED}: {some_of(lacked)}; their {count:,} of "
            f"{len(examples.texts):,} examples count as wrong"
        )
    if lacked and (split not in CORE_SPLITS or columns.only_evaluated):
        note = f"split '{split}' keeps its own labels: {some_of(own_names(examples))}"
        if split not in CORE_SPLITS and not columns.only_evaluated:
            note += (
                f", and is not evaluated, as train lacks {some_of(lacked)}: --labels gives a label "
                "its class"
            )
            if lacked != present_names(examples):
                note += ", --unknown-labels count counts them as wrong"
        return to_split(examples, split), note
    return to_split(examples, split, names, f" ({examples.kind.advice(present)})"), ""


def text_values(table: Table, column: str, *, begins: bool = True) -> list[str]:
    """Return the texts of a column, checked; a later piece of a table does not begin it."""
    values = table.columns[column]
    if begins and all(isinstance(value, str) and _BYTES.fullmatch(value) for value in values):
        raise DataError(
            f"{table.place(0)}: column '{shorten(column)}' holds bytes as Python writes them "
            f"({shorten(values[0], 30)}), not texts: decode them (PAWS-QQP: `auxlearn data get`)"
        )
    for row, value in enumerate(values):
        if isinstance(value, str) and not is_encodable(value):
            raise DataError(f"{table.place(row)}: column '{shorten(column)}': {HALF_A_PAIR}")
        if is_empty(value):
            more = and_more(sum(map(is_empty, values[row + 1 :])))
            raise DataError(
                f"{table.place(row)}: empty text in column '{shorten(column)}'{more}: "
                "fill it in or delete the row"
            )
        if not isinstance(value, str):
            raise DataError(
                f"{table.place(row)}: column '{shorten(column)}' must hold text, "
                f"but this is {describe(value)} ({type(value).__name__})"
            )
        if len(value) > LONGEST_TEXT:
            raise DataError(
                f"{table.place(row)}: a text of {len(value):,} characters in column "
                f"'{shorten(column)}', of which at most {LONGEST_TEXT:,} are read: divide it"
            )
    return values


def is_empty(value: Any) -> bool:
    """Return whether a cell of a column of texts has none, or no visible character."""
    is_missing = value is None or (isinstance(value, float) and math.isnan(value))
    return is_missing or (is_blank(value) if isinstance(value, str) else value == [])


def no_column(table: Table, name: str, role: str, advice: str = "") -> DataError:
    """Return the error of a table without the column of a role, such as text-pair."""
    advice = advice or f"another column is named with --{role}-column"
    found = (*table.columns, *table.unread)
    hint = suggestion(shorten(name), map(shorten, found))
    near = f"; {hint}" if hint else ""
    if role == "label" and "score" in found:
        near = "; numbers to predict, with a decimal point, are read by --label-column score"
    if divided := divided_otherwise(table.columns):
        near = f"; {divided}"
    return DataError(
        f"{table.where} has no {role.replace('-', ' ')} column '{shorten(name)}': its columns are "
        f"{some_of(found)}{near} ({advice})"
    )


def _as_text(value: Any, table: Table, row: int) -> str:
    if value is None:
        return ""
    text = as_json(value, table.place(row))
    return value if isinstance(value, str) else text
