r"""What a masked-language-model head knows: its predictions of masked tokens of held-out texts.

The measure of knowing nothing but how frequent tokens are is the cross-entropy of the frequencies
in other texts, smoothed by adding one to each count:

.. math:: -\frac{1}{n} \sum_{i=1}^{n} \ln \frac{c(t_i) + 1}{N + V},

where :math:`t_i` are the n masked tokens, c counts the N maskable tokens of the other texts, and V
is the number of tokens that the head chooses from.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from auxlearn import rng
from auxlearn.data.batches import collate, eval_batches
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.devices import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.masking.corruption import choose
from auxlearn.masking.probabilities import uniform

#: Share of the tokens that are masked, as BERT was pretrained.
SHARE = 0.15


@dataclass(frozen=True)
class MaskedScores:
    """Predictions of masked tokens.

    Attributes:
        loss: Mean cross-entropy in nats; 0 if no token was masked.
        accuracy: Share of the tokens that the head predicts, from 0 to 1.
        targets: The masked tokens, ``(n,)``, on the CPU.
        vocabulary: Number of tokens that the head chooses from.
    """

    loss: float
    accuracy: float
    targets: Tensor
    vocabulary: int


def score_masked(
    encoder: SharedEncoder,
    texts: TokenizedTexts,
    batch_size: int,
    seed: int,
    *purpose: str,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> MaskedScores:
    """Mask tokens of texts and predict them without dropout, with the same masks at every call.

    Args:
        encoder: The encoder; its mode and torch's generators are left as they are.
        texts: At least one text.
        batch_size: Texts per forward pass; other masks are drawn with another one.
        seed: Seed of the masks.
        purpose: Names that identify the random stream of the masks.
        autocast: Returns the context of forward passes.
    """
    losses, hits, targets, vocabulary = [], [], [], 0
    with encoder.evaluating(), torch.inference_mode(), autocast():
        for number, examples in enumerate(eval_batches(texts, batch_size)):
            batch = collate(texts, examples)
            generator = rng.generator(seed, *purpose, number)
            positions = choose(uniform(batch.maskable, SHARE), generator)
            masked = batch.input_ids.masked_fill(positions, encoder.tokenizer.mask_token_id)
            logits = encoder.predict_tokens(replace(batch, input_ids=masked), positions)
            targets.append(batch.input_ids[positions])
            wanted = upload(targets[-1], encoder.device)
            losses.append(nn.functional.cross_entropy(logits.float(), wanted, reduction="sum"))
            hits.append((logits.argmax(-1) == wanted).sum())
            vocabulary = logits.shape[-1]
    loss, correct = (sum(torch.stack(values).tolist()) for values in (losses, hits))
    every = torch.cat(targets)
    count = max(1, len(every))
    return MaskedScores(loss / count, correct / count, every, vocabulary)


def frequency_cross_entropy(texts: TokenizedTexts, targets: Tensor, vocabulary: int) -> float:
    """Return the mean cross-entropy of tokens by their frequencies in some texts, in nats.

    Args:
        texts: Their maskable tokens are counted.
        targets: The tokens, ``(n,)``, at least one.
        vocabulary: Number of tokens that there are; one is added to the count of each.

    Examples:
        Two tokens of three are 7s, and 7 and 8 are asked for: (-ln 3/13 - ln 2/13) / 2.

        >>> ids, here = torch.tensor([7, 8, 7]), torch.ones(3, dtype=torch.bool)
        >>> texts = TokenizedTexts(ids, ids, here, torch.tensor([0, 3]), pad_id=0)
        >>> round(frequency_cross_entropy(texts, torch.tensor([7, 8]), vocabulary=10), 4)
        1.6691
    """
    counts = torch.bincount(texts.input_ids[texts.maskable], minlength=vocabulary).double() + 1
    return float((counts.sum().log() - counts[targets].log()).mean())
