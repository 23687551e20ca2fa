r"""Scalarization: rules of the library TorchJD that combine the losses into one scalar.

An adapter, :class:`Scalarization`, and a class for each rule. With n objectives and losses
:math:`L_i`, a rule is a scalar function of the losses, ``(objectives,)``, and the weight of a loss
is the derivative of the scalar with respect to it; gradients of heads are weighted as well. The
library is an extra, ``pip install "auxlearn[aggregation]"``: https://torchjd.org.

Cost: keeps the gradient of each objective, because the weights depend on all losses of the step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.config import Settings
from auxlearn.registry import register_weighting
from auxlearn.weighting.aggregation import require_torchjd
from auxlearn.weighting.base import TrainingStep, Weighting, apply_gradient, weighted_sum


class Scalarization(Weighting):
    """A rule of TorchJD on the losses; a subclass constructs it in :meth:`scalarizer`.

    Parameters of its own, if it has any, are learned by Adam.

    Raises:
        ConfigError: TorchJD is not installed.
    """

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._scalarizer = require_torchjd(self.name, self.scalarizer).double()
        self._learned = list(self._scalarizer.parameters())
        self._optimizer = (
            torch.optim.Adam(self._learned, self.learning_rate) if self._learned else None
        )
        self._weights = torch.ones(len(self.objectives), dtype=torch.float64)

    @abstractmethod
    def scalarizer(self) -> nn.Module:
        """Return a module that maps losses ``(objectives,)`` to a scalar."""

    @property
    def learning_rate(self) -> float:
        """Learning rate of the scalarizer's own parameters."""
        return 0.0

    @property
    def weights(self) -> Tensor:
        """Weights of the last step; 1 each before the first."""
        return self._weights.clone()

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step, and one of the scalarizer's own parameters."""
        gradients = step.gradients()
        losses = torch.stack([step.losses[name] for name in step.names]).cpu().double()
        losses.requires_grad_()
        value = self._scalarizer(losses)
        self._weights, *gradient = torch.autograd.grad(value, [losses, *self._learned])
        apply_gradient(step, weighted_sum(gradients, self._weights))
        if self._optimizer is not None:
            for parameter, grad in zip(self._learned, gradient, strict=True):
                parameter.grad = grad
            self._optimizer.step()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights of the last step, the scalarizer, and the state of its optimizer."""
        state = {"weights": self._weights}
        state |= {f"rule/{key}": value for key, value in self._scalarizer.state_dict().items()}
        for number, parameter in enumerate(self._learned):
            moments = self._optimizer.state[parameter] if self._optimizer else {}
            state |= {f"adam{number}/{key}": value for key, value in moments.items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""

        def under(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}

        self._weights = state["weights"].clone()
        self._scalarizer.load_state_dict(under("rule/"))
        for number, parameter in enumerate(self._learned):
            moments = {key: value.clone() for key, value in under(f"adam{number}/").items()}
            if moments and self._optimizer is not None:
                self._optimizer.state[parameter] = moments


@register_weighting("geometric_mean")
class GeometricMean(Scalarization):
    r"""Train on the geometric mean of the losses.

    :math:`M = (\prod_i L_i)^{1/n}`, so that the weight of loss i is :math:`M / (n L_i)`. Chennupati
    et al. 2019, "MultiNet++: Multi-Stream Feature Aggregation and Geometric Loss Strategy for
    Multi-Task Learning", https://arxiv.org/abs/1904.08492.

    The mean is over the losses above zero: a loss of exactly zero, such as one of a batch without a
    masked token, has no gradient, and would make those of all others zero. Its weight is zero.
    """

    def scalarizer(self) -> nn.Module:
        """The geometric mean of the losses above zero."""
        from torchjd.scalarization import GeometricMean as Rule

        return _OfPositive(Rule())


class _OfPositive(nn.Module):
    """A scalarizer of the losses above zero; without any, their sum."""

    def __init__(self, rule: nn.Module) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, losses: Tensor) -> Tensor:
        positive = losses[losses > 0]
        scalar: Tensor = self.rule(positive) if len(positive) else losses.sum()
        return scalar


class IMTLLOptions(Settings):
    """Options of IMTL-L."""

    learning_rate: float = Field(0.01, gt=0, description="Learning rate of Adam on log weights.")


@register_weighting("imtl_l")
class IMTLL(Scalarization):
    r"""Bring the losses to one scale by learned weights (IMTL-L).

    The parameters and the log weights :math:`s_i`, which start at 0, together minimise
    :math:`\sum_i e^{s_i} L_i - s_i`: the weight :math:`e^{s_i}` converges to :math:`1 / L_i`.
    Liu et al. 2021, "Towards Impartial Multi-task Learning",
    https://openreview.net/forum?id=IMPnRXEWpvr. The weights of ``uncertainty`` converge to half of
    these.
    """

    Options = IMTLLOptions
    options: IMTLLOptions

    @property
    def learning_rate(self) -> float:
        """Learning rate of the log weights."""
        return self.options.learning_rate

    def scalarizer(self) -> nn.Module:
        """IMTL-L with a log weight for each objective."""
        from torchjd.scalarization import IMTLL as Rule

        return Rule(len(self.objectives))
