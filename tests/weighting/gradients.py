"""Problems with given gradients and losses, for rules that combine them."""

from __future__ import annotations

import torch

NAMES = ("primary", "first", "second")


class Given:
    """Gradients and losses that are given by step; parameters start at zero, SGD of rate 1.

    Args:
        gradients: By step and objective a gradient over :attr:`parts`, ``None`` for a gap.
        losses: By step the losses of the objectives; 1 each by default.
        after: By step the losses after the optimizer step.
    """

    parts = ("body", "body", "primary", "other")
    names = NAMES
    seed = 0
    total_steps = 12
    max_grad_norm = 0.0

    def __init__(self, gradients, losses=None, after=None):
        self.given = gradients
        self.given_losses = losses or [[1.0] * len(NAMES)] * len(gradients)
        self.given_after = after
        self.number = 0
        self.parameters = [torch.zeros(2, dtype=torch.float64) for _ in self.parts]
        self.combined, self.forward_passes = [], 0

    @property
    def optimizer(self):
        raise AssertionError("updates go through the problem")

    def _losses(self, given):
        return torch.tensor(given[self.number], dtype=torch.float64)

    def gradients(self):
        self.losses = dict(zip(NAMES, self._losses(self.given_losses), strict=True))
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

    def update(self):
        self.combined.append([None if p.grad is None else p.grad.tolist() for p in self.parameters])
        for parameter in self.parameters:
            parameter.grad = None


def run(rule, problem, steps=None):
    """Make steps; return what was combined in each and the weights after each."""
    weights = []
    for step in range(len(problem.given)) if steps is None else steps:
        problem.number = step
        rule.step(problem)
        weights.append(rule.weights.tolist())
    return problem.combined, weights


def drawn(steps, seed=0):
    """Gradients of three objectives with the gaps that heads leave, as plain lists."""
    draws = torch.Generator().manual_seed(seed)

    def vector(scale=1.0):
        return (scale * torch.randn(2, generator=draws, dtype=torch.float64)).tolist()

    return [
        [
            [vector(), vector(0.3), vector(), None],
            [vector(5.0), vector(), None, vector()],
            [vector(0.2), None, None, vector()],
        ]
        for _ in range(steps)
    ]


def resumed(make, problem, at):
    """Return a rule that was saved after ``at`` steps, loaded into a fresh one, and run on."""
    first, second = make(), make()
    run(first, problem, range(at))
    second.load_state_dict({key: value.clone() for key, value in first.state_dict().items()})
    assert torch.equal(second.weights, first.weights)
    run(second, problem, range(at, len(problem.given)))
    return second
