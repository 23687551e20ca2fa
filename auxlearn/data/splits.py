"""Cutting a part off a split: stratified, seeded, and with equal texts on one side."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence

from auxlearn.data.dataset import Split
from auxlearn.errors import DataError
from auxlearn.rng import derive_seed

_NOT_LETTER_OR_DIGIT = re.compile(r"[\W_]+")


def normalise(text: str) -> str:
    """Return the letters and digits of a text, case-folded.

    A text without any, such as "!!!", stands for itself, so that it equals no other one.

    Examples:
        >>> normalise("State-of-the-art, again!"), normalise("!!!")
        ('stateoftheartagain', '!!!')
    """
    return _NOT_LETTER_OR_DIGIT.sub("", text.casefold()) or text.strip()


def text_keys(split: Split, *, exact: bool = False) -> list[tuple[str, ...]]:
    """Return what tells rows apart by text: a text, or both texts of a pair.

    Args:
        split: The rows.
        exact: Compare the texts as they are; otherwise by :func:`normalise`.
    """
    columns = [split.texts] if split.text_pairs is None else [split.texts, split.text_pairs]
    if not exact:
        columns = [tuple(map(normalise, column)) for column in columns]
    return list(zip(*columns, strict=True))


def hold_out(split: Split, share: float, seed: int, name: str = "dev") -> tuple[Split, Split]:
    """Cut a stratified share off a split.

    Args:
        split: The rows to divide.
        share: About which part of each class to hold out, between 0 and 1.
        seed: Seed of the choice.
        name: Name of the part held out.

    Returns:
        The rest, under its old name, and the part held out; both in the old order of rows.

    Raises:
        DataError: The share is not between 0 and 1, or there are not two different texts.
    """
    if not 0 < share < 1:
        raise DataError(
            f"the share to hold out of '{split.name}' must lie between 0 and 1: {share}"
        )
    labels = split.labels or (0,) * len(split)
    held = set(choose_held_out(labels, text_keys(split), share, seed))
    if not held:
        raise DataError(f"split '{split.name}' is too small to hold anything out: add rows")
    rest = [row for row in range(len(split)) if row not in held]
    return split.select(rest), split.select(sorted(held), name=name)


def choose_held_out(
    labels: Sequence[int], keys: Sequence[tuple[str, ...]], share: float, seed: int
) -> list[int]:
    """Choose the rows to hold out.

    Rows with equal keys stay together. Every class with at least two different keys is on both
    sides; only texts that carry several labels can make that impossible. The number of rows held
    out of a class is its share, rounded, or as near as keeping equal texts together allows. The
    choice does not depend on the order of the rows.

    Args:
        labels: One label per row.
        keys: One text key per row, as from :func:`text_keys`.
        share: Part to hold out, between 0 and 1.
        seed: Seed of the choice.

    Returns:
        Row numbers in ascending order.
    """
    rows_of_key: dict[tuple[str, ...], list[int]] = defaultdict(list)
    keys_of_label: dict[int, dict[tuple[str, ...], int]] = defaultdict(dict)
    for row, (label, key) in enumerate(zip(labels, keys, strict=True)):
        rows_of_key[key].append(row)
        keys_of_label[label][key] = keys_of_label[label].get(key, 0) + 1

    held: set[tuple[str, ...]] = set()
    kept: set[tuple[str, ...]] = set()
    # The rarest class first: it has the least choice where a text carries several labels.
    for label in sorted(keys_of_label, key=lambda label: (len(keys_of_label[label]), label)):
        counts = keys_of_label[label]
        free = sorted(key for key in counts if key not in held and key not in kept)
        random.Random(derive_seed(seed, "hold out", label)).shuffle(free)
        if free and kept.isdisjoint(counts):
            kept.add(free.pop())
        wanted = max(1, round(share * sum(counts.values())))
        wanted -= sum(count for key, count in counts.items() if key in held)
        for key in free:
            if counts[key] <= wanted:
                held.add(key)
                wanted -= counts[key]
        if free and held.isdisjoint(counts):
            held.add(min(free, key=lambda key: counts[key]))
    return sorted(row for key in held for row in rows_of_key[key])
