"""Write digests of everything that short runs of every kind leave, to compare two revisions.

A change that is to change no result is proved by::

    python scripts/same_results.py before.json    # on the old revision
    python scripts/same_results.py after.json --against before.json

The runs take about three minutes on one core. Digests are those of one machine: other processors
round differently.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import auxlearn

EXAMPLES = {"train": 36, "dev": 18, "test": 18}
BASE: Mapping[str, Any] = {
    "dataset": "data",
    "encoder": "tiny",
    "device": "cpu",
    "epochs": 2,
    "batch_size": 6,
    "max_length": 32,
    "eval_steps": 3,
    "cache_dir": "cache",
}
#: The settings in which a run differs from the base, by its name.
RUNS: Mapping[str, Mapping[str, Any]] = {
    "fixed": {"aux": ["random_mlm"], "report_to": ["tensorboard"]},
    "gradients": {"aux": ["l3mask"], "weights": {"fixed": {"alpha": 0.3, "mix": "gradients"}}},
    "branches": {"aux": ["l3mask", "simcse"], "weights": "meta"},
    "steps": {"aux": ["random_mlm"], "weights": {"meta": {"horizon": "steps"}}},
    "tartan": {"aux": ["mask_tuning"], "weights": "tartan", "metric": "macro_f1"},
    "bf16": {"aux": ["simcse"], "weights": "tartan_released", "precision": "bf16"},
    "accumulation": {
        "aux": ["random_mlm", "simcse"],
        "weights": "gcs",
        "gradient_accumulation_steps": 2,
    },
    "lora": {"aux": ["simcse"], "weights": {"torchjd": {"rule": "PCGrad"}}, "lora_rank": 4},
    "frozen": {
        "aux": ["random_mlm", "l3mask"],
        "weights": {"meta": {"horizon": "steps", "mix": "scaled"}},
        "freeze": "1",
    },
    "fold": {"aux": ["random_mlm"], "weights": "equal", "fold": "1/3", "ood": ["other"]},
    "loss": {"loss": "r_drop", "patience": 1},
    "bias": {"loss": {"poe": {"bias": "weak"}}, "aux": ["random_mlm"], "final_epochs": 1},
    "sets": {"aux": [{"supervised": {"datasets": ["other"]}}], "weights": "metabalance"},
    "continued": {"aux": ["random_mlm"], "weights": "ol_aux", "init_from": "fixed"},
}


def write_data() -> None:
    """Write two small labelled sets of docstrings into the working directory."""
    dataset = auxlearn.load_dataset("pydocs")
    for folder, start in (("data", 0), ("other", 60)):
        Path(folder).mkdir()
        for name, count in EXAMPLES.items():
            split = dataset.split(name)
            assert split.labels is not None
            labels = [split.label_names[label] for label in split.labels]
            lines = [
                json.dumps({"text": split.texts[row], "label": labels[row]})
                for row in range(start, start + count)
            ]
            Path(folder, f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def train_all() -> Iterator[tuple[str, str]]:
    """Train, and yield what is left by name, with its digest."""
    for name, settings in RUNS.items():
        results = auxlearn.train(**{**BASE, **settings}, output=name)
        yield from digests(name, results)
    frame = pd.read_json("data/train.jsonl", lines=True)
    results = auxlearn.train(**{**BASE, "dataset": frame}, aux=["random_mlm"], output="memory")
    yield from digests("memory", results)
    auxlearn.pretrain(
        "tiny", "pretrained", dataset="data", steps=4, batch_size=6, max_length=32, device="cpu"
    )
    yield from files(Path("pretrained"))
    base = {key: value for key, value in BASE.items() if key not in ("cache_dir", "device")}
    plan = {"name": "sweep", "base": base, "seeds": [0, 1], "grid": {"aux": [[], ["random_mlm"]]}}
    auxlearn.sweep(plan, output="sweep", jobs=1)
    compared = auxlearn.compare("sweep", "fold", "tartan")
    tables = (
        compared.to_frame().drop(columns="minutes").to_csv(),
        compared.to_markdown(),
        compared.to_latex(),
    )
    for form, table in zip(("csv", "md", "tex"), tables, strict=True):
        yield f"comparison.{form}", digest(table.encode())
    for run in sorted(Path("sweep/trials").iterdir()):
        yield from files(run)


def digests(name: str, results: auxlearn.RunResults) -> Iterator[tuple[str, str]]:
    """Yield the digests of a run's files and of its results."""
    yield from files(Path(name))
    content = results.reproducible() | {"config": results.config}
    text = json.dumps(content, sort_keys=True, default=str)
    yield f"{name}/results", digest(text.encode())


def files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the digests of weights, metrics and predictions below a folder."""
    for pattern in ("*.safetensors", "metrics.jsonl", "predictions/*.jsonl"):
        for path in sorted(folder.rglob(pattern)):
            yield str(path), digest(path.read_bytes())


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def main() -> int:
    """Write the digests; exit code 1 if they differ from those of another revision."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="file of digests")
    parser.add_argument("--against", type=Path, help="digests of another revision")
    options = parser.parse_args()
    output = options.output.resolve()
    before = json.loads(options.against.read_text()) if options.against else None
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_data()
        found = dict(train_all())
        os.chdir("/")
    output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} digests in {output}")
    if before is None:
        return 0
    differing = [key for key in before | found if before.get(key) != found.get(key)]
    print("\n".join(["differing:", *differing]) if differing else "all equal")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
