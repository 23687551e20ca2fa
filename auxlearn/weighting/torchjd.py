r"""Gradient aggregation and scalarization: rules of the library TorchJD, as a table of rows.

Notation: n objectives, the primary task first; :math:`g_i` the gradient of objective i over the
shared parameters; :math:`G_{ij} = \langle g_i, g_j \rangle` their Gram matrix, ``(objectives,
objectives)``. An aggregation computes weights w, ``(objectives,)``, from G, and the optimizer step
is made with :math:`d = \sum_i w_i g_i`. Heads take their own gradients unweighted. A scalarization
maps the losses :math:`L_i` to a scalar, which is differentiated.

The library is an extra, ``pip install "auxlearn[aggregation]"`` (Quinton and Rey 2024, "Jacobian
Descent for Multi-Objective Optimization", https://arxiv.org/abs/2406.16232). Where a rule departs
from its authors' code, the library's documentation says so: https://torchjd.org.

Cost of all rules: keep the gradient of each objective. Of aggregations also inner products of all
pairs, O(objectives^2 x parameters), and a small problem of the size of G.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field, create_model
from torch import Tensor, nn

from auxlearn.core import rng
from auxlearn.core.config import Settings
from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import register_weighting
from auxlearn.weighting.base import TrainingStep, Weighting, apply_gradient, under, weighted_sum
from auxlearn.weighting.gram import GramWeighting


class Row(NamedTuple):
    """A rule of the library.

    Attributes:
        name: The registered name.
        title: Name of the class.
        rule: Makes the library's module, given the library, the options and n.
        options: Field of each option.
        text: The docstring, with formula and paper.
        scaled: Whether the rule is given G divided by the mean of its diagonal. Solvers have
            absolute tolerances, and the results of most rules do not depend on the scale.
    """

    name: str
    title: str
    rule: Callable[[Any, Any, int], nn.Module]
    options: Mapping[str, Any]
    text: str
    scaled: bool = True


def _positive(rule: Callable[[Tensor], Tensor]) -> nn.Module:
    """Return a scalarizer of the losses above zero; without any, their sum."""

    class OfPositive(nn.Module):
        def forward(self, losses: Tensor) -> Tensor:
            positive = losses[losses > 0]
            return rule(positive) if len(positive) else losses.sum()

    return OfPositive()


AGGREGATIONS = (
    Row(
        "pcgrad",
        "PCGrad",
        lambda jd, _, __: jd.PCGradWeighting(),
        {},
        r"""Project each gradient onto the normal planes of those that it conflicts with (PCGrad).

    For each :math:`g_i` and all other j in random order: where their inner product is negative,
    :math:`g_i \leftarrow g_i - \langle g_i, g_j \rangle / \lVert g_j \rVert^2 \, g_j`, with the
    original :math:`g_j`; d is the sum. Yu et al. 2020, "Gradient Surgery for Multi-Task Learning",
    https://arxiv.org/abs/2001.06782.
    """,
    ),
    Row(
        "gradvac",
        "GradVac",
        lambda jd, options, _: jd.GradVacWeighting(beta=options.beta),
        {
            "beta": Field(
                0.5, ge=0, le=1, description="How fast the target cosines follow the current ones."
            )
        },
        r"""Change gradients so that their cosines are at least those of the past (GradVac).

    For each :math:`g_i` and all other j in random order, with :math:`\phi` their cosine and
    :math:`\hat\phi` its moving average over previous steps: where :math:`\phi < \hat\phi`, a
    multiple of :math:`g_j` is added to :math:`g_i` so that the cosine is :math:`\hat\phi`; d is the
    sum. Then :math:`\hat\phi \leftarrow (1 - \beta) \hat\phi + \beta \phi`. Wang et al. 2021,
    "Gradient Vaccine: Investigating and Improving Multi-task Optimization in Massively Multilingual
    Models", https://arxiv.org/abs/2010.05874. Cosines are over the whole encoder, not by tensor.
    """,
    ),
    Row(
        "cagrad",
        "CAGrad",
        lambda jd, options, _: jd.CAGradWeighting(c=options.c),
        {
            "c": Field(
                0.5,
                ge=0,
                lt=1,
                description="Largest distance of the combined gradient from the mean gradient, "
                "relative to the norm of the latter.",
            )
        },
        r"""Improve the worst objective most within a ball around the mean gradient (CAGrad).

    :math:`d = \arg\max_d \min_i \langle g_i, d \rangle` with :math:`\lVert d - \bar g \rVert \le c
    \lVert \bar g \rVert` and :math:`\bar g` the mean gradient. Liu et al. 2021, "Conflict-Averse
    Gradient Descent for Multi-task Learning", https://arxiv.org/abs/2110.14048.
    """,
    ),
    Row(
        "imtl_g",
        "IMTLG",
        lambda jd, _, __: jd.IMTLGWeighting(),
        {},
        r"""Combine gradients so that all have the same projection on the sum (IMTL-G).

    :math:`w \propto G^+ (\lVert g_1 \rVert, \dots, \lVert g_n \rVert)^\top`, with sum 1 and
    :math:`G^+` the pseudo-inverse of G. Liu et al. 2021, "Towards Impartial Multi-task Learning",
    https://openreview.net/forum?id=IMPnRXEWpvr.
    """,
    ),
    Row(
        "aligned_mtl",
        "AlignedMTL",
        lambda jd, _, __: jd.AlignedMTLWeighting(),
        {},
        r"""Align the principal components of the gradients (Aligned-MTL).

    With the eigenvectors V and eigenvalues :math:`\lambda` of G: :math:`w = \sqrt{\lambda_{min}} V
    \mathrm{diag}(\lambda)^{-1/2} V^\top (1/n, \dots, 1/n)^\top`. Senushkin et al. 2023,
    "Independent Component Alignment for Multi-Task Learning", https://arxiv.org/abs/2305.19000.
    """,
    ),
    Row(
        "fairgrad",
        "FairGrad",
        lambda jd, options, _: jd.FairGradWeighting(alpha=options.alpha),
        {
            "alpha": Field(
                2.0,
                gt=0,
                description="Fairness of the objectives' progress; 1 is Nash-MTL, large values "
                "favour the objective with the least progress.",
            )
        },
        r"""Allocate progress fairly among the objectives (FairGrad).

    :math:`G w = w^{-1/\alpha}`, the power elementwise. Ban and Ji 2024, "Fair Resource Allocation
    in Multi-Task Learning", https://arxiv.org/abs/2402.15638, equation 4.
    """,
    ),
    Row(
        "pcd",
        "PCD",
        lambda jd, options, _: jd.PCDWeighting(tau=options.tau, beta=options.beta),
        {
            "tau": Field(
                0.02,
                ge=0,
                le=1,
                description="Progress that each auxiliary task keeps, as a share of that of a step "
                "along its own gradient.",
            ),
            "beta": Field(
                0.999,
                ge=0,
                lt=1,
                description="Decay of the moving averages of squared gradient norms.",
            ),
        },
        r"""Follow the primary gradient, under constraints on auxiliary progress (PCD).

    With :math:`\tilde g_i` the gradients divided by the root of a moving average (decay
    :math:`\beta`) of their squared norms, and :math:`g_1` the primary gradient,
    :math:`\tilde d = \arg\min_d \lVert d - \tilde g_1 \rVert` subject to
    :math:`\langle \tilde g_j, d \rangle \ge \tau \lVert \tilde g_j \rVert^2` for every auxiliary
    task j; d is :math:`\tilde d` scaled to the norm of :math:`g_1`. "Not All Objectives Are Born
    Equal: Priority-Constrained Descent for Hierarchical Multi-Objective Optimization" (2026),
    https://arxiv.org/abs/2606.29521. The Gram matrix is unscaled, because of the moving average.
    """,
        scaled=False,
    ),
)

SCALARIZATIONS = (
    Row(
        "geometric_mean",
        "GeometricMean",
        lambda jd, _, __: _positive(jd.GeometricMean()),
        {},
        r"""Train on the geometric mean of the losses.

    :math:`M = (\prod_i L_i)^{1/n}`, so that the weight of loss i is :math:`M / (n L_i)`. Chennupati
    et al. 2019, "MultiNet++: Multi-Stream Feature Aggregation and Geometric Loss Strategy for
    Multi-Task Learning", https://arxiv.org/abs/1904.08492.

    The mean is over the losses above zero: a loss of exactly zero, such as one of a batch without a
    masked token, has no gradient, and would make those of all others zero. Its weight is zero.
    """,
    ),
    Row(
        "imtl_l",
        "IMTLL",
        lambda jd, _, count: jd.IMTLL(count),
        {"learning_rate": Field(0.01, gt=0, description="Learning rate of Adam on log weights.")},
        r"""Bring the losses to one scale by learned weights (IMTL-L).

    The parameters and the log weights :math:`s_i`, which start at 0, together minimise
    :math:`\sum_i e^{s_i} L_i - s_i`: the weight :math:`e^{s_i}` converges to :math:`1 / L_i`.
    Liu et al. 2021, "Towards Impartial Multi-task Learning",
    https://openreview.net/forum?id=IMPnRXEWpvr. The weights of ``uncertainty`` converge to half of
    these.
    """,
    ),
)


def _rule(module: str, row: Row, options: Settings, count: int) -> nn.Module:
    """Return the library's rule of a row; one line if the library or a solver is missing."""
    try:
        return row.rule(import_module(module), options, count)
    except ImportError as error:
        raise ConfigError(
            f"weighting '{row.name}' needs an extra that is not installed "
            f'({" ".join(str(error).split())}): pip install "auxlearn[aggregation]"'
        ) from None


