"""Data sets of the Hugging Face hub. The only module that imports ``datasets``."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from auxlearn.core.errors import DataError, did_you_mean, first_line, shorten, some_of
from auxlearn.core.files import read_file
from auxlearn.core.hub import repository_info
from auxlearn.core.rng import ONE_THREAD
from auxlearn.core.settings import USUAL, Columns
from auxlearn.core.table import LARGEST_FILE, Table, joined
from auxlearn.data.dataset import Tables, TextDataset, split_names
from auxlearn.data.examples import read_dataset
from auxlearn.data.parquet import by_name, check_one_meaning, class_names_of
from auxlearn.data.tables import FORMATS, READ_FORMATS, read_tables
from auxlearn.kinds.base import WORD_LABELS, all_kinds, kind_of
from auxlearn.kinds.columns import named, passed_over

#: The hub's own conversion of a data set, which needs no script.
CONVERTED = "refs/convert/parquet"

USE_A_FOLDER = (
    "put train.jsonl, dev.jsonl and test.jsonl (one {'text': ..., 'label': ...} per line) "
    "into a folder and give its path instead"
)

#: Splits by name: a ``datasets.Dataset``, or the table of files that are read without the library.
Source = Mapping[str, Any]


def load_hub(
    hub_id: str,
    config: str | None = None,
    split_map: Mapping[str, str] | None = None,
    columns: Columns = USUAL,
    label_names: Sequence[str] | None = None,
    revision: str | None = None,
) -> TextDataset:
    """Read a data set of the hub, or its copy in the local cache; loading scripts are never run."""
    raw, notes = _fetch(hub_id, config, revision)
    shown, name = f"hub data set '{hub_id}'", hub_id.split("/")[-1]
    dataset = _read(raw, shown, name, columns, split_map, label_names)
    return replace(dataset, notes=(*notes, *dataset.notes))


def load_repository(folder: Path, config: str | None, columns: Columns) -> TextDataset:
    """Read what ``save_to_disk`` wrote, or a copy of a repository whose README names its splits."""
    import datasets

    if not (folder / "README.md").is_file():
        try:
            saved = datasets.load_from_disk(str(folder))
        except IndexError:  # there is no Arrow file
            raise DataError(
                f"{folder} has no rows: save_to_disk wrote a split without any"
            ) from None
        except Exception as error:
            raise _unreadable(str(folder), error) from error
        raw = saved if isinstance(saved, Mapping) else {"train": saved}
    else:
        with _offline():
            # The library would take what it has prepared of other files of the same names.
            raw = _splits(
                str(folder), str(folder), config, folder=os.path.abspath(folder), own=True
            )
    return _read(raw, str(folder), folder.resolve().name, columns)


def _read(
    raw: Source,
    shown: str,
    name: str,
    columns: Columns,
    split_map: Mapping[str, str] | None = None,
    label_names: Sequence[str] | None = None,
) -> TextDataset:
    if split_map is None:
        split_map = {split: name for name, split in split_names(raw).items()}
    tables = Tables(
        {
            split: partial(
                _table, raw, f"{shown}, split '{hub_split}'", hub_split, columns, label_names
            )
            for split, hub_split in split_map.items()
        },
        columns,
    )
    return read_dataset(tables, columns, name, shown)


def _fetch(hub_id: str, config: str | None, revision: str | None) -> tuple[Source, list[str]]:
    """Return the splits of a data set by name, and notes; errors as for :func:`load_hub`."""
    shown = f"hub data set '{hub_id}'"
    unreachable = _why_unreachable(hub_id, revision)
    if unreachable is None:
        try:
            return _splits(shown, hub_id, config, revision), []
        except _NeedsScript:
            return _converted(hub_id, config), [f"{shown}: read from the hub's Parquet files of it"]
    shown = f"{shown} cannot be loaded: the hub cannot be reached ({unreachable}) and"
    # Otherwise the library retries the network many times before it reads its cache.
    with _offline():
        raw = _cached(shown, hub_id, config, revision)
    return raw, [f"the hub cannot be reached ({unreachable}): read from the local cache"]


class _NeedsScript(Exception):
    """A data set can only be loaded by running its owner's program."""


