"""How near approximate scores come to exact ones: estimators at equal numbers of masked copies.

Every figure is about texts that nothing was fitted to. An untrained language model has no
likelihoods that would be worth estimating, so ``--encoder`` is to name a trained one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from unittest.mock import patch

import torch
from scipy.stats import spearmanr
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression
from torch import Tensor

from auxlearn.data.batches import pad_token_values, unpad_token_values
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.masking import rescale_to_mean
from auxlearn.scoring import pseudo_likelihood
from auxlearn.scoring.pseudo_likelihood import pseudo_log_likelihood
from benchmarks.common import arguments, encoder_of_size, save, texts_of

PASSES = (4, 8, 16, 32)

#: Texts, scored exactly, that corrections are fitted to.
FITTED = 32

#: ``(number of a token within its text, copies)`` to the copy that scores it.
Partition = Callable[[Tensor, int], Tensor]


def main() -> None:
    """Score exactly once, then by every estimator."""
    options = arguments(
        __doc__ or "",
        texts=100,
        add=lambda parser: parser.add_argument("--max-length", type=int, default=128),
    )
    encoder = encoder_of_size(options.encoder, device=options.device)
    texts, _ = texts_of(encoder, options.dataset, options.texts, options.max_length)
    exact = pseudo_log_likelihood(encoder, texts)
    bf16 = pseudo_log_likelihood(encoder, texts, dtype=torch.bfloat16)
    counts = torch.stack([part.sum() for part in texts.maskable.split(texts.lengths.tolist())])

    @cache
    def by(partition: Partition, copies: int) -> Tensor:
        return logprobs_by(encoder, texts, partition, copies)

    results = {}
    for passes in PASSES:
        estimates = estimators(by, texts, exact, passes)
        results[str(passes)] = {
            "copies": int(counts[FITTED:].clamp(max=passes).sum()),
            "estimators": {
                name: nearness(exact, found, texts) for name, found in estimates.items()
            },
        }
        print(passes, results[str(passes)], flush=True)
    save(
        f"approximation_{Path(options.encoder).name}",
        options,
        {
            "fitted to": FITTED,
            "judged on": len(texts) - FITTED,
            "tokens": int(counts[FITTED:].sum()),
            "exact copies": int(counts[FITTED:].sum()),
            "mean of P": float(exact[judged(texts)].double().exp().mean()),
            "passes": results,
            "bf16, exact": nearness(exact, bf16, texts),
        },
    )


def stride(number: Tensor, copies: int) -> Tensor:
    """Every so many-th token: what the package does."""
    return number % copies


def diagonal(number: Tensor, copies: int) -> Tensor:
    """Other tokens together than the stride takes, and nearly as far apart."""
    return (number + number // copies) % copies


def at_random(number: Tensor, copies: int) -> Tensor:
    """Parts of equal sizes, drawn for each text."""
    draws = torch.Generator().manual_seed(0)
    first = (number == 0).cumsum(0)
    order = torch.rand(len(number), dtype=torch.float64, generator=draws)
    shuffled = (first + order).argsort()
    rank = torch.empty_like(number)
    rank[shuffled] = number  # texts stand one after the other in both orders
    return rank % copies


def logprobs_by(
    encoder: SharedEncoder, texts: TokenizedTexts, partition: Partition, copies: int
) -> Tensor:
    """Score with tokens shared out among the copies of a text in some way."""

    def turns(rows: Tensor, passes: int) -> Tensor:
        counts = rows.bincount()
        return partition(torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows], passes)

    with patch.object(pseudo_likelihood, "_turns", turns):
        return pseudo_log_likelihood(encoder, texts, passes=copies)


def estimators(
    by: Callable[[Partition, int], Tensor], texts: TokenizedTexts, exact: Tensor, passes: int
) -> dict[str, Tensor]:
    """Return log-probabilities ``(tokens,)`` by every estimator, each of ``passes`` copies.

    Args:
        by: Gives those of a partition into so many copies.
        texts: The texts.
        exact: Their exact log-probabilities, of which some may be looked at.
        passes: Copies of each text.
    """
    plain = by(stride, passes)
    half = passes // 2
    halves = [by(way, half).double() for way in (stride, diagonal)]
    where = texts.maskable
    fitted = where & ~judged(texts)
    inputs, wanted = features(texts, plain, passes), logit(exact)
    linear = LinearRegression().fit(inputs[fitted], wanted[fitted])
    steps = IsotonicRegression(out_of_bounds="clip").fit(logit(plain)[fitted], wanted[fitted])
    return {
        "stride": plain,
        "mean of two partitions": torch.stack(halves).exp().mean(0).log(),
        "random partition": by(at_random, passes),
        "stride, linear correction": log_sigmoid(linear.predict(inputs)),
        "stride, isotonic correction": log_sigmoid(steps.predict(logit(plain))),
    }


def features(texts: TokenizedTexts, plain: Tensor, passes: int) -> Tensor:
    """Return what a correction may know of each token, ``(tokens, features)``."""
    given = logit(plain)
    lengths = texts.lengths
    counts = torch.stack([part.sum() for part in texts.maskable.split(lengths.tolist())])
    together = ((counts / passes).clamp(min=1) - 1).repeat_interleave(lengths)
    share = together / counts.repeat_interleave(lengths)
    same = texts.words[1:] == texts.words[:-1]
    no = torch.zeros(1, dtype=torch.bool)
    continues, begins = torch.cat([no, same]), torch.cat([same, no])
    return torch.stack(
        [given, share, given * share, together.log1p(), continues, begins], 1
    ).double()


def logit(logprobs: Tensor) -> Tensor:
    """Log-odds of probabilities given by their logarithms."""
    logprobs = logprobs.double().clamp(max=-1e-9)
    return logprobs - torch.log(-torch.expm1(logprobs))


def log_sigmoid(log_odds: object) -> Tensor:
    """Logarithms of probabilities given by their log-odds."""
    return torch.nn.functional.logsigmoid(torch.as_tensor(log_odds))


def judged(texts: TokenizedTexts) -> Tensor:
    """Return the tokens that estimators are judged by, ``(tokens,)``, bool."""
    row = torch.arange(len(texts)).repeat_interleave(texts.lengths)
    return texts.maskable & (row >= FITTED)


def nearness(exact: Tensor, found: Tensor, texts: TokenizedTexts) -> dict[str, dict[str, float]]:
    """Compare mask probabilities 1 - P as they are, and scaled to a mean of 0.15 in each text."""
    where = judged(texts)
    pairs = {
        "1 - P": [-torch.expm1(logs.double()) for logs in (exact, found)],
        "scaled": [scaled(logs, texts) for logs in (exact, found)],
    }
    return {
        name: {
            "spearman": float(spearmanr(wanted[where], given[where]).statistic),
            "mean difference": float((wanted - given)[where].abs().mean()),
            "largest difference": float((wanted - given)[where].abs().max()),
        }
        for name, (wanted, given) in pairs.items()
    }


def scaled(logprobs: Tensor, texts: TokenizedTexts) -> Tensor:
    """Return the probabilities by which l3mask masks, ``(tokens,)``."""
    rows = torch.arange(len(texts))
    found = torch.zeros(len(logprobs), dtype=torch.float64)
    maskable = pad_token_values(texts, texts.maskable, rows, False)
    scores = -torch.expm1(pad_token_values(texts, logprobs.double(), rows, 0))
    unpad_token_values(texts, rescale_to_mean(scores * maskable, maskable, 0.15), rows, found)
    return found


if __name__ == "__main__":
    main()
