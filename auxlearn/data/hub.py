"""Data sets of the Hugging Face hub. The only module that imports ``datasets``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from auxlearn.data.dataset import TextDataset
from auxlearn.data.readers import CORE_SPLITS, split_name
from auxlearn.data.rows import Columns, Rows, assemble, rows_of
from auxlearn.data.tables import Table
from auxlearn.errors import DataError, did_you_mean

ANSWER_SECONDS = 5.0
"""How long the hub may take to say that it has a data set."""

USE_A_FOLDER = (
    "put train.jsonl, dev.jsonl and test.jsonl (one {'text': ..., 'label': ...} per line) "
    "into a folder and give its path instead"
)


def load_hub(
    hub_id: str,
    config: str | None = None,
    split_map: Mapping[str, str] | None = None,
    columns: Columns | None = None,
    label_names: Sequence[str] | None = None,
) -> TextDataset:
    """Read a data set of the hub, or its copy in the local cache of ``datasets``.

    Scripts are never run. Rows with an empty text and rows without a label (-1) are left out,
    and the notes say how many; a split in which every label is hidden is left out.

    Args:
        hub_id: Such as "nyu-mll/glue".
        config: Which of its configurations, where it has several.
        split_map: Our split name to the hub's; ``"a+b"`` joins two. Without it every split is
            read, under its own name but for "validation", which is "dev".
        columns: Which column holds what; the default names where left out.
        label_names: Names of the classes 0, 1, ... They replace the names that the hub has for
            them, and name the classes of a column that holds only numbers.

    Returns:
        The data set, named after the last part of the id.

    Raises:
        DataError: The hub cannot be reached and the cache has no copy, or it has no such data
            set, configuration, split or column, or the data set needs a script.
    """
    columns = columns or Columns()
    raw, notes = _fetch(hub_id, config)
    if split_map is None:
        split_map = {split_name(name): name for name in raw}
    everything: dict[str, Rows] = {}
    for name, hub_split in split_map.items():
        where = f"hub data set '{hub_id}', split '{hub_split}'"
        table = _table(raw, where, hub_split, columns, label_names)
        table, remarks = _complete(table, columns)
        notes += [f"{where}: {remark}" for remark in remarks]
        if len(table):
            everything[name] = rows_of(table, columns, labelled=name in CORE_SPLITS)
    if "train" not in everything:
        raise DataError(
            f"hub data set '{hub_id}' has no usable train split: its splits are {', '.join(raw)}"
        )
    known = tuple(label_names) if label_names else _hub_names(raw, split_map["train"], columns)
    foreign = sorted(set(everything["train"].labels or ()) - set(known or ()))
    if known and foreign:
        raise DataError(
            f"hub data set '{hub_id}' has the labels {', '.join(map(repr, foreign))}, "
            f"which are not among those expected: {', '.join(map(repr, known))}"
        )
    splits, more_notes = assemble(everything, known)
    return TextDataset(name=hub_id.split("/")[-1], splits=splits, notes=(*notes, *more_notes))


def _fetch(hub_id: str, config: str | None) -> tuple[Mapping[str, Any], list[str]]:
    """Return the splits of a data set by name, and notes; see :func:`load_hub` for the errors."""
    import datasets

    unreachable = _why_unreachable(hub_id)
    try:
        if unreachable is None:
            return datasets.load_dataset(hub_id, config), []
        # Without this the library tries the network again and again before it looks in its cache.
        with _offline():
            cached = datasets.load_dataset(hub_id, config)
    except Exception as error:
        if unreachable is not None:
            raise DataError(
                f"hub data set '{hub_id}' cannot be had: the hub cannot be reached "
                f"({unreachable}) and there is no local copy; {USE_A_FOLDER}"
            ) from error
        reason = " ".join(str(error).split())[:300]
        if "scripts are no longer supported" in reason:
            reason = "it is made by a script, and scripts are not run"
        elif "Config name is missing" in reason or "BuilderConfig" in reason:
            reason += f" (write the configuration after a colon: {hub_id}:NAME)"
        raise DataError(
            f"hub data set '{hub_id}' cannot be read: {reason}; or {USE_A_FOLDER}"
        ) from error
    return cached, [f"the hub cannot be reached ({unreachable}): read from the local cache"]


def _why_unreachable(hub_id: str) -> str | None:
    """Ask the hub for a data set, and return in short why it does not answer.

    Raises:
        DataError: It answers that there is no such data set, or not for this user.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        HfApi().dataset_info(hub_id, timeout=ANSWER_SECONDS)
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise DataError(
            f"the hub has no data set '{hub_id}' that may be read without logging in: check the "
            f"id, log in with `hf auth login`, or {USE_A_FOLDER}"
        ) from error
    except HfHubHTTPError as error:
        return f"it answers with status {error.response.status_code}"
    except Exception as error:
        # The classes of a failed connection belong to the HTTP library beneath huggingface_hub,
        # which has changed with its versions, so none is named here.
        return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    return None


