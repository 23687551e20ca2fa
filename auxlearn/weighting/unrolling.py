"""Updates that are differentiated on a tape: the one module that imports ``higher``.

``higher`` 0.2.1 does not know AdamW, and its Adam adds epsilon before the bias correction, treats
weight decay as L2 and ignores ``maximize``. :class:`DifferentiableAdamW` makes the step that
:class:`torch.optim.AdamW` makes, and is registered for it.
"""

from __future__ import annotations

from typing import Any

import higher
import torch
from torch import Tensor

from auxlearn.weighting.base import Gradient, TrainingStep


class DifferentiableAdamW(higher.optim.DifferentiableOptimizer):
    """AdamW (Loshchilov and Hutter 2019) as torch computes it, on a gradient tape.

    The smallest normal number is added to the second moment before its root is taken, because the
    derivative of a root at zero is infinite. Beside epsilon it is far below rounding, and a
    parameter that never had a gradient contributes nothing, as it should.
    """

    def _update(self, grouped_grads: list[list[Tensor | None]], **kwargs: Any) -> None:
        for number, (group, grads) in enumerate(zip(self.param_groups, grouped_grads, strict=True)):
            if group["amsgrad"]:
                raise ValueError("the differentiable AdamW has no amsgrad")
            beta1, beta2 = group["betas"]
            rate, decay = group["lr"], group["weight_decay"]
            for index, (parameter, grad) in enumerate(zip(group["params"], grads, strict=True)):
                if grad is None:
                    continue
                if group["maximize"]:
                    grad = -grad
                state = self.state[number][index]
                step = float(state.get("step", 0.0)) + 1
                first = state.get("exp_avg", torch.zeros_like(parameter))
                second = state.get("exp_avg_sq", torch.zeros_like(parameter))
                first = torch.lerp(first, grad, 1 - beta1)
                second = torch.addcmul(second * beta2, grad, grad, value=1 - beta2)
                state.update(step=step, exp_avg=first, exp_avg_sq=second)
                root = (second + torch.finfo(second.dtype).tiny).sqrt()
                denominator = root / (1 - beta2**step) ** 0.5 + group["eps"]
                group["params"][index] = torch.addcdiv(
                    parameter * (1 - rate * decay),
                    first,
                    denominator,
                    value=-rate / (1 - beta1**step),
                )


higher.register_optim(torch.optim.AdamW, DifferentiableAdamW)


def unrolled_gradient(
    step: TrainingStep, weights: Tensor, steps: int, heads_only: bool = False, batches: int = 1
) -> tuple[Tensor, Gradient]:
    """Differentiate the validation loss through several updates that keep their graphs.

    The model and its optimizer are copied, and nothing of the originals is changed. The graphs are
    freed before this returns, whether by a value or by an error.

    Args:
        step: The step that the first update belongs to.
        weights: Weight of each objective in all of the updates, ``(objectives,)``.
        steps: How many updates.
        heads_only: Leave the body as it is and move the heads alone.
        batches: Validation batches that the loss is the mean over.

    Returns:
        The derivative by the weights, in the dtype of the losses; and the weighted gradient of the
        first update, before clipping.
    """
    weights = weights.detach().clone().requires_grad_()
    first: list[Gradient] = []

    def given(gradient: Gradient) -> Gradient:
        if not first:
            first.append([None if part is None else part.detach() for part in gradient])
        return clip(gradient, step.max_grad_norm)

    with (
        step.twice_differentiable(),
        higher.innerloop_ctx(step.model, step.optimizer) as (model, optimizer),
    ):
        try:
            if heads_only:
                _freeze_body(step, model)
            for ahead in range(steps):
                losses = step.functional_losses(model, ahead)
                optimizer.step(
                    (weights.to(losses) * losses).sum(),
                    override={"lr": step.learning_rates(ahead)},
                    grad_callback=given,
                )
            loss = step.functional_validation_loss(model, batches)
            (by_weight,) = torch.autograd.grad(loss, weights)
        finally:
            _release(model, optimizer)
    places = {id(parameter): place for place, parameter in enumerate(step.model.parameters())}
    return by_weight, [first[0][places[id(parameter)]] for parameter in step.parameters]


def _freeze_body(step: TrainingStep, model: Any) -> None:
    body = {
        id(parameter)
        for parameter, part in zip(step.parameters, step.parts, strict=True)
        if part == "body"
    }
    for original, copy in zip(step.model.parameters(), model.parameters(), strict=True):
        if id(original) in body:
            copy.requires_grad_(False)


def _release(model: Any, optimizer: Any) -> None:
    """Let go of every tensor that a functional copy holds.

    `higher` makes a class for each module, and classes refer to themselves: without this, the
    graphs would live until the garbage collector finds the cycles.
    """
    optimizer.state = []
    optimizer.param_groups = []
    for module in model.modules():
        module._parameters.clear()
        module._buffers.clear()
    model._fast_params = None


def clip(gradient: Gradient, max_norm: float) -> Gradient:
    """Clip a gradient to a norm, differentiably, as ``torch.nn.utils.clip_grad_norm_`` does.

    Args:
        gradient: One tensor per parameter, or ``None``.
        max_norm: Largest norm; 0: no limit.
    """
    if not max_norm:
        return gradient
    norms = [torch.linalg.vector_norm(part) for part in gradient if part is not None]
    factor = (max_norm / (torch.linalg.vector_norm(torch.stack(norms)) + 1e-6)).clamp(max=1.0)
    return [None if part is None else part * factor for part in gradient]
