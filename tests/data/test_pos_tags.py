"""Part-of-speech taggers of other packages: which is found, and what it is given."""

import sys
from types import SimpleNamespace

from auxlearn.data.pos_tags import TAGGERS, find_tagger, words_of


def test_without_a_tagger_installed_there_is_none_and_nltk_is_used_where_it_is(monkeypatch):
    for name in ("spacy", "nltk", "textblob", "textblob.en"):
        monkeypatch.setitem(sys.modules, name, None)
    assert find_tagger() is None
    # NLTK is used where it is installed.
    fake = SimpleNamespace(pos_tag=lambda words: [(word, "NNS") for word in words])
    monkeypatch.setitem(sys.modules, "nltk", fake)
    tagger, name = find_tagger()
    assert (tagger(["dogs"]), name) == (["NNS"], "NLTK")


def test_the_pattern_tagger_needs_no_download(monkeypatch):
    # nltk, which TextBlob imports, has no tagger data here, whatever the machine has.
    for other in ("spaCy en_core_web_sm", "NLTK"):
        monkeypatch.delitem(TAGGERS, other)
    tagger, name = find_tagger()
    words = ["The", "quick", "dogs", "were", "barking", "loudly", "."]
    assert name == "TextBlob's pattern tagger"
    assert tagger(words) == ["DT", "JJ", "NNS", "VBD", "VBG", "RB", "."]


def test_words_keep_hyphens_and_apostrophes():
    text = "Don't use state-of-the-art\tparsers (1993)!"
    assert [text[begin:end] for begin, end in words_of(text)] == [
        "Don't", "use", "state-of-the-art", "parsers", "(", "1993", ")", "!",
    ]  # fmt: skip
    accented = "Le cafe\u0301-bar, \u0939\u093f\u0928"  # marks are characters of their own
    assert [accented[begin:end] for begin, end in words_of(accented)] == [
        "Le", "cafe\u0301-bar", ",", "\u0939\u093f\u0928",
    ]  # fmt: skip
    assert words_of("  ") == []
