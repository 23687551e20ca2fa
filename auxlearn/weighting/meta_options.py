"""Options of meta-learned weights, and the logits that weights are learned as."""

from __future__ import annotations

import math
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from auxlearn.weighting.base import Mix, ValidationOptions
from auxlearn.weighting.learned import LogitOptions
from auxlearn.weighting.mixing import MIX_DESCRIPTION

#: Initial weight of the primary task.
INITIAL_PRIMARY = 0.98

#: Change of a logit over the run if all evidence points one way, at the default learning rate. The
#: logits of the primary and of one auxiliary task change in opposite directions, so that the ratio
#: of their weights can change by a factor of exp(16): what the task needs from its initial weight
#: to the gate, a factor of about 3, takes a fourteenth of the run.
MAX_LOGIT_CHANGE = 8.0


def logit_learning_rate(steps: int, every: int, decay: float) -> float:
    """Return the default learning rate of the logits for a run of ``steps`` optimizer steps.

    Adam changes a logit by about its learning rate in each step. In all updates, a logit can change
    by :data:`MAX_LOGIT_CHANGE`; but within the ``1 / (1 - decay)`` updates that a moving average
    remembers by at most 1, as what chance leaves in it must not decide alone.
    """
    return min(1 - decay, MAX_LOGIT_CHANGE * every / steps)


def default_meta_weights(count: int) -> Tensor:
    """Return the default initial weights of ``count`` objectives, the primary task first."""
    others = max(1, count - 1)
    weights = torch.full((count,), (1 - INITIAL_PRIMARY) / others, dtype=torch.float64)
    weights[0] = INITIAL_PRIMARY
    return weights / weights.sum()


def meta_gradient_of_logits(weights: Tensor, products: Tensor) -> Tensor:
    r"""Return :math:`\partial L_{val} / \partial z_i` after separate steps, ``(objectives,)``.

    ``products`` are :math:`v^\top u_i`. The parameters of heads that the primary task does not
    depend on have no part in it: the validation gradient is zero there.
    """
    gradient = weights / weights[0] * products
    gradient[0] = -gradient[1:].sum()
    return gradient


def lowest_logit(logits: Tensor, least: float) -> float:
    """Return the logit of the smallest weight of an auxiliary task: what is not applied yet sums up
    evidence from there (Page 1954, "Continuous Inspection Schemes"). ``least`` is the sum of all.
    """
    return float(logits[0].detach()) + math.log(least / (1 - least) / (len(logits) - 1))


class MetaOptions(LogitOptions, ValidationOptions):
    horizon: Literal["run", "steps"] = "run"
    """What a weight is judged by: whole runs with fixed shares, compared on dev with the single
    task (run), or the derivative of the validation loss after the next steps, within one run
    (steps). All options but share and mix belong to steps."""

    share: float = Field(0.5, gt=0, lt=1)
    """Share of an auxiliary task in the run that has it, with horizon run."""

    initial: tuple[float, ...] | None = Field(
        None,
        description="Initial weight of each objective, primary first; by default "
        f"{INITIAL_PRIMARY:g} for the primary task, and equal shares of the rest.",
    )
    mix: Mix = Field("steps", description=MIX_DESCRIPTION)
    floor: float = Field(0.6, ge=0, lt=1)
    """Smallest share of the sum of weights for the primary task."""

    warmup_steps: int = Field(5, ge=0)
    """Optimizer steps before the first update of the weights. The first steps of Adam are close to
    the sign of the gradient, and their derivative is lost in rounding."""

    learning_rate: float | None = Field(
        None,
        gt=0,
        description="Learning rate of the logits; by default the one at which a logit can change "
        f"by {MAX_LOGIT_CHANGE:g} in the run, at most 1 - validation_decay.",
    )
    gate: float = Field(0.06, ge=0, lt=1)
    """Weight, divided by the number of auxiliary tasks, that one of them must have learned before
    it changes parameters or texts of the primary task; until then only its own head is trained. The
    weights stay as they are while the validation loss is above that of a constant prediction. Only
    with mix steps; 0: no gate."""

    gate_share: float = Field(0.5, gt=0, le=1)
    """Share of the optimizer steps, counted from the first, in which an auxiliary task can pass the
    gate. Later a task that is not applied stays so; if none is, the rest of the run is single-task
    training, at no further cost."""

    margin: float = Field(0.5, ge=0)
    """Share of the primary task's mean contribution to the validation loss so far that an auxiliary
    task must exceed for its weight to grow."""

    validation_decay: float = Field(0.95, ge=0, lt=1)
    """Decay of the moving average of validation gradients, which takes the place of a step's own
    gradient; 0: no average. Not with unroll."""

    step_decay: float = Field(0.95, ge=0, lt=1)
    """Decay of the moving average of each objective's steps, which takes the place of its last step
    in the meta-gradient; 0: no average. Only with mix steps."""

    batch_size: int | None = Field(None, ge=1)
    """Validation examples per batch; by default half the training batch size."""

    batches: int = Field(1, ge=1)
    """Validation batches over which a step's meta-gradient is averaged."""

    dev_head: Literal["own", "closed", "fitted"] = "own"
    """Classification head of the validation loss: the run's own, or one made from other validation
    examples, in closed form (and differentiated as well) or fitted in a few steps (and held fixed
    when differentiating)."""

    unroll: int = Field(1, ge=1)
    """Optimizer steps that the validation loss is differentiated through. More than one keeps the
    graphs of all of them and needs several times the memory."""

    @model_validator(mode="after")
    def _options_of_one_horizon(self) -> Self:
        fields = type(self).model_fields
        changed = [name for name in fields if getattr(self, name) != fields[name].default]
        of_run = {"horizon", "share", "mix"}
        wrong = [name for name in changed if name not in of_run]
        if self.horizon == "run" and wrong:
            raise ValueError(
                f"{', '.join(wrong)}: only with horizon steps, and horizon is run: add horizon "
                "steps, or leave them out"
            )
        if self.horizon == "steps" and "share" in changed:
            raise ValueError("share: only with horizon run: leave it out")
        return self
