"""The data of a run: everything that its configuration names, read and split."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, DataError
from auxlearn.core.files import read_checked_json, write_checked_json
from auxlearn.core.settings import Columns, ValidationSource
from auxlearn.data.audit import audit
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.examples import own_names, parse_examples, to_split, with_kind_of
from auxlearn.data.load import (
    CARD_SUFFIXES,
    dataset_names,
    find_tables,
    load_dataset,
    with_dev,
)
from auxlearn.data.ood import OODSet, check_pairs, load_ood_sets
from auxlearn.data.splits import hold_out
from auxlearn.data.tables import read_table
from auxlearn.kinds.base import Kind, kind_of
from auxlearn.kinds.choose import CLASSIFICATION

logger = logging.getLogger(__name__)

#: Part of the names of kept audits; raise it when an audit of the same data finds something else.
AUDIT_FORMAT = 6


@dataclass(frozen=True)
class RunData:
    """The data of a run."""

    dataset: TextDataset  # as it was read
    ood_sets: tuple[OODSet, ...]
    train: Split  # the examples to train on
    validation: Split | None  # the examples that drive the weights, if the weighting needs any
    notes: tuple[str, ...]  # what was done to the data on reading, and which sets were left out
    audits: Path | None = None  # folder that keeps what audits have found

    def evaluated(self, name: str, recorded: Mapping[str, object]) -> Split | None:
        """Return an evaluation set, unless it is absent or not that of ``recorded`` inputs."""
        ood = next((ood for ood in self.ood_sets if ood.source.name == name), None)
        if ood is None:
            return (self.dataset.splits | self.dataset.ood).get(name)
        same = ood_content(ood) == recorded.get(f"out-of-distribution set {name}")
        return ood.split if same else None

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What an audit of the data set finds; read again if the same data were audited before."""
        if self.audits is None:
            return tuple(audit(self.dataset).warnings())
        content = [AUDIT_FORMAT, dataset_content(self.dataset)]
        key = sha256(json.dumps(content).encode()).hexdigest()
        path = self.audits / f"audit-{key}.json"
        try:
            return tuple(map(str, read_checked_json(path)[key]))
        except (OSError, ValueError, KeyError, TypeError):  # not there yet, damaged, or of others
            found = tuple(audit(self.dataset).warnings())
            if path.exists():
                logger.warning("cache file %s is damaged: its content is computed again", path)
        write_checked_json(path, {key: found})
        return found


#: The kind of the labels of a folder, and their names, by what it is read by.
FoundKinds = dict[str, tuple[Kind, tuple[str, ...]]]


def with_found_kind(
    config: RunConfig, dataset: TextDataset | None, known: FoundKinds | None = None
) -> RunConfig:
    """Return the settings with the kind of the labels and its metric, as the data have them, where
    they say neither; ``known`` is shared by settings that read the same data.
    """
    given = "metric" in config.model_fields_set
    config.load_plugins()  # one of them may define the kind
    if config.kind is not None and (given or config.kind == CLASSIFICATION.name):
        return config
    if config.kind is not None and not kind_of(config.kind).metric_by_names:
        return config.model_copy(update={"metric": kind_of(config.kind).default_metric(())})
    columns = config.columns
    if dataset is not None:
        kind, names = dataset.kind, dataset.label_names
    else:
        known = {} if known is None else known
        key = f"{config.dataset} {columns}"
        if key not in known:
            known[key] = _kind_of(config.dataset, columns)
        kind, names = known[key]
    if kind is CLASSIFICATION:
        return config
    metric = config.metric if given else kind.default_metric(names)
    return config.model_copy(update={"kind": kind.name, "metric": metric})


def _kind_of(dataset: str, columns: Columns) -> tuple[Kind, tuple[str, ...]]:
    try:
        tables = find_tables(dataset, columns)
        if tables is None:
            if dataset in dataset_names() or Path(dataset).suffix in CARD_SUFFIXES:
                return CLASSIFICATION, ()  # cards are of single classes
            found = load_dataset(dataset, columns=columns)
            return found.kind, found.label_names
        if "train" not in tables:
            return CLASSIFICATION, ()
        train = tables["train"]
        if with_kind_of(train, columns).kind == CLASSIFICATION.name:
            return CLASSIFICATION, ()
        examples = parse_examples(train, columns)
    except DataError:  # the run says so, unless it is finished and needs no data
        return CLASSIFICATION, ()
    return examples.kind, own_names(examples)


def load_run_data(
    config: RunConfig,
    source: ValidationSource | None,
    dataset: TextDataset | None = None,
) -> RunData:
    """Read the data set and the out-of-distribution sets, and hold out validation examples."""
    if dataset is None:
        dataset = load_dataset(config.dataset, columns=config.columns, fold=config.fold)
    else:
        dataset = with_dev(dataset, seed=0, fold=config.fold)
    has_pairs = dataset.splits["train"].text_pairs is not None
    check_data_settings(config, dataset.name, dataset.label_names, dataset.kind, has_pairs)
    ood_sets, ood_notes = load_ood_sets(config.ood, config.dataset, dataset)
    train, validation = split_validation(dataset, source, config.columns)
    return RunData(
        dataset=dataset,
        ood_sets=tuple(ood_sets),
        train=train,
        validation=validation,
        notes=(*dataset.notes, *ood_notes),
    )


def check_data_settings(
    config: RunConfig, name: str, label_names: tuple[str, ...], kind: Kind, has_pairs: bool
) -> None:
    """Refuse settings that do not fit the data set that they name."""
    if kind is not kind_of(config.kind):
        raise ConfigError(
            f"kind: the labels of {name} are read as {kind.name}: add kind: {kind.name} to the "
            "settings, or name the kind that they are of"
        )
    kind.check_metric(config.metric, label_names)
    if config.thresholds != "half":
        kind.require("thresholds")
    if config.text_window != "head" and has_pairs:
        raise DataError(
            f"text_window: {config.text_window} is for single texts, but {name} has pairs of "
            "texts, of which the longer one is always cut at its end: leave --text-window out"
        )


def split_validation(
    dataset: TextDataset, source: ValidationSource | None, columns: Columns
) -> tuple[Split, Split | None]:
    """Return the examples to train on and those that drive the weights, the same for every seed."""
    train = dataset.splits["train"]
    if source is None:
        return train, None
    if source.file is not None:
        examples = parse_examples(read_table(source.file), columns)
        further = to_split(examples, source.file.stem, dataset.label_names)
        check_pairs(source.file.name, further, train.text_pairs is not None)
        return train, further
    if source.share is not None:
        remaining, held_out = hold_out(train, source.share, seed=0)
        return replace(remaining, name="train"), held_out
    return train, with_known_labels(dataset.splits["dev"], dataset.label_names)


def with_known_labels(split: Split, label_names: tuple[str, ...]) -> Split:
    """Return the examples of a split that a model can be trained on."""
    if split.labels is None or len(split.label_names) == len(label_names):
        return split
    known = [row for row, label in enumerate(split.labels) if label < len(label_names)]
    return replace(split.select(known), label_names=label_names)


def dataset_content(dataset: TextDataset) -> dict[str, str]:
    return {name: split.fingerprint for name, split in dataset.everything.items()}


def ood_content(ood: OODSet) -> dict[str, str]:
    """Return a digest of each split of an out-of-distribution set that is evaluated."""
    content = {ood.source.split: ood.split.fingerprint}
    if ood.partner is not None:
        content[str(ood.source.pairs)] = ood.partner.fingerprint
    return content
