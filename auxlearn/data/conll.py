"""Words and their labels, one a line: columns of the CoNLL shared tasks, and CoNLL-U."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from auxlearn.core.errors import DataError, shorten, some_of
from auxlearn.core.table import Table

#: Cells of the words of a sentence, each with the number of its line.
Sentence = list[tuple[int, list[str]]]

_NO_WORD = re.compile(r"[0-9]+-[0-9]+|[0-9]+\.[0-9]+")  # ID of a multi-word token or an empty node

_LINE_END = re.compile(r"\r{0,2}\n|\r")  # two CR where text was converted twice
_SPAN = re.compile("[BIMELSU]-.+")

_LONG_SENTENCE = 128  # words

_HEADS = ("word", "words", "token", "tokens", "form", "text")  # names of the column of words


def read_conll(path: Path, text: str) -> Table:
    """Read columns divided by tabs if every line has one, else by spaces and tabs: the word first,
    its tag last. A first column that numbers the words is left out, and so are lines that begin
    with ``-DOCSTART-`` and comments before a sentence: lines that begin with # and have another
    number of columns than the words, or a last cell that is no tag of a word unless # alone
    stands before a tab.
    """
    blocks = [
        [(number, line.strip(" \t")) for number, line in block] for block in _blocks(path, text)
    ]
    words = [line for block in blocks for _, line in block if not line.startswith("#")]
    divider = " *\t *" if all("\t" in line for line in words) else "[ \t]+"
    # A line that begins with # behind a word is one too: some hashtags have a tag of their own.
    known = [
        re.split(divider, line)
        for block in blocks
        for _, line in itertools.dropwhile(lambda numbered: numbered[1].startswith("#"), block)
    ]
    widths, tags = Counter(map(len, known)), {cells[-1] for cells in known}
    width = widths.most_common(1)[0][0] if widths else 0
    sentences: list[Sentence] = []
    left_out: list[str] = []  # comments that have as many columns as the words
    for block in blocks:
        sentence: Sentence = []
        for number, line in block:
            cells = re.split(divider, line)
            is_tagged = cells[-1] in tags or _SPAN.fullmatch(cells[-1])
            is_word = len(cells) == width and (is_tagged or line.startswith("#\t"))
            if sentence or is_word or not line.startswith("#"):
                sentence.append((number, cells))
            elif len(cells) == width:
                left_out.append(f"line {number:,}, '{shorten(line)}'")
        if sentence:
            sentences.append(sentence)
    _check_format(path, text, sentences)
    for number, cells in (word for sentence in sentences for word in sentence):
        if len(cells) < 2:
            fault = "a word and its tag are needed"
        elif len(cells) != width:
            fault = f"{len(cells)} columns, but {widths[width]:,} lines have {width}"
        else:
            continue
        raise DataError(f"{path}:{number}: {fault}: '{shorten(' '.join(cells))}'")
    notes, first = [], 0
    if left_out:
        notes.append(
            f"lines that begin with # are left out as comments, as no word has such a tag: "
            f"{len(left_out):,}, the first is {left_out[0]}"
        )
    if _are_numbered(sentences):
        first = 1
        notes.append("the first column numbers the words: the second one is read as the word")
        if width < 3:
            raise DataError(f"{path}: the first column numbers the words, which have no tags")
    elif sentences and _are_numbered([sentences[0][1:], *sentences[1:]]):
        number, cells = sentences[0][0]
        fault = "names the columns of words that are numbered: delete the line"
        raise DataError(f"{path}:{number}: '{shorten(' '.join(cells))}' {fault}")
    columns = [list(dict.fromkeys(cells[place] for cells in known)) for place in range(width)]
    names = {*columns[-1]} if columns else set()
    if width and are_tags(columns[first]) and not are_tags(names):
        raise DataError(
            f"{path}: column {first + 1} holds tags ({some_of(columns[first])}) and the last one "
            "does not: write the word first and its tag last"
        )
    has_spans = any(map(_SPAN.fullmatch, names))
    spans = [place + 1 for place in range(first + 1, width - 1) if _begin_spans(columns[place])]
    if spans and (has_spans or names == {"O"}):
        notes.append(f"several columns hold tags of spans: the last one of {width} is read")
    elif spans and len(names) == 1:
        raise DataError(
            f"{path}: column {spans[-1]} holds tags of spans and the last one {some_of(names)} "
            "alone: write the word first and its tag last"
        )
    elif spans:
        notes.append(
            f"column {spans[-1]} holds tags of spans, but the last one of {width} is read, whose "
            f"tags are {some_of(sorted(names), 3)}"
        )
    elif width > first + 2 and not has_spans:
        notes.append(f"the last one of {width} columns is read as the tags")
    if width and len(names) > len(columns[first]):
        notes.append(
            f"there are more tags ({len(names):,}) than words ({len(columns[first]):,}) that "
            "differ: is the tag the last column?"
        )
    if width > 2 and all(re.search("[0-9]", word) for word in columns[first]):
        shown = some_of(columns[first], 3)
        notes.append(f"every word has a digit ({shown}): is column {first + 1} that of the words?")
    if (
        known
        and known[0][first].lower() in _HEADS
        and sum(known[0][-1] == cells[-1] for cells in known) == 1
    ):
        line = shorten(" ".join(known[0]))
        notes.append(f"the first line, '{line}', is read as a word: delete it if it names columns")
    if len(sentences) == 1 and len(sentences[0]) > _LONG_SENTENCE:
        count = len(sentences[0])
        notes.append(f"one sentence of {count:,} words: are the blank lines between missing?")
    return replace(_table(path, sentences, {"tokens": first, "tags": -1}), notes=tuple(notes))


def read_conllu(path: Path, text: str) -> Table:
    """Read forms, UPOS (``tags``), XPOS, HEAD and DEPREL; no multi-word tokens or empty nodes."""
    sentences: list[Sentence] = []
    for block in _blocks(path, text):
        sentence: Sentence = []
        for number, line in block:
            if line.startswith("#"):
                continue
            cells = line.split("\t")
            if len(cells) != 10:
                fault = f"{len(cells)} columns, but CoNLL-U has 10, divided by tabs"
            elif _NO_WORD.fullmatch(cells[0]):
                continue
            elif cells[0] != str(len(sentence) + 1):
                fault = f"the ID is '{shorten(cells[0])}', but words are numbered 1, 2 ..."
            else:
                sentence.append((number, cells))
                continue
            raise DataError(f"{path}:{number}: {fault}: '{shorten(line)}'")
        if sentence:
            sentences.append(sentence)
    return _table(path, sentences, {"tokens": 1, "tags": 3, "xpos": 4, "head": 6, "deprel": 7})


def _blocks(path: Path, text: str) -> Iterator[list[tuple[int, str]]]:
    """Yield the lines between blank ones, each with its number."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate([*_LINE_END.split(text), ""], start=1):
        if line.startswith("\ufeff"):  # it would be part of a word, and end no sentence
            fault = "begins with a byte order mark, as where files were joined"
            raise DataError(f"{path}:{number}: {fault}: put a blank line in its place")
        if line.strip() and not line.startswith("-DOCSTART-"):  # it begins a document
            block.append((number, line))
        elif block:
            yield block
            block = []


