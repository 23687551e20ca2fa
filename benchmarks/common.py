"""What the benchmarks share: encoders and texts that anyone has, contests, results."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from auxlearn.cache import TensorCache
from auxlearn.data.load import load_dataset
from auxlearn.data.tokens import TokenizedTexts, tokenize_split
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.names import encoder_source
from auxlearn.encoders.shared import SharedEncoder

RESULTS = Path(__file__).parent / "results"

#: Shapes of BERT: layers, width, heads, width of the feed-forward.
SIZES = {"minilm": (6, 384, 12, 1536), "base": (12, 768, 12, 3072)}
VOCABULARY = 30522


def arguments(
    description: str,
    texts: int = 64,
    rounds: int = 5,
    add: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> argparse.Namespace:
    """Read the options that every benchmark has, and those that it adds."""
    parser = argparse.ArgumentParser(description=description)
    add(parser)
    parser.add_argument(
        "--encoder", default="minilm", help="minilm, base, or a name auxlearn knows"
    )
    parser.add_argument("--dataset", default="pydocs")
    parser.add_argument("--texts", type=int, default=texts)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: seconds of this process, for a machine with other work; needs --threads 1",
    )
    parser.add_argument("--output", type=Path, help="by default benchmarks/results/NAME.json")
    options = parser.parse_args()
    if options.clock == "cpu" and options.threads != 1:
        parser.error("--clock cpu counts the waits of several threads: add --threads 1")
    torch.set_num_threads(options.threads)
    return options


def encoder_of_size(size: str, classes: int = 6, seed: int = 0) -> SharedEncoder:
    """Return a BERT of a known shape with random weights, or an encoder by its name."""
    if size not in SIZES:
        return load_encoder(size, [f"class {n}" for n in range(classes)], seed)
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
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return SharedEncoder(
            transformers.BertForSequenceClassification(config),
            transformers.BertForMaskedLM(config),
            tokenizer,
        ).eval()


def texts_of(
    encoder: SharedEncoder, dataset: str, count: int, max_length: int = 128
) -> tuple[TokenizedTexts, list[str]]:
    """Return some training texts of a data set, tokenised and as they are."""
    split = load_dataset(dataset).splits["train"]
    texts = tokenize_split(encoder.tokenizer, split, max_length, TensorCache())
    # Rows stand in the order of their classes in some sets.
    rows = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0))[:count]
    return texts.select(rows), [split.texts[row] for row in rows.tolist()]


def contest(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: str,
    warm_up: bool = True,
    calls: int = 1,
) -> dict[str, dict[str, Any]]:
    """Time contestants in turn, so that what else the machine does falls on all of them.

    Args:
        contestants: What to run, by name.
        rounds: How often each is timed.
        clock: "wall" or "cpu".
        warm_up: Run a round that does not count first.
        calls: How often each is called in a round; they take turns with every call.

    Returns:
        Seconds of each round and their median, by name.
    """
    now = time.perf_counter if clock == "wall" else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for counts in [*([False] if warm_up else []), *([True] * rounds)]:
        spent = dict.fromkeys(contestants, 0.0)
        for _ in range(calls):
            for name, run in contestants.items():
                started = now()
                run()
                spent[name] += now() - started
        if counts:
            for name, sum_of_calls in spent.items():
                seconds[name].append(sum_of_calls)
    return {
        name: {"seconds": found, "median": statistics.median(found)}
        for name, found in seconds.items()
    }


def ratio(results: Mapping[str, Mapping[str, Any]], over: str, under: str) -> float:
    """Return the median over the rounds of how many times longer one took than the other."""
    pairs = zip(results[over]["seconds"], results[under]["seconds"], strict=True)
    return statistics.median(a / b for a, b in pairs)


def machine(options: argparse.Namespace) -> dict[str, Any]:
    """Describe the machine, how busy it is, and what runs on it."""
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
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {
            name: importlib.metadata.version(name)
            for name in ("auxlearn", "torch", "transformers", "accelerate", "minicons")
        },
    }


def save(name: str, options: argparse.Namespace, results: Mapping[str, Any]) -> None:
    """Write the results of a benchmark with the machine they were taken on."""
    path = options.output or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = {k: str(v) for k, v in vars(options).items() if k != "output"}
    # Where they lie on this machine is of no use elsewhere.
    settings |= {k: Path(settings[k]).name for k in ("encoder", "dataset")}
    content = {"settings": settings, "machine": machine(options), **results}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")
