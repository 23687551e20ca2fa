"""What is compared on what: settings, methods, and the sweep that each setting is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from auxlearn.core.config import Metric
from auxlearn.core.errors import DataError, SweepError, did_you_mean
from auxlearn.core.files import write_json, write_text
from auxlearn.core.registry import WEIGHTINGS
from auxlearn.data.load import load_dataset
from auxlearn.data.splits import hold_out
from auxlearn.sweeps.sweep_file import SweepFile, label
from auxlearn.weighting.base import ValidationOptions

#: Auxiliary shares that are tried; 0, the single task, belongs to the grid as well.
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
TASKS = ("random_mlm", "l3mask", "mask_tuning")
#: Two auxiliary tasks at once, of which one has nothing to teach: it predicts shuffled labels.
PAIR = "random_mlm+shuffled_labels"
#: Registers ``shuffled_labels``.
PAIR_PLUGIN = Path(__file__).parents[2] / "examples" / "clean_vs_shuffled.py"
SINGLE, FIXED = "single", "fixed"
#: Rules without validation data that take part where they are registered.
BESIDE = ("uncertainty", "random", "equal")


@dataclass(frozen=True)
class Setting:
    """A data set at a size.

    Attributes:
        name: What options and tables call it.
        source: Name of its folder in that of all data; ``None`` for the built-in set.
        train: Training examples that are drawn from it; ``None``: all of them.
        metric: What is reported, and chooses checkpoint and alpha.
    """

    name: str
    source: str | None
    train: int | None
    metric: Metric = "accuracy"

    @property
    def folder(self) -> str:
        """Name of the folders of its data and its sweep: another size is another folder."""
        return f"{self.name}-{self.train or 'all'}"


SETTINGS = (
    Setting("pydocs", None, None),
    Setting("acl_arc", "citation_intent", None, "macro_f1"),
    Setting("sst2_small", "sst2", 600),
    Setting("sst2", "sst2", 3000),
    Setting("imdb", "imdb", 600),
    Setting("ohsumed", "ohsumed", 1000, "macro_f1"),
    Setting("mnli", "mnli", 1000),
    Setting("qqp", "qqp", 1000),
)
#: Settings that no default was chosen by; the report gives them apart.
HELD_OUT = ("imdb", "ohsumed", "mnli")
#: Settings on which another encoder than the built-in one is tried.
ENCODER_SETTINGS = ("acl_arc", "sst2_small", "imdb")


@dataclass(frozen=True)
class Method:
    """A way to train.

    Attributes:
        name: "single", "fixed 0.3", or the name of a rule.
        task: The auxiliary task, or several with ``+`` between them; empty for the single task.
        alpha: Share of all auxiliary tasks, 0 for the single task, ``None`` for a rule.
        settings: Of the run.
    """

    name: str
    task: str
    alpha: float | None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its name within a sweep."""
        return f"{self.task} {self.name}" if self.task else self.name


def choose_settings(
    only: Sequence[str] | None, sizes: Mapping[str, int], encoder: str
) -> list[Setting]:
    """Return settings by name, with other sizes where they are given.

    Raises:
        SweepError: There is no setting of a name.
    """
    known = {setting.name: setting for setting in SETTINGS}
    for name in [*(only or ()), *sizes]:
        if name not in known:
            raise SweepError(f"there is no setting '{name}': {did_you_mean(name, known)}")
    names = only or (known if encoder == "tiny" else ENCODER_SETTINGS)
    return [replace(known[name], train=sizes.get(name, known[name].train)) for name in names]


def rules() -> list[str]:
    """Return every registered rule that learns from validation data, and those beside them."""
    learning = [
        name
        for name in WEIGHTINGS.names()
        if issubclass(WEIGHTINGS.get(name).Options, ValidationOptions)
    ]
    return [*learning, *(name for name in BESIDE if name in WEIGHTINGS.names())]


def methods_of(
    wanted: Sequence[str] | None = None,
    tasks: Sequence[str] = TASKS,
    variants: Sequence[Mapping[str, Any]] = (),
) -> list[Method]:
    """Return the methods: the single task, fixed weights and every rule with every task.

    Args:
        wanted: Some of "single", "fixed" and the rules; by default all.
        tasks: The auxiliary tasks; several with ``+`` between them are trained together.
        variants: Rules with options of their own, such as ``{"meta": {"split": "train:0.2"}}``.

    Raises:
        SweepError: A wanted method is not known.
    """
    named: dict[str, Any] = {name: name for name in rules()}
    named["meta"] = {"meta": {"horizon": "steps"}}  # the rule of one run: see benchmarks.horizon
    named |= {label(variant): variant for variant in variants}
    known = (SINGLE, FIXED, *named)
    for name in wanted or ():
        if name not in known:
            raise SweepError(f"there is no method '{name}': {did_you_mean(name, known)}")
    chosen = set(wanted or known)
    found = [Method(SINGLE, "", 0.0, {"aux": []})] if SINGLE in chosen else []
    for task in tasks:
        common: dict[str, Any] = {"aux": task.split("+")}
        if task == PAIR:
            common["plugins"] = [str(PAIR_PLUGIN)]
        for alpha in ALPHAS if FIXED in chosen else ():
            fixed = {"alpha": alpha, "mix": "gradients"}  # weighted losses, as in the papers
            settings = common | {"weights": {"fixed": fixed}}
            found.append(Method(f"{FIXED} {alpha:g}", task, alpha, settings))
        for name, weights in named.items():
            if name in chosen:
                found.append(Method(name, task, None, common | {"weights": weights}))
    return found


def sweep_of(
    setting: Setting,
    methods: Sequence[Method],
    seeds: Sequence[int],
    dataset: str,
    base: Mapping[str, Any],
) -> SweepFile:
    """Return the sweep of a setting.

    Args:
        setting: The data.
        methods: What competes.
        seeds: Of every method.
        dataset: Where the data are.
        base: Settings of all runs.
    """
    return SweepFile(
        name=f"regret-{setting.folder}",
        base={"dataset": dataset, "metric": setting.metric, **base},
        grid={"method": {method.label: dict(method.settings) for method in methods}},
        seeds=tuple(seeds),
    )


def write_subset(source: Path, folder: Path, examples: Mapping[str, int | None]) -> None:
    """Write a stratified sample of a data set as a data set; the same one whoever calls.

    Args:
        source: A folder that auxlearn reads.
        folder: Where to write; left alone if it holds this very sample.
        examples: About how many of each split; ``None``: all.

    Raises:
        DataError: The folder holds another sample, or the source lacks a split or its labels.
    """
    dataset = load_dataset(str(source))
    about = {
        "source": source.name,
        "fingerprint": dataset.fingerprint,
        "examples": dict(examples),
        "seed": 0,
    }
    note = folder / "subset.json"
    if note.is_file():
        if json.loads(note.read_text(encoding="utf-8")) != about:
            raise DataError(
                f"{folder} holds another sample, or {source} has changed: choose another --output"
            )
        return
    for name, count in examples.items():
        split = dataset.split(name)
        if split.labels is None:
            raise DataError(f"split '{name}' of {source} has no labels")
        if count is not None and count < len(split):
            _, split = hold_out(split, count / len(split), seed=0)
        assert split.labels is not None
        pairs = split.text_pairs or (None,) * len(split)
        lines = []
        for text, pair, number in zip(split.texts, pairs, split.labels, strict=True):
            content = {"text": text, "label": split.label_names[number]}
            lines.append(content if pair is None else content | {"text_pair": pair})
        write_text(
            folder / f"{name}.jsonl",
            "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines),
        )
    write_json(note, about)  # last: its presence says that the sample is whole
