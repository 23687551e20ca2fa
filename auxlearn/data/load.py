"""Load a data set by path, card, built-in name or hub id."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, InstanceOf, model_validator

from auxlearn.core.arguments import checked
from auxlearn.core.errors import ConfigError, DataError, did_you_mean, shorten
from auxlearn.core.files import name_problem, user_path
from auxlearn.core.settings import USUAL, Columns, Fold
from auxlearn.core.table import Table
from auxlearn.core.validation import Settings, validate
from auxlearn.core.yaml_files import read_yaml
from auxlearn.data.dataset import CORE_SPLITS, Split, Tables, TextDataset, find_split, split_name
from auxlearn.data.examples import parse_examples, read_dataset, to_split
from auxlearn.data.folders import folder_tables, is_repository, read_folder
from auxlearn.data.memory import WHERE, divided, in_memory, memory_tables, read_memory
from auxlearn.data.splits import hold_out, take_fold
from auxlearn.data.tables import READ_FORMATS, read_table

DEV_SHARE = 0.1  # share held out as dev if a data set has no dev split

BUILT_IN = {"pydocs": "Which Python library does a documentation text come from? (built in)"}

CARD_SUFFIXES = (".yaml", ".yml")

#: A data set of the hub, with a revision, and with its configuration where it has several.
HUB_ID = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(:(?P<config>[\w.+-]+))?")


def dataset_names() -> dict[str, str]:
    """Return the title, one line, of each data set that has a short name."""
    return {**BUILT_IN, **{name: find_card(name).title for name in card_names()}}


@checked
def load_dataset(
    spec: Any,
    *,
    columns: InstanceOf[Columns] = USUAL,
    seed: Annotated[int, Field(ge=0)] = 0,
    fold: Fold | None = None,
) -> TextDataset:
    """Load a data set by path, name or hub id, or from memory.

    Data in memory are a DataFrame, a mapping of columns to lists, a list of mappings, a
    ``datasets.Dataset``, or a mapping of splits to these; see
    :func:`~auxlearn.data.memory.read_memory`. Any other ``spec`` is resolved in this order: a
    table file, divided by its column ``split`` (without it, all rows are train); an existing
    folder; a card file (.yaml); a built-in data set; a card of the package; a hub id,
    followed by a colon and a configuration where it needs one ("nyu-mll/glue:sst2"). If there is no
    dev split, a stratified share of train is held out as dev, and a note says so.

    Args:
        spec: Table file, folder, card file, name, hub id, or data in memory.
        columns: Names of the columns, and rules for labels, as a
            :class:`~auxlearn.core.settings.Columns` or the settings of a run; names override those
            of a card.
        seed: Seed of the held-out dev split. Published splits and built-in data sets do not depend
            on it.
        fold: Fold of train to test on, such as "2/5"; see
            :func:`~auxlearn.data.splits.take_fold`.

    Returns:
        The data set, with at least train and dev.

    Raises:
        DataError: ``spec`` matches nothing, or the data set cannot be read.
    """
    if in_memory(spec):
        return with_dev(read_memory(spec, columns), seed, fold=fold)
    spec = os.fspath(spec)
    path = user_path(spec, DataError)
    is_card = path.suffix.lower() in CARD_SUFFIXES
    if is_card or (spec in card_names() and not path.exists()):
        card = read_card(path) if is_card else find_card(spec)
        # A test split must not depend on the seed of a run.
        held_out_of = "train" if card.hub is None else card.hub.dev_from
        seed = 0 if held_out_of == "test" else seed
        return with_dev(_read_card(card, columns), seed, held_out_of, fold)
    return with_dev(_read(spec, path, columns), seed, fold=fold)


def find_tables(
    dataset: Any, columns: Columns, split_column: str | None = None, only: str = "train"
) -> Mapping[str, Table] | None:
    """Return the splits of data that are tables; one that is not divided is the split ``only``."""
    if in_memory(dataset):
        return memory_tables(dataset, columns, split_column, only)
    path = user_path(dataset, DataError)
    if path.suffix.lower() in READ_FORMATS and path.is_file():
        return divided(read_table(path), columns, split_column, only)
    if path.is_dir() and not is_repository(path):
        return folder_tables(path, columns)
    return None


def _read(spec: str, path: Path, columns: Columns) -> TextDataset:
    if path.is_file() and path.suffix.lower() in READ_FORMATS:
        return read_dataset(divided(read_table(path), columns), columns, path.stem, str(path))
    if path.suffix.lower() in READ_FORMATS and not path.exists():
        raise DataError(f"there is no file '{shorten(spec, 200)}': check the path")
    if spec and path.exists():
        return read_folder(path, columns)
    repository, _, config = spec.rpartition(":")
    if repository and is_repository(copy := user_path(repository, DataError)):
        return read_folder(copy, columns, config)
    if repository and copy.is_dir():
        raise DataError(f"{repository} is a folder without configurations: leave :{config} out")
    if spec in BUILT_IN:
        return _built_in(spec, columns)
    hub = HUB_ID.fullmatch(spec)
    if hub and not spec.startswith(("./", "../")):
        from auxlearn.data.hub import load_hub

        try:
            dataset = load_hub(hub["id"], hub["config"], columns=columns, revision=hub["revision"])
        except DataError as error:
            raise DataError(f"there is no folder '{shorten(spec)}', and {error}") from error
        name = f"{dataset.name}-{hub['config']}" if hub["config"] else dataset.name
        return replace(dataset, name=name)
    if "://" in spec:
        raise DataError(
            f"'{shorten(spec, 200)}' is an address: give the id of a data set of the hub, which is "
            "OWNER/NAME, or download the files into a folder and give its path"
        )
    if "/" in spec:
        raise DataError(f"there is no folder '{shorten(spec, 200)}': check the path")
    known = [*BUILT_IN, *card_names()]
    raise DataError(
        f"unknown data set '{shorten(spec)}': {did_you_mean(shorten(spec), known)} "
        "(a path of a table, or of a folder with train, dev and test files, works too, and so does "
        "the id of a data set of the hub, which is OWNER/NAME)"
    )


def _built_in(name: str, columns: Columns) -> TextDataset:
    """Read a data set of the package, whose columns have the usual names."""
    from auxlearn.data.pydocs.build import installed, texts_file

    usual = {"text_column": None, "text_pair_column": None, "label_column": None}
    columns = columns.model_copy(update=usual)
    dataset = read_dataset(divided(read_table(texts_file()), columns), columns, name, name)
    ood = {split: dataset.splits[split] for split in dataset.splits if split not in CORE_SPLITS}
    splits = {split: dataset.splits[split] for split in CORE_SPLITS}
    libraries = ", ".join(" ".join(pair) for pair in installed().items())
    notes = (
        f"Documentation strings of {libraries}; other versions give other texts.",
        "Names of libraries, module paths and class names are replaced by neutral words.",
    )
    return replace(dataset, splits=splits, ood=ood, notes=(*dataset.notes, *notes))


def load_evaluated(
    dataset: Any,
    split: str,
    columns: Columns = USUAL,
    *,
    split_column: str | None = None,
    alone: bool = False,
) -> tuple[Split, Split | None]:
    """Load a labelled split to evaluate on, and, unless ``alone``, the train split of its set."""
    tables = find_tables(dataset, columns, split_column, split_name(split))
    wanted = find_split(split, tables or ())
    whole = isinstance(tables, Tables) and "train" in tables and not alone
    if tables is None or (whole and wanted in {*tables, "dev"}):
        found = load_dataset(dataset, columns=columns)
        name = find_split(split, found.everything)
        if tables is not None and name in tables:
            left_out = f"{tables[name].where}: left out"  # a note says why
            if note := next((note for note in found.notes if note.startswith(left_out)), None):
                raise DataError(note)
        chosen = found.split(name)
        if chosen.labels is None:
            raise DataError(f"split '{shorten(split)}' of data set '{found.name}' has no labels")
        return chosen, found.splits["train"]
    if wanted not in tables:
        where = WHERE if in_memory(dataset) else shorten(str(dataset), 300)
        raise DataError(f"{where} has no split '{shorten(split)}': {did_you_mean(wanted, tables)}")
    names = {wanted} if alone else {wanted, "train"} & set(tables)
    made = {
        name: to_split(parse_examples(tables[name], columns, labelled=name == wanted), name)
        for name in names
    }
    return made[wanted], made.get("train")


def _read_card(card: DatasetCard, columns: Columns) -> TextDataset:
    source = " ".join(card.get.source.split()) if card.get else ""
    recipe = (
        f"make a folder of it and give its path: download {source}, then `auxlearn data get "
        f"{card.name} --from PATH --output data/{card.name}`"
    )
    if card.hub is None:
        raise DataError(f"data set '{card.name}' has no trustworthy copy on the hub; {recipe}")
    from auxlearn.data.hub import USE_A_FOLDER, load_hub

    names = {f"{role}_column": name for role, name in card.hub.columns.items()}
    usual = (columns.text, columns.text_pair, columns.label) == ("text", "text_pair", "label")
    try:
        dataset = load_hub(
            card.hub.id,
            card.hub.config,
            card.hub.splits,
            columns.model_copy(update=names) if usual else columns,
            card.label_names,
        )
    except DataError as error:
        if card.get is None:
            raise
        raise DataError(str(error).replace(USE_A_FOLDER, recipe)) from error
    notes = (*dataset.notes, *card.warnings)
    metric = card.metric if card.metric in dataset.kind.metrics else ""
    return replace(dataset, name=card.name, metric=metric, notes=notes)


def with_dev(
    dataset: TextDataset, seed: int, source: str = "train", fold: str | None = None
) -> TextDataset:
    """Hold out a dev split if there is none, and note this; note a missing test split as well."""
    if fold is not None:
        dataset, source = take_fold(dataset, fold), "train"
    splits, notes = dict(dataset.splits), list(dataset.notes)
    if "dev" not in splits:
        total = len(splits[source])
        try:
            splits[source], dev = hold_out(splits[source], DEV_SHARE, seed)
        except DataError as error:  # a sweep has several data sets
            raise DataError(f"data set {dataset.name}: {error}") from error
        notes.append(
            f"no dev split: {len(dev)} of the {total} examples of {source} were held out as dev "
            f"(stratified, seed {seed})"
        )
        splits["dev"] = replace(dev, notes=(*dev.notes, notes[-1]))  # where it is read alone
    scored = [name for name, split in splits.items() if split.labels is not None]
    if "test" not in splits:
        others = [shorten(name) for name in scored if name not in CORE_SPLITS]
        beside = f"beside those on {', '.join(others)}, " if others else ""
        notes.append(
            f"no test split: {beside}the only results are on dev, which also selects the model"
        )
    for name in scored:
        near = difflib.get_close_matches(name.lower(), (*CORE_SPLITS, "validation"), 1, 0.75)
        if near and not name.lower().startswith(near[0]):
            what = f"split '{shorten(name)}' ({len(splits[name])} examples) is only evaluated"
            notes.append(f"{what}: did you mean '{near[0]}'?")
    return replace(dataset, splits=splits, notes=tuple(notes))


CARD_FOLDER = Path(__file__).parent / "cards"


class HubSource(Settings):
    """Location of a data set on the hub."""

    id: str
    config: str | None = None  # name of its configuration, where it has several
    #: Hub split by split name of this package; ``"a+b"`` concatenates two.
    splits: dict[str, str] = Field({"train": "train", "dev": "validation", "test": "test"})
    #: Names of its columns that are not the usual ones.
    columns: dict[Literal["text", "text_pair", "label"], str] = Field({})
    #: The split that dev is held out of if ``splits`` names no dev split.
    dev_from: Literal["train", "test"] = "train"


class Recipe(Settings):
    """How the folder of a data set is made of what its owner ships (``auxlearn data get``)."""

    source: str  # where it is, and which file or folder of it is needed
    splits: dict[str, str]  # the file of each split, or the folder with a folder for each class
    format: Literal[".tsv", ".jsonl"] | None = None  # where no suffix says it
    #: Names of its columns; none of files that are copied as they are.
    columns: dict[Literal["text", "text_pair", "label"], str] = Field({})
    meta: list[str] = Field([])  # further columns that are kept
    #: Column that numbers pairs of rows; the second of each goes into SPLIT_revised.
    paired: str | None = None
    labels_in_order: bool = False  # whether its labels, sorted, are codes of the card's names
    single_spaces: bool = False  # whether white space becomes a single space
    python_bytes: bool = False  # whether texts are written as b'...'


class DatasetCard(Settings):
    """Metadata of a published data set."""

    name: str
    title: str
    description: str
    hub: HubSource | None = None  # ``None`` if the hub has no trustworthy copy
    get: Recipe | None = None  # how a folder is made of it otherwise
    #: Names of the classes 0, 1, ... in order.
    label_names: Annotated[list[str], Field(min_length=2)]
    metric: Literal["accuracy", "macro_f1"]
    #: Labels of out-of-distribution sets, by card name and label of this set; equal ones need no
    #: entry.
    ood: dict[str, dict[str, str]] = Field({})
    subsets: list[str] = Field([])  # columns by whose values the scores are broken down
    #: Split whose examples are paired with those of another one, as in contrast sets.
    pairs: dict[str, str] = Field({})
    sizes: dict[str, int] = Field({})  # published number of examples by split
    licence: str
    paper: str
    warnings: list[str] = Field([])  # what a user should know before trusting its results

    @model_validator(mode="after")
    def _has_a_source(self) -> DatasetCard:
        if self.hub is None and self.get is None:
            raise ValueError("a card needs 'hub' or 'get': where the data is")
        if len(set(self.label_names)) < len(self.label_names):
            raise ValueError("label_names names one label twice")
        splits = self.hub.splits if self.hub else {}
        for name in (self.name, *self.ood, *splits, *self.pairs, *self.pairs.values()):
            if problem := name_problem(name):
                raise ValueError(problem)
        return self


def card_names() -> list[str]:
    return sorted(path.stem for path in CARD_FOLDER.glob("*.yaml"))


def find_card(name: str) -> DatasetCard:
    if name not in card_names():
        raise DataError(f"there is no data-set card '{name}': {did_you_mean(name, card_names())}")
    return read_card(CARD_FOLDER / f"{name}.yaml")


def read_card(path: Path) -> DatasetCard:
    content = read_yaml(path, "data-set card", DataError)
    try:
        card: DatasetCard = validate(DatasetCard, content, f"data-set card {path}")
    except ConfigError as error:
        raise DataError(str(error)) from None
    return card
