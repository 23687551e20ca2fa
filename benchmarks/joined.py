"""Two objectives in one forward pass through the backbone, or in one forward pass each.

Training makes one forward pass per objective. Measured here is the alternative, on the model alone:
the batches of classification and masked language modelling are padded to one length, concatenated
and encoded together, and each head is applied to its own examples. Batches are sampled and
corrupted before the clock starts.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from auxlearn.data.batches import Batch, BatchStream
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.masking import choose, corrupt
from auxlearn.training.optimizer import build_optimizer
from benchmarks.common import (
    Stopwatch,
    add_precision,
    arguments,
    attending,
    autocast,
    classes_of,
    contest,
    encoder_of_size,
    ratio,
    replacements,
    save,
    texts_of,
)

STEPS = 8
#: Rows of a batch: usual ones, and so few that calls cost more than the work.
ROWS = (32, 8, 2)

Pair = tuple[Batch, Batch, Tensor, Tensor]


def main() -> None:
    """Run a contest for each encoder and batch size."""
    options = arguments(__doc__ or "", texts=STEPS * max(ROWS), add=add_precision)
    classes = classes_of(options.dataset)
    found = []
    for size, rows in product((options.encoder, "tiny"), ROWS):
        encoder = encoder_of_size(size, classes, device=options.device).train()
        attending(encoder, options.precision)
        texts, _ = texts_of(encoder, options.dataset, options.texts)
        primary, auxiliary = (BatchStream(texts, rows, 0, name) for name in ("primary", "mlm"))
        pairs = [
            pair_of(encoder, primary.batch(step), auxiliary.batch(step), step)
            for step in range(STEPS)
        ]
        results = contest(
            {
                "one pass each": Steps(encoder, pairs, False, options.precision),
                "one pass": Steps(encoder, pairs, True, options.precision),
            },
            options.rounds,
            Stopwatch.of(options),
            seconds=options.seconds,
        )
        found.append(
            {
                "encoder": size,
                "rows": rows,
                "contestants": results,
                "one pass over one pass each": ratio(results, "one pass", "one pass each"),
                "padding": {
                    "one pass each": padding([batch for pair in pairs for batch in pair[:2]]),
                    "one pass": padding([join(*pair[:2]) for pair in pairs]),
                },
            }
        )
    save("joined", options, {"steps": STEPS, "contests": found})


def pair_of(encoder: SharedEncoder, primary: Batch, given: Batch, step: int) -> Pair:
    """Return a batch of each objective, the tokens to predict, and where they stand."""
    draws = torch.Generator().manual_seed(step)
    chosen = choose(given.maskable * 0.15, draws)
    random_ids = replacements(encoder)
    mask = encoder.tokenizer.mask_token_id
    ids = corrupt(given.input_ids, chosen, mask, random_ids, draws)
    return primary, replace(given, input_ids=ids), given.input_ids[chosen], chosen


def join(first: Batch, second: Batch) -> Batch:
    """Lay one batch under another, both padded to the longer."""
    length = max(first.input_ids.shape[1], second.input_ids.shape[1])

    def stack(name: str, fill: int) -> Tensor:
        both = [getattr(batch, name) for batch in (first, second)]
        wide = [nn.functional.pad(t, (0, length - t.shape[1]), value=fill) for t in both]
        return torch.cat(wide)

    return Batch(
        input_ids=stack("input_ids", 0),
        attention_mask=stack("attention_mask", 0),
        maskable=stack("maskable", 0),
        words=stack("words", -1),
        indices=torch.cat([first.indices, second.indices]),
        token_type_ids=None if first.token_type_ids is None else stack("token_type_ids", 0),
    )


def padding(batches: list[Batch]) -> float:
    """Return the share of padding."""
    places = sum(batch.input_ids.numel() for batch in batches)
    return 1 - sum(int(batch.attention_mask.sum()) for batch in batches) / places


class Steps:
    """Optimizer steps on both objectives, for repeated timing."""

    def __init__(
        self, encoder: SharedEncoder, pairs: list[Pair], joined: bool, precision: str
    ) -> None:
        self.encoder = encoder
        self.pairs = pairs
        self.joined = joined
        self.autocast = autocast(encoder.device.type, precision)
        self.optimizer = build_optimizer(encoder.parameters(), 1e-4, 0.01)

    def __call__(self) -> None:
        for pair in self.pairs:
            self.update(*pair)

    def update(self, primary: Batch, given: Batch, targets: Tensor, chosen: Tensor) -> None:
        """Make one optimizer step."""
        encoder, loss = self.encoder, nn.functional.cross_entropy
        labels, targets = (
            t.to(encoder.device, non_blocking=True) for t in (primary.labels, targets)
        )
        if self.joined:
            rows = len(primary)
            # Where tokens are predicted is found on the CPU, where no GPU has to be waited for.
            row, column = (
                places.to(encoder.device, non_blocking=True)
                for places in chosen.nonzero(as_tuple=True)
            )
            with self.autocast():
                # Joined within, because in training no batch is there before its step.
                output = encoder.encode(join(primary, given))
                logits = class_logits(encoder, output, rows)
                hidden = output.last_hidden_state[rows:][row, column]
                tokens = encoder.family.token_logits(encoder.language_model, hidden)
            (loss(logits.float(), labels) + loss(tokens.float(), targets)).backward()
        else:
            with self.autocast():
                tokens = encoder.predict_tokens(given, chosen)
            loss(tokens, targets).backward()
            with self.autocast():
                logits = encoder.classify(primary)
            loss(logits, labels).backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def class_logits(encoder: SharedEncoder, output: Any, rows: int) -> Tensor:
    """Return the class logits of the first examples of a BERT-like backbone's output."""
    return encoder.family.class_logits(encoder.classifier, output.last_hidden_state[:rows], None)


if __name__ == "__main__":
    main()
