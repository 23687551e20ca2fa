"""Leaks: examples that a run is evaluated on, among what else it is trained on with labels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import numpy as np

from auxlearn.core.errors import DataError, EncoderError
from auxlearn.core.files import regular, user_path
from auxlearn.core.settings import encoder_source
from auxlearn.data.dataset import Split

#: File of a model's folder with the :func:`example_keys` of all that it was trained on.
FILE = "trained_on.keys"

NO_EXAMPLES = np.empty((0, 2), dtype=np.uint64)


def example_keys(split: Split) -> np.ndarray:
    """Return a hash of the text, and one of text and label, of each example of a labelled split,
    ``(examples, 2)``. Case and white space do not count.
    """
    assert split.labels is not None
    keys = np.empty((len(split), 2), dtype=np.uint64)
    pairs = split.text_pairs or ("",) * len(split)
    for row, texts in enumerate(zip(split.texts, pairs, strict=True)):
        label = json.dumps(split.kind.written(split.labels[row], split.label_names))
        digest = blake2b(digest_size=8)
        for part in texts:
            digest.update(" ".join(part.casefold().split()).encode("utf-8", "surrogatepass"))
            digest.update(b"\0")
        keys[row, 0] = int.from_bytes(digest.digest())
        digest.update(label.encode())
        keys[row, 1] = int.from_bytes(digest.digest())
    return keys


class Evaluated:
    """The examples of evaluated splits, without those that train has as well, which are counted in
    the results; ``say`` receives what was found, one sentence at a time.
    """

    def __init__(self, splits: Sequence[Split], train: Split, say: Callable[[str], None]) -> None:
        self._splits = [one for one in splits if one.labels is not None]
        self._train = train
        self._say = say
        self.trained: list[np.ndarray] = []  # keys of the further examples that are trained on

    @cached_property
    def train_keys(self) -> np.ndarray:
        return example_keys(self._train)

    @cached_property
    def _keys(self) -> list[np.ndarray]:
        """The different texts, and the different examples."""
        found = np.concatenate([NO_EXAMPLES, *map(example_keys, self._splits)])
        return [np.setdiff1d(found[:, column], self.train_keys[:, column]) for column in (0, 1)]

    def count(self, trained: np.ndarray) -> int:
        """Return how many of the evaluated examples are among those of the given keys."""
        return int(np.isin(self._keys[1], trained[:, 1]).sum())

    def left_out_of(self, split: Split, title: str) -> Split:
        """Return a labelled split without the examples that are evaluated, if one is left."""
        keys = example_keys(split)
        evaluated = np.isin(keys[:, 1], self._keys[1])
        other_label = np.isin(keys[:, 0], self._keys[0]) & ~evaluated
        self.trained.append(keys[~evaluated])
        if evaluated.all() and len(split):
            raise DataError(f"{title}: all of its examples are evaluated in this run: leave it out")
        if evaluated.any():
            self._say(
                f"{title}: {int(evaluated.sum())} of {len(split)} examples are left out, as text "
                "and label are among those that this run is evaluated on"
            )
        if other_label.any():
            self._say(
                f"{title}: the texts of {int(other_label.sum())} examples are evaluated in this "
                "run, with other labels"
            )
        return split.select(np.flatnonzero(~evaluated).tolist()) if evaluated.any() else split


def trained_on(encoder: str) -> np.ndarray:
    """Return the keys of the examples that an encoder's folder says that it was trained on."""
    path = user_path(encoder_source(encoder), EncoderError) / FILE
    try:
        with open(path, "rb", opener=regular) as file:
            return np.frombuffer(file.read(), dtype="<u8").reshape(-1, 2)
    except (FileNotFoundError, NotADirectoryError):
        return NO_EXAMPLES
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a list of keys"
        raise EncoderError(f"{path} is damaged ({reason}): copy the model again") from None


def count_trained_on(model: Path, split: Split) -> int:
    """Return how many texts of a split a model was trained on, as its folder says."""
    return int(np.isin(example_keys(split)[:, 0], trained_on(str(model))[:, 0]).sum())


def save_trained_on(folder: Path, keys: Iterable[np.ndarray]) -> None:
    """Write the keys of examples into the folder of a model, unless there are none."""
    found = np.unique(np.concatenate([NO_EXAMPLES, *keys]), axis=0)
    if len(found):
        (folder / FILE).write_bytes(found.astype("<u8").tobytes())
