"""The losses of a step's batches once more, at the parameters of that moment."""

from __future__ import annotations

import pytest
import torch

from auxlearn.encoders.load import load_encoder
from auxlearn.tasks.mask_tuning import MaskTuning
from auxlearn.tasks.random_mlm import RandomMLM
from tests.helpers import LABELS, LINES, context, tokenized
from tests.training.harness import Harness


@pytest.fixture
def training_step(encoder_folder, tmp_path):
    encoder = load_encoder(str(encoder_folder("bert")), LABELS)
    task = RandomMLM(RandomMLM.Options())
    task.prepare(context(encoder, tokenized(encoder, LINES), tmp_path))
    return Harness(encoder, [("random_mlm", task)], gradient_accumulation_steps=2).training_step


def test_before_the_update_they_are_those_of_the_step(training_step):
    """Dropout masks, masked positions and micro-batches are the same."""
    training_step.begin(3)
    training_step.gradients()
    recorded = dict(training_step.losses)
    found = training_step.current_losses()
    assert found.tolist() == [float(recorded[name]) for name in training_step.names]
    assert not found.requires_grad


def test_after_the_update_they_are_those_of_the_new_parameters(training_step):
    training_step.begin(0)
    training_step.backward((0.5, 0.5))
    recorded = dict(training_step.losses)
    training_step.optimizer_step()
    found = training_step.current_losses()
    again = training_step.current_losses()
    assert torch.equal(found, again)
    assert all(
        float(recorded[n]) != float(v) for n, v in zip(training_step.names, found, strict=True)
    )


def test_nothing_is_recorded(training_step):
    training_step.begin(0)
    training_step.gradients()
    recorded, state = dict(training_step.losses), torch.random.get_rng_state()
    training_step.current_losses()
    assert training_step.losses == recorded
    assert all(parameter.grad is None for parameter in training_step.parameters)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_no_perturbed_text_is_logged_twice(encoder_folder, tmp_path):
    class Log:
        calls = 0

        def add(self, *given):
            self.calls += 1

    encoder = load_encoder(str(encoder_folder("bert")), LABELS)
    task = MaskTuning(MaskTuning.Options())
    task.prepare(context(encoder, tokenized(encoder, LINES), tmp_path))
    training_step = Harness(encoder, [("mask_tuning", task)]).training_step
    training_step.perturbation_log = log = Log()
    training_step.begin(0)
    training_step.gradients()
    assert log.calls == 1
    training_step.current_losses()
    assert log.calls == 1
    assert training_step.perturbation_log is log
