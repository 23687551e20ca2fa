r"""FAMO: all losses are to fall at the same rate (Liu, Feng, Stone and Liu 2023, "FAMO: Fast
Adaptive Multitask Optimization", https://arxiv.org/abs/2306.03792).

With logits :math:`\xi`, :math:`z = \mathrm{softmax}(\xi)` and losses :math:`L_i`, the step is made
with the gradient of :math:`c \sum_i z_i \log L_i`, where :math:`c = (\sum_i z_i / L_i)^{-1}` is a
constant: weights :math:`c z_i / L_i`, which sum to 1. Then the losses :math:`L_i'` of the same
batches at the new parameters tell how far each has fallen, and Adam moves the logits by

.. math:: \delta = J^\top (\log L - \log L'), \quad J = \partial z / \partial \xi,

against :math:`\delta`: what falls fast loses weight (Algorithm 1). ``weight_decay`` is the
paper's :math:`\gamma`.

Cost: a second forward pass of every objective. The paper needs no gradient of single objectives;
here they are kept, because the weights depend on all losses of the step and one objective's graph
lives at a time.

Departures from the authors' code (Cranial-XIX/FAMO, ``famo.py``): losses are bounded below by 0;
gradients are clipped by the run's ``max_grad_norm``. The second forward pass has the dropout masks
and draws of the first. The logits move at the start of the next step, which saves a wait for a GPU
and changes no number.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.registry import register_weighting
from auxlearn.weighting.base import TrainingStep, apply, mix
from auxlearn.weighting.learned import Learned, LearnedOptions

#: Added to losses before logarithms and divisions, as the authors do.
EPSILON = 1e-8


def famo_weights(logits: Tensor, losses: Tensor) -> Tensor:
    """Return the weights of the losses: ``softmax(logits) / losses``, scaled to sum to 1.

    Args:
        logits: ``(objectives,)``.
        losses: ``(objectives,)``, none negative.
    """
    shares = logits.softmax(0) / (losses + EPSILON)
    return shares / shares.sum()


def famo_gradient(logits: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Return what the logits descend, ``(objectives,)``.

    Args:
        logits: ``(objectives,)``.
        before: Losses before the optimizer step, ``(objectives,)``.
        after: Losses of the same batches after it.
    """
    falls = (before + EPSILON).log() - (after + EPSILON).log()
    shares = logits.softmax(0)
    return shares * (falls - (shares * falls).sum())


class FAMOOptions(LearnedOptions):
    """Settings of FAMO."""

    learning_rate: float = Field(0.025, gt=0, description="Learning rate of Adam on the logits.")
    weight_decay: float = Field(
        0.001, ge=0, description="Decay of the logits towards equal ones: gamma."
    )


@register_weighting("famo")
class FAMO(Learned):
    """Weights that let all losses fall at the same rate (Liu et al. 2023)."""

    Options = FAMOOptions
    options: FAMOOptions

    def __init__(self, options: FAMOOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._weights = self.initial_weights()
        start = self._weights.log()
        self.logits = start - start.mean()  # the decay is towards zero
        self.optimizer = torch.optim.Adam(
            [self.logits], lr=options.learning_rate, weight_decay=options.weight_decay
        )
        # Losses of the last step before and after it, which the logits have yet to learn from.
        self._before: Tensor | None = None
        self._after: Tensor | None = None

    @property
    def weights(self) -> Tensor:
        """The weights of the last step, which sum to 1; at the start the initial ones."""
        return self._weights.clone()

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step on the log losses, whether the weights move or rest."""
        self.learn(step)

    def learn(self, step: TrainingStep) -> None:
        """Move the logits by what the last step did, and make the next."""
        gradients = step.gradients()
        losses = torch.stack([step.losses[name] for name in step.names])
        if self._after is not None:
            assert self._before is not None
            after, losses = torch.stack([self._after.to(losses), losses]).cpu().double()
            self._descend(famo_gradient(self.logits, self._before, after))
        losses = losses.cpu().double()
        self._weights = self.floored(famo_weights(self.logits, losses))
        apply(step, mix(gradients, self._weights))
        self._before = self._after = None
        if self.moves(step):
            self._before, self._after = losses, step.current_losses()

    def _descend(self, gradient: Tensor) -> None:
        self.logits.grad = gradient
        self.optimizer.step()

    def state_dict(self) -> dict[str, Tensor]:
        """Logits, the state of their optimizer, weights, and the losses not yet learned from."""
        state = {"logits": self.logits, "weights": self._weights}
        if self._before is not None and self._after is not None:
            state |= {"before": self._before, "after": self._after}
        return state | {f"adam/{k}": v for k, v in self.optimizer.state[self.logits].items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self.logits.copy_(state["logits"])
        self._weights = state["weights"].clone()
        self._before, self._after = state.get("before"), state.get("after")
        moments = {
            key.removeprefix("adam/"): value.clone()
            for key, value in state.items()
            if key.startswith("adam/")
        }
        if moments:
            self.optimizer.state[self.logits] = moments