class Aggregation(GramWeighting):
    """A rule of the table on the Gram matrix.

    Raises:
        ConfigError: TorchJD or a solver that the rule needs is not installed.
    """

    row: ClassVar[Row]

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._rule = _rule("torchjd.aggregation", self.row, options, len(self.objectives))

    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        """Return the library's weights."""
        if self.row.scaled:
            gram = gram / gram.diagonal().mean().clamp(min=1e-30)
        with rng.seeded(step.seed, self.name, step.number):  # some rules use a random order
            weights: Tensor = self._rule(gram)
        return weights.detach().double().cpu()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights of the last step, and the state of the library's rule."""
        return super().state_dict() | {f"rule/{k}": v for k, v in self._rule.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        if kept := under("rule/", state):
            # A rule creates its buffers when it is first called, and can load others only then.
            self._rule(torch.eye(len(self.objectives), dtype=torch.float64))
            self._rule.load_state_dict(kept)


class Scalarization(Weighting):
    """A rule of the table on the losses; its own parameters, if any, are learned by Adam.

    Raises:
        ConfigError: TorchJD is not installed.
    """

    row: ClassVar[Row]
    buffers = ("_weights",)

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        count = len(self.objectives)
        self._rule = _rule("torchjd.scalarization", self.row, options, count).double()
        self._learned = list(self._rule.parameters())
        self._optimizer = (
            torch.optim.Adam(self._learned, options.learning_rate)  # type: ignore[attr-defined]
            if self._learned
            else None
        )
        self._weights = torch.ones(count, dtype=torch.float64)

    @property
    def weights(self) -> Tensor:
        """Weights of the last step; 1 each before the first."""
        return self._weights.clone()

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step, and one of the rule's own parameters."""
        gradients = step.gradients()
        losses = torch.stack([step.losses[name] for name in step.names]).cpu().double()
        losses.requires_grad_()
        value = self._rule(losses)
        self._weights, *gradient = torch.autograd.grad(value, [losses, *self._learned])
        apply_gradient(step, weighted_sum(gradients, self._weights))
        if self._optimizer is not None:
            for parameter, grad in zip(self._learned, gradient, strict=True):
                parameter.grad = grad
            self._optimizer.step()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights of the last step, the rule, and the state of its optimizer."""
        state = super().state_dict()
        state |= {f"rule/{key}": value for key, value in self._rule.state_dict().items()}
        for number, parameter in enumerate(self._learned):
            moments = self._optimizer.state[parameter] if self._optimizer else {}
            state |= {f"adam{number}/{key}": value for key, value in moments.items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self._rule.load_state_dict(under("rule/", state))
        for number, parameter in enumerate(self._learned):
            moments = under(f"adam{number}/", state)
            if moments and self._optimizer is not None:
                self._optimizer.state[parameter] = moments


def _register(row: Row, base: type[Weighting]) -> None:
    """Make the class of a row and its options, and register it."""
    fields: dict[str, Any] = {name: (float, field) for name, field in row.options.items()}
    options = create_model(
        f"{row.title}Options",
        __base__=Settings,
        __doc__=f"Options of {row.title}.",
        __module__=__name__,
        **fields,
    )
    body = {"__doc__": row.text, "__module__": __name__, "row": row, "Options": options}
    register_weighting(row.name)(type(row.title, (base,), body))


for _base, _rows in ((Aggregation, AGGREGATIONS), (Scalarization, SCALARIZATIONS)):
    for _row in _rows:
        _register(_row, _base)
