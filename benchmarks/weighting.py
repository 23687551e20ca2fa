"""Time and peak memory of one update under each weighting, as ratios to fixed weights.

    python -m benchmarks.weighting            # all contestants, the larger encoder with a few
    python -m benchmarks.weighting --quick    # the small encoder, few contestants and rounds

Encoders are built from configurations, with random weights: what an update costs does not depend
on them. All contestants share one encoder and take turns within one process, so that a machine
that slows down slows all of them down; a ratio is the median of the ratios of the rounds. Two
objectives, the classification and masked language modelling at 15% of the tokens; the validation
batch is as large as the training batch.

The floor of a rule that looks at validation rows in every update is one more pass of one batch.
It is measured as well, as ``validation pass``.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertTokenizer

from auxlearn.data.batches import BatchStream
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.registry import TASKS, WEIGHTINGS
from auxlearn.training.objectives import Auxiliary, Objectives
from auxlearn.training.optimization import LinearSchedule, build_optimizer
from auxlearn.training.validation import ValidationObjective
from benchmarks.common import RESULTS, machine

LENGTH, ROWS, CLASSES = 128, 256, 4
#: Texts of a batch, of training and of validation alike.
BATCH = {"minilm": 16, "bert-base": 8}
SIZES = {
    "minilm": {
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
    },
    "bert-base": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
}
#: Name of a contestant: the rule and its options; ``None`` trains the primary task alone.
CONTESTANTS: dict[str, tuple[str, dict[str, Any]] | None] = {
    "fixed": ("fixed", {}),
    "single task": None,
    "meta": ("meta", {"warmup": 0}),
    "meta every 5": ("meta", {"warmup": 0, "every": 5}),
    "meta, closed dev head": ("meta", {"warmup": 0, "dev_head": "closed"}),
    "tartan": ("tartan", {}),
    "tartan-released": ("tartan-released", {}),
    "uncertainty": ("uncertainty", {}),
    "dwa": ("dwa", {}),
    "gradnorm": ("gradnorm", {}),
    **{
        name: (name, {}) for name in ("upgrad", "pcgrad", "mgda", "cagrad", "imtl-g", "aligned-mtl")
    },
    **{f"meta, unroll {k}": ("meta", {"warmup": 0, "unroll": k}) for k in (1, 2, 3, 4)},
}
#: One step through `higher`, which the rule computes in closed form when it is asked for one.
THROUGH_HIGHER = "meta, unroll 1"
QUICK = ("fixed", "single task", "meta", "meta every 5", "tartan", "tartan-released", "upgrad")
#: Contestants on the larger encoder, whose updates take long.
LARGE = ("fixed", "single task", "meta", "meta every 5", "tartan", "upgrad", THROUGH_HIGHER)


def build(size: str) -> SharedEncoder:
    """Return an encoder of a size, with the vocabulary of BERT."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = BertTokenizer(vocab={token: number for number, token in enumerate(special)})
    torch.manual_seed(0)
    config = BertConfig(vocab_size=30522, num_labels=CLASSES, **SIZES[size])
    return SharedEncoder(
        BertForSequenceClassification(config), BertForMaskedLM(config), tokenizer
    ).train()


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


