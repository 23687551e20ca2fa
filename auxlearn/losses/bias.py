"""Losses that train against a bias model: their common part, and where probabilities come from."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from auxlearn.core.cache import content_key
from auxlearn.core.errors import ConfigError, DataError
from auxlearn.core.rng import derive_seed
from auxlearn.core.settings import ENCODERS, encoder_source, is_path, recommended_learning_rate
from auxlearn.core.table import Table
from auxlearn.core.validation import Described
from auxlearn.data.batches import Batch
from auxlearn.data.dataset import Split
from auxlearn.data.splits import assign_folds, normalise, text_keys
from auxlearn.data.tables import FORMATS, read_table
from auxlearn.data.tokens import Tokenization
from auxlearn.encoders.device import upload
from auxlearn.encoders.load import load_encoder, max_positions
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.losses.base import PrimaryLoss
from auxlearn.losses.bias_models import (
    FineTuning,
    Fit,
    cross_fit,
    encoder_fit,
    overlap_fit,
    segment_fit,
)
from auxlearn.objectives.context import ObjectiveContext, SideValues

logger = logging.getLogger(__name__)

#: How much the probabilities of an example may differ from 1 in sum.
TOLERANCE = 1e-3

#: Part of every cache key; raise it when the probabilities change.
FORMAT = 1

#: Smallest probability of a class, before the probabilities are scaled to sum to 1 again: the
#: losses take logarithms, and log 0 is minus infinity.
FLOOR = 1e-6

KINDS = ("overlap", "segment", "weak")


def read_probabilities(path: Path, split: Split) -> np.ndarray:
    """Read probabilities ``(examples, classes)`` from a table, and compare the texts it has."""
    if path.suffix.lower() not in FORMATS:
        raise DataError(f"{path} is not a table: use one of {', '.join(FORMATS)}")
    table = read_table(path)
    missing = [name for name in split.label_names if name not in table.columns]
    if missing:
        raise DataError(
            f"{path} has no column '{missing[0]}': one column per class is needed, "
            f"{', '.join(split.label_names)}"
        )
    if len(table) != len(split):
        raise DataError(
            f"{path} has {len(table)} rows, but there are {len(split)} training examples: one row "
            "per example is needed, in their order"
        )
    texts = table.columns.get("text", []) if "text" not in split.label_names else []
    for row, (text, expected) in enumerate(zip(texts, split.texts, strict=False)):
        if text != expected:
            raise DataError(
                f"{table.place(row)}: the text is not that of training example {row + 1}: bring "
                "the rows into the order of the training examples"
            )
    return np.array([_row(table, row, split.label_names) for row in range(len(table))])


def _row(table: Table, row: int, names: tuple[str, ...]) -> np.ndarray:
    try:
        values = np.array([float(table.columns[name][row]) for name in names])
    except (TypeError, ValueError):
        values = np.array([np.nan])
    total = values.sum()
    if not (values >= 0).all() or not abs(total - 1) <= TOLERANCE:
        raise DataError(
            f"{table.place(row)}: the probabilities of {', '.join(names)} are needed, numbers from "
            "0 to 1 that sum to 1"
        )
    return values / total


def check_source(value: str, kinds: tuple[str, ...]) -> str:
    """Return a setting that is one of some kinds or the path of a table; refuse any other."""
    if value in kinds:
        return value
    if Path(is_path(value)).suffix.lower() in FORMATS:
        return value
    raise ValueError(f"expected {', '.join(kinds)} or a file ({', '.join(FORMATS)})")


class BiasOptions(Described):
    bias: str = "weak"
    """Bias model: overlap (of the two texts of a pair), segment (one text of a pair alone), weak (a
    small encoder fine-tuned on few examples), or a table file with a probability of every class, in
    columns of their names, for every training example."""

    bias_folds: int = Field(5, ge=2)
    """Folds of cross-fitting: no example is scored by a model that saw it."""

    bias_segment: Literal["first", "second"] = "second"
    """The text of a pair that bias: segment reads."""

    bias_encoder: str = "tiny"
    """Encoder of bias: weak; short name, folder or hub id. It reads as many tokens as it has
    positions for."""

    bias_examples: int = Field(2000, ge=1)
    """Number of training examples of each model of bias: weak."""

    bias_epochs: int = Field(3, ge=1)
    """Number of epochs of bias: weak."""

    bias_learning_rate: float | None = Field(None, gt=0)
    """Peak learning rate of bias: weak; by default the one recommended for its encoder."""

    @field_validator("bias")
    @classmethod
    def _known(cls, value: str) -> str:
        return check_source(value, KINDS)


@dataclass(frozen=True)
class BiasScores:
    """Class probabilities of the training examples by a model."""

    probabilities: Tensor  # (examples, classes), float64; at least about FLOOR, with sum 1
    accuracy: float  # share of the examples whose class it finds most probable


def bias_scores(context: ObjectiveContext, options: BiasOptions) -> BiasScores:
    """Return the class probabilities of the training examples by the bias model."""
    split, kind = context.split, options.bias
    if kind not in KINDS:
        return file_scores(context, Path(kind), "bias model")
    labels, classes = list(split.labels or ()), len(split.label_names)
    if kind == "weak":
        return _weak_scores(context, options)
    pairs = split.text_pairs
    if pairs is None:
        raise ConfigError(
            f"bias: {kind} needs pairs of texts, which this data set has none of: use weak or a "
            "file of probabilities"
        )
    folds = options.bias_folds
    if kind == "overlap":
        fit = partial(overlap_fit, split.texts, pairs, labels, classes)
        return cross_fitted(context, kind, folds, [], fit)
    texts = split.texts if options.bias_segment == "first" else pairs
    fit = partial(segment_fit, texts, labels, classes)
    keys: list[tuple[str, ...]] = [(normalise(text),) for text in texts]
    return cross_fitted(context, kind, folds, [options.bias_segment], fit, keys)


def file_scores(context: ObjectiveContext, path: Path, role: str) -> BiasScores:
    """Return the class probabilities of the training examples that a table holds."""
    probabilities = read_probabilities(context.track_file(path), context.split)
    return _scores(probabilities, context.split, f"{role} {path.name}")


def _weak_scores(context: ObjectiveContext, options: BiasOptions) -> BiasScores:
    name = options.bias_encoder
    source = Path(encoder_source(name))
    if name not in ENCODERS and source.is_dir():
        context.track_file(source)
    seed = derive_seed(context.seed, context.name, "bias")
    encoder = load_encoder(name, context.split.label_names, seed)
    settings = FineTuning(
        options.bias_epochs,
        options.bias_learning_rate or recommended_learning_rate(name),
        options.bias_examples,
    )
    encoder.to(context.device)
    return encoder_scores(context, "weak", options.bias_folds, settings, encoder)


def encoder_scores(
    context: ObjectiveContext, kind: str, folds: int, settings: FineTuning, encoder: SharedEncoder
) -> BiasScores:
    """Return cross-fitted probabilities by an encoder, which is put back after each fold."""
    # A small bias model may have fewer positions than the run's encoder.
    length = min(context.max_length, max_positions(encoder.config) or context.max_length)
    tokenization = Tokenization(encoder.tokenizer, length, context.windowing)
    tokenization.check_stride()
    encoder.window_pooling = context.encoder.window_pooling
    texts = tokenization.tokenize_split(context.split, context.cache, context.progress)
    tensors = encoder.classifier.state_dict()
    depends: list[object] = [
        *astuple(settings),
        texts.input_ids,
        texts.offsets,
        list(tensors),
        *tensors.values(),
        encoder.config.to_json_string(use_diff=False),
    ]
    if texts.windows is not None:
        depends.append(encoder.window_pooling)
    depends.append(encoder.device.type)  # rounding differs, and so does what fine-tuning makes
    seed = derive_seed(context.seed, context.name, kind)
    fit = partial(encoder_fit, encoder, texts, settings, seed, _title(kind), context.progress)
    return cross_fitted(context, kind, folds, depends, fit)


def cross_fitted(
    context: ObjectiveContext,
    kind: str,
    folds: int,
    depends: list[object],
    make: Callable[[], Fit],
    keys: list[tuple[str, ...]] | None = None,
) -> BiasScores:
    """Return cross-fitted probabilities, cached on disk under a key of which ``depends`` is a part.
    Examples with equal ``keys``, by default texts, are in one fold.
    """
    split, labels = context.split, list(context.split.labels or ())
    model = [kind, folds, context.seed, context.name]
    examples = [split.texts, split.text_pairs, labels, split.label_names]
    key = content_key("cross-fitted", FORMAT, *model, *examples, *depends)

    def compute() -> dict[str, Tensor]:
        seed = derive_seed(context.seed, context.name, kind)
        fold_of = assign_folds(labels, keys or text_keys(split), folds, seed)
        return {"probabilities": torch.from_numpy(cross_fit(fold_of, make()))}

    probabilities = context.cache.get(key, compute)["probabilities"].numpy()
    return _scores(probabilities, split, f"cross-fitted {_title(kind)}")


def _title(kind: str) -> str:
    return kind if kind == "teacher" else f"bias model {kind}"


def _scores(probabilities: np.ndarray, split: Split, title: str) -> BiasScores:
    """Floor probabilities ``(examples, classes)``, and log how good they are."""
    labels = np.asarray(split.labels)
    accuracy = float((probabilities.argmax(1) == labels).mean())
    majority = float(np.bincount(labels).max()) / len(labels)
    logger.info(
        "%s: accuracy on the training examples %.3f, majority class %.3f",
        title,
        accuracy,
        majority,
    )
    if accuracy <= majority:
        logger.warning(
            "%s is no better than the majority class, so there is little to learn from it", title
        )
    floored = torch.from_numpy(np.maximum(probabilities, FLOOR))
    return BiasScores(floored / floored.sum(1, keepdim=True), accuracy)


class BiasLoss(PrimaryLoss):
    """A loss that uses what a bias model predicts of each training example.

    The bias model is fixed before training and used in training only. Its probabilities
    ``(examples, classes)`` are at least :data:`~auxlearn.losses.bias.FLOOR`.
    """

    Options = BiasOptions
    options: BiasOptions
    bias: SideValues

    def prepare(self, context: ObjectiveContext) -> None:
        scores = bias_scores(context, self.options)
        self.bias = context.side("bias", scores.probabilities)
        self.facts = {"bias_accuracy": scores.accuracy}

    def bias_of(self, batch: Batch, logits: Tensor) -> Tensor:
        """Return the bias probabilities of a batch like its logits, ``(batch, classes)``."""
        return upload(self.bias.of(batch).to(logits.dtype), logits.device)
