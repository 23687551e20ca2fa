"""A finished run in use: its classifier, and its evaluation on further data sets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from auxlearn.core.config import OODSource, RunConfig
from auxlearn.core.errors import DataError, EncoderError, RunError, describe, text_of
from auxlearn.core.files import name_problem, user_path
from auxlearn.core.settings import TextWindow, each_label_once, labels_as_texts
from auxlearn.data.audit import seen_in_train
from auxlearn.data.dataset import Split
from auxlearn.data.examples import ColumnNames, columns_of
from auxlearn.data.folders import CORE_SPLITS, data_files, read_evaluation_split, split_name
from auxlearn.data.load import load_dataset
from auxlearn.data.memory import in_memory, read_memory_split
from auxlearn.data.ood import OODSet, card_subsets, map_labels, with_cards
from auxlearn.data.tokens import TokenizedTexts, tokenize, word_starts
from auxlearn.encoders import device as devices
from auxlearn.encoders.load import load_classifier
from auxlearn.evaluation.evaluator import evaluate_ood, map_predictions, true_labels
from auxlearn.evaluation.labelled import evaluate_labels
from auxlearn.evaluation.metrics import probability_blocks, reduce_predictions, to_model_labels
from auxlearn.kinds.base import Kind
from auxlearn.kinds.choose import CLASSIFICATION, kind_of, require
from auxlearn.objectives.heads import outputs_of, words_of
from auxlearn.results.folder import RunFolder, model_of
from auxlearn.results.record import Evaluation, Evaluations, RunResults

if TYPE_CHECKING:
    from auxlearn.data.batches import Batch


#: Texts per forward pass.
BATCH_SIZE = 64


@dataclass(frozen=True)
class Classifier:
    """The classifier that a run has exported.

    Attributes:
        model: The transformers classifier, in evaluation mode.
        tokenizer: Its tokenizer, whose ``model_max_length`` is the run's ``max_length``.
        device: Device of the model.
        window: Which tokens of longer texts are kept, as in the run.
        kind: Kind of the labels.
    """

    model: Any
    tokenizer: Any
    device: torch.device
    window: TextWindow = "head"
    kind: Kind = CLASSIFICATION

    @classmethod
    def of_run(cls, run: Path) -> Classifier:
        """Load the model of a finished run, onto the GPU if there is one."""
        folder = model_of(run)
        device = devices.default_device()
        kind = kind_of(RunFolder(run).read_config().kind)
        model, tokenizer = load_classifier(folder, kind)
        window: TextWindow = getattr(model.config, "text_window", "head")
        if window not in get_args(TextWindow):
            raise EncoderError(
                f"{folder / 'config.json'} is damaged: its text_window is {describe(window)}; "
                "train again or copy the folder again"
            )
        return cls(model.to(device), tokenizer, device, window, kind)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the probabilities."""
        names = self.model.config.id2label
        return tuple(names[number] for number in range(len(names)))

    def probabilities(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> np.ndarray:
        """Return class probabilities, ``(texts, classes)``, float64; see :meth:`blocks`."""
        found = np.zeros((len(texts), len(self.label_names)))
        for rows, block in self.blocks(texts, text_pairs):
            found[rows] = block
        return found

    def blocks(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield class probabilities of some of the texts at a time, which bounds the memory.

        Texts are cut to the ``max_length`` of the run, and as in the run. The probabilities are
        those of ``transformers.pipeline("text-classification", ...)`` on the texts as they are cut.

        Yields:
            Numbers of texts, ``(n,)``, and their class probabilities, ``(n, classes)``, float64.
        """
        if not texts:
            return
        length = self.tokenizer.model_max_length
        arrays = tokenize(self.tokenizer, texts, text_pairs, length, window=self.window)
        tokens = TokenizedTexts(**arrays, pad_id=self.tokenizer.pad_token_id)
        for rows, block in probability_blocks(self._logits, tokens, BATCH_SIZE):
            if not np.isfinite(block).all():
                raise RunError("the model gives NaN for some texts: it is damaged, train again")
            yield rows, block

    @property
    def thresholds(self) -> np.ndarray | None:
        """Probability from which on each label is predicted; ``None`` for 0.5, or without any."""
        found = getattr(self.model.config, "thresholds", None)
        return None if found is None else np.asarray(found, dtype=float)

    @property
    def constant(self) -> Any:
        """The constant prediction of the run, for labels of any kind but single classes."""
        found = getattr(self.model.config, "constant_prediction", None)
        if found is None:
            raise RunError("the config.json of the model is damaged: it has no constant_prediction")
        return found

    def outputs(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[np.ndarray]:
        """Return the logits of each text, for labels of any kind but single classes."""
        length = self.tokenizer.model_max_length
        arrays = tokenize(self.tokenizer, texts, text_pairs, length, window=self.window)
        if self.kind.per_token:
            arrays["starts"] = word_starts(self.tokenizer, texts, length, self.window)
        tokens = TokenizedTexts(**arrays, pad_id=self.tokenizer.pad_token_id)
        words = words_of(self.kind, texts)
        found = outputs_of(self.kind, self._logits, tokens, words, self.constant)
        if not all(np.isfinite(one).all() for one in found):
            raise RunError("the model gives NaN for some texts: it is damaged, train again")
        return found

    def _logits(self, batch: Batch) -> Tensor:
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        if batch.token_type_ids is not None:
            inputs["token_type_ids"] = batch.token_type_ids
        return self.model(**{k: devices.upload(v, self.device) for k, v in inputs.items()}).logits


def name_sets(dataset: Any, split: str) -> dict[str, Any]:
    """Return the sets to evaluate on by name."""
    if isinstance(dataset, Mapping) and not _is_one_set(dataset, split):
        sets = {text_of(name): one for name, one in dataset.items()}
        for name in sets:
            if problem := name_problem(name):
                raise DataError(f"the name of a data set: {problem}")
    elif isinstance(dataset, list | tuple) and not all(isinstance(d, Mapping) for d in dataset):
        sets = {}
        for one in dataset:
            if in_memory(one):
                raise DataError(
                    f"{describe(one)} in a list of data sets is not a path: name sets in memory, "
                    "as in {'name': data}"
                )
            sets[_free_name(one, sets)] = one
    else:
        sets = {_free_name(dataset, {}): dataset}
    if not sets:
        raise DataError("there is no data set to evaluate on: name one")
    return sets


def evaluate_run(
    run: Path,
    sets: Mapping[str, Any],
    config: RunConfig,
    *,
    split: str = "test",
    labels: Mapping[str, Any] | None = None,
    decision: Literal["sum", "argmax"] = "sum",
    split_column: str | None = None,
) -> Evaluations:
    """Evaluate a finished run on data sets; see :func:`auxlearn.api.evaluate`."""
    model_of(run)  # before any data is read
    kind = kind_of(config.kind)
    if kind is not CLASSIFICATION:
        if decision != "sum":
            require(kind, "decision argmax")
        if labels is not None:
            joined = each_label_once(labels_as_texts(labels))
            config = config.model_copy(update={"labels": joined})
        return _evaluate_labels(run, sets, config, split, split_column)
    targets = None
    if labels is not None:
        joined, targets = _label_maps(labels)
        config = config.model_copy(update={"labels": joined})
    read = {name: read_evaluated(one, split, config, split_column) for name, one in sets.items()}
    trained = RunResults.load(run)
    mapped = {}
    for name, (evaluated, _) in read.items():
        source = OODSource(
            dataset=str(sets[name]) if not in_memory(sets[name]) else name,
            name=name,
            split=split,
            labels=targets,
            decision=decision,
            unknown_labels=config.unknown_labels,
        )
        mapped[name] = mapped_set(trained, source, evaluated)
    classifier = Classifier.of_run(run)
    found = {
        name: _evaluate(classifier, ood, read[name][1], _majority(trained))
        for name, ood in mapped.items()
    }
    return Evaluations(found)


def _evaluate_labels(
    run: Path, sets: Mapping[str, Any], config: RunConfig, split: str, split_column: str | None
) -> Evaluations:
    """Evaluate a run with labels of any kind but single classes."""
    trained = RunResults.load(run)
    read = {name: read_evaluated(one, split, config, split_column) for name, one in sets.items()}
    for name, (evaluated, _) in read.items():
        check_pairs(trained, evaluated, name)
    classifier = Classifier.of_run(run)
    names = classifier.label_names
    truth = {name: to_model_labels(one, names) for name, (one, _) in read.items()}
    return Evaluations(
        {
            name: evaluate_labels(
                classifier.kind,
                truth[name],
                classifier.outputs(evaluated.texts, evaluated.text_pairs),
                names,
                seen=seen_in_train(train, evaluated) if train else None,
                constant=classifier.constant,
                thresholds=classifier.thresholds,
            )
            for name, (evaluated, train) in read.items()
        }
    )


def mapped_set(trained: RunResults, source: OODSource, evaluated: Split) -> OODSet:
    """Return a set to evaluate a run on, with its labels mapped to the classes of the run."""
    classes = trained.dataset.label_names
    source = with_cards(source, trained.dataset.name, classes)
    source = source.model_copy(update={"subsets": card_subsets(source, evaluated)})
    label_map = map_labels(
        classes, evaluated.label_names, source.labels, source.name, source.unknown_labels
    )
    check_pairs(trained, evaluated, source.name)
    return OODSet(source, evaluated, label_map)


def _evaluate(
    classifier: Classifier, ood: OODSet, train: Split | None, majority: int
) -> Evaluation:
    evaluated, labels = ood.split, ood.labels
    found = reduce_predictions(
        classifier.blocks(evaluated.texts, evaluated.text_pairs),
        true_labels(evaluated, ood),
        len(labels.label_names),
        lambda block: map_predictions(block, labels, ood.source.decision),
    )
    seen = seen_in_train(train, evaluated) if train else None
    return evaluate_ood(ood, found, None, seen, majority=majority)


def read_evaluated(
    dataset: Any, split: str, config: RunConfig, split_column: str | None
) -> tuple[Split, Split | None]:
    """Return the split to evaluate on, and the train split of the same set if there is one."""
    kind = config.kind or CLASSIFICATION.name
    columns = replace(columns_of(config) or ColumnNames(), may_lack_renamed=True, kind=kind)
    if in_memory(dataset):
        return read_memory_split(dataset, split, columns, split_column=split_column)
    folder = user_path(dataset, DataError)
    if folder.is_dir() and "train" not in data_files(folder):
        return read_evaluation_split(folder, split, columns=columns), None
    found = load_dataset(dataset, columns=columns)
    name = split if split in found.ood else split_name(split)
    chosen = found.split(name)
    if chosen.labels is None:
        raise DataError(f"split '{name}' of data set '{found.name}' has no labels")
    return chosen, found.splits["train"]


def check_pairs(trained: RunResults, evaluated: Split, name: str) -> None:
    """Check that a set has pairs of texts if, and only if, the run was trained on pairs."""
    pairs = evaluated.text_pairs is not None
    if trained.dataset.pairs is not None and trained.dataset.pairs != pairs:
        raise DataError(
            f"'{name}' has {'pairs of texts' if pairs else 'single texts'}, but the run was "
            f"trained on {'single texts' if pairs else 'pairs of texts'}"
            + ("" if pairs else ": name the column of the second text with --text-pair-column")
        )


def _is_one_set(dataset: Mapping[Any, Any], split: str) -> bool:
    from auxlearn.data.memory import is_table

    names = {split_name(text_of(name)) for name in dataset}
    return is_table(dataset) or not names.isdisjoint({split_name(split), *CORE_SPLITS})


def _free_name(dataset: Any, taken: Mapping[str, Any]) -> str:
    """Return the last part of a path or name, with a number if it is taken."""
    name = "data" if in_memory(dataset) else Path(os.fspath(dataset)).resolve().name.split(":")[-1]
    name = "evaluation" if name_problem(name) else name
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def _label_maps(labels: Mapping[str, Any]) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the labels that one class stands for together, and the label of every other class."""
    found = labels_as_texts(labels)
    single = {name: given[0] for name, given in found.items() if len(given) == 1}
    try:
        joined = each_label_once({n: given for n, given in found.items() if n not in single})
    except ValueError as error:
        raise DataError(f"labels: {error}") from None
    return joined, single


def _majority(results: RunResults) -> int:
    """Return the class that the majority baseline of the run always predicts.

    It is the one class with predictions in the baseline's confusion matrix.
    """
    _, predicted = next(iter(results.evaluations.values())).majority.class_counts()
    return max(predicted, key=lambda number: predicted[number])
