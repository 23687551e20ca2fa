"""The kind of a table of labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from auxlearn.core.settings import Columns
from auxlearn.kinds.base import Kind, all_kinds, kind_of

if TYPE_CHECKING:
    from auxlearn.core.table import Table

CLASSIFICATION = kind_of(None)


def find_kind(table: Table, columns: Columns) -> Kind:
    """Return the kind of the labels of a table by their types; classes if none recognises them."""
    kinds = sorted(all_kinds(), key=lambda kind: not kind.per_token)
    return next((kind for kind in kinds if kind.recognises(table, columns)), CLASSIFICATION)
