"""Tokenised texts: each split is tokenised once and cached as flat arrays.

Of a text that is longer than ``max_length``, "head" keeps the first tokens, "head+tail" tokens from
both ends (see :data:`HEAD_SHARE`), and "windows" all of it, in rows that overlap.
"""

from __future__ import annotations

import json
import re
import signal
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from auxlearn.core.cache import TensorCache, content_key
from auxlearn.core.errors import ConfigError, DataError, and_more, describe
from auxlearn.core.progress import ProgressBar, no_progress_bar
from auxlearn.core.settings import Windowing
from auxlearn.core.table import HALF_A_PAIR, is_encodable
from auxlearn.data.corpora import MAPPED_TEXTS, Texts
from auxlearn.data.dataset import Split

HEAD = Windowing()  # texts are cut at their end
FORMAT = 3  # part of every cache key; raise it when the meaning of the arrays changes

#: Texts tokenised at once. A tokenizer returns over a hundred bytes per token, of which about a
#: dozen are kept.
CHUNK_TEXTS = 2048

CHUNK_LENGTH = 1_000_000  # characters tokenised at once, unless a single text has more

#: Share of the tokens that "head+tail" keeps from the beginning, special tokens left out: of 510,
#: Sun et al., How to Fine-Tune BERT for Text Classification? (2019,
#: https://arxiv.org/abs/1905.05583), keep the first 128 and the last 382.
HEAD_SHARE = 128 / 510

SHOW_PROGRESS = 10_000  # texts from which on progress is shown

#: Chinese and Japanese with their punctuation, Thai, Lao, Tibetan, Burmese, Khmer: what is written
#: without spaces.
UNSPACED = "\u0e00-\u109f\u1780-\u17ff\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
UNSPACED += "\uf900-\ufaff\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff9f\U00020000-\U0003ffff"


@dataclass(frozen=True)
class TokenizedTexts:
    """Tokenised texts, concatenated in flat arrays without padding.

    Attributes:
        input_ids: Token ids of all texts, ``(tokens,)``, int32.
        words: Index of each token's word within its text, ``(tokens,)``, int32; -1 for special
            tokens. Words are those of the tokenizer (``word_ids()``), divided where they hold
            spaces or a script without spaces: there each token is a word. The second text of a
            pair continues the count of the first.
        maskable: Tokens that an objective may mask, ``(tokens,)``, bool.
        offsets: Text ``i`` has the tokens ``[offsets[i], offsets[i + 1])``, ``(texts + 1,)``,
            int64.
        pad_id: Token id of padding.
        labels: Class index of each text, ``(texts,)``, int64, or the target that its kind has in
            its place, or ``None``.
        token_type_ids: Segment of each token, ``(tokens,)``, int8; ``None`` for encoders without
            segment embeddings.
        starts: Number of the word that begins at each token, counted over all texts of a split
            whose words have tags, ``(tokens,)``, int64, and -1 elsewhere; see :func:`word_starts`.
        tags: Target of each token that begins a word, ``(tokens, ...)``, int64, and -100 elsewhere.
        windows: Window ``i`` has the tokens ``[windows[i], windows[i + 1])``, ``(windows + 1,)``,
            int64; ``None`` where each text is one row of tokens. The windows of a text follow each
            other, each with special tokens of its own.
    """

    input_ids: Tensor
    words: Tensor
    maskable: Tensor
    offsets: Tensor
    pad_id: int
    labels: Tensor | None = None
    token_type_ids: Tensor | None = None
    starts: Tensor | None = None
    tags: Tensor | None = None
    windows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> Tensor:
        """Number of tokens of each text, special tokens included, ``(texts,)``."""
        return self.offsets.diff()

    def in_rows(self) -> TokenizedTexts:
        """Return the same tokens with each window as a text of its own, without labels."""
        if self.windows is None:
            return self
        return replace(self, offsets=self.windows, labels=None, windows=None)

    @cached_property
    def _first_rows(self) -> Tensor:
        """Number of the first window of each text, ``(texts + 1,)``."""
        assert self.windows is not None
        return torch.searchsorted(self.windows, self.offsets)

    def window_counts(self, indices: Tensor) -> Tensor | None:
        """Return the number of windows of some texts, ``(n,)``; ``None`` without windows."""
        if self.windows is None:
            return None
        return self._first_rows[indices + 1] - self._first_rows[indices]

    def rows_of(self, indices: Tensor) -> Tensor:
        """Return the windows of some texts, one text after the other, by number."""
        counts = self.window_counts(indices)
        return indices if counts is None else _ranges(self._first_rows[indices], counts)

    def select(self, indices: Tensor) -> TokenizedTexts:
        """Return the texts with the given indices, ``(n,)``, in the given order."""
        lengths = self.offsets[indices + 1] - self.offsets[indices]
        return self._taken(_ranges(self.offsets[indices], lengths), offsets_of(lengths), indices)

    def _taken(self, tokens: Tensor | slice, offsets: Tensor, rows: Tensor) -> TokenizedTexts:
        arrays = {name: getattr(self, name) for name in _BY_TOKEN}
        taken = {name: one[tokens] for name, one in arrays.items() if one is not None}
        if self.labels is not None:
            taken["labels"] = self.labels[rows]
        if self.windows is not None:
            chosen = self.rows_of(rows)
            taken["windows"] = offsets_of(self.windows[chosen + 1] - self.windows[chosen])
        return replace(self, offsets=offsets, **taken)


