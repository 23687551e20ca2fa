"""Pseudo-likelihood scoring compared with minicons and with the peak throughput of the machine."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from scipy.stats import spearmanr
from torch import Tensor

from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.scoring import forward as packed, forward as scoring, pseudo_likelihood
from auxlearn.scoring.forward import inference_linear, packing_works
from auxlearn.scoring.pseudo_likelihood import pseudo_log_likelihood
from benchmarks.common import (
    Stopwatch,
    arguments,
    contest,
    encoder_of_size,
    long_texts_of,
    save,
    texts_of,
    version,
)

PASSES = (4, 6, 8, 16)
#: Tokens of a batch that are tried, by device.
BUDGETS = {
    "cpu": (256, 512, 1024, 2048, 4096, 8192),
    "cuda": (16_384, 32_768, 65_536, 131_072, 262_144, 524_288),
}

FP32, BF16 = torch.float32, torch.bfloat16
MINICONS = "minicons"
EXACT = {"cpu": "packed weights (default)", "cuda": "exact (default)"}

#: Texts that every contestant scores once before it counts.
WARM_UP = 4


@dataclass(frozen=True)
class Contestant:
    """A way to score texts.

    Attributes:
        run: Scores some texts, given tokenised and raw; minicons returns no scores.
        passes: Masked copies of a text; ``None``: one for each token.
        dtype: What the layers compute in.
    """

    run: Callable[[TokenizedTexts, list[str]], Tensor | None]
    passes: int | None = None
    dtype: torch.dtype = FP32


def main() -> None:
    """Run the contest, then compare batch sizes."""
    options = arguments(__doc__ or "", add=add_options)
    watch, device = Stopwatch.of(options), options.device
    encoder = encoder_of_size(options.encoder, device=device)
    length = options.length or 128
    texts, raw = (
        long_texts_of(encoder, options.dataset, options.texts, length)
        if options.length
        else texts_of(encoder, options.dataset, options.texts)
    )
    runs = contestants(encoder, length)
    peak = product_rates(encoder, watch, options.rounds)
    counts = {
        name: number_of_texts(encoder, texts, one, peak, options.fill) for name, one in runs.items()
    }
    if device == "cpu":
        for one in runs.values():
            one.run(texts.select(torch.arange(min(WARM_UP, len(texts)))), raw[:WARM_UP])
    found: dict[str, Tensor | None] = {}

    def kept(name: str) -> Callable[[], None]:
        some, lines = texts.select(torch.arange(counts[name])), raw[: counts[name]]
        return lambda: found.update({name: runs[name].run(some, lines)})

    results = contest(
        {name: kept(name) for name in runs},
        options.rounds,
        watch,
        warm_up=device == "cuda",
    )
    ends = texts.maskable.cumsum(0)[texts.offsets[1:] - 1]
    for name, result in results.items():
        result["tokens"] = int(ends[counts[name] - 1])
        result["tokens per second"] = result["tokens"] / result["median"]
        some = texts.select(torch.arange(counts[name]))
        result["operations"] = scoring_operations(encoder, some, runs[name].passes)
        limit = peak[str(runs[name].dtype)]
        result["share of the limit"] = result["operations"] / result["median"] / limit
        if MINICONS in results:
            result["speed-up"] = speed_up(result, results[MINICONS])
        if (scores := found[name]) is not None:
            exact = found[EXACT[device]]
            assert exact is not None
            tokens = min(len(exact), len(scores))
            result |= closeness(exact[:tokens], scores[:tokens], texts.maskable[:tokens])
    save(
        "scoring",
        options,
        {
            "tokens": int(texts.maskable.sum()),
            "packed weights": {str(d): device == "cpu" and packing_works(d) for d in (FP32, BF16)},
            "contestants": results,
            "operations": scoring_operations(encoder, texts),
            "matrix products per second": peak,
            "share of the limit": {
                name: results[name]["share of the limit"]
                for name in (EXACT[device], "bf16")
                if name in results
            },
            "budgets": budgets(encoder, texts, options, counts["bf16"]),
        },
    )


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--length", type=int, help="tokens of every text, joined from several")
    parser.add_argument(
        "--fill",
        type=float,
        metavar="SECONDS",
        help="give each contestant as many of the texts as would keep the device's matrix products "
        "busy for so long; by default all of them",
    )


def number_of_texts(
    encoder: SharedEncoder,
    texts: TokenizedTexts,
    one: Contestant,
    peak: dict[str, float],
    fill: float | None,
) -> int:
    """Return how many of the texts a contestant scores; one at least."""
    if fill is None:
        return len(texts)
    few = texts.select(torch.arange(min(WARM_UP, len(texts))))
    each = scoring_operations(encoder, few, one.passes) / len(few)
    return min(len(texts), max(1, int(fill * peak[str(one.dtype)] / each)))


def scoring_operations(
    encoder: SharedEncoder, texts: TokenizedTexts, passes: int | None = None
) -> float:
    """Count the operations of the products that scoring with BERT requires: a multiply-add is two.

    Of the last layer, only the positions used count; equal copies count each time.
    """
    config: Any = encoder.config
    width, inner = config.hidden_size, config.intermediate_size
    vocabulary = encoder.body.get_input_embeddings().num_embeddings
    total = 0.0
    maskable = texts.maskable.split(texts.lengths.tolist())
    for length, tokens in zip(texts.lengths.tolist(), map(int, map(sum, maskable)), strict=True):
        copies = tokens if passes is None else min(tokens, passes)
        layer = 2 * length * (4 * width**2 + 2 * width * inner) + 4 * length**2 * width
        keys_and_values = 2 * length * 2 * width**2
        read = 2 * (2 * width**2 + 2 * width * inner) + 4 * length * width
        read += 2 * width * (width + vocabulary)
        total += copies * ((config.num_hidden_layers - 1) * layer + keys_and_values) + tokens * read
    return total


def speed_up(result: dict, over: dict) -> float:
    """Return the median over the rounds of how many times more tokens per second one scores."""
    pairs = zip(over["seconds"], result["seconds"], strict=True)
    times = torch.tensor([a / b for a, b in pairs], dtype=torch.float64)
    return float(times.quantile(0.5)) * result["tokens"] / over["tokens"]


def contestants(encoder: SharedEncoder, length: int) -> dict[str, Contestant]:
    """Return ways to score texts, by name; all but minicons return the scores.

    Args:
        encoder: The encoder, on its device.
        length: Tokens at which raw texts are cut.
    """

    def plain(texts: TokenizedTexts, raw: list[str]) -> Tensor:
        with patch.object(pseudo_likelihood, "scoring_pass", scoring.WholePass):
            return pseudo_log_likelihood(encoder, texts)

    def unpacked(texts: TokenizedTexts, raw: list[str]) -> Tensor:
        with patch.object(packed, "packing_works", lambda dtype: False):
            return pseudo_log_likelihood(encoder, texts)

    def by(passes: int | None, dtype: torch.dtype) -> Contestant:
        return Contestant(
            lambda texts, raw: pseudo_log_likelihood(encoder, texts, passes=passes, dtype=dtype),
            passes,
            dtype,
        )

    device = encoder.device.type
    found = {}
    if version("minicons") is not None:
        found[MINICONS] = Contestant(minicons_scorer(encoder, length))
    found["batches of equal length"] = Contestant(plain)
    if device == "cpu":  # elsewhere nothing is packed
        found["last layer at the target"] = Contestant(unpacked)
    return {
        **found,
        EXACT[device]: by(None, FP32),
        "bf16": by(None, BF16),
        **{f"{k} passes": by(k, FP32) for k in PASSES},
        **{f"{k} passes, bf16": by(k, BF16) for k in PASSES[:3]},
    }


def minicons_scorer(
    encoder: SharedEncoder, length: int
) -> Callable[[TokenizedTexts, list[str]], None]:
    """Score one text at a time, as L3Masking's released code does."""
    from minicons.scorer import MaskedLMScorer

    tokenizer = encoder.tokenizer
    tokenizer.batch_encode_plus = tokenizer.__call__  # gone from transformers 5
    scorer = MaskedLMScorer(
        encoder.language_model,
        device=encoder.device.type,
        tokenizer=tokenizer,
        PLL_metric="within_word_l2r",
    )

    def run(texts: TokenizedTexts, raw: list[str]) -> None:
        for text in raw:
            ids = tokenizer(text, truncation=True, max_length=length)["input_ids"][1:-1]
            text = tokenizer.decode(ids) if len(ids) == length - 2 else text
            prepared = list(scorer.prepare_text(text, PLL_metric="within_word_l2r"))
            with torch.inference_mode():
                scorer.compute_stats(prepared, return_tensors=True)

    return run


