"""Mask-tuning and its ablations from SST-2 to IMDb contrast sets and IMDb-CAD, at a small size.

Needs folders of the three data sets (`auxlearn data check NAME` says where to get one), and an
encoder, whose masked-language-model head is trained first with ``--fit-head``::

    python -m benchmarks.mask_tuning --sst2 data/sst2 --contrast data/imdb_contrast \
        --cad data/imdb_cad --encoder path/of/encoder --fit-head 600 --output runs/mask_tuning

The same command runs the trials that are missing. It prints mean and standard deviation over seeds.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from auxlearn import RunConfig, train
from auxlearn.results.tables import markdown_table
from auxlearn.training.pretrain import pretrain
from benchmarks.common import add_device, check_device
from benchmarks.regret.plan import write_subset

BATCH = 16
EPOCHS = 3

VARIANTS: dict[str, dict[str, Any]] = {
    "fine-tuning on original train set": {},
    "fine-tuning on augmented train set": {"perturbed_text": "add"},
    "Mask-tuning w/o integrated loss": {
        "aux": ["mask_tuning"],
        "weights": {"fixed": {"alpha": [0.0], "mix": "gradients"}},
    },
    "sequential training": {"perturbed_text": "replace"},
    "Mask-tuning, alpha 0.6": {
        "aux": ["mask_tuning"],
        "weights": {"fixed": {"alpha": 0.6, "mix": "gradients"}},
    },
    "Mask-tuning, learned weights": {
        "aux": ["mask_tuning"],
        "weights": {"meta": {"horizon": "steps"}},
    },
}


def fitted(encoder: str, output: Path, **settings: Any) -> str:
    """Return the folder of a pretrained encoder, made if it is not there."""
    if not output.exists():
        found = pretrain(encoder, output, **settings)
        print(
            f"{output.name}: cross-entropy {found.loss_before:.3f} -> {found.loss_after:.3f}, "
            f"right {found.accuracy_before:.1%} -> {found.accuracy_after:.1%}",
            flush=True,
        )
    return str(output)


def main() -> None:
    """Run every variant with every seed, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("sst2", "contrast", "cad", "encoder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--output", type=Path, default=Path("runs/mask_tuning"))
    parser.add_argument(
        "--fit-head",
        type=int,
        default=0,
        help="optimizer steps of the head; 0: the checkpoint has one",
    )
    parser.add_argument("--train-rows", type=int, default=6920)
    parser.add_argument("--dev-rows", type=int, default=872)
    parser.add_argument("--test-rows", type=int, default=1821)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    add_device(parser)
    args = parser.parse_args()
    check_device(parser, args)

    rows = {"train": args.train_rows, "dev": args.dev_rows, "test": args.test_rows}
    data = args.output / "sst2"
    write_subset(Path(args.sst2), data, rows)
    encoder = args.encoder
    if args.fit_head:
        encoder = fitted(
            encoder,
            args.output / "encoder",
            dataset=args.sst2,
            trainable="head",
            steps=args.fit_head,
            learning_rate=1e-3,
            max_length=args.max_length,
            device=args.device,
        )
    # Sequential training has as many steps of masked language modelling as of fine-tuning.
    sequential = fitted(
        encoder,
        args.output / "encoder-mlm",
        dataset=str(data),
        steps=EPOCHS * -(-args.train_rows // BATCH),
        batch_size=BATCH,
        learning_rate=args.learning_rate,
        max_length=args.max_length,
        device=args.device,
    )
    sets = [
        {"name": "imdb_contrast", "dataset": args.contrast},
        # Its originals are those of the contrast sets, so that pairs would tell little more.
        {"name": "imdb_cad_revised", "dataset": args.cad, "split": "test_revised"},
    ]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for seed in args.seeds:
        for name, settings in VARIANTS.items():
            config = RunConfig.model_validate(
                {
                    "dataset": str(data),
                    "ood": sets,
                    "encoder": sequential if name.startswith("sequential") else encoder,
                    "epochs": EPOCHS,
                    "batch_size": BATCH,
                    "learning_rate": args.learning_rate,
                    "max_length": args.max_length,
                    "precision": args.precision,
                    "device": args.device,
                    "patience": 0,
                    "seed": seed,
                    "output": str(
                        args.output / f"{name.replace(' ', '_').replace('/', '')}-{seed}"
                    ),
                    **settings,
                }
            )
            results = train(config)
            scores = {"dev": results.evaluations["dev"].all.accuracy}
            scores["SST-2"] = results.evaluations["test"].all.accuracy
            contrast = results.evaluations["imdb_contrast"]
            assert contrast.partner is not None
            assert contrast.pair_accuracy is not None
            scores["IMDb-Cont."] = contrast.all.accuracy
            scores["IMDb-Cont. pairs"] = contrast.pair_accuracy
            scores["IMDb-Cont. originals"] = contrast.partner.accuracy
            scores["IMDb-CAD revised"] = results.evaluations["imdb_cad_revised"].all.accuracy
            scores["auxiliary weight"] = 1 - results.weights["primary"]
            scores["seconds"] = sum(results.seconds.values())
            found[name].append(scores)
            print(seed, name, {k: round(v, 4) for k, v in scores.items()}, flush=True)
    columns = list(next(iter(found.values()))[0])
    table = [
        [
            name,
            *(
                _mean_and_deviation([run[column] for run in runs], column == "seconds")
                for column in columns
            ),
        ]
        for name, runs in found.items()
    ]
    print(markdown_table(["", *columns], table))


def _mean_and_deviation(values: list[float], seconds: bool) -> str:
    if seconds:
        return f"{statistics.mean(values):.0f}"
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{100 * statistics.mean(values):.2f} ± {100 * deviation:.2f}"


if __name__ == "__main__":
    main()
