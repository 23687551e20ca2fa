"""A small network with three training losses and a validation loss, as a training step."""

from __future__ import annotations

import torch

from auxlearn.weighting.base import Members
from auxlearn.weighting.meta_options import MetaOptions

NAMES = ("primary", "first", "second")
RATE = 0.05


def meta_options(**given):
    """Options of ``meta`` that take it back to one optimizer state and equal weights."""
    return MetaOptions(
        **{
            "horizon": "steps",
            "warmup_steps": 0,
            "mix": "gradients",
            "floor": 0.0,
            "margin": 0.0,
            "learning_rate": 0.02,
            "initial": (1.0, 1.0, 1.0),
            **given,
        }
    )


class Network:
    """A two-layer network with three training losses and a validation loss, in plain torch.

    The second output layer belongs to the auxiliary losses alone, so that gradients have gaps.
    """

    def __init__(self):
        generator = torch.Generator().manual_seed(4)

        def normal(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.start = [normal(4, 6) * 0.5, normal(6) * 0.1, normal(6, 3) * 0.5, normal(6, 2) * 0.5]
        self.x, self.y = normal(12, 8, 4), torch.randint(3, (12, 8), generator=generator)
        self.z = normal(12, 8, 2)
        self.held_out, self.targets = normal(9, 4), torch.randint(3, (9,), generator=generator)

    def losses(self, params, step):
        hidden = (self.x[step] @ params[0] + params[1]).tanh()
        cross_entropy = torch.nn.functional.cross_entropy
        return [
            cross_entropy(hidden @ params[2], self.y[step]),
            ((hidden @ params[3] - self.z[step]) ** 2).mean(),
            (hidden.sin() @ params[3]).exp().mean(),
        ]

    def validation_loss(self, params):
        hidden = (self.held_out @ params[0] + params[1]).tanh()
        return torch.nn.functional.cross_entropy(hidden @ params[2], self.targets)


class NetworkStep:
    """The network as a training step, as a weighting sees it."""

    placements = ("encoder", "encoder", "primary_head", "other_head")

    def __init__(self, network, optimizer, max_grad_norm):
        self.network = network
        self.names = NAMES
        self.number, self.seed, self.total_steps = 0, 0, 12
        self.parameters = [p.clone().requires_grad_() for p in network.start]
        self.optimizer = optimizer(self.parameters)
        self.max_grad_norm = max_grad_norm
        self.losses = {}

    def backward(self, weights):
        losses = self.network.losses(self.parameters, self.number)
        sum(float(w) * loss for w, loss in zip(weights, losses, strict=True)).backward()

    def gradients(self):
        return [
            list(torch.autograd.grad(self.loss(index), self.parameters, allow_unused=True))
            for index in range(3)
        ]

    def loss(self, index):
        return self.network.losses(self.parameters, self.number)[index]

    def validation_gradient(self, batches=1):
        loss = self.network.validation_loss(self.parameters)
        self.losses["validation"] = loss.detach()
        return list(torch.autograd.grad(loss, self.parameters, allow_unused=True))

    @property
    def constant_validation_loss(self):
        return float("inf")

    def optimizer_step(self):
        if self.max_grad_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()


def sgd(params):
    return torch.optim.SGD(params, lr=RATE, momentum=0.9, weight_decay=0.01)


def adamw(params):
    return torch.optim.AdamW(params, lr=RATE, weight_decay=0.01)


def stepped_by_hand(kind, params, grads, moments, step, max_grad_norm, rate=RATE):
    """The parameters after one step of SGD or AdamW with a clipped gradient, written out."""
    norm = sum((g**2).sum() for g in grads).sqrt()
    if max_grad_norm and norm > max_grad_norm:
        grads = [g * max_grad_norm / (norm + 1e-6) for g in grads]
    updated = []
    for p, g, moment in zip(params, grads, moments, strict=True):
        if kind is sgd:
            g = g + 0.01 * p
            moment[0] = g if step == 0 else 0.9 * moment[0] + g
            updated.append(p - rate * moment[0])
        else:
            moment[0] = 0.9 * moment[0] + 0.1 * g
            moment[1] = 0.999 * moment[1] + 0.001 * g**2
            mean = moment[0] / (1 - 0.9 ** (step + 1))
            variance = moment[1] / (1 - 0.999 ** (step + 1))
            updated.append(p - rate * 0.01 * p - rate * mean / (variance.sqrt() + 1e-8))
    return updated


class RecordingStep(NetworkStep):
    """Computes as many objectives as the rule has, and records their losses."""

    def __init__(self, optimizer=adamw, count=3):
        super().__init__(Network(), optimizer, 0.0)
        self.names = NAMES[:count]
        self.members = Members({})

    def current_losses(self):
        losses = self.network.losses(self.parameters, self.number)[: len(self.names)]
        return torch.stack(losses).detach()

    def record(self):
        self.losses = dict(zip(self.names, self.current_losses(), strict=True))

    def backward(self, weights):
        self.record()
        super().backward([*weights, *[0.0] * (3 - len(weights))])

    def gradients(self):
        self.record()
        return super().gradients()[: len(self.names)]

    def micro_gradients(self, apart=False):
        yield self.gradients()

    def validation_gradient(self, index=0, batches=1):
        return super().validation_gradient(batches)
