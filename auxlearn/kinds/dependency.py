"""Dependency trees: the head of each word and its relation to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from auxlearn.core.errors import DataError, describe, shorten
from auxlearn.core.lazy import torch
from auxlearn.core.registry import register_kind
from auxlearn.kinds.base import LEAST, ReadLabels, most_frequent
from auxlearn.kinds.labels import checked_label
from auxlearn.kinds.metrics import Metric, constant_loss, softmax
from auxlearn.kinds.predictions import Arrays, Labels, Names
from auxlearn.kinds.words import (
    CERTAIN,
    HEADS,
    NO_TAG,
    Counts,
    WordKind,
    heads_of,
    labels_in,
    list_of,
    word_labels,
    word_pairs,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from auxlearn.core.settings import Columns
    from auxlearn.core.table import Table

#: Column of the relations beside a column of heads.
_DEPREL = "deprel"

#: An arc: the number of the head, from 1, or 0 for the root, and the relation.
Arc = tuple[int, Any]


@register_kind("dependency")
class Dependency(WordKind):
    """The head of each word and its relation: cross-entropy of both, added up, in nats.

    A biaffine parser on the first token of each word (:class:`~auxlearn.kinds.biaffine.Biaffine`;
    Dozat & Manning 2017). The loss of a word is minus the logarithm of the probability of its head
    among all words and the root, minus that of its relation given the true head; words whose head
    is cut off by ``max_length`` are left out. The maximum spanning tree with one root is decoded,
    with the most probable relation of each arc. UAS and LAS are those of the CoNLL 2018 shared
    task: the share of all words, punctuation included, with the right head, and with the right head
    and relation, of which the part behind a colon does not count.
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        "las": Metric("LAS", "las"),
        "uas": Metric("UAS", "uas"),
    }
    refuses = WordKind.refuses | {
        "class weights and label smoothing",
        "windows of long texts",
    }
    purpose = "to parse sentences of {data} with {count} relations: {labels}"
    limits = "The parser is the classifier of the weights, which no class of transformers has."
    constant_title = "the most frequent distance to a head, with its relation"
    pipeline = ""
    label_columns = HEADS
    columns_beside = (_DEPREL,)
    per_word = ("las", "uas")
    eval_batch = 16  # scores of all pairs of words

    def recognises(self, table: Table, columns: Columns) -> bool:
        """Whether words have heads but no tags that differ."""
        labels, heads = word_labels(table, columns), heads_of(table, columns.label)
        if labels is None or not heads:
            return False
        return heads == labels or len(labels_in(labels)) < 2

    def read(self, table: Table, column: str, columns: Columns, form: str | None) -> ReadLabels:
        relations = table.columns.get(_DEPREL)
        trees = []
        for row, value in enumerate(table.columns[column]):
            place = table.place(row)
            items = list_of(value, place)
            if not isinstance(items, list | tuple):
                raise DataError(
                    f"{place}: column '{shorten(column)}' needs the head of each word, not "
                    f"{describe(value)}"
                )
            if not all(isinstance(item, list | tuple) for item in items):
                named = None if relations is None else list_of(relations[row], place)
                if not isinstance(named, list | tuple):
                    raise DataError(
                        f"{place}: a column '{_DEPREL}' needs the relation of each word"
                    )
                if len(named) != len(items):
                    raise DataError(
                        f"{place}: {len(items)} heads in column '{shorten(column)}', but "
                        f"{len(named)} relations in '{_DEPREL}': each word has one of each"
                    )
                items = list(zip(items, named, strict=True))
            trees.append(_tree(items, place))
        new = columns.renamed
        labels = [tuple((head, new.get(name, name)) for head, name in tree) for tree in trees]
        usual = columns.model_copy(update={"label_column": None})
        tags = labels_in(word_labels(table, usual) or [])
        few = columns.kind is None and column in HEADS[1:] and len(tags) == 1
        note = f"heads are read, not tags, which are all {shorten(min(tags))} or _" if few else ""
        return ReadLabels(labels, notes=(note,) if note else (), found=trees)

    def names(self, label: tuple[Arc, ...]) -> tuple[str, ...]:
        return tuple(relation for _, relation in label)

    def encode(self, label: tuple[Arc, ...], index: Mapping[str, int]) -> tuple[Arc, ...]:
        return tuple((head, index[relation]) for head, relation in label)

    def written(self, label: Sequence[Arc], names: Names) -> list[list[Any]]:
        return [[head, names[relation]] for head, relation in label]

    def classes(self, label: tuple[Arc, ...]) -> tuple[int, ...]:
        return tuple(relation for _, relation in label)

    def units(self, labels: Labels) -> list[Any]:
        """Return how far the head of each word is, 0 for the root, and with which relation."""
        return [
            ((head and head - word, relation),)
            for label in labels
            for word, (head, relation) in enumerate(label, 1)
        ]

    def head(self, usual: nn.Sequential) -> nn.Module:
        from auxlearn.kinds.biaffine import Biaffine

        first, *_, last = usual.parameters()
        return Biaffine(first.shape[1], len(last))

    def logits_shape(self, rows: int, length: int, outputs: int) -> tuple[int, ...]:
        return rows, length, length, 1 + outputs

    def targets(self, labels: Labels, classes: int) -> Tensor:
        """Return number, head and relation of each word, ``(words, 3)``."""
        rows = [(word, *arc) for label in labels for word, arc in enumerate(label, 1)]
        return torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)

    def items(self, targets: Tensor) -> int:
        return int(_gold(targets).sum())

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        gold = _gold(targets)
        arcs = _log_heads(logits, targets)[gold]
        relations = logits[..., 1:][gold].log_softmax(-1)
        wanted = targets[..., 2][gold.any(-1)]
        total = torch.nn.functional.nll_loss(relations, wanted, reduction="sum") - arcs.sum()
        return total / gold.sum().clamp(min=1)

    def by_word(
        self, logits: np.ndarray, starts: np.ndarray, words: int, constant: Arc
    ) -> np.ndarray:
        """Return log-probabilities of heads and scores of relations by dependent and head,
        ``(words, 1 + words, 1 + relations)``, the root before the words.
        """
        places = np.concatenate([[0], np.flatnonzero(starts >= 0)])
        numbers = np.concatenate([[0], starts[starts >= 0] + 1])
        scores = logits[np.ix_(places[1:], places)]
        arcs = scores[..., 0]
        np.fill_diagonal(arcs[:, 1:], -np.inf)  # no word heads itself
        arcs -= np.logaddexp.reduce(arcs, axis=-1, keepdims=True)
        # Finite, and no more than any arc that has a score: a tie is broken by the order of words.
        least = min(np.log(LEAST), arcs.min(where=np.isfinite(arcs), initial=0))
        scores[..., 0] = np.maximum(arcs, least)
        output = np.zeros((words, words + 1, logits.shape[-1]))
        output[:, :, 0] = least
        output[np.ix_(numbers[1:] - 1, numbers)] = scores
        unseen = sorted({*range(1, words + 1)} - {*numbers.tolist()})
        for word, (head, relation) in zip(unseen, self._at(constant, unseen, words), strict=True):
            output[word - 1, head, 0] = 0.0
            output[word - 1, :, 1 + relation] = CERTAIN
        return output

    def decode(self, output: np.ndarray, thresholds: np.ndarray | None = None) -> tuple[Arc, ...]:
        heads = spanning_tree(output[..., 0].astype(float))
        relations = output[range(len(heads)), heads, 1:].argmax(-1).tolist()
        return tuple(zip(heads, relations, strict=True))

    def constant(self, labels: Labels) -> Arc:
        """Return how far the head of a word is most often, 0 for the root, with which relation."""
        commonest: Arc = most_frequent(arc for (arc,) in self.units(labels))
        return commonest

    def _at(self, constant: Arc, places: Sequence[int], words: int) -> list[Arc]:
        """Return a constant prediction for words by number; beyond the sentence it is the root."""
        far, relation = constant
        heads = (word + far if far else 0 for word in places)
        return [(head if 0 < head <= words else 0, relation) for head in heads]

    def repeated(self, constant: Arc, label: tuple[Arc, ...]) -> tuple[Arc, ...]:
        return tuple(self._at(constant, range(1, len(label) + 1), len(label)))

    def scores(
        self, truth: Labels, predicted: Labels, outputs: Arrays | None, names: Names
    ) -> dict[str, float]:
        universal = [name.partition(":")[0] for name in names]
        pairs = word_pairs(truth, predicted)
        headed = [(arc[1], guess[1]) for arc, guess in pairs if arc[0] == guess[0]]
        labelled = sum(universal[relation] == universal[guess] for relation, guess in headed)
        count = max(1, len(pairs))
        return {"las": labelled / count, "uas": len(headed) / count}

    def _counts(self, truth: Labels, predicted: Labels, names: Names) -> Counts:
        """Count arcs by their relation."""
        pairs = word_pairs(truth, predicted)
        right = Counter(names[arc[1]] for arc, guess in pairs if arc == guess)
        guessed = Counter(names[guess[1]] for _, guess in pairs)
        there = Counter(names[arc[1]] for arc, _ in pairs)
        return right, guessed, there

    def smooth(self, logits: Tensor, targets: Tensor, metric: str) -> Tensor:
        """Return one minus the expected attachment score; LAS of whole relations."""
        gold = _gold(targets)
        chosen = _log_heads(logits, targets)[gold]
        if metric == "las":
            wanted = targets[..., 2][gold.any(-1)]
            relations = logits[..., 1:][gold].log_softmax(-1)
            chosen = chosen + relations.gather(-1, wanted[:, None]).squeeze(-1)
        return 1 - chosen.exp().sum() / gold.sum().clamp(min=1)

    def constant_loss(self, targets: Tensor, metric: str) -> float:
        """Return the loss of one distribution over distances with relations, for every word."""
        rows = targets.reshape(-1, 3)
        rows = rows[rows[:, 0] != NO_TAG]
        distances = rows[:, 1] - rows[:, 0] * (rows[:, 1] > 0)
        outcomes = [distances] if metric == "uas" else [distances, rows[:, 2]]
        numbers = torch.stack(outcomes, 1).unique(dim=0, return_inverse=True)[1]
        return constant_loss(numbers, "accuracy" if metric in self.metrics else "cross_entropy")

    def mean_loss(self, truth: Labels, outputs: Arrays, classes: int, metric: str) -> float:
        total, words = 0.0, 0
        for label, output in zip(truth, outputs, strict=True):
            # The root has the place of its token, which no word begins at.
            logits = torch.from_numpy(output).double()
            logits = torch.cat([torch.zeros_like(logits[:1]), logits])[None]
            targets = self.targets([label], classes)
            targets = torch.cat([torch.full_like(targets[:1], NO_TAG), targets])[None]
            total += float(self.surrogate(logits, targets, metric)) * len(label)
            words += len(label)
        return total / max(1, words)

    def line(self, output: np.ndarray) -> dict[str, Any]:
        """Return the probabilities of each head, and of each relation over all heads."""
        heads, relations = self._probabilities(output)
        return {"heads": _rounded(heads), "relations": _rounded(relations)}

    def stored(self, line: Mapping[str, Any], names: Names) -> np.ndarray:
        """Return both side by side, ``(words, 1 + words + relations)``."""
        words = len(line["label"])
        heads, relations = (np.array(line[key], dtype=float) for key in ("heads", "relations"))
        if heads.shape != (words, words + 1) or relations.shape != (words, len(names)):
            raise ValueError("another number of probabilities than of words or relations")
        return np.concatenate([heads, relations], 1)

    def output(self, stored: np.ndarray) -> np.ndarray:
        """Return an output in which a relation is as likely whatever the head."""
        heads, relations = np.split(np.log(stored.clip(LEAST)), [len(stored) + 1], axis=1)
        whole = np.broadcast_to(relations[:, None], (*heads.shape, relations.shape[1]))
        return np.concatenate([heads[..., None], whole], -1)

    def example(self, number: int, words: int, outputs: int) -> tuple[Arc, ...]:
        """Return a tree in which each word heads the next one."""
        return tuple((word, word % outputs) for word in range(words))

    def counted(self, names: Names) -> tuple[str, ...]:
        return tuple(names)

    def _right_words(self, truth: Any, predicted: Any, names: Names) -> list[float]:
        scores = self.scores([truth], [predicted], None, names)
        return [scores[metric] * len(truth) for metric in self.per_word]

    def _probabilities(self, output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probabilities of heads, and of relations whatever the head."""
        heads = softmax(output[..., 0].astype(float).clip(min=np.log(LEAST)))
        return heads, (heads[..., None] * softmax(output[..., 1:].astype(float))).sum(1)


def _tree(items: Sequence[Any], place: str) -> tuple[Arc, ...]:
    """Return the arcs of a sentence, checked to be a tree with one root."""
    arcs: list[Arc] = []
    for word, item in enumerate(items, 1):
        if not isinstance(item, list | tuple) or len(item) != 2:
            raise DataError(f"{place}: word {word} needs [head, relation], not {describe(item)}")
        head, relation = item
        number = int(head) if str(head).isdecimal() else word
        if number == word or number > len(items):
            raise DataError(
                f"{place}: word {word} has the HEAD {describe(head)}: it is the number of another "
                f"word, up to {len(items)}, or 0 for the root"
            )
        name = checked_label(relation, f"{place}: ", _DEPREL, "dependency")
        if name in ("", "_"):
            raise DataError(f"{place}: word {word} has no DEPREL: name its relation")
        arcs.append((number, name))
    heads = [head for head, _ in arcs]
    if heads.count(0) != 1:
        raise DataError(f"{place}: {heads.count(0)} words have the HEAD 0: a tree has one root")
    if cycle := cycle_of([0, *heads]):
        shown = ", ".join(map(str, cycle[:5]))
        raise DataError(f"{place}: the words {shown} head each other in a circle: correct a HEAD")
    return tuple(arcs)


def _words(targets: Tensor) -> Tensor:
    """Return the number of the word that begins at each token, 0 for the root, -100 elsewhere."""
    numbers = targets[..., 0].clone()
    numbers[..., 0] = 0
    return numbers


def _gold(targets: Tensor) -> Tensor:
    """Return which token heads which, ``(..., dependents, heads)``; none for a head cut off."""
    dependents = (targets[..., 0] > 0).unsqueeze(-1)
    return dependents & (_words(targets).unsqueeze(-2) == targets[..., 1].unsqueeze(-1))


def _log_heads(logits: Tensor, targets: Tensor) -> Tensor:
    """Return log-probabilities of heads over the words of a text and the root."""
    numbers = _words(targets)
    barred = (numbers < 0).unsqueeze(-2) | torch.eye(
        numbers.shape[-1], dtype=torch.bool, device=numbers.device
    )
    barred[..., 0] = False  # so that tokens of no word have some head
    return logits[..., 0].masked_fill(barred, -torch.inf).log_softmax(-1)


def _rounded(rows: np.ndarray) -> list[list[float]]:
    return [[round(probability, 8) for probability in row] for row in rows.tolist()]


def cycle_of(heads: Sequence[int]) -> list[int]:
    """Return the words of a cycle, by the head of each number; that of the root is not read.

    >>> cycle_of([0, 0, 3, 2]), cycle_of([0, 2, 0])
    ([2, 3], [])
    """
    known = {0}
    for word in range(1, len(heads)):
        path: dict[int, None] = {}
        while word not in known and word not in path:
            path[word] = None
            word = heads[word]
        if word in path:
            return list(path)[list(path).index(word) :]
        known.update(path)
    return []


def spanning_tree(scores: np.ndarray) -> list[int]:
    """Return the head of each word, 0 for the root, in the maximum spanning tree in which one word
    has the root as its head (Chu and Liu 1965, Edmonds 1967), by the finite score of each head of
    each word, ``(words, 1 + words)``, the root first; a word as its own head is not read.
    """
    whole = np.zeros((len(scores) + 1, len(scores) + 1))
    whole[1:] = scores
    # More than all the other arcs can gain, so that the best tree has one arc from the root.
    whole[1:, 0] -= 1 + len(whole) * np.ptp(scores)
    return [int(head) for head in _arborescence(whole)[1:]]


def _arborescence(scores: np.ndarray) -> np.ndarray:
    """Return the head of each node in the best tree from node 0, by ``scores[node, head]``."""
    scores = scores.copy()
    np.fill_diagonal(scores, -np.inf)
    heads = scores.argmax(1)
    heads[0] = 0
    inside = np.array(cycle_of(heads.tolist()), dtype=int)
    if not len(inside):
        return heads
    # The cycle becomes one node, the last. An arc into it replaces one of the cycle's own.
    outside = np.setdiff1d(np.arange(len(scores)), inside)
    gains = scores[np.ix_(inside, outside)] - scores[inside, heads[inside]][:, None]
    leaving = scores[np.ix_(outside, inside)]
    smaller = np.block(
        [
            [scores[np.ix_(outside, outside)], leaving.max(1)[:, None]],
            [gains.max(0)[None], np.zeros((1, 1))],
        ]
    )
    merged_heads = _arborescence(smaller)
    places = np.append(outside, -1)
    heads[outside] = np.where(
        merged_heads[:-1] == len(outside), inside[leaving.argmax(1)], places[merged_heads[:-1]]
    )
    entered = inside[gains[:, merged_heads[-1]].argmax()]
    heads[entered] = outside[merged_heads[-1]]
    return heads
