"""Plots of one run, drawn from the entries of its ``metrics.jsonl``, and their style."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from auxlearn.core.errors import printable
from auxlearn.core.files import write_bytes
from auxlearn.core.metric_names import ERRORS, TITLES, VALIDATION, Quantity
from auxlearn.kinds.choose import kind_of
from auxlearn.results.record import RunResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Okabe and Ito's palette, whose colours can be told apart with any kind of colour vision; black
#: is reserved for the validation objective. https://jfly.uni-koeln.de/color/
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")

#: Dots per inch of the image files.
DPI = 150
#: Width of a figure, height of one panel, and height of the title, in inches.
WIDTH, PANEL_HEIGHT, TITLE_HEIGHT = 7.2, 2.7, 0.6
#: Height of a panel of a figure with many panels, in inches.
LOW_PANEL = 1.8


def colour(number: int) -> str:
    """Return the colour of a series by its number; beyond the palette, colours repeat."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """Return the marker of a series by its number; with its colour, unique among 36."""
    return MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


def line_marker(points: Sequence[object]) -> str | None:
    """Return the marker of a line plot: a dot for a single point, where no line would show."""
    return "." if len(points) == 1 else None


def new_figure(
    title: str, panels: int, share_x: bool = False, height: float = PANEL_HEIGHT
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels one below the other, independent of matplotlib's global state."""
    from matplotlib.figure import Figure

    size = (WIDTH, TITLE_HEIGHT + height * panels)
    figure = Figure(figsize=size, layout="constrained")
    if title:
        figure.suptitle(title, fontsize=10)
    axes = figure.subplots(panels, 1, sharex=share_x, squeeze=False)[:, 0]
    return figure, list(axes)


def style_axes(axes: Axes) -> None:
    """Add a light grid and a legend beside the panel; call it once everything is drawn."""
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, or as SVG if the path ends so; equal figures give equal files."""
    import matplotlib

    buffer = io.BytesIO()
    if path.suffix == ".svg":
        with matplotlib.rc_context({"svg.hashsalt": "auxlearn"}):
            figure.savefig(buffer, format="svg", metadata={"Date": None})
    else:
        figure.savefig(buffer, format="png", dpi=DPI)
    write_bytes(path, buffer.getvalue())
    return path


def inline_svg(figure: Figure, label: str, salt: str) -> str:
    """Return a figure as an SVG element for an HTML page whose policy allows no style attributes.

    The same figure and salt give the same text; figures of different salts share no identifier.
    """
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    lines = buffer.getvalue().decode().split("\n")
    root = ElementTree.fromstring("".join(map(printable, lines)))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("metadata", "style")):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.tail = None
        given = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        styles = (one.partition(":") for one in given.pop("style", "").split(";"))
        given |= {name.strip(): value.strip() for name, _, value in styles if value}
        # A page has its own letters and widths; identifiers of groups would stand in every figure.
        unused = {"g": ("id",), "text": ("font-family",), "svg": ("width", "height", "version")}
        for name in unused.get(element.tag, ()):
            given.pop(name, None)
        for name in {"d", "x", "y"} & given.keys():
            given[name] = re.sub(r"\d+\.\d{3,}", _two_decimals, given[name])
        element.attrib.clear()
        element.attrib.update(given)
    root.attrib |= {"role": "img", "aria-label": label}
    return ElementTree.tostring(root, encoding="unicode")


def _two_decimals(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}"


Entries = Sequence[Mapping[str, Any]]
#: Draws one panel of a figure.
Panel = Callable[["Axes", Entries, RunResults], None]


def plot_run(entries: Entries, results: RunResults, folder: Path) -> list[Path]:
    """Write all plots that the entries have values for, and ``overview.png``: the weights (or the
    branches, or the loss, where no weight changes) above the dev metric.
    """
    plots = _plots(entries, results)
    above = plots.get("branches") or plots.get("weights") or plots["losses"][:1]
    plots["overview"] = [*above, _dev]
    return [
        save_figure(_draw(panels, entries, results), folder / f"{name}.png")
        for name, panels in plots.items()
    ]


def run_figure(entries: Entries, results: RunResults) -> Figure:
    """Return all plots of a run as panels of one figure, without a title."""
    panels = [panel for one in _plots(entries, results).values() for panel in one]
    return _draw(panels, entries, results, title="")


def _plots(entries: Entries, results: RunResults) -> dict[str, list[Panel]]:
    moving = len(results.weights) > 1 and any(
        len(set(_series(entries, Quantity.WEIGHT.key(name))[1])) > 1 for name in results.weights
    )
    plots: dict[str, list[Panel]] = {"dev": [_dev]}
    if results.branches:
        plots["branches"] = [_branches]
    elif moving:
        plots["weights"] = [_weights]
    if panels := _factor_panels(results):
        plots["factors"] = panels
    plots["losses"] = _loss_panels(entries, results)
    if any(map(Quantity.AUX.read, entries)):
        plots["auxiliary"] = [_auxiliary]
    if panels := _gradient_panels(entries):
        plots["gradients"] = panels
    return plots


def _factor_panels(results: RunResults) -> list[Panel]:
    """Return one panel for each axis of a task's members that has several values."""
    return [
        partial(_factors, f"{task}/{axis}/", list(values))
        for task, axes in results.factors.items()
        for axis, values in axes.items()
        if len(values) > 1
    ]


