"""Data sets of the Hugging Face hub. The only module that imports ``datasets``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from auxlearn.core.errors import DataError, did_you_mean, some_of
from auxlearn.core.settings import USUAL, Columns, label_text
from auxlearn.core.table import Table
from auxlearn.data.dataset import TextDataset, split_name
from auxlearn.data.examples import assemble, own_names, parse_splits
from auxlearn.kinds.base import WORD_LABELS
from auxlearn.kinds.choose import KINDS, named

TIMEOUT_SECONDS = 5.0  # time in which the hub must answer whether it has a data set

USE_A_FOLDER = (
    "put train.jsonl, dev.jsonl and test.jsonl (one {'text': ..., 'label': ...} per line) "
    "into a folder and give its path instead"
)


def load_hub(
    hub_id: str,
    config: str | None = None,
    split_map: Mapping[str, str] | None = None,
    columns: Columns = USUAL,
    label_names: Sequence[str] | None = None,
) -> TextDataset:
    """Read a data set of the hub, or its copy in the local cache; loading scripts are never run.

    Examples without a text or label are left out with a note, as is a split of hidden labels.
    """
    raw, notes = _fetch(hub_id, config)
    if split_map is None:
        split_map = {split_name(name): name for name in raw}
    # Where the names of the classes are given, a class may well be named "None".
    if label_names or any(_hub_names(raw, name, columns) for name in split_map.values()):
        columns = columns.model_copy(update={"keep_null_labels": True})
    tables: dict[str, Table] = {}
    for name, hub_split in split_map.items():
        where = f"hub data set '{hub_id}', split '{hub_split}'"
        table = _table(raw, where, hub_split, columns, label_names)
        table, table_notes = without_incomplete_rows(table, columns)
        notes += [f"{where}: {note}" for note in table_notes]
        if len(table):
            tables[name] = table
    raw_splits, left_out = parse_splits(tables.items(), columns)
    if "train" not in raw_splits:
        raise DataError(
            f"hub data set '{hub_id}' has no usable train split: its splits are {some_of(raw)}"
        )
    known = tuple(label_names) if label_names else _hub_names(raw, split_map["train"], columns)
    if known:
        known = tuple(map(label_text, known))  # as labels are read
        known = tuple(dict.fromkeys(columns.renamed.get(name, name) for name in known))
    foreign = sorted(set(own_names(raw_splits["train"])) - set(known or ()))
    if known and foreign:
        raise DataError(
            f"hub data set '{hub_id}' has the labels {some_of(list(map(repr, foreign)))}, "
            f"which are not among those expected: {some_of(list(map(repr, known)))}"
        )
    splits, more_notes = assemble(raw_splits, columns, known)
    return TextDataset(
        name=hub_id.split("/")[-1], splits=splits, notes=(*notes, *left_out, *more_notes)
    )


def _fetch(hub_id: str, config: str | None) -> tuple[Mapping[str, Any], list[str]]:
    """Return the splits of a data set by name, and notes; errors as for :func:`load_hub`."""
    import datasets

    unreachable = _why_unreachable(hub_id)
    try:
        if unreachable is None:
            return datasets.load_dataset(hub_id, config), []
        # Otherwise the library retries the network many times before it reads its cache.
        with _offline():
            cached = datasets.load_dataset(hub_id, config)
    except Exception as error:
        if unreachable is not None:
            raise DataError(
                f"hub data set '{hub_id}' cannot be loaded: the hub cannot be reached "
                f"({unreachable}) and there is no local copy; {USE_A_FOLDER}"
            ) from error
        reason = " ".join(str(error).split())[:300]
        if "scripts are no longer supported" in reason:
            reason = "it needs a loading script, and scripts are not run"
        elif "Config name is missing" in reason or "BuilderConfig" in reason:
            reason += f" (write the configuration after a colon: {hub_id}:NAME)"
        raise DataError(
            f"hub data set '{hub_id}' cannot be read: {reason}; or {USE_A_FOLDER}"
        ) from error
    return cached, [f"the hub cannot be reached ({unreachable}): read from the local cache"]


def _why_unreachable(hub_id: str) -> str | None:
    """Ask the hub for a data set; return ``None`` if it answers, else the reason it does not."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        HfApi().dataset_info(hub_id, timeout=TIMEOUT_SECONDS)
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise DataError(
            f"the hub has no data set '{hub_id}' that may be read without logging in: check the "
            f"id, log in with `hf auth login`, or {USE_A_FOLDER}"
        ) from error
    except HfHubHTTPError as error:
        return f"it answers with status {error.response.status_code}"
    except Exception as error:
        # The exception types of a failed connection belong to the HTTP library that
        # huggingface_hub uses, which differs between its versions.
        return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    return None


