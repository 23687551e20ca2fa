"""Ctrl-C ends long work at once: after the signal, nothing further is read or computed."""

import importlib
import os
import signal
import sys
import time
import weakref

import multiprocess
import pytest

from auxlearn.core.cache import TensorCache
from auxlearn.core.signals import interruptible
from auxlearn.data import audit, corpora, splits, tokens
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.encoders.load import load_encoder
from auxlearn.scoring import pseudo_likelihood

TEXTS = tuple(f"text {number} of some words" for number in range(100))


@pytest.fixture(autouse=True)
def usual_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def setting(one_layer, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(corpora, "PIECE", 200)
    monkeypatch.setattr(tokens, "SHOW_PROGRESS", 1)
    monkeypatch.setattr(tokens, "CHUNK_TEXTS", 10)
    monkeypatch.setitem(pseudo_likelihood.TOKEN_BUDGET, "cpu", 50)
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS))
    encoder, cache = load_encoder(str(one_layer), ["unused"]), TensorCache(tmp_path / "cache")
    return encoder, tokens.Tokenization(encoder.tokenizer, 16), path, cache


def read(encoder, how, path, cache):
    corpora.read_corpus(path, cache)


def hold_out(encoder, how, path, cache):
    splits.hold_out_of_many(Split("train", TEXTS, None, ()), 10, lambda count: None)


def tokenize(encoder, how, path, cache):
    how.tokenize_split(corpora.read_corpus(path, cache), cache)


def score(encoder, how, path, cache):
    pseudo_likelihood.score_texts(encoder, how.tokenize(TEXTS), cache)


def check(encoder, how, path, cache):
    labels = tuple(number % 2 for number in range(len(TEXTS)))
    split = Split("train", TEXTS, labels, ("a", "b"))
    audit.audit(TextDataset("texts", {"train": split, "dev": split}))


WORK = {
    "reading": (read, corpora, "decoded"),
    "holding out": (hold_out, splits, "normalise"),
    "tokenising": (tokenize, tokens.Tokenization, "_chunk"),
    "scoring": (score, pseudo_likelihood._Body, "states"),
    "auditing": (check, splits, "normalise"),
}


@pytest.mark.parametrize("name", WORK)
def test_nothing_is_done_after_the_signal(setting, monkeypatch, name):
    work, owner, part = WORK[name]
    real, times = getattr(owner, part), []

    def signalled(*arguments):
        times.append(1)
        if len(times) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(owner, part, signalled)
    with pytest.raises(KeyboardInterrupt):
        work(*setting)
    assert len(times) == 3
    monkeypatch.setattr(owner, part, real)
    work(*setting)  # nothing is left locked or half-written


def test_a_module_is_imported_whole_before_the_signal_is_heard(tmp_path, monkeypatch):
    lines = ["import os, signal", "os.kill(os.getpid(), signal.SIGINT)", "WHOLE = True"]
    (tmp_path / "signalled.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)

    def work():
        importlib.import_module("signalled")
        time.sleep(10)

    with pytest.raises(KeyboardInterrupt), interruptible():
        work()
    assert sys.modules.pop("signalled").WHOLE


def test_a_program_that_is_imported_is_interrupted_at_once(tmp_path, monkeypatch):
    head = "import os, signal\nfrom auxlearn.core.signals import interruptible\n"
    block = "with interruptible():\n    os.kill(os.getpid(), signal.SIGINT)\n    1 / 0\n"
    (tmp_path / "program.py").write_text(head + block)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module("program")


def test_a_signal_in_a_callback_of_python_is_heard_after_it(capsys):
    class Referred:
        pass

    def work():
        referred = Referred()
        reference = weakref.ref(referred, lambda _: os.kill(os.getpid(), signal.SIGTERM))
        del referred
        assert reference() is None
        time.sleep(10)

    before = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt, match="by SIGTERM"), interruptible():
        work()
    assert sys.unraisablehook is before
    assert capsys.readouterr().err == ""


def test_processes_that_tokenise_are_not_waited_for(setting, monkeypatch, tmp_path):
    """One sends the signal and would then be busy for a minute."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    parent, waited, real = os.getpid(), tmp_path / "waited", tokens.Tokenization._chunk

    def chunk(self, texts, pairs):
        if TEXTS[75] in texts:
            os.kill(parent, signal.SIGINT)
            time.sleep(60)
            waited.touch()
        return real(self, texts, pairs)

    monkeypatch.setattr(tokens.Tokenization, "_chunk", chunk)
    with pytest.raises(KeyboardInterrupt):
        tokenize(*setting)
    assert not waited.exists()
    assert multiprocess.active_children() == []
    assert list(setting[-1].folder.glob("*.map")) == []
    monkeypatch.setattr(tokens.Tokenization, "_chunk", real)
    tokenize(*setting)
