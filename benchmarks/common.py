"""Shared code of the benchmarks: options, encoders, texts, steps, timing and results."""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import torch
import transformers

from auxlearn.core.cache import TensorCache
from auxlearn.core.files import write_json
from auxlearn.core.processes import ALONE, Processes
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS
from auxlearn.core.settings import encoder_source
from auxlearn.data.batches import BatchStream
from auxlearn.data.dataset import Split
from auxlearn.data.load import load_dataset
from auxlearn.data.tokens import Tokenization, TokenizedTexts
from auxlearn.encoders.device import attend_in_single_precision
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.optimizer import Schedule, build_optimizer
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.training.setup import training_step
from auxlearn.training.terms import Auxiliary

RESULTS = Path(__file__).parent / "results"

#: Shapes of BERT: layers, width, heads, width of the feed-forward.
SIZES = {
    "narrow": (12, 32, 2, 64),
    "minilm": (6, 384, 12, 1536),
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
}
VOCABULARY = 30522


def arguments(
    description: str,
    texts: int = 64,
    rounds: int = 5,
    add: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> argparse.Namespace:
    """Parse the options of all benchmarks and those of one."""
    parser = argparse.ArgumentParser(description=description)
    add(parser)
    parser.add_argument(
        "--encoder", default="minilm", help="minilm, base, large, or the name of an encoder"
    )
    parser.add_argument("--dataset", default="pydocs")
    parser.add_argument("--texts", type=int, default=texts)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="wall time, or CPU time of this process (on a busy machine; needs --threads 1)",
    )
    parser.add_argument("--output", type=Path, help="by default benchmarks/results/NAME.json")
    add_device(parser)
    options = parser.parse_args()
    check_device(parser, options)
    if options.clock == "cpu" and options.threads != 1:
        parser.error("--clock cpu counts the waits of several threads: add --threads 1")
    torch.set_num_threads(options.threads)
    return options


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add the option for the device."""
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")


def check_device(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Reject an unavailable device; of several GPUs, only one is measured."""
    if options.device == "cuda":
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
        if not torch.cuda.is_available():
            parser.error("--device cuda: this machine offers no CUDA: leave the option out")
        if getattr(options, "clock", "wall") == "cpu":
            parser.error("--clock cpu does not see what a GPU does: use --clock wall")


def add_precision(parser: argparse.ArgumentParser) -> None:
    """Add the option for the numerical precision of training."""
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")


def autocast(device: str, precision: str) -> Callable[[], AbstractContextManager[None]]:
    """Give the context that forward passes of a training run in, as accelerate does.

    accelerate's own state is one for the whole process, and contestants differ.
    """
    if precision == "fp32":
        return nullcontext
    return partial(torch.autocast, device, torch.bfloat16)


def attending(encoder: SharedEncoder, precision: str) -> SharedEncoder:
    """Compute attention as a run of that precision does on the device of the encoder."""
    if precision == "bf16" and encoder.device.type == "cpu":
        attend_in_single_precision(encoder.body)
    return encoder


