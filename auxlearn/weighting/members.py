"""Objectives that an auxiliary task is made of, some of which are part of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from auxlearn.weighting.gradients import Gradient, weighted_sum


class Members:
    """The members of the tasks that are made of several objectives.

    Most rules need not know of them: to them such a task is one objective, whose loss is the mean
    of the members of the step. A rule that weighs members sets :attr:`weights` before it asks for
    gradients, and asks for those of the :meth:`parts`.

    Args:
        factors: Of each such task, the factors of each member by axis, such as ``{"transform":
            "mask", "output": "denoise"}``; the same in every step.

    Attributes:
        factors: What was given.
        sampled: Numbers of the members that are part of this step, by task.
        weights: Weights of all members by task, ``(members,)``, none negative; members of tasks
            without an entry count equally. Empty at the beginning of a step.
    """

    def __init__(self, factors: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
        self.factors = {name: tuple(members) for name, members in factors.items()}
        self.begin({name: range(len(members)) for name, members in factors.items()})

    def begin(self, sampled: Mapping[str, Sequence[int]]) -> None:
        """Begin a step with the members that are part of it."""
        self.sampled = {name: tuple(numbers) for name, numbers in sampled.items()}
        self.weights: dict[str, Tensor] = {}

    def parts(self, names: Sequence[str]) -> list[tuple[str, int | None]]:
        """Return the objectives with the members of the step in place of their task.

        Args:
            names: Names of the objectives.

        Returns:
            Name and number of each member; the number is ``None`` for any other objective.
        """
        return [(name, number) for name in names for number in self.sampled.get(name, (None,))]

    def shares(self, name: str) -> Tensor:
        """Return the weights of the members of the step, with sum 1, ``(sampled members,)``."""
        numbers = list(self.sampled[name])
        every = self.weights.get(name, torch.ones(len(self.factors[name]), dtype=torch.float64))
        return every[numbers] / every[numbers].sum()

    def loss(self, name: str, losses: Mapping[int, Tensor]) -> Tensor:
        """Return the loss of a task from those of its members on a batch."""
        shares = dict(zip(self.sampled[name], self.shares(name).tolist(), strict=True))
        return torch.stack([loss * shares[number] for number, loss in losses.items()]).sum()

    def joined(self, names: Sequence[str], gradients: Sequence[Gradient]) -> list[Gradient]:
        """Return the gradient of each objective.

        Args:
            names: Names of the objectives.
            gradients: One for each of the :meth:`parts`.
        """
        rest, found = list(gradients), []
        for name in names:
            count = len(self.sampled.get(name, (None,)))
            own, rest = rest[:count], rest[count:]
            found.append(weighted_sum(own, self.shares(name)) if name in self.sampled else own[0])
        return found
