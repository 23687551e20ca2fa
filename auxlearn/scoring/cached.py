"""Cached token scores: one call scores texts in shards.

Each shard is written to the cache as soon as it is scored, under a key of everything that its
scores depend on. An interrupted scoring therefore resumes at the next shard, and runs that differ
in seed, classes or training share their scores.
"""

from __future__ import annotations

import torch
from torch import Tensor

from auxlearn.core.cache import TensorCache, content_key
from auxlearn.core.processes import process_count, process_number
from auxlearn.core.progress import ProgressBar, no_progress_bar
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.scoring.forward import numerical_variant
from auxlearn.scoring.pseudo_likelihood import (
    Statistic,
    log_probability,
    pseudo_log_likelihood,
)

#: Texts of one shard, the unit of caching: the most that an interruption can cost.
SHARD_TEXTS = 256

#: Part of the cache key; raise it when a change of the code changes the scores.
SCORING_VERSION = 3


def score_texts(
    encoder: SharedEncoder,
    texts: TokenizedTexts,
    cache: TensorCache,
    *,
    passes: int | None = None,
    dtype: torch.dtype = torch.float32,
    statistic: Statistic = log_probability,
    progress: ProgressBar = no_progress_bar,
) -> Tensor:
    """Return the pseudo-log-likelihood of every maskable token, from the cache where possible, or a
    statistic of each token's prediction in its place.

    The values are in nats, ``(tokens, ...)``, float32, and zero at tokens that are not maskable;
    ``passes`` and ``dtype`` are those of
    :func:`~auxlearn.scoring.pseudo_likelihood.pseudo_log_likelihood`.
    """
    fingerprint = encoder.language_model_fingerprint()
    with progress("scoring tokens", int(texts.maskable.sum())) as advance:

        def score_shard(indices: Tensor) -> Tensor:
            shard = texts.select(indices)
            key = content_key(
                "pll-word-l2r" if statistic is log_probability else statistic.__name__,
                SCORING_VERSION,
                passes,
                numerical_variant(encoder, dtype),
                fingerprint,
                encoder.tokenizer.mask_token_id,
                shard.input_ids,
                shard.words,
                shard.maskable,
                shard.in_rows().offsets,
                "" if shard.token_type_ids is None else shard.token_type_ids,
            )
            scored = 0

            def count(tokens: int) -> None:
                nonlocal scored
                scored += tokens
                advance(tokens)

            def compute() -> dict[str, Tensor]:
                found = pseudo_log_likelihood(encoder, shard, count, passes, dtype, statistic)
                return {"logprobs": found}

            entry = cache.get(key, compute)
            advance(int(shard.maskable.sum()) - scored)  # tokens whose scores were in the cache
            return entry["logprobs"]

        shards = torch.arange(len(texts)).split(SHARD_TEXTS)
        # Processes that were started together share the cache: each scores shards of its own first.
        order = sorted(range(len(shards)), key=lambda n: (n - process_number()) % process_count())
        found = {number: score_shard(shards[number]) for number in order}
        return torch.cat([found[number] for number in range(len(shards))])
