"""Further labelled data sets as an auxiliary task, each with classes and a head of its own."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field, field_validator
from torch import Tensor

from auxlearn.core.errors import ConfigError, DataError
from auxlearn.core.registry import register_task
from auxlearn.core.settings import FurtherSet
from auxlearn.core.validation import Described, OneOrMany
from auxlearn.data.batches import Batch, MixedStream, collate, sampling_probabilities
from auxlearn.data.dataset import TextDataset
from auxlearn.data.tokens import TokenizedTexts, concatenate, consecutive
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.kinds.base import Kind
from auxlearn.objectives.base import apply_head_of, head_of, labels_of, outputs_of, words_of
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.tasks.base import AuxiliaryTask


class SupervisedOptions(Described):
    datasets: Annotated[tuple[FurtherSet, ...], OneOrMany] = ()
    """Data sets to train on: folder, card, hub id, or a mapping with dataset, name, kind,
    text_column, text_pair_column, label_column and keep_null_labels."""

    smoothing: float = Field(1.0, ge=0)
    """Sets are sampled in proportion to size ** smoothing: 1 by size, 0 equally often, 1/T with
    temperature T."""

    batch_size: int | None = Field(None, ge=1)
    """Examples per batch; by default those of the primary task."""

    @field_validator("datasets")
    @classmethod
    def _names_differ(cls, sets: tuple[FurtherSet, ...]) -> tuple[FurtherSet, ...]:
        names = [further.name for further in sets]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two sets are named '{twice[0]}': give one another name by 'name'")
        return sets


@dataclass(frozen=True)
class _LabelledSet:
    """One of the data sets."""

    name: str
    head: str  # key of its head
    train: TokenizedTexts
    dev: TokenizedTexts
    dataset: TextDataset  # the examples as they were read

    @property
    def kind(self) -> Kind:
        return self.dataset.kind


@register_task("supervised")
class Supervised(AuxiliaryTask):
    """Train on one or more further labelled data sets, with a head for each.

    The loss is that of the kind of labels (classes, several labels, numbers, tags of words,
    trees), a mean over a batch: cross-entropy in nats, or the squared error. Each batch comes from
    one data set, sampled by ``smoothing``, as in MaChAmp (van der Goot et al. 2021, `Massive
    Choice, Ample Tasks <https://arxiv.org/abs/2005.14672>`_). A set without a dev split has a
    tenth of its train split held out. The metrics of its kind on the dev split of each set are
    recorded with every evaluation; nothing is chosen by them.

    Examples that the run is evaluated on are left out of the train splits: on the run's own data
    set, with folds, a set has the training part of the fold.

    A subclass that overrides :meth:`load` trains on data sets in memory.
    """

    Options = SupervisedOptions
    options: SupervisedOptions

    def load(self, context: ObjectiveContext) -> dict[str, TextDataset]:
        """Return the data sets by name, each with train and dev.

        Raises:
            ConfigError: None is named.
            DataError: One does not exist or cannot be read.
        """
        if not self.options.datasets:
            raise ConfigError(
                "supervised needs a labelled data set: name a folder, card or hub id by its "
                "option datasets (--supervised-datasets)"
            )
        return {
            further.name: context.load_dataset(further.dataset, further.columns)
            for further in self.options.datasets
        }

    def prepare(self, context: ObjectiveContext) -> None:
        self.batch_size = self.options.batch_size
        sets = [
            _labelled_set(context, name, context.without_evaluated(dataset))
            for name, dataset in self.load(context).items()
        ]
        # Labels of different kinds do not fit together: a batch has those of its own set.
        texts = [replace(labelled.train, starts=None, labels=None, tags=None) for labelled in sets]
        self.texts = concatenate(*texts)  # the tokens are held once
        parts = consecutive(self.texts, [len(labelled.train) for labelled in sets])
        self.sets = [
            replace(
                labelled,
                train=replace(part, labels=labelled.train.labels, tags=labelled.train.tags),
            )
            for labelled, part in zip(sets, parts, strict=True)
        ]
        self.starts = self.stream(1, context.seed, context.name).starts

    def stream(self, batch_size: int, seed: int, name: str) -> MixedStream:
        sizes = [len(labelled.train) for labelled in self.sets]
        probabilities = sampling_probabilities(sizes, self.options.smoothing)
        return MixedStream(self.texts, sizes, probabilities, batch_size, seed, name)

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        source, labelled = self._labelled(batch)
        logits = apply_head_of(encoder, source.kind, source.head, batch)
        return source.kind.loss(logits, labels_of(labelled, logits))

    def items(self, batch: Batch, generator: torch.Generator) -> int:
        source, labelled = self._labelled(batch)
        assert labelled.targets is not None
        return source.kind.items(labelled.targets)

    def _labelled(self, batch: Batch) -> tuple[_LabelledSet, Batch]:
        """Return the set that a batch is from, and the batch with the labels of that set."""
        number = int(torch.searchsorted(self.starts, batch.indices[0], right=True)) - 1
        source = self.sets[number]
        return source, collate(source.train, batch.indices - self.starts[number])

    def evaluate(self, encoder: SharedEncoder) -> dict[str, float]:
        metrics = {}
        for source in self.sets:
            prefix = f"{source.name}/" if len(self.sets) > 1 else ""
            for name, value in _evaluate(encoder, source).items():
                metrics[prefix + name] = value
        return metrics


def head_name(name: str, label_names: Sequence[str]) -> str:
    """Return a name that tells data set and classes, by which a further run finds the head."""
    identity = json.dumps([name, *label_names]).encode()
    readable = re.sub("[^a-z0-9]+", "_", name.lower())[:40]
    return f"set_{readable}_{hashlib.sha256(identity).hexdigest()[:8]}"


def _labelled_set(context: ObjectiveContext, name: str, dataset: TextDataset) -> _LabelledSet:
    for split in ("train", "dev"):
        if dataset.split(split).labels is None:
            raise DataError(f"data set '{name}' of '{context.name}' has no labels in {split}")
    kind, outputs = dataset.kind, len(dataset.label_names)
    return _LabelledSet(
        name,
        context.add_head(
            head_name(name, dataset.label_names), lambda: head_of(context.encoder, kind, outputs)
        ),
        context.tokenize_split(replace(dataset.splits["train"], name=f"{name}, train")),
        context.tokenize_split(replace(dataset.splits["dev"], name=f"{name}, dev")),
        dataset,
    )


def _evaluate(encoder: SharedEncoder, source: _LabelledSet) -> dict[str, float]:
    kind, dev, train = source.kind, source.dataset.splits["dev"], source.dataset.splits["train"]
    assert dev.labels is not None
    outputs = outputs_of(
        kind,
        lambda batch: apply_head_of(encoder, kind, source.head, batch),
        source.dev,
        words_of(kind, dev.texts),
        kind.constant(train.labels or ()),
    )
    predicted = [kind.decode(output) for output in outputs]
    return kind.scores(dev.labels, predicted, outputs, source.dataset.label_names)
