"""CoNLL files as their owners write them: read rightly, or refused in one line."""

import pytest

from auxlearn.core.errors import DataError
from auxlearn.data.load import load_dataset
from auxlearn.data.tables import read_table
from tests.helpers import one_line

PLAIN = "EU B-ORG\nrejects O\n\nAnn B-PER\nLee I-PER\n"
WORDS = [["EU", "rejects"], ["Ann", "Lee"]]
TAGS = [["B-ORG", "O"], ["B-PER", "I-PER"]]

#: The same two sentences in the forms of published files.
FORMS = {
    "plain": PLAIN,
    "tabs and line ends of Windows": PLAIN.replace(" ", "\t").replace("\n", "\r\n"),
    "spaces and tabs around and between": PLAIN.replace(" ", " \t ").replace("\n", " \n"),
    "several blank lines, of spaces": PLAIN.replace("\n\n", "\n \n\t\n\n"),
    "line ends of old Macs": PLAIN.replace("\n", "\r"),
    "line ends that were converted twice": PLAIN.replace("\n", "\r\r\n"),
    "CoNLL-2003": "-DOCSTART- -X- -X- O\n\n" + PLAIN.replace(" ", " NNP I-NP "),
    "documents without blank lines": (
        "-DOCSTART- O\nEU B-ORG\nrejects O\n-DOCSTART- O\nAnn B-PER\nLee I-PER\n"
    ),
    "GermEval 2014": (
        "#\thttp://de.example.org/wiki/EU [2009-10-17]\n1\tEU\tO\tB-ORG\n2\trejects\tO\tO\n\n"
        "#\thttp://de.example.org\n1\tAnn\tB-PER\tB-PER\n2\tLee\tI-PER\tI-PER\n"
    ),
    "numbers from 0": "0 EU B-ORG\n1 rejects O\n\n0 Ann B-PER\n1 Lee I-PER\n",
    "numbers through the file": "1 EU B-ORG\n2 rejects O\n\n3 Ann B-PER\n4 Lee I-PER\n",
    "MultiCoNER": (
        "# id 003f-ab\tdomain=en\nEU _ _ B-ORG\nrejects _ _ O\n\n\n"
        "# id 01\tdomain=en\nAnn _ _ B-PER\nLee _ _ I-PER\n"
    ),
    "comments of one and of two cells": f"# one\n# two three\n{PLAIN}\n# the end\n",
    "a comment as long as a word": f"#begin document\n{PLAIN}",
}


@pytest.mark.parametrize("form", FORMS)
def test_published_forms_are_read(form, tmp_path):
    path = tmp_path / "train.conll"
    path.write_bytes(FORMS[form].encode())
    found = read_table(path)
    assert (found.columns["tokens"], found.columns["tags"]) == (WORDS, TAGS)
    assert any("numbers the words" in note for note in found.notes) == (
        form.startswith("numbers") or form == "GermEval 2014"
    )
    assert any("several columns hold tags" in note for note in found.notes) == (
        form == "GermEval 2014"
    )
    path.with_name("dev.conll").write_bytes(FORMS[form].encode())
    assert (
        load_dataset(tmp_path).notes[:1] == tuple(f"train, dev: {note}" for note in found.notes[:1])
        or not found.notes
    )


def test_number_signs_and_digits_that_are_words(tmp_path):
    path = tmp_path / "train.conll"
    path.write_text("# O\n1 O\n\n#tag B-X\n2 I-X\n# O\n\n2014 O\n")
    found = read_table(path)
    assert found.columns["tokens"] == [["#", "1"], ["#tag", "2", "#"], ["2014"]]
    assert not found.notes
    path.write_text("#a HT\nit O\n#b HT\n\n#c HT\n\n#d HT\n")  # on hashtags alone
    assert read_table(path).columns["tokens"] == [["#a", "it", "#b"], ["#c"], ["#d"]]
    path.write_text("10\u00a0000 O\n\u3000x B-X\n")  # spaces of Unicode divide nothing
    assert read_table(path).columns["tokens"] == [["10\u00a0000", "\u3000x"]]
    path.write_text("#\t#\n1\tCD\n\n#\tSYM\n2\tCD\n\n# id = 5\n#a\tNN\n3\tCD\n\n4\tNN\n")
    found = read_table(path)  # a comment has no tab
    assert found.columns["tokens"] == [["#", "1"], ["#", "2"], ["#a", "3"], ["4"]]
    assert not found.notes
    path.write_text("New York\tB-X\nis\tO\n")
    assert read_table(path).columns["tokens"] == [["New York", "is"]]


