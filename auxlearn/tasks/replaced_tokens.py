"""Replaced-token detection: which tokens of a text has a language model replaced?"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.registry import register_task
from auxlearn.core.validation import Described
from auxlearn.data.batches import Batch
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import choose, ordinary_ids, uniform
from auxlearn.objectives.perturbation import perturb
from auxlearn.tasks.base import CORPUS, AuxiliaryTask


class ReplacedTokensOptions(Described):
    probability: float = Field(0.15, gt=0, le=1)
    """Probability of each token to be masked and replaced."""

    generator_weight: float = Field(0.02, ge=0)
    """Weight of the generator's masked language modelling within the loss; 0.02 is the ratio of the
    paper, 1 to 50."""

    temperature: float = Field(1.0, gt=0)
    """Softmax temperature of the sampled replacements."""

    corpus: str | None = CORPUS


@register_task("replaced_tokens")
class ReplacedTokens(AuxiliaryTask):
    """Detect the tokens that the encoder's own language-model head has replaced.

    Clark et al. 2020, `ELECTRA <https://arxiv.org/abs/2003.10555>`_, section 2. Tokens are masked
    and replaced by samples from the language model; a head of its own says of every token whether
    it was replaced. A sample that is the original token counts as original. The loss is the binary
    cross-entropy per token plus ``generator_weight`` times the language model's cross-entropy, in
    nats; no gradient flows through the sampled tokens.

    It departs from the paper and its released code (google-research/electra) in these points:

    * The generator is the shared encoder itself, not a smaller model.
    * The sum of the two losses is divided by the paper's weight of 50 on the detection, so that it
      is of the size of other losses. The generator's loss is divided by the expected number of
      masked tokens instead of their number, so that micro-batches add up to the whole batch.
    * The detection is averaged over the tokens that may be masked; there, over all tokens but
      padding, special ones included, which are never replaced.
    * Each token is chosen independently, with ``probability``; there, round(0.15 n) of the n tokens
      of a text are, at least one.
    * Every chosen token is masked for the generator; there, in the released code, 85% of them are,
      and the others stay as they are.
    * Special tokens are never sampled, except that of unknown words; there, any token may be.
    """

    Options = ReplacedTokensOptions
    options: ReplacedTokensOptions

    def prepare(self, context: ObjectiveContext) -> None:
        context.encoder.require_language_model(self.name)
        self.texts = context.texts_of(self.options.corpus)
        encoder, size = context.encoder, context.encoder.hidden_size
        self.allowed = upload(ordinary_ids(encoder.tokenizer, unknown=True), encoder.device)
        self.head = context.add_head(
            "detector", lambda: nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, 1))
        )

    def items(self, batch: Batch, generator: torch.Generator) -> int:
        return int(batch.maskable.sum())

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        options = self.options
        perturbation = perturb(
            encoder,
            batch,
            options.probability,
            self.allowed,
            options.temperature,
            generator,
            lambda maskable, share, source: choose(uniform(maskable, share), source),
        )
        places = batch.maskable.flatten().nonzero().squeeze(1)
        tokens = max(1, len(places))
        hidden = encoder.encode(perturbation.batch).last_hidden_state.flatten(0, 1)
        judged = hidden.index_select(0, upload(places, hidden.device))
        logits = encoder.apply_head(self.head, judged)
        replaced = (perturbation.batch.input_ids != batch.input_ids)[batch.maskable]
        detection = nn.functional.binary_cross_entropy_with_logits(
            logits.squeeze(-1), upload(replaced, logits.device).to(logits), reduction="sum"
        )
        originals = upload(batch.input_ids[perturbation.chosen], logits.device)
        generation = nn.functional.cross_entropy(perturbation.logits, originals, reduction="sum")
        return (detection + options.generator_weight / options.probability * generation) / tokens
