"""Mean mask probabilities of groups of tokens: by part of speech, by frequency, by token."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from auxlearn.data.dataset import Split
from auxlearn.data.tokens import TokenizedTexts, encodings
from auxlearn.evaluation.taggers import DESCRIPTIONS, Tagger, words_of
from auxlearn.inspection.rates import MaskRates
from auxlearn.settings import TextWindow

#: Tokens that a group needs to be ranked; L3Masking removes rarer tags from its tables.
FEWEST = 10

#: Texts that are tokenised together.
CHUNK_TEXTS = 512


@dataclass(frozen=True)
class Group:
    """Tokens that have something in common.

    Attributes:
        name: Part of speech, range of frequencies, or token.
        description: What the name stands for; "" where it speaks for itself.
        tokens: Number of maskable tokens in the group.
        rates: Mean probability to be masked, by task.
        random: Mean probability under random masking at the same mean in each text, by task.
    """

    name: str
    description: str
    tokens: int
    rates: dict[str, float]
    random: dict[str, float]

    def ratio(self, task: str) -> float:
        """Return how many times as often a task masks these tokens as random masking does."""
        return self.rates[task] / self.random[task] if self.random[task] else 0.0


def by_frequency(found: Sequence[MaskRates]) -> list[Group]:
    """Return groups of tokens by how often they occur in the texts, in powers of ten.

    Args:
        found: Tasks on the same texts.
    """
    ids, maskable = found[0].texts.input_ids.numpy(), found[0].texts.maskable.numpy()
    counts = np.bincount(ids[maskable], minlength=int(ids.max()) + 1)
    power = np.floor(np.log10(np.maximum(1, counts[ids]))).astype(int)

    return [
        _group(found, power == exponent, f"{10**exponent:,} to {10 ** (exponent + 1) - 1:,} times")
        for exponent in np.unique(power[maskable])
    ]


def by_token(found: Sequence[MaskRates], tokenizer: Any) -> list[Group]:
    """Return one group for each token of the vocabulary that occurs, by the first task's mean.

    Args:
        found: Tasks on the same texts.
        tokenizer: Names the tokens.
    """
    ids = found[0].texts.input_ids.numpy()
    maskable = found[0].texts.maskable.numpy()
    present, place = np.unique(ids[maskable], return_inverse=True)
    names = tokenizer.convert_ids_to_tokens(present.tolist())
    counts = np.bincount(place)
    means = {one.name: _means(one.rates.numpy()[maskable], place) for one in found}
    random = {one.name: _means(_random(one)[maskable], place) for one in found}
    groups = [
        Group(
            str(names[number]),
            "",
            int(counts[number]),
            {task: float(values[number]) for task, values in means.items()},
            {task: float(values[number]) for task, values in random.items()},
        )
        for number in range(len(present))
    ]
    return sorted(groups, key=lambda group: (-group.rates[found[0].name], group.name))


def by_part_of_speech(found: Sequence[MaskRates], tags: Sequence[str | None]) -> list[Group]:
    """Return one group for each part of speech, the first task's highest first.

    As in Tables 4 and 5 of L3Masking, every token has the tag of the word that it is part of.

    Args:
        found: Tasks on the same texts.
        tags: Part of speech of each token; ``None`` where it has none.
    """
    column = np.array([tag or "" for tag in tags])
    maskable = found[0].texts.maskable.numpy()
    groups = [
        _group(found, column == tag, str(tag), DESCRIPTIONS.get(str(tag), ""))
        for tag in np.unique(column[maskable])
        if tag
    ]
    return sorted(groups, key=lambda group: (-group.rates[found[0].name], group.name))


def token_tags(
    split: Split,
    texts: TokenizedTexts,
    tokenizer: Any,
    max_length: int,
    tagger: Tagger,
    window: TextWindow = "head",
) -> list[str | None] | None:
    """Return the part of speech of each token: that of the word that it begins in.

    Args:
        split: The texts as they were read.
        texts: The same texts, tokenised.
        tokenizer: The tokenizer that has tokenised them.
        max_length: Maximum number of tokens of a text.
        tagger: Tags the words of a text.
        window: Which tokens of a longer text were kept.

    Returns:
        One tag by token; ``None`` for special tokens. ``None`` in place of the list if the tokens
        are not those of the texts.
    """
    tags: list[str | None] = []
    ids: list[int] = []
    for start in range(0, len(split), CHUNK_TEXTS):
        part = slice(start, start + CHUNK_TEXTS)
        pairs = None if split.text_pairs is None else list(split.text_pairs[part])
        encoded = encodings(tokenizer, list(split.texts[part]), pairs, max_length, window)
        for number, (encoding, kept) in enumerate(encoded):
            sources = [split.texts[start + number]]
            if pairs is not None:
                sources.append(pairs[number])
            all_ids, all_tags = encoding.ids, _tags_of(encoding, sources, tagger)
            ids += (all_ids[place] for place in kept)
            tags += (all_tags[place] for place in kept)
    same = torch.equal(torch.tensor(ids, dtype=texts.input_ids.dtype), texts.input_ids)
    return tags if same else None


def _tags_of(encoding: Any, sources: Sequence[str], tagger: Tagger) -> list[str | None]:
    """Return the part of speech of each token of one text or pair of texts."""
    tags: list[str | None] = [None] * len(encoding.ids)
    for sequence, source in enumerate(sources):
        places = [
            (place, begin + len(source[begin:end]) - len(source[begin:end].lstrip()))
            for place, (own, (begin, end)) in enumerate(
                zip(encoding.sequence_ids, encoding.offsets, strict=True)
            )
            if own == sequence and end > begin
        ]
        last = max((encoding.offsets[place][1] for place, _ in places), default=0)
        spans = words_of(source[:last])
        found = tagger([source[begin:end] for begin, end in spans]) if spans else []
        begins = [begin for begin, _ in spans]
        for place, character in places:
            word = bisect_right(begins, character) - 1
            if word >= 0 and character < spans[word][1]:
                tags[place] = found[word]
    return tags


def _group(
    found: Sequence[MaskRates], members: np.ndarray, name: str, description: str = ""
) -> Group:
    members = members & found[0].texts.maskable.numpy()
    return Group(
        name,
        description,
        int(members.sum()),
        {one.name: float(one.rates.numpy()[members].mean()) for one in found},
        {one.name: float(_random(one)[members].mean()) for one in found},
    )


def _random(rates: MaskRates) -> np.ndarray:
    """Return each token's probability under random masking at the mean that its text has here."""
    texts = rates.texts
    owner = np.repeat(np.arange(len(texts)), texts.lengths.numpy())
    totals = np.bincount(owner, rates.rates.numpy(), minlength=len(texts))
    counts = np.bincount(owner, texts.maskable.numpy(), minlength=len(texts))
    return (totals / np.maximum(1, counts))[owner] * texts.maskable.numpy()


def _means(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    return np.bincount(place, values) / np.bincount(place)
