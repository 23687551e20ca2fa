"""Gradient cosine similarity (GCS): gate auxiliary gradients by their cosine with the primary's."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from auxlearn.core.registry import register_weighting
from auxlearn.core.validation import Described
from auxlearn.weighting.base import TrainingStep
from auxlearn.weighting.mixing import GramWeighting


def gcs_gates(gram: Tensor, version: Literal["weighted", "unweighted"]) -> Tensor:
    """Return each objective's gate, ``(objectives,)``: 1 for the primary; 0 for a zero gradient."""
    norms = gram.diagonal().clamp(min=0).sqrt()
    lengths = norms * norms[0]
    cosines = torch.where(lengths > 0, gram[0] / lengths, torch.zeros_like(norms)).clamp(0, 1)
    gates = cosines if version == "weighted" else (cosines > 0).to(cosines)
    gates[0] = 1
    return gates


class GradientCosineOptions(Described):
    version: Literal["weighted", "unweighted"] = "weighted"
    """Multiply an auxiliary gradient by its cosine with the primary gradient (weighted) or by 1
    (unweighted); where the cosine is negative, by 0."""


@register_weighting("gcs")
class GradientCosine(GramWeighting):
    r"""Leave out auxiliary gradients that conflict with the primary one (Du et al. 2018).

    Du, Czarnecki, Jayakumar, Farajtabar, Pascanu and Lakshminarayanan 2018, "Adapting Auxiliary
    Losses Using Gradient Similarity", https://arxiv.org/abs/1812.02224.

    With :math:`g_0` the gradient of the primary task over the shared parameters, :math:`g_i` that
    of auxiliary task i, and :math:`c_i = \cos(g_i, g_0)`, the optimizer step is made with

    .. math:: g_0 + \sum_i \max(0, c_i) \, g_i \quad \text{or} \quad g_0 + \sum_i [c_i > 0] \, g_i,

    the weighted and the unweighted version. The sum never conflicts with the primary gradient:
    :math:`\langle g_0, g_0 + \sum_i w_i g_i \rangle \ge \lVert g_0 \rVert^2`. As in the paper,
    heads are trained on their own losses, ungated.

    Departure from the paper: it has one auxiliary task; here each of several has a gate of its own.
    """

    Options = GradientCosineOptions
    options: GradientCosineOptions

    def weigh(self, gram: Tensor, step: TrainingStep) -> Tensor:
        return gcs_gates(gram, self.options.version)
