"""A run on a tiny model in memory, with any objectives and any weighting."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from auxlearn.core.cache import TensorCache
from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS, Registry
from auxlearn.core.validation import Settings, validate
from auxlearn.data.batches import Batch, BatchStream
from auxlearn.data.dataset import Split
from auxlearn.data.tokens import Tokenization
from auxlearn.encoders.load import load_encoder, save_untrained
from auxlearn.encoders.optimizer import Schedule, build_optimizer
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.encoders.trainable import LowRankAdapters, freeze
from auxlearn.kinds.base import Kind, all_kinds
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.losses.base import PrimaryLoss
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.tasks.base import AuxiliaryTask
from auxlearn.training.checkpoint import load_optimizer_tensors
from auxlearn.training.plugin_checks import check_prepared
from auxlearn.training.setup import auxiliary, training_step
from auxlearn.weighting.base import Weighting
from auxlearn.weighting.state import optimizer_tensors

LABELS = ("weather", "kitchen", "music")

#: Texts of two sentences, one class after the other, so that batches have padding.
TEXTS = (
    "It rained all night. The river rose.",
    "Cut the onions finely. Then fry them in a little butter until they are brown.",
    "The choir sang. Nobody coughed.",
    "Snow fell on the hills. By noon the road to the village was closed for all traffic.",
    "Taste the soup. It needs salt.",
    "She plays the cello. Her brother prefers the drums, to the sorrow of all the neighbours.",
    "A warm wind came up. The ice on the lake broke with a sound like thunder in the distance.",
    "Bake the bread for an hour. Let it rest before you cut it.",
    "The second violin was late. The concert began without her.",
    "Fog lay over the harbour. No ship left.",
    "Stir the sauce. Never let it boil.",
    "He tuned the old piano twice. It was still out of tune by the evening of the same day.",
    "The storm passed. Two trees had fallen on the barn.",
    "Peel the apples. Keep the skins for the jelly.",
    "The song has four verses. Only one is known.",
    "Clouds gathered in the west. The farmers hurried to bring in the hay before the rain.",
    "Grind the pepper. A pinch is enough for four.",
    "The band played until three. Then the police came.",
)
#: Examples of train; the others are dev.
TRAIN = 12
BATCH_SIZE = 4
MAX_LENGTH = 48
STEPS = 3

#: A plug-in with its options: a class or a registered name, and a mapping.
Choice = tuple[Any, Mapping[str, Any]]


def write_dataset(folder: Path, kind: Kind = CLASSIFICATION) -> Path:
    """Write the texts as a data set with train, dev and test; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (text, *_), (label, *_) = kind.text_columns, kind.label_columns
    whole = _split("test", kind, 0, len(TEXTS))
    lines = [json.dumps(row) + "\n" for row in whole.rows(text, label=label)]
    for name, members in {"train": lines[:TRAIN], "dev": lines[TRAIN:], "test": lines}.items():
        (folder / f"{name}.jsonl").write_text("".join(members), encoding="utf-8")
    return folder


def kind_for(loss: PrimaryLoss) -> Kind:
    """Return the kind of labels that a loss is tried with: one of this package if it can be."""
    own_last = sorted(
        all_kinds(), key=lambda kind: not type(kind).__module__.startswith("auxlearn.")
    )
    return next(kind for kind in own_last if loss.takes(kind))


@dataclass(frozen=True)
class Objectives:
    """What a tiny run is trained with."""

    tasks: Sequence[Choice] = ()
    loss: Choice = ("cross_entropy", {})
    weighting: Choice = ("fixed", {})


@dataclass(frozen=True)
class Circumstances:
    """How a tiny run is trained."""

    cache: Path  # folder of the cache
    seed: int = 0
    dropout: bool = True  # whether dropout is on in training
    gradient_accumulation_steps: int = 1  # micro-batches per optimizer step
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    metric: Any = "accuracy"  # metric whose surrogate the validation loss is
    #: Parameters to keep as they are; see :func:`~auxlearn.encoders.trainable.freeze`.
    freeze: str = "none"
    lora_rank: int = 0  # of adapters that are trained in place of the body; 0: none


