"""Writes the results of the benchmarks into ``benchmarks/RESULTS.md``, as tables.

``--results`` and ``--page`` name other places, to try a report without touching the page.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from auxlearn.results.figures import save_figure
from benchmarks.common import RESULTS
from benchmarks.tables import machine, table, write_section

PAGE = Path(__file__).parent / "RESULTS.md"
#: The guide on what choices cost, and its plot.
COSTS_PAGE = PAGE.parents[1] / "docs" / "guides" / "costs.md"
COSTS_PLOT = "../img/costs.png"


def main() -> None:
    """Replace the section of each benchmark that has results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of NAME.json")
    parser.add_argument("--page", type=Path, default=PAGE, help="Markdown file with the markers")
    parser.add_argument("--costs-page", type=Path, default=COSTS_PAGE, help="the same, of costs")
    options = parser.parse_args()
    for name, (write, said) in SECTIONS.items():
        texts = []
        for path in sorted(options.results.glob(f"{name}*.json")):
            found = json.loads(path.read_text(encoding="utf-8"))
            texts += [machine(found, said), *write(found)]
        if texts:
            write_section(options.page, name, texts)
    counted = options.results / "costs.json"
    if counted.exists():
        found = json.loads(counted.read_text(encoding="utf-8"))
        write_section(options.costs_page, "costs", list(costs(found)))
        plot_costs(found, options.costs_page.parent / COSTS_PLOT)


def scoring(found: dict[str, Any]) -> Iterable[str]:
    """Contestants against minicons, the limit, and batch sizes."""
    rows = []
    for name, result in found["contestants"].items():
        close = [f"{result[key]:.{digits}f}" if key in result else "" for key, digits in _CLOSE]
        tokens = str(result.get("tokens", found["tokens"]))
        rows.append([name, tokens, f"{result['median']:.2f}", f"{result['speed-up']:.2f}", *close])
    head = ("", "tokens", "seconds", "speed-up", "Spearman", "mean difference of P", "largest")
    yield table(head, rows)
    rates = found["matrix products per second"]
    exact, half = found["share of the limit"].values()
    length = found["settings"].get("length", "None")
    joined = "" if length == "None" else f" in texts of {length}"
    yield (
        f"{found['tokens']} tokens{joined}, {found['operations'] / 1e12:.2f} T operations that "
        "exact scoring cannot do without. Matrix products run at "
        f"{rates['torch.float32'] / 1e9:.0f} GFLOP/s in fp32 and "
        f"{rates['torch.bfloat16'] / 1e9:.0f} in bf16; exact scoring reaches {exact:.0%} and "
        f"{half:.0%} of that."
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
    rows = []
    for count, contest in found["contests"].items():
        for rule, results in contest["rules"].items():
            rate = found["steps"] / results["contestants"]["all processes"]["median"]
            times = results["times faster"]
            efficiency = f"{times['over one process'] / int(count):.0%}"
            faster = [f"{x:.2f}" for x in times.values()]
            rows.append([count, rule, f"{rate:.2f}", *faster, efficiency])
    titles = [f"times faster than {name.removeprefix('over ')}" for name in times]
    yield table(["processes", "weighting", "steps per second", *titles, "efficiency"], rows)


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


def costs(found: dict[str, Any]) -> Iterable[str]:
    """Operations over those of the single task, memory of a step, and token scores, by encoder."""
    sizes = found["sizes"]
    titles = [f"{size} ({one['parameters'] / 1e6:.3g} M)" for size, one in sizes.items()]
    choices = list(dict.fromkeys(name for one in sizes.values() for name in one["steps"]))

    def rows(form: Callable[[dict[str, Any], dict[str, Any]], str]) -> Iterable[list[str]]:
        for name in choices:
            steps = [one["steps"] for one in sizes.values()]
            first = [next(iter(of.values())) for of in steps]
            yield [
                name,
                *(
                    form(of[name], single) if name in of else ""
                    for of, single in zip(steps, first, strict=True)
                ),
            ]

    yield "Operations of a step, as a multiple of those of the single task:"
    yield table(
        ("", *titles), rows(lambda one, single: f"{one['operations'] / single['operations']:.2f}")
    )
    yield "GB at the peak of a step, and of these the GB that stay between steps:"
    yield table(
        ("", *titles),
        rows(lambda one, _: f"{one['bytes at the peak'] / 1e9:.2f}, {one['bytes kept'] / 1e9:.2f}"),
    )
    single = [next(iter(one["steps"].values()))["operations"] for one in sizes.values()]
    scores = [one["scores"] for one in sizes.values()]
    yield "Operations (10¹²), and token scores as steps of the single task:"
    yield table(
        ("", *titles),
        [
            ("a step of the single task", *(f"{one / 1e12:.3f}" for one in single)),
            *(
                (
                    f"scores of a million tokens, {title}",
                    *(
                        f"{one[passes]['operations'] / 1e12:,.0f} = "
                        f"{one[passes]['operations'] / of:,.0f} steps"
                        for one, of in zip(scores, single, strict=True)
                    ),
                )
                for passes, title in (("None", "exact"), ("8", "`passes: 8`"))
            ),
        ],
    )


def plot_costs(found: dict[str, Any], path: Path) -> None:
    """Plot operations and memory of each choice, by encoder."""
    figure = Figure(figsize=(10, 6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    sizes = found["sizes"]
    height = 0.8 / len(sizes)
    names = list(dict.fromkeys(name for one in sizes.values() for name in one["steps"]))
    for number, (size, one) in enumerate(sizes.items()):
        steps = one["steps"]
        places = [names.index(name) + number * height for name in steps]
        single = next(iter(steps.values()))["operations"]
        left.barh(places, [step["operations"] / single for step in steps.values()], height)
        memory = [step["bytes at the peak"] / 1e9 for step in steps.values()]
        right.barh(places, memory, height, label=size)
    left.set_yticks([place + 0.4 - height / 2 for place in range(len(names))])
    left.set_yticklabels([name.replace("`", "") for name in names])
    left.invert_yaxis()
    left.set(xscale="log", xlabel="operations of a step over those of the single task")
    right.set(xscale="log", xlabel="GB at the peak of a step")
    for axes, ticks in ((left, (0.5, 1, 2, 5, 10, 20)), (right, (0.1, 1, 10, 100))):
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.tick_params(axis="y", length=0)
    right.legend()
    save_figure(figure, path)


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