def _splits(
    shown: str,
    path: str,
    config: str | None,
    revision: str | None = None,
    folder: str = "",
    own: bool = False,
) -> Source:
    """Return the splits of an id, or of a folder, which no file may lead out of. CSV is read as in
    a folder: pandas takes classes such as NA for missing values.
    """
    import datasets
    from datasets.packaged_modules.csv.csv import CsvConfig

    if not {*"*?["}.isdisjoint(folder):
        raise DataError(f"{shown}: datasets takes *, ? and [ of its path for wildcards: rename it")
    try:
        builder = datasets.load_dataset_builder(path, config, revision=revision)
        if builder.name == "cache" and builder.info.builder_name == "csv":
            raise FileNotFoundError("only what pandas has read is in the cache")
        data_files = getattr(builder.config, "data_files", None) or {}
        files = {str(name): [str(file) for file in listed] for name, listed in data_files.items()}
        every = [file for listed in files.values() for file in listed]
        for file in every:
            if Path(file).suffix in (".zip", ".tar", ".tgz", ".7z") or ".tar." in file:
                name = file.rpartition("/")[2]
                raise DataError(f"{shown} is an archive, {name}: unpack it and give the folder")
            if not os.path.abspath(file).startswith(folder):
                raise DataError(f"{shown}: its README names {shorten(file)}, outside of the folder")
        suffixes = {Path(file).suffix for file in every}
        readable = suffixes <= {*READ_FORMATS}
        if own and not readable:
            raise DataError(f"{shown}: of its files, only {some_of(READ_FORMATS)} can be read")
        of_tables = not suffixes.isdisjoint(FORMATS)  # others say all by their format
        options = _reading_options(builder.config, suffixes) if of_tables else {}
        is_plain_csv = isinstance(builder.config, CsvConfig) and not options
        if readable and (own or is_plain_csv or suffixes == {".conllu"}):
            names = class_names_of(builder.info.features or {})
            local = datasets.DownloadManager().download(files)
            read = partial(_read_as_told, options, shown) if options else read_tables
            tables = {name: read(list(map(Path, paths))) for name, paths in local.items()}
            for table in tables.values():
                for column in (names.keys() & table.columns) - (table.class_names or {}).keys():
                    check_one_meaning(table.columns[column], names[column], table.where)
            return {
                name: replace(table, class_names={**names, **(table.class_names or {})})
                for name, table in tables.items()
            }
        builder.download_and_prepare()
        return {str(name): split for name, split in builder.as_dataset().items()}
    except DataError:
        raise
    except Exception as error:
        if "scripts are no longer supported" in str(error):
            raise _NeedsScript from error
        raise _unreadable(shown, error) from error


#: Options of CSV that a README may have; cells are texts, and none is a missing value.
_CSV_OPTIONS = {
    *("sep", "names", "header", "skiprows", "skipinitialspace", "comment", "encoding", "quotechar"),
    *("quoting", "doublequote", "escapechar", "keep_default_na", "na_filter"),
}


def _reading_options(config: Any, suffixes: Collection[str]) -> dict[str, Any]:
    """Return how an owner says that files are read, beside what their suffixes say."""
    usual = type(config)(config.name, config.version, config.data_dir, config.data_files)
    pairs = {
        one.name: (getattr(config, one.name), getattr(usual, one.name)) for one in fields(config)
    }
    separator, _ = pairs.pop("sep", (None, None))
    for name in ("description", "delimiter", "column_names"):  # the last two set sep and names
        pairs.pop(name, None)
    options = {name: value for name, (value, default) in pairs.items() if value != default}
    plain = {None, *("\t" if one == ".tsv" else "," for one in suffixes)}
    return options if separator in plain else {**options, "sep": separator}


