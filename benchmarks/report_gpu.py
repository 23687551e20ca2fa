"""Tables from the results of ``benchmarks.gpu``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.tables import machine, table

#: Of the results, within that of all results.
FOLDER = "gpu"

Found = dict[str, Any]


def write(folder: Path) -> Iterable[str]:
    """Yield the paragraphs of all parts that have results, nothing if there are none."""
    said = False
    for heading, pattern, tables in PARTS:
        found = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(folder.glob(pattern))]
        if not found:
            continue
        if not said:
            yield machine(found[0], "`python -m benchmarks.gpu`")
            said = True
        yield f"**{heading}**"
        yield from tables(found)


def scoring(found: list[Found]) -> Iterable[str]:
    """Rates, against minicons and against the card's own matrix products."""
    rates = [one["matrix products per second"] for one in found]
    best = {
        title: max(rate[name] for rate in rates) / 1e12
        for name, title in (
            ("torch.float32", "fp32"),
            ("tf32", "tf32"),
            ("torch.bfloat16", "bf16"),
        )
    }
    measured = ", ".join(f"{rate:.0f} in {title}" for title, rate in best.items())
    yield (
        f"Matrix products run at {measured} (TFLOP/s, the best measured). The share is that of the "
        "operations that scoring cannot do without, in the precision of the contestant."
    )
    yield table(
        ("", "tokens per second", "over minicons", "share of products", "GB at the peak"),
        [
            (
                f"{title(one)}: {name}",
                f"{result['tokens per second']:.0f}",
                optional(result, "speed-up", ".1f"),
                f"{result['share of the limit']:.0%}",
                gigabytes(result),
            )
            for one in found
            for name, result in one["contestants"].items()
        ],
    )
    tried = list(dict.fromkeys(size for one in found for size in one["budgets"]))
    yield table(
        ("tokens per second in bf16 by tokens of a batch", *tried),
        [(title(one), *(optional(one["budgets"], size, ".0f") for size in tried)) for one in found],
    )


def training(found: list[Found]) -> Iterable[str]:
    """Whole trainings against the Trainer, then what each choice costs or gives."""
    yield table(
        ("", "optimizer steps per second", "GB at the peak"),
        [
            (f"{title(one)}: {name}", f"{result['steps per second']:.2f}", gigabytes(result))
            for one in found
            for part in ("against Trainer", "contestants")
            for name, result in one[part].items()
        ],
    )
    yield table(
        ("ratio", ""),
        [
            (f"{title(one)}: {name}", f"{value:.2f}")
            for one in found
            for name, value in one["ratios"].items()
        ],
    )


def weighting(found: list[Found]) -> Iterable[str]:
    """Every rule against fixed weights."""
    yield table(
        ("", "ms", "time over fixed", "peak memory over fixed, copies of the parameters"),
        [
            (
                f"{size}, {one['settings']['precision']}: {name}",
                f"{1000 * result['seconds']:.1f}",
                f"{result['time_ratio']:.2f}",
                optional(result, "memory_over_fixed_in_parameter_copies", "+.2f"),
            )
            for one in found
            for size, results in one["sizes"].items()
            for name, result in results["contestants"].items()
        ],
    )


def objectives(found: list[Found]) -> Iterable[str]:
    """What further objectives cost."""
    yield table(
        ("encoder", "objectives", "time over one", "operations over one"),
        [
            (encoder, count, f"{over['time']:.2f}", f"{over['operations']:.2f}")
            for one in found
            for encoder, result in one["encoders"].items()
            for count, over in result["over one"].items()
        ],
    )


def processes(found: list[Found]) -> Iterable[str]:
    """How many times faster several processes make the same steps."""
    for one in found:
        rows = []
        for count, contest in one["contests"].items():
            for rule, results in contest["rules"].items():
                rate = one["steps"] / results["contestants"]["all processes"]["median"]
                times = results["times faster"]
                rows.append([count, rule, f"{rate:.2f}", *(f"{x:.2f}" for x in times.values())])
                rows[-1].append(f"{times['over one process'] / int(count):.0%}")
        titles = [f"times faster than {name.removeprefix('over ')}" for name in times]
        yield table(("processes", "weighting", "steps per second", *titles, "efficiency"), rows)


def title(found: Found) -> str:
    """Return the encoder, and the length where all texts have one."""
    settings = found["settings"]
    length = settings.get("length")
    return settings["encoder"] + (f", {length} tokens" if length not in (None, "None") else "")


def gigabytes(result: Found) -> str:
    """Return the peak memory of a contestant, nothing if it was not looked at."""
    return f"{result['peak bytes'] / 2**30:.1f}" if "peak bytes" in result else ""


def optional(result: Found, key: str, form: str) -> str:
    """Return a number that some results do not have."""
    return format(result[key], form) if key in result else ""


#: Heading, files and tables of each part.
PARTS: tuple[tuple[str, str, Callable[[list[Found]], Iterable[str]]], ...] = (
    ("Scoring", "scoring-*.json", scoring),
    ("Training", "training-*.json", training),
    ("Weightings", "weighting-*.json", weighting),
    ("Several objectives", "objectives-*.json", objectives),
    ("One training on several GPUs", "processes-*.json", processes),
)
