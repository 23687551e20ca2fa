"""A tag for each word of a text: spans in BIO tags, or plain tags such as parts of speech."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from auxlearn.core.errors import ConfigError, DataError, describe, shorten, some_of
from auxlearn.core.lazy import torch
from auxlearn.core.registry import register_kind
from auxlearn.kinds.base import LEAST, WORD_LABELS, ReadLabels, most_frequent
from auxlearn.kinds.labels import read_names
from auxlearn.kinds.metrics import Metric, constant_loss, f1_of, smooth_f1, softmax
from auxlearn.kinds.predictions import Arrays, Labels, Names
from auxlearn.kinds.words import (
    CERTAIN,
    NO_TAG,
    Counts,
    WordKind,
    heads_of,
    list_of,
    word_labels,
    word_pairs,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from auxlearn.core.settings import Columns
    from auxlearn.core.table import Table

_BIO = re.compile(r"O|[BI]-.+")

_OTHER = (
    r"_:/.\u2010-\u2015\u2212"  # what stands for a hyphen, such as the dash of a word processor
)

#: Marks of BIO, BIOES, BILOU, BMES and BMEWO before a type, behind it or alone.
_SCHEMES = {
    "-prefix": re.compile(r"(?P<mark>[BIMELSUW])-(?P<type>.+)"),
    "prefix": re.compile(rf"(?P<mark>[BIMELSUW])[{_OTHER}](?P<type>.+)"),
    "suffix": re.compile(rf"(?P<type>.+)[-{_OTHER}](?P<mark>[BIMELSUW])"),
    "bare": re.compile(r"(?P<mark>[BIMELSUW])(?P<type>)"),
}
_NESTED = re.compile(r"[BIMELSUW]-.+[|,;/+#][BIMELSUW]-.+")
_FIRST, _LAST = {*"BSUW"}, {*"ELSUW"}  # marks that begin and that end a span
_FEW_EXAMPLES = 10  # of which each may well be a single word
_LIKE_SPAN = re.compile(rf"[BI]|[BI][-{_OTHER}].+|.+[-{_OTHER}][BI]", re.IGNORECASE)


@register_kind("token_classification")
class TokenClassification(WordKind):
    """Words with tags; cross-entropy at the first token of each word.

    The head is ``AutoModelForTokenClassification``. Tags O, B-TYPE and
    I-TYPE mark spans, which are scored by the F1 of whole spans as in CoNLL (micro-average); other
    tags by the share of words that have the right one. Words that are cut off, or have no token,
    are predicted to have the most frequent tag of train.
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        "span_f1": Metric("span F1", "f1"),
        "accuracy": Metric("accuracy", "accuracy"),
    }
    metric_by_names = True
    purpose = "to tag the words of texts of {data} with {count} tags: {labels}"
    limits = 'Tags are those of the first token of a word (`aggregation_strategy="first"`).'
    constant_title = "the most frequent tag of train"
    pipeline = "token-classification"
    label_columns = WORD_LABELS
    per_word = ("accuracy",)

    def recognises(self, table: Table, columns: Columns) -> bool:
        return word_labels(table, columns) is not None

    def read(self, table: Table, column: str, columns: Columns, form: str | None) -> ReadLabels:
        """Return the tags of each row; those of other schemes of spans in BIO. As in conlleval and
        seqeval, a word inside a span that none begins (IOB1) begins one.
        """
        values, shown = table.columns[column], shorten(column)
        rows = [_tags(value, table.place(row), column) for row, value in enumerate(values)]
        labels = read_names(table, column, rows, self.name, columns, "").labels
        written = list(dict.fromkeys(name for tags in labels for name in tags))
        _check_brackets(table, shown, labels)
        notes = list(_single_words(table, shown, labels, written))
        if columns.kind is None and heads_of(table):
            notes.append(
                "words have tags and heads: the tags are read; the kind dependency reads the heads"
            )
        new = columns.renamed
        renamed = [tuple(new.get(name, name) for name in tags) for tags in labels]
        names = list(dict.fromkeys(new.get(name, name) for name in written))
        if form is None:
            form = _scheme_of(names)
            _check_map(table, written, new, _scheme_of(written), form)
        scheme = _SCHEMES.get(form)
        if scheme is None or not all(name == "O" or scheme.fullmatch(name) for name in names):
            notes += _looks_like_spans(table, shown, renamed, names)
            if untagged := sum(tags.count("_") for tags in renamed):
                notes.append(f"{untagged:,} words have the tag _, which CoNLL-U writes for none")
            return ReadLabels(renamed, form, tuple(notes), labels)
        in_bio = [_as_bio(tags, scheme) for tags in renamed]
        changed = [row for row, tags in enumerate(in_bio) if tags != renamed[row]]
        if changed and is_bio(names):
            notes.append(
                f"sentences with an I- tag that begins a span: {len(changed):,} of "
                f"{len(in_bio):,}, the first is {table.place(changed[0])}; it is read as B-, as in "
                "IOB1"
            )
        elif changed:
            pairs = zip(renamed[changed[0]], in_bio[changed[0]], strict=True)
            old, bio = next(pair for pair in pairs if len({*pair}) > 1)
            notes.append(f"the tags in column '{shown}' are read as spans in BIO: {old} as {bio}")
        return ReadLabels(in_bio, form, tuple(notes), labels)

    def implies(self, names: Names, name: str) -> bool:
        """Whether it is the I- of a type of spans that are single words in train."""
        return name.startswith("I-") and f"B{name[1:]}" in names

    def targets(self, labels: Labels, classes: int) -> Tensor:
        return torch.tensor([tag for label in labels for tag in label], dtype=torch.int64)

    def items(self, targets: Tensor) -> int:
        return int((targets != NO_TAG).sum())

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        # The sum over no words is a zero that still has a graph; the mean would be NaN.
        total = torch.nn.functional.cross_entropy(
            logits.flatten(0, -2), targets.flatten(), ignore_index=NO_TAG, reduction="sum"
        )
        return total / (targets != NO_TAG).sum().clamp(min=1)

    def choices(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        here = targets.flatten() != NO_TAG
        return logits.flatten(0, -2)[here], targets.flatten()[here]

    def outcomes(self, targets: Tensor) -> Tensor:
        return targets[targets != NO_TAG]

    def smooth(self, logits: Tensor, targets: Tensor, metric: str) -> Tensor:
        """Return one minus the expected accuracy, or the F1 of expected counts of tags but O.

        The F1 of whole spans has no expectation that is cheap to compute; tags are counted instead.
        The most frequent tag of the batch, O in any text with spans, is left out.
        """
        words, truth = self.choices(logits, targets)
        chosen = words.softmax(-1)
        wanted = torch.nn.functional.one_hot(truth, logits.shape[-1]).to(chosen)
        if metric == "accuracy":
            return 1 - (chosen * wanted).sum(-1).mean()
        inside = torch.arange(logits.shape[-1], device=logits.device) != wanted.sum(0).argmax()
        return 1 - smooth_f1(chosen[:, inside], wanted[:, inside], "micro")

    def constant_loss(self, targets: Tensor, metric: str) -> float:
        truth = self.outcomes(targets)
        if metric != "span_f1":
            return constant_loss(truth, metric)
        # Of the tags that count, the most frequent one is predicted: 2 s_1 / (1 + sum of their s).
        shares = truth.bincount().sort(descending=True).values[1:].double() / len(truth)
        return 1 - float(2 * shares[:1].sum() / (1 + shares.sum()))

    def head(self, usual: nn.Sequential) -> nn.Module:
        """Return the head of transformers' models of token classification."""
        *_, dropout, output = usual.children()
        return torch.nn.Sequential(dropout, output)

    def by_word(
        self, logits: np.ndarray, starts: np.ndarray, words: int, constant: int
    ) -> np.ndarray:
        output = np.zeros((words, logits.shape[-1]))
        output[:, constant] = CERTAIN
        output[starts[starts >= 0]] = logits[starts >= 0]
        return output

    def decode(self, output: np.ndarray, thresholds: np.ndarray | None = None) -> tuple[int, ...]:
        return tuple(output.argmax(-1).tolist())

    def constant(self, labels: Labels) -> int:
        return int(most_frequent(tag for label in labels for tag in label))

    def repeated(self, constant: int, label: tuple[int, ...]) -> tuple[int, ...]:
        return (constant,) * len(label)

    def scores(
        self, truth: Labels, predicted: Labels, outputs: Arrays | None, names: Names
    ) -> dict[str, float]:
        pairs = word_pairs(truth, predicted)
        scores = {"accuracy": sum(t == p for t, p in pairs) / max(1, len(pairs))}
        if not is_bio(names):
            return scores
        counts = (counter.total() for counter in self._counts(truth, predicted, names))
        return {"span_f1": f1_of(*counts)["f1"]} | scores

    def _counts(self, truth: Labels, predicted: Labels, names: Names) -> Counts:
        right, guessed, there = Counter[str](), Counter[str](), Counter[str]()
        for true_tags, guessed_tags in zip(truth, predicted, strict=True):
            true_spans = self._spans(true_tags, names)
            guessed_spans = self._spans(guessed_tags, names)
            right.update(kind for kind, *_ in true_spans & guessed_spans)
            guessed.update(kind for kind, *_ in guessed_spans)
            there.update(kind for kind, *_ in true_spans)
        return right, guessed, there

    def _spans(self, tags: Sequence[int], names: Names) -> set[tuple[str, int, int]]:
        written = [names[tag] for tag in tags]
        if is_bio(names):
            return spans_of(written)
        return {(tag, place, place) for place, tag in enumerate(written)}

    def line(self, output: np.ndarray) -> dict[str, Any]:
        rows = softmax(output).tolist()
        return {"probabilities": [[round(p, 8) for p in row] for row in rows]}

    def output(self, stored: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(stored.clip(LEAST)))

    def counted(self, names: Names) -> tuple[str, ...]:
        return tuple(sorted({name[2:] for name in names} - {""} if is_bio(names) else names))

    def _right_words(self, truth: Any, predicted: Any, names: Names) -> list[float]:
        return [sum(t == p for t, p in zip(truth, predicted, strict=True))]

    def default_metric(self, names: Names) -> str:
        return "span_f1" if is_bio(names) else "accuracy"

    def check_metric(self, metric: str, names: Names) -> None:
        super().check_metric(metric, names)
        if metric == "span_f1" and not is_bio(names):
            raise ConfigError(
                "metric: span_f1 is of BIO tags (B-TYPE, I-TYPE, O), but train has others: choose "
                "accuracy"
            )


def is_bio(names: Iterable[str]) -> bool:
    """Return whether tags mark spans: O, B-TYPE and I-TYPE, with one span at least."""
    distinct = set(names)
    return all(map(_BIO.fullmatch, distinct)) and bool(distinct - {"O"})


def spans_of(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return the spans of BIO tags: type, first word, last word.

    As in the evaluation of CoNLL-2000 and 2003 (``conlleval``), a predicted I- without a span of
    its type before it begins one.

    >>> sorted(spans_of(["B-PER", "I-PER", "O", "I-LOC"]))
    [('LOC', 3, 3), ('PER', 0, 1)]
    """
    spans: set[tuple[str, int, int]] = set()
    begun = 0
    for place, tag in enumerate([*tags, "O"]):
        before = tags[place - 1] if place else "O"
        if before != "O" and not (tag.startswith("I-") and tag[2:] == before[2:]):
            spans.add((before[2:], begun, place - 1))
        if tag != "O" and not (tag.startswith("I-") and before != "O" and tag[2:] == before[2:]):
            begun = place
    return spans


def _scheme_of(names: Sequence[str]) -> str:
    """Return which of the schemes of spans tags are certainly of; "" if of none."""
    if is_bio(names):
        return "-prefix"
    for form, scheme in _SCHEMES.items():
        matches = [scheme.fullmatch(name) for name in names if name != "O"]
        marks = {match["mark"] for match in matches if match}
        whole = "O" in names or "S" in marks
        begun = "B" in marks and not marks.isdisjoint("IMEL")
        if all(matches) and whole and (begun or (form == "-prefix" and marks - {*"BI"})):
            return form
    return ""


def _as_bio(tags: Sequence[str], scheme: re.Pattern[str]) -> tuple[str, ...]:
    """Return tags of a scheme in BIO, with the spans that conlleval and seqeval find in them."""
    bio, mark, kind = [], "", ""
    for tag in tags:
        last, before = mark, kind
        match = scheme.fullmatch(tag) if tag != "O" else None
        mark, kind = (match["mark"], match["type"] or "span") if match else ("", "")
        begins = mark in _FIRST or last in _LAST or kind != before
        bio.append(f"{'B' if begins else 'I'}-{kind}" if match else "O")
    return tuple(bio)


def _check_brackets(table: Table, column: str, labels: Sequence[Sequence[str]]) -> None:
    """Refuse the columns of CoNLL-2012, whose brackets would be read as tags, and nested spans."""
    for row, tags in enumerate(labels):
        for tag in tags:
            if ("*" in tag and {*"()"} & {*tag}) or _NESTED.fullmatch(tag):
                what = "a bracket of CoNLL-2012 or OntoNotes" if "*" in tag else "of several spans"
                raise DataError(
                    f"{table.place(row)}: the tag '{shorten(tag)}' in column '{column}' is {what}: "
                    "write spans as B-TYPE, I-TYPE and O"
                )


def _check_map(
    table: Table, names: Sequence[str], renamed: Mapping[str, str], before: str, after: str
) -> None:
    """Check that a map keeps spans whole: the tags of a type become those of one type."""
    types: dict[str, str] = {}
    for name in names if before and after else ():
        old, new = (
            match["type"] if (match := _SCHEMES[form].fullmatch(tag)) else ""
            for form, tag in ((before, name), (after, renamed.get(name, name)))
        )
        if old and types.setdefault(old, new) != new:
            shown = " and ".join(span_type or "O" for span_type in sorted({types[old], new}))
            every = [n for n in names if (m := _SCHEMES[before].fullmatch(n)) and m["type"] == old]
            raise DataError(
                f"{table.where}: labels: the tags of the spans '{shorten(old)}' become those of "
                f"{shown}, which divides spans: map all of them, {some_of(every)}"
            )


def _single_words(
    table: Table, column: str, labels: Sequence[Sequence[str]], names: Sequence[str]
) -> Iterator[str]:
    """Check that no list of tags is read as one; say it if no example has two words."""
    is_single = len(labels) > _FEW_EXAMPLES and all(len(tags) == 1 for tags in labels)
    for name in names:
        ends = name[-1] in ",|;" and name[:-1] in names
        if ends or (is_single and re.search("[^,|][,|]+[^,|]", name)):
            raise DataError(
                f"{table.where}: the tag '{shorten(name)}' in column '{column}' holds a separator: "
                "divide words and tags by spaces, or write lists in JSON"
            )
    if is_single:
        yield "every example has one word: group the words of a sentence, or save as .conll"


def _looks_like_spans(
    table: Table, column: str, labels: Sequence[tuple[str, ...]], names: Sequence[str]
) -> Iterator[str]:
    """Say of tags that are read as plain ones if they may be meant for spans."""
    spans = [name for name in names if _LIKE_SPAN.fullmatch(name)]
    is_begun = any(name[0] == "B" and f"I{name[1:]}" in names for name in spans)
    if not spans or is_bio(names) or not (is_begun or {*"Oo0"} & {*names}):
        return
    others = [name for name in names if name not in spans and name not in "Oo"]
    row = next(row for row, tags in enumerate(labels) if not {*tags}.isdisjoint(others or spans))
    like = f"all but {some_of(others)} (first in {table.place(row)})" if others else some_of(spans)
    yield (
        f"the tags in column '{column}' look like spans ({like}), but are scored word by word: "
        "span F1 needs O, B-TYPE and I-TYPE"
    )


def _tags(value: Any, place: str, column: str) -> Sequence[Any]:
    tags = list_of(value, place)
    if not isinstance(tags, list | tuple):
        raise DataError(
            f"{place}: column '{shorten(column)}' needs a list of tags, not {describe(value)}"
        )
    return tags
