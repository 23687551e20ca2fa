"""Norms, cosines and conflicts of gradients, and the meta-gradient: against autograd alone."""

import math

import pytest
import torch

from auxlearn.core.validation import Settings
from auxlearn.objectives.base import Objective
from auxlearn.tasks.random_mlm import RandomMLM
from auxlearn.training.gradient_log import GradientLog, compare_gradients, keeping_state
from auxlearn.training.sums import add_gradient
from auxlearn.training.validation import ValidationObjective
from tests.helpers import (
    LINES,
    context,
    tokenized,
)
from tests.training.harness import Harness

PAIR = "primary/random_mlm"


@pytest.fixture
def harness(loaded, tmp_path):
    def make(log=None, parts=1):
        encoder = loaded("bert")
        task = RandomMLM(RandomMLM.Options())
        task.prepare(context(encoder, tokenized(encoder, LINES), tmp_path))
        made = Harness(encoder, [("random_mlm", task)], gradient_accumulation_steps=parts)
        made.training_step.gradient_log = log
        return made

    return make


def flat(loss, parameters):
    """The gradient of a loss as one vector; the graph is kept."""
    found = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
    return torch.cat([gradient.flatten().double() for gradient in found])


def test_two_gradients_by_hand():
    found = compare_gradients(
        ["a", "b", "validation"],
        [
            [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])],
            [torch.tensor([-1.0, 2.0]), None],
            [None, torch.zeros(1, 1)],
        ],
    )
    assert {key: float(value) for key, value in found.items()} == pytest.approx(
        {
            "gradient_norm/a": 5.0,
            "gradient_norm/b": math.sqrt(5),
            "gradient_norm/validation": 0.0,
            "gradient_cosine/a/b": -3 / (5 * math.sqrt(5)),
            "conflict/a/b": 1.0,
            "gradient_cosine/a/validation": 0.0,
            "gradient_cosine/b/validation": 0.0,
        },
        rel=1e-12,
    )


def test_what_is_recorded_is_what_autograd_gives(harness):
    made = harness()
    step, encoder = made.training_step, made.encoder
    step.begin(2)
    shared = list(encoder.body_parameters())
    losses = step.functional_losses(encoder, 0)
    objective = ValidationObjective(made.texts, 6, "accuracy", 0)
    with encoder.evaluating():
        validation = objective.loss(encoder, 2)
    vectors = [flat(loss, shared) for loss in (*losses, validation)]
    step.gradient_log = GradientLog(1, objective)
    step.begin(2)
    step.backward((0.5, 0.5))
    found = {key: float(value) for key, value in step.gradient_metrics.items()}
    names = ("primary", "random_mlm", "validation")
    for name, vector in zip(names, vectors, strict=True):
        assert found[f"gradient_norm/{name}"] == pytest.approx(float(vector.norm()), rel=1e-5)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        expected = torch.nn.functional.cosine_similarity(vectors[i], vectors[j], dim=0)
        cosine = found[f"gradient_cosine/{names[i]}/{names[j]}"]
        assert cosine == pytest.approx(float(expected), abs=1e-6)
    assert found[f"conflict/{PAIR}"] == float(found[f"gradient_cosine/{PAIR}"] < 0)
    assert "conflict/primary/validation" not in found


def test_micro_batches_add_up(harness):
    whole = harness(GradientLog(1), parts=2).training_step
    parts = harness(GradientLog(1), parts=2).training_step
    whole.begin(0)
    totals = whole.gradients()
    parts.begin(0)
    for gradients in parts.micro_gradients():
        for gradient in gradients:
            for grad in gradient:
                if grad is not None:
                    grad.zero_()  # a rule may do what it likes with them
    assert parts.gradient_metrics.keys() == whole.gradient_metrics.keys() != set()
    for key, value in whole.gradient_metrics.items():
        assert torch.equal(parts.gradient_metrics[key], value), key
    assert any(grad is not None for grad in totals[0])


def test_without_being_asked_only_gradients_at_hand_are_measured(harness):
    step = harness(GradientLog()).training_step
    for number, due in ((0, False), (8, False), (9, True), (19, True)):
        step.begin(number)
        step.gradients()
        assert bool(step.gradient_metrics) == due
        step.begin(number)
        step.backward((0.5, 0.5))
        assert not step.gradient_metrics


class Counting(Objective):
    """An objective that learns by being computed."""

    def __init__(self):
        super().__init__(Settings())
        self.calls = torch.zeros(1)

    def prepare(self, context):
        """Do nothing."""

    def loss(self, encoder, batch, generator):
        """Not called."""

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"].clone()


def test_what_an_objective_learns_while_measuring_is_forgotten():
    one = Counting()
    with keeping_state([one]):
        one.calls += 1
    assert one.calls.item() == 0


def test_parameters_that_share_a_gradient_tensor_are_added_up_apart():
    x, a, b = (torch.ones(2, requires_grad=True) for _ in range(3))
    total = [None, None]
    for _ in range(3):
        found = torch.autograd.grad((2 * x + a + b).sum(), [a, b])
        assert found[0].data_ptr() == found[1].data_ptr()
        add_gradient(total, found)
    assert [one.tolist() for one in total] == [[3.0, 3.0]] * 2
