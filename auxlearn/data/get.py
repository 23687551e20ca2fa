"""Make the folder of a data set of what its owner ships, by the recipe of its card."""

from __future__ import annotations

import ast
import json
import shutil
from dataclasses import replace
from pathlib import Path

from auxlearn.core.errors import DataError, shorten, some_of
from auxlearn.core.files import replaced_folder, write_text
from auxlearn.core.settings import Columns
from auxlearn.core.table import Table
from auxlearn.data.dataset import Split
from auxlearn.data.examples import own_names, parse_examples, to_split
from auxlearn.data.folders import read_split
from auxlearn.data.load import DatasetCard, Recipe, find_card
from auxlearn.data.tables import READ_FORMATS


def make_folder(name: str, source: Path, folder: Path) -> list[str]:
    """Write the folder of a data set of what its owner ships; return a line for each split."""
    card = find_card(name)
    if card.get is None:
        raise DataError(f"'{name}' needs no folder: it is read from the hub by --dataset {name}")
    paths = _files(card.get, source)
    splits = {split: _read(card, card.get, path) for split, path in paths.items()}
    if card.get.paired:
        for split, both in list(splits.items()):
            numbers = both.meta[card.get.paired]
            if numbers[::2] != numbers[1::2]:
                raise DataError(f"{paths[split]}: pairs are not on lines that follow one another")
            splits[split] = both.select(list(range(0, len(both), 2)))
            splits[f"{split}_revised"] = both.select(list(range(1, len(both), 2)))
    with replaced_folder(folder) as temporary:
        for split, examples in splits.items():
            if card.get.columns:
                lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in examples.rows())
                write_text(temporary / f"{split}.jsonl", "".join(lines))
            else:
                shutil.copyfile(paths[split], temporary / f"{split}{paths[split].suffix}")
    published = {split: card.sizes.get(split, len(one)) for split, one in splits.items()}
    return [
        f"{split}: {len(one):,} examples"
        + ("" if len(one) == published[split] else f"; {published[split]:,} are published")
        for split, one in splits.items()
    ]


def _files(recipe: Recipe, source: Path) -> dict[str, Path]:
    alone = source.is_file() and len(recipe.splits) == 1
    paths = {split: source if alone else source / file for split, file in recipe.splits.items()}
    for path in paths.values():
        if not path.exists():
            absent = path if source.exists() else source
            raise DataError(f"there is no {absent}: {_shipped(recipe)}")
    return paths


def _shipped(recipe: Recipe) -> str:
    return f"name by --from {' '.join(recipe.source.split())}"


def _read(card: DatasetCard, recipe: Recipe, path: Path) -> Split:
    """Read a split as the card describes it; CoNLL-U, which is read as it is, has no columns."""
    table = READ_FORMATS[recipe.format](path) if recipe.format else read_split([path])
    if not recipe.columns:
        return to_split(parse_examples(table, Columns()), path.stem)
    if missing := [name for name in recipe.columns.values() if name not in table.columns]:
        fault = f"has no column {some_of(missing)}, but {some_of(table.columns)}"
        raise DataError(f"{path} {fault}: {_shipped(recipe)}")
    names = {role: recipe.columns.get(role, role) for role in ("text", "text_pair", "label")}
    roles = {column: role for role, column in names.items() if column in table.columns}
    kept = {role: table.columns[column] for column, role in roles.items()}
    kept |= {column: table.columns[column] for column in recipe.meta if column in table.columns}
    for role in {"text", "text_pair"} & {*kept}:
        if recipe.python_bytes:
            kept[role] = [_decoded(text, table, row) for row, text in enumerate(kept[role])]
        if recipe.single_spaces:
            kept[role] = [" ".join(text.split()) for text in kept[role]]
    if recipe.labels_in_order and "label" in kept:
        found = sorted(set(kept["label"]))
        if len(found) != len(card.label_names):
            raise DataError(
                f"{path} has the labels {some_of(found)}, and not {len(card.label_names)} of them"
            )
        named = dict(zip(found, card.label_names, strict=True))
        kept["label"] = [named[label] for label in kept["label"]]
    # What stands for a missing label is told with the labels that are none of the card's.
    examples = parse_examples(replace(table, columns=kept), Columns(keep_null_labels=True))
    if foreign := set(own_names(examples)) - {*card.label_names}:
        raise DataError(
            f"{path} has the labels {some_of(sorted(foreign))}, which are none of the card's: "
            f"{some_of(card.label_names)}"
        )
    return to_split(examples, path.stem)


def _decoded(text: str, table: Table, row: int) -> str:
    """Return a text that is written as bytes of Python, with which Python 3 writes PAWS-QQP."""
    if not text.startswith(("b'", 'b"')):
        return text
    try:
        return bytes(ast.literal_eval(text)).decode()
    except (ValueError, SyntaxError, TypeError) as error:
        raise DataError(f"{table.place(row)}: {shorten(text)} are no bytes of Python") from error