class Contestant:
    """One weighting with its own optimizer state over the shared encoder."""

    def __init__(
        self, encoder: SharedEncoder, rows: TokenizedTexts, title: str, batch: int
    ) -> None:
        choice = CONTESTANTS[title]
        task = TASKS.get("random_mlm")(TASKS.get("random_mlm").Options())
        task.texts, task.random_ids = rows, torch.arange(1000, 30000)
        name, options = choice or ("fixed", {})
        auxiliaries = [Auxiliary("random_mlm", task, BatchStream(rows, batch, 0, "random_mlm"))]
        cls = WEIGHTINGS.get(name)
        names = ("primary", "random_mlm") if choice else ("primary",)
        self.rule = cls(cls.Options(**options), names)
        if title == THROUGH_HIGHER:
            self.rule.learn = self.rule._unrolled
        self.period = options.get("every", 1)
        optimizer = build_optimizer(encoder.parameters(), 1e-6, 0.01)
        self.objectives = Objectives(
            encoder=encoder,
            auxiliaries=auxiliaries if choice else [],
            primary=BatchStream(rows, batch, 0, "primary"),
            optimizer=optimizer,
            schedule=LinearSchedule(optimizer, 10**9, 0.0),
            seed=0,
            accumulation=1,
            clip_norm=1.0,
            validation=ValidationObjective(rows, batch, "accuracy", 0, head=self.rule.dev_head),
            autocast=nullcontext,
            attends_to_padding=self.rule.attends_to_padding,
        )

    def warm_up(self) -> None:
        """Give the optimizer a state, as after an update with gradients of a usual size."""
        draws = torch.Generator().manual_seed(0)
        for parameter in self.objectives.parameters:
            parameter.grad = torch.randn(parameter.shape, generator=draws) * 1e-3
        self.objectives.update()

    def seconds(self, number: int) -> float:
        """Return the mean time of the updates of one period, after one that does not count.

        The first update after another contestant finds cold caches and memory to be mapped.
        """
        self.objectives.begin(0)
        self.rule.step(self.objectives)
        started = time.perf_counter()
        for step in range(number * self.period, (number + 1) * self.period):
            self.objectives.begin(step)
            self.rule.step(self.objectives)
        return (time.perf_counter() - started) / self.period

    def peak(self) -> int:
        """Return the most bytes that one update holds beside parameters and optimizer state."""
        gc.collect()
        self.objectives.begin(0)
        profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        )
        with profile:
            self.rule.step(self.objectives)
        held = most = 0
        events = profile.profiler.kineto_results.events()
        for event in sorted(events, key=lambda event: event.start_ns()):
            if event.name() == "[memory]":
                held += event.nbytes()
                most = max(most, held)
        return most


def measure(size: str, names: tuple[str, ...], rounds: int) -> dict[str, Any]:
    """Return times and memory of the contestants for one size."""
    encoder, rows = build(size), texts()
    count = sum(parameter.numel() for parameter in encoder.parameters())
    seconds: dict[str, list[float]] = {name: [] for name in (*names, "validation pass")}
    peaks: dict[str, int] = {}
    # Each contestant has moments of its own; all are made anew in every round to spare memory.
    for number in range(rounds + 1):
        for name in names:
            contestant = Contestant(encoder, rows, name, BATCH[size])
            contestant.warm_up()
            elapsed = contestant.seconds(number)
            if number:  # the first round warms up
                seconds[name].append(elapsed)
            else:
                peaks[name] = contestant.peak()
            if name == "fixed":
                started = time.perf_counter()
                contestant.objectives.validation_gradient()
                if number:
                    seconds["validation pass"].append(time.perf_counter() - started)
            del contestant
            gc.collect()
        print(f"{size}: round {number} of {rounds} done", flush=True)
    fixed = seconds["fixed"]
    contestants = {
        name: {
            "seconds": statistics.median(taken),
            "time_ratio": statistics.median(
                one / other for one, other in zip(taken, fixed, strict=True)
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
        for name, taken in seconds.items()
    }
    floor = 1 + contestants["validation pass"]["time_ratio"]
    return {
        "parameters": count,
        "batch": BATCH[size],
        "rounds": rounds,
        "floor": floor,
        "contestants": contestants,
    }


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small encoder, few contestants")
    parser.add_argument("--rounds", type=int, help="rounds of all contestants")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, default=RESULTS / "weighting.json")
    parser.set_defaults(clock="wall")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rounds = given.rounds or (3 if given.quick else 5)
    plan = {"minilm": QUICK} if given.quick else {"minilm": tuple(CONTESTANTS), "bert-base": LARGE}
    results = {
        "settings": {"rounds": rounds, "length": LENGTH},
        "machine": machine(given),
        "sizes": {size: measure(size, names, rounds) for size, names in plan.items()},
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    for size, found in results["sizes"].items():
        print(f"\n{size}, {found['parameters'] / 1e6:.1f} million parameters, fixed = 1.00")
        print(f"floor of a rule with a validation pass in every update: {found['floor']:.2f}")
        for name, figures in found["contestants"].items():
            copies = figures.get("memory_over_fixed_in_parameter_copies")
            memory = "" if copies is None else f"{copies:+8.2f} copies"
            print(f"{name:24}{figures['time_ratio']:8.2f}{memory}")


if __name__ == "__main__":
    main()
