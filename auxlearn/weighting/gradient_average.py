r"""Moving average of gradients, or of what an objective adds to the parameters, over steps.

The gradient of a few batches is mostly noise. Parameters change little from one step to the next,
so that an average over steps has far less noise at the price of a small lag, and costs no further
pass. With decay :math:`\beta` and the gradients :math:`v_1, \dots, v_t`,

.. math:: \bar v_t = \frac{1 - \beta}{1 - \beta^t} \sum_{s=1}^{t} \beta^{t-s} v_s,

the first moment of Adam with its bias correction (Kingma and Ba 2015, algorithm 1,
https://arxiv.org/abs/1412.6980).
"""

from __future__ import annotations

import torch
from torch import Tensor

from auxlearn.weighting.base import Gradient


class GradientAverage:
    """The bias-corrected moving average of gradients, or of steps.

    Memory: one copy of the parameters that have a gradient; none if ``decay`` is 0.

    Args:
        decay: :math:`\\beta`, from 0 (the last gradient alone) to less than 1.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self._count = 0
        self._sums: dict[int, Tensor] = {}

    def update(self, gradient: Gradient) -> Gradient:
        """Add a gradient, and return the average.

        Args:
            gradient: One tensor by parameter; ``None`` for a parameter without gradient, which
                counts as zero once there has been one.
        """
        if not self.decay:
            return gradient
        self._count += 1
        correction = 1 - self.decay**self._count
        given = {number: part for number, part in enumerate(gradient) if part is not None}
        average: Gradient = [None] * len(gradient)
        with torch.no_grad():
            if given:  # the sums of a resumed run are on the CPU
                device = next(iter(given.values())).device
                self._sums = {number: total.to(device) for number, total in self._sums.items()}
            self._sums |= {
                number: torch.zeros_like(part)
                for number, part in given.items()
                if number not in self._sums
            }
            # One operation for all parameters, not one for each.
            if given:
                sums = [self._sums[number] for number in given]
                torch._foreach_lerp_(sums, list(given.values()), 1 - self.decay)
            if without := [total for number, total in self._sums.items() if number not in given]:
                torch._foreach_mul_(without, self.decay)
            if self._sums:
                found = torch._foreach_div(list(self._sums.values()), correction)
                for number, mean in zip(self._sums, found, strict=True):
                    average[number] = mean
        return average

    def state_dict(self) -> dict[str, Tensor]:
        """Return the sums by number of the parameter, and how many gradients they hold."""
        if not self._count:
            return {}
        sums = {str(number): total for number, total in self._sums.items()}
        return sums | {"count": torch.tensor(self._count)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._count = int(state.get("count", 0))
        self._sums = {
            int(number): total.clone() for number, total in state.items() if number != "count"
        }
