"""Lengths of the texts of a split, and how many of them are truncated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.core.settings import Windowing
from auxlearn.data.dataset import Split

if TYPE_CHECKING:
    from auxlearn.core.cache import TensorCache
    from auxlearn.data.tokens import TokenizedTexts

#: Texts tokenised at once.
_CHUNK = 1000


@dataclass(frozen=True)
class Lengths:
    """Lengths of texts; those of both texts of a pair are added."""

    unit: str  # "words", separated by white space, or "tokens", special tokens included.
    mean: float
    median: float
    percentile_95: float
    longest: int
    #: Share of the texts that are longer than the maximum, if there is one.
    truncated: float | None = None


def word_lengths(split: Split) -> Lengths:
    """Return the lengths of the texts of a split in words, which no encoder is needed for."""
    pairs = split.text_pairs or ("",) * len(split)
    counts = [
        len(text.split()) + len(pair.split()) for text, pair in zip(split.texts, pairs, strict=True)
    ]
    return _summary("words", counts)


def token_lengths(tokenizer: Any, split: Split, max_length: int) -> Lengths:
    """Return the lengths of the texts of a split in tokens."""
    return _summary("tokens", _counts(tokenizer, split), max_length)


def _counts(tokenizer: Any, split: Split) -> list[int]:
    counts: list[int] = []
    for start in range(0, len(split), _CHUNK):
        end = start + _CHUNK
        pairs = None if split.text_pairs is None else list(split.text_pairs[start:end])
        encoded = tokenizer(list(split.texts[start:end]), pairs, truncation=False, verbose=False)
        counts += map(len, encoded["input_ids"])
    return counts


def whole_lengths(
    tokenizer: Any, split: Split, texts: TokenizedTexts, max_length: int, cache: TensorCache
) -> np.ndarray:
    """Return the number of tokens of each text before it was cut, ``(texts,)``; only texts that
    reach ``max_length`` are tokenised again.
    """
    import torch

    from auxlearn.core.cache import content_key
    from auxlearn.data.tokens import tokenizer_settings

    lengths = texts.lengths.numpy().copy()
    rows = np.flatnonzero(lengths >= max_length)
    if len(rows):
        longest = split.select(rows.tolist())
        key = content_key(
            "whole lengths", tokenizer_settings(tokenizer), longest.texts, longest.text_pairs
        )
        found = cache.get(key, lambda: {"lengths": torch.tensor(_counts(tokenizer, longest))})
        lengths[rows] = found["lengths"].numpy()
    return lengths


def describe_lengths(whole: np.ndarray, max_length: int, windowing: Windowing, special: int) -> str:
    """Return the numbers of tokens of texts, and how much of them is kept with so many special
    tokens in each text or window, as a sentence.
    """
    most, how = max_length, "cut"
    if windowing.in_windows:
        most += (windowing.max_windows - 1) * (max_length - special - windowing.window_stride)
        how = f"read in at most {windowing.max_windows} windows"
    kept = np.minimum(whole, most).sum() / whole.sum()
    cut = int((whole > max_length).sum())
    reach = (
        f"{cut:,} of {len(whole):,} are longer than the {max_length} of max_length and are {how}, "
        f"which keeps {kept:.1%} of all tokens"
        if cut
        else f"none is longer than the {max_length} of max_length"
    )
    return (
        f"tokens per text of train: median {np.median(whole):.0f}, "
        f"95% have at most {np.percentile(whole, 95):.0f}; {reach}"
    )


def _summary(unit: str, counts: Sequence[int], maximum: int | None = None) -> Lengths:
    lengths = np.asarray(counts if len(counts) else [0])
    return Lengths(
        unit=unit,
        mean=float(lengths.mean()),
        median=float(np.median(lengths)),
        percentile_95=float(np.percentile(lengths, 95)),
        longest=int(lengths.max()),
        truncated=None if maximum is None else float((lengths > maximum).mean()),
    )
