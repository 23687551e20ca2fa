r"""Rules that combine losses, from the library TorchJD.

One thin adapter, :class:`Scalarization`, and a class for each rule. With n objectives and losses
:math:`L_i`, a rule is a scalar of the losses, ``(objectives,)``, and the weight of a loss is the
derivative by it; heads are weighed as well. The library is an extra: ``pip install
"auxlearn[aggregation]"``.

Cost: the gradient of each objective is kept, because the weights depend on all losses of the step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.config import Settings
from auxlearn.registry import register_weighting
from auxlearn.weighting.aggregation import made
from auxlearn.weighting.base import TrainingStep, Weighting, apply, mix


class Scalarization(Weighting):
    """A rule of TorchJD on the losses: a subclass names it in :meth:`scalarizer`.

    Its own parameters, if it has any, are moved by Adam.

    Raises:
        ConfigError: TorchJD is not installed.
    """

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._scalarizer = made(self.name, self.scalarizer).double()
        self._learned = list(self._scalarizer.parameters())
        self._optimizer = torch.optim.Adam(self._learned, self.rate) if self._learned else None
        self._weights = torch.ones(len(self.objectives), dtype=torch.float64)

    @abstractmethod
    def scalarizer(self) -> nn.Module:
        """Return what turns losses ``(objectives,)`` into a scalar."""

    @property
    def rate(self) -> float:
        """Learning rate of the scalarizer's own parameters."""
        return 0.0

    @property
    def weights(self) -> Tensor:
        """The weights of the last step; 1 each before the first."""
        return self._weights.clone()

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step, and move the scalarizer's own parameters."""
        gradients = step.gradients()
        losses = torch.stack([step.losses[name] for name in step.names]).cpu().double()
        losses.requires_grad_()
        value = self._scalarizer(losses)
        self._weights, *slopes = torch.autograd.grad(value, [losses, *self._learned])
        apply(step, mix(gradients, self._weights))
        if self._optimizer is not None:
            for parameter, slope in zip(self._learned, slopes, strict=True):
                parameter.grad = slope
            self._optimizer.step()

    def state_dict(self) -> dict[str, Tensor]:
        """The weights of the last step, the scalarizer, and the state of its optimizer."""
        state = {"weights": self._weights}
        state |= {f"rule/{key}": value for key, value in self._scalarizer.state_dict().items()}
        for number, parameter in enumerate(self._learned):
            moments = self._optimizer.state[parameter] if self._optimizer else {}
            state |= {f"adam{number}/{key}": value for key, value in moments.items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""

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
    r"""Train on the geometric mean of the losses (Chennupati et al. 2019).

    :math:`(\prod_i L_i)^{1/n}`, so that the weight of a loss is the mean over n times the loss.
    "MultiNet++: Multi-Stream Feature Aggregation and Geometric Loss Strategy for Multi-Task
    Learning", https://arxiv.org/abs/1904.08492.
    """

    def scalarizer(self) -> nn.Module:
        """The geometric mean."""
        from torchjd.scalarization import GeometricMean as Rule

        return Rule()


class IMTLLOptions(Settings):
    """Settings of IMTL-L."""

    learning_rate: float = Field(0.01, gt=0, description="Learning rate of Adam on log weights.")


@register_weighting("imtl_l")
class IMTLL(Scalarization):
    r"""Bring losses to one scale by learned factors (Liu et al. 2021, IMTL).

    :math:`\sum_i e^{s_i} L_i - s_i` is minimised in the parameters and in every s, which starts at
    0: the weight :math:`e^{s_i}` tends to :math:`1 / L_i`. "Towards Impartial Multi-task Learning",
    https://openreview.net/forum?id=IMPnRXEWpvr. The minimum of ``uncertainty`` is at half these
    weights.
    """

    Options = IMTLLOptions
    options: IMTLLOptions

    @property
    def rate(self) -> float:
        """Learning rate of the log weights."""
        return self.options.learning_rate

    def scalarizer(self) -> nn.Module:
        """IMTL-L with a factor for each objective."""
        from torchjd.scalarization import IMTLL as Rule

        return Rule(len(self.objectives))