def _factors(
    prefix: str, values: Sequence[str], axes: Axes, entries: Entries, results: RunResults
) -> None:
    for number, value in enumerate(values):
        steps, weights = _series(entries, Quantity.FACTOR.key(prefix + value))
        axes.plot(steps, weights, color=colour(number), marker=line_marker(steps), label=value)
    axes.set_ylabel(f"weight by\n{prefix.split('/')[1]}")
    axes.set_ylim(bottom=0)


def _loss_panels(entries: Entries, results: RunResults) -> list[Panel]:
    """Return one panel for each objective: their losses are of different sizes."""
    names = list(results.weights)
    # With macro-F1, the weights are learned from 1 - F1, which is not measured in nats.
    smooth, unit = results.config["metric"] != "accuracy", _unit(results)
    validated = any(Quantity.LOSS.key(VALIDATION) in entry for entry in entries)
    together = [names[0], VALIDATION] if validated and not smooth else [names[0]]
    panels: list[Panel] = [
        partial(_loss, together, unit=unit),
        *(partial(_loss, [name]) for name in names[1:]),
    ]
    if validated and smooth:
        panels.append(partial(_loss, [VALIDATION], unit=f"1 - {_smooth(results)}"))
    return panels


def _unit(results: RunResults) -> str:
    """Return the unit of the primary loss."""
    return kind_of(results.config.get("kind")).unit


def _smooth(results: RunResults) -> str:
    metric = results.config["metric"]
    return "F1" if metric.endswith("f1") else TITLES[metric]


def _loss(
    names: Sequence[str], axes: Axes, entries: Entries, results: RunResults, unit: str = "nats"
) -> None:
    _lines(axes, entries, results, Quantity.LOSS, names)
    axes.set_ylabel(f"loss ({unit})")


def _gradient_panels(entries: Entries) -> list[Panel]:
    """Return the panels of what was recorded of gradients."""
    pairs = _names(entries, Quantity.GRADIENT_COSINE)
    panels: list[Panel] = []
    if any(VALIDATION not in pair.split("/") for pair in pairs):
        panels.append(_pair_cosines)
    if any(VALIDATION in pair.split("/") for pair in pairs) or _names(entries, Quantity.COSINE):
        panels.append(_validation_cosines)
    if _names(entries, Quantity.CONFLICT):
        panels.append(_conflicts)
    if _names(entries, Quantity.GRADIENT_NORM) or _names(entries, Quantity.NORM):
        panels.append(_norms)
    return panels


