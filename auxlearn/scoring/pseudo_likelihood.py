"""Pseudo-likelihood of each token: the probability a masked language model gives it.

PLL-word-l2r (Kauf and Ivanova 2023; L3Masking, eq. 1 and 2): to score a token, the token itself
and the later tokens of its word are masked, and the probability is read at the token.

Exactly, a text of ``n`` tokens takes ``n`` masked copies of itself. A fixed number of passes takes
fewer: copy ``i`` of ``k`` masks the tokens ``i``, ``i + k``, ``i + 2k`` and so on, each with the
rest of its word, and is read at all of them. Of all ways to share the tokens out among ``k``
copies this keeps those that are masked together farthest apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from auxlearn.data.tokens import TokenizedTexts
from auxlearn.devices import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.errors import EncoderError
from auxlearn.scoring.forward import Block, ScoringPass, scoring_pass

#: Tokens of masked copies that go through the layers at once. More than this gains nothing on a
#: CPU; a GPU wants many more. It is not measured anew on each machine, because results would then
#: depend, in their last digits, on the clock.
TOKEN_BUDGET = {"cpu": 4096, "gpu": 131_072}

#: States that go through the output layer at once.
HEAD_ROWS = 256

#: Token ids of masked copies that are laid out at once, to find equal copies among them.
LAYOUT = 1 << 22


def masked_copies(words: Tensor, targets: Tensor) -> Tensor:
    """Say what is masked in copies of texts that are read at their targets.

    Args:
        words: Word number of each token, ``(copies, length)``; -1 for special tokens.
        targets: Where each copy is read, ``(copies, length)``, bool.

    Returns:
        ``(copies, length)``, bool: the targets, each with the later tokens of its word.
    """
    position = torch.arange(words.shape[1])
    latest = torch.where(targets, position, -1).cummax(1).values
    return (latest >= 0) & (words == words.gather(1, latest.clamp(min=0)))


def pseudo_log_likelihood(
    encoder: SharedEncoder,
    texts: TokenizedTexts,
    advance: Callable[[int], None] = lambda tokens: None,
    passes: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Score every maskable token of some texts with the encoder as it is.

    Copies are sorted by length and laid end to end, so that nothing is padding. Equal copies, of
    equal texts or of texts that differ in the masked word alone, are run once.

    Args:
        encoder: The untouched encoder; left as it was, dropout included.
        texts: The texts.
        advance: Called with the number of tokens scored since the last call.
        passes: Masked copies of each text; ``None``: one for each token, which is exact.
        dtype: What the encoder's layers compute in, float32 or bfloat16.

    Returns:
        Log-probabilities, ``(tokens,)``, float32, in natural logarithms; zero at tokens that are
        not maskable.

    Raises:
        EncoderError: The device has not enough memory for a single text.
    """
    scores = torch.zeros(len(texts.input_ids), dtype=torch.float32)
    with encoder.evaluating(), torch.inference_mode():
        ready = scoring_pass(encoder, dtype)
        kind = "cpu" if encoder.device.type == "cpu" else "gpu"
        body = _Body(ready, TOKEN_BUDGET[kind])
        states: list[Tensor] = []
        tokens: list[Tensor] = []
        read: list[tuple[Tensor, Tensor]] = []
        for batch in body.batches(_laid_out(texts, passes, encoder.tokenizer.mask_token_id)):
            states.append(body.states(batch))
            tokens += [copies.tokens for copies in batch]
            advance(len(states[-1]))
            if sum(map(len, states)) >= HEAD_ROWS:
                read += _read(ready, texts, states, tokens)
        read += _read(ready, texts, states, tokens)
    if read:
        which, logprobs = zip(*read, strict=True)
        scores[torch.cat(which)] = torch.cat(logprobs).cpu()  # the one wait for the device
    return scores


def _read(
    ready: ScoringPass,
    texts: TokenizedTexts,
    states: list[Tensor],
    tokens: list[Tensor],
) -> list[tuple[Tensor, Tensor]]:
    """Score the tokens of the states that were gathered, and clear both lists.

    Returns:
        Tokens by their place in the flat arrays, on the CPU, and their log-probabilities.
    """
    read = []
    if states:
        for some, which in zip(
            torch.cat(states).split(HEAD_ROWS), torch.cat(tokens).split(HEAD_ROWS), strict=True
        ):
            read.append((which, ready.logprobs(some, texts.input_ids[which].long())))
    states.clear()
    tokens.clear()
    return read


