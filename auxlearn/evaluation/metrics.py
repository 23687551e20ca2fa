"""Class probabilities, the metrics of predictions, and their smooth surrogates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from auxlearn.core.errors import DataError, some_of
from auxlearn.core.metric_names import SURROGATE, Quantity
from auxlearn.core.processes import ALONE, Processes
from auxlearn.core.settings import Metric
from auxlearn.data.batches import Batch, collate, eval_batches
from auxlearn.data.dataset import Split
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import upload
from auxlearn.results.record import MANY_LABELS, SPARSE_KEYS, Evaluation, Scores

#: Probabilities that are computed before they are moved to the CPU: 32 MB in single precision.
BLOCK_VALUES = 8_000_000

#: Classes of an example whose probabilities are kept, if there are many classes.
TOP_CLASSES = 20


def probability_blocks(
    classify: Callable[[Batch], Tensor],
    texts: TokenizedTexts,
    batch_size: int,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
    processes: Processes = ALONE,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield numbers of texts and their class probabilities, ``(n, classes)``, float64.

    They are those of some texts at a time, which bounds the memory. Several processes divide the
    batches among them, and each gets all probabilities.
    """
    chunks: list[Tensor] = []
    order: list[Tensor] = []
    classes = size = 0
    with torch.inference_mode():
        for number, rows in enumerate(eval_batches(texts, batch_size)):
            if processes.owns(number):
                with autocast():
                    logits = classify(collate(texts, rows))
                chunks.append(logits.float().softmax(-1))
            if not number:
                classes = processes.share(chunks[0].shape[1] if chunks else None)
            order.append(rows)
            size += len(rows) * classes
            if size > BLOCK_VALUES:
                yield _block(order, chunks, number + 1 - len(order), classes, processes)
                chunks, order, size = [], [], 0
        if order:
            yield _block(order, chunks, number + 1 - len(order), classes, processes)


