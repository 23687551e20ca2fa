"""Meta-learned weights: the meta-gradient against autograd through a step written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from auxlearn.core.settings import ValidationSource
from auxlearn.weighting.meta import Meta
from auxlearn.weighting.meta_options import MetaOptions
from tests.helpers import slopes
from tests.weighting.fakes import (
    NAMES,
    Network,
    NetworkStep,
    adamw,
    meta_options,
    sgd,
    stepped_by_hand,
)


def unrolled(network, kind, max_grad_norm, logits, warm_up, mix="gradients"):
    """Validation loss after a step in which the logits take part, all of it on one tape.

    The steps before it have equal weights. Written out in torch; no optimizer of any library.
    With ``mix="scaled"`` each loss is multiplied by a constant: the ratio of the moving averages
    of gradient norms over the first two parameters, which all losses share.
    """
    params = [p.clone().requires_grad_() for p in network.start]
    moments = [[torch.zeros_like(p), torch.zeros_like(p)] for p in params]
    averages = torch.zeros(3, dtype=torch.float64)
    for step in range(warm_up + 1):
        last = step == warm_up
        weights = (logits if last else torch.zeros_like(logits)).softmax(0)
        losses = network.losses(params, step)
        if mix == "scaled":
            for index, loss in enumerate(losses):
                shared = torch.autograd.grad(loss, params[:2], retain_graph=True)
                norm = sum(float((g**2).sum()) for g in shared) ** 0.5
                averages[index] = 0.9 * averages[index] + 0.1 * norm
            weights = weights * (averages[0] / averages)
        total = sum(w * loss for w, loss in zip(weights, losses, strict=True))
        grads = torch.autograd.grad(total, params, create_graph=last)
        new = stepped_by_hand(kind, params, grads, moments, step, max_grad_norm)
        params = new if last else [p.detach().requires_grad_() for p in new]
    return network.validation_loss(params)


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.05])
@pytest.mark.parametrize("warm_up", [0, 6])
@pytest.mark.parametrize("kind", [sgd, adamw])
@pytest.mark.parametrize("mix", ["gradients", "scaled"])
def test_the_meta_gradient_is_that_of_an_unrolled_step(mix, kind, warm_up, max_grad_norm):
    network = Network()
    fake = NetworkStep(network, kind, max_grad_norm)
    rule = Meta(meta_options(warmup_steps=warm_up, mix=mix), NAMES)
    for fake.number in range(warm_up):
        rule.step(fake)
    with torch.no_grad():
        rule.logits.copy_(torch.tensor([0.3, -0.5, 0.1]))
    chosen = rule.logits.detach().clone().requires_grad_()
    fake.number = warm_up
    rule.step(fake)

    loss = unrolled(network, kind, max_grad_norm, chosen, warm_up, mix)
    (expected,) = torch.autograd.grad(loss, chosen)
    assert expected.abs().min() > 1e-8  # on an empty Adam state, whose step is nearly a sign
    torch.testing.assert_close(rule.logits.grad, expected, rtol=1e-8, atol=0)
    assert float(fake.losses["validation"]) == pytest.approx(float(loss.detach()), rel=1e-12)

    numeric = slopes(
        lambda moved: unrolled(network, kind, max_grad_norm, moved, warm_up, mix).detach(), chosen
    )
    torch.testing.assert_close(rule.logits.grad, numeric, rtol=1e-5, atol=1e-10)


def test_the_update_is_that_of_the_weighted_losses():
    one, other = (NetworkStep(Network(), adamw, 0.5) for _ in range(2))
    rule = Meta(meta_options(), NAMES)
    for one.number in range(6):
        weights, other.number = rule.weights, one.number
        rule.step(one)
        other.backward(weights)
        other.optimizer_step()
        for p, q in zip(one.parameters, other.parameters, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-13)
    assert rule.weights.std() > 0.01


def test_scaled_gradients_have_the_norm_of_the_primary_one():
    fake = NetworkStep(Network(), sgd, 0.0)
    rule = Meta(meta_options(mix="scaled", warmup_steps=9), NAMES)
    gradients = fake.gradients()
    norms = [torch.stack([g.square().sum() for g in one[:2]]).sum().sqrt() for one in gradients]
    expected = {
        f"scale/{name}": float(norms[0] / norm) for name, norm in zip(NAMES, norms, strict=True)
    }
    rule.step(fake)
    assert rule.metrics() == pytest.approx(expected, rel=1e-12)
    assert max(expected.values()) / min(expected.values()) > 2  # or the test would show nothing


def test_weights_sum_to_one_and_the_helpful_objective_gains():
    class OneHelps(NetworkStep):
        """The first auxiliary loss is the validation loss itself, the second its opposite."""

        def gradients(self):
            primary, *_ = super().gradients()
            helpful = self.validation_gradient()
            return [primary, helpful, [None if g is None else -g for g in helpful]]

    fake = OneHelps(Network(), sgd, 0.0)
    rule = Meta(meta_options(), NAMES)
    assert rule.weights.tolist() == pytest.approx([1 / 3] * 3, abs=1e-15)
    for fake.number in range(10):
        rule.step(fake)
        assert float(rule.weights.sum()) == pytest.approx(1, abs=1e-14)
    assert rule.weights[1] > 1 / 3 > rule.weights[2]
    record = rule.metrics()
    assert record["cosine/first"] == pytest.approx(-record["cosine/second"], abs=1e-12)
    assert record["norm/first"] == pytest.approx(record["norm/second"], rel=1e-12)


def test_a_single_objective_keeps_its_weight():
    class Alone(NetworkStep):
        def backward(self, weights):
            (float(weights[0]) * self.loss(0)).backward()

        def validation_gradient(self, batches=1):
            raise AssertionError("nothing to learn")

    rule = Meta(meta_options(initial=None), NAMES[:1])
    rule.step(Alone(Network(), sgd, 0.0))
    assert rule.weights.tolist() == [1.0]


@pytest.mark.parametrize(
    ("split", "source"),
    [
        ("dev", ValidationSource()),
        ("train:0.1", ValidationSource(share=0.1)),
        ("train:.25", ValidationSource(share=0.25)),
        ("some/rows.tsv", ValidationSource(file=Path("some/rows.tsv"))),
    ],
)
def test_the_validation_source(split, source):
    assert Meta(MetaOptions(horizon="steps", split=split), NAMES).validation_source == source
    assert source.is_dev == (split == "dev")


@pytest.mark.parametrize(
    "split", ["test", "train", "train:1.5", "train:10", "train:0.", "train:0.0"]
)
def test_other_splits_are_refused(split):
    with pytest.raises(ValidationError):
        MetaOptions(split=split)
