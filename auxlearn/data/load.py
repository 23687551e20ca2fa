"""Load a data set by path, card, built-in name or hub id."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, InstanceOf, model_validator

from auxlearn.core.arguments import UserPath, checked
from auxlearn.core.errors import ConfigError, DataError, did_you_mean, shorten
from auxlearn.core.files import name_problem, user_path
from auxlearn.core.settings import USUAL, Columns, Fold
from auxlearn.core.validation import Settings, validate
from auxlearn.core.yaml_files import read_yaml
from auxlearn.data.dataset import Split, TextDataset, find_split
from auxlearn.data.folders import (
    data_files,
    is_repository,
    is_single_table,
    read_evaluation_split,
    read_folder,
)
from auxlearn.data.memory import in_memory, read_memory, read_memory_split
from auxlearn.data.splits import hold_out, take_fold
from auxlearn.data.tables import READ_FORMATS, read_table

DEV_SHARE = 0.1  # share held out as dev if a data set has no dev split

BUILT_IN = {"pydocs": "Which Python library does a documentation text come from? (built in)"}

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
    cache_dir: UserPath | None = None,
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
        cache_dir: Cache folder of built-in data sets. The hub's libraries have their own cache.
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
    folder = user_path(spec, DataError)
    if is_single_table(folder):
        found = read_memory(read_table(folder), columns)
        return with_dev(replace(found, name=folder.stem), seed, fold=fold)
    if folder.suffix.lower() in READ_FORMATS and not folder.exists():
        raise DataError(f"there is no file '{shorten(spec, 200)}': check the path")
    if spec and folder.exists() and folder.suffix.lower() not in (".yaml", ".yml"):
        return with_dev(read_folder(folder, columns), seed, fold=fold)
    repository, _, config = spec.rpartition(":")
    if repository and is_repository(copy := user_path(repository, DataError)):
        return with_dev(read_folder(copy, columns, config), seed, fold=fold)
    if spec in BUILT_IN:
        from auxlearn.data.pydocs.build import load_pydocs

        found = load_pydocs(cache_dir=None if cache_dir is None else Path(cache_dir))
        if columns.renamed:
            splits = read_memory(found, columns, name=found.name).splits
            found = replace(found, splits=splits)
        return with_dev(found, seed, fold=fold)
    if folder.suffix.lower() in (".yaml", ".yml"):
        return _load_card(read_card(folder), columns, seed, fold)

    if spec in card_names():
        return _load_card(find_card(spec), columns, seed, fold)
    hub = HUB_ID.fullmatch(spec)
    if hub and not spec.startswith(("./", "../")):
        from auxlearn.data.hub import load_hub

        try:
            dataset = load_hub(hub["id"], hub["config"], columns=columns, revision=hub["revision"])
        except DataError as error:
            raise DataError(f"there is no folder '{shorten(spec)}', and {error}") from error
        name = f"{dataset.name}-{hub['config']}" if hub["config"] else dataset.name
        return with_dev(replace(dataset, name=name), seed, fold=fold)
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


def load_evaluated(
    dataset: Any, split: str, columns: Columns = USUAL, *, split_column: str | None = None
) -> tuple[Split, Split | None]:
    """Load a labelled split to evaluate on, and the train split of its set if there is one."""
    if in_memory(dataset):
        return read_memory_split(dataset, split, columns, split_column)
    folder = user_path(dataset, DataError)
    if is_single_table(folder):
        return read_memory_split(read_table(folder), split, columns, None)
    if folder.is_dir() and not is_repository(folder) and "train" not in data_files(folder):
        return read_evaluation_split(folder, split, columns), None
    found = load_dataset(dataset, columns=columns)
    chosen = found.split(find_split(split, found.everything))
    if chosen.labels is None:
        raise DataError(f"split '{shorten(split)}' of data set '{found.name}' has no labels")
    return chosen, found.splits["train"]


def _load_card(card: DatasetCard, columns: Columns, seed: int, fold: str | None) -> TextDataset:
    if card.hub is None:
        source = " ".join(card.get.source.split()) if card.get else ""
        raise DataError(
            f"data set '{card.name}' has no trustworthy copy on the hub; make a folder of it and "
            f"give its path: download {source}, then `auxlearn data get {card.name} --from PATH "
            f"--output data/{card.name}`"
        )
    from auxlearn.data.hub import load_hub

    names = {f"{role}_column": name for role, name in card.hub.columns.items()}
    usual = (columns.text, columns.text_pair, columns.label) == ("text", "text_pair", "label")
    dataset = load_hub(
        card.hub.id,
        card.hub.config,
        card.hub.splits,
        columns.model_copy(update=names) if usual else columns,
        card.label_names,
    )
    dataset = replace(
        dataset, name=card.name, metric=card.metric, notes=(*dataset.notes, *card.warnings)
    )
    source = card.hub.dev_from
    # A test split must not depend on the seed of a run.
    return with_dev(dataset, 0 if source == "test" else seed, source, fold)


def with_dev(
    dataset: TextDataset, seed: int, source: str = "train", fold: str | None = None
) -> TextDataset:
    """Hold out a dev split if there is none, and note this; note a missing test split as well."""
    if fold is not None:
        dataset, source = take_fold(dataset, fold), "train"
    splits, notes = dict(dataset.splits), list(dataset.notes)
    if "dev" not in splits:
        total = len(splits[source])
        splits[source], splits["dev"] = hold_out(splits[source], DEV_SHARE, seed)
        notes.append(
            f"no dev split: {len(splits['dev'])} of the {total} examples of {source} were held out "
            f"as dev (stratified, seed {seed})"
        )
    if "test" not in splits:
        notes.append("no test split: the only results are on dev, which also selects the model")
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
