"""Writes the results of the benchmarks into ``benchmarks/RESULTS.md``, as tables.

``--results`` and ``--page`` name other places, to try a report without touching the page.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from auxlearn.core.files import write_text
from benchmarks import report_gpu
from benchmarks.common import RESULTS
from benchmarks.tables import machine, table

PAGE = Path(__file__).parent / "RESULTS.md"


def main() -> None:
    """Replace the section of each benchmark that has results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of NAME.json")
    parser.add_argument("--page", type=Path, default=PAGE, help="Markdown file with the markers")
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    for name, (write, said) in SECTIONS.items():
        texts = []
        for path in sorted(options.results.glob(f"{name}*.json")):
            found = json.loads(path.read_text(encoding="utf-8"))
            texts += [machine(found, said), *write(found)]
        if texts:
            page = put(page, name, texts)
    texts = list(report_gpu.write(options.results / report_gpu.FOLDER))
    if texts:
        page = put(page, "gpu", texts)
    write_text(options.page, page)


def put(page: str, name: str, texts: Sequence[str]) -> str:
    """Return the page with other text between the markers of a section.

    Raises:
        SystemExit: The page has no such markers.
    """
    text = "\n\n".join(texts)
    page, count = re.subn(
        rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
        lambda match: f"{match[1]}{text}\n{match[2]}",
        page,
        flags=re.DOTALL,
    )
    if count != 1:
        raise SystemExit(f"the page needs the markers <!-- {name} --> and <!-- /{name} --> once")
    return page


def scoring(found: dict[str, Any]) -> Iterable[str]:
    """Contestants against minicons, the limit, and batch sizes."""
    rows = []
    for name, result in found["contestants"].items():
        close = [f"{result[key]:.{digits}f}" if key in result else "" for key, digits in _CLOSE]
        rows.append([name, f"{result['median']:.2f}", f"{result['speed-up']:.2f}", *close])
    head = ("", "seconds", "speed-up", "Spearman", "mean difference of P", "largest")
    yield table(head, rows)
    rates = found["matrix products per second"]
    shares = found["share of the limit"]
    yield (
        f"{found['tokens']} tokens, {found['operations'] / 1e12:.2f} T operations that exact "
        "scoring cannot do without. Matrix products run at "
        f"{rates['torch.float32'] / 1e9:.0f} GFLOP/s in fp32 and "
        f"{rates['torch.bfloat16'] / 1e9:.0f} in bf16; exact scoring reaches "
        f"{shares['packed weights (default)']:.0%} and {shares['bf16']:.0%} of that."
    )
    yield table(
        ("tokens of a batch", *found["budgets"]),
        [("tokens scored per second", *(f"{rate:.0f}" for rate in found["budgets"].values()))],
    )


_CLOSE = (("spearman", 4), ("mean difference", 4), ("largest difference", 3))


def training(found: dict[str, Any]) -> Iterable[str]:
    """Contestants, ratios, padding."""
    whole = found["against Trainer"]
    yield table(
        ("whole trainings in turn", "steps per second"),
        [(name, f"{r['steps per second']:.2f}") for name, r in whole.items()],
    )
    yield table(
        ("single steps in turn", "steps per second"),
        [(name, f"{r['steps per second']:.2f}") for name, r in found["contestants"].items()],
    )
    yield table(("ratio", ""), [(name, f"{value:.2f}") for name, value in found["ratios"].items()])
    if found["seconds of compilation"] is not None:
        yield (
            f"Compiling the encoder took {found['seconds of compilation']:.0f} seconds before the "
            "first step. The compiler keeps its work; where it has none to go by, it takes longer."
        )
    yield table(
        ("padding", "share of a batch"),
        [(name, f"{share:.1%}") for name, share in found["padding"].items()],
    )


def objectives(found: dict[str, Any]) -> Iterable[str]:
    """Time of further objectives, and the operations that they add."""
    one = {"time": 1.0, "operations": 1.0}
    yield table(
        ("encoder", "objectives", "steps per second", "time over one", "operations over one"),
        [
            (
                encoder,
                name,
                f"{result['steps'] / seconds['median']:.2f}",
                *(
                    f"{result['over one'].get(name, one)[key]:.2f}"
                    for key in ("time", "operations")
                ),
            )
            for encoder, result in found["encoders"].items()
            for name, seconds in result["contestants"].items()
        ],
    )


def processes(found: dict[str, Any]) -> Iterable[str]:
    """How many times faster several processes make the same steps."""
    yield from report_gpu.processes([found])


def weighting(found: dict[str, Any]) -> Iterable[str]:
    """Time and memory of an optimizer step under each rule, by size of the encoder."""
    for size, results in found["sizes"].items():
        yield (
            f"**{size}**, {results['parameters'] / 1e6:.0f} million parameters, batches of "
            f"{results['batch']} x {found['settings']['length']} tokens. A rule that takes the "
            f"gradient of as many validation rows in every update cannot be below "
            f"{results['floor']:.2f}."
        )
        rows = []
        for name, figures in results["contestants"].items():
            copies = figures.get("memory_over_fixed_in_parameter_copies")
            memory = "" if copies is None else f"{round(copies, 2) + 0.0:+.2f}"
            rows.append([name, f"{figures['seconds']:.2f}", f"{figures['time_ratio']:.2f}", memory])
        head = (
            "",
            "seconds",
            "time over fixed",
            "peak memory over fixed, copies of the parameters",
        )
        yield table(head, rows)


def rule_operations(found: dict[str, Any]) -> Iterable[str]:
    """Torch operations of an optimizer step under each rule."""
    rows = [
        [name, f"{figures['operations']:,}", f"{figures['operations_ratio']:.2f}"]
        for name, figures in found["contestants"].items()
    ]
    yield table(("", "operations", "over fixed weights with separate steps"), rows)


def startup(found: dict[str, Any]) -> Iterable[str]:
    """Times, and what is imported."""
    names = {
        "help": "`auxlearn --help`",
        "first step, nothing cached": "`auxlearn train` to its first step, first run ever",
        "first step": "`auxlearn train` to its first step, later runs",
        "whole run": "`auxlearn train` of 300 short texts, 5 epochs, to its results",
    }
    yield table(
        ("", "wall seconds", "processor seconds"),
        [
            (text, f"{found[k]['wall']:.2f}", f"{found[k]['cpu']:.2f}")
            for k, text in names.items()
            if k in found
        ],
    )
    yield table(
        ("import, with all it imports", "seconds"),
        [(name, f"{seconds:.2f}") for name, seconds in found["imports of a run"].items()],
    )


#: Each benchmark: what writes its section, and which of its settings count.
SECTIONS = {
    "scoring": (scoring, "encoder {encoder}, {texts} texts of {dataset}, {rounds} rounds"),
    "training": (training, "encoder {encoder}, {texts} texts of {dataset}, {rounds} rounds"),
    "objectives": (objectives, "batches of 32 texts of {dataset}, {rounds} rounds"),
    "processes": (
        processes,
        "encoder {encoder}, two objectives, batches of 32 texts of {dataset}, {rounds} rounds",
    ),
    "weighting": (weighting, "{rounds} rounds after one that warms up"),
    "rule_operations": (rule_operations, "12 layers, width 32, batches of 4 texts"),
    "startup": (startup, "encoder tiny, data set pydocs, {rounds} rounds"),
}


if __name__ == "__main__":
    main()
