"""CPU time and peak memory of comparing methods, by number of methods and seeds."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

#: Methods, seeds, examples, classes.
SIZES = [(3, 5, 10_000, 3), (3, 5, 40_000, 3), (10, 10, 10_000, 3), (10, 10, 10_000, 77)]


def column(methods: int, seeds: int, examples: int, classes: int) -> dict[str, float]:
    """Compare synthetic predictions in this process and return CPU time and peak memory.

    Imports are not included.
    """
    from scipy import special  # noqa: F401

    from auxlearn.comparison.power import minimum_detectable_difference
    from auxlearn.comparison.scores import Predictions, scores_and_covariance
    from auxlearn.comparison.statistics import Column, compare_methods

    draws = np.random.default_rng(0)
    truth = draws.integers(0, classes, examples).astype(np.int32)
    predicted = np.empty((methods * seeds, examples), dtype=np.int32)
    for number, run in enumerate(predicted):
        share = 0.8 + 0.002 * (number // seeds) + draws.normal(0, 0.003)
        hit = draws.random(examples) < share
        run[:] = np.where(hit, truth, draws.integers(0, classes, examples))
    labels = tuple(f"class {number}" for number in range(classes))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    values, covariance = scores_and_covariance(Predictions(labels, truth, predicted), "macro_f1")
    places = {(f"method {run // seeds}", run % seeds): run for run in range(len(predicted))}
    scores: dict[str, dict[int, float]] = {}
    for (name, seed), place in places.items():
        scores.setdefault(name, {})[seed] = float(values[place])
    pairs = compare_methods(Column(scores, places, covariance, examples))
    minimum_detectable_difference(pairs, methods, examples)
    spent = time.process_time() - begun
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"cpu_seconds": round(spent, 2), "memory_mb": round((after - before) / 1024, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=4, help="measure one size in this process")
    parser.add_argument("--output", type=Path, help="by default benchmarks/results/compare.json")
    options = parser.parse_args()
    if options.size:
        print(json.dumps(column(*options.size)))
        return
    rows = []
    for size in SIZES:
        command = [sys.executable, "-m", "benchmarks.compare", "--size", *map(str, size)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        names = ("methods", "seeds", "examples", "classes")
        rows.append(dict(zip(names, size, strict=True)) | json.loads(done.stdout))
        print(json.dumps(rows[-1]), flush=True)
    output = options.output or Path(__file__).parent / "results" / "compare.json"
    output.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