def _read_as_told(options: Mapping[str, Any], shown: str, paths: Sequence[Path]) -> Table:
    """Read the CSV files of a split by the options of a README, with pandas."""
    import pandas

    if unknown := some_of(sorted(set(options) - _CSV_OPTIONS)):
        raise DataError(
            f"{shown}: its README says {unknown} of how its files are read, which is not followed: "
            "write them as .jsonl or as usual .csv, and take it out of the README"
        )
    as_texts = {**options, "dtype": str, "keep_default_na": False, "na_filter": False}
    tables = []
    for path in paths:
        frame = pandas.read_csv(BytesIO(read_file(path, LARGEST_FILE, DataError)), **as_texts)
        if not isinstance(frame.index, pandas.RangeIndex):
            raise DataError(f"{path}: its rows have more cells than the {len(frame.columns)} names")
        columns = {str(name): column.tolist() for name, column in frame.items()}
        tables.append(Table(str(path), columns))
    return joined(str(paths[0].parent), tables)


def _unreadable(shown: str, error: Exception) -> DataError:
    if listed := _CONFIGURATIONS.search(str(error)):
        names = listed[1].replace("'", "")
        return DataError(
            f"{shown} has the configurations {shorten(names, 300)}: write one of them after the id "
            f"and a colon (ID:{names.partition(',')[0]})"
        )
    reason = shorten(" ".join(str(error).split()), 300)
    return DataError(f"{shown} cannot be read: {reason}; or {USE_A_FOLDER}")


#: The configurations that a message of ``datasets`` lists.
_CONFIGURATIONS = re.compile(r"(?:[Aa]vailable(?: configs)?|in the cache): \[?(.+?)\]?(?:\n|$)")


def _converted(hub_id: str, config: str | None, *, offline: bool = False) -> Source:
    """Read the hub's own conversion of a data set: CONFIGURATION/SPLIT/0000.parquet and so on."""
    from huggingface_hub import HfApi, snapshot_download

    shown = f"hub data set '{hub_id}'"
    where: dict[str, Any] = {"repo_type": "dataset", "revision": CONVERTED}
    try:
        if offline:
            folder = Path(snapshot_download(hub_id, **where, local_files_only=True))
            files = [str(path.relative_to(folder)) for path in folder.rglob("*.parquet")]
        else:
            files = HfApi().list_repo_files(hub_id, **where)
        configs = sorted({file.partition("/")[0] for file in files if file.count("/") == 2})
        chosen = config or (configs[0] if len(configs) == 1 else "")
        if chosen not in configs:
            raise ValueError(f"Available: {', '.join(configs)}")
        if not offline:
            folder = Path(snapshot_download(hub_id, **where, allow_patterns=f"{chosen}/*"))
        splits = sorted((folder / chosen).iterdir())
        return {path.name: read_tables(sorted(path.glob("*.parquet"))) for path in splits}
    except ValueError as error:
        raise _unreadable(shown, error) from error
    except Exception as error:
        raise DataError(
            f"{shown} needs a loading script, and scripts are not run; its conversion to Parquet "
            f"({CONVERTED}) cannot be had ({shorten(first_line(error), 150)}): get it with `hf "
            f"download {hub_id} --repo-type dataset --revision {CONVERTED}`, or {USE_A_FOLDER}"
        ) from error


def _cached(shown: str, hub_id: str, config: str | None, revision: str | None) -> Source:
    """Return the splits of a data set that ``datasets`` has prepared, or of downloaded files."""
    from huggingface_hub import snapshot_download

    prepared: DataError | None = None
    if revision is None:
        try:
            return _splits(f"{shown} the local copy", hub_id, config)
        except DataError as error:
            prepared = error if " has the configurations " in str(error) else None
    folder = ""
    try:
        folder = snapshot_download(
            hub_id, repo_type="dataset", revision=revision, local_files_only=True
        )
        if not os.path.exists(f"{folder}/{hub_id.split('/')[-1]}.py"):
            return _splits(f"{shown} the local copy", folder, config, folder=folder)
    except DataError as error:
        raise (prepared or error) from error
    except Exception:
        pass  # there are no files, for which the library has an error of its own
    try:
        return _converted(hub_id, config, offline=True)
    except DataError as error:
        none = DataError(f"{shown} there is no local copy; {USE_A_FOLDER}")
        raise (error if folder else prepared or none) from error