@dataclass(frozen=True)
class Stopwatch:
    """A clock that is read after the device has completed all queued work.

    Attributes:
        clock: "wall", or "cpu" for the seconds of this process.
        device: "cpu" or "cuda".
    """

    clock: Literal["wall", "cpu"] = "wall"
    device: Literal["cpu", "cuda"] = "cpu"

    @classmethod
    def of(cls, options: argparse.Namespace) -> Stopwatch:
        """Return the stopwatch that the options specify."""
        return cls(getattr(options, "clock", "wall"), options.device)

    def now(self) -> float:
        """Return the time in seconds."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() if self.clock == "wall" else time.process_time()

    def seconds(self, run: Callable[[], object]) -> float:
        """Return how long a call takes."""
        started = self.now()
        run()
        return self.now() - started


def encoder_of_size(
    size: str, classes: int = 6, seed: int = 0, device: str = "cpu"
) -> SharedEncoder:
    """Return a BERT of a known shape with random weights, or an encoder by its name."""
    if size not in SIZES:
        encoder = load_encoder(size, [f"class {n}" for n in range(classes)], seed)
        encoder.to(torch.device(device)).language_model.tie_weights()  # the meta device unties them
        return encoder
    layers, width, heads, inner = SIZES[size]
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=inner,
        num_labels=classes,
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        encoder_source("tiny"), split_special_tokens=True
    )
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(seed)
        return SharedEncoder(
            transformers.BertForSequenceClassification(config),
            transformers.BertForMaskedLM(config),
            tokenizer,
        ).eval()


class Steps:
    """The optimizer steps of a training; each call makes one, cycling through the batches.

    Args:
        encoder: What is trained.
        texts: Training examples, of which a rule that learns takes validation examples too.
        batch: Texts of a batch.
        tasks: How many auxiliary tasks of masked language modelling, each with batches of its own.
        rule: Name and options of the weighting.
        precision: What the passes compute in.
        rate: The learning rate, with a warm-up and a decay over so many ``steps``.
        steps: Of the training.
        accumulation: Micro-batches of a step.
        processes: Those that make it together.
    """

    def __init__(
        self,
        encoder: SharedEncoder,
        texts: TokenizedTexts,
        batch: int,
        tasks: int = 0,
        rule: tuple[str, Mapping[str, Any]] = ("fixed", {}),
        precision: str = "fp32",
        rate: float = 1e-4,
        steps: int = 8,
        accumulation: int = 1,
        processes: Processes = ALONE,
    ) -> None:
        names = [f"random_mlm_{number}" for number in range(tasks)]
        cls, loss, mlm = (
            WEIGHTINGS.get(rule[0]),
            LOSSES.get("cross_entropy"),
            TASKS.get("random_mlm"),
        )
        self.rule = cls(cls.Options(**rule[1]), ("primary", *names))
        auxiliaries = []
        vocabulary = encoder.body.get_input_embeddings().num_embeddings
        for name in names:
            task = mlm(mlm.Options())
            # The upper half of the vocabulary replaces tokens.
            task.texts, task.random_ids = texts, torch.arange(vocabulary // 2, vocabulary)
            auxiliaries.append(Auxiliary(name, task, BatchStream(texts, batch, 0, name)))
        optimizer = build_optimizer(encoder.train().parameters(), rate, 0.01)
        self.training_step = training_step(
            self.rule,
            texts,
            "accuracy",
            encoder=encoder,
            primary=BatchStream(texts, batch, 0, "primary"),
            primary_loss=loss(loss.Options()),
            auxiliaries=auxiliaries,
            schedule=Schedule(optimizer, steps, 0.06),
            gradient_accumulation_steps=accumulation,
            autocast=autocast(encoder.device.type, precision),
            processes=processes,
        )
        self._turn = cycle(range(steps))

    def __call__(self) -> None:
        """Make the next step."""
        self.step(next(self._turn))

    def step(self, number: int) -> None:
        """Make one step."""
        self.training_step.begin(number)
        self.rule.step(self.training_step)


def classes_of(dataset: str) -> int:
    """Return how many classes a data set has."""
    return len(load_dataset(dataset).label_names)


def texts_of(
    encoder: SharedEncoder, dataset: str, count: int, max_length: int = 128
) -> tuple[TokenizedTexts, list[str]]:
    """Return training texts of a data set, tokenised and raw.

    Of pairs the first text is taken alone: what scores raw texts takes no pairs.
    """
    split = replace(load_dataset(dataset).splits["train"], text_pairs=None)
    texts = Tokenization(encoder.tokenizer, max_length).tokenize_split(split, TensorCache())
    # Some data sets are sorted by class.
    rows = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0))[:count]
    return texts.select(rows), [split.texts[row] for row in rows.tolist()]


def long_texts_of(
    encoder: SharedEncoder, dataset: str, count: int, length: int
) -> tuple[TokenizedTexts, list[str]]:
    """Return texts of ``length`` tokens, tokenised and raw, joined from a data set."""
    split = load_dataset(dataset).splits["train"]
    draws = torch.Generator().manual_seed(0)
    raw = []
    for _ in range(count):
        words: list[str] = []
        while len(words) < length:  # a word is a token at least
            row = int(torch.randint(len(split), (1,), generator=draws))
            words += split.texts[row].split()
        raw.append(" ".join(words))
    joined = Split("train", tuple(raw), None, split.label_names)
    return Tokenization(encoder.tokenizer, length).tokenize_split(joined, TensorCache()), raw


def contest(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int,
    watch: Stopwatch,
    warm_up: bool = True,
    calls: int = 1,
) -> dict[str, dict[str, Any]]:
    """Time contestants in turn, so that other load of the machine affects all of them alike.

    On CUDA every call is timed from an idle device to an idle device, and the round that warms up
    also counts the memory of each contestant.

    Args:
        contestants: What to run, by name.
        rounds: How often each is timed.
        watch: Reads the time.
        warm_up: Run a round that does not count first.
        calls: How often each is called in a round; they take turns with every call.

    Returns:
        Seconds of each round and their median, by name; on CUDA, after a warm-up, the most bytes
        that were allocated beyond those before the call.
    """
    results: dict[str, dict[str, Any]] = {name: {"seconds": []} for name in contestants}
    for number in range(rounds + warm_up):
        counts = number >= warm_up
        spent = dict.fromkeys(contestants, 0.0)
        for _ in range(calls):
            for name, run in contestants.items():
                if counts or watch.device != "cuda":
                    spent[name] += watch.seconds(run)
                else:
                    peak = peak_bytes(run, watch.device)
                    results[name]["peak bytes"] = max(peak, results[name].get("peak bytes", 0))
        if counts:
            for name, seconds in spent.items():
                results[name]["seconds"].append(seconds)
    for result in results.values():
        result["median"] = statistics.median(result["seconds"])
    return results


def peak_bytes(run: Callable[[], object], device: str) -> int:
    """Return the peak memory of a call in bytes, beyond what was allocated before it."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    profile = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    )
    with profile:
        run()
    held = most = 0
    events = profile.profiler.kineto_results.events()
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def ratio(results: Mapping[str, Mapping[str, Any]], over: str, under: str) -> float:
    """Return the median over the rounds of how many times longer one took than the other."""
    pairs = zip(results[over]["seconds"], results[under]["seconds"], strict=True)
    return statistics.median(a / b for a, b in pairs)


def machine(options: argparse.Namespace) -> dict[str, Any]:
    """Return the hardware, the load and the versions of the software."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "clock": options.clock,
        "load": list(os.getloadavg()),
        "gpu": gpu(options),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {
            name: version(name)
            for name in ("auxlearn", "torch", "transformers", "accelerate", "minicons")
        },
    }


def gpu(options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the properties of the GPU; ``None`` if the CPU is measured."""
    if options.device != "cuda":
        return None
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "bytes": properties.total_memory,
        "capability": [properties.major, properties.minor],
        "cuda": torch.version.cuda,
        "products in float32": torch.get_float32_matmul_precision(),
    }


def version(package: str) -> str | None:
    """Return the version of a package, ``None`` if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def save(name: str, options: argparse.Namespace, results: Mapping[str, Any]) -> None:
    """Write the results of a benchmark with its settings and its machine."""
    path = options.output or RESULTS / f"{name}.json"
    settings = {k: str(v) for k, v in vars(options).items() if k != "output"}
    # Where they lie on this machine is of no use elsewhere.
    settings |= {k: Path(settings[k]).name for k in ("encoder", "dataset") if k in settings}
    write_json(path, {"settings": settings, "machine": machine(options), **results})
    print(f"written to {path}")
