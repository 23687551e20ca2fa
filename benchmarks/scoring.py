"""Scoring pseudo-likelihoods: against minicons, step by step, and against the machine's limit."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from unittest.mock import patch

import torch
from minicons.scorer import MaskedLMScorer
from scipy.stats import spearmanr

from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders import packed, scoring
from auxlearn.encoders.packed import inference_linear, packing_works
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.masking import pseudo_likelihood
from auxlearn.masking.pseudo_likelihood import score
from benchmarks.common import arguments, contest, encoder_of_size, ratio, save, texts_of
from benchmarks.work import scoring_operations

PASSES = (4, 8, 16)
BUDGETS = (256, 512, 1024, 2048, 4096, 8192)

DTYPES = (torch.float32, torch.bfloat16)
EXACT = "packed weights (default)"

#: Texts that every contestant scores once before it counts.
WARM_UP = 4


def main() -> None:
    """Run the contest, then look at batch sizes."""
    options = arguments(__doc__ or "")
    encoder = encoder_of_size(options.encoder)
    texts, raw = texts_of(encoder, options.dataset, options.texts)
    few = torch.arange(min(WARM_UP, len(texts)))
    for run in contestants(encoder, texts.select(few), raw[: len(few)]).values():
        run()
    found: dict[str, torch.Tensor | None] = {}

    def kept(name: str, run: Callable[[], torch.Tensor | None]) -> Callable[[], None]:
        return lambda: found.update({name: run()})

    runs = contestants(encoder, texts, raw)
    results = contest(
        {name: kept(name, run) for name, run in runs.items()},
        options.rounds,
        options.clock,
        warm_up=False,
    )
    for name, scores in found.items():
        results[name]["speed-up"] = ratio(results, "minicons", name)
        if scores is not None:
            results[name] |= closeness(found[EXACT], scores, texts.maskable)
    peak = {str(dtype): matmul_rate(dtype, options) for dtype in DTYPES}
    work = scoring_operations(encoder, texts)
    save(
        "scoring",
        options,
        {
            "tokens": int(texts.maskable.sum()),
            "packed weights": {str(dtype): packing_works(dtype) for dtype in DTYPES},
            "contestants": results,
            "operations": work,
            "matrix products per second": peak,
            "share of the limit": {
                EXACT: work / results[EXACT]["median"] / peak["torch.float32"],
                "bf16": work / results["bf16"]["median"] / peak["torch.bfloat16"],
            },
            "budgets": budgets(encoder, texts, options),
        },
    )


def contestants(
    encoder: SharedEncoder, texts: TokenizedTexts, raw: list[str]
) -> dict[str, Callable[[], torch.Tensor | None]]:
    """Return ways to score some texts, by name; all but minicons return the scores."""

    def plain() -> torch.Tensor:
        with patch.object(pseudo_likelihood, "scoring_pass", scoring.WholePass):
            return score(encoder, texts)

    def unpacked() -> torch.Tensor:
        with patch.object(packed, "packing_works", lambda dtype: False):
            return score(encoder, texts)

    return {
        "minicons": minicons_scorer(encoder, raw),
        "batches of equal length": plain,
        "last layer at the target": unpacked,
        EXACT: lambda: score(encoder, texts),
        "bf16": lambda: score(encoder, texts, dtype=torch.bfloat16),
        **{f"{k} passes": lambda k=k: score(encoder, texts, passes=k) for k in PASSES},
        **{
            f"{k} passes, bf16": lambda k=k: score(encoder, texts, passes=k, dtype=torch.bfloat16)
            for k in (4, 8)
        },
    }


def minicons_scorer(encoder: SharedEncoder, raw: list[str]) -> Callable[[], None]:
    """Score one text at a time, as L3Masking's released code does."""
    tokenizer = encoder.tokenizer
    tokenizer.batch_encode_plus = tokenizer.__call__  # gone from transformers 5
    scorer = MaskedLMScorer(
        encoder.language_model, device="cpu", tokenizer=tokenizer, PLL_metric="within_word_l2r"
    )

    def run() -> None:
        for text in raw:
            ids = tokenizer(text, truncation=True, max_length=128)["input_ids"][1:-1]
            text = tokenizer.decode(ids) if len(ids) == 126 else text
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


def matmul_rate(dtype: torch.dtype, options: Namespace) -> float:
    """Return operations per second of the feed-forward's product, weights packed if they can be."""
    x, weight = torch.randn(1024, 384).to(dtype), torch.randn(1536, 384)
    linear = inference_linear(weight, torch.randn(1536), dtype)
    repeats = 50

    def run() -> None:
        with torch.inference_mode():
            for _ in range(repeats):
                linear(x)

    found = contest({"product": run}, options.rounds, options.clock)["product"]
    return repeats * 2 * 1024 * 384 * 1536 / min(found["seconds"])


def budgets(encoder: SharedEncoder, texts: TokenizedTexts, options: Namespace) -> dict[str, float]:
    """Return tokens scored per second by tokens of a batch."""
    few = texts.select(torch.arange(min(8, len(texts))))

    def run(budget: int) -> None:
        with patch.dict(pseudo_likelihood.TOKEN_BUDGET, cpu=budget):
            score(encoder, few)

    found = contest(
        {str(budget): lambda b=budget: run(b) for budget in BUDGETS}, options.rounds, options.clock
    )
    return {name: int(few.maskable.sum()) / times["median"] for name, times in found.items()}


if __name__ == "__main__":
    main()
