"""Time and peak memory of one optimizer step under each weighting, relative to fixed weights.

    python -m benchmarks.weighting            # all registered rules, the larger encoder with a few
    python -m benchmarks.weighting --device cuda --sizes base --precision bf16    # all on one size
    python -m benchmarks.weighting --operations    # count torch operations, in seconds; no times

Encoders are built from configurations, with random weights: the cost of a step does not depend
on them. All contestants share one encoder and take turns within one process, so that a machine
that slows down slows all of them down; a ratio is the median of the ratios of the rounds. Two
objectives, the classification and masked language modelling at 15% of the tokens; the validation
batch has the rule's default size.

The lower bound of a rule that uses as many validation as training examples in every step is one
more pass of a batch. It is measured as well, as ``validation pass``.

``--operations`` counts the torch operations of a step, whose number does not depend on the width of
the encoder: each takes a GPU some microseconds to begin, however small its tensors.
"""

from __future__ import annotations

import argparse
import gc
import statistics
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from auxlearn.core.errors import UserError
from auxlearn.core.registry import WEIGHTINGS
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder
from benchmarks.common import (
    SIZES,
    Steps,
    Stopwatch,
    add_device,
    add_precision,
    attending,
    check_device,
    encoder_of_size,
    peak_bytes,
    save,
)

LENGTH, ROWS, CLASSES = 128, 256, 4
#: Texts of a training batch, by device and size.
BATCH = {
    "cpu": {"minilm": 16, "base": 8, "large": 8},
    "cuda": {"minilm": 32, "base": 32, "large": 32},
}
#: A contestant is a rule and its options; ``None`` trains the primary task alone.
Choice = tuple[str, dict[str, Any]] | None
SINGLE = "single task"
#: Rules with other options than their defaults.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "fixed, separate steps": ("fixed", {"mix": "steps"}),
    "fixed, scaled gradients": ("fixed", {"mix": "scaled"}),
    "pcgrad": ("torchjd", {"rule": "PCGrad"}),
    "meta": ("meta", {"horizon": "steps"}),
    "meta every 5": ("meta", {"horizon": "steps", "every": 5}),
    "meta, closed dev head": ("meta", {"horizon": "steps", "dev_head": "closed"}),
    **{
        f"meta, unroll {k}": ("meta", {"horizon": "steps", "unroll": k, "mix": "scaled"})
        for k in (1, 2, 3, 4)
    },
}
#: One step through `higher`, which the rule computes in closed form when it is asked for one.
THROUGH_HIGHER = "meta, unroll 1"
#: Contestants on the larger encoder of a CPU, whose optimizer steps take long.
LARGE = ("fixed", SINGLE, "meta", "meta every 5", "tartan", "torchjd", THROUGH_HIGHER)


def contestants() -> dict[str, Choice]:
    """Return every registered rule with its defaults, and the variants; ``fixed`` first.

    Rules that hold their weights fixed at first update them at once here: that is the costly step.
    A rule whose library is not installed is left out with a line.
    """
    found: dict[str, Choice] = {"fixed": ("fixed", {"mix": "gradients"}), SINGLE: None}
    for name in WEIGHTINGS.names():
        found.setdefault(name, (name, {}))
    ready: dict[str, Choice] = {}
    for title, choice in (found | VARIANTS).items():
        if choice is not None:
            name, options = choice
            try:
                rule = WEIGHTINGS.get(name)
                if "warmup_steps" in rule.Options.model_fields:
                    options = {"warmup_steps": 0, **options}
                rule(rule.Options(**options), ("primary", "random_mlm"))
            except UserError as error:
                print(f"{title} is left out: {error}", flush=True)
                continue
            choice = (name, options)
        ready[title] = choice
    return ready


def build(size: str, device: str = "cpu", precision: str = "fp32") -> SharedEncoder:
    """Return an encoder of a size that trains."""
    return attending(encoder_of_size(size, CLASSES, device=device), precision).train()


def texts() -> TokenizedTexts:
    """Return random texts, all of the same length."""
    draws = torch.Generator().manual_seed(0)
    count = ROWS * LENGTH
    return TokenizedTexts(
        input_ids=torch.randint(1000, 30000, (count,), generator=draws).int(),
        words=torch.arange(count, dtype=torch.int32) % LENGTH,
        maskable=torch.ones(count, dtype=torch.bool),
        offsets=torch.arange(ROWS + 1) * LENGTH,
        pad_id=0,
        labels=torch.randint(CLASSES, (ROWS,), generator=draws),
    )