def closeness(exact: torch.Tensor, found: torch.Tensor, where: torch.Tensor) -> dict[str, float]:
    """Compare the mask probabilities 1 - P before they are scaled."""
    wanted, given = (1 - scores[where].double().exp() for scores in (exact, found))
    difference = (wanted - given).abs()
    return {
        "spearman": float(spearmanr(wanted, given).statistic),
        "mean difference": float(difference.mean()),
        "largest difference": float(difference.max()),
    }


def product_rates(encoder: SharedEncoder, watch: Stopwatch, rounds: int) -> dict[str, float]:
    """Return operations per second of matrix products, by what they are computed in.

    On a CPU it is the feed-forward's product of MiniLM, its weights packed if they can be; on a GPU
    the encoder's own feed-forward on a full batch.
    """
    shape = (1024, 384, 1536)
    if watch.device == "cuda":
        full = pseudo_likelihood.TOKEN_BUDGET[pseudo_likelihood.budget_key(watch.device)]
        shape = (full, encoder.config.hidden_size, encoder.config.intermediate_size)
    return {str(dtype): product_rate(dtype, shape, watch, rounds) for dtype in (FP32, BF16)}


def product_rate(
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    watch: Stopwatch,
    rounds: int,
    repeats: int = 50,
) -> float:
    """Return operations per second of ``(rows, inner)`` by ``(inner, columns)``, the best round."""
    rows, inner, columns = shape
    device = torch.device(watch.device)
    x = torch.randn(rows, inner, device=device).to(dtype)
    weight = torch.randn(columns, inner, device=device)
    linear = inference_linear(weight, torch.randn(columns, device=device), dtype)

    def run() -> None:
        with torch.inference_mode():
            for _ in range(repeats):
                linear(x)

    found = contest({"product": run}, rounds, watch)["product"]
    return repeats * 2 * rows * inner * columns / min(found["seconds"])


def budgets(
    encoder: SharedEncoder, texts: TokenizedTexts, options: Namespace, count: int
) -> dict[str, float]:
    """Return tokens per second by size of batch, of ``count`` texts at most; on a GPU in bf16."""
    cuda = options.device == "cuda"
    few = texts.select(torch.arange(count if cuda else min(8, count)))

    key = pseudo_likelihood.budget_key(options.device)

    def run(budget: int) -> None:
        with patch.dict(pseudo_likelihood.TOKEN_BUDGET, {key: budget}):
            pseudo_log_likelihood(encoder, few, dtype=BF16 if cuda else FP32)

    found = contest(
        {str(budget): lambda b=budget: run(b) for budget in BUDGETS[options.device]},
        options.rounds,
        Stopwatch.of(options),
    )
    return {name: int(few.maskable.sum()) / times["median"] for name, times in found.items()}


if __name__ == "__main__":
    main()
