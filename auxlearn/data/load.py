"""From what a user calls a data set to the data: a folder, a card, a built-in set or a hub id."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.rows import Columns
from auxlearn.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from auxlearn.data.cards import DatasetCard

__all__ = ["DEV_SHARE", "Columns", "dataset_names", "load_dataset", "load_evaluation_split"]

DEV_SHARE = 0.1
"""The share of a split that becomes the dev split where there is none."""

BUILT_IN = {"pydocs": "Which Python library does a documentation text come from? (built in)"}

_HUB_ID = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(:(?P<config>[\w.-]+))?")


def dataset_names() -> dict[str, str]:
    """Return the data sets known by name, each with a title of one line."""
    from auxlearn.data.cards import card_names, find_card

    return {**BUILT_IN, **{name: find_card(name).title for name in card_names()}}


def load_dataset(
    spec: str,
    *,
    columns: Columns | None = None,
    seed: int = 0,
    cache_dir: Path | None = None,
) -> TextDataset:
    """Load a data set by what a user calls it.

    In this order ``spec`` is taken for: an existing folder; a card file (.yaml); a built-in set;
    a card of the package; an id on the hub, with its configuration after a colon where it needs
    one ("nyu-mll/glue:sst2"). A set without a dev split gets a stratified share of train as dev,
    and a note says so.

    Args:
        spec: Folder, card file, name or hub id.
        columns: Which column holds what; a card knows its own, which these override.
        seed: Seed of the share of train that becomes dev where there is none. Published splits
            and built-in sets do not depend on it.
        cache_dir: Where a built-in set keeps what it has built. The hub's libraries have a cache
            of their own.

    Returns:
        The data set with at least train and dev.

    Raises:
        DataError: Nothing goes by that name, or what does cannot be read.
    """
    folder = Path(spec).expanduser()
    if spec and folder.exists() and folder.suffix.lower() not in (".yaml", ".yml"):
        from auxlearn.data.readers import read_folder

        return _with_dev(read_folder(folder, columns), seed)
    if spec in BUILT_IN:
        from auxlearn.data.pydocs.build import load_pydocs

        return load_pydocs(cache_dir=cache_dir)
    if folder.suffix.lower() in (".yaml", ".yml"):
        from auxlearn.data.cards import read_card

        return _load_card(read_card(folder), columns, seed)
    from auxlearn.data.cards import card_names, find_card

    if spec in card_names():
        return _load_card(find_card(spec), columns, seed)
    hub = _HUB_ID.fullmatch(spec)
    if hub and not spec.startswith(("./", "../")):
        from auxlearn.data.hub import load_hub

        try:
            dataset = load_hub(hub["id"], hub["config"], columns=columns)
        except DataError as error:
            raise DataError(f"{error} (there is no folder '{spec}' either)") from error
        name = f"{dataset.name}-{hub['config']}" if hub["config"] else dataset.name
        return _with_dev(replace(dataset, name=name), seed)
    if "/" in spec:
        raise DataError(f"there is no folder '{spec}': check the path")
    known = [*BUILT_IN, *card_names()]
    raise DataError(
        f"unknown data set '{spec}': {did_you_mean(spec, known)} "
        "(a path of a folder with train, dev and test files works too)"
    )


def load_evaluation_split(
    spec: str,
    split: str = "test",
    *,
    label_names: tuple[str, ...] | None = None,
    columns: Columns | None = None,
    cache_dir: Path | None = None,
) -> Split:
    """Load one labelled split to evaluate on; a folder needs no train file for it.

    Args:
        spec: As for :func:`load_dataset`.
        split: Name of the split.
        label_names: Label names of the classifier to be evaluated; see
            :func:`~auxlearn.data.readers.read_evaluation_split`.
        columns: Which column holds what.
        cache_dir: As for :func:`load_dataset`.

    Raises:
        DataError: There is no such set or split, it has no labels, or it cannot be read.
    """
    from auxlearn.data.readers import read_evaluation_split, split_name

    folder = Path(spec).expanduser()
    if folder.is_dir():
        return read_evaluation_split(folder, split, label_names, columns)
    dataset = load_dataset(spec, columns=columns, cache_dir=cache_dir)
    found = dataset.split(split if split in dataset.ood else split_name(split))
    if found.labels is None:
        raise DataError(f"split '{split}' of data set '{dataset.name}' has no labels")
    if label_names is not None and set(found.label_names) <= set(label_names):
        number = {name: index for index, name in enumerate(label_names)}
        labels = tuple(number[found.label_names[label]] for label in found.labels)
        return replace(found, labels=labels, label_names=tuple(label_names))
    return found


def _load_card(card: DatasetCard, columns: Columns | None, seed: int) -> TextDataset:
    if card.hub is None:
        raise DataError(
            f"data set '{card.name}' has no copy on the hub to be trusted; make a folder of it "
            f"and give its path: {' '.join((card.folder_recipe or '').split())}"
        )
    from auxlearn.data.hub import load_hub

    dataset = load_hub(
        card.hub.id,
        card.hub.config,
        card.hub.splits,
        columns or card.hub.columns.to_columns(),
        card.label_names,
    )
    dataset = replace(
        dataset,
        name=card.name,
        metric=card.metric,
        notes=(*dataset.notes, *card.warnings),
    )
    if card.hub.dev_from == "test":
        # The test split must be the same for every seed of a run.
        return _with_dev(dataset, 0, source="test")
    return _with_dev(dataset, seed)


def _with_dev(dataset: TextDataset, seed: int, source: str = "train") -> TextDataset:
    """Cut a dev split off another split if there is none, and say so; remark a missing test."""
    from auxlearn.data.splits import hold_out

    splits, notes = dict(dataset.splits), list(dataset.notes)
    if "dev" not in splits:
        rows = len(splits[source])
        splits[source], splits["dev"] = hold_out(splits[source], DEV_SHARE, seed)
        notes.append(
            f"no dev split: {len(splits['dev'])} of the {rows} rows of {source} were held out "
            f"as dev (stratified, seed {seed})"
        )
    if "test" not in splits:
        notes.append("no test split: the only figures are on dev, which also selects the model")
    return replace(dataset, splits=splits, notes=tuple(notes))
