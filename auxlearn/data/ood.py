"""Out-of-distribution sets: loading them and mapping their labels to the classes of a model."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from auxlearn.core.arguments import named_as_in_a_file
from auxlearn.core.errors import ConfigError, DataError, shorten, some_of
from auxlearn.core.files import user_path
from auxlearn.core.settings import Columns, OODSource
from auxlearn.data.audit import doubtful_texts
from auxlearn.data.dataset import Split, TextDataset, find_split
from auxlearn.data.load import (
    DatasetCard,
    card_names,
    find_card,
    find_tables,
    load_evaluated,
)
from auxlearn.kinds.base import Kind
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.kinds.predictions import LabelMap


@dataclass(frozen=True)
class OODSet:
    """A loaded out-of-distribution set."""

    source: OODSource  # completed from the data-set cards
    split: Split  # of other kinds than single classes, with the labels of the model
    labels: LabelMap
    partner: Split | None = None  # examples paired with those of ``split``, line by line


def map_labels(
    model: Sequence[str],
    found: Sequence[str],
    mapping: Mapping[str, str] | None,
    where: str,
    unknown_labels: Literal["error", "count"] = "error",
) -> LabelMap:
    """Map the classes of a model and the labels of an evaluation set to common classes: the model's
    if nothing is renamed and it knows every label; else those of the set, each mapped to.
    """
    mapping = mapping or {}
    count = unknown_labels == "count"
    if not mapping.keys() <= {*model}:
        raise _no_match(where, found, model, mapping)
    renamed = [mapping.get(name, name) for name in model]
    by_own_names = [*map(_places(model), renamed)] == [*range(len(model))]
    reached = [*map(_places(found), renamed)]
    unmatched = [name for name, place in zip(model, reached, strict=True) if place is None]
    if by_own_names or (unmatched and len({*map(str.casefold, renamed)}) == len(model)):
        places = [*map(_places(renamed), found)]
        unknown = [name for name, place in zip(found, places, strict=True) if place is None]
        if not unknown or (count and len(unknown) < len(found)):
            names = (*(model if by_own_names else renamed), *unknown)
            further = itertools.count(len(model))
            matched = tuple(next(further) if place is None else place for place in places)
            return LabelMap(names, tuple(range(len(model))), matched, len(model))
    targets = [None if place is None else found[place] for place in reached]
    unreached = [name for name in found if name not in targets]
    if unmatched or (unreached and not count):
        advice = (
            "; 'unknown_labels: count' there, or --unknown-labels count of that command, counts "
            "others as wrong"
        )
        advice = "" if count else advice
        raise _no_match(where, found, model, mapping, unmatched or unreached, advice)
    if len(set(targets)) == 1:
        raise DataError(
            f"'{where}': every class of the model maps to the label '{shorten(str(targets[0]))}', "
            "so that no prediction can be wrong: map one to another label"
        )
    names = (*(name for name in found if name not in unreached), *unreached)
    number = {name: index for index, name in enumerate(names)}
    return LabelMap(
        names,
        tuple(number[str(name)] for name in targets),
        tuple(number[name] for name in found),
        len(names) - len(unreached),
    )


def _places(names: Sequence[str]) -> Callable[[str], int | None]:
    """Return what finds the place of a name: of an equal one, else of the only one that differs in
    capitals alone.
    """
    equal = {name: place for place, name in enumerate(names)}
    counts = Counter(map(str.casefold, names))
    alike = {name.casefold(): equal[name] for name in names if counts[name.casefold()] == 1}
    return lambda name: equal.get(name, alike.get(name.casefold()))


def _no_match(
    where: str,
    found: Sequence[str],
    model: Sequence[str],
    mapping: Mapping[str, str],
    alone: Sequence[str] = (),
    advice: str = "",
) -> DataError:
    place_of = _places(found)
    foreign = [name for name in mapping if name not in model]
    absent = [name for name in mapping.values() if place_of(name) is None]
    fault = f"no counterpart for {some_of(alone)}"
    if foreign or absent:
        whose = "the model does not know" if foreign else "the set does not have"
        fault = f"the map names {some_of(foreign or absent)}, which {whose}"
    return DataError(
        f"'{where}' has the labels {some_of(found)}, the model knows {some_of(model)}: {fault} "
        "(give 'labels' of the set, under 'ood' in a configuration, or --labels of `auxlearn "
        f"evaluate`: label of the model to label of the set{advice})"
    )


def with_labels_of(model: Sequence[str], split: Split, source: OODSource) -> Split:
    """Return a split of another kind than classes with its labels by those of a model, or a map."""
    mapping = source.labels or {}
    if source.decision != "sum":
        split.kind.require("decision argmax")
    if source.unknown_labels == "count":
        split.kind.require("unknown_labels count")
    if mapping:
        split.kind.require("labels (label maps)")
    if source.pairs is not None:
        split.kind.require("pairs of splits")
    renamed = [mapping.get(name, name) for name in model]
    known: dict[str, str] = {}
    for name, new_name in zip(model, renamed, strict=True):
        label = new_name.casefold() if mapping else new_name
        if label in known:
            split.kind.require("combined labels", f" ({known[label]}, {name})")
        known[label] = name
    place_of = _places(renamed)
    places = {name: place_of(name) for name in split.label_names}
    unknown = [name for name, place in places.items() if place is None]
    if unknown or not mapping.keys() <= {*model}:
        raise _no_match(source.name, split.label_names, model, mapping, unknown)
    index = {name: place for name, place in places.items() if place is not None}
    written = [split.kind.written(label, split.label_names) for label in split.labels or ()]
    labels = tuple(split.kind.encode(label, index) for label in written)
    return replace(split, labels=labels, label_names=tuple(model))


def match_labels(model: Sequence[str], split: Split, source: OODSource) -> tuple[Split, LabelMap]:
    """Return a split of any kind, and the map of its labels and those of a model."""
    if split.kind.offers("combined labels"):
        return split, map_labels(
            model, split.label_names, source.labels, source.name, source.unknown_labels
        )
    numbers = tuple(range(len(model)))
    return with_labels_of(model, split, source), LabelMap(
        tuple(model), numbers, numbers, len(model)
    )


def check_pairs(name: str, split: Split, trained_on_pairs: bool | None) -> None:
    """Check that a split has pairs of texts if the data of the run have them, as far as known."""
    pairs = split.text_pairs is not None
    if trained_on_pairs not in (None, pairs):
        raise DataError(
            f"'{name}' has {'pairs of texts' if pairs else 'single texts'}, but the run was "
            f"trained on {'single texts' if pairs else 'pairs of texts'}"
            + ("" if pairs else ": name the column of the second text with --text-pair-column")
        )


@named_as_in_a_file()
def load_ood_set(
    source: OODSource,
    dataset: str,
    label_names: Sequence[str],
    kind: Kind = CLASSIFICATION,
    pairs: bool | None = None,
) -> OODSet:
    """Load an out-of-distribution set, of the kind of the run's labels, and ``pairs`` if known."""
    if source.kind not in (None, kind.name):
        raise ConfigError(
            f"ood: '{source.name}' has kind: {source.kind}, but the run is of {kind.name}: a run "
            "is evaluated on labels of its own kind"
        )
    source = source.model_copy(update={"kind": kind.name})
    source = with_cards(source, dataset, label_names)
    columns = source.columns.of_model(label_names)
    split = _read(source, source.split, columns)
    check_pairs(source.name, split, pairs)
    for column in source.subsets or ():
        if column not in split.meta:
            raise DataError(
                f"'{source.name}' has no column '{shorten(column)}' to make subsets by: it has "
                f"{some_of(split.meta) or 'none beside text and label'}"
            )
    partner = _read_partner(source, len(split), columns)
    if partner is not None and kind.offers("combined labels"):
        names = dict.fromkeys((*split.label_names, *partner.label_names))
        split = replace(split, label_names=tuple(names))
    split, labels = match_labels(label_names, split, source)
    if partner is not None and not kind.offers("combined labels"):
        partner = with_labels_of(label_names, partner, source)
    if source.subsets is None:
        source = source.model_copy(update={"subsets": card_subsets(source, split)})
    return OODSet(source, split, labels, partner)