@contextmanager
def _offline() -> Iterator[None]:
    """Restrict the hub's libraries to their local caches within the context."""
    import datasets.config
    import huggingface_hub.constants

    modules: tuple[Any, ...] = (datasets.config, huggingface_hub.constants)
    previous = [module.HF_HUB_OFFLINE for module in modules]
    for module in modules:
        module.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for module, value in zip(modules, previous, strict=True):
            module.HF_HUB_OFFLINE = value


def _table(
    raw: Mapping[str, Any],
    where: str,
    hub_split: str,
    columns: Columns,
    label_names: Sequence[str] | None,
) -> Table:
    """Return a split, or several joined by "+", as a table with label names."""
    tables = []
    for name in hub_split.split("+"):
        if name not in raw:
            raise DataError(f"{where}: there is no split '{name}', {did_you_mean(name, raw)}")
        split = raw[name]
        values = dataset_columns(split, where, columns, label_names)
        if "+" in hub_split:
            # The hub split of each example, such as the round of Adversarial NLI.
            values["hub_split"] = [name] * len(split)
        tables.append(values)
    gathered = {
        column: [value for values in tables for value in values[column]]
        for column in tables[0]
        if all(column in values for values in tables)
    }
    return Table(where, gathered)


def dataset_columns(
    split: Any, where: str, columns: Columns, label_names: Sequence[str] | None = None
) -> dict[str, list[Any]]:
    """Return the columns of a ``datasets.Dataset`` that hold plain values, classes by name."""
    kind = KINDS[columns.kind or "token_classification"]
    label = named(split.features, columns.label, kind.label_columns)
    if columns.kind is None and label not in split.features:
        kind = KINDS["dependency"]  # of which the kind is found by its columns
        label = named(split.features, columns.label, kind.label_columns)
    used = {columns.text, columns.text_pair, label, *kind.columns_beside}
    if columns.text not in split.features or not _is_plain(split.features.get(label)):
        used |= {*kind.text_columns}
    plain = [
        column for column, feature in split.features.items() if _is_plain(feature) or column in used
    ]
    values: dict[str, list[Any]] = dict(split.select_columns(plain).with_format(None)[:])
    if label in values:
        names = label_names or _names(split.features[label])
        values[label] = [_class_name(value, names, where) for value in values[label]]
    return values


def _is_plain(feature: Any) -> bool:
    from datasets import ClassLabel, Value

    return isinstance(feature, (Value, ClassLabel))


def _names(feature: Any) -> Sequence[str] | None:
    """Return the names of the classes of a column, or of those in its lists."""
    found: Sequence[str] | None = getattr(feature, "names", None)
    return found or getattr(getattr(feature, "feature", None), "names", None)


def _class_name(value: Any, names: Sequence[str] | None, where: str) -> Any:
    """Return the name of a class index, of which -1 is a hidden label, as in GLUE; without names of
    classes, integers are labels themselves.
    """
    if isinstance(value, list):
        return [_class_name(one, names, where) for one in value]
    if names is None or isinstance(value, bool) or not isinstance(value, int):
        return value
    if value == -1:
        return None
    if not 0 <= value < len(names):
        raise DataError(f"{where}: class {value}, but only {len(names)} names are known")
    return names[value]


def _hub_names(raw: Mapping[str, Any], train: str, columns: Columns) -> tuple[str, ...] | None:
    """Return the hub's class names of the label column, if there are any."""
    split = raw.get(train.split("+")[0])
    if split is None:
        return None
    names = _names(split.features.get(named(split.features, columns.label, WORD_LABELS)))
    return tuple(names) if names else None


def without_incomplete_rows(table: Table, columns: Columns) -> tuple[Table, list[str]]:
    """Remove rows without text or label, which a user cannot fix on the hub; note how many."""
    labels = table.columns.get(columns.label, [])
    if labels and all(label is None for label in labels):
        return Table(table.where, {}), ["left out, as its labels are hidden"]
    texts = [
        table.columns[name] for name in (columns.text, columns.text_pair) if name in table.columns
    ]
    empty = {
        row
        for column in texts
        for row, value in enumerate(column)
        if value is None or (isinstance(value, str) and not value.strip())
    }
    unlabelled = {row for row, label in enumerate(labels) if label is None} - empty
    found = {"with an empty text": empty, "without a label": unlabelled}
    notes = [f"{len(rows)} examples {how} were left out" for how, rows in found.items() if rows]
    left_out = empty | unlabelled
    kept = [row for row in range(len(table)) if row not in left_out]
    columns_kept = {name: [column[row] for row in kept] for name, column in table.columns.items()}
    return (Table(table.where, columns_kept) if notes else table), notes
