"""The package's data-set cards, and card files of users."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from auxlearn.core.errors import DataError
from auxlearn.data.load import card_names, find_card, read_card

OWN = {
    "name": "own",
    "title": "Own set",
    "description": "Texts.",
    "get": {"source": "a folder", "splits": {"test": "test.tsv"}},
    "label_names": ["a", "b"],
    "metric": "accuracy",
    "licence": "MIT",
    "paper": "none",
}


def write_card(folder: Path, **changes: object) -> Path:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({**OWN, **changes}))
    return path


@pytest.mark.parametrize("name", card_names())
def test_card_is_complete(name):
    card = find_card(name)
    assert card.name == name
    assert "\n" not in card.title
    assert len(card.title) <= 100
    # Names that YAML would read as something else (true, no, 1) must have been quoted.
    assert all(isinstance(label, str) for label in card.label_names)
    if card.hub is not None:
        assert re.fullmatch(r"[\w-]+/[\w-]+", card.hub.id)
        assert {"train", "test"} <= set(card.hub.splits)
        assert set(card.sizes) - {"dev"} <= set(card.hub.splits)


@pytest.mark.parametrize("name", card_names())
def test_every_label_has_a_counterpart_in_each_partner(name):
    card = find_card(name)
    for partner_name, label_map in card.ood.items():
        partner = find_card(partner_name)
        assert set(label_map) <= set(card.label_names)
        mapped = {label_map.get(label, label) for label in card.label_names}
        assert mapped == set(partner.label_names)


def test_own_card_and_an_unknown_one(tmp_path):
    card = read_card(write_card(tmp_path, hub={"id": "me/own", "columns": {"text": "body"}}))
    assert card.hub.columns == {"text": "body"}
    assert card.hub.splits["dev"] == "validation"
    with pytest.raises(DataError, match="no data-set card 'acl-arc': did you mean 'acl_arc'"):
        find_card("acl-arc")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"get": None}, "a card needs 'hub' or 'get'"),
        ({"label_names": ["a", "a"]}, "names one label twice"),
        ({"label_names": ["a"]}, "label_names: List should have at least 2 items"),
        ({"label_names": [True, False]}, "label_names.0: must be text"),
    ],
)
def test_invalid_card(tmp_path, changes, expected):
    with pytest.raises(DataError, match=re.escape(expected)):
        read_card(write_card(tmp_path, **changes))
