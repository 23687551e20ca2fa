"""Losses of the primary task on pairs of texts, in and out of distribution, at a small size.

Needs folders of QQP and PAWS, or of MNLI and HANS (``auxlearn data check NAME`` says where to get
one)::

    python -m benchmarks.primary_losses --dataset data/qqp --ood data/paws --output runs/losses

The same command runs the trials that are missing. It prints mean and standard deviation over seeds,
and the difference to cross-entropy, paired by seed, with its standard error.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from auxlearn import RunConfig, train
from auxlearn.results.tables import markdown_table
from benchmarks.common import add_device, check_device
from benchmarks.regret.plan import write_subset

#: The rows of Mask-tuning's Table I that are losses, with their papers' settings, and others.
VARIANTS: dict[str, dict[str, Any]] = {
    "cross_entropy": {},
    "label smoothing 0.1": {"loss": {"cross_entropy": {"label_smoothing": 0.1}}},
    "focal": {"loss": "focal"},
    "r_drop": {"loss": "r_drop"},
    "span_cutoff": {"loss": "span_cutoff"},
    "hidden_cut": {"loss": "hidden_cut"},
    "poe": {"loss": {"poe": {"bias": "overlap"}}},
    "learned_mixin, penalty 0.03": {
        "loss": {"learned_mixin": {"bias": "overlap", "entropy_penalty": 0.03}}
    },
    "debiased_focal": {"loss": {"debiased_focal": {"bias": "overlap"}}},
    "confidence": {"loss": {"confidence": {"bias": "overlap"}}},
    "mask_tuning, alpha 0.3": {"aux": ["mask_tuning"], "weights": {"fixed": {"alpha": 0.3}}},
}


def main() -> None:
    """Run every variant with every seed, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", required=True, type=Path)
    parser.add_argument("--ood", required=True)
    parser.add_argument("--ood-labels", type=json.loads, default=None, help="mapping as JSON")
    parser.add_argument("--output", type=Path, default=Path("runs/primary_losses"))
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--train-examples", type=int, default=2000)
    parser.add_argument("--dev-examples", type=int, default=500)
    parser.add_argument("--test-examples", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    add_device(parser)
    args = parser.parse_args()
    check_device(parser, args)

    data = args.output / "data" / args.dataset.name
    examples = {
        "train": args.train_examples,
        "dev": args.dev_examples,
        "test": args.test_examples,
    }
    write_subset(args.dataset, data, examples)
    ood = {"name": "ood", "dataset": args.ood, "labels": args.ood_labels}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in args.only}
    for seed in args.seeds:
        for name in args.only:
            folder = args.output / f"{name.replace(' ', '_').replace(',', '')}-{seed}"
            config = RunConfig.model_validate(
                {
                    "dataset": str(data),
                    "ood": [{key: value for key, value in ood.items() if value is not None}],
                    "encoder": args.encoder,
                    "epochs": args.epochs,
                    "max_length": args.max_length,
                    "device": args.device,
                    "patience": 0,
                    "seed": seed,
                    "output": str(folder),
                    **VARIANTS[name],
                }
            )
            results = train(config)
            scores = {
                column: results.evaluations[column].all.accuracy
                for column in ("dev", "test", "ood")
            }
            found[name].append(scores)
            print(seed, name, {k: round(v, 4) for k, v in scores.items()}, flush=True)
    print(
        markdown_table(
            ["", "dev", "test", "- cross_entropy", "ood", "- cross_entropy"], _rows(found)
        )
    )


def _rows(found: dict[str, list[dict[str, float]]]) -> list[list[str]]:
    baseline = found.get("cross_entropy", [])
    rows = []
    for name, runs in found.items():
        row = [name, _mean_and_deviation([run["dev"] for run in runs])]
        for column in ("test", "ood"):
            row.append(_mean_and_deviation([run[column] for run in runs]))
            pairs = zip(runs, baseline, strict=False)
            row.append(_difference([run[column] - base[column] for run, base in pairs]))
        rows.append(row)
    return rows


def _difference(values: list[float]) -> str:
    if not any(values):
        return ""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{100 * statistics.mean(values):+.1f} ± {100 * error:.1f}"


def _mean_and_deviation(values: list[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{100 * statistics.mean(values):.1f} ± {100 * deviation:.1f}"


if __name__ == "__main__":
    main()
