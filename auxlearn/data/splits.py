"""Stratified, seeded splitting, once or in folds, that keeps equal texts on one side."""

from __future__ import annotations

import hashlib
import itertools
import random
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace

from auxlearn.core.errors import DataError, some_of
from auxlearn.core.rng import derive_seed
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.examples import LACKED

_NOT_LETTER_OR_DIGIT = re.compile(r"[\W_]+")


def normalise(text: str) -> str:
    """Return the letters, their marks and digits of a text, case-folded; if none, itself."""
    if text.isascii():
        return _NOT_LETTER_OR_DIGIT.sub("", text.casefold()) or text.strip()
    folded = unicodedata.normalize("NFC", text).casefold()
    return _NOT_LETTER_OR_DIGIT.sub(_leading_marks, folded) or text.strip()


def _leading_marks(found: re.Match[str]) -> str:
    return "".join(itertools.takewhile(is_mark, found[0]))


def is_mark(character: str) -> bool:
    """Return whether a character is combined with the one before it; ``\\w`` matches none."""
    return unicodedata.category(character)[0] == "M"


def text_keys(split: Split, *, exact: bool = False) -> list[tuple[str, ...]]:
    """Return a key per example that is equal for equal texts: the text, or both texts of a pair."""
    columns = [split.texts] if split.text_pairs is None else [split.texts, split.text_pairs]
    if not exact:
        columns = [tuple(map(normalise, column)) for column in columns]
    return list(zip(*columns, strict=True))


def hold_out(split: Split, share: float, seed: int, name: str = "dev") -> tuple[Split, Split]:
    """Hold out a stratified share of a split."""
    if not 0 < share < 1:
        raise DataError(
            f"the share to hold out of '{split.name}' must lie between 0 and 1: {share}"
        )
    parts = max(1, round(share * len(split)))  # each of them has one that is held out
    labels = split.kind.strata(split.labels, parts) if split.labels else (0,) * len(split)
    keys = text_keys(split)
    held = set(choose_held_out(labels, keys, share, seed))
    if not held:
        alone = ", each in a stratum of labels of its own" if split.labels else ""
        raise DataError(
            f"split '{split.name}' is too small to hold anything out (different texts: "
            f"{len(set(keys))}{alone}): add examples{', or a split dev' if name == 'dev' else ''}"
        )
    rest = [index for index in range(len(split)) if index not in held]
    return split.select(rest), split.select(sorted(held), name=name)


def hold_out_of_many(split: Split, count: int, advance: Callable[[int], None]) -> list[int]:
    """Return the rows of ``count`` texts at most to hold out, ascending, whatever the order of all;
    equal texts stay together. Of each text a digest is kept in memory: the lowest ones are chosen.
    """
    import numpy as np

    columns = [split.texts] if split.text_pairs is None else [split.texts, split.text_pairs]

    def digests() -> Iterator[int]:
        for key in zip(*columns, strict=True):
            text = "\0".join(map(normalise, key)).encode("utf-8", "surrogatepass")
            yield int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
            advance(1)

    of_texts = np.fromiter(digests(), np.uint64, len(split))
    for share in (4 * count / len(split), 1.0):  # of all: a few, or where most are copies, each
        rows = (of_texts <= share * 2.0**64).nonzero()[0]
        distinct, copies = np.unique(of_texts[rows], return_counts=True)
        kept = np.where(copies <= count, copies, 0)
        if kept.sum() > count:
            break
    held = distinct[(kept > 0) & (kept.cumsum() <= count)]
    if not len(held):
        raise DataError(
            f"split '{split.name}' has nothing to hold out (different texts: {len(distinct)}, each "
            f"more than {count:,} times): add examples"
        )
    return rows[np.isin(of_texts[rows], held)].tolist()


def choose_held_out(
    labels: Sequence[int], keys: Sequence[tuple[str, ...]], share: float, seed: int
) -> list[int]:
    """Choose the examples to hold out, whatever their order; those with equal keys stay together.
    Classes with two keys or more are on both sides, as close to their share as keys allow.
    """
    indices_of_key: dict[tuple[str, ...], list[int]] = defaultdict(list)
    keys_of_label: dict[int, dict[tuple[str, ...], int]] = defaultdict(dict)
    for index, (label, key) in enumerate(zip(labels, keys, strict=True)):
        indices_of_key[key].append(index)
        keys_of_label[label][key] = keys_of_label[label].get(key, 0) + 1

    held: set[tuple[str, ...]] = set()
    kept: set[tuple[str, ...]] = set()
    # The rarest class first: it has the fewest alternatives where a text has several labels.
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
    return sorted(index for key in held for index in indices_of_key[key])


def assign_folds(
    labels: Sequence[int], keys: Sequence[Hashable], folds: int, seed: int
) -> list[int]:
    """Divide examples into folds of similar size and classes; equal keys are in one fold."""
    labels_of: dict[Hashable, Counter[int]] = defaultdict(Counter)
    for label, key in zip(labels, keys, strict=True):
        labels_of[key][label] += 1
    if len(labels_of) < folds:
        raise DataError(
            f"{len(labels_of)} distinct training texts cannot be divided into {folds} folds: "
            "choose fewer folds"
        )
    order = sorted(labels_of, key=repr)
    random.Random(derive_seed(seed, "folds")).shuffle(order)
    order.sort(key=lambda key: -labels_of[key].total())  # large groups first; otherwise shuffled
    sizes = [0] * folds
    sizes_by_label: dict[int, list[int]] = defaultdict(lambda: [0] * folds)
    fold_of = {}
    for key in order:
        label = min(labels_of[key], key=lambda one: (-labels_of[key][one], one))
        own = sizes_by_label[label]
        fold = min(range(folds), key=lambda number: (own[number], sizes[number], number))
        fold_of[key] = fold
        sizes[fold] += labels_of[key].total()
        for one, count in labels_of[key].items():
            sizes_by_label[one][fold] += count
    return [fold_of[key] for key in keys]


def take_fold(dataset: TextDataset, fold: str) -> TextDataset:
    """Return a data set that is tested on one fold of train and trained on the others, the same
    ones for every run. Its own test split is left out: it remains for the method that was chosen.
    """
    number, count = map(int, fold.split("/"))
    train = dataset.splits["train"]
    assert train.labels is not None
    fold_of = assign_folds(train.kind.strata(train.labels), text_keys(train), count, seed=0)
    held = [index for index, one in enumerate(fold_of) if one == number - 1]
    rest = [index for index, one in enumerate(fold_of) if one != number - 1]
    splits = {name: split for name, split in dataset.splits.items() if name != "test"}
    splits |= {"train": train.select(rest), "test": train.select(held, name="test")}
    note = (
        f"fold {number} of {count} (stratified, equal texts in one fold): {len(held)} of the "
        f"{len(train)} examples of train are tested on"
    )
    if "test" in dataset.splits:
        note += f"; the test split of the data set ({len(dataset.splits['test'])}) is not read"
    notes = [*(one for one in dataset.notes if not one.startswith(f"test {LACKED}")), note]
    tested, trained = (
        {number for row in rows for number in train.kind.classes(train.labels[row])}
        for rows in (held, rest)
    )
    alone = sorted(tested - trained)
    if alone:
        notes.append(
            f"fold {number} of {count} tests on all examples of some classes, which cannot be "
            f"learned from the other folds: {some_of(train.label_names[label] for label in alone)}"
        )
    return replace(dataset, splits=splits, notes=tuple(notes))
