"""Tokenised texts: words, special tokens, truncation, pairs, the cache."""

import re

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

from auxlearn.core.cache import TensorCache
from auxlearn.core.settings import Windowing
from auxlearn.data import tokens
from auxlearn.data.dataset import Split
from auxlearn.data.tokens import HEAD, UNSPACED, Tokenization
from tests import helpers
from tests.helpers import FAMILIES, HARD_TEXTS, LINES

BOTH_ENDS = Windowing(text_window="head+tail")


@pytest.fixture(scope="module")
def load(encoder_folder):
    """Load a family's tokenizer in the way of this package."""
    return lambda family: AutoTokenizer.from_pretrained(
        encoder_folder(family), split_special_tokens=True
    )


def pieces(tokenizer, arrays, text=0):
    start, end = arrays["offsets"][text : text + 2].tolist()
    return tokenizer.convert_ids_to_tokens(arrays["input_ids"][start:end].tolist())


@pytest.mark.parametrize("family", FAMILIES)
def test_arrays_agree_with_the_tokenizer(load, family):
    tokenizer = load(family)
    assert tokenizer.is_fast
    texts = [*HARD_TEXTS, "", *LINES[:5]]
    arrays = Tokenization(tokenizer, 128).arrays(texts)
    assert arrays["input_ids"].dtype == arrays["words"].dtype == torch.int32
    special = set(tokenizer.all_special_ids)
    for row, text in enumerate(texts):
        encoded = tokenizer(text)
        start, end = arrays["offsets"][row : row + 2].tolist()
        assert arrays["input_ids"][start:end].tolist() == encoded["input_ids"]
        words = [-1 if word is None else word for word in encoded.word_ids()]
        if not re.search(f"[{UNSPACED}]", text):
            assert arrays["words"][start:end].tolist() == words
        maskable = [
            word >= 0 and token not in special
            for word, token in zip(words, encoded["input_ids"], strict=True)
        ]
        assert arrays["maskable"][start:end].tolist() == maskable
        if "token_type_ids" in encoded:
            assert arrays["token_type_ids"][start:end].tolist() == encoded["token_type_ids"]
    assert ("token_type_ids" in arrays) == ("token_type_ids" in tokenizer.model_input_names)


