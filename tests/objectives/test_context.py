"""What objectives are prepared with: heads, further texts and data sets, values per example."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from auxlearn import RunConfig, train
from auxlearn.core.errors import ConfigError, DataError, RunError
from auxlearn.data.batches import collate
from auxlearn.data.tokens import concatenate
from auxlearn.encoders.load import load_classifier
from auxlearn.plugins import AuxiliaryTask, Settings, register_task
from auxlearn.results.plots import RunPlots
from auxlearn.training.loop import TrainingLoop
from auxlearn.weighting.unrolling import unrolled_gradient
from tests import helpers
from tests.training.harness import Harness


class LengthOptions(Settings):
    further: str | None = None


@register_task("longer_texts")
class LongOrShort(AuxiliaryTask):
    """Tell long texts from short ones, with a head of its own."""

    Options = LengthOptions

    def prepare(self, context):
        super().prepare(context)
        if self.options.further:
            further = context.load_dataset(self.options.further)
            self.texts = context.tokenize_split(further.splits["train"])
        self.median = self.texts.lengths.float().median()
        self.head = context.add_head("length", lambda: nn.Linear(context.encoder.hidden_size, 2))

    def loss(self, encoder, batch, generator):
        return nn.functional.cross_entropy(*self.classified(encoder, batch))

    def classified(self, encoder, batch):
        logits = encoder.apply_head(self.head, encoder.features(batch))
        return logits, (batch.attention_mask.sum(1) > self.median).long().to(logits.device)

    def evaluate(self, encoder):
        batch = collate(self.texts, torch.arange(min(4, len(self.texts))))
        logits, long = self.classified(encoder, batch)
        return {"accuracy": float((logits.argmax(1) == long).float().mean())}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    rows = helpers.rows()
    return helpers.write_splits(
        tmp_path_factory.mktemp("data"), train=rows[:12], dev=rows[12:18], test=rows[18:]
    )


@pytest.fixture
def config(dataset, encoder_folder, tmp_path):
    def make(**settings) -> RunConfig:
        given = {"dataset": str(dataset), "encoder": str(encoder_folder("bert")), "device": "cpu"}
        given |= {"aux": ["longer_texts"], "epochs": 2, "batch_size": 4, "learning_rate": 1e-3}
        given |= {"head_learning_rate": 1e-2, "output": str(tmp_path / "run")}
        return RunConfig.model_validate(given | settings)

    return make


@pytest.fixture
def new_encoder(loaded):
    return lambda: loaded("bert")


@pytest.fixture
def prepared(new_encoder, tmp_path):
    encoder = new_encoder()
    texts = helpers.tokenized(encoder, helpers.LINES[:6], [0, 1, 2, 0, 1, 2])
    context = helpers.context(encoder, texts, tmp_path, seed=3)
    context.name, context.max_length = "mine", 128
    return context


def test_a_head_is_seeded_by_its_names_and_leaves_the_encoder_as_it_was(prepared):
    before = helpers.snapshot(prepared.encoder)
    state = torch.get_rng_state()
    key = prepared.add_head("one", lambda: nn.Linear(4, 2))
    other = prepared.add_head("two", lambda: nn.Linear(4, 2))
    heads = prepared.encoder.heads
    assert (key, other) == ("mine/one", "mine/two")
    assert not torch.equal(heads[key].weight, heads[other].weight)
    assert torch.equal(torch.get_rng_state(), state)
    after = helpers.snapshot(prepared.encoder)
    assert all(torch.equal(after[name], values) for name, values in before.items())
    assert set(after) - set(before) == {
        f"heads.{one}.{kind}" for one in (key, other) for kind in ("weight", "bias")
    }
    first = heads[key].weight.detach().clone()
    del heads[key]
    prepared.add_head("one", lambda: nn.Linear(4, 2))
    assert torch.equal(heads[key].weight, first)


@pytest.mark.parametrize("name", ["", "Two", "a/b", "../up", "a.b", "x" * 65])
def test_names_of_heads_are_plain(prepared, name):
    with pytest.raises(ConfigError, match=r"head name .* of 'mine' is not valid"):
        prepared.add_head(name, lambda: nn.Linear(4, 2))


def test_a_head_of_no_module_and_a_second_one_of_the_same_name_are_refused(prepared):
    with pytest.raises(ConfigError, match=r"returned Tensor: return a torch\.nn\.Module"):
        prepared.add_head("one", lambda: torch.zeros(2))
    prepared.add_head("one", lambda: nn.Linear(4, 2))
    with pytest.raises(ConfigError, match="'mine' adds two heads named 'one'"):
        prepared.add_head("one", lambda: nn.Linear(4, 2))


def test_further_texts_are_tokenised_like_the_training_texts(prepared):
    texts = prepared.tokenize(helpers.LINES[:6], labels=[5, 4, 3, 2, 1, 0])
    assert torch.equal(texts.input_ids, prepared.texts.input_ids)
    assert texts.labels.tolist() == [5, 4, 3, 2, 1, 0]
    pairs = prepared.tokenize(helpers.LINES[:2], pairs=helpers.LINES[2:4])
    assert pairs.token_type_ids.max() == 1
    assert pairs.lengths.max() <= 128
    with pytest.raises(DataError, match="2 texts but 1 values in 'labels'"):
        prepared.tokenize(["a", "b"], labels=[0])
    for texts, fault in {
        (): "there is no text to",
        ("\ud800",): "half of a surrogate pair",
    }.items():
        with pytest.raises(DataError, match=fault):
            prepared.tokenize(texts)
    for given in (("one text",), (["a", "b"], "ab")):  # whose letters would be the texts
        with pytest.raises(DataError, match="give a list of texts, not one text alone"):
            prepared.tokenize(*given)


def test_side_values_are_read_by_batch_also_after_perturbed_copies(prepared):
    side = prepared.side("score", [[0.0, 1.0]] * 5 + [[2.0, 3.0]])
    texts = concatenate(prepared.texts, prepared.texts)
    batch = collate(texts, torch.tensor([5, 0, 11]))
    assert side.of(batch).tolist() == [[2.0, 3.0], [0.0, 1.0], [2.0, 3.0]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0], r"has shape \(1,\): one entry for each of the 6 training examples"),
        (1.0, r"has shape \(\)"),
        ([1.0, 2.0, 3.0, 4.0, 5.0, float("nan")], "NaN or infinite"),
    ],
)
def test_side_values_that_do_not_fit_are_refused(prepared, values, message):
    with pytest.raises(ConfigError, match=f"'score' of 'mine' .*{message}"):
        prepared.side("score", values)


def test_generators_belong_to_objective_and_purpose(prepared):
    def drawn(*purpose):
        return torch.rand(3, generator=prepared.generator(*purpose)).tolist()

    assert drawn("a") == drawn("a")
    assert drawn("a") != drawn("b")


def test_a_head_is_trained_kept_over_a_kill_and_saved_apart(config, monkeypatch, tmp_path):
    aux, encoders = ["longer_texts", "longer_texts"], []
    real = TrainingLoop.__init__

    def keep(loop, *arguments, **named):
        real(loop, *arguments, **named)
        encoders.append(loop.training_step.encoder)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "__init__", keep)
        resumed, _ = helpers.resume_to_the_same_files(
            patch, 4, tmp_path, lambda: train(config(aux=aux, eval_steps=2))
        )
    names = [f"heads/longer_texts{number}/length.safetensors" for number in ("", "_2")]
    helpers.assert_same_files(tmp_path / "run", tmp_path / "whole", *names)
    one, two = (load_file(tmp_path / "run" / name) for name in names)
    assert not torch.equal(one["weight"], two["weight"])
    assert set(resumed.auxiliary) == {"longer_texts", "longer_texts_2"}
    rows = helpers.read_lines(tmp_path / "run" / "metrics.jsonl")
    recorded = {row["step"]: row for row in rows if row["kind"] == "eval"}
    best = recorded[resumed.best.step]["aux/longer_texts/accuracy"]
    assert resumed.auxiliary["longer_texts"]["accuracy"] == best
    assert "auxiliary" in RunPlots(rows, resumed).figures()

    # A head of torch with the saved tensors gives what the encoder's own gives.
    encoder = encoders[-1]
    features = torch.randn(5, encoder.hidden_size)
    head = nn.Linear(encoder.hidden_size, 2)
    head.load_state_dict(one)
    assert torch.equal(head(features), encoder.apply_head("longer_texts/length", features))

    # The exported classifier is a plain one, and knows nothing of the heads.
    exported = load_file(tmp_path / "run" / "model" / "model.safetensors")
    model, _ = load_classifier(tmp_path / "run" / "model")
    assert set(exported) <= set(model.state_dict())


def test_heads_are_optimised_at_the_head_rate_and_differentiated_through(new_encoder, tmp_path):
    encoder = helpers.without_dropout(new_encoder())
    task = LongOrShort(LengthOptions())
    texts = helpers.tokenized(encoder, helpers.LINES, [n % 3 for n in range(len(helpers.LINES))])
    task.prepare(helpers.context(encoder, texts, tmp_path))
    harness = Harness(encoder, [("longer_texts", task)])
    step = harness.training_step
    assert step.placements.count("other_head") >= 2
    assert {id(p) for p in encoder.heads.parameters()} <= {id(p) for p in encoder.head_parameters()}
    step.begin(0)
    expected = step.gradients()[1]
    step.max_grad_norm = 0.0
    _, first = unrolled_gradient(step, torch.tensor([0.25, 0.75]), 2)
    heads = {id(parameter) for parameter in encoder.heads.parameters()}
    places = [n for n, parameter in enumerate(step.parameters) if id(parameter) in heads]
    assert len(places) == 2
    for place in places:
        assert expected[place].abs().max() > 0
        torch.testing.assert_close(first[place], 0.75 * expected[place], rtol=1e-4, atol=1e-7)


def test_a_data_set_that_an_objective_reads_is_part_of_the_run(config, dataset, tmp_path):
    further = shutil.copytree(dataset, tmp_path / "further")
    settings = {"aux": [{"longer_texts": {"further": str(further)}}], "epochs": 1}
    results = train(config(**settings))
    assert train(config(**settings)) == results
    lines = (further / "train.jsonl").read_text().splitlines()
    (further / "train.jsonl").write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(RunError, match=r"that longer_texts reads \(train\) has changed"):
        train(config(**settings))
