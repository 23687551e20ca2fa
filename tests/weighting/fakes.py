"""Training steps with given gradients and losses, for rules that combine them."""

from __future__ import annotations

import torch

NAMES = ("primary", "first", "second")


class FakeStep:
    """Gradients and losses that are given by step; parameters start at zero, SGD of rate 1.

    Args:
        gradients: By step and objective a gradient over :attr:`placements`, ``None`` for a gap.
        losses: By step the losses of the objectives; 1 each by default.
        after: By step the losses after the optimizer step.
    """

    placements = ("encoder", "encoder", "primary_head", "other_head")
    seed = 0
    total_steps = 12
    max_grad_norm = 0.0

    def __init__(self, gradients, losses=None, after=None):
        self.given = gradients
        self.names = NAMES[: len(gradients[0])]
        self.given_losses = losses or [[1.0] * len(self.names)] * len(gradients)
        self.given_after = after
        self.number = 0
        self.parameters = [torch.zeros(2, dtype=torch.float64) for _ in self.placements]
        self.combined, self.forward_passes = [], 0

    @property
    def optimizer(self):
        raise AssertionError("the optimizer is stepped by optimizer_step alone")

    def _losses(self, given):
        return torch.tensor(given[self.number], dtype=torch.float64)

    def gradients(self):
        self.losses = dict(zip(self.names, self._losses(self.given_losses), strict=True))
        return [
            [None if g is None else torch.tensor(g, dtype=torch.float64) for g in gradient]
            for gradient in self.given[self.number]
        ]

    def backward(self, weights):
        values = torch.as_tensor(weights).tolist()
        for number, parameter in enumerate(self.parameters):
            parts = [w * g[number] for w, g in zip(values, self.gradients(), strict=True)]
            parameter.grad = torch.stack(parts).sum(0)

    def current_losses(self):
        self.forward_passes += 1
        return self._losses(self.given_after)

    def optimizer_step(self):
        self.combined.append([None if p.grad is None else p.grad.tolist() for p in self.parameters])
        for parameter in self.parameters:
            parameter.grad = None


def run(rule, fake, steps=None):
    """Make steps; return the combined gradient of each and the weights after each."""
    weights = []
    for step in range(len(fake.given)) if steps is None else steps:
        fake.number = step
        rule.step(fake)
        weights.append(rule.weights.tolist())
    return fake.combined, weights


def random_gradients(steps, seed=0):
    """Gradients of three objectives with the gaps that heads leave, as plain lists."""
    generator = torch.Generator().manual_seed(seed)

    def vector(scale=1.0):
        return (scale * torch.randn(2, generator=generator, dtype=torch.float64)).tolist()

    return [
        [
            [vector(), vector(0.3), vector(), None],
            [vector(5.0), vector(), None, vector()],
            [vector(0.2), None, None, vector()],
        ]
        for _ in range(steps)
    ]


class FakeLossStep:
    """A training step whose losses are given by step, and whose optimizer steps do nothing.

    Args:
        losses: By step the losses of the objectives.
    """

    names = NAMES
    total_steps = 1000

    def __init__(self, losses):
        self.given, self.number = losses, 0
        self.used = []

    def backward(self, weights):
        self.used.append([float(weight) for weight in weights])
        values = torch.tensor(self.given[self.number], dtype=torch.float64)
        self.losses = dict(zip(NAMES, values, strict=True))

    def optimizer_step(self):
        pass


def run_on_losses(rule, losses, start=0):
    fake = FakeLossStep(losses)
    for fake.number in range(start, len(losses)):
        rule.step(fake)
    return fake.used
