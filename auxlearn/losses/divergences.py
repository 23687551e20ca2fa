"""Divergences of class distributions, from log-probabilities and in nats."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(p || q) of each example, ``(batch,)``.

    Args:
        log_p: Log-probabilities of p, ``(batch, classes)``.
        log_q: Log-probabilities of q, ``(batch, classes)``.
    """
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def symmetric_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return (KL(p || q) + KL(q || p)) / 2 of each example, ``(batch,)``."""
    return (kl_divergence(log_p, log_q) + kl_divergence(log_q, log_p)) / 2


def jensen_shannon(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return (KL(p || m) + KL(q || m)) / 2 of each example, m = (p + q) / 2, ``(batch,)``."""
    log_m = _log_mean(log_p, log_q)
    return (kl_divergence(log_p, log_m) + kl_divergence(log_q, log_m)) / 2


def reversed_jensen_shannon(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return (KL(m || p) + KL(m || q)) / 2 of each example, m = (p + q) / 2, ``(batch,)``.

    The released code of Cutoff and HiddenCut computes this under the name of the Jensen-Shannon
    divergence. Unlike that, it is unbounded.
    """
    log_m = _log_mean(log_p, log_q)
    return (kl_divergence(log_m, log_p) + kl_divergence(log_m, log_q)) / 2


def _log_mean(log_p: Tensor, log_q: Tensor) -> Tensor:
    return torch.logaddexp(log_p, log_q) - math.log(2)
