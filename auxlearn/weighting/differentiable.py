"""Optimizer updates that can be differentiated: the one module that imports ``higher``.

``higher`` 0.2.1 does not know AdamW, and its Adam adds epsilon before the bias correction, treats
weight decay as L2 and ignores ``maximize``. :class:`DifferentiableAdamW` makes the step that
:class:`torch.optim.AdamW` makes, and is registered for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import higher
import torch
from torch import Tensor

from auxlearn.weighting.base import Gradient


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


class UpdateDerivative:
    """The derivative of one optimizer step with respect to the gradient it is given.

    Take it before the real step, because it keeps the optimizer's state as it is then; use it after
    the step, once the derivative of something at the new parameters is known.

    Args:
        optimizer: The optimizer about to be stepped: SGD, or AdamW without amsgrad.
        parameters: Its parameters, in the order of the gradients.
        clip_norm: Norm to which the gradient is clipped before the step; 0: not clipped.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], clip_norm: float = 0.0
    ) -> None:
        self._optimizer = higher.get_diff_optim(optimizer, parameters)
        self._clip_norm = clip_norm

    def pull_back(
        self, gradient: Gradient, direction: Gradient, parameters: Sequence[Tensor]
    ) -> Gradient:
        r"""Return :math:`v^\top \partial U(\theta, g) / \partial g`.

        Args:
            gradient: The gradient ``g`` that the step is given, before clipping.
            direction: ``v``, the derivative of something at the updated parameters.
            parameters: The parameters; the derivative of SGD and AdamW does not depend on their
                values, so it may be asked for before or after the real step.

        Returns:
            A tensor for each parameter, ``None`` where the gradient has none.
        """
        leaves = [None if g is None else g.detach().requires_grad_() for g in gradient]
        wanted = [leaf for leaf in leaves if leaf is not None]
        fixed = [parameter.detach().requires_grad_() for parameter in parameters]
        with torch.enable_grad():
            given = clip(leaves, self._clip_norm)
            updated = self._optimizer.step(
                # `higher` wants a loss to differentiate; the gradients come from outside.
                torch.stack([p.flatten()[0] for p in fixed]).sum(),
                params=fixed,
                grad_callback=lambda _: given,
            )
            reached = [
                (new, v)
                for new, v, g in zip(updated, direction, leaves, strict=True)
                if v is not None and g is not None
            ]
            pulled = torch.autograd.grad(
                [new for new, _ in reached],
                wanted,
                [v for _, v in reached],
                allow_unused=True,
            )
        parts = iter(pulled)
        return [None if leaf is None else next(parts) for leaf in leaves]


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
