"""Schedules, layer-wise decay, gradient checkpointing and half precision, and runs with them."""

from functools import partial
from typing import get_args

import pytest
import torch
from transformers import SchedulerType
from transformers.optimization import get_scheduler

import auxlearn
from auxlearn.core.errors import ConfigError
from auxlearn.core.run_settings import ScheduleName
from auxlearn.data.batches import collate
from auxlearn.encoders.device import Compute, choose_compute
from auxlearn.encoders.optimizer import Schedule, run_optimizer
from auxlearn.encoders.trainable import checkpoint_layers, layers_of
from tests import helpers
from tests.training.harness import Given, Harness

# ---------------------------------------------------------------------------------------- schedules


def adamw():
    return torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=0.5)


@pytest.mark.parametrize("name", get_args(ScheduleName))
def test_after_the_warm_up_rates_are_those_of_the_scheduler_of_transformers(name):
    optimizer, own = adamw(), adamw()
    warmup = 0 if name == "constant" else 4
    scheduler = get_scheduler(name, optimizer, warmup, 20)
    schedule = Schedule(own, 20, 0.2, name, start=100)
    for step in range(20):
        schedule.apply(100 + step)
        wanted = optimizer.param_groups[0]["lr"] if step >= warmup else 0.5 * (step + 1) / 5
        assert schedule.rate == wanted
        optimizer.step()
        scheduler.step()


def test_schedules_that_need_more_are_refused_in_one_line():
    offered = set(get_args(ScheduleName))
    names = {one.value for one in SchedulerType}
    assert offered < names
    for name in sorted(names - offered):
        with helpers.one_line(ConfigError, "lr_scheduler_type: must be", "'cosine'", name):
            auxlearn.RunConfig(lr_scheduler_type=name)
    low = torch.optim.SGD([torch.zeros(1)], lr=1e-8)
    with helpers.one_line(ConfigError, "polynomial ends with a learning rate of 1e-07"):
        Schedule(low, 20, 0.0, "polynomial")


# -------------------------------------------------------------------------------- layer-wise decay


@pytest.mark.parametrize(
    ("family", "layer"),
    [
        ("bert", "bert.encoder.layer.{}."),
        ("roberta", "roberta.encoder.layer.{}."),
        ("distilbert", "distilbert.transformer.layer.{}."),
        ("electra", "electra.encoder.layer.{}."),
    ],
)
def test_rates_by_layer_are_those_worked_out_by_hand(family, layer, loaded):
    encoder = loaded(family)
    config = auxlearn.RunConfig(learning_rate=0.8, head_learning_rate=2.0, layer_decay=0.5)
    optimizer = run_optimizer(config, encoder)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    decays = {
        id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]
    }
    seen = set()
    for name, parameter in encoder.named_parameters():
        name = name.removeprefix("classifier.").removeprefix("language_model.")
        if ".embeddings." in name:
            expected = 0.1  # 0.8 / 2 ** 3
        elif name.startswith(layer.format(0)):
            expected = 0.2
        elif name.startswith(layer.format(1)):
            expected = 0.4
        elif name.startswith(("classifier", "pre_classifier", "out_proj", "dense", "bert.pooler")):
            expected = 2.0
        else:
            expected = 0.8  # the language-model head, electra's projection of the embeddings
        seen.add(expected)
        assert rates[id(parameter)] == pytest.approx(expected), name
        assert decays[id(parameter)] == (0.01 if parameter.ndim > 1 else 0.0)
    assert seen == {0.1, 0.2, 0.4, 0.8, 2.0}
    assert optimizer.param_groups[0]["lr"] == 0.8, "the rate that is logged"


def test_without_decay_the_groups_are_the_usual_ones(tiny_bert):
    optimizer = run_optimizer(auxlearn.RunConfig(learning_rate=0.8), tiny_bert)
    assert [group["lr"] for group in optimizer.param_groups] == [0.8, 0.8]


# ----------------------------------------------------------------------- gradient checkpointing


#: Architectures that transformers has no gradient checkpointing for.
WITHOUT = {"albert", "mpnet"}


@pytest.mark.parametrize("family", sorted(WITHOUT))
def test_an_architecture_without_checkpointing_is_refused(family, loaded):
    encoder = loaded(family)
    with helpers.one_line(ConfigError, f"transformers has none for {family}: leave it out"):
        checkpoint_layers(encoder)


@pytest.mark.parametrize("family", sorted({*helpers.FAMILIES} - WITHOUT))
def test_gradients_are_the_same_with_checkpointing_dropout_included(family, loaded):
    found, passes = [], []
    for checkpointing in (False, True):
        encoder = loaded(family).train()
        if checkpointing:
            checkpoint_layers(encoder)
        calls = []
        modules = layers_of(encoder.body)[0].modules()  # hooks of a layer itself stay outside
        inner = next(module for module in modules if isinstance(module, torch.nn.Linear))
        inner.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        batch = collate(helpers.tokenized(encoder, helpers.LINES[:4]), torch.arange(4))
        torch.manual_seed(3)
        loss = encoder.classify(batch).square().sum()
        loss = loss + encoder.predict_tokens(batch, batch.maskable).logsumexp(-1).sum()
        parameters = [p for p in encoder.parameters() if p.requires_grad]
        found.append(torch.autograd.grad(loss, parameters, allow_unused=True))
        passes.append(len(calls))
    helpers.assert_close(found[1], found[0], rtol=1e-6, atol=1e-6)
    assert passes[1] == 2 * passes[0] > 0, "each layer is computed again"


