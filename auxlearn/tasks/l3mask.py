"""L3Masking: mask what the untouched encoder finds unlikely.

Kimura, Komamizu and Hatano 2024, "L3Masking: Multi-task Fine-tuning for Language Models by
Leveraging Lessons Learned from Vanilla Models".
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.cache import TensorCache, content_key
from auxlearn.data.batches import Batch, flatten_rows, pad_rows
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.masking.probabilities import rescale_to_mean
from auxlearn.registry import register_task
from auxlearn.scoring.forward import scoring_route
from auxlearn.scoring.pseudo_likelihood import score
from auxlearn.scoring.replicas import devices_beside, share_out
from auxlearn.tasks.base import MaskedLanguageModelling, MaskingOptions, TaskContext

#: Texts scored between two writes to the cache: what a kill can cost.
SHARD = 256

#: Part of the cache key; raise it when scoring changes its results.
SCORING = 3


class L3MaskOptions(MaskingOptions):
    """Settings of L3Masking."""

    score: Literal["complement", "surprisal"] = Field(
        "complement",
        description="complement: 1 - P, the paper; surprisal: -log P, as the authors' code has it.",
    )
    passes: int | None = Field(
        None,
        ge=2,
        description="Masked copies of each text when scoring; by default one for each token, which "
        "is exact. 4 to 16 are quicker and approximate; 8 suits large corpora.",
    )
    precision: Literal["fp32", "bf16"] = Field(
        "fp32", description="What the encoder computes the scores in."
    )


@register_task("l3mask")
class L3Mask(MaskedLanguageModelling):
    """Mask a token the more often, the less likely the untouched encoder finds it.

    Before training, each token is scored once by its pseudo-likelihood P (eq. 1 and 2). Its mask
    probability is 1 - P (eq. 3), scaled so that the mean over the text is 0.15 (eq. 4).

    The authors' released code differs: it scales surprisal, -log P (``score: surprisal`` here). Its
    min-max scaling before eq. 4 is without effect, because the zeros of the special tokens are its
    minimum and a common factor leaves eq. 4 as it is. It also clips before it spreads the excess,
    so that the mean falls below 0.15 where a probability exceeds 1; it scores every text again in
    every batch; and it falls back to random masking after any error. These three are not offered.
    """

    Options = L3MaskOptions
    options: L3MaskOptions

    def prepare(self, context: TaskContext) -> None:
        """Score the texts with the untouched encoder, or fetch the scores from the cache."""
        super().prepare(context)
        logprobs = _cached_scores(context, self.texts, self.options)
        self.probabilities = self._convert(logprobs)

    def mask_probabilities(self, batch: Batch) -> Tensor:
        """Return the probabilities that the tokens of these rows were given."""
        return pad_rows(self.texts, self.probabilities, batch.rows, 0)

    def _convert(self, logprobs: Tensor) -> Tensor:
        """Turn log-probabilities ``(tokens,)`` into mask probabilities ``(tokens,)``."""
        texts = self.texts
        converted = torch.zeros(len(logprobs), dtype=torch.float64)
        for rows in torch.arange(len(texts)).split(SHARD):
            maskable = pad_rows(texts, texts.maskable, rows, False)
            logs = pad_rows(texts, logprobs.double(), rows, 0)
            scores = -torch.expm1(logs) if self.options.score == "complement" else -logs
            probabilities = rescale_to_mean(scores, maskable, self.options.probability)
            flatten_rows(texts, probabilities, rows, converted)
        return converted


def _cached_scores(context: TaskContext, texts: TokenizedTexts, options: L3MaskOptions) -> Tensor:
    """Score in shards, each of which is kept as soon as it is made; all GPUs take part."""
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    vanilla = context.encoder.language_model_fingerprint()
    mask_id = context.encoder.tokenizer.mask_token_id
    one_at_a_time = Lock()

    with context.progress("scoring tokens", int(texts.maskable.sum())) as advance:

        def count(tokens: int) -> None:
            with one_at_a_time:
                advance(tokens)

        def scores(encoder: SharedEncoder, rows: Tensor) -> Tensor:
            shard = texts.select(rows)
            key = content_key(
                "pll-word-l2r",
                SCORING,
                options.passes,
                scoring_route(encoder, dtype),
                vanilla,
                mask_id,
                shard.input_ids,
                shard.words,
                shard.maskable,
                shard.offsets,
                "" if shard.token_type_ids is None else shard.token_type_ids,
            )
            return _shard_scores(
                context.cache,
                shard,
                key,
                lambda done: score(encoder, shard, done, options.passes, dtype),
                count,
            )

        shards = torch.arange(len(texts)).split(SHARD)
        devices = devices_beside(context.encoder)
        return torch.cat(share_out(context.encoder, devices, scores, shards))


def _shard_scores(
    cache: TensorCache,
    shard: TokenizedTexts,
    key: str,
    make: Callable[[Callable[[int], None]], Tensor],
    advance: Callable[[int], None],
) -> Tensor:
    scored = 0

    def count(tokens: int) -> None:
        nonlocal scored
        scored += tokens
        advance(tokens)

    made = cache.get(key, lambda: {"logprobs": make(count)})
    advance(int(shard.maskable.sum()) - scored)  # what came from the cache is done as well
    return made["logprobs"]
