"""Pseudo-likelihood of each token: its probability under a masked language model.

PLL-word-l2r (Kauf and Ivanova 2023, https://arxiv.org/abs/2305.10588; L3Masking,
https://aclanthology.org/2024.customnlp4u-1.6, eq. 1 and 2): to score a token, the token and the
later tokens of its word are masked, and the probability of the token is read at its position.

Exact scores of a text of ``n`` tokens need ``n`` masked copies of it. The approximation by ``k``
passes needs ``k`` copies: copy ``i`` masks the tokens ``i``, ``i + k``, ``i + 2k`` and so on, each
with the rest of its word, and scores all of them. Of all ways to distribute the tokens over ``k``
copies, this one maximises the distance between tokens that are masked together.

Scores are cached in shards, so that an interrupted scoring resumes at the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from auxlearn.core.cache import TensorCache, content_key
from auxlearn.core.errors import EncoderError
from auxlearn.core.processes import process_count, process_number
from auxlearn.core.progress import ProgressBar, no_progress_bar
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.scoring.forward import ScoringPass, UnpaddedBatch, numerical_variant, scoring_pass

#: Maximum number of packed tokens per forward pass. A CPU gains nothing from more; a GPU needs many
#: more. It is a constant, not measured on each machine, because the rounding of results depends on
#: it.
TOKEN_BUDGET = {"cpu": 4096, "gpu": 131_072}

#: States per call of the output layer.
HEAD_ROWS = 256

#: Maximum number of token ids among which equal copies are searched for at once.
CHUNK_TOKENS = 1 << 22


#: Texts of one shard, the unit of caching: the most that an interruption can cost.
SHARD_TEXTS = 256

#: Part of the cache key; raise it when a change of the code changes the scores.
SCORING_VERSION = 3


def budget_key(device_type: str) -> str:
    """Return the key of :data:`TOKEN_BUDGET` for a type of device."""
    return "cpu" if device_type == "cpu" else "gpu"


def masked_copies(words: Tensor, targets: Tensor) -> Tensor:
    """Return the masked tokens of copies, bool: targets and the later tokens of their words."""
    position = torch.arange(words.shape[1])
    latest = torch.where(targets, position, -1).cummax(1).values
    return (latest >= 0) & (words == words.gather(1, latest.clamp(min=0)))


#: What is kept of the logits at a scored token: from logits ``(n, vocabulary)`` and the tokens that
#: are there ``(n,)`` to statistics ``(n, ...)``.
Statistic = Callable[[Tensor, Tensor], Tensor]


def log_probability(logits: Tensor, token_ids: Tensor) -> Tensor:
    """Return the log-softmax of logits ``(n, vocabulary)`` at one token each, ``(n,)``, in nats."""
    chosen = logits.gather(1, upload(token_ids, logits.device)[:, None]).squeeze(1)
    return (chosen - logits.logsumexp(-1)).float()


def log_probability_and_entropy(logits: Tensor, token_ids: Tensor) -> Tensor:
    """Return log-probability of a token and entropy of its prediction, in nats, ``(n, 2)``."""
    log_p = logits.log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    return torch.stack([log_probability(logits, token_ids), entropy.float()], 1)


def pseudo_log_likelihood(
    encoder: SharedEncoder,
    texts: TokenizedTexts,
    advance: Callable[[int], None] = lambda tokens: None,
    passes: int | None = None,
    dtype: torch.dtype = torch.float32,
    statistic: Statistic = log_probability,
) -> Tensor:
    """Return the pseudo-log-likelihood of every maskable token, computed without dropout, or a
    statistic of its prediction: ``(tokens, ...)``, float32, zero at all other tokens.

    Masked copies are sorted by length and packed without padding; of a text there are ``passes``,
    or one per token, which is exact. Equal copies, of equal texts or of texts that differ in the
    masked word only, are computed once. Each window of a text is scored as a text of its own.
    """
    texts = texts.in_rows()
    with encoder.evaluating(), torch.inference_mode():
        forward = scoring_pass(encoder, dtype)
        body = _Body(forward, TOKEN_BUDGET[budget_key(encoder.device.type)])
        states: list[Tensor] = []
        tokens: list[Tensor] = []
        scored: list[tuple[Tensor, Tensor]] = []
        for batch in body.batches(_masked_copies(texts, passes, encoder.tokenizer.mask_token_id)):
            states.append(body.states(batch))
            tokens += [copies.tokens for copies in batch]
            advance(len(states[-1]))
            if sum(map(len, states)) >= HEAD_ROWS:
                scored += _apply_head(forward, texts, states, tokens, statistic)
        scored += _apply_head(forward, texts, states, tokens, statistic)
    if not scored:
        example = statistic(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))  # for its shape
        return torch.zeros(len(texts.input_ids), *example.shape[1:])
    positions, values = zip(*scored, strict=True)
    joined = torch.cat(values).cpu()  # the only synchronisation
    scores = joined.new_zeros(len(texts.input_ids), *joined.shape[1:])
    scores[torch.cat(positions)] = joined
    return scores


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
    """Return :func:`pseudo_log_likelihood`, ``(tokens, ...)``, from the cache where possible."""
    fingerprint = encoder.language_model_fingerprint()
    with progress("scores of tokens", int(texts.maskable.sum())) as advance:  # cached ones as well
        done: set[int] = set()

        def score_shard(number: int) -> Tensor:
            shard = texts.select(shards[number])
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
                scores = pseudo_log_likelihood(encoder, shard, count, passes, dtype, statistic)
                return {"logprobs": scores}

            entry = cache.get(key, compute)
            if number not in done:  # tokens whose scores were in the cache
                advance(int(shard.maskable.sum()) - scored)
            done.add(number)
            return entry["logprobs"]

        shards = torch.arange(len(texts)).split(SHARD_TEXTS)
        # Processes that were started together share the cache: each scores shards of its own first.
        if process_count() > 1:
            for number in range(process_number(), len(shards), process_count()):
                score_shard(number)
        return cache.joined(map(score_shard, range(len(shards))))


def _apply_head(
    forward: ScoringPass,
    texts: TokenizedTexts,
    states: list[Tensor],
    tokens: list[Tensor],
    statistic: Statistic,
) -> list[tuple[Tensor, Tensor]]:
    """Return positions with the statistics of the collected states, and clear both lists."""
    scored = []
    if states:
        for chunk, positions in zip(
            torch.cat(states).split(HEAD_ROWS), torch.cat(tokens).split(HEAD_ROWS), strict=True
        ):
            token_ids = texts.input_ids[positions].long()
            scored.append((positions, statistic(forward.logits(chunk), token_ids)))
    states.clear()
    tokens.clear()
    return scored


@dataclass(frozen=True)
class _Copies:
    """Distinct masked copies of one length, and their targets."""

    inputs: UnpaddedBatch
    #: Positions in the flat arrays of the tokens they score, ``(n,)``, sorted by copy.
    tokens: Tensor
    copy: Tensor  # index of the copy that scores each token, ``(n,)``
    position: Tensor  # position within the copy of each token, ``(n,)``

    def select(self, start: int, stop: int) -> _Copies:
        first, last = torch.searchsorted(self.copy, torch.tensor([start, stop])).tolist()
        types = self.inputs.token_type_ids
        return _Copies(
            UnpaddedBatch(
                self.inputs.input_ids[start:stop],
                self.inputs.targets[start:stop],
                None if types is None else types[start:stop],
            ),
            self.tokens[first:last],
            self.copy[first:last] - start,
            self.position[first:last],
        )

    def state_of_token(self) -> Tensor:
        """Return the index, among the states of the targets, of each token's state, ``(n,)``."""
        number = self.inputs.targets.flatten().cumsum(0) - 1
        return number[self.copy * self.inputs.targets.shape[1] + self.position]