# ------------------------------------------------------------------------------- half precision


def scaler():
    return torch.amp.GradScaler("cpu", init_scale=2.0**10)


@pytest.mark.parametrize("path", ["backward", "gradients"])
def test_scaled_losses_make_the_same_steps(path, loaded_trained):
    made = []
    for scaled in (False, True):
        encoder = loaded_trained("bert")
        harness = Harness(helpers.without_dropout(encoder))
        step = harness.training_step
        if scaled:
            step.scaler = scaler()
        for number in range(3):
            step.begin(number)
            if path == "backward":
                step.backward((1.0,))
            else:
                (gradient,) = step.gradients()
                for parameter, one in zip(step.parameters, gradient, strict=True):
                    parameter.grad = one
            step.optimizer_step()
        made.append(helpers.snapshot(encoder))
    for name, value in made[0].items():
        torch.testing.assert_close(made[1][name], value, rtol=1e-6, atol=1e-7)


def test_a_step_that_overflows_is_left_out_and_the_scale_lowered(loaded_trained):
    encoder = loaded_trained("bert")
    factor = {"value": 1e37}
    task = Given(lambda encoder, batch, _: encoder.features(batch).sum() * factor["value"])
    step = Harness(encoder, [("task", task)]).training_step
    step.scaler = scaler()
    before = helpers.snapshot(encoder)
    step.begin(0)
    step.backward((1.0, 1.0))
    step.optimizer_step()
    assert all(
        torch.equal(value, before[name]) for name, value in helpers.snapshot(encoder).items()
    )
    assert step.scaler.get_scale() == 2.0**9
    factor["value"] = 1.0
    step.begin(1)
    step.backward((1.0, 1.0))
    step.optimizer_step()
    after = helpers.snapshot(encoder)
    assert any(not torch.equal(value, before[name]) for name, value in after.items())
    assert all(value.isfinite().all() for value in after.values())


def test_fp16_needs_a_gpu(monkeypatch):
    with helpers.one_line(ConfigError, "precision 'fp16' needs a GPU: use --precision bf16"):
        choose_compute("cpu", "fp16")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with choose_compute("cuda", "fp16").autocast():
        assert torch.get_autocast_dtype("cuda") == torch.float16


# ------------------------------------------------------------------------------------ whole runs


@pytest.fixture
def half_on_cpu(monkeypatch):
    """Let runs compute in half precision on the CPU."""
    autocast = partial(torch.autocast, "cpu", torch.float16, cache_enabled=False)

    def choose(device, precision):
        return Compute(torch.device("cpu"), autocast) if precision == "fp16" else real(device)

    real = choose_compute
    monkeypatch.setattr("auxlearn.training.setup.choose_compute", choose)


OPTIONS = {
    "rates": {"lr_scheduler_type": "cosine", "layer_decay": 0.8},
    "checkpointing": {"gradient_checkpointing": True},
    "fp16": {"precision": "fp16"},
}


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    """Train with these settings, into a folder of their own."""
    source = trained("token_classification")

    def train(folder=None, **changes):
        return auxlearn.train(
            dataset=source.data,
            encoder=source.encoder,
            aux=["random_mlm"],
            weights={"fixed": {"alpha": 0.3, "mix": "gradients"}},
            epochs=2,
            batch_size=4,
            max_length=32,
            eval_steps=2,
            learning_rate=1e-3,
            device="cpu",
            output=folder or tmp_path_factory.mktemp("plain") / "run",
            verbose=False,
            **changes,
        )

    return train


@pytest.fixture(scope="module")
def plain(run):
    return run()


@pytest.mark.parametrize("option", OPTIONS)
def test_a_killed_run_resumes_to_the_same_files(
    option, run, plain, tmp_path, monkeypatch, half_on_cpu
):
    whole, made = helpers.resume_to_the_same_files(
        monkeypatch, 4, tmp_path, lambda: run(tmp_path / "run", **OPTIONS[option])
    )
    assert 0 < len(made) < whole.steps
    if option == "checkpointing":
        same = plain.evaluations["dev"].all.metrics == whole.evaluations["dev"].all.metrics
        assert same
        return
    with pytest.raises(AssertionError):  # the option has an effect
        helpers.assert_same_files(plain.folder, tmp_path / "whole", "model/model.safetensors")
    if option == "rates":
        rows = helpers.read_lines(tmp_path / "whole" / "metrics.jsonl")
        rates = {row["step"]: row["learning_rate"] for row in rows if row["kind"] == "train"}
        optimizer = torch.optim.AdamW([torch.zeros(1)], lr=1e-3)
        schedule = Schedule(optimizer, whole.steps, whole.config["warmup_ratio"], "cosine")
        assert rates == {step: schedule.rates(step - 1)[0] for step in rates}