class Contestant(Steps):
    """One weighting with its own optimizer state over the shared encoder."""

    def __init__(
        self,
        encoder: SharedEncoder,
        rows: TokenizedTexts,
        title: str,
        choice: Choice,
        batch: int,
        **settings: Any,
    ) -> None:
        tasks, rule = (1, choice) if choice else (0, ("fixed", {}))
        super().__init__(encoder, rows, batch, tasks, rule, rate=1e-6, steps=10**9, **settings)
        if title == THROUGH_HIGHER:
            self.rule.learn = self.rule._unrolled
        self.period = getattr(self.rule.options, "every", 1)

    def warm_up(self) -> None:
        """Give the optimizer a state, as after a step with gradients of a usual size."""
        draws = torch.Generator().manual_seed(0)
        for parameter in self.training_step.parameters:
            drawn = torch.randn(parameter.shape, generator=draws) * 1e-3
            parameter.grad = drawn.to(parameter.device)
        self.training_step.optimizer_step()

    def seconds(self, number: int, watch: Stopwatch) -> float:
        """Return the mean time of the optimizer steps of one period, after one that does not count.

        The first step after another contestant finds cold caches and memory to be mapped.
        """
        self.step(0)

        def period() -> None:
            for step in range(number * self.period, (number + 1) * self.period):
                self.step(step)

        return watch.seconds(period) / self.period


def measure(
    size: str,
    choices: dict[str, Choice],
    rounds: int,
    watch: Stopwatch,
    precision: str = "fp32",
) -> dict[str, Any]:
    """Return times and memory of the contestants for one size.

    Args:
        size: Of the encoder.
        choices: The contestants, ``fixed`` among them.
        rounds: How often each is timed, after a round that warms up and looks at the memory.
        watch: Reads the time.
        precision: What the passes compute in.
    """
    batch = BATCH[watch.device][size]
    encoder, rows = build(size, watch.device, precision), texts()
    count = sum(parameter.numel() for parameter in encoder.parameters())
    taken: dict[str, list[float]] = {name: [] for name in (*choices, "validation pass")}
    peaks: dict[str, int] = {}
    # Each contestant has moments of its own; all are made again in every round to spare memory.
    for number in range(rounds + 1):
        for name, choice in choices.items():
            contestant = Contestant(encoder, rows, name, choice, batch, precision=precision)
            contestant.warm_up()
            elapsed = contestant.seconds(number, watch)
            if number:  # the first round warms up
                taken[name].append(elapsed)
            else:
                peaks[name] = peak_bytes(lambda c=contestant: c.step(0), watch.device)
            if name == "fixed":
                passed = watch.seconds(contestant.training_step.validation_gradient)
                if number:
                    taken["validation pass"].append(passed)
            del contestant
            gc.collect()
        print(f"{size}: round {number} of {rounds} done", flush=True)
    fixed = taken["fixed"]
    contestants = {
        name: {
            "seconds": statistics.median(found),
            "time_ratio": statistics.median(
                one / other for one, other in zip(found, fixed, strict=True)
            ),
            **(
                {
                    "peak_bytes": peaks[name],
                    "memory_over_fixed_in_parameter_copies": (peaks[name] - peaks["fixed"])
                    / (4 * count),
                }
                if name in peaks
                else {}
            ),
        }
        for name, found in taken.items()
    }
    floor = 1 + contestants["validation pass"]["time_ratio"]
    return {
        "parameters": count,
        "batch": batch,
        "rounds": len(fixed),
        "floor": floor,
        "contestants": contestants,
    }


class Operations(TorchDispatchMode):
    """Counts the operations of torch within the block.

    Attributes:
        count: Operations so far.
    """

    count = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        self.count += 1
        return function(*arguments, **(keywords or {}))


def count_operations(choices: dict[str, Choice]) -> dict[str, Any]:
    """Return the torch operations of a step of each rule on a narrow encoder of 12 layers.

    The weights have been updated twice before, and are updated in this step.
    """
    encoder, rows = build("narrow"), texts()
    counts = {}
    for name, choice in choices.items():
        contestant = Contestant(encoder, rows, name, choice, batch=4)
        contestant.warm_up()
        for number in (1, 2):
            contestant.step(number * contestant.period - 1)
        with Operations() as operations:
            contestant.step(3 * contestant.period - 1)
        counts[name] = operations.count
    fixed = counts["fixed, separate steps"]
    return {
        name: {"operations": count, "operations_ratio": count / fixed}
        for name, count in counts.items()
    }


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sizes", nargs="+", choices=list(SIZES), help="encoder sizes to measure all rules on"
    )
    parser.add_argument("--operations", action="store_true", help="count operations, nothing else")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, help="by default benchmarks/results/weighting.json")
    add_device(parser)
    add_precision(parser)
    parser.set_defaults(clock="wall")
    given = parser.parse_args()
    check_device(parser, given)
    torch.set_num_threads(given.threads)
    given.length = LENGTH
    if given.operations:
        counted = count_operations(contestants())
        save("rule_operations", given, {"contestants": counted})
        return
    watch = Stopwatch.of(given)
    every = contestants()
    plan = dict.fromkeys(given.sizes or ("minilm", "base"), every)
    if not given.sizes and given.device == "cpu":
        plan["base"] = {name: every[name] for name in LARGE if name in every}
    sizes = {
        size: measure(size, choices, given.rounds, watch, given.precision)
        for size, choices in plan.items()
    }
    save("weighting", given, {"sizes": sizes})


if __name__ == "__main__":
    main()