def sentencepiece(pre_tokenizer):
    """A vocabulary of words with their space, and of letters, as of XLM-R or Gemma."""
    words = ["老师", "讲得", "清楚", "。", "ร้าน", "นี้", "ดี", "▁the", "▁parser", "▁reads", "s"]
    pieces = [(word, -5.0) for word in words]
    pieces += [(letter, -9.0) for letter in sorted({*"".join(words), *"oé,", "▁"})]
    unigram = models.Unigram([("<unk>", -20.0), *pieces], unk_id=0, byte_fallback=False)
    tokenizer = Tokenizer(unigram)
    if pre_tokenizer is None:  # as of Gemma: spaces are no more where words are looked for
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    else:
        tokenizer.pre_tokenizer = pre_tokenizer
    special = {"unk_token": "<unk>", "pad_token": "<unk>", "mask_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


@pytest.mark.parametrize(
    ("make", "text", "words"),
    [
        ("metaspace", "老师讲得清楚。the parsers", [0, 0, 1, 2, 3, 4, 4, 4, 5, 5]),
        ("metaspace", "the parsers reads", [0, 1, 1, 2]),
        ("metaspace", "ร้านนี้ดี the", [0, 0, 1, 2, 3]),
        ("nothing", " the parsers reads 老师讲得", [0, 1, 1, 2, 3, 4, 5]),
        ("bert", "the parser 讲得 x", [0, 1, 2, 3, 4]),
        ("roberta", "the 讲 x", [0, 1, 2, 2, 2, 3, 3]),
    ],
)
def test_each_token_of_a_script_without_spaces_is_a_word(make, text, words):
    makers = {
        "metaspace": lambda: sentencepiece(pre_tokenizers.Metaspace()),
        "nothing": lambda: sentencepiece(None),
        "bert": helpers.wordpiece,
        "roberta": helpers.byte_level,
    }
    tokenizer = makers[make]()
    arrays = Tokenization(tokenizer, 64).arrays([text, f"{text} {text}"])
    end = int(arrays["offsets"][1])
    shown = pieces(tokenizer, arrays)
    assert [word for word in arrays["words"][:end].tolist() if word >= 0] == words, shown
    paired = Tokenization(tokenizer, 64).arrays([text], [text])["words"]
    more = [word + words[-1] + 1 for word in words]
    assert [word for word in paired.tolist() if word >= 0] == [*words, *more]


@pytest.mark.parametrize(
    "family", ["bert", "roberta", "distilbert", "electra", "modernbert", "bart"]
)
def test_special_tokens_in_a_text_are_ordinary_text(load, family):
    tokenizer = load(family)
    marks = (tokenizer.mask_token, tokenizer.sep_token, tokenizer.cls_token, tokenizer.pad_token)
    arrays = Tokenization(tokenizer, 128).arrays([f"the {mark} stays" for mark in marks])
    for row, mark in enumerate(marks):
        start, end = arrays["offsets"][row : row + 2].tolist()
        inside = arrays["input_ids"][start + 1 : end - 1].tolist()
        beyond_unknown = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        assert not beyond_unknown & set(inside), (mark, pieces(tokenizer, arrays, row))
        assert len(inside) > 3


@pytest.mark.parametrize("family", FAMILIES)
def test_a_special_token_is_never_maskable(load, family):
    # A SentencePiece vocabulary holds the special tokens as ordinary pieces and may find them.
    tokenizer = load(family)
    text = f"the {tokenizer.mask_token} and {tokenizer.sep_token} of {tokenizer.unk_token} stay 日"
    arrays = Tokenization(tokenizer, 128).arrays([text])
    special = torch.isin(arrays["input_ids"], torch.tensor(tokenizer.all_special_ids))
    assert special.sum() >= 2
    assert not arrays["maskable"][special].any()
    assert arrays["maskable"].sum() > 4


def test_long_texts_are_truncated_and_the_longer_one_of_a_pair(load):
    tokenizer = load("bert")
    arrays = Tokenization(tokenizer, 12).arrays([" ".join(LINES[:4]), "the"])
    assert arrays["offsets"].tolist() == [0, 12, 15]
    assert pieces(tokenizer, arrays)[-1] == "[SEP]"
    arrays = Tokenization(tokenizer, 9).arrays(["the the the the the the the"], ["parser tagger"])
    kept = ["[CLS]", "the", "the", "the", "the", "[SEP]", "parser", "tagger", "[SEP]"]
    assert pieces(tokenizer, arrays) == kept
    assert arrays["words"].tolist() == [-1, 0, 1, 2, 3, -1, 4, 5, -1]
    assert arrays["token_type_ids"].tolist() == [0] * 6 + [1] * 3


def split(texts, labels=None):
    return Split("train", tuple(texts), labels, ("a", "b"))


def test_a_split_is_tokenised_once(load, tmp_path, monkeypatch):
    cache = TensorCache(tmp_path)
    splits = [split(LINES[:4], (0, 1, 0, 1)), split(LINES[4:8])]
    first = [Tokenization(load("bert"), 32).tokenize_split(part, cache) for part in splits]
    assert first[0].labels.tolist() == [0, 1, 0, 1]
    assert first[1].labels is None
    monkeypatch.setattr("auxlearn.data.tokens.Tokenization.arrays", None)  # not called again
    # In any order, from a tokenizer that has been used for something else meanwhile.
    tokenizer = load("bert")
    tokenizer(["the"], truncation=True, max_length=7)
    again = [Tokenization(tokenizer, 32).tokenize_split(part, cache) for part in reversed(splits)]
    for one, other in zip(first, reversed(again), strict=True):
        for name in ("input_ids", "words", "maskable", "offsets"):
            assert torch.equal(getattr(one, name), getattr(other, name))


def test_the_cache_key_covers_texts_tokenizer_and_length(load, tmp_path):
    cache = TensorCache(tmp_path)
    bert, distilbert = load("bert"), load("distilbert")
    # The same vocabulary and rules, but DistilBERT knows no segments.
    assert bert.get_vocab() == distilbert.get_vocab()
    part = split(LINES[:4])
    assert Tokenization(bert, 32).tokenize_split(part, cache).token_type_ids is not None
    assert Tokenization(distilbert, 32).tokenize_split(part, cache).token_type_ids is None
    assert Tokenization(bert, 8).tokenize_split(part, cache).lengths.max() == 8
    other = Split("train", part.texts, None, (), text_pairs=part.texts)
    assert Tokenization(bert, 32).tokenize_split(other, cache).token_type_ids.max() == 1
    kept = Tokenization(bert, 8).tokenize_split(part, cache).input_ids
    bert.truncation_side = "left"
    cut_at_the_front = Tokenization(bert, 8).tokenize_split(part, cache).input_ids
    assert cut_at_the_front.tolist() == [
        token
        for text in part.texts
        for token in bert(text, truncation=True, max_length=8).input_ids
    ]
    assert not torch.equal(cut_at_the_front, kept)
    assert len(list(tmp_path.glob("*.safetensors"))) == 5


def test_texts_are_tokenised_in_chunks(load, monkeypatch):
    tokenizer = load("bert")
    whole = Tokenization(tokenizer, 24).arrays(HARD_TEXTS, HARD_TEXTS[::-1])
    monkeypatch.setattr(tokens, "CHUNK_TEXTS", 3)
    assert len(HARD_TEXTS) % 3  # the last part is a smaller one
    parts = Tokenization(tokenizer, 24).arrays(HARD_TEXTS, HARD_TEXTS[::-1])
    torch.testing.assert_close(parts, whole, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("family", "length", "head", "tail"),
    [*((family, 12, 3, 7) for family in FAMILIES), ("bert", 512, 128, 382), ("bert", 4, 1, 1)],
)
def test_head_and_tail_keep_both_ends_of_a_long_text(load, family, length, head, tail):
    """128 and 382 of 510 are those of Sun et al. (2019); other lengths in proportion."""
    tokenizer = load(family)
    long, short = " ".join(LINES * 2), "the parser"
    arrays = Tokenization(tokenizer, length, BOTH_ENDS).arrays([long, short])
    whole = tokenizer(long, verbose=False)
    first, *text, last = zip(whole["input_ids"], whole.word_ids(), strict=True)
    kept = [first, *text[:head], *text[len(text) - tail :], last]
    assert len(kept) == length
    size = int(arrays["offsets"][1])
    assert arrays["input_ids"][:size].tolist() == [token for token, _ in kept]
    assert arrays["words"][:size].tolist() == [-1 if word is None else word for _, word in kept]
    assert arrays["maskable"].shape == arrays["input_ids"].shape
    plain = Tokenization(tokenizer, length).arrays([long, short])
    for name in ("input_ids", "words", "maskable"):  # a text that fits is left alone
        assert torch.equal(arrays[name][size:], plain[name][size:])
    pairs = Tokenization(tokenizer, max(length, 12), BOTH_ENDS).arrays([long], [short])
    expected = Tokenization(tokenizer, max(length, 12)).arrays([long], [short])
    assert torch.equal(pairs["input_ids"], expected["input_ids"])


def test_tokens_of_one_window_are_not_read_for_another(load, tmp_path):
    tokenizer, cache = load("bert"), TensorCache(tmp_path)
    split = Split("train", (" ".join(LINES),), None, ())
    for _ in range(2):
        found = [
            Tokenization(tokenizer, 16, windowing).tokenize_split(split, cache).input_ids
            for windowing in (HEAD, BOTH_ENDS)
        ]
        assert torch.equal(found[0][:4], found[1][:4])  # [CLS] and three from the beginning
        assert not torch.equal(found[0], found[1])
