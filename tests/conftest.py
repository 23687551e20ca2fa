"""Fixtures that the whole suite shares: tiny encoders as folders on disk."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

# Before anything imports torch or transformers: one thread (these models are
# too small for two, which would wait for each other), no network, a cache of our own.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["AUXLEARN_CACHE"] = tempfile.mkdtemp(prefix="auxlearn-tests-")
atexit.register(shutil.rmtree, os.environ["AUXLEARN_CACHE"], ignore_errors=True)

import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)

from auxlearn.encoders.load import load_encoder  # noqa: E402
from auxlearn.encoders.shared import SharedEncoder  # noqa: E402
from tests import helpers  # noqa: E402


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory) -> Callable[[str], Path]:
    """Give the folder of a tiny untrained encoder of a family."""
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            place = tmp_path_factory.mktemp(family)
            made[family] = helpers.write(place, *helpers.build(family))
        return made[family]

    return folder


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory) -> Callable[[str], Path]:
    """Give the folder of a tiny encoder, BERT or RoBERTa, trained for a moment."""
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            model, tokenizer = helpers.build(family, spread=0.1)
            helpers.train_for_a_moment(model, tokenizer)
            made[family] = helpers.write(tmp_path_factory.mktemp(family), model, tokenizer)
        return made[family]

    return folder


@pytest.fixture
def tiny_bert(encoder_folder) -> SharedEncoder:
    """A tiny untrained BERT with three classes, fresh for each test."""
    return load_encoder(str(encoder_folder("bert")), helpers.LABELS)


@pytest.fixture
def trained_bert(trained_folder) -> SharedEncoder:
    """A tiny BERT trained for a moment, fresh for each test."""
    return load_encoder(str(trained_folder("bert")), helpers.LABELS)
