"""Cost of each further objective with fixed weights, by size of the encoder.

The primary task classifies; each further objective is masked language modelling with batches of its
own, of as many examples. The measured ratio is reported beside that of the counted operations: the
smaller the backbone, the larger the share of the logits over the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common import (
    Steps,
    Stopwatch,
    add_precision,
    arguments,
    attending,
    classes_of,
    contest,
    encoder_of_size,
    ratio,
    save,
    texts_of,
)
from benchmarks.training import BATCH

#: Batches of an epoch, and the most objectives, of each encoder.
CONTESTS = {"minilm": (8, 3), "base": (2, 2)}


def main() -> None:
    """Run a contest for each encoder."""
    options = arguments(__doc__ or "", add=add_precision)
    classes = classes_of(options.dataset)
    found = {}
    for size, (steps, most) in CONTESTS.items():
        encoder = attending(
            encoder_of_size(size, classes, device=options.device), options.precision
        )
        texts, _ = texts_of(encoder, options.dataset, steps * BATCH)
        contestants: dict[str, Callable[[], object]] = {
            str(count): Steps(
                encoder, texts, BATCH, count - 1, precision=options.precision, steps=steps
            )
            for count in range(1, most + 1)
        }
        counts = {name: operations(run, steps) for name, run in contestants.items()}
        results = contest(
            contestants,
            options.rounds,
            Stopwatch.of(options),
            warm_up=options.device == "cuda",  # counting was one
            calls=steps,
        )
        found[size] = {
            "steps": steps,
            "contestants": results,
            "over one": {
                name: {
                    "time": ratio(results, name, "1"),
                    "operations": counts[name] / counts["1"],
                }
                for name in contestants
                if name != "1"
            },
        }
    save("objectives", options, {"batch size": BATCH, "encoders": found})


def operations(run: Callable[[], object], steps: int) -> int:
    """Return the operations of the matrix products of some steps."""
    with FlopCounterMode(display=False) as counter:
        for _ in range(steps):
            run()
    return counter.get_total_flops()


if __name__ == "__main__":
    main()