#: Columns whose last one may not be that of the tags, and what is said.
SAID = {
    "a hashtag, or a comment": (
        "#begin document\nIt O\nis O\n\n#tag O\n\n#other HT\nIt O\n",
        "lines that begin with # are left out as comments, as no word has such a tag: 2, the first "
        "is line 1, '#begin document'",
    ),
    "a number sign, or a comment": (
        "# SYM\nIt O\nis O\n\nit O\n",
        "lines that begin with # are left out as comments, as no word has such a tag: 1, the first "
        "is line 1, '# SYM'",
    ),
    "lemmas last": (
        "EU NNP eu\nrejects VBZ reject\n",
        "the last one of 3 columns is read as the tags",
    ),
    "parts of speech last": (
        "EU B-X NNP\nis O VBZ\n",
        "column 2 holds tags of spans, but the last one of 3 is read, whose tags are NNP, VBZ",
    ),
    "spaces last": (
        "It O +\nis O -\nEU B-X +\n",
        "column 2 holds tags of spans, but the last one of 3 is read, whose tags are +, -",
    ),
    "no span in this file": (
        "It B-NP O\nis O O\n",
        "several columns hold tags of spans: the last one of 3 is read",
    ),
    "names of columns": (
        "word pos\ntom NN\nruns VB\n\nann NN\n",
        "the first line, 'word pos', is read as a word: delete it if it names columns",
    ),
    "names of columns in capitals": (
        "TOKEN TAG\ntom NN\nruns VB\n\nann NN\n",
        "the first line, 'TOKEN TAG', is read as a word: delete it if it names columns",
    ),
    "numbers that do not count": (
        "0 4 The O\n6 10 film B-X\n\n12 15 The O\n17 21 plot O\n",
        "every word has a digit (0, 6, 12 and 1 more): is column 1 that of the words?",
    ),
    "word last": (
        "DT the\nDT an\nNN cat\n",
        "there are more tags (3) than words (2) that differ: is the tag the last column?",
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_columns_that_may_hold_no_tags_are_said(case, tmp_path):
    content, note = SAID[case]
    (tmp_path / "train.conll").write_text(content)
    assert read_table(tmp_path / "train.conll").notes == (note,)


def test_one_long_sentence_is_said(tmp_path):
    path = tmp_path / "train.conll"
    path.write_text("EU B-ORG\n" * 128)
    assert not read_table(path).notes
    path.write_text("EU B-ORG\n" * 129)
    (note,) = read_table(path).notes
    assert note == "one sentence of 129 words: are the blank lines between missing?"


#: Files that are not columns of words, and what is said.
FAULTS = {
    "a column more": ("EU B-ORG\nnow so O\nis O\n", "train.conll:2: 3 columns, but 2 lines have 2"),
    "no tag": ("EU\nis\n", "train.conll:1: a word and its tag are needed"),
    "an empty tag": ("EU\tB-X\nis\t\nso\tO\n", "train.conll:2: a word and its tag are needed"),
    "CoNLL-2012": (
        "#begin document (bc/a); part 000\n"
        "bc/a 0 0 In IN (TOP* - - - Ann * (12\nbc/a 0 1 it PRP *) - - - Ann * 12)\n",
        "looks like CoNLL-2012 (OntoNotes), whose first column names the document: write a word",
    ),
    "names of documents": ("a EU B-X\na is O\n\nb it O\nb is O\n", "looks like CoNLL-2012"),
    "tags first": ("B-X\tEU\nO\tis\n", "column 1 holds tags (B-X, O) and the last one does not"),
    "numbers and tags first": ("1 B-X EU\n2 O is\n", "column 2 holds tags (B-X, O)"),
    "CoNLL-U": (
        "1-2\tdu" + "\t_" * 8 + "\n1\tde\t_\tADP\t_\t_\t2\tcase\t_\tA=B\n"
        "2\tle\t_\tDET\t_\t_\t0\troot\t_\t_\n",
        "looks like CoNLL-U: name it .conllu",
    ),
    "CoNLL-2009": ("1\tEU" + "\t_" * 13 + "\n", "like CoNLL-2009 (15 columns): write CoNLL-U"),
    "files that were joined": (f"{PLAIN}\ufeff{PLAIN}", "train.conll:6: begins with a byte order"),
    "one language last": (
        "EU B-X en\nis O en\n",
        "column 2 holds tags of spans and the last one en alone: write the word first",
    ),
    "numbers below the names of columns": (
        "ID WORD POS\n1 EU X\n2 is Y\n\n1 So Y\n",
        ":1: 'ID WORD POS' names the columns of words that are numbered: delete the line",
    ),
    "a name alone above numbers": (
        "# id word POS\nID WORD POS\n\n1 EU X\n2 is Y\n",
        ":2: 'ID WORD POS' names the columns",
    ),
    "numbers and words": ("1 EU\n2 is\n", "numbers the words, which have no tags"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_line_that_does_not_fit_is_named(case, tmp_path):
    content, message = FAULTS[case]
    (tmp_path / "train.conll").write_text(content)
    with one_line(DataError, message):
        read_table(tmp_path / "train.conll")


def test_treebanks_without_words_or_tags_are_named(tmp_path):
    line = "{}\t{}\t_\t{}\t_\t_\t0\troot\t_\t_\n\n"

    def load(*words, mark=""):
        for name in ("train", "dev"):
            text = mark.join(line.format(1, word, tag) for word, tag in words)
            (tmp_path / f"{name}.conllu").write_text(text)
        return load_dataset(tmp_path)

    with one_line(DataError, "train.conllu:3: begins with a byte order mark"):
        load(("a", "X"), ("b", "Y"), mark="\ufeff")
    with one_line(DataError, "train.conllu", "every word is _"):
        load(("_", "NOUN"), ("_", "VERB"))
    words = line.format(1, "a", "ADV")[:-1] + line.format(2, "b", "_").replace("0\troot", "1\tx")
    for name in ("train", "dev"):
        (tmp_path / f"{name}.conllu").write_text(words)
    (note, *_) = load_dataset(tmp_path).notes
    assert note == "train: heads are read, not tags, which are all ADV or _"
    found = load(("_", "PUNCT"), ("c", "X"), ("a", "_"), ("b", "_"))
    assert any("2 words have the tag _" in note for note in found.notes)
