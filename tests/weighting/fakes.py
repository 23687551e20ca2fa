"""Rules, and training steps with given gradients and losses or of a small network."""

import torch

from auxlearn.core.registry import WEIGHTINGS
from auxlearn.weighting.base import Members
from auxlearn.weighting.meta_options import MetaOptions

NAMES = ("primary", "first", "second")

#: Losses of three objectives by step.
LOSSES = [[2.0, 0.5, 7.0], [1.5, 0.6, 6.0], [1.2, 0.2, 5.0], [1.0, 0.3, 4.0], [0.8, 0.1, 3.0]]


def make(name, names=NAMES, **options):
    cls = WEIGHTINGS.get(name)
    return cls(cls.Options(**options), names)


def vector(*given):
    return torch.tensor(given, dtype=torch.float64)


def weighted_sum(weights, gradients, part=0):
    """The sum of the gradients of one parameter, as a list, each with its weight."""
    return sum(w * vector(*g[part]) for w, g in zip(weights, gradients, strict=True)).tolist()


class FakeStep:
    """Gradients and losses that are given by step; parameters start at zero, SGD of rate 1.

    Args:
        gradients: By step and objective a gradient over :attr:`placements`, ``None`` for a gap.
        losses: By step the losses of the objectives; 1 each by default.
    """

    placements = ("encoder", "encoder", "primary_head", "other_head")
    seed = 0
    total_steps = 12
    max_grad_norm = 0.0

    def __init__(self, gradients, losses=None):
        self.given = gradients
        self.names = NAMES[: len(gradients[0])]
        self.given_losses = losses or [[1.0] * len(self.names)] * len(gradients)
        self.number = 0
        self.parameters = [torch.zeros(2, dtype=torch.float64) for _ in self.placements]
        self.combined, self.used = [], []

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
        self.used.append(values)
        for number, parameter in enumerate(self.parameters):
            parts = [w * g[number] for w, g in zip(values, self.gradients(), strict=True)]
            parameter.grad = torch.stack(parts).sum(0)

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


RATE = 0.05


def meta_options(**given):
    """Options of ``meta`` that take it back to one optimizer state and equal weights."""
    base = {"horizon": "steps", "warmup_steps": 0, "mix": "gradients", "floor": 0.0, "margin": 0.0}
    base |= {"learning_rate": 0.02, "initial": (1.0, 1.0, 1.0)}
    return MetaOptions(**base | given)


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


def unrolled_by_hand(network, kind, max_grad_norm, weights, before, steps=1, mix="gradients"):
    """Validation loss after ``steps`` steps with a graph, which follow ``before`` others.

    The steps before have equal weights. Written out in torch; no optimizer of any library.
    With ``mix="scaled"`` each loss is multiplied by a constant: the ratio of the moving averages
    of gradient norms over the first two parameters, which all losses share.
    """
    params = [p.clone().requires_grad_() for p in network.start]
    moments = [[torch.zeros_like(p), torch.zeros_like(p)] for p in params]
    averages = torch.zeros(3, dtype=torch.float64)
    for step in range(before + steps):
        taped = step >= before
        rate = RATE / (1 + step - before) if taped else RATE
        given = weights if taped else torch.full((3,), 1 / 3, dtype=torch.float64)
        losses = network.losses(params, step)
        if mix == "scaled":
            for index, loss in enumerate(losses):
                shared = torch.autograd.grad(loss, params[:2], retain_graph=True)
                norm = sum(float((g**2).sum()) for g in shared) ** 0.5
                averages[index] = 0.9 * averages[index] + 0.1 * norm
            given = given * (averages[0] / averages)
        total = sum(w * loss for w, loss in zip(given, losses, strict=True))
        grads = torch.autograd.grad(total, params, create_graph=taped)
        new = stepped_by_hand(kind, params, grads, moments, step, max_grad_norm, rate)
        params = new if taped else [p.detach().requires_grad_() for p in new]
    return network.validation_loss(params)


class RecordingStep(NetworkStep):
    """Computes as many objectives as the rule has, and records their losses."""

    def __init__(self, optimizer=adamw, count=3):
        super().__init__(Network(), optimizer, 0.0)
        self.names = NAMES[:count]
        self.members = Members({})

    def record(self):
        losses = self.network.losses(self.parameters, self.number)
        self.losses = {name: loss.detach() for name, loss in zip(self.names, losses, strict=False)}

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