def _read_partner(source: OODSource, examples: int, columns: Columns) -> Split | None:
    """Read the split whose examples are paired with so many of the set, if there is one."""
    if source.pairs is None:
        return None
    partner = _read(source, source.pairs, columns)
    if not _has(source, source.pairs):
        raise DataError(
            f"'{source.name}': {source.dataset} has no column 'split', so that its examples would "
            "be paired with themselves: add the column, or leave pairs out"
        )
    if len(partner) != examples:
        raise DataError(
            f"'{source.name}': {source.split} has {examples} examples but {source.pairs} "
            f"{len(partner)}: pairs need equal numbers of examples"
        )
    return partner


def with_cards(source: OODSource, dataset: str, label_names: Sequence[str]) -> OODSource:
    """Complete label mapping and pairs from the data-set cards, as far as these fit."""
    updates: dict[str, object] = {}
    trained, own = _card(dataset), _card(source.name)
    if source.labels is None and trained is not None:
        labels = trained.ood.get(source.name)
        if labels and set(labels) <= set(label_names):
            updates["labels"] = labels
    if source.pairs is None and own is not None:
        partner = own.pairs.get(source.split)
        if partner is not None and _has(source, partner):
            updates["pairs"] = partner
    return source.model_copy(update=updates)


def card_subsets(source: OODSource, split: Split) -> tuple[str, ...]:
    """Return the columns that the set's card names for subsets, as far as the split has them."""
    own = _card(source.name)
    return tuple(column for column in own.subsets if column in split.meta) if own else ()


def load_ood_sets(
    sources: Sequence[OODSource], spec: str, dataset: TextDataset
) -> tuple[list[OODSet], list[str]]:
    """Load the sets of a configuration, and, as far as they can be had, those of the card."""
    for source in sources:
        if source.name in dataset.everything:
            raise DataError(
                f"data set '{dataset.name}' has a split '{source.name}': give the "
                f"out-of-distribution set {source.dataset} another name with 'name'"
            )
    pairs = dataset.splits["train"].text_pairs is not None
    trained = (dataset.name, dataset.label_names, dataset.kind, pairs)
    sets = [load_ood_set(source, *trained) for source in sources]
    notes = []
    card = None if user_path(spec, DataError).exists() else _card(spec)
    named = {source.name for source in sources}
    for name in card.ood if card else {}:
        if name in named:
            continue
        try:
            sets.append(load_ood_set(OODSource(dataset=name, name=name), *trained))
        except DataError as error:
            notes.append(f"out-of-distribution set '{name}' was left out: {error}")
    read = [
        f"{found.source.name}: {note}"
        for found in sets
        for note in (
            *found.split.notes,
            *doubtful_texts(found.split),
        )
    ]
    return sets, [*read, *notes]


def _card(name: str) -> DatasetCard | None:
    return find_card(name) if name in card_names() else None


def _has(source: OODSource, split: str) -> bool:
    """Return whether a set has a split; a table that is not divided has no second one."""
    tables = find_tables(source.dataset, source.columns, only="")
    return tables is None or find_split(split, tables) in tables


def _read(source: OODSource, split: str, columns: Columns) -> Split:
    return load_evaluated(source.dataset, split, columns, alone=True)[0]
