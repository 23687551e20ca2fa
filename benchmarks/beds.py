"""Settings with something to gain and without: their data, draws of these, and what is trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from auxlearn.core.errors import DataError
from auxlearn.core.files import write_json, write_text
from auxlearn.data.dataset import Split
from auxlearn.data.load import load_dataset
from auxlearn.data.splits import hold_out

#: What the auxiliary task reads: the labelled texts, all other texts of the data set without their
#: labels, the other examples with their labels, or texts of another data set.
Source = Literal["labelled", "corpus", "related", "foreign"]

DEV, TEST = 300, 600


@dataclass(frozen=True)
class Setting:
    """Data, their size, and an auxiliary task."""

    name: str
    data: str | None  # folder of the data set; None for the built-in one
    train: int  # labelled training examples
    aux: tuple[str, ...]
    reads: Source = "labelled"
    foreign: str | None = None  # folder of the data set that the task reads instead
    dev: int = DEV


SETTINGS = (
    Setting("pydocs 150, random_mlm, corpus", None, 150, ("random_mlm",), "corpus"),
    Setting("ACL-ARC 200, random_mlm, corpus", "citation_intent", 200, ("random_mlm",), "corpus"),
    Setting("SST-2 300, related", "sst2", 300, ("supervised",), "related"),
    Setting("SST-2 600, related", "sst2", 600, ("supervised",), "related"),
    Setting("SST-2 300, random_mlm, labelled texts", "sst2", 300, ("random_mlm",)),
    Setting("pydocs 150, shuffled_labels", None, 150, ("shuffled_labels",)),
    Setting("pydocs 300, l3mask", None, 300, ("l3mask",)),
    Setting("SST-2 100, foreign text", "sst2", 100, ("random_mlm",), "foreign", "citation_intent"),
    Setting("pydocs 150, random_mlm + simcse", None, 150, ("random_mlm", "simcse"), "corpus"),
)


def write_draw(setting: Setting, draw: int, data: Path | None, folder: Path) -> None:
    """Write the data of a draw: ``train``, ``dev``, ``test``, and what the auxiliary task reads.

    Raises:
        DataError: The data set is missing.
    """
    done = folder / "draw.json"
    if done.is_file():
        return
    source = "pydocs" if setting.data is None else str((data or Path()) / setting.data)
    if setting.data is not None and not Path(source).is_dir():
        raise DataError(f"there is no folder {source}: name the folder of the data with --data")
    dataset = load_dataset(source)
    pool = join(dataset.split("train"), dataset.split("dev"))
    rest, dev = hold_out(pool, setting.dev / len(pool), seed=draw)
    rest, train = hold_out(rest, setting.train / len(rest), seed=draw)
    test = dataset.split("test")
    if len(test) > TEST:
        _, test = hold_out(test, TEST / len(test), seed=0)
    for split, name in ((train, "train"), (dev, "dev"), (test, "test")):
        write_split(folder / f"{name}.jsonl", split)
    if setting.foreign is not None:
        rest = load_dataset(str((data or Path()) / setting.foreign)).split("train")
    if setting.reads == "related":
        write_split(folder / "related" / "train.jsonl", rest)
    elif setting.reads in ("corpus", "foreign"):
        texts = [*rest.texts, *(rest.text_pairs or ())]
        lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
        write_text(folder / "unlabelled" / "corpus.jsonl", lines)
    write_json(done, {"setting": setting.name, "draw": draw, "fingerprint": dataset.fingerprint})


def join(first: Split, second: Split) -> Split:
    """Return the examples of two splits with the same labels."""
    assert first.labels is not None
    assert second.labels is not None
    assert first.label_names == second.label_names
    pairs = None if first.text_pairs is None else first.text_pairs + (second.text_pairs or ())
    return Split(
        "pool",
        first.texts + second.texts,
        first.labels + second.labels,
        first.label_names,
        pairs,
    )


def write_split(path: Path, split: Split) -> None:
    """Write a split as JSON lines."""
    assert split.labels is not None
    lines = []
    pairs = split.text_pairs or (None,) * len(split)
    for text, pair, label in zip(split.texts, pairs, split.labels, strict=True):
        content = {"text": text, "label": split.label_names[label]}
        lines.append(content if pair is None else content | {"text_pair": pair})
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def settings_of(
    setting: Setting, draw: int, share: float, restart: int, folder: Path, base: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings of a run.

    Args:
        setting: The setting.
        draw: Number of the draw.
        share: Share of all auxiliary tasks; 0 is the single task.
        restart: Number of the seed: 0 is that of the draw, others are restarts.
        folder: Data of the draw.
        base: Settings of all runs.
    """
    settings = {
        **base,
        "dataset": str(folder),
        "metric": "accuracy",
        "seed": draw + 1000 * restart,
    }
    if not share:
        return settings
    options: dict[str, Any] = {}
    if setting.reads == "related":
        options = {"datasets": str(folder / "related")}
    elif setting.reads in ("corpus", "foreign"):
        options = {"corpus": str(folder / "unlabelled" / "corpus.jsonl")}
    settings["aux"] = tuple({name: options} for name in setting.aux)
    settings["weights"] = {"fixed": {"alpha": share, "mix": "steps"}}
    return settings


def data_labels(settings: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the true classes of dev and test."""
    dataset = load_dataset(settings["dataset"])
    return [np.array(dataset.split(name).labels) for name in ("dev", "test")]
