"""Audit of a data set: class counts, duplicates, leakage, contradictory labels, lengths."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.core.errors import and_more, shorten, some_of
from auxlearn.data.conll import are_tags
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.splits import text_keys
from auxlearn.kinds.base import kind_of
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.kinds.labels import NULL_LABELS, listed, look_joined, looks_of

if TYPE_CHECKING:
    from auxlearn.core.cache import TensorCache
    from auxlearn.data.tokens import Tokenization, TokenizedTexts

#: Usual names of the column of the second text of a pair.
SECOND_TEXT = re.compile(
    r"(?i)(sentence|sent|text|question|premise|query|s|q)[ _]?(2|b)|hypothesis|text_pair"
)

_QUOTED = re.compile(r"\s*(['\"]).*\1\s*", re.DOTALL)
#: A text with its label before it, as of fastText, or a word with its tag.
_LABELLED = re.compile(r"__label__\S+\s.+|\S+\s(.+\s)?([BILSEU]-\S+|O)", re.DOTALL)


@dataclass(frozen=True)
class SplitAudit:
    """Audit of one split; normalised texts are their letters and digits, case-folded."""

    examples: int
    #: Examples per label, in the order of the label names; empty if it is unlabelled.
    labels: dict[str, int]
    missing_labels: tuple[str, ...]  # label names without an example
    duplicates: int  # examples whose text also occurs earlier in the split, to the letter
    duplicates_normalised: int
    in_train_exact: int = 0  # examples whose text is in train to the letter; 0 for train itself
    in_train_normalised: int = 0
    texts_in_train: int = 0  # distinct normalised texts among those


@dataclass(frozen=True)
class Audit:
    """Audit of a data set: what a user should know before trusting its results."""

    name: str
    splits: dict[str, SplitAudit]  # one entry per split and out-of-distribution set
    #: Distinct texts with more than one label, over all splits; out-of-distribution sets do not
    #: count, as their labels can have another meaning.
    contradictions: int
    pairs: bool = False  # whether the examples are pairs of texts
    kind: str = "classification"  # of the labels
    remarks: tuple[str, ...] = ()  # what else a user should know, a sentence each

    def warnings(self) -> Iterator[str]:
        """Yield one sentence per problem."""
        text = "text pair" if self.pairs else "text"
        for name, split in self.splits.items():
            if split.missing_labels:
                counts = ", which macro-F1 counts there only where it is predicted"
                counts = counts if kind_of(self.kind).balanced == "macro_f1" else ""
                missing = some_of(split.missing_labels)
                yield f"{name} has no example with the label {missing}{counts}"
            if split.duplicates_normalised:
                count = _examples(split.duplicates)
                more = f" ({split.duplicates_normalised} if only letters and digits count)"
                more = more if split.duplicates_normalised > split.duplicates else ""
                yield f"{name}: the {text} of {count} repeats an earlier one{more}"
            if split.in_train_normalised:
                yield (
                    f"{name}: the {text} of {split.in_train_exact} of "
                    f"{_examples(split.examples)} is also in train ("
                    f"{split.in_train_normalised} if only letters and digits count)"
                )
        if self.contradictions:
            yield f"{text}s with more than one label: {self.contradictions}"
        yield from self.remarks


def _examples(count: int) -> str:
    return f"{count} example" if count == 1 else f"{count} examples"


def audit(dataset: TextDataset) -> Audit:
    """Check a data set for problems that make its results doubtful."""
    train = dataset.splits["train"]
    train_exact = set(text_keys(train, exact=True))
    train_normalised = set(text_keys(train))
    labels_of: dict[tuple[str, ...], set[str]] = defaultdict(set)
    splits = {}
    for name, split in dataset.everything.items():
        keys = text_keys(split)
        count = Counter(c for label in split.labels or () for c in split.kind.classes(label))
        seen = [] if name == "train" else [key for key in keys if key in train_normalised]
        exact = text_keys(split, exact=True)
        labels = {
            label: count[number]
            for number, label in enumerate(split.label_names)
            if split.labels is not None
        }
        splits[name] = SplitAudit(
            examples=len(split),
            labels=labels,
            missing_labels=tuple(label for label, number in labels.items() if number == 0),
            duplicates=len(exact) - len(set(exact)),
            duplicates_normalised=len(keys) - len(set(keys)),
            in_train_exact=0 if name == "train" else sum(key in train_exact for key in exact),
            in_train_normalised=len(seen),
            texts_in_train=len(set(seen)),
        )
        if name in dataset.splits and split.labels is not None:
            for key, number in zip(exact, split.labels, strict=True):
                labels_of[key].add(str(split.kind.written(number, split.label_names)))
    return Audit(
        name=dataset.name,
        splits=splits,
        contradictions=sum(len(labels) > 1 for labels in labels_of.values()),
        pairs=train.text_pairs is not None,
        kind=train.kind.name,
        remarks=tuple(_remarks(dataset)),
    )


def doubtful_texts(split: Split) -> Iterator[str]:
    """Yield what texts, or names of labels, say against how they were read."""
    for what, texts in {"text": split.texts, "second text": split.text_pairs or ()}.items():
        if empty := [text for text in texts if text in NULL_LABELS - {"-", "--", "?"}]:
            shown = some_of(map(repr, dict.fromkeys(empty)))
            yield f"{what}s that look like a missing value: {len(empty):,} ({shown})"
        if texts and all(listed(text) is not None for text in texts):
            yield (
                f"each {what} is a list ({shorten(texts[0], 30)}), whose brackets and quotation "
                "marks are read as part of it: join its items to a text"
            )
        # A sentence may end with the word O.
        if (
            texts
            and all(map(_LABELLED.fullmatch, texts))
            and any(text[-1] != "O" for text in texts)
        ):
            yield (
                f"each {what} has its label in it ({shorten(texts[0], 30)}), which is read as part "
                "of it: leave the labels out"
            )
        yield from _quoted(what, texts)
    yield from _quoted("label", split.label_names)


def _quoted(what: str, values: Sequence[str]) -> Iterator[str]:
    if values and all(map(_QUOTED.fullmatch, values)):
        yield (
            f"each {what} stands in quotation marks, which are read as part of it: CSV quotes a "
            'cell by ", without a space before it'
        )


def _remarks(dataset: TextDataset) -> Iterator[str]:
    """Yield what the labels and columns of a data set say beside the counts, a sentence each."""
    train, dev = dataset.splits["train"], dataset.splits.get("dev")
    if dev is not None and dev.labels:
        labels = itertools.chain(*dev.labels) if dev.kind.per_token else dev.labels
        if len(set(labels)) == 1:
            yield (
                f"dev has the same label throughout ({dev.kind.name}), so that no metric on it can "
                "tell a good model from a constant prediction"
            )
    if dev is not None and (test := dataset.splits.get("test")) is not None:
        shared = {*text_keys(dev, exact=True)} & {*text_keys(test, exact=True)}
        if shared:
            yield (
                "texts in both dev and test, so that they test the model that they have chosen: "
                f"{len(shared)}"
            )
    doubtful: dict[str, list[str]] = defaultdict(list)
    for split in dataset.splits.values():
        for remark in doubtful_texts(split):
            doubtful[remark].append(split.name)
    yield from (f"{', '.join(names)}: {remark}" for remark, names in doubtful.items())
    numbers = [name for name in train.label_names if name.lstrip("+-").isdecimal()]
    if 0 < len(numbers) < len(train.label_names) and not train.kind.per_token:
        rest = [name for name in train.label_names if name not in numbers]
        yield (
            f"labels of which some are whole numbers ({some_of(numbers, 3)}) and others names "
            f"({some_of(rest, 3)}): are these the same classes?"
        )
    alike: dict[str, dict[str, None]] = defaultdict(dict)
    for name in (name for split in dataset.splits.values() for name in split.label_names):
        looks = looks_of(name)
        alike[{"true": "1", "false": "0"}.get(looks, looks)][name] = None
    groups = [names for names in alike.values() if len(names) > 1]
    if groups:
        yield (
            "labels that differ only in capitals, spaces, quotation marks, leading zeros, Unicode "
            "form or invisible characters, or as 1 does from true: "
            f"{some_of(map(ascii, groups[0]))}{and_more(len(groups) - 1)}; --labels makes them one"
        )
    if train.labels and not train.kind.per_token:
        count = Counter(c for label in train.labels for c in train.kind.classes(label))
        single = [name for place, name in enumerate(train.label_names) if count[place] == 1]
        if single and len(train) >= 2 * len(train.label_names):
            yield f"train: labels with a single example: {some_of(map(repr, single))}"
    names = train.label_names if train.kind is CLASSIFICATION else ()
    of_fasttext = [name for name in names if name.count("__label__") > 1]
    if joined := of_fasttext or look_joined(names, "|;", ",#/+&"):
        yield (
            f"label '{shorten(joined[0])}'{and_more(len(joined) - 1)} is read as a class of its "
            "own, though its parts are labels too, or in other ones: several labels are given as a "
            "list, or joined by | with --kind multi_label"
        )
    if train.kind is CLASSIFICATION and (tags := _tags(train)):
        yield (
            f"labels such as '{shorten(tags)}' have as many parts as their texts have words: if "
            "they are a tag for each word, --kind token_classification reads them"
        )
    if train.labels and not train.kind.per_token:
        yield from train.kind.remarks(train.labels)
        for column, values in train.meta.items():
            words = [len(value.split()) for value in values]
            is_text = np.median(words) >= 4 and 2 * len(set(values)) > len(values)
            if is_text or (train.text_pairs is None and SECOND_TEXT.fullmatch(column)):
                yield (
                    f"column '{shorten(column)}' holds texts that are not read: --text-column or "
                    "--text-pair-column reads it"
                )


def _tags(train: Split) -> str:
    """Return a label if all have as many parts as their texts have words (``O O PER``)."""
    parts = [name.split() for name in train.label_names]
    places = {(place, part) for found in parts for place, part in enumerate(found)}
    if len(places) == len({part for _, part in places}) and not are_tags(train.label_names):
        return ""
    rows = zip(train.texts, train.labels or (), strict=False)
    fit = train.labels and all(len(text.split()) == len(parts[label]) for text, label in rows)
    return train.label_names[0] if fit else ""


def seen_in_train(train: Split, split: Split) -> list[bool]:
    """Return for each example of a split whether its exact text, or pair of texts, is in train."""
    known = set(text_keys(train, exact=True))
    return [key in known for key in text_keys(split, exact=True)]


_CHUNK = 1000  # texts tokenised at once
LEAST_UNKNOWN = 0.01  # share of unknown tokens that is worth a sentence


@dataclass(frozen=True)
class Lengths:
    """Lengths of texts; those of both texts of a pair are added."""

    #: "words", which white space divides or each has a label, or "tokens", special ones included.
    unit: str
    mean: float
    median: float
    percentile_95: float
    longest: int
    #: Share of the texts that are longer than the maximum, if there is one.
    truncated: float | None = None
    unknown: str | None = None  # how much of the texts an encoder does not know, a sentence


def word_lengths(split: Split) -> Lengths:
    """Return the lengths of the texts of a split in words, which no encoder is needed for."""
    divider = " " if split.kind.per_token else None  # a labelled word may hold another space
    counts = np.array([len(text.split(divider)) for text in split.texts])
    if split.text_pairs is not None:
        counts += [len(pair.split()) for pair in split.text_pairs]
    return _summary("words", counts)


def token_lengths(tokenizer: Any, split: Split, max_length: int) -> Lengths:
    counts, unknown = token_counts(tokenizer, split).T
    added = tokenizer.num_special_tokens_to_add(pair=split.text_pairs is not None)
    note = describe_unknown(split.name, unknown, counts - added)
    return replace(_summary("tokens", counts, max_length), unknown=note)


def describe_unknown(name: str, unknown: np.ndarray, tokens: np.ndarray) -> str | None:
    """Return a sentence on unknown tokens by the numbers of them and of all tokens of each text,
    special ones left out, unless they are few and every text has another.
    """
    share, whole = unknown.sum() / max(1, tokens.sum()), int((unknown == tokens).sum())
    if share < LEAST_UNKNOWN and not whole:
        return None
    nothing = f", in {_examples(whole)} all of them" if whole else ""
    return (
        f"{name}: {share:.1%} of the tokens are unknown to this encoder{nothing}: to it they are "
        "all the same, and they are neither masked nor scored"
    )


def unknown_in(name: str, texts: TokenizedTexts, unknown_id: int | None) -> str | None:
    """Return :func:`describe_unknown` of tokenised texts."""
    inside = texts.words.numpy() >= 0
    unknown = inside & (texts.input_ids.numpy() == (-1 if unknown_id is None else unknown_id))
    counts = (np.add.reduceat(1 * one, texts.offsets[:-1].numpy()) for one in (unknown, inside))
    return describe_unknown(name, *counts)


def token_counts(tokenizer: Any, split: Split) -> np.ndarray:
    """Return the numbers of tokens, and of unknown ones, of each text, ``(texts, 2)``."""
    counts: list[tuple[int, int]] = []
    for start in range(0, len(split), _CHUNK):
        end = start + _CHUNK
        pairs = None if split.text_pairs is None else list(split.text_pairs[start:end])
        encoded = tokenizer(list(split.texts[start:end]), pairs, truncation=False, verbose=False)
        counts += ((len(ids), ids.count(tokenizer.unk_token_id)) for ids in encoded["input_ids"])
    return np.array(counts).reshape(-1, 2)


def whole_lengths(
    tokenization: Tokenization, split: Split, texts: TokenizedTexts, cache: TensorCache | None
) -> np.ndarray:
    """Return the number of tokens of each text before it was cut, ``(texts,)``."""
    import torch

    from auxlearn.core.cache import content_key
    from auxlearn.data.tokens import tokenizer_settings

    tokenizer, lengths = tokenization.tokenizer, texts.offsets.diff().int().numpy()
    rows = np.flatnonzero(lengths >= tokenization.max_length)
    if len(rows):
        longest = split.select(rows.tolist())
        key = content_key(
            "whole lengths", tokenizer_settings(tokenizer), longest.texts, longest.text_pairs
        )

        def compute() -> dict[str, torch.Tensor]:
            return {"lengths": torch.tensor(token_counts(tokenizer, longest)[:, 0].tolist())}

        counted = compute() if cache is None else cache.get(key, compute)
        lengths[rows] = counted["lengths"].numpy()
    return lengths


def describe_cut(
    tokenization: Tokenization, split: Split, texts: TokenizedTexts, cache: TensorCache | None
) -> list[str]:
    """Return :func:`describe_lengths` of texts of which some are cut; nothing of others."""
    whole = whole_lengths(tokenization, split, texts, cache)
    cut = (whole > _most_tokens(tokenization)).any()
    return [describe_lengths(whole, tokenization, split.name)] if cut else []


def _most_tokens(tokenization: Tokenization) -> int:
    """Return how many tokens of a text are read."""
    windowing, most = tokenization.windowing, tokenization.max_length
    if windowing.in_windows:
        most += (windowing.max_windows - 1) * (tokenization.room - windowing.window_stride)
    return most


def describe_lengths(whole: np.ndarray, tokenization: Tokenization, where: str = "train") -> str:
    """Return the numbers of tokens of texts, and how much of them is kept, as a sentence."""
    max_length, windowing = tokenization.max_length, tokenization.windowing
    how = f"read in at most {windowing.max_windows} windows" if windowing.in_windows else "cut"
    kept = np.minimum(whole, _most_tokens(tokenization)).sum() / whole.sum()
    cut = int((whole > max_length).sum())
    reach = (
        f"{cut:,} of {len(whole):,} are longer than the {max_length} of max_length and are {how}, "
        f"which keeps {kept:.1%} of all tokens"
        if cut
        else f"none is longer than the {max_length} of max_length"
    )
    return (
        f"tokens per text of {where}: median {np.median(whole):.0f}, "
        f"95% have at most {np.percentile(whole, 95):.0f}; {reach}"
    )


def _summary(unit: str, counts: Sequence[int] | np.ndarray, maximum: int | None = None) -> Lengths:
    lengths = np.asarray(counts if len(counts) else [0])
    return Lengths(
        unit=unit,
        mean=float(lengths.mean()),
        median=float(np.median(lengths)),
        percentile_95=float(np.percentile(lengths, 95)),
        longest=int(lengths.max()),
        truncated=None if maximum is None else float((lengths > maximum).mean()),
    )
