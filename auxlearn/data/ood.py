"""Out-of-distribution sets: where they are, and what their labels mean to a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from auxlearn.config import OODSource
from auxlearn.data.cards import DatasetCard, card_names, find_card
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.load import load_evaluation_split
from auxlearn.data.readers import data_files
from auxlearn.data.rows import Columns
from auxlearn.errors import DataError


@dataclass(frozen=True)
class LabelMap:
    """What the classes of a model are called in an evaluation set.

    Attributes:
        label_names: The classes that figures are made of.
        targets: Class in ``label_names`` of each class of the model.
        labels: Class in ``label_names`` of each label of the set.
    """

    label_names: tuple[str, ...]
    targets: tuple[int, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True)
class OODSet:
    """An out-of-distribution set, read.

    Attributes:
        source: The settings, with what the data-set cards add.
        split: Its rows.
        labels: How it names the classes of the model.
        partner: The rows that belong with those of ``split``, line by line.
    """

    source: OODSource
    split: Split
    labels: LabelMap
    partner: Split | None = None


def map_labels(
    model: Sequence[str], found: Sequence[str], given: Mapping[str, str] | None, where: str
) -> LabelMap:
    """Match the classes of a model with the labels of a set.

    If no other names are given and the model knows every label of the set, it is the model's
    classes that are compared, and a class may be missing from the set. Otherwise every class of
    the model must lead to a label of the set, and every label must be reached.

    Args:
        model: Classes of the model.
        found: Labels of the set.
        given: Label of the set by class of the model; where it is left out, the label of the same
            name. Upper and lower case are one.
        where: The set, for messages.

    Raises:
        DataError: They do not match; the message names both.
    """
    given = given or {}
    if all(name.casefold() == target.casefold() for name, target in given.items()):
        positions = {name.casefold(): number for number, name in enumerate(model)}
        if len(positions) == len(model) and all(name.casefold() in positions for name in found):
            matched = tuple(positions[name.casefold()] for name in found)
            return LabelMap(tuple(model), tuple(range(len(model))), matched)
    by_name = {name.casefold(): name for name in found}
    targets = [by_name.get(given.get(name, name).casefold()) for name in model]
    foreign = [name for name in given if name not in model]
    unmatched = [name for name, target in zip(model, targets, strict=True) if target is None]
    unreached = [name for name in found if name not in targets]
    if foreign or unmatched or unreached:
        fault = (
            f"the map names {', '.join(foreign)}, which the model does not know"
            if foreign
            else f"nothing stands for {', '.join(unmatched or unreached)}"
        )
        raise DataError(
            f"'{where}' has the labels {', '.join(found)}, the model knows {', '.join(model)}: "
            f"{fault} (a configuration maps them with 'labels' under 'ood', "
            "label of the model to label of the set)"
        )
    number = {name: index for index, name in enumerate(found)}
    return LabelMap(
        tuple(found), tuple(number[str(name)] for name in targets), tuple(range(len(found)))
    )


def load_ood_set(source: OODSource, dataset: str, label_names: Sequence[str]) -> OODSet:
    """Read an out-of-distribution set.

    Args:
        source: The settings.
        dataset: Name of the data set that the model is trained on; its card may hold the label
            map. The card of the set itself says what its pairs and subsets are.
        label_names: Classes of the model.

    Raises:
        DataError: It cannot be read, a column or the paired split is missing, or its labels
            cannot be matched.
    """
    source = with_cards(source, dataset, label_names)
    split = _read(source, source.split)
    for column in source.subsets or ():
        if column not in split.meta:
            raise DataError(
                f"'{source.name}' has no column '{column}' to make subsets by: it has "
                f"{', '.join(split.meta) or 'none beside text and label'}"
            )
    labels = map_labels(label_names, split.label_names, source.labels, source.name)
    if source.subsets is None:
        source = source.model_copy(update={"subsets": card_subsets(source, split)})
    partner = None
    if source.pairs is not None:
        partner = _read(source, source.pairs)
        if len(partner) != len(split):
            raise DataError(
                f"'{source.name}': {source.split} has {len(split)} rows but {source.pairs} "
                f"{len(partner)}: pairs need one line for each"
            )
        if set(partner.label_names) - set(split.label_names):
            raise DataError(
                f"'{source.name}': {source.pairs} has the labels "
                f"{', '.join(partner.label_names)}, {source.split} has "
                f"{', '.join(split.label_names)}"
            )
    return OODSet(source, split, labels, partner)


def with_cards(source: OODSource, dataset: str, label_names: Sequence[str]) -> OODSource:
    """Fill in the label map and the pairs that cards know of, where they fit what is there.

    A folder may have the name of a card and other labels or splits; the card says nothing then.
    """
    updates: dict[str, object] = {}
    trained, own = _card(dataset), _card(source.name)
    if source.labels is None and trained is not None:
        labels = trained.ood.get(source.name)
        if labels and set(labels) <= set(label_names):
            updates["labels"] = labels
    if source.pairs is None and own is not None:
        folder = Path(source.dataset).expanduser()
        partner = own.pairs.get(source.split)
        if not folder.is_dir() or partner in data_files(folder):
            updates["pairs"] = partner
    return source.model_copy(update=updates)


def card_subsets(source: OODSource, split: Split) -> tuple[str, ...]:
    """Return the columns that the card of a set makes subsets by, as far as they are there."""
    own = _card(source.name)
    return tuple(column for column in own.subsets if column in split.meta) if own else ()


def load_ood_sets(
    given: Sequence[OODSource], spec: str, dataset: TextDataset
) -> tuple[list[OODSet], list[str]]:
    """Read the sets of a configuration, and those that the data set's card names beside them.

    A set of the configuration must be there. One that only the card names is left out where it
    cannot be had, and a sentence says so.

    Args:
        given: The sets of the configuration.
        spec: What the configuration calls the data set that is trained on.
        dataset: That data set.

    Returns:
        The sets, and the sentences.

    Raises:
        DataError: A set has the name of a split; see also :func:`load_ood_set`.
    """
    taken = {**dataset.splits, **dataset.ood}
    for source in given:
        if source.name in taken:
            raise DataError(
                f"data set '{dataset.name}' has a split '{source.name}': give the "
                f"out-of-distribution set {source.dataset} another name with 'name'"
            )
    sets = [load_ood_set(source, dataset.name, dataset.label_names) for source in given]
    remarks = []
    card = None if Path(spec).exists() else _card(spec)
    named = {source.name for source in given}
    for name in card.ood if card else {}:
        if name in named:
            continue
        try:
            sets.append(
                load_ood_set(OODSource(dataset=name, name=name), dataset.name, dataset.label_names)
            )
        except DataError as error:
            remarks.append(f"out-of-distribution set '{name}' was left out: {error}")
    return sets, remarks


def _card(name: str) -> DatasetCard | None:
    return find_card(name) if name in card_names() else None


def _read(source: OODSource, split: str) -> Split:
    given = {
        "text": source.text_column,
        "text_pair": source.text_pair_column,
        "label": source.label_column,
    }
    columns = {role: name for role, name in given.items() if name is not None}
    return load_evaluation_split(
        source.dataset, split, columns=Columns(**columns) if columns else None
    )