def _weights(axes: Axes, entries: Entries, results: RunResults) -> None:
    axes.set_ylabel("weight")
    gated = _names(entries, Quantity.CANDIDATE)
    if not gated:
        _lines(axes, entries, results, Quantity.WEIGHT, list(results.weights))
        # The weights of some rules do not sum to 1.
        axes.set_ylim(0, max(1.0, *axes.get_ylim()))
        return
    # A rule with a gate: what it learns, applied or not. The primary task's weight, which is the
    # rest, would leave no room for them.
    tasks = list(results.weights)[1:]
    _lines(axes, entries, results, Quantity.WEIGHT, tasks)
    for number, name in enumerate(tasks, 1):
        steps, learned = _series(entries, Quantity.CANDIDATE.key(name))
        label = f"{name}, learned"
        axes.plot(steps, learned, color=colour(number), linestyle=":", label=label)
    ((_, options),) = results.config["weights"].items()
    gate = options.get("gate", 0) / len(tasks)
    axes.axhline(gate, color="0.5", linewidth=1, linestyle="--", label=f"gate, {gate:.3g}")
    axes.set_ylim(bottom=0)


def _branches(axes: Axes, entries: Entries, results: RunResults) -> None:
    for number, branch in enumerate(results.branches):
        gain = "" if branch.gain is None else f" ({branch.gain:+.3f} ± {branch.gain_error:.3f})"
        axes.plot(
            *zip(*branch.course, strict=True),
            color=colour(number),
            marker=marker(number),
            markersize=4,
            linewidth=2.5 if branch.taken else 1,
            label=f"{branch.title}{gain}" + (", taken" if branch.taken else ""),
        )
    axes.set_ylabel(f"{TITLES[results.config['metric']]} on dev\nof each run compared")


def _dev(axes: Axes, entries: Entries, results: RunResults) -> None:
    chosen = results.config["metric"]
    found = results.evaluations["dev"]
    for number, metric in enumerate(found.all.metrics):
        steps, values = _series(entries, Quantity.DEV.key(metric))
        axes.plot(
            steps,
            values,
            color=colour(number),
            marker=marker(number),
            markersize=4,
            label=TITLES[metric],
        )
    axes.plot(
        results.best.step,
        results.best.value,
        marker="o",
        markersize=11,
        markerfacecolor="none",
        markeredgecolor="black",
        linestyle="none",
        label=f"best {TITLES[chosen]}, {results.best.value:.3f}",
    )
    baseline = found.majority.metrics[chosen]
    axes.axhline(
        baseline, color="0.5", linewidth=1, linestyle=":", label=f"majority, {baseline:.3f}"
    )
    if ERRORS.isdisjoint(found.all.metrics):
        axes.set_ylabel("score on dev (0 to 1)")
        axes.set_ylim(0, 1)
    else:
        axes.set_ylabel("metrics on dev")


def _auxiliary(axes: Axes, entries: Entries, results: RunResults) -> None:
    for number, name in enumerate(sorted(_names(entries, Quantity.AUX))):
        steps, values = _series(entries, Quantity.AUX.key(name))
        label = name.replace("/", ", ")
        axes.plot(steps, values, color=colour(number), marker=line_marker(steps), label=label)
    axes.set_ylabel("metric of the task\non its own dev examples")
    axes.set_ylim(bottom=0)


def _pair_cosines(axes: Axes, entries: Entries, results: RunResults) -> None:
    axes.axhline(0, color="0.5", linewidth=1)
    pairs = _names(entries, Quantity.GRADIENT_COSINE)
    for number, pair in enumerate(pair for pair in pairs if VALIDATION not in pair.split("/")):
        series = _series(entries, Quantity.GRADIENT_COSINE.key(pair))
        _smoothed(axes, series, colour(number), pair.replace("/", ", "))
    axes.set_ylabel("cosine of two\ngradients")


def _validation_cosines(axes: Axes, entries: Entries, results: RunResults) -> None:
    axes.axhline(0, color="0.5", linewidth=1)
    for number, name in enumerate(results.weights):
        series = _series(entries, Quantity.GRADIENT_COSINE.key(f"{name}/{VALIDATION}"))
        if not series[0]:  # what the weighting has recorded itself
            series = _series(entries, Quantity.COSINE.key(name))
        _smoothed(axes, series, colour(number), name)
    axes.set_ylabel("cosine with the\nvalidation gradient")