class TinyRun:
    """The optimizer steps of a run on a very small encoder, without files."""

    def __init__(self, objectives: Objectives, circumstances: Circumstances) -> None:
        self._seed = seed = circumstances.seed
        self.loss: PrimaryLoss = build(LOSSES, objectives.loss)
        kind = kind_for(self.loss)
        self.encoder = copy.deepcopy(untrained_encoder(kind)).to(circumstances.device)
        self._cache = TensorCache(circumstances.cache)
        tokenization = Tokenization(self.encoder.tokenizer, MAX_LENGTH)
        self._split, dev = _split("train", kind, 0, TRAIN), _split("dev", kind, TRAIN, len(TEXTS))
        self._texts, dev_texts = (
            tokenization.tokenize_split(split, self._cache) for split in (self._split, dev)
        )
        self.loss.prepare(self.context("primary"))
        self.tasks: dict[str, AuxiliaryTask] = {}
        auxiliaries = []
        for choice in objectives.tasks:
            task: AuxiliaryTask = build(TASKS, choice)
            name = task.name if task.name not in self.tasks else f"{task.name}_2"
            task.prepare(self.context(name))
            check_prepared(task, name)
            self.tasks[name] = task
            auxiliaries.append(auxiliary(name, task, BATCH_SIZE, seed))
        names = ("primary", *self.tasks)
        self.weighting: Weighting = build(WEIGHTINGS, objectives.weighting, names)
        freeze(self.encoder, circumstances.freeze)
        if circumstances.lora_rank:
            LowRankAdapters(self.encoder, circumstances.lora_rank, 16.0, 0.0, seed)
        if not circumstances.dropout:
            _disable_dropout(self.encoder)
        self.encoder.train()
        trained = [p for p in self.encoder.parameters() if p.requires_grad]
        optimizer = build_optimizer(trained, 1e-3, 0.01)
        self.step = training_step(
            self.weighting,
            dev_texts,
            circumstances.metric,
            encoder=self.encoder,
            primary=BatchStream(self._texts, BATCH_SIZE, seed, "primary"),
            primary_loss=self.loss,
            auxiliaries=auxiliaries,
            schedule=Schedule(optimizer, STEPS, 0.0),
            seed=seed,
            gradient_accumulation_steps=circumstances.gradient_accumulation_steps,
        )

    def context(self, name: str) -> ObjectiveContext:
        return ObjectiveContext(
            name,
            self.encoder,
            self._split,
            self._texts,
            max_length=MAX_LENGTH,
            cache=self._cache,
            seed=self._seed,
        )

    def train(self, start: int = 0, stop: int = STEPS) -> list[dict[str, float]]:
        """Make the optimizer steps from ``start`` to ``stop``; return the losses of each."""
        losses = []
        for number in range(start, stop):
            self.step.begin(number)
            self.weighting.step(self.step)
            losses.append({name: float(loss) for name, loss in self.step.losses.items()})
        return losses

    def batch(self, name: str) -> Batch:
        stream = {part.name: part.stream for part in self.step.auxiliaries}.get(name)
        return (stream or self.step.primary).batch(0)

    def tensors(self) -> dict[str, Tensor]:
        """Return copies of all that a checkpoint holds, by name."""
        groups: dict[str, Mapping[str, Tensor]] = {
            "encoder": self.encoder.tensors(),
            "optimizer": optimizer_tensors(self.step.optimizer),
            "weighting": self.weighting.state_dict(),
            "loss": self.loss.state_dict(),
            **{f"task-{name}": task.state_dict() for name, task in self.tasks.items()},
        }
        return {
            f"{group}:{name}": tensor.detach().clone()
            for group, tensors in groups.items()
            for name, tensor in tensors.items()
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`tensors` returned."""
        groups: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            group, _, rest = name.partition(":")
            groups.setdefault(group, {})[rest] = tensor.clone()
        self.encoder.load_tensors(groups["encoder"])
        load_optimizer_tensors(self.step.optimizer, groups.get("optimizer", {}))
        self.weighting.load_state_dict(groups.get("weighting", {}))
        self.loss.load_state_dict(groups.get("loss", {}))
        for name, task in self.tasks.items():
            task.load_state_dict(groups.get(f"task-{name}", {}))


def build(registry: Registry, choice: Choice, *arguments: Any) -> Any:
    cls = registry.get(choice[0]) if isinstance(choice[0], str) else choice[0]
    options = getattr(cls, "Options", None)
    if not (isinstance(options, type) and issubclass(options, Settings)):
        raise ConfigError(f"{cls.__name__}.Options is no subclass of auxlearn.Settings")
    return cls(validate(options, dict(choice[1]), cls.__name__), *arguments)


#: What stands in the padding of each tensor of a batch but that of the token ids.
_PADDING = {"attention_mask": 0, "maskable": False, "words": -1, "token_type_ids": 0, "tags": -100}


def with_other_padding(batch: Batch, token: int, more: int = 0) -> Batch:
    """Return a batch with another token id in its padding, of which there is ``more``; no objective
    may notice.
    """
    outside = batch.attention_mask == 0
    ids = batch.input_ids.masked_fill(outside, token)
    changed = {"input_ids": nn.functional.pad(ids, (0, more), value=token)}
    for name, value in _PADDING.items():
        if (values := getattr(batch, name)) is not None:
            sides = (0, 0) * (values.ndim - 2) + (0, more)
            changed[name] = nn.functional.pad(values, sides, value=value)
    return replace(batch, **changed)


@cache
def untrained_encoder(kind: Kind = CLASSIFICATION) -> SharedEncoder:
    """Return the encoder that tiny runs are trained with; copy it before changing it."""
    with tempfile.TemporaryDirectory(prefix="auxlearn-check-") as folder:
        names = kind.label_names(LABELS)
        return load_encoder(str(save_untrained(Path(folder))), names, kind=kind)


def _split(name: str, kind: Kind, start: int, stop: int) -> Split:
    names = kind.label_names(LABELS)
    labels = tuple(
        kind.example(number, TEXTS[number].count(" ") + 1, len(LABELS))
        for number in range(start, stop)
    )
    return Split(name, TEXTS[start:stop], labels, names, kind=kind)


def _disable_dropout(encoder: SharedEncoder) -> None:
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "dropout_prob", None), float):
            module.dropout_prob = 0.0  # type: ignore[assignment]
