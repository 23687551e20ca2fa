"""The same first job with auxlearn, the Trainer of transformers, and SetFit: lines, time, scores.

Each library does it as its own quick start says, in a script beside this file: fine-tune a
classifier of texts on a table, evaluate it on test, label new texts as a table. The scripts run in
processes of their own with one thread; their processor time is measured, loading included::

    python -m benchmarks.first_use --data data/sst2 --encoder path/of/MiniLM

SetFit is no dependency: ``--path`` names a folder that ``pip install --target`` filled with it.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from auxlearn.core.errors import RunError
from auxlearn.core.files import write_json
from benchmarks.common import RESULTS
from benchmarks.regret.plan import write_subset
from benchmarks.tables import table

#: Libraries, and the packages whose versions matter to them.
LIBRARIES = {
    "auxlearn": ("auxlearn", "torch", "transformers"),
    "transformers": ("transformers", "accelerate"),
    "setfit": ("setfit", "sentence-transformers"),
}
FILE = RESULTS / "first_use.json"
SCORES = ("accuracy", "macro_f1")


def script(library: str) -> Path:
    """Return the script of a library."""
    return Path(__file__).parent / f"with_{library}.py"


def lines_of_code(source: str) -> int:
    """Count the lines of code without blank lines, comments, docstring and imports."""
    counted: set[int] = set()
    left_out: set[int] = set()
    tree = ast.parse(source)
    for number, node in enumerate(tree.body):
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        skipped = isinstance(node, ast.Import | ast.ImportFrom) or (number == 0 and text)
        (left_out if skipped else counted).update(lines)
    written = source.splitlines()
    return sum(
        bool(written[line - 1].strip()) and not written[line - 1].lstrip().startswith("#")
        for line in counted - left_out
    )


def write_data(source: Path, folder: Path, train: int, test: int) -> None:
    """Write ``train.jsonl``, ``test.jsonl``, and ``new.jsonl``: 20 texts without labels."""
    write_subset(source, folder, {"train": train, "dev": 20, "test": test})
    dev = (folder / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    new = [json.dumps({"text": json.loads(line)["text"]}) + "\n" for line in dev]
    (folder / "new.jsonl").write_text("".join(new), encoding="utf-8")


def measure(library: str, data: Path, encoder: Path, seed: int, path: str) -> dict[str, float]:
    """Run the script of a library in an empty folder; return its scores and seconds.

    Raises:
        RunError: The script failed; the message ends with the end of what it printed.
    """
    paths = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH"), path])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "HF_HUB_OFFLINE": "1",
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1"),
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, str(script(library)), str(data), str(encoder), str(seed)]
    with tempfile.TemporaryDirectory() as folder, Path(folder, "printed").open("w+") as printed:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        text = printed.read()
        labelled = Path(folder, "predictions.csv").exists()
    found = {
        name: float(value)
        for name, _, value in (line.partition(" ") for line in text.splitlines())
        if name in SCORES
    }
    if process.returncode or not labelled or set(found) != set(SCORES):
        raise RunError(f"{script(library).name} failed with seed {seed}:\n{text[-2000:]}")
    return found | {"cpu_seconds": used.ru_utime + used.ru_stime}


def versions(names: Iterable[str], path: str) -> dict[str, str]:
    """Return the versions of packages, also of those in a folder of their own."""
    places = [*sys.path, *filter(None, [path])]
    found = {
        distribution.name: distribution.version
        for name in names
        for distribution in importlib.metadata.distributions(name=name, path=places)
    }
    return {name: found[name] for name in names if name in found}


def results_table(results: dict[str, Any]) -> str:
    """Return the results in Markdown."""

    def both(values: list[float], factor: float = 1) -> str:
        scaled = [factor * value for value in values]
        spread = statistics.stdev(scaled) if len(scaled) > 1 else 0.0
        return f"{statistics.mean(scaled):.1f} ± {spread:.1f}"

    rows = []
    for name, found in results["libraries"].items():
        runs = found["runs"]
        version = next(iter(found["versions"].values()), "")
        columns = [[run[key] for run in runs] for key in ("cpu_seconds", *SCORES)]
        cells = [both(columns[0]), both(columns[1], 100), both(columns[2], 100)]
        rows.append([f"{name} {version}", str(found["lines"]), *cells])
    heads = ("library", "lines of code", "processor seconds", "accuracy", "macro-F1")
    return table(heads, rows)


def main() -> None:
    """Run every library with every seed, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of SST-2")
    parser.add_argument("--encoder", type=Path, required=True, help="folder of the encoder")
    parser.add_argument("--path", default="", help="folder with packages that only SetFit needs")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--train-rows", type=int, default=500)
    parser.add_argument("--test-rows", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="scripts at a time")
    parser.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args()
    encoder = options.encoder.resolve()
    config = json.loads((encoder / "config.json").read_text(encoding="utf-8"))
    paths = dict.fromkeys(LIBRARIES, "") | {"setfit": options.path}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        data = Path(folder, "data")
        write_data(options.data, data, options.train_rows, options.test_rows)
        started = {
            (name, seed): pool.submit(measure, name, data, encoder, seed, paths[name])
            for seed in range(options.seeds)
            for name in options.libraries
        }
        libraries = {
            name: {
                "lines": lines_of_code(script(name).read_text(encoding="utf-8")),
                "versions": versions(LIBRARIES[name], paths[name]),
                "runs": [started[name, seed].result() for seed in range(options.seeds)],
            }
            for name in options.libraries
        }
    results = {
        "settings": {
            "data": options.data.name,
            "train_rows": options.train_rows,
            "test_rows": options.test_rows,
            "layers": config["num_hidden_layers"],
            "width": config["hidden_size"],
        },
        "libraries": libraries,
    }
    write_json(options.output, results)
    print(results_table(results))


if __name__ == "__main__":
    main()
