"""Meta-learned weights: the meta-gradient against autograd through a step written by hand."""

from pathlib import Path

import pytest
import torch

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
    unrolled_by_hand,
)


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.05])
@pytest.mark.parametrize("warm_up", [0, 6])
@pytest.mark.parametrize("mix", ["gradients", "scaled"])
def test_the_meta_gradient_is_that_of_an_unrolled_step(mix, warm_up, max_grad_norm):
    network = Network()
    fake = NetworkStep(network, adamw, max_grad_norm)
    rule = Meta(meta_options(warmup_steps=warm_up, mix=mix), NAMES)
    for fake.number in range(warm_up):
        rule.step(fake)
    with torch.no_grad():
        rule.logits.copy_(torch.tensor([0.3, -0.5, 0.1]))
    chosen = rule.logits.detach().clone().requires_grad_()
    fake.number = warm_up
    rule.step(fake)

    def by_hand(logits):
        weights = logits.softmax(0)
        return unrolled_by_hand(network, adamw, max_grad_norm, weights, warm_up, mix=mix)

    loss = by_hand(chosen)
    (expected,) = torch.autograd.grad(loss, chosen)
    assert expected.abs().min() > 1e-8  # on an empty Adam state, whose step is nearly a sign
    torch.testing.assert_close(rule.logits.grad, expected, rtol=1e-8, atol=0)
    assert float(fake.losses["validation"]) == pytest.approx(float(loss.detach()), rel=1e-12)

    numeric = slopes(lambda moved: by_hand(moved).detach(), chosen)
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
    fake = NetworkStep(Network(), adamw, 0.0)
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

    fake = OneHelps(Network(), adamw, 0.0)
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
    rule.step(Alone(Network(), adamw, 0.0))
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