def _masked_copies(texts: TokenizedTexts, passes: int | None, mask_id: int) -> Iterator[_Copies]:
    """Yield the masked copies of texts, shortest first, in chunks of bounded size."""
    tokens = texts.maskable.nonzero().squeeze(1)
    if len(tokens) == 0:
        return
    rows = torch.bucketize(tokens, texts.offsets, right=True) - 1
    turn = _turns(rows, passes)
    # Copies are sorted by the length of their texts; a copy is identified by text and turn.
    longest = int(texts.lengths.max())
    order = ((texts.lengths[rows] * len(texts) + rows) * longest + turn).argsort(stable=True)
    tokens, rows, turn = tokens[order], rows[order], turn[order]
    _, copy = (rows * longest + turn).unique_consecutive(return_inverse=True)
    lengths = texts.lengths[rows]
    for same in _runs(lengths):
        length = int(lengths[same.start])
        first, last = int(copy[same.start]), int(copy[same.stop - 1]) + 1
        step = max(1, CHUNK_TOKENS // length)
        for start in range(first, last, step):
            ends = torch.searchsorted(copy, torch.tensor([start, min(start + step, last)]))
            chunk = slice(*ends.tolist())
            yield _distinct_copies(
                texts, tokens[chunk], rows[chunk], copy[chunk] - start, length, mask_id
            )


def _turns(rows: Tensor, passes: int | None) -> Tensor:
    """Return the index, within its text, of the copy that scores each token; rows ascend."""
    counts = rows.bincount()
    number = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
    return number if passes is None else number % passes


def _distinct_copies(
    texts: TokenizedTexts, tokens: Tensor, rows: Tensor, copy: Tensor, length: int, mask_id: int
) -> _Copies:
    """Return the distinct copies that score some tokens of texts of one length."""
    first_of_copy = torch.searchsorted(copy, torch.arange(int(copy[-1]) + 1))
    window = texts.offsets[rows[first_of_copy]][:, None] + torch.arange(length)
    position = tokens - texts.offsets[rows]
    targets = torch.zeros(window.shape, dtype=torch.bool)
    targets[copy, position] = True
    ids = texts.input_ids[window]
    ids = ids.masked_fill(masked_copies(texts.words[window], targets), mask_id)
    types = texts.token_type_ids
    whole = ids if types is None else torch.cat([ids, types[window].int()], 1)
    distinct, which = whole.unique(dim=0, return_inverse=True)
    copy = which[copy]
    targets = torch.zeros(len(distinct), length, dtype=torch.bool)
    targets[copy, position] = True
    by_copy = copy.argsort(stable=True)
    return _Copies(
        UnpaddedBatch(
            distinct[:, :length].long(),
            targets,
            None if types is None else distinct[:, length:].long(),
        ),
        tokens[by_copy],
        copy[by_copy],
        position[by_copy],
    )


def _runs(sorted_values: Tensor) -> list[slice]:
    """Return the slices of equal values in a sorted vector."""
    _, counts = sorted_values.unique_consecutive(return_counts=True)
    ends = counts.cumsum(0).tolist()
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


class _Body:
    """Computes states of copies in batches of ``budget`` tokens; out of memory, it is halved."""

    def __init__(self, forward: ScoringPass, budget: int) -> None:
        self._forward = forward
        self._budget = budget

    def batches(self, chunks: Iterator[_Copies]) -> Iterator[list[_Copies]]:
        """Group copies into batches of as many tokens as the budget allows, at least one copy."""
        batch: list[_Copies] = []
        room = self._budget
        for copies in chunks:
            total, length = copies.inputs.input_ids.shape
            start = 0
            while start < total:
                if batch and room < length:
                    yield batch
                    batch, room = [], self._budget
                stop = min(total, start + max(1, room // length))
                batch.append(copies.select(start, stop))
                room -= (stop - start) * length
                start = stop
        if batch:
            yield batch

    def states(self, batch: list[_Copies]) -> Tensor:
        """Return the state for each token that a batch scores, in the order of its tokens."""
        states = self._try(batch)
        if states is None:
            # Outside an except clause, where the exception would keep the failed attempt's tensors.
            return torch.cat([self.states(smaller) for smaller in self.batches(iter(batch))])
        in_order = []
        for copies in batch:
            count = int(copies.inputs.targets.sum())
            index = upload(copies.state_of_token(), states.device)
            in_order.append(states[:count].index_select(0, index))
            states = states[count:]
        return torch.cat(in_order)

    def _try(self, batch: list[_Copies]) -> Tensor | None:
        """Return the states of a batch; out of memory, halve the budget and return ``None``."""
        inputs = [copies.inputs for copies in batch]
        try:
            return self._forward.states(inputs)
        except torch.OutOfMemoryError as error:
            if sum(len(copies.input_ids) for copies in inputs) == 1:
                raise EncoderError(
                    "the device does not have the memory to score one text of "
                    f"{inputs[0].input_ids.shape[1]} tokens: use --device cpu or a smaller "
                    "--max-length"
                ) from error
            self._budget = sum(copies.input_ids.numel() for copies in inputs) // 2
            return None