def _ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Return as many numbers from each start as its count says, one range after the other."""
    before = counts.cumsum(0) - counts
    return torch.arange(int(counts.sum())) + (starts - before).repeat_interleave(counts)


def offsets_of(lengths: Tensor) -> Tensor:
    """Return where texts of some lengths, ``(texts,)``, begin, and the end, ``(texts + 1,)``."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


#: What each token has.
_BY_TOKEN = ("input_ids", "words", "maskable", "token_type_ids", "starts", "tags")


def consecutive(texts: TokenizedTexts, sizes: Sequence[int]) -> list[TokenizedTexts]:
    """Return consecutive parts of as many texts each, which share the memory of ``texts``."""
    parts, start = [], 0
    for size in sizes:
        offsets = texts.offsets[start : start + size + 1]
        tokens = slice(int(offsets[0]), int(offsets[-1]))
        parts.append(texts._taken(tokens, offsets - offsets[0], start + torch.arange(size)))
        start += size
    return parts


def concatenate(*parts: TokenizedTexts) -> TokenizedTexts:
    """Return the texts of all parts, of one tokenizer, one part after the other."""
    if len(parts) == 1:
        return parts[0]

    def joined(name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else torch.cat(arrays)

    windows = [part.windows.diff() for part in parts if part.windows is not None]
    return TokenizedTexts(
        offsets=offsets_of(torch.cat([part.lengths for part in parts])),
        windows=offsets_of(torch.cat(windows)) if windows else None,
        pad_id=parts[0].pad_id,
        **{name: joined(name) for name in (*_BY_TOKEN, "labels")},
    )


@dataclass(frozen=True)
class Tokenization:
    """How texts become tokens: by which tokenizer, in rows of how many, and what of long texts.

    ``[MASK]`` in a text is ordinary text (``split_special_tokens``; a SentencePiece vocabulary that
    lists it still finds it). Of a pair the longer text is cut first.
    """

    tokenizer: Any
    max_length: int  # tokens of a row, special ones included
    windowing: Windowing = HEAD

    def tokenize_split(
        self, split: Split, cache: TensorCache, progress: ProgressBar = no_progress_bar
    ) -> TokenizedTexts:
        """Tokenise a split, or read the tokens of the same texts from the cache."""
        if self.windowing.in_windows:
            split.kind.require("windows of long texts")
        if not len(split):
            raise DataError(f"{split.name}: there is no text to tokenise")
        given = split.texts if isinstance(split.texts, tuple) else ()  # others were read as UTF-8
        if not all(map(is_encodable, (*given, *(split.text_pairs or ())))):
            raise DataError(f"{split.name}: a text: {HALF_A_PAIR}")
        key = content_key(
            "tokens",
            FORMAT,
            tokenizer_settings(self.tokenizer),
            self.max_length,
            split.texts,
            split.text_pairs,
            *self.windowing.tokens_key,
        )

        def compute() -> dict[str, Tensor]:
            show = progress if len(split) >= SHOW_PROGRESS else no_progress_bar
            with show(f"tokenising {split.name}", len(split)) as advance:
                pieces = (
                    self._parts(key, split.texts, cache, advance)
                    if isinstance(split.texts, Texts) and len(split) >= SHOW_PROGRESS
                    else self._pieces(split.texts, split.text_pairs, advance)
                )
                arrays = self._with_offsets(cache.joined_by_name(pieces))
            check_every_text_has_tokens(TokenizedTexts(**arrays, pad_id=0), split)
            return arrays

        arrays = cache.get(key, compute)
        for start in range(0, len(split), MAPPED_TEXTS):
            cache.delete(f"{key}-{start}")
        targets = self._targets(split, cache)
        return TokenizedTexts(**arrays, pad_id=self.tokenizer.pad_token_id, **targets)

    def tokenize(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, **more: Any
    ) -> TokenizedTexts:
        """Tokenise texts; ``more`` are further fields of the result."""
        arrays = self.arrays(texts, pairs)
        return TokenizedTexts(**arrays, pad_id=self.tokenizer.pad_token_id, **more)

    def arrays(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> dict[str, Tensor]:
        """Return the arrays of tokenised texts, by the names that they have there."""
        pieces = list(self._pieces(texts, pairs))
        joined = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
        return self._with_offsets(joined)

    def _with_offsets(self, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the arrays of :class:`TokenizedTexts` by those of pieces."""
        rest = {name: value for name, value in arrays.items() if name not in ("lengths", "rows")}
        ends = offsets_of(arrays["lengths"])
        if not self.windowing.in_windows:
            return {**rest, "offsets": ends}
        return {**rest, "offsets": ends[offsets_of(arrays["rows"])], "windows": ends}

    def _pieces(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        advance: Callable[[int], None] = lambda count: None,
    ) -> Iterator[dict[str, Tensor]]:
        """Yield the arrays of so many texts at a time: those of their tokens, the ``lengths`` of
        the rows of tokens, and the number of ``rows`` of each text.
        """
        for start, end in chunks(texts, pairs):
            others = None if pairs is None else list(pairs[start:end])
            arrays = self._chunk(list(texts[start:end]), others)
            yield {name: torch.from_numpy(values) for name, values in arrays.items()}
            advance(end - start)

    def _parts(
        self, key: str, texts: Texts, cache: TensorCache, advance: Callable[[int], None]
    ) -> Iterator[dict[str, Tensor]]:
        """Yield the arrays of :meth:`_pieces` of so many texts at a time, of all but the last in an
        entry of the cache of their own: what was made before a kill is not made again.
        """
        for start in range(0, len(texts), MAPPED_TEXTS):
            rows, name = slice(start, start + MAPPED_TEXTS), f"{key}-{start}"
            pieces = texts.mapped(self._map, rows, cache.folder / f"{name}.map", CHUNK_TEXTS)
            if rows.stop < len(texts):  # after the last, the entry of all is written at once
                pieces = iter([cache.get(name, partial(cache.joined_by_name, pieces))])
            yield from pieces
            advance(len(texts.rows[rows]))

    def _map(self, texts: Any, rank: int | None) -> Any:
        """Return the arrays of a column of texts, in lists, for ``datasets``."""
        import pyarrow

        if rank is not None:  # a process of its own, which another one ends
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        lines = texts["text"].to_pylist()
        rows = [self._chunk(lines[start:end], None) for start, end in chunks(lines, None)]
        return pyarrow.table({name: pyarrow.array([row[name] for row in rows]) for name in rows[0]})

    def _chunk(self, texts: list[str], pairs: list[str] | None) -> dict[str, np.ndarray]:
        # Typed arrays, as lists of Python's integers take most of the time of tokenising.
        input_ids, words, types = array("i"), array("i"), array("b")
        lengths, rows = [], [0] * len(texts)
        has_types = "token_type_ids" in self.tokenizer.model_input_names
        letters = self.tokenizer.backend_tokenizer.encode("a b", add_special_tokens=False).word_ids
        spaces = "" if len({*letters}) > 1 else r"\s"  # some tokenizers do not divide at spaces
        breaks = re.compile(f"[{spaces}{UNSPACED}]")
        for text, encoding, kept in self.encodings(texts, pairs):
            rows[text] += 1
            lengths.append(len(kept))
            sources = (texts[text], "" if pairs is None else pairs[text])
            word_ids = encoding.word_ids
            if any(map(breaks.search, sources)):
                word_ids = _divided(encoding, sources, breaks)
            numbers = [-1 if word is None else word for word in word_ids]
            if pairs is not None:
                numbers = _counted_on(numbers, encoding.sequence_ids)
            columns = [(input_ids, encoding.ids), (words, numbers)]
            if has_types:
                columns.append((types, encoding.type_ids))
            for column, values in columns:
                whole = len(kept) == len(values)
                column.extend(values if whole else [values[place] for place in kept])
        flat, numbered = np.array(input_ids), np.array(words)
        arrays = {
            "input_ids": flat,
            "words": numbered,
            # Unknown words are special: nothing can be learned from predicting them.
            "maskable": (numbered >= 0) & ~np.isin(flat, self.tokenizer.all_special_ids),
            "lengths": np.array(lengths, dtype=np.int64),
            "rows": np.array(rows, dtype=np.int64),
        }
        if has_types:
            arrays["token_type_ids"] = np.array(types)
        return arrays

    def encodings(
        self, texts: list[str], pairs: list[str] | None = None
    ) -> Iterator[tuple[int, Any, Sequence[int]]]:
        """Yield the encodings of each text: its number, an encoding, the positions kept."""
        windowing = self.windowing if pairs is None else HEAD
        whole = windowing.text_window == "head+tail"
        stride = {"stride": windowing.window_stride} if windowing.in_windows else {}
        # This sets how texts are cut. A call of all texts would make lists of Python's integers.
        self.tokenizer(
            "", truncation=not whole, max_length=None if whole else self.max_length, **stride
        )
        inputs = texts if pairs is None else list(zip(texts, pairs, strict=True))
        for number, encoding in enumerate(self.tokenizer.backend_tokenizer.encode_batch(inputs)):
            if whole:
                yield number, encoding, _head_and_tail(encoding, self.max_length)
            elif windowing.in_windows:
                for row in [encoding, *encoding.overflowing][: windowing.max_windows]:
                    yield number, row, range(len(row))
            else:
                yield number, encoding, range(len(encoding))

    @property
    def room(self) -> int:
        """Tokens of a row without the special ones of a single text."""
        return self.max_length - int(self.tokenizer.num_special_tokens_to_add(pair=False))

    def check_stride(self) -> None:
        """Check that windows move on by at least a token."""
        room, stride = self.room, self.windowing.window_stride
        if stride >= room:
            raise ConfigError(
                f"window_stride: windows of {self.max_length} tokens have room for {room} of a "
                f"text, so that neighbours share {room - 1} at most, not {stride}: lower "
                "--window-stride or raise --max-length"
            )

    def _targets(self, split: Split, cache: TensorCache) -> dict[str, Tensor]:
        """Return what the texts of a split are to be labelled with, each or its words."""
        targets = None
        if split.labels is not None:
            targets = split.kind.targets(split.labels, len(split.label_names))
        if not split.kind.per_token:
            return {} if targets is None else {"labels": targets}
        key = content_key(
            "word starts",
            FORMAT,
            tokenizer_settings(self.tokenizer),
            self.max_length,
            split.texts,
            *(self.windowing.tokens_key or ("head",)),
        )
        found = cache.get(key, lambda: {"starts": self.word_starts(split.texts)})
        if targets is None:
            return found
        return found | {"tags": tags_of(found["starts"], split.texts, targets)}

    def word_starts(self, texts: Sequence[str]) -> Tensor:
        """Return the number of the word, divided by single spaces and counted over all texts, that
        begins at each token, ``(tokens,)``; -1 elsewhere. Some tokenizers count the space before a
        word to it. A word in two windows begins in the one whose nearer end is farther away.
        """
        starts: list[int] = []
        before = 0
        for begin, end in chunks(texts, None):
            chunk = list(texts[begin:end])
            words = [text.split(" ") for text in chunk]
            for number, of_text in groupby(self.encodings(chunk), itemgetter(0)):
                word_at: list[int] = []
                for index, word in enumerate(words[number]):
                    word_at += [index] * len(word) + [-1]
                best: dict[int, tuple[int, int]] = {}  # context and place of each word
                for _, encoding, kept in of_text:
                    seen: set[int] = {-1}
                    for place in kept:
                        first, last = encoding.offsets[place]
                        owner = next((w for w in word_at[first:last] if w >= 0), -1)
                        context = min(place, len(encoding) - 1 - place)
                        if owner not in seen and context > best.get(owner, (-1, 0))[0]:
                            best[owner] = context, len(starts)
                        starts.append(-1)
                        seen.add(owner)
                for owner, (_, place) in best.items():
                    starts[place] = before + owner
                before += len(words[number])
        return torch.tensor(starts, dtype=torch.int64)


def chunks(texts: Sequence[str], text_pairs: Sequence[str] | None) -> Iterator[tuple[int, int]]:
    """Yield the ends of runs of texts of bounded number and length; one of no texts if none."""
    start = characters = 0
    for index, text in enumerate(texts):
        length = len(text) + (len(text_pairs[index]) if text_pairs is not None else 0)
        if index - start == CHUNK_TEXTS or (index > start and characters + length > CHUNK_LENGTH):
            yield start, index
            start, characters = index, 0
        characters += length
    yield start, len(texts)


def _head_and_tail(encoding: Any, max_length: int) -> Sequence[int]:
    """Return the positions that are kept: of the text from both ends, and all special tokens."""
    if len(encoding) <= max_length:
        return range(len(encoding))
    sequences = encoding.sequence_ids
    text = [place for place, sequence in enumerate(sequences) if sequence == 0]
    room = max_length - (len(sequences) - len(text))
    head = max(1, round(room * HEAD_SHARE))
    left_out = set(text[head : len(text) - (room - head)])
    return [place for place in range(len(sequences)) if place not in left_out]


def _divided(encoding: Any, texts: Sequence[str], breaks: re.Pattern[str]) -> list[int | None]:
    """Return the words of the tokens of an encoding, also divided where a token begins beside a
    character of ``breaks``; byte tokens of one character stay together.
    """
    numbers: list[int | None] = []
    last, reached, added, before = None, 0, 0, None
    tokens = zip(encoding.word_ids, encoding.sequence_ids, encoding.offsets, strict=True)
    for word, sequence, (start, end) in tokens:
        if sequence != before:
            last, reached, added, before = None, 0, 0, sequence
        if word is not None and word == last and 0 < reached <= start:
            added += breaks.search(texts[sequence], start - 1, start + 1) is not None
        last, reached = word, end
        numbers.append(None if word is None else word + added)
    return numbers


def vocabulary_ids(tokenizer: Any) -> list[int]:
    """Return the ids of all tokens, special ones too, ascending: they may have gaps."""
    return sorted(set(tokenizer.get_vocab().values()))


def tags_of(starts: Tensor, texts: Sequence[str], targets: Tensor) -> Tensor:
    """Return the target of each token that begins a word, ``(tokens, ...)``, and -100 elsewhere."""
    counted = sum(text.count(" ") + 1 for text in texts)
    if counted != len(targets):
        raise DataError(f"{counted} words have {len(targets)} tags: each word has one")
    found = targets[starts.clamp(min=0)]
    found[starts < 0] = -100
    return found


def _counted_on(words: list[int], sequences: list[int | None]) -> list[int]:
    """Return the numbers of words of a pair, where the second text continues the first's count."""
    both = list(zip(words, sequences, strict=True))
    added = max((word for word, sequence in both if sequence == 0), default=-1) + 1
    return [word + added * (sequence == 1 and word >= 0) for word, sequence in both]


def check_every_text_has_tokens(tokenized: TokenizedTexts, split: Split) -> None:
    """Check that each text has a token of a word, so many texts at a time."""
    empty = []
    for start in range(0, len(tokenized), CHUNK_TEXTS):
        offsets = tokenized.offsets[start : start + CHUNK_TEXTS + 1].numpy()
        words = tokenized.words[offsets[0] : offsets[-1]].numpy()
        filled = np.diff(offsets) > 0  # only of those does it have a maximum
        last = np.full(len(filled), -1)
        last[filled] = np.maximum.reduceat(words, (offsets[:-1] - offsets[0])[filled])
        empty += (start + np.flatnonzero(last < 0)).tolist()
    if empty:
        raise DataError(
            f"example {empty[0] + 1} of {split.name}{and_more(len(empty) - 1)} has no token for "
            f"this encoder: {describe(split.texts[empty[0]])}; remove it"
        )


def tokenizer_settings(tokenizer: Any) -> dict[str, Any]:
    """Return everything about a tokenizer that its output depends on."""
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    # These two are arguments of the last call, not properties of the tokenizer.
    del settings["truncation"], settings["padding"]
    settings["inputs"] = tokenizer.model_input_names
    settings["special"] = tokenizer.all_special_ids
    settings["truncation_side"] = tokenizer.truncation_side
    return settings
