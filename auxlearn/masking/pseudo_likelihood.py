"""Pseudo-likelihood of each token: the probability a masked language model gives it.

PLL-word-l2r (Kauf and Ivanova 2023; L3Masking, eq. 1 and 2): to score a token, the token itself
and the later tokens of its word are masked, and the probability is read at the token.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from auxlearn.data.batches import Batch
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder

#: Tokens of masked copies that go through the encoder at once. About this many keep two CPU cores
#: busy without leaving their caches; a GPU takes many more.
TOKEN_BUDGET = {"cpu": 4096, "cuda": 131_072}


def masked_copy(words: Tensor, target: Tensor) -> Tensor:
    """Say what is masked in the copies of a text in which one token each is scored.

    Args:
        words: Word number of each token, ``(copies, length)``; -1 for special tokens.
        target: Position scored in each copy, ``(copies,)``.

    Returns:
        ``(copies, length)``, bool: the target and the later tokens of its word.
    """
    word = words.gather(1, target[:, None])
    position = torch.arange(words.shape[1], device=words.device)
    return (words == word) & (position >= target[:, None])


def score(
    encoder: SharedEncoder,
    texts: TokenizedTexts,
    advance: Callable[[int], None] = lambda tokens: None,
) -> Tensor:
    """Score every maskable token of some texts with the encoder as it is.

    One masked copy of its text is run for each token. Copies of equal length are run together, so
    that nothing is padding, and the output layer is applied at the scored position only.

    Args:
        encoder: The untouched encoder; left as it was, dropout included.
        texts: The texts.
        advance: Called with the number of tokens scored since the last call.

    Returns:
        Log-probabilities, ``(tokens,)``, float32, in natural logarithms; zero at tokens that are
        not maskable.
    """
    scores = torch.zeros(len(texts.input_ids), dtype=torch.float32)
    device = encoder.device
    budget = TOKEN_BUDGET[device.type]
    targets = texts.maskable.nonzero().squeeze(1)
    rows = torch.bucketize(targets, texts.offsets, right=True) - 1
    lengths = texts.lengths[rows]
    by_length = lengths.argsort(stable=True)
    with encoder.evaluating(), torch.inference_mode():
        for same in _runs(lengths[by_length]):
            members = by_length[same]
            length = int(lengths[members[0]])
            for part in members.split(max(1, budget // length)):
                start = texts.offsets[rows[part]]
                position = targets[part] - start
                window = start[:, None] + torch.arange(length)
                target_ids = texts.input_ids[targets[part]].long()
                hidden = masked_copy(texts.words[window], position)
                batch = _copies(texts, window, hidden, encoder.tokenizer.mask_token_id)
                at_target = torch.zeros_like(hidden)
                at_target[torch.arange(len(part)), position] = True
                logits = encoder.predict_tokens(batch.to(device), at_target.to(device))
                logprobs = logits.float().log_softmax(-1)
                picked = logprobs.gather(1, target_ids.to(device)[:, None])
                scores[targets[part]] = picked.squeeze(1).cpu()
                advance(len(part))
    return scores


def _runs(sorted_values: Tensor) -> list[slice]:
    """Slices of equal values in a sorted vector."""
    _, counts = sorted_values.unique_consecutive(return_counts=True)
    ends = counts.cumsum(0).tolist()
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _copies(texts: TokenizedTexts, window: Tensor, hidden: Tensor, mask_id: int) -> Batch:
    ids = texts.input_ids[window].long()
    types = texts.token_type_ids
    return Batch(
        input_ids=ids.masked_fill(hidden, mask_id),
        attention_mask=torch.ones_like(ids),
        maskable=texts.maskable[window],
        words=texts.words[window].long(),
        rows=window[:, 0],
        token_type_ids=None if types is None else types[window].long(),
    )
