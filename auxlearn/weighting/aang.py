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
from auxlearn.weighting.base import TrainingStep, under
from auxlearn.weighting.gradients import Gradient
from auxlearn.weighting.tartan import Tartan, TartanOptions, added, tartan_logit_gradient

#: What the names of the factors' logits begin with in a checkpoint.
_FACTORS = "factors/"
#: What the names of the members begin with there: their factors as JSON in bytes.
_MEMBERS = "members/"


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
        shared = [[float(one.get(axis) == value) for axis, value in self.names] for one in members]
        own = torch.eye(len(members), dtype=torch.float64)
        self.has = torch.cat([torch.tensor(shared, dtype=torch.float64), own], 1)

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
        self._factors: dict[str, Factors] = {}
        self.factor_logits: dict[str, Tensor] = {}

    def step(self, step: TrainingStep) -> None:
        for name, members in step.members.factors.items():
            if name not in self._factors:
                self._factors[name] = Factors(members)
            found, width = self._factors[name], len(self._factors[name].has[0])
            logits = self.factor_logits.setdefault(name, torch.zeros(width, dtype=torch.float64))
            step.members.weights[name] = found.weights(logits, step.members.sampled[name])
        super().step(step)

    def learn(self, step: TrainingStep) -> None:
        parts = step.members.parts(step.names)
        totals: list[Gradient] = []
        tasks, members = [], []
        for index, found in enumerate(step.micro_gradients(apart=True)):
            joined = step.members.joined(step.names, found)
            validation = self.validation_gradient(step, index)
            members.append(self.compare(found, validation, step)[0])
            tasks.append(self._cosines(joined, validation, step))
            totals = added(totals, joined)
        self.mixture.step(step, self.weights, totals)
        gradient = tartan_logit_gradient(torch.stack(members))
        for name, sampled in step.members.sampled.items():
            own = [place for place, (task, _) in enumerate(parts) if task == name]
            change = self._factors[name].gradient(sampled, gradient[own])
            self.factor_logits[name] -= self.options.factor_learning_rate * change
        self.apply_logit_gradient(tartan_logit_gradient(torch.stack(tasks)))

    def metrics(self) -> dict[str, float]:
        """Return the cosines, and the weight of each value of each axis within its task."""
        found = {
            Quantity.FACTOR.key(f"{name}/{axis}/{value}"): weight
            for name, factors in self._factors.items()
            for (axis, value), weight in factors.table(
                factors.weights(self.factor_logits[name])
            ).items()
        }
        return super().metrics() | found

    def account(
        self, rows: Sequence[Mapping[str, Any]], exported: int, steps: int
    ) -> dict[str, str]:
        """Return which value of each axis has gained most, for each task with members."""
        sentences = {}
        for name, factors in self._factors.items():
            logits = self.factor_logits[name]
            equal, learned = (
                factors.table(factors.weights(given))
                for given in (torch.zeros_like(logits), logits)
            )
            axes = [[one for one in learned if one[0] == axis] for axis in factors.axes]
            best = [max(axis, key=lambda one: learned[one]) for axis in axes if len(axis) > 1]
            said = ", ".join(
                f"{axis} {value} {learned[axis, value]:.2f} (at first {equal[axis, value]:.2f})"
                for axis, value in best
            )
            sentences[name] = (
                f"{name}: the largest weight of each axis of its {len(factors.has)} objectives is "
                f"that of {said}"
            )
        return sentences

    def state_dict(self) -> dict[str, Tensor]:
        """Return the logits of tasks and of factors, and what the factors are.

        A run that is killed after its last step accounts for its weights without another one.
        """
        factors = {f"{_FACTORS}{name}": logits for name, logits in self.factor_logits.items()}
        members = {
            f"{_MEMBERS}{name}": torch.tensor(list(json.dumps([*map(dict, one.members)]).encode()))
            for name, one in self._factors.items()
        }
        return super().state_dict() | factors | members

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.factor_logits = under(_FACTORS, state)
        self._factors = {
            name: Factors(json.loads(bytes(members.tolist())))
            for name, members in under(_MEMBERS, state).items()
        }
        own = (_FACTORS, _MEMBERS)
        super().load_state_dict({k: v for k, v in state.items() if not k.startswith(own)})