def _block(
    order: list[Tensor], chunks: list[Tensor], first: int, classes: int, processes: Processes
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of some batches, from one number on, and what all processes have of them."""
    own = [rows.new_full(rows.shape, processes.owns(n)) for n, rows in enumerate(order, first)]
    found = torch.zeros(sum(map(len, order)), classes, dtype=torch.float32)
    if chunks:
        found[torch.cat(own).bool()] = torch.cat(chunks).cpu()  # the only synchronisation
    processes.add(found)
    return torch.cat(order).numpy(), found.double().numpy()


@dataclass(frozen=True)
class Predictions:
    """What is kept of the predictions for a set."""

    predicted: np.ndarray  # predicted classes, (examples,)
    of_truth: np.ndarray  # probability of the true class, (examples,)
    top: np.ndarray  # classes, (examples, kept): all, or of many the most probable, best first
    probabilities: np.ndarray  # their probabilities, (examples, kept)
    mass: np.ndarray  # sums by class over the examples whose label is known, (classes,)


def reduce_predictions(
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
    labels: Sequence[int] | np.ndarray,
    classes: int,
    decide: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
    known: int | None = None,
) -> Predictions:
    """Gather predictions from blocks of probabilities, as :func:`probability_blocks` yields them.

    ``decide`` maps a block to probabilities of other classes and predicted ones; by default the
    most likely class is predicted. ``known``: number of the classes that the model can predict.
    """
    truth = np.asarray(labels)
    knows = truth < (classes if known is None else known)
    many = classes > MANY_LABELS
    kept = min(TOP_CLASSES, classes) if many else classes
    predicted = np.empty(len(truth), dtype=np.int64)
    of_truth = np.empty(len(truth))
    top = np.empty((len(truth), kept), dtype=np.int32)
    probabilities = np.empty((len(truth), kept))
    mass = np.zeros(classes)
    for rows, block in blocks:
        values, chosen = decide(block) if decide else (block, block.argmax(1))
        predicted[rows] = chosen
        of_truth[rows] = values[np.arange(len(rows)), truth[rows]]
        mass += values[knows[rows]].sum(0)
        best = _most_likely(values, kept) if many else np.arange(kept)
        top[rows] = best
        probabilities[rows] = np.take_along_axis(values, best, 1) if many else values
    return Predictions(predicted, of_truth, top, probabilities, mass)


def _most_likely(values: np.ndarray, count: int) -> np.ndarray:
    """Return the classes of the greatest values of each row, best first, ``(rows, count)``."""
    if count < values.shape[1]:
        found = np.sort(np.argpartition(-values, count, axis=1)[:, :count], axis=1)
    else:
        found = np.broadcast_to(np.arange(count), values.shape)
    order = np.argsort(-np.take_along_axis(values, found, 1), axis=1, kind="stable")
    return np.take_along_axis(found, order, 1)


def score_predictions(
    labels: Sequence[int] | np.ndarray,
    predicted: np.ndarray,
    label_names: Sequence[str],
    *,
    per_class: bool = True,
    confusion: bool = True,
) -> Scores:
    """Return the scores of predicted classes, those of scikit-learn to the last digit.

    With many classes, scores by class and confusions are included only if they are asked for.

    >>> scores = score_predictions([0, 0, 1, 1], np.array([0, 0, 1, 0]), ["no", "yes"])
    >>> scores.accuracy, scores.confusion
    (0.75, [[2, 0], [1, 1]])
    """
    truth, count = np.asarray(labels, dtype=np.int64), len(label_names)
    every = max(count, int(truth.max(initial=-1)) + 1)
    # scikit-learn takes a second to load, and its checks of the arguments longer than these counts.
    right = np.bincount(truth[truth == predicted], minlength=every)
    said, support = (np.bincount(one, minlength=every) for one in (predicted, truth))
    precision, recall = right / np.maximum(said, 1), right / np.maximum(support, 1)
    f1 = 2 * right / np.maximum(said + support, 1)
    many = count > MANY_LABELS
    digits = 6 if many else None  # otherwise the digits of 5,000 classes take megabytes
    return Scores(
        examples=len(predicted),
        metrics={
            "accuracy": float((truth == predicted).mean()),
            # over the classes that occur, as f1_score has it
            "macro_f1": float(f1[np.union1d(truth, predicted)].mean()),
        },
        per_class={
            name: {
                "precision": _rounded(precision[number], digits),
                "recall": _rounded(recall[number], digits),
                "f1": _rounded(f1[number], digits),
                "support": int(support[number]),
            }
            for number, name in enumerate(label_names)
            if per_class or not many
        },
        confusion=(_sparse_confusion(truth, predicted, count) if confusion else {})
        if many
        else _confusion(truth, predicted, count),
    )


def _confusion(truth: np.ndarray, predicted: np.ndarray, classes: int) -> list[list[int]]:
    """Return the number of examples by true and predicted class, unknown labels left out."""
    cells = (truth * classes + predicted)[truth < classes]
    counts = np.bincount(cells, minlength=classes**2).reshape(classes, classes)
    return counts.tolist()


def _rounded(value: float, digits: int | None) -> float:
    return float(value) if digits is None else round(float(value), digits)


def _sparse_confusion(
    labels: Sequence[int] | np.ndarray, predicted: np.ndarray, classes: int
) -> dict[str, list[int]]:
    cells, counts = np.unique(np.asarray(labels) * classes + predicted, return_counts=True)
    true, predicted = np.divmod(cells, classes)
    lists = (true.tolist(), predicted.tolist(), counts.tolist())
    return dict(zip(SPARSE_KEYS, lists, strict=True))


def evaluate(
    found: Predictions,
    labels: Sequence[int] | np.ndarray,
    label_names: Sequence[str],
    seen: Sequence[bool] | None,
    majority: int,
    known: int | None = None,
) -> Evaluation:
    """Evaluate predictions on all examples of a set, and on those whose text is not in train.

    A model has a class for each label of train and for no other one. Labels that it does not know
    are classes of the metrics all the same: their examples are wrong in accuracy, and each has an
    F1 of 0 in macro-F1, as in scikit-learn with ``zero_division=0``. The loss is the mean over the
    other examples. ``majority`` is the most frequent class of train, ``known`` the number of
    classes that the model can predict, which come first.
    """
    truth, predicted = np.asarray(labels), found.predicted
    knows = truth < (len(label_names) if known is None else known)
    if not knows.any():
        raise DataError("the model knows none of the labels of the examples: map them by 'labels'")
    unseen = np.zeros(len(truth), dtype=bool) if seen is None else ~np.asarray(seen, dtype=bool)
    return Evaluation(
        all=score_predictions(truth, predicted, label_names),
        unseen=score_predictions(
            truth[unseen], predicted[unseen], label_names, per_class=False, confusion=False
        )
        if unseen.any()
        else None,
        seen_examples=None if seen is None else int((~unseen).sum()),
        majority=score_predictions(
            truth, np.full_like(truth, majority), label_names, per_class=False
        ),
        loss=float(-np.log(np.clip(found.of_truth[knows], 1e-300, None)).mean()),
        unknown_labels=int((~knows).sum()),
    )


def to_model_labels(split: Split, label_names: Sequence[str]) -> list[Any]:
    """Return the labels of a split by the class numbers of a model, matched by name."""
    if split.labels is None:
        raise DataError(f"split '{split.name}' has no labels to evaluate against")
    unknown = sorted(set(split.label_names) - set(label_names))
    if unknown:
        raise DataError(
            f"'{split.name}' has the labels {some_of(split.label_names)}, "
            f"the model knows {some_of(label_names)}: no match for {some_of(unknown)}"
        )
    number = {name: index for index, name in enumerate(label_names)}
    written = (split.kind.written(label, split.label_names) for label in split.labels)
    return [split.kind.decode_written(label, number) for label in written]


#: What a validation loss stands for: a metric, or nothing but itself.
Surrogate = Metric | Literal["cross_entropy"]


def smooth_accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean probability of the labels: the expected accuracy of classes drawn by them.

    If every probability is 0 or 1, it equals the accuracy. Its gradient by the logits is bounded by
    1/4 for each example, and vanishes for an example that is certain, rightly or wrongly.
    """
    truth = upload(labels, logits.device)
    return logits.softmax(-1).gather(-1, truth[:, None]).mean()


def smooth_macro_f1(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return the macro-F1 of predicted probabilities instead of decisions, which has a gradient.

    With the probability :math:`p_{nc}` of class c for example n and the one-hot label
    :math:`y_{nc}`, counts become expectations, and
    :math:`F1_c = 2 \sum_n p_{nc} y_{nc} / (\sum_n p_{nc} + \sum_n y_{nc})`. If every probability
    is 0 or 1, the mean equals macro-F1 over the classes that occur in the labels. Classes absent
    from ``labels`` are left out of the mean, as a batch has no information on their recall.
    """
    probabilities = logits.softmax(-1)
    present = upload(labels.unique(), logits.device)
    truth = nn.functional.one_hot(upload(labels, logits.device), logits.shape[-1])
    truth = truth.to(probabilities)
    overlap = 2 * (probabilities * truth).sum(0)
    f1 = overlap / (probabilities.sum(0) + truth.sum(0))
    return f1[present].mean()


def surrogate_loss(logits: Tensor, labels: Tensor, surrogate: Surrogate) -> Tensor:
    """Return one minus smooth accuracy or smooth macro-F1, or the cross-entropy.

    ``logits`` are ``(examples, classes)``; ``labels`` ``(examples,)``, on the CPU.
    """
    if surrogate == "macro_f1":
        return 1 - smooth_macro_f1(logits, labels)
    if surrogate == "accuracy":
        return 1 - smooth_accuracy(logits, labels)
    return nn.functional.cross_entropy(logits, upload(labels, logits.device))


def surrogate_metric(
    probabilities: np.ndarray, labels: Sequence[int] | np.ndarray, surrogate: Surrogate
) -> float:
    """Return :func:`surrogate_loss` of predicted probabilities, ``(examples, classes)``."""
    logits = torch.from_numpy(probabilities).clamp(min=1e-300).log()
    return float(surrogate_loss(logits, torch.as_tensor(labels), surrogate))


def surrogate_from_sums(
    of_truth: np.ndarray,
    mass: np.ndarray,
    labels: Sequence[int] | np.ndarray,
    surrogate: Surrogate,
) -> float:
    """Return :func:`surrogate_metric` without the whole matrix of probabilities.

    ``of_truth`` is the probability of each true class, ``mass`` the sum of those of each class.
    """
    if surrogate == "cross_entropy":
        return float(-np.log(np.clip(of_truth, 1e-300, None)).mean())
    if surrogate == "accuracy":
        return float(1 - of_truth.mean())
    truth = np.bincount(labels, minlength=len(mass))
    overlap = 2 * np.bincount(labels, weights=of_truth, minlength=len(mass))
    present = truth > 0
    return float(1 - (overlap[present] / (mass + truth)[present]).mean())


def surrogate_report(
    entries: Sequence[Mapping[str, Any]], metric: Metric
) -> dict[str, float | int | None] | None:
    """Return how well the surrogate agreed with the metric over the evaluations of a run."""
    from scipy.stats import spearmanr

    key, surrogate = Quantity.DEV.key(metric), Quantity.DEV.key(SURROGATE)
    pairs = [(entry[key], -entry[surrogate]) for entry in entries if surrogate in entry]
    if not pairs:
        return None
    left, right = zip(*pairs, strict=True)
    defined = len(pairs) > 2 and len(set(left)) > 1 and len(set(right)) > 1
    correlation = float(spearmanr(left, right).statistic) if defined else None
    return {"spearman": correlation, "evaluations": len(pairs)}
