"""Norms, cosines and conflicts of gradients, and the meta-gradient: against autograd alone."""

import math

import pytest
import torch
from torch.func import functional_call

from auxlearn.core.validation import Settings
from auxlearn.data.batches import UniformStream, collate
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.optimizer import LinearSchedule
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.base import Objective
from auxlearn.tasks.random_mlm import RandomMLM
from auxlearn.training.gradient_log import GradientLog, compare_gradients, keeping_state
from auxlearn.training.sums import add_gradient
from auxlearn.training.validation import ValidationObjective
from auxlearn.weighting.meta import Meta
from auxlearn.weighting.meta_options import MetaOptions
from tests.helpers import (
    LABELS,
    LINES,
    context,
    tokenized,
    without_dropout,
)
from tests.training.harness import Harness, MaskedWords

PAIR = "primary/random_mlm"


@pytest.fixture
def harness(encoder_folder, tmp_path):
    def make(log=None, parts=1):
        encoder = load_encoder(str(encoder_folder("bert")), LABELS)
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


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
@pytest.mark.parametrize("max_grad_norm", [0.0, 0.5])
def test_the_meta_gradient_of_a_real_encoder(encoder_folder, kind, max_grad_norm):
    """Three ordinary steps, then one that is differentiated as a whole, through the encoder."""
    warm_up = 3
    encoder = without_dropout(load_encoder(str(encoder_folder("bert")), LABELS)).double()
    encoder.body.set_attn_implementation("eager")  # the others have no second derivative
    tasks = [("every3", MaskedWords(3)), ("every5", MaskedWords(5))]
    harness = Harness(encoder, tasks, max_grad_norm=max_grad_norm)
    training_step = harness.training_step
    if kind == "adamw":
        training_step.optimizer = torch.optim.AdamW(encoder.parameters(), lr=0.01, weight_decay=0.1)
    else:
        training_step.optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01, momentum=0.9)
    training_step.schedule = LinearSchedule(training_step.optimizer, 10, 0.2)
    options = MetaOptions(
        horizon="steps",
        warmup_steps=warm_up,
        batches=1,
        mix="gradients",
        margin=0,
        initial=(1, 1, 1),
        floor=0,
    )
    rule = Meta(options, training_step.names)
    with torch.no_grad():
        rule.logits.copy_(torch.tensor([0.2, -0.4, 0.5]))
    for step in range(warm_up):
        training_step.begin(step)
        rule.step(training_step)

    # The state before the step.
    names = [name for name, p in encoder.named_parameters() if p.requires_grad]
    start = {n: p.detach().clone().requires_grad_() for n, p in encoder.named_parameters()}
    state = {
        name: {k: torch.as_tensor(v).clone() for k, v in training_step.optimizer.state[p].items()}
        for name, p in encoder.named_parameters()
    }
    logits = rule.logits.detach().clone().requires_grad_()
    primary = training_step.primary.batch(warm_up)
    own = [auxiliary.stream.batch(warm_up) for auxiliary in training_step.auxiliaries]
    held_out = collate(
        harness.texts, UniformStream(harness.texts, 6, 0, "validation").indices(warm_up)
    )
    training_step.begin(warm_up)
    rate = training_step.optimizer.param_groups[0]["lr"]
    rule.step(training_step)

    # The names that each parameter is substituted under: tied ones under all of theirs, but the
    # body, which is one module under two names, under one name only.
    first_name = {id(p): name for name, p in encoder.named_parameters()}
    places = {
        place: first_name[id(p)]
        for place, p in encoder.named_parameters(remove_duplicate=False)
        if not place.startswith("language_model.bert.")
    }

    def call(parameters, *arguments):
        substituted = {place: parameters[name] for place, name in places.items()}
        return functional_call(encoder, substituted, arguments, tie_weights=False)

    cross_entropy = torch.nn.functional.cross_entropy
    losses = [cross_entropy(call(start, SharedEncoder.classify, primary), primary.labels)]
    for (_, task), batch in zip(tasks, own, strict=True):
        changed, positions, targets = task.inputs(encoder, batch)
        logits_of_masked = call(start, SharedEncoder.predict_tokens, changed, positions)
        losses.append(cross_entropy(logits_of_masked, targets))
    total = (logits.softmax(0) * torch.stack(losses)).sum()
    grads = torch.autograd.grad(
        total, [start[name] for name in names], create_graph=True, allow_unused=True
    )
    norm = torch.stack([(g**2).sum() for g in grads if g is not None]).sum().sqrt()
    if max_grad_norm:
        assert norm > max_grad_norm
        grads = [None if g is None else g * max_grad_norm / (norm + 1e-6) for g in grads]
    updated = {}
    for name, g in zip(names, grads, strict=True):
        p, known = start[name], state[name]
        if g is None:
            updated[name] = p
        elif kind == "sgd":
            updated[name] = p - rate * (0.9 * known["momentum_buffer"] + g)
        else:
            count = float(known["step"]) + 1
            mean = (0.9 * known["exp_avg"] + 0.1 * g) / (1 - 0.9**count)
            # Rows of the embedding that no batch held have no gradient and a moment of zero, where
            # the root has no derivative; a number far below every other stands in for the zero.
            square = (0.999 * known["exp_avg_sq"] + 0.001 * g**2) / (1 - 0.999**count) + 1e-60
            updated[name] = p - rate * 0.1 * p - rate * mean / (square.sqrt() + 1e-8)
    validation = cross_entropy(call(updated, SharedEncoder.classify, held_out), held_out.labels)
    (expected,) = torch.autograd.grad(validation, logits)

    for name, p in encoder.named_parameters():
        torch.testing.assert_close(p, updated[name].detach(), rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(
        training_step.losses["validation"], validation.detach(), rtol=1e-9, atol=0
    )
    assert expected.abs().min() > 1e-7
    torch.testing.assert_close(rule.logits.grad, expected, rtol=1e-8, atol=0)
