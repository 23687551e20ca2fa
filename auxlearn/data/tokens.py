"""Tokenised texts: every split is tokenised once and kept as flat arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from auxlearn.cache import TensorCache, content_key
from auxlearn.data.dataset import Split

#: Part of every cache key; raise it when the arrays below change their meaning.
FORMAT = 1

#: Texts that are tokenised at once. A tokenizer hands back a hundred bytes and more for each token,
#: of which a dozen are kept.
AT_ONCE = 2048


@dataclass(frozen=True)
class TokenizedTexts:
    """Texts as token ids, one after the other in flat arrays.

    Attributes:
        input_ids: Token ids of all texts, ``(tokens,)``, int32.
        words: Number of the word within its text, ``(tokens,)``, int32; -1 for special tokens.
            Words are those of the tokenizer (``word_ids()``); the words of a second text count on.
        maskable: Where an objective may mask, ``(tokens,)``, bool.
        offsets: Text ``i`` is ``[offsets[i], offsets[i + 1])``, ``(texts + 1,)``, int64.
        pad_id: Token id of padding.
        labels: Class of each text, ``(texts,)``, int64, or ``None``.
        token_type_ids: Segments, ``(tokens,)``, int8, or ``None`` where the encoder has none.
    """

    input_ids: Tensor
    words: Tensor
    maskable: Tensor
    offsets: Tensor
    pad_id: int
    labels: Tensor | None = None
    token_type_ids: Tensor | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """Tokens of each text, special tokens included, ``(texts,)``."""
        return self.offsets.diff()

    def select(self, rows: Tensor) -> TokenizedTexts:
        """Return some rows as texts of their own."""
        lengths = self.lengths[rows]
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        source = torch.cat(
            [torch.arange(int(self.offsets[row]), int(self.offsets[row + 1])) for row in rows]
            or [torch.arange(0)]
        )
        return TokenizedTexts(
            input_ids=self.input_ids[source],
            words=self.words[source],
            maskable=self.maskable[source],
            offsets=offsets,
            pad_id=self.pad_id,
            labels=None if self.labels is None else self.labels[rows],
            token_type_ids=None if self.token_type_ids is None else self.token_type_ids[source],
        )


def join(first: TokenizedTexts, second: TokenizedTexts) -> TokenizedTexts:
    """Return the texts of both, those of ``second`` after those of ``first``.

    Both must come from one tokenizer, and have labels and segments or both not.
    """

    def both(name: str) -> Tensor | None:
        one, other = getattr(first, name), getattr(second, name)
        return None if one is None else torch.cat([one, other])

    joined = {name: both(name) for name in ("labels", "token_type_ids")}
    return TokenizedTexts(
        input_ids=torch.cat([first.input_ids, second.input_ids]),
        words=torch.cat([first.words, second.words]),
        maskable=torch.cat([first.maskable, second.maskable]),
        offsets=torch.cat([first.offsets, first.offsets[-1] + second.offsets[1:]]),
        pad_id=first.pad_id,
        **joined,
    )


def tokenize(
    tokenizer: Any,
    texts: Sequence[str],
    text_pairs: Sequence[str] | None,
    max_length: int,
) -> dict[str, Tensor]:
    """Tokenise texts, longest first cut to ``max_length`` tokens.

    ``[MASK]`` or ``[SEP]`` written out in a text is text: the tokenizers that this package loads
    split it into ordinary pieces. (A SentencePiece vocabulary that lists them as pieces still finds
    them; they are not maskable then.) An unknown word is kept as the tokenizer's unknown token and
    is never maskable, because predicting "unknown" teaches nothing.

    Args:
        tokenizer: A fast tokenizer of transformers.
        texts: The texts.
        text_pairs: Second texts of a sentence-pair task.
        max_length: Tokens of a text at most, special tokens included.

    Returns:
        The arrays of :class:`TokenizedTexts` by name.
    """
    parts = [
        _tokenize_some(
            tokenizer,
            list(texts[start : start + AT_ONCE]),
            None if text_pairs is None else list(text_pairs[start : start + AT_ONCE]),
            max_length,
        )
        for start in range(0, max(1, len(texts)), AT_ONCE)
    ]
    arrays = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    lengths = arrays.pop("lengths")
    return {**arrays, "offsets": torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])}


def _tokenize_some(
    tokenizer: Any, texts: list[str], text_pairs: list[str] | None, max_length: int
) -> dict[str, Tensor]:
    encoded = tokenizer(texts, text_pairs, truncation=True, max_length=max_length)
    input_ids: list[int] = []
    types: list[int] = []
    words: list[int] = []
    lengths: list[int] = []
    has_types = "token_type_ids" in encoded
    for row, encoding in enumerate(encoded.encodings):
        ids = encoded["input_ids"][row]
        input_ids += ids
        lengths.append(len(ids))
        if has_types:
            types += encoded["token_type_ids"][row]
        last_of_first = max(
            (w for w, s in zip(encoding.word_ids, encoding.sequence_ids, strict=True) if s == 0),
            default=-1,
        )
        words += [
            -1 if word is None else word + (last_of_first + 1 if sequence == 1 else 0)
            for word, sequence in zip(encoding.word_ids, encoding.sequence_ids, strict=True)
        ]
    flat = torch.tensor(input_ids, dtype=torch.int32)
    numbered = torch.tensor(words, dtype=torch.int32)
    special = torch.tensor(tokenizer.all_special_ids, dtype=torch.int32)  # unknown token included
    arrays = {
        "input_ids": flat,
        "words": numbered,
        "maskable": (numbered >= 0) & ~torch.isin(flat, special),
        "lengths": torch.tensor(lengths, dtype=torch.int64),
    }
    if has_types:
        arrays["token_type_ids"] = torch.tensor(types, dtype=torch.int8)
    return arrays


def tokenize_split(
    tokenizer: Any, split: Split, max_length: int, cache: TensorCache
) -> TokenizedTexts:
    """Tokenise a split, or fetch what an earlier run made of the same texts."""
    key = content_key(
        "tokens",
        FORMAT,
        _rules(tokenizer),
        max_length,
        split.texts,
        split.text_pairs,
    )
    arrays = cache.get(key, lambda: tokenize(tokenizer, split.texts, split.text_pairs, max_length))
    return TokenizedTexts(
        **arrays,
        pad_id=tokenizer.pad_token_id,
        labels=None if split.labels is None else torch.tensor(split.labels),
    )


def _rules(tokenizer: Any) -> dict[str, Any]:
    """Everything about a tokenizer that decides what comes out of it."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    # These two are what the last call asked for, not what the tokenizer is.
    del rules["truncation"], rules["padding"]
    rules["inputs"] = tokenizer.model_input_names
    rules["special"] = tokenizer.all_special_ids
    rules["truncation_side"] = tokenizer.truncation_side
    return rules
