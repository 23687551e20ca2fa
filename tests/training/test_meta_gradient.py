"""The meta-gradient of an encoder, against the derivative of a step written out in float64."""

import pytest
import torch
from torch.func import functional_call

from auxlearn.data.batches import UniformStream, collate
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.training.optimizer import LinearSchedule
from auxlearn.weighting.meta import Meta
from auxlearn.weighting.meta_options import MetaOptions
from tests.helpers import LABELS, without_dropout
from tests.training.harness import Harness, MaskedWords


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
