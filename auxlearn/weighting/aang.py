r"""AANG: weights of objectives by their factors, learned by cosines with a validation gradient.

Dery, Michel, Khodak, Neubig and Talwalkar 2023, "AANG: Automating Auxiliary Learning",
https://arxiv.org/abs/2205.14082, Algorithm 1; code at ldery/Automating-Auxiliary-Learning.

Objective k of a space has the factors d, t, r, o (data, transform, representation, output), and the
logit

.. math:: a_k = W^{data}_d + W^{transform}_t + W^{representation}_r + W^{output}_o + W^{all}_k

so that what is learned of one objective holds for those that share a factor with it. Among the
objectives of a step, :math:`w = \mathrm{softmax}(a)`. The share of the whole space is that of a
further softmax over the primary task and the auxiliary tasks. With :math:`g_k` the gradient of
objective k and v the validation gradient, both over the encoder,

.. math:: \delta_k = -\cos(g_k, v)

is the surrogate gradient of :math:`a_k`; that of a factor is the sum over the objectives of the
step that have it. The surrogate gradients of the softmax over tasks are those of
:mod:`auxlearn.weighting.tartan`. All logits follow by plain gradient descent, and the optimizer
step is made with the weights from before.

Departs from the authors' code in these points. There, the weights decide how many examples each
objective gets, and only output and own logit enter a softmax; here, each has a full batch, and all
five logits enter it, as in the paper. There, the head of the validation loss is fitted to training
examples; here, to validation examples, as in META-TARTAN. The cosine of the space is that of its
weighted gradient; there, of the sum of the gradients by their numbers of tokens. Gradients are not
clipped one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.metric_names import Quantity
from auxlearn.core.registry import register_weighting
from auxlearn.weighting.base import TrainingStep
from auxlearn.weighting.gradients import Gradient
from auxlearn.weighting.state import State
from auxlearn.weighting.tartan import Tartan, TartanOptions, added, tartan_logit_gradient


class Factors:
    """The factors of the members of a task, each given as its factors by axis.

    ``names`` are axis and value of each factor that members share, in order of appearance by axis;
    ``has`` says which member has which logit, ``(members, factors + members)``, float64: 1 at its
    factors and at its own, which come last.
    """

    def __init__(self, members: Sequence[Mapping[str, str]]) -> None:
        self.members = members
        self.axes = list(dict.fromkeys(axis for member in members for axis in member))
        self.names = [
            (axis, value)
            for axis in self.axes
            for value in dict.fromkeys(member[axis] for member in members if axis in member)
        ]
        shared = [
            [float(member.get(axis) == value) for axis, value in self.names] for member in members
        ]
        alone = torch.eye(len(members), dtype=torch.float64)
        self.has = torch.cat([torch.tensor(shared, dtype=torch.float64), alone], 1)

    def weights(self, logits: Tensor, sampled: Sequence[int] | None = None) -> Tensor:
        """Return the softmax of the members' logits, ``(members,)``: over all of them, or over
        those that are sampled, whose weights would be 0 / 0 where others have far larger logits.
        """
        numbers = list(range(len(self.has)) if sampled is None else sampled)
        weights = torch.zeros(len(self.has), dtype=logits.dtype)
        weights[numbers] = (self.has @ logits)[numbers].softmax(0)
        return weights

    def gradient(self, sampled: Sequence[int], gradient: Tensor) -> Tensor:
        """Return the gradient of the factors' logits from that of the sampled members' logits."""
        return self.has[list(sampled)].T @ gradient

    def table(self, weights: Tensor) -> dict[tuple[str, str], float]:
        """Return the sum of the weights of the members that have each shared factor."""
        sums = weights @ self.has[:, : len(self.names)]
        return dict(zip(self.names, sums.tolist(), strict=True))


class FactorLogits(State):
    """The factors of the members of each task, and their logits.

    A checkpoint has the factors as well, as JSON in bytes: a run that is killed after its last step
    accounts for its weights without another one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.factors: dict[str, Factors] = {}
        self.logits: dict[str, Tensor] = {}

    def add(self, name: str, members: Sequence[Mapping[str, str]]) -> None:
        """Add a task, with logits of zero, unless it is there."""
        if name not in self.factors:
            self.factors[name] = Factors(members)
            width = len(self.factors[name].has[0])
            self.logits[name] = torch.zeros(width, dtype=torch.float64)

    def tensors(self) -> dict[str, Tensor]:
        tensors = {}
        for name, factors in self.factors.items():
            written = json.dumps([dict(member) for member in factors.members]).encode()
            tensors[f"{name}/members"] = torch.tensor(list(written))
            tensors[f"{name}/logits"] = self.logits[name]
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.factors, self.logits = {}, {}
        for key, tensor in tensors.items():
            name, _, what = key.rpartition("/")
            if what == "logits":
                self.logits[name] = tensor
            else:
                self.factors[name] = Factors(json.loads(bytes(tensor.tolist())))


