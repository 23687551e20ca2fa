"""The data of a run: what its configuration names, read and cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from auxlearn.config import RunConfig
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.examples import ColumnNames
from auxlearn.data.folders import read_labelled_file
from auxlearn.data.ood import OODSet
from auxlearn.data.splits import hold_out

if TYPE_CHECKING:
    from auxlearn.weighting.base import Weighting


def columns_of(config: RunConfig) -> ColumnNames | None:
    """Return the columns that a configuration names, ``None`` if it names none."""
    names = {
        "text": config.text_column,
        "text_pair": config.text_pair_column,
        "label": config.label_column,
    }
    given = {role: name for role, name in names.items() if name is not None}
    return ColumnNames(**given) if given else None


def cut_validation(
    dataset: TextDataset, config: RunConfig, weighting: Weighting
) -> tuple[Split, Split | None]:
    """Return what is trained on, and the examples that a weighting learns from.

    Examples held out of train are the same for every seed of a run, so that seeds differ in
    training alone.

    Raises:
        DataError: The file that the weighting names cannot be used.
    """
    source, train_split = weighting.validation_split, dataset.splits["train"]
    if source is None:
        return train_split, None
    if source == "dev":
        return train_split, dataset.splits["dev"]
    file = validation_file(source)
    if file is None:
        rest, held_out = hold_out(train_split, float(source.removeprefix("train:")), seed=0)
        return replace(rest, name="train"), held_out
    return train_split, read_labelled_file(file, dataset.label_names, columns_of(config))


def validation_file(source: str | None) -> Path | None:
    """Return the file that a weighting's ``split`` names; ``None`` if it names none."""
    if source is None or source == "dev" or source.startswith("train:"):
        return None
    return Path(source)


def dataset_content(dataset: TextDataset) -> dict[str, str]:
    """Return a digest of each split of a data set by the split's name."""
    return {name: split.fingerprint for name, split in (dataset.splits | dataset.ood).items()}


def ood_content(ood: OODSet) -> dict[str, str]:
    """Return a digest of each split of an out-of-distribution set that is evaluated."""
    content = {ood.source.split: ood.split.fingerprint}
    if ood.partner is not None:
        content[str(ood.source.pairs)] = ood.partner.fingerprint
    return content
