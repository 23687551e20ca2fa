"""A run of each kind of labels, trained once for all tests: see the fixture ``trained``."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import helpers

WORDS = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "runs",
    "eats",
    "sees",
    "the",
    "a",
    "Paris",
    "London",
    "John",
    "Mary",
)
SPANS = {"Paris": "B-LOC", "London": "B-LOC", "John": "B-PER", "Mary": "B-PER"}

#: Kinds of labels, and the settings of their runs beside the common ones.
KINDS: dict[str, dict[str, Any]] = {
    "classification": {"aux": ["mask_tuning"], "max_length": 16},
    "multi_label": {"aux": ["random_mlm"]},
    "regression": {"aux": ["random_mlm"]},
    "token_classification": {"aux": ["random_mlm"]},
    "dependency": {"aux": ["random_mlm"], "kind": "dependency"},
}


@dataclass(frozen=True)
class Trained:
    """Where the run of a kind lies, with all that it was made from.

    Attributes:
        kind: Of its labels.
        folder: Holds what the properties name.
    """

    kind: str
    folder: Path

    @property
    def data(self) -> Path:
        """Folder of the data set, with train, dev and test as JSON lines."""
        return self.folder / "data"

    @property
    def encoder(self) -> Path:
        """Folder of the encoder: BERT with a single layer."""
        return self.folder / "encoder"

    @property
    def finished(self) -> Path:
        """Folder of the run."""
        return self.folder / "finished"

    @property
    def unfinished(self) -> Path:
        """Folder of the run as it was before its third step, which is what a kill leaves."""
        return self.folder / "unfinished"


def example(kind: str, draw: random.Random) -> dict[str, Any]:
    """An example of a kind of labels whose labels follow from its words."""
    words = [draw.choice(WORDS) for _ in range(draw.randint(4, 9))]
    text = " ".join(words)
    if kind == "multi_label":
        return {"text": text, "label": [w for w in ("Paris", "London", "John") if w in words]}
    if kind == "regression":
        return {"text": text, "label": words.count("the") + 0.5 * words.count("a") + 0.25}
    if kind == "dependency":  # all hang on the first word
        relations = ["det" if word in ("the", "a") else "dep" for word in words[1:]]
        return {"tokens": words, "head": [0] + [1] * len(relations), "deprel": ["root", *relations]}
    return {"tokens": words, "tags": [SPANS.get(word, "O") for word in words]}


def examples(kind: str) -> dict[str, list[dict[str, Any]]]:
    """Train, dev and test examples of a kind of labels."""
    if kind == "classification":
        rows = helpers.rows()
        return {"train": rows[:16], "dev": rows[16:20], "test": rows[20:]}
    draw = random.Random(0)
    sizes = {"train": 16, "dev": 8, "test": 8}
    return {name: [example(kind, draw) for _ in range(size)] for name, size in sizes.items()}


def train_kind(kind: str, folder: Path) -> None:
    """Train the run of a kind, and keep a copy of it from before its third step."""
    from auxlearn import train

    made = Trained(kind, folder)
    helpers.write_splits(made.data, **examples(kind))
    helpers.write_one_layer(made.encoder)
    with pytest.MonkeyPatch.context() as patch:
        helpers.only_builtin_plugins(patch)
        helpers.copy_before_step(patch, 2, made.unfinished)
        train(
            dataset=str(made.data),
            encoder=str(made.encoder),
            output=str(made.finished),
            epochs=1,
            batch_size=4,
            eval_steps=1,
            patience=0,
            device="cpu",
            verbose=False,
            **{"max_length": 32} | KINDS[kind],
        )
