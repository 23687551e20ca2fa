"""Data-set cards: YAML files that say where a published set is and how to read it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from auxlearn.data.rows import Columns
from auxlearn.errors import DataError, did_you_mean

CARD_FOLDER = Path(__file__).parent / "cards"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CardColumns(_Strict):
    """Which column of the hub's data holds what."""

    text: str = Columns.text
    text_pair: str = Columns.text_pair
    label: str = Columns.label

    def to_columns(self) -> Columns:
        """Return the same as what the readers take."""
        return Columns(**self.model_dump())


class HubSource(_Strict):
    """Where on the hub a set is.

    Attributes:
        id: Such as "nyu-mll/glue".
        config: Its configuration, where it has several.
        splits: Our split name to the hub's; ``"a+b"`` joins two.
        columns: Which column holds what.
        dev_from: The split that the dev split is cut from where ``splits`` names none.
    """

    id: str
    config: str | None = None
    splits: dict[str, str] = {"train": "train", "dev": "validation", "test": "test"}
    columns: CardColumns = CardColumns()
    dev_from: Literal["train", "test"] = "train"


class DatasetCard(_Strict):
    """All that is known of a published data set.

    Attributes:
        name: Short name, by which ``--dataset`` finds it.
        title: One line for lists.
        description: What the texts are and what the task is.
        hub: Where it is on the hub; ``None`` if there is no copy to be trusted.
        folder_recipe: How to make a data folder of it.
        label_names: Names of the classes 0, 1, ... in order.
        metric: The metric the field reports for it.
        ood: Out-of-distribution partners by card name. The value says which label of the partner
            stands for each label of this set; labels that have the same name are left out.
        subsets: Columns by whose values the figures on the set are reported as well.
        pairs: Split to the split whose rows belong with it line by line, as in contrast sets.
        sizes: Rows by split as published.
        licence: Licence of the data as far as it is stated.
        paper: Where the set, and the split, comes from.
        warnings: What a user should know before trusting a figure.
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
        return self


def card_names() -> list[str]:
    """Return the names of the cards that come with the package, sorted."""
    return sorted(path.stem for path in CARD_FOLDER.glob("*.yaml"))


def find_card(name: str) -> DatasetCard:
    """Return the card of that name which comes with the package.

    Raises:
        DataError: There is none; the message suggests one.
    """
    if name not in card_names():
        raise DataError(f"there is no data-set card '{name}': {did_you_mean(name, card_names())}")
    return read_card(CARD_FOLDER / f"{name}.yaml")


def read_card(path: Path) -> DatasetCard:
    """Read a card from a YAML file.

    Raises:
        DataError: The file cannot be read, is no YAML mapping, or has a wrong or unknown entry;
            all wrong entries are named.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"data-set card {path} cannot be read: {reason}") from error
    if not isinstance(content, dict):
        raise DataError(f"data-set card {path} must be a mapping of keys to values")
    try:
        return DatasetCard.model_validate(content)
    except ValidationError as error:
        faults = "; ".join(_fault(detail) for detail in error.errors())
        raise DataError(f"data-set card {path}: {faults}") from error


def _fault(detail: object) -> str:
    assert isinstance(detail, dict)
    key = ".".join(map(str, detail["loc"]))
    if detail["type"] == "extra_forbidden":
        models: dict[int, type[BaseModel]] = {1: DatasetCard, 2: HubSource, 3: CardColumns}
        known = models[len(detail["loc"])].model_fields
        return f"unknown key '{key}', {did_you_mean(str(detail['loc'][-1]), known)}"
    message = detail["msg"].removeprefix("Value error, ")
    return f"{key}: {message}" if key else message
