"""Whole runs with Mask-tuning: families, resuming, the perturbation log, ablations, OOD sets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from auxlearn import RunConfig, train
from auxlearn.core.errors import DataError
from auxlearn.results.perturbation_log import read_perturbations
from auxlearn.training.loop import TrainingLoop
from tests import helpers

FAMILIES = ("bert", "roberta", "distilbert", "bart")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    rows = helpers.rows()
    return helpers.write_splits(
        tmp_path_factory.mktemp("data"), train=rows[:12], dev=rows[12:18], test=rows[18:]
    )


@pytest.fixture(scope="module")
def contrast(tmp_path_factory) -> Path:
    """An out-of-distribution set with two labels, in pairs, of two kinds."""
    folder = tmp_path_factory.mktemp("contrast")
    for name, labels in (("test", ("background", "other")), ("orig", ("other", "background"))):
        rows = [
            {"text": line, "label": labels[number % 2], "kind": str(number // 3)}
            for number, line in enumerate(helpers.LINES[:6])
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return folder


@pytest.fixture
def config(config, encoder_folder, monkeypatch):
    """Return a configuration of a run of six optimizer steps without plots."""
    run_config = config

    def make(family="bert", **settings) -> RunConfig:
        defaults = {
            "encoder": str(encoder_folder(family)),
            "aux": ["mask_tuning"],
            "weights": "fixed",
            "batch_size": 4,
            "eval_steps": 2,
        }
        return run_config(**defaults | settings)

    return make


@pytest.mark.parametrize(
    ("family", "task"),
    [
        ("bert", "mask_tuning"),
        ("bart", "mask_tuning"),
        *(pytest.param(one, "mask_tuning", marks=pytest.mark.slow) for one in FAMILIES[1:3]),
        pytest.param("roberta", "random_mlm", marks=pytest.mark.slow),
        pytest.param("bart", "l3mask", marks=pytest.mark.slow),
    ],
)
def test_every_family_trains_resumes_exports_and_reloads(
    config, monkeypatch, tmp_path, dataset, family, task
):
    uninterrupted = train(config(family, aux=[task], output=str(tmp_path / "uninterrupted")))
    with monkeypatch.context() as patch:
        helpers.stop_before_step(patch, 3)
        with pytest.raises(SystemExit):
            train(config(family, aux=[task]))
    resumed = train(config(family, aux=[task]))
    assert resumed.evaluations == uninterrupted.evaluations
    assert uninterrupted.steps == 6
    folder = tmp_path / "run"
    model = AutoModelForSequenceClassification.from_pretrained(folder / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    written = [
        json.loads(line)
        for line in (folder / "predictions" / "test.jsonl").read_text().splitlines()
    ]
    texts = [json.loads(line)["text"] for line in (dataset / "test.jsonl").read_text().splitlines()]
    for text, row in zip(texts, written, strict=True):
        with torch.no_grad():
            found = model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]
        assert found.tolist() == pytest.approx(row["probabilities"], abs=1e-5)


@pytest.mark.parametrize("steps", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 5))])
def test_a_kill_leaves_no_trace_in_the_perturbation_log(config, monkeypatch, tmp_path, steps):
    train(config(output=str(tmp_path / "uninterrupted")))
    with monkeypatch.context() as patch:
        helpers.stop_before_step(patch, steps)
        with pytest.raises(SystemExit):
            train(config())
    train(config())
    first, second = (
        (tmp_path / name / "perturbations.jsonl").read_bytes() for name in ("uninterrupted", "run")
    )
    assert first == second


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


def test_every_micro_batch_is_recorded(config, tmp_path):
    train(config(gradient_accumulation_steps=2, epochs=1))
    assert len(read_perturbations(tmp_path / "run")) == 12


def test_texts_that_a_gate_keeps_from_the_classifier_are_not_recorded(config, tmp_path):
    results = train(config(weights={"meta": {"horizon": "steps", "gate": 0.39}}))
    assert results.weights == {"primary": 1.0, "mask_tuning": 0.0}
    assert not (tmp_path / "run" / "perturbations.jsonl").exists()


def test_a_run_without_perturbation_records_nothing(config, tmp_path):
    train(config(aux=["random_mlm"], epochs=1))
    assert not (tmp_path / "run" / "perturbations.jsonl").exists()


def trained_on(monkeypatch, config):
    """The training texts of a run."""
    seen = []

    def run(self):
        seen.append(self.training_step.primary.texts)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "run", run)
        with pytest.raises(SystemExit):
            train(config)
    return seen[0]


def test_the_ablations_train_on_text_perturbed_once(config, monkeypatch, tmp_path):
    def texts(**settings):
        return trained_on(
            monkeypatch, config(aux=[], output=str(tmp_path / str(settings)), **settings)
        )

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


def test_weight_zero_trains_on_the_perturbed_text_alone(config, tmp_path):
    def weights(alpha):
        output = tmp_path / ("run" if isinstance(alpha, list) else "other")
        train(config(weights={"fixed": {"alpha": alpha}}, output=str(output)))
        rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        return [row["loss/primary"] for row in rows if row["kind"] == "train"], rows

    without, rows = weights([0.0])
    integrated, _ = weights(0.9)
    assert without[-1] != integrated[-1]
    assert all(row["weight/mask_tuning"] == 0 for row in rows if row["kind"] == "train")
    assert all(row["loss/mask_tuning"] > 0 for row in rows if row["kind"] == "train")


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
    lines = (tmp_path / "run" / "predictions" / "contrast.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
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


def test_a_set_with_other_labels_ends_the_run_before_anything_is_made(config, contrast, tmp_path):
    with pytest.raises(DataError) as caught:
        train(config(ood=[str(contrast)]))
    message = str(caught.value)
    assert "has the labels background, other, the model knows background, method, result" in message
    assert "\n" not in message
    assert not (tmp_path / "run").exists()