@dataclass(frozen=True)
class _Copies:
    """Distinct masked copies of one length.

    Attributes:
        block: The copies and where each is read.
        tokens: The tokens they score, ``(n,)``, by their place in the flat arrays; sorted by copy.
        copy: The copy that scores each, ``(n,)``.
        position: The position that scores each, ``(n,)``.
    """

    block: Block
    tokens: Tensor
    copy: Tensor
    position: Tensor

    def part(self, start: int, stop: int) -> _Copies:
        """Return some of the copies."""
        first, last = torch.searchsorted(self.copy, torch.tensor([start, stop])).tolist()
        types = self.block.token_type_ids
        return _Copies(
            Block(
                self.block.input_ids[start:stop],
                self.block.targets[start:stop],
                None if types is None else types[start:stop],
            ),
            self.tokens[first:last],
            self.copy[first:last] - start,
            self.position[first:last],
        )

    def state_of_token(self) -> Tensor:
        """Return which of the states that the block gives belongs to each token, ``(n,)``."""
        number = self.block.targets.flatten().cumsum(0) - 1
        return number[self.copy * self.block.targets.shape[1] + self.position]


def _laid_out(texts: TokenizedTexts, passes: int | None, mask_id: int) -> Iterator[_Copies]:
    """Yield the masked copies of texts, shortest first, a bounded number at once."""
    tokens = texts.maskable.nonzero().squeeze(1)
    if len(tokens) == 0:
        return
    rows = torch.bucketize(tokens, texts.offsets, right=True) - 1
    turn = _turns(rows, passes)
    # Copies in the order of their texts' lengths; a copy is a text and a turn.
    longest = int(texts.lengths.max())
    order = ((texts.lengths[rows] * len(texts) + rows) * longest + turn).argsort(stable=True)
    tokens, rows, turn = tokens[order], rows[order], turn[order]
    _, copy = (rows * longest + turn).unique_consecutive(return_inverse=True)
    lengths = texts.lengths[rows]
    for same in _runs(lengths):
        length = int(lengths[same.start])
        first, last = int(copy[same.start]), int(copy[same.stop - 1]) + 1
        step = max(1, LAYOUT // length)
        for start in range(first, last, step):
            ends = torch.searchsorted(copy, torch.tensor([start, min(start + step, last)]))
            some = slice(*ends.tolist())
            yield _lay_out(texts, tokens[some], rows[some], copy[some] - start, length, mask_id)


def _turns(rows: Tensor, passes: int | None) -> Tensor:
    """Return the number, within its text, of the copy that scores each token.

    Args:
        rows: Text of each token, ascending.
        passes: Copies of each text.
    """
    counts = rows.bincount()
    number = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
    return number if passes is None else number % passes


def _lay_out(
    texts: TokenizedTexts, tokens: Tensor, rows: Tensor, copy: Tensor, length: int, mask_id: int
) -> _Copies:
    """Write out the copies that score some tokens of texts of one length; equal ones once."""
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
        Block(
            distinct[:, :length].long(),
            targets,
            None if types is None else distinct[:, length:].long(),
        ),
        tokens[by_copy],
        copy[by_copy],
        position[by_copy],
    )


def _runs(sorted_values: Tensor) -> list[slice]:
    """Slices of equal values in a sorted vector."""
    _, counts = sorted_values.unique_consecutive(return_counts=True)
    ends = counts.cumsum(0).tolist()
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


class _Body:
    """Runs copies through the layers, in batches that fit the memory.

    Args:
        ready: The encoder.
        budget: Tokens of a batch; half of a batch for which the device has no memory.
    """

    def __init__(self, ready: ScoringPass, budget: int) -> None:
        self._ready = ready
        self._budget = budget

    def batches(self, laid_out: Iterator[_Copies]) -> Iterator[list[_Copies]]:
        """Cut copies into batches of as many tokens as the budget allows, one copy at least."""
        batch: list[_Copies] = []
        room = self._budget
        for copies in laid_out:
            total, length = copies.block.input_ids.shape
            start = 0
            while start < total:
                if batch and room < length:
                    yield batch
                    batch, room = [], self._budget
                stop = min(total, start + max(1, room // length))
                batch.append(copies.part(start, stop))
                room -= (stop - start) * length
                start = stop
        if batch:
            yield batch

    def states(self, batch: list[_Copies]) -> Tensor:
        """Return the state for each token that a batch scores, in the order of its tokens.

        Raises:
            EncoderError: Not even one copy fits the memory.
        """
        states = self._try(batch)
        if states is None:
            # Not within an except clause: the error would hold on to what the attempt had made.
            return torch.cat([self.states(part) for part in self.batches(iter(batch))])
        found = []
        for copies in batch:
            count = int(copies.block.targets.sum())
            which = upload(copies.state_of_token(), states.device)
            found.append(states[:count].index_select(0, which))
            states = states[count:]
        return torch.cat(found)

    def _try(self, batch: list[_Copies]) -> Tensor | None:
        """Return the states of a batch, or none and halve the budget if memory runs out."""
        blocks = [copies.block for copies in batch]
        try:
            return self._ready.states(blocks)
        except torch.OutOfMemoryError as error:
            if sum(len(block.input_ids) for block in blocks) == 1:
                raise EncoderError(
                    "the device has no memory to score one text of "
                    f"{blocks[0].input_ids.shape[1]} tokens: use --device cpu or a smaller "
                    "--max-length"
                ) from error
            self._budget = sum(block.input_ids.numel() for block in blocks) // 2
            return None
