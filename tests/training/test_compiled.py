"""Training through torch.compile: reproducible results, and the same kind of model."""

from contextlib import nullcontext
from functools import partialmethod

import pytest
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

from auxlearn import train
from auxlearn.core.errors import ConfigError, EncoderError
from auxlearn.encoders.device import check_compiler
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.trainable import compile_body
from auxlearn.training.loop import TrainingLoop
from tests import helpers
from tests.helpers import LABELS, LINES, tokenized

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the compiler are not ours to fix

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def compiler():
    """Skip where nothing can be compiled."""
    try:
        check_compiler(CPU)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def config(config, one_layer, tmp_path):
    short = config

    def make(name, **settings):
        rows = helpers.rows("", "again")
        data = helpers.write_splits(
            tmp_path / "data", train=rows[:20], dev=rows[20:28], test=rows[28:36]
        )
        given = {"dataset": str(data), "encoder": str(one_layer), "aux": ["random_mlm"]}
        given |= {"weights": "fixed", "eval_steps": 2, "compile": True}
        return short(**given | {"output": str(tmp_path / name)} | settings)

    return make


@pytest.mark.slow
def test_a_killed_compiled_run_resumes_to_the_results_of_an_uninterrupted_one(
    config, monkeypatch, tmp_path
):
    # The graphs as they are captured, without the C++ code that takes a minute for each run.
    monkeypatch.setattr("auxlearn.training.run.check_compiler", lambda device: None)
    captured = partialmethod(nn.Module.compile, backend="aot_eager")
    monkeypatch.setattr(nn.Module, "compile", captured)
    real = TrainingLoop.run_step

    def step(self):
        assert self.training_step.encoder.compiled
        real(self)

    monkeypatch.setattr(TrainingLoop, "run_step", step)
    whole, made = helpers.resume_to_the_same_files(
        monkeypatch, 3, tmp_path, lambda: train(config("run"))
    )
    assert made == [*range(2, whole.steps)]  # a checkpoint is made after two
    exported = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model")
    plain = load_encoder(config("run").encoder, LABELS).classifier
    assert exported.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_losses_and_gradients_equal_those_of_the_code_as_written(
    backend, request, monkeypatch, one_layer
):
    if backend == "inductor":
        request.getfixturevalue("compiler")
    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend=backend))
    plain, compiled = (
        helpers.without_dropout(load_encoder(str(one_layer), LABELS)).train() for _ in range(2)
    )
    names = list(compiled.state_dict())
    compile_body(compiled, nullcontext)
    assert list(compiled.state_dict()) == names
    assert compiled.training
    # Code for the first batch serves all, so that a resumed run does not get code of its own.
    with torch._dynamo.config.patch(error_on_recompile=True):
        for count in (6, 3):
            for lines in (LINES[:count], LINES[:1] * count):  # with and without padding
                batch = helpers.collated(tokenized(plain, lines))
                labels = torch.arange(count) % 3
                found = []
                for encoder in (plain, compiled):
                    loss = torch.nn.functional.cross_entropy(encoder.classify(batch), labels)
                    gradients = torch.autograd.grad(loss, encoder.body_parameters()[:6])
                    found.append([loss, *gradients])
                for one, other in zip(*found, strict=True):
                    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_nothing_is_compiled_in_evaluation(one_layer):
    encoder = load_encoder(str(one_layer), LABELS)
    batch = helpers.collated(tokenized(encoder, LINES[:3]))
    with torch.no_grad():
        expected = encoder.classify(batch)
    encoder.body.compile(dynamic=True, backend=_refuse)
    with torch.no_grad(), encoder.evaluating():
        assert torch.equal(encoder.classify(batch), expected)


def _refuse(graph, inputs):
    raise AssertionError("something was compiled")


def test_a_compiled_encoder_has_no_second_derivative(one_layer):
    encoder = load_encoder(str(one_layer), LABELS)
    encoder.body.compile()
    refused = pytest.raises(EncoderError, match="no second derivative")
    with refused, encoder.twice_differentiable():
        pass


def test_no_compiler_is_one_line(config, monkeypatch, tmp_path):
    def broken(*arguments, **options):
        raise RuntimeError("no g++ found\nand much more")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(ConfigError, match=r"torch.compile does not work .*no g\+\+ found.*leave"):
        train(config("never"))
    assert not (tmp_path / "never").exists()
