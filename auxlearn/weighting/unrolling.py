"""Unrolled optimizer steps, differentiated by autograd with the library ``higher``.

``higher`` (Grefenstette et al. 2019, https://arxiv.org/abs/1910.01727) has no AdamW as of version
0.2.1, and its Adam adds epsilon before the bias correction and treats weight decay as L2.
:class:`DifferentiableAdamW` makes the step of :class:`torch.optim.AdamW`, and is registered for it.
This is the only module that imports ``higher``.
"""

from __future__ import annotations

from typing import Any

import higher
import torch
from torch import Tensor

from auxlearn.weighting.base import TrainingStep
from auxlearn.weighting.gradients import Gradient


class DifferentiableAdamW(higher.optim.DifferentiableOptimizer):  # type: ignore[misc]  # higher has no types
    """AdamW (Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101), with a graph.

    Computes what :class:`torch.optim.AdamW` computes. The smallest normal number is added to the
    second moment before its square root, because the derivative of the square root at zero is
    infinite. It is far below the rounding error of epsilon, and a parameter whose gradient has
    always been zero contributes nothing, as it should.
    """

    def _update(self, grouped_grads: list[list[Tensor | None]], **kwargs: Any) -> None:
        for number, (group, grads) in enumerate(zip(self.param_groups, grouped_grads, strict=True)):
            beta1, beta2 = group["betas"]
            rate, decay = group["lr"], group["weight_decay"]
            for index, (parameter, grad) in enumerate(zip(group["params"], grads, strict=True)):
                if grad is None:
                    continue
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
    step: TrainingStep, weights: Tensor, steps: int, batches: int = 1
) -> tuple[Tensor, Gradient]:
    """Differentiate the validation loss through several optimizer steps with constant weights.

    The model and its optimizer are copied. Returns the gradient by the weights, ``(objectives,)``,
    and that of the weighted sum in the first step, before clipping.
    """
    weights = weights.detach().clone().requires_grad_()
    first: list[Gradient] = []

    def clip_and_keep_first(gradient: Gradient) -> Gradient:
        gradient = step.summed(gradient, list(model.parameters()))
        if not first:
            first.append([None if grad is None else grad.detach() for grad in gradient])
        return clip(gradient, step.max_grad_norm)

    with (
        step.twice_differentiable(),
        higher.innerloop_ctx(step.model, step.optimizer) as (model, optimizer),
    ):
        try:
            for lookahead in range(steps):
                losses = step.functional_losses(model, lookahead)
                optimizer.step(
                    (weights.to(losses) * losses).sum(),
                    override={"lr": step.learning_rates(lookahead)},
                    grad_callback=clip_and_keep_first,
                )
            loss = step.functional_validation_loss(model, batches)
            (weight_gradient,) = step.summed([*torch.autograd.grad(loss, weights)], [weights])
            assert weight_gradient is not None
        finally:
            _release(model, optimizer)
    places = {id(parameter): place for place, parameter in enumerate(step.model.parameters())}
    return weight_gradient, [first[0][places[id(parameter)]] for parameter in step.parameters]


def _release(model: Any, optimizer: Any) -> None:
    """Release every tensor of a functional copy: classes made by ``higher`` refer to themselves."""
    optimizer.state = []
    optimizer.param_groups = []
    for module in model.modules():
        module._parameters.clear()
        module._buffers.clear()
    model._fast_params = None


def clip(gradient: Gradient, max_norm: float) -> Gradient:
    """Clip a gradient to a norm as :func:`torch.nn.utils.clip_grad_norm_` does, with a graph."""
    if not max_norm:
        return gradient
    norms = [torch.linalg.vector_norm(grad) for grad in gradient if grad is not None]
    factor = (max_norm / (torch.linalg.vector_norm(torch.stack(norms)) + 1e-6)).clamp(max=1.0)
    return [None if grad is None else grad * factor for grad in gradient]
