"""The losses of a step's batches once more, at the parameters of that moment."""

from __future__ import annotations

import pytest
import torch

from auxlearn.encoders.load import load_encoder
from auxlearn.tasks.mask_tuning import MaskTuning
from auxlearn.tasks.random_mlm import RandomMLM
from tests.helpers import LABELS, LINES, context, tokenized
from tests.training.test_step import Harness


@pytest.fixture
def objectives(encoder_folder, tmp_path):
    encoder = load_encoder(str(encoder_folder("bert")), LABELS)
    task = RandomMLM(RandomMLM.Options())
    task.prepare(context(encoder, tokenized(encoder, LINES), tmp_path))
    return Harness(encoder, [("random_mlm", task)], gradient_accumulation_steps=2).objectives


def test_before_the_update_they_are_those_of_the_step(objectives):
    """Dropout masks, masked positions and micro-batches are the same."""
    objectives.begin(3)
    objectives.gradients()
    recorded = dict(objectives.losses)
    found = objectives.current_losses()
    assert found.tolist() == [float(recorded[name]) for name in objectives.names]
    assert not found.requires_grad


def test_after_the_update_they_are_those_of_the_new_parameters(objectives):
    objectives.begin(0)
    objectives.backward((0.5, 0.5))
    recorded = dict(objectives.losses)
    objectives.update()
    found = objectives.current_losses()
    again = objectives.current_losses()
    assert torch.equal(found, again)
    assert all(float(recorded[n]) != float(v) for n, v in zip(objectives.names, found, strict=True))


def test_nothing_is_recorded(objectives):
    objectives.begin(0)
    objectives.gradients()
    recorded, state = dict(objectives.losses), torch.random.get_rng_state()
    objectives.current_losses()
    assert objectives.losses == recorded
    assert all(parameter.grad is None for parameter in objectives.parameters)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_no_perturbed_text_is_logged_twice(encoder_folder, tmp_path):
    class Log:
        notes = 0

        def note(self, *given):
            self.notes += 1

    encoder = load_encoder(str(encoder_folder("bert")), LABELS)
    task = MaskTuning(MaskTuning.Options())
    task.prepare(context(encoder, tokenized(encoder, LINES), tmp_path))
    objectives = Harness(encoder, [("mask_tuning", task)]).objectives
    objectives.log = log = Log()
    objectives.begin(0)
    objectives.gradients()
    assert log.notes == 1
    objectives.current_losses()
    assert log.notes == 1
    assert objectives.log is log
