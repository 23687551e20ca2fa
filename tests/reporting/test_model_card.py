"""Model cards: the front matter that the hub reads, and the facts for the reader."""

from __future__ import annotations

import pytest
from huggingface_hub import ModelCard

from auxlearn.reporting.model_card import model_card
from tests.reporting import examples


@pytest.fixture
def card() -> ModelCard:
    return ModelCard(model_card(examples.results("l3mask", seen=4)))


def test_the_front_matter_is_what_the_hub_reads(card):
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "text-classification"
    assert card.data.metrics == ["accuracy", "f1"]
    assert {"auxlearn", "text-classification", "l3mask"} <= set(card.data.tags)
    metrics = {
        (found.dataset_split, found.metric_type): found.metric_value
        for found in card.data.eval_results
    }
    assert metrics == {
        ("dev", "accuracy"): 0.75,
        ("dev", "f1"): 0.74,
        ("test", "accuracy"): 0.7,
        ("test", "f1"): 0.69,
        ("letters", "accuracy"): 0.6,
        ("letters", "f1"): 0.59,
    }


@pytest.mark.parametrize(
    "fact",
    [
        "feedfacecafebeef",  # fingerprint of the data
        "train 80, dev 20, test 40",
        "no dev split: 20 of the 100 rows",
        "`l3mask` (probability 0.15)",
        "`meta` (split dev, every 2)",
        "primary 0.500, l3mask 0.500",  # weights at the end
        "seed: 3",
        "0123456789ab",  # hash of the configuration
        "learning rate 0.001",
        "| test | 40 | 0.700 | 0.690 | 36 | 0.600 | 0.590 | 0.500 | 0.333 |",
        "truncation=True",
        "truncated to 32 tokens",
        "torch 2.13.0",
    ],
)
def test_the_card_states(card, fact):
    assert fact in card.text


def test_a_single_task_run_says_so_and_has_no_weights(card):
    text = model_card(examples.results())
    assert "auxiliary tasks: none" in text
    assert "weights at the end" not in text
    assert "weights at the end" in card.text


def test_a_hub_encoder_is_the_base_model():
    assert "base_model" not in model_card(examples.results())
    card = ModelCard(model_card(examples.results(encoder="scibert")))
    assert card.data.base_model == "allenai/scibert_scivocab_uncased"
    card = ModelCard(model_card(examples.results(encoder="someone/some-model")))
    assert card.data.base_model == "someone/some-model"


def test_local_paths_are_not_published(tmp_path):
    folder = tmp_path / "private" / "mini"
    folder.mkdir(parents=True)
    results = examples.results(
        encoder=str(folder),
        aux=[{"random_mlm": {"corpus": str(folder / "more.txt")}}],
    )
    text = model_card(results)
    assert "private" not in text
    assert "`mini`" in text
    assert "corpus more.txt" in text
    assert "base_model" not in text
