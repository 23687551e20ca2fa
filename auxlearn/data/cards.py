"""Data-set cards: YAML files with the source, columns and labels of published data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from auxlearn.data.examples import ColumnNames
from auxlearn.errors import DataError, did_you_mean
from auxlearn.local_files import name_problem
from auxlearn.settings import FAULTS
from auxlearn.wording import shorten
from auxlearn.yaml_files import read_yaml

CARD_FOLDER = Path(__file__).parent / "cards"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CardColumns(_Strict):
    """Names of the columns in the hub's data."""

    text: str = ColumnNames.text
    text_pair: str = ColumnNames.text_pair
    label: str = ColumnNames.label

    def to_columns(self) -> ColumnNames:
        """Return them in the type that the readers take."""
        return ColumnNames(**self.model_dump())


class HubSource(_Strict):
    """Location of a data set on the hub.

    Attributes:
        id: Hub id, such as "nyu-mll/glue".
        config: Name of its configuration, where it has several.
        splits: Hub split by split name of this package; ``"a+b"`` concatenates two.
        columns: Names of its columns.
        dev_from: The split that dev is held out of if ``splits`` names no dev split.
    """

    id: str
    config: str | None = None
    splits: dict[str, str] = {"train": "train", "dev": "validation", "test": "test"}
    columns: CardColumns = CardColumns()
    dev_from: Literal["train", "test"] = "train"


class DatasetCard(_Strict):
    """Metadata of a published data set.

    Attributes:
        name: Short name, the value of ``--dataset``.
        title: One line for lists.
        description: The texts and the task.
        hub: Location on the hub; ``None`` if the hub has no trustworthy copy.
        folder_recipe: Instructions for making a data folder of it.
        label_names: Names of the classes 0, 1, ... in order.
        metric: The metric usually reported for it.
        ood: Out-of-distribution sets by card name, each with a mapping from the labels of this set
            to those of the other; labels of the same name need no entry.
        subsets: Columns by whose values the scores are broken down.
        pairs: Split whose examples are paired, line by line, with those of another split, as in
            contrast sets.
        sizes: Published number of examples by split.
        licence: Licence of the data as far as it is stated.
        paper: Source of the data set and of its splits.
        warnings: What a user should know before trusting its results.
    """

    name: str
    title: str
    description: str
    hub: HubSource | None = None
    folder_recipe: str | None = None
    label_names: Annotated[list[str], Field(min_length=2)]
    metric: Literal["accuracy", "macro_f1"]
    ood: dict[str, dict[str, str]] = {}
    subsets: list[str] = []
    pairs: dict[str, str] = {}
    sizes: dict[str, int] = {}
    licence: str
    paper: str
    warnings: list[str] = []

    @model_validator(mode="after")
    def _has_a_source(self) -> DatasetCard:
        if self.hub is None and self.folder_recipe is None:
            raise ValueError("a card needs 'hub' or 'folder_recipe', to say where the data is")
        if len(set(self.label_names)) < len(self.label_names):
            raise ValueError("label_names names one label twice")
        splits = self.hub.splits if self.hub else {}
        for name in (self.name, *self.ood, *splits, *self.pairs, *self.pairs.values()):
            if problem := name_problem(name):
                raise ValueError(problem)
        return self


def card_names() -> list[str]:
    """Return the names of the package's cards, sorted."""
    return sorted(path.stem for path in CARD_FOLDER.glob("*.yaml"))


def find_card(name: str) -> DatasetCard:
    """Return one of the package's cards by name.

    Raises:
        DataError: There is no card of that name; the message suggests one.
    """
    if name not in card_names():
        raise DataError(f"there is no data-set card '{name}': {did_you_mean(name, card_names())}")
    return read_card(CARD_FOLDER / f"{name}.yaml")


def read_card(path: Path) -> DatasetCard:
    """Read a card from a YAML file.

    Raises:
        DataError: The file cannot be read, is not a YAML mapping, or has invalid or unknown
            entries; the message names all of them.
    """
    content = read_yaml(path, "data-set card", DataError)
    if not isinstance(content, dict):
        raise DataError(f"data-set card {path} must be a mapping of keys to values")
    try:
        return DatasetCard.model_validate(content)
    except ValidationError as error:
        details = error.errors()
        faults = "; ".join(_fault(detail) for detail in details[:FAULTS])
        more = f"; and {len(details) - FAULTS} more" if len(details) > FAULTS else ""
        raise DataError(f"data-set card {path}: {faults}{more}") from error


def _fault(detail: object) -> str:
    assert isinstance(detail, dict)
    key = shorten(".".join(map(str, detail["loc"])))
    if detail["type"] == "extra_forbidden":
        models: dict[int, type[BaseModel]] = {1: DatasetCard, 2: HubSource, 3: CardColumns}
        known = models[len(detail["loc"])].model_fields
        return f"unknown key '{key}', {did_you_mean(shorten(str(detail['loc'][-1])), known)}"
    message = detail["msg"].removeprefix("Value error, ")
    return f"{key}: {message}" if key else message
