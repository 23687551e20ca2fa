"""Masked language modelling before fine-tuning: where its text comes from."""

from __future__ import annotations

import json

import pytest

from auxlearn.errors import DataError
from auxlearn.training.pretrain import pretrain
from tests import helpers


def test_the_texts_of_a_table_come_from_the_named_column(tmp_path, encoder_folder):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"body": line}) + "\n" for line in helpers.LINES[:6]))

    def run(output, **options):
        return pretrain(
            str(encoder_folder("bert")),
            tmp_path / output,
            corpus=corpus,
            steps=1,
            batch_size=2,
            device="cpu",
            **options,
        )

    with pytest.raises(DataError, match="name the column with --text-column"):
        run("refused")
    assert run("made", text_column="body").texts == 5  # one is held out
