"""Part-of-speech taggers of other packages, whichever is installed: all give the tags of the Penn
Treebank (Marcus et al. 1993, https://aclanthology.org/J93-2004), as L3Masking has them.
"""

from __future__ import annotations

import importlib
import re
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch

from auxlearn.core.rng import ONE_THREAD
from auxlearn.data.dataset import Split
from auxlearn.data.splits import is_mark
from auxlearn.data.tokens import Tokenization, TokenizedTexts, chunks

Tagger = Callable[[list[str]], list[str]]  # returns the part of speech of each word of a text

#: How to get a tagger.
ADVICE = "install one with `pip install textblob`, or spaCy with en_core_web_sm"

#: A word with hyphens and apostrophes inside it, or a single mark.
_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")


def words_of(text: str) -> list[tuple[int, int]]:
    """Return where the words and marks of a text begin and end, in characters."""
    if not text.isascii():  # a mark on a letter is part of the word
        text = "".join("a" if is_mark(one) else one for one in text)
    return [found.span() for found in _WORD.finditer(text)]


def find_tagger() -> tuple[Tagger, str] | None:
    """Return the first tagger that is installed and its name."""
    for name, load in TAGGERS.items():
        with suppress(ImportError, OSError, LookupError):  # the last two: without their models
            return load(), name
    return None


def _spacy_tagger() -> Tagger:
    spacy = importlib.import_module("spacy")
    pipeline, made = spacy.load("en_core_web_sm"), spacy.tokens.Doc
    return lambda words: [token.tag_ for token in pipeline(made(pipeline.vocab, words=words))]


def _nltk_tagger() -> Tagger:
    nltk = importlib.import_module("nltk")
    nltk.pos_tag(["word"])
    return lambda words: [found for _, found in nltk.pos_tag(words)]


def _pattern_tagger() -> Tagger:
    parser = importlib.import_module("textblob.en").parser
    # It reads its lexicon at the first word, and leaves it open.
    with ONE_THREAD, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        parser.find_tags(["word"])
    return lambda words: [found for _, found in parser.find_tags(words)]


#: Taggers by name, in the order in which they are looked for.
TAGGERS: dict[str, Callable[[], Tagger]] = {
    "spaCy en_core_web_sm": _spacy_tagger,
    "NLTK": _nltk_tagger,
    "TextBlob's pattern tagger": _pattern_tagger,
}


def token_tags(
    split: Split, texts: TokenizedTexts, tokenization: Tokenization, tagger: Tagger
) -> Iterator[list[str | None] | None]:
    """Yield the part of speech of each token, that of the word that it begins in, so many texts at
    a time; ``None`` where the tokens are those of other texts.
    """
    if len(split) != len(texts):
        yield None
        return
    for start, end in chunks(split.texts, split.text_pairs):
        tags: list[str | None] = []
        ids: list[int] = []
        first = list(split.texts[start:end])
        second = None if split.text_pairs is None else list(split.text_pairs[start:end])
        for number, encoding, kept in tokenization.encodings(first, second):
            sources = [first[number]] if second is None else [first[number], second[number]]
            all_ids, all_tags = encoding.ids, _tags_of(encoding, sources, tagger)
            ids += (all_ids[place] for place in kept)
            tags += (all_tags[place] for place in kept)
        expected = texts.input_ids[texts.offsets[start] : texts.offsets[end]]
        yield tags if torch.equal(torch.tensor(ids, dtype=expected.dtype), expected) else None


def _tags_of(encoding: Any, sources: Sequence[str], tagger: Tagger) -> list[str | None]:
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