class AANGOptions(TartanOptions):
    """Options of AANG; the defaults are among those that its authors have tried."""

    learning_rate: float = Field(0.1, gt=0)
    """Learning rate of the logits of primary and auxiliary tasks."""

    factor_learning_rate: float = Field(1.0, gt=0)
    """Learning rate of the logits of factors."""


@register_weighting("aang")
class AANG(Tartan):
    """Weights of the objectives of a space by their factors, as in AANG.

    For tasks that are made of several objectives, such as `space`; a task that is one objective has
    the logit that it has in META-TARTAN.
    """

    Options = AANGOptions
    options: AANGOptions
    uses_previous_weights = True
    follows_metric = False

    def __init__(self, options: AANGOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self.factor_logits = FactorLogits()

    def step(self, step: TrainingStep) -> None:
        for name, members in step.members.factors.items():
            self.factor_logits.add(name, members)
            step.members.weights[name] = self._member_weights(name, step.members.sampled[name])
        super().step(step)

    def _member_weights(self, name: str, sampled: Sequence[int] | None = None) -> Tensor:
        logits = self.factor_logits.logits[name]
        return self.factor_logits.factors[name].weights(logits, sampled)

    def learn(self, step: TrainingStep) -> None:
        parts = step.members.parts(step.names)
        totals: list[Gradient] = []
        tasks, members = [], []
        for index, gradients in enumerate(step.micro_gradients(apart=True)):
            joined = step.members.joined(step.names, gradients)
            validation = self.validation_gradient(step, index)
            members.append(self.compare(gradients, validation, step)[0])
            tasks.append(self._cosines(joined, validation, step))
            totals = added(totals, joined)
        self.mixture.step(step, self.weights, totals)
        gradient = tartan_logit_gradient(torch.stack(members))
        for name, sampled in step.members.sampled.items():
            places = [place for place, (task, _) in enumerate(parts) if task == name]
            change = self.factor_logits.factors[name].gradient(sampled, gradient[places])
            self.factor_logits.logits[name] -= self.options.factor_learning_rate * change
        self.apply_logit_gradient(tartan_logit_gradient(torch.stack(tasks)))

    def metrics(self) -> dict[str, float]:
        """Return the cosines, and the weight of each value of each axis within its task."""
        weights = {
            Quantity.FACTOR.key(f"{name}/{axis}/{value}"): weight
            for name, factors in self.factor_logits.factors.items()
            for (axis, value), weight in factors.table(self._member_weights(name)).items()
        }
        return super().metrics() | weights

    def account(
        self, rows: Sequence[Mapping[str, Any]], exported: int, steps: int
    ) -> dict[str, str]:
        """Return which value of each axis has gained most, for each task with members."""
        sentences = {}
        for name, factors in self.factor_logits.factors.items():
            logits = self.factor_logits.logits[name]
            first = factors.table(factors.weights(torch.zeros_like(logits)))
            learned = factors.table(factors.weights(logits))
            largest = []
            for axis in factors.axes:
                values = [factor for factor in learned if factor[0] == axis]
                if len(values) > 1:
                    best = max(values, key=lambda factor: learned[factor])
                    largest.append(
                        f"{axis} {best[1]} {learned[best]:.2f} (at first {first[best]:.2f})"
                    )
            sentences[name] = (
                f"{name}: the largest weight of each axis of its {len(factors.has)} objectives is "
                f"that of {', '.join(largest)}"
            )
        return sentences
