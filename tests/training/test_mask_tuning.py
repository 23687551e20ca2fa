"""Whole runs with Mask-tuning: families, resuming, the perturbation log, ablations, OOD sets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
import yaml
from transformers import AutoTokenizer

import auxlearn
from auxlearn import train
from auxlearn.objectives.masking import ordinary_ids
from auxlearn.results.perturbation_log import read_perturbations
from tests import helpers


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    rows = helpers.rows()
    return helpers.write_splits(
        tmp_path_factory.mktemp("data"), train=rows[:12], dev=rows[12:18], test=rows[18:]
    )


@pytest.fixture(scope="module")
def contrast(tmp_path_factory) -> Path:
    """An out-of-distribution set with two labels, in pairs, of two kinds."""

    def rows(*labels):
        return [
            {"text": line, "label": labels[number % 2], "kind": str(number // 3)}
            for number, line in enumerate(helpers.LINES[:6])
        ]

    parts = {"test": rows("background", "other"), "orig": rows("other", "background")}
    return helpers.write_splits(tmp_path_factory.mktemp("contrast"), **parts)


@pytest.fixture
def config(config):
    defaults = {"aux": ["mask_tuning"], "weights": "fixed", "batch_size": 4, "eval_steps": 2}
    return lambda **settings: config(**defaults | settings)


def test_a_vocabulary_with_gaps_is_drawn_from_whole_and_alone(config, tmp_path):
    """Only every third number is a token, up to three times their count."""
    vocab = {
        piece: number if number < 5 else 3 * number
        for piece, number in helpers.wordpiece().get_vocab().items()
    }
    size = max(vocab.values()) + 1
    settings = transformers.BertConfig(vocab_size=size, **helpers.SIZE)
    parts = transformers.BertForMaskedLM(settings), transformers.BertTokenizer(vocab=vocab)
    encoder = str(helpers.write(tmp_path / "gaps", *parts))
    special = set(parts[1].all_special_ids)
    assert ordinary_ids(parts[1]).tolist() == sorted(set(vocab.values()) - special)
    rates = tmp_path / "rates.json"
    rates.write_text(json.dumps({max(vocab.values()): 0.5}))
    informask = {"informask": {"by": "token", "rates": str(rates)}}
    train(config(encoder=encoder, aux=["mask_tuning", "random_mlm", "typhoon", informask]))
    records = read_perturbations(tmp_path / "run")
    found = {token for record in records for token in record.predicted}
    assert found <= set(vocab.values())
    assert max(found) >= len(vocab)
    auxlearn.perturbations(tmp_path / "run")
    auxlearn.report(tmp_path / "run", output=tmp_path / "report.html")


def test_every_text_is_recorded_once_an_epoch_as_it_was_trained_on(config, tmp_path):
    train(config(weights={"meta": {"horizon": "steps", "gate": 0}}))
    records = read_perturbations(tmp_path / "run")
    assert len({(record.epoch, record.example) for record in records}) == len(records) == 24
    assert {record.epoch for record in records} == {1, 2}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    texts = [tokenizer(line)["input_ids"] for line in helpers.LINES[:12]]
    for record in records:
        assert record.input_ids == texts[record.example]
        assert record.label == record.example % 3
        assert record.positions
        assert len(record.positions) == len(record.predicted)
        assert all(0 < place < len(record.input_ids) - 1 for place in record.positions)
    assert any(
        new != record.input_ids[place]
        for record in records
        for place, new in zip(record.positions, record.predicted, strict=True)
    )


def test_every_micro_batch_is_recorded_but_no_text_that_a_gate_keeps_from_the_classifier(config):
    results = train(config(gradient_accumulation_steps=2, epochs=1))
    assert len(read_perturbations(results.folder)) == 12
    shutil.rmtree(results.folder)
    results = train(config(weights={"meta": {"horizon": "steps", "gate": 0.39}}))
    assert results.weights == {"primary": 1.0, "mask_tuning": 0.0}
    assert not (results.folder / "perturbations.jsonl").exists()


def test_the_ablations_train_on_text_perturbed_once(config, tmp_path):
    def texts(**settings):
        given = config(aux=[], output=str(tmp_path / str(settings)), **settings)
        return helpers.first_step(given).primary.texts

    original = texts()
    added = texts(perturbed_text="add")
    replaced = texts(perturbed_text="replace")
    again = texts(perturbed_text="replace", cache_dir=str(tmp_path / "cache"))
    assert len(original) == len(replaced) == 12
    assert len(added) == 24
    assert torch.equal(added.select(torch.arange(12)).input_ids, original.input_ids)
    assert torch.equal(added.select(torch.arange(12, 24)).input_ids, replaced.input_ids)
    assert torch.equal(again.input_ids, replaced.input_ids)
    assert added.labels.tolist() == original.labels.tolist() * 2
    changed = replaced.input_ids != original.input_ids
    assert changed.any()
    assert not (changed & ~original.maskable).any()
    assert not torch.equal(replaced.input_ids, texts(perturbed_text="replace", seed=1).input_ids)
    more = texts(perturbed_text="replace", perturbed_share=0.8)
    assert (more.input_ids != original.input_ids).sum() > 3 * changed.sum()


def test_out_of_distribution_sets_are_reported(config, contrast, tmp_path):
    source = {
        "dataset": str(contrast),
        "name": "contrast",
        "labels": {"method": "other", "result": "other"},
        "subsets": ["kind"],
        "pairs": "orig",
    }
    results = train(config(ood=[source]))
    assert list(results.evaluations) == ["dev", "test", "contrast"]
    found = results.evaluations["contrast"]
    rows = helpers.read_lines(tmp_path / "run" / "predictions" / "contrast.jsonl")
    right = [row["label"] == row["predicted"] for row in rows]
    assert found.all.accuracy == pytest.approx(sum(right) / 6)
    assert found.subsets["kind: 0"].accuracy == pytest.approx(sum(right[:3]) / 3)
    assert 0 <= found.pair_accuracy <= min(found.all.accuracy, found.partner.accuracy)
    assert results.dataset.examples["contrast"] == 6
    assert found.seen_examples == 6, "its texts are in train"
    assert type(results).load(tmp_path / "run") == results
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    sets = [entry["dataset"] for entry in front["model-index"][0]["results"]]
    assert sets[-1] == {"type": "contrast", "name": "contrast", "split": "test"}
    assert [one["split"] for one in sets[:-1]] == ["dev", "test"]
    assert "| contrast, kind: 0 | 3 |" in card