def _conflicts(axes: Axes, entries: Entries, results: RunResults) -> None:
    for number, pair in enumerate(_names(entries, Quantity.CONFLICT)):
        series = _series(entries, Quantity.CONFLICT.key(pair))
        share = sum(series[1]) / len(series[1])
        label = f"{pair.replace('/', ', ')}\n({share:.0%} of all)"
        _smoothed(axes, series, colour(number), label, points=False)
    axes.set_ylabel("share of steps\nin conflict")
    axes.set_ylim(-0.03, 1.03)  # lines at 0 and 1 are not cut in half


def _norms(axes: Axes, entries: Entries, results: RunResults) -> None:
    measured = _names(entries, Quantity.GRADIENT_NORM)
    quantity = Quantity.GRADIENT_NORM if measured else Quantity.NORM
    for number, name in enumerate(results.weights):
        _smoothed(axes, _series(entries, quantity.key(name)), colour(number), name)
    _smoothed(axes, _series(entries, quantity.key(VALIDATION)), "black", VALIDATION)
    axes.set_ylabel("norm of the\ngradient")
    axes.set_yscale("log")


def _lines(
    axes: Axes,
    entries: Entries,
    results: RunResults,
    quantity: Quantity,
    names: Sequence[str],
) -> None:
    """Draw one line for each objective, in the same colour in every plot."""
    for name in names:
        steps, values = _series(entries, quantity.key(name))
        style: dict[str, Any] = (
            {"color": "black", "linestyle": "--", "linewidth": 1}
            if name == VALIDATION
            else {"color": colour(list(results.weights).index(name))}
        )
        axes.plot(steps, values, marker=line_marker(steps), label=name, **style)


def _smoothed(
    axes: Axes,
    series: tuple[list[int], list[float]],
    line_colour: str,
    label: str,
    points: bool = True,
) -> None:
    """Draw a noisy series: its values as faint points, and a moving average over a sixth of them,
    fewer at both ends, as a line.
    """
    steps, values = series
    if not steps:
        return
    half = len(values) // 12
    means = [
        sum(part) / len(part)
        for place in range(len(values))
        if (part := values[max(0, place - half) : place + half + 1])
    ]
    if points and half:
        axes.plot(steps, values, ".", color=line_colour, markersize=3, alpha=0.35)
    axes.plot(steps, means, color=line_colour, marker=line_marker(steps), label=label)


def _names(entries: Iterable[Mapping[str, Any]], quantity: Quantity) -> list[str]:
    """Return the objectives, pairs or metrics that entries have a quantity of, in order."""
    return list(dict.fromkeys(name for entry in entries for name in quantity.read(entry)))


def _series(entries: Entries, key: str) -> tuple[list[int], list[float]]:
    found = [(entry["step"], entry[key]) for entry in entries if key in entry]
    return [step for step, _ in found], [value for _, value in found]


def _draw(
    panels: Sequence[Panel], entries: Entries, results: RunResults, title: str | None = None
) -> Figure:
    """Draw the panels of one figure over the same steps."""
    import matplotlib

    height = LOW_PANEL if len(panels) > 2 else PANEL_HEIGHT
    title = _title(results) if title is None else title
    with matplotlib.rc_context({"text.parse_math": False}):  # dollar signs are no formula
        figure, every = new_figure(title, len(panels), share_x=True, height=height)
        for axes, draw in zip(every, panels, strict=True):
            draw(axes, entries, results)
            style_axes(axes)
        every[-1].set_xlabel("step")
        every[-1].set_xlim(left=0)
    return figure


def _title(results: RunResults) -> str:
    config = results.config
    tasks = " + ".join(name for choice in config["aux"] for name in choice) or "single task"
    parts = [results.dataset.name, Path(config["encoder"]).name, tasks]
    if config["aux"]:
        parts.append(f"{next(iter(config['weights']))} weights")
    return ", ".join([*parts, f"seed {config['seed']}"])