def _why_unreachable(hub_id: str, revision: str | None = None) -> str | None:
    """Ask the hub for a data set; return ``None`` if it answers, else the reason it does not."""
    refused = DataError(
        f"the hub has no data set '{hub_id}' that may be read without logging in: check the id, "
        f"log in with `hf auth login`, or {USE_A_FOLDER}"
    )
    answer = repository_info(hub_id, "dataset", refused, revision)
    return answer if isinstance(answer, str) else None


@contextmanager
def _offline() -> Iterator[None]:
    """Restrict the hub's libraries to their local caches within the context."""
    import datasets.config
    import huggingface_hub.constants

    modules: tuple[Any, ...] = (datasets.config, huggingface_hub.constants)
    with ONE_THREAD:
        previous = [module.HF_HUB_OFFLINE for module in modules]
        for module in modules:
            module.HF_HUB_OFFLINE = True
        try:
            yield
        finally:
            for module, value in zip(modules, previous, strict=True):
                module.HF_HUB_OFFLINE = value


def _table(
    raw: Source,
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
        table = raw[name]
        if not isinstance(table, Table):
            table = dataset_table(table, where, columns, label_names)
        else:
            table = _named(replace(table, where=where), columns, label_names)
        if "+" in hub_split:
            # The hub split of each example, such as the round of Adversarial NLI.
            table = replace(table, columns={**table.columns, "hub_split": [name] * len(table)})
        tables.append(table)
    return tables[0] if len(tables) == 1 else joined(where, tables)


def dataset_table(
    split: Any, where: str, columns: Columns, label_names: Sequence[str] | None = None
) -> Table:
    """Return the columns of a ``datasets.Dataset`` that hold plain values, classes by name."""
    if split.format["type"] == "custom":
        raise DataError(
            f"{where} has a transform (set_transform), which would not be applied: apply it with "
            "map, or take it off with reset_format"
        )
    # Without a kind: one of words, first the one whose labels are a single column.
    kinds = [kind_of(columns.kind)] if columns.kind else [k for k in all_kinds() if k.per_token]
    for kind in sorted(kinds, key=lambda one: len(one.columns_beside)):
        label = named(split.features, columns.label, kind.label_columns)
        if label in split.features:
            break
    used = {columns.text, columns.text_pair, label, *kind.columns_beside}
    if columns.text not in split.features or not _is_plain(split.features.get(label)):
        used |= {*kind.text_columns}
    plain = [
        column for column, feature in split.features.items() if _is_plain(feature) or column in used
    ]
    values: dict[str, list[Any]] = dict(split.select_columns(plain).with_format(None)[:])
    class_names = class_names_of({column: split.features[column] for column in plain})
    notes = passed_over(split.features, columns.label, kind.label_columns)
    unread = tuple(column for column in split.features if column not in plain)
    table = Table(where, values, class_names=class_names, notes=notes, unread=unread)
    return _named(table, columns, label_names)


def _is_plain(feature: Any) -> bool:
    from datasets import ClassLabel, Value

    return isinstance(feature, (Value, ClassLabel))


def _named(table: Table, columns: Columns, label_names: Sequence[str] | None) -> Table:
    """Return a table with names of classes for numbers; a card may give those of the label."""
    class_names, values = dict(table.class_names or {}), dict(table.columns)
    numbered: dict[str, Sequence[str]] = dict(class_names)
    label = named(values, columns.label, WORD_LABELS)
    if label_names and label in values:
        known = set(class_names.get(label, ()))
        if known != set(label_names):
            if known & set(label_names):
                raise DataError(
                    f"{table.where} has the classes {some_of(class_names[label])}, but the card "
                    f"{some_of(label_names)}: name all as they are there, or none"
                )
            numbered[label] = label_names
        class_names[label] = tuple(label_names)
    for column, names in numbered.items():
        values[column] = by_name(values[column], names, table.where)
    return replace(table, columns=values, class_names=class_names)
