"""A weighting in twenty lines: weight each loss by its inverse, so that all count alike.

Use it with ``auxlearn train --plugin examples/inverse_loss.py --weights inverse_loss``.
"""

import torch

from auxlearn.plugins import KeptWeights, apply_gradient, register_weighting, weighted_sum


@register_weighting("inverse_loss")
class InverseLoss(KeptWeights):
    """Weights ``1 / loss``, in every step, as training on the sum of the log losses has them."""

    def step(self, step):
        gradients = step.gradients()  # also fills step.losses
        losses = torch.stack([step.losses[name] for name in step.names])
        self.current = 1 / losses.cpu().double()
        apply_gradient(step, weighted_sum(gradients, self.current))