def _check_format(path: Path, text: str, sentences: Sequence[Sentence]) -> None:
    """Refuse columns whose first is no word and no number, or whose last is no tag."""
    firsts = [[cells[0] for _, cells in sentence] for sentence in sentences]
    rows = [cells for sentence in sentences for _, cells in sentence]
    width, last = min(map(len, rows), default=0), {cells[-1] for cells in rows}
    several = [first for first in firsts if len(first) > 1]
    is_named = len(several) > 1 and all(len({*first}) == 1 for first in firsts)
    if re.search(r"^#begin document \(", text, re.MULTILINE) or (width > 2 and is_named):
        raise DataError(
            f"{path}: looks like CoNLL-2012 (OntoNotes), whose first column names the document: "
            "write a word and its tag (B-TYPE, I-TYPE or O) on each line"
        )
    are_ids = all(re.fullmatch("[0-9]+([-.][0-9]+)?", one) for first in firsts for one in first)
    if width >= 10 and are_ids and not _begin_spans(last):
        columns = f"CoNLL-2009 ({width} columns): write CoNLL-U (10 columns) and"
        raise DataError(
            f"{path}: looks like {'CoNLL-U:' if width == 10 else columns} name it .conllu"
        )


def are_tags(names: Collection[str]) -> bool:
    """Return whether all are tags of spans, or O (also o and 0)."""
    rest = {*names} - {*"Oo0"}
    return bool(rest) and all(map(_SPAN.fullmatch, rest))


def _begin_spans(names: Collection[str]) -> bool:
    return "O" in names and any(name.startswith("B-") for name in names)


def _are_numbered(sentences: Sequence[Sentence]) -> bool:
    """Return whether the first cells of every sentence count its words, from any number."""
    firsts = [[cells[0] for _, cells in sentence] for sentence in sentences if sentence]
    return any(len(first) > 1 for first in firsts) and all(
        re.fullmatch("[0-9]{1,9}", first[0])
        and first == [str(int(first[0]) + place) for place in range(len(first))]
        for first in firsts
    )


def _table(path: Path, sentences: Sequence[Sentence], places: dict[str, int]) -> Table:
    columns = {
        name: [[cells[place] for _, cells in sentence] for sentence in sentences]
        for name, place in places.items()
    }
    return Table(str(path), columns, [sentence[0][0] for sentence in sentences])
