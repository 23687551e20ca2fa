"""Writes the results of the benchmarks into ``benchmarks/RESULTS.md``, as tables and a plot.

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
from auxlearn.results.plots import WIDTH, colour, save_figure
from benchmarks import report_gpu
from benchmarks.common import RESULTS
from benchmarks.report_gpu import AXES, series_axis
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
            if name == "growth":
                plot = options.page.parent / "img" / "growth.png"
                plot.parent.mkdir(exist_ok=True)
                draw(found["points"], plot)
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


def approximation(found: dict[str, Any]) -> Iterable[str]:
    """Estimators by number of copies; then what bf16 does to exact scores."""
    kinds = ("1 - P", "scaled")
    keys = (("spearman", 4), ("mean difference", 4), ("largest difference", 3))

    def row(result: dict[str, Any]) -> list[str]:
        return [f"{result[kind][key]:.{digits}f}" for kind in kinds for key, digits in keys]

    yield (
        f"{found['tokens']} tokens of {found['judged on']} texts, to which nothing was fitted; "
        f"corrections are fitted to {found['fitted to']} others, scored exactly. Mean of P "
        f"{found['mean of P']:.3f}; exact scores take {found['exact copies']} masked copies."
    )
    heads = [f"{kind}: {key}" for kind in kinds for key in ("Spearman", "mean error", "largest")]
    yield table(
        ("", "copies", *heads),
        [
            (f"{passes} passes: {name}", str(at["copies"]), *row(result))
            for passes, at in found["passes"].items()
            for name, result in at["estimators"].items()
        ]
        + [("exact, in bf16", str(found["exact copies"]), *row(found["bf16, exact"]))],
    )


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


def joined(found: dict[str, Any]) -> Iterable[str]:
    """One pass through the body against one for each objective."""
    head = ("encoder", "rows of a batch", "time, one pass over two", "padding, two", "padding, one")
    yield table(
        head,
        [
            (
                contest["encoder"],
                str(contest["rows"]),
                f"{contest['one pass over one pass each']:.2f}",
                f"{contest['padding']['one pass each']:.0%}",
                f"{contest['padding']['one pass']:.0%}",
            )
            for contest in found["contests"]
        ],
    )


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


def startup(found: dict[str, Any]) -> Iterable[str]:
    """Times, and what is imported."""
    names = {
        "help": "`auxlearn --help`",
        "first step, nothing cached": "`auxlearn train` to its first step, first run ever",
        "first step": "`auxlearn train` to its first step, later runs",
    }
    yield table(
        ("", "wall seconds", "processor seconds"),
        [(text, f"{found[k]['wall']:.2f}", f"{found[k]['cpu']:.2f}") for k, text in names.items()],
    )
    yield table(
        ("import, with all it imports", "seconds"),
        [(name, f"{seconds:.2f}") for name, seconds in found["imports of a run"].items()],
    )


def growth(found: dict[str, Any]) -> Iterable[str]:
    """One table for each series, and the plot."""
    for title, points in found["points"].items():
        key = series_axis(title)
        yield f"**{title[0].upper()}{title[1:]}**"
        yield table(
            (
                AXES[key],
                "seconds",
                "G operations",
                "G operations a second",
                "MB above the loaded encoder",
                "MB at the peak",
            ),
            [
                (
                    str(p[key]),
                    f"{p['seconds']:.2f}",
                    f"{p['operations'] / 1e9:.1f}",
                    f"{p['operations'] / p['seconds'] / 1e9:.0f}",
                    f"{p['megabytes'] - p['megabytes before']:.0f}",
                    f"{p['megabytes']:.0f}",
                )
                for p in points
            ],
        )
    yield "![Time and peak memory of each series](img/growth.png)"


def draw(results: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draw time and memory of every series, and beside the time the work."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    # As wide as a page, with a row for each series, so that nothing is scaled down in print.
    figure = Figure(figsize=(WIDTH, 1.55 * len(results)), layout="constrained")
    rows = figure.subplots(len(results), 2, squeeze=False)
    for (seconds, megabytes), (title, points) in zip(rows, results.items(), strict=True):
        key = series_axis(title)
        names = [f"{p[key]:,}" if isinstance(p[key], int) else str(p[key]) for p in points]
        places = range(len(points))
        seconds.plot(
            places, [p["seconds"] for p in points], marker="o", color=colour(0), label="measured"
        )
        # The work of each point at the speed of the fastest one.
        speed = max(p["operations"] / p["seconds"] for p in points)
        seconds.plot(
            places,
            [p["operations"] / speed for p in points],
            linestyle="--",
            color="0.5",
            label="work at best speed",
        )
        seconds.set_yscale("log")
        spans = max(p["seconds"] for p in points) / min(p["seconds"] for p in points)
        seconds.yaxis.set_major_locator(LogLocator(subs=(1,) if spans > 50 else (1, 2, 5)))
        seconds.yaxis.set_major_formatter("{x:g}")
        seconds.yaxis.set_minor_formatter("")
        seconds.set_ylabel("seconds", fontsize=8)
        seconds.set_title(title, fontsize=9, loc="left")
        megabytes.plot(places, [p["megabytes"] for p in points], marker="o", color=colour(1))
        megabytes.set_ylim(0, 1.1 * max(p["megabytes"] for p in points))
        megabytes.set_ylabel("MB at the peak", fontsize=8)
        for plot in (seconds, megabytes):
            plot.set_xticks(places, names)
            plot.tick_params(labelsize=8)
            plot.set_xlabel(AXES[key], fontsize=8)
            plot.grid(color="0.9")
            plot.spines[["top", "right"]].set_visible(False)
    rows[0][0].legend(fontsize=8, frameon=False)
    figure.align_ylabels()
    save_figure(figure, path)


#: Each benchmark: what writes its section, and which of its settings count.
SECTIONS = {
    "scoring": (scoring, "encoder {encoder}, {texts} texts of {dataset}, {rounds} rounds"),
    "approximation": (
        approximation,
        "encoder {encoder}, {texts} texts of {dataset}, at most {max_length} tokens each",
    ),
    "training": (training, "encoder {encoder}, {texts} texts of {dataset}, {rounds} rounds"),
    "objectives": (objectives, "batches of 32 texts of {dataset}, {rounds} rounds"),
    "joined": (joined, "{texts} texts of {dataset}, {rounds} rounds"),
    "weighting": (weighting, "{rounds} rounds after one that warms up"),
    "startup": (startup, "encoder tiny, data set pydocs, {rounds} rounds"),
    "growth": (growth, "encoder {encoder} where none is named, one measurement for each point"),
}


if __name__ == "__main__":
    main()