@contextmanager
def _offline() -> Iterator[None]:
    """Let the hub's libraries use their caches only, within the block."""
    import datasets.config
    import huggingface_hub.constants

    places: tuple[Any, ...] = (datasets.config, huggingface_hub.constants)
    before = [place.HF_HUB_OFFLINE for place in places]
    for place in places:
        place.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = value


def _table(
    raw: Mapping[str, Any],
    where: str,
    hub_split: str,
    columns: Columns,
    label_names: Sequence[str] | None,
) -> Table:
    """Return the rows of one split, or of several joined by "+", with labels by name."""
    from datasets import ClassLabel, Value

    parts = []
    for part in hub_split.split("+"):
        if part not in raw:
            raise DataError(f"{where}: there is no split '{part}', {did_you_mean(part, raw)}")
        split = raw[part]
        features = split.features.items()
        plain = [name for name, feature in features if isinstance(feature, (Value, ClassLabel))]
        values = split.select_columns(plain).with_format(None)[:]
        if columns.label in values:
            names = label_names or getattr(split.features[columns.label], "names", None)
            values[columns.label] = [
                _name_of(value, names, where) for value in values[columns.label]
            ]
        if "+" in hub_split:
            # Which part a row is from, such as the round of Adversarial NLI.
            values["hub_split"] = [part] * len(split)
        parts.append(values)
    gathered = {
        name: [value for values in parts for value in values[name]]
        for name in parts[0]
        if all(name in values for values in parts)
    }
    return Table(where, gathered)


def _name_of(value: Any, names: Sequence[str] | None, where: str) -> Any:
    """Return the name of a class by number; -1 marks a hidden label, as in GLUE."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if value == -1:
        return None
    if names is None:
        return value
    if not 0 <= value < len(names):
        raise DataError(f"{where}: class {value}, but only {len(names)} names are known")
    return names[value]


def _hub_names(raw: Mapping[str, Any], train: str, columns: Columns) -> tuple[str, ...] | None:
    """Return the class names that the hub keeps for the label column, if it keeps any."""
    feature = raw[train.split("+")[0]].features[columns.label]
    names = getattr(feature, "names", None)
    return tuple(names) if names else None


def _complete(table: Table, columns: Columns) -> tuple[Table, list[str]]:
    """Leave out the rows that no user could mend; return the others, and what was left out."""
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
    if not empty and not unlabelled:
        return table, []
    remarks = []
    if empty:
        remarks.append(f"{len(empty)} rows with an empty text were left out")
    if unlabelled:
        remarks.append(f"{len(unlabelled)} rows without a label were left out")
    kept = [row for row in range(len(table)) if row not in empty and row not in unlabelled]
    return Table(
        table.where, {name: [column[row] for row in kept] for name, column in table.columns.items()}
    ), remarks
