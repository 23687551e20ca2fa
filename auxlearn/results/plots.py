"""Plots of one run, drawn from the entries of its ``metrics.jsonl``, and their style."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from auxlearn.core.errors import printable
from auxlearn.core.files import write_bytes
from auxlearn.core.metric_names import ERRORS, TITLES, VALIDATION, Quantity, difference
from auxlearn.core.rng import ONE_THREAD
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
        with ONE_THREAD, matplotlib.rc_context({"svg.hashsalt": "auxlearn"}):
            figure.savefig(buffer, format="svg", metadata={"Date": None})
    else:
        figure.savefig(buffer, format="png", dpi=DPI)
    write_bytes(path, buffer.getvalue())
    return path


def inline_svg(figure: Figure, label: str, salt: str) -> str:
    """Return a figure as an SVG element without style attributes, which the page's policy forbids;
    figures of different salts share no identifier.
    """
    import matplotlib

    buffer = io.BytesIO()
    with ONE_THREAD, matplotlib.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
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
            given[name] = re.sub(r"\d+\.\d{3,}", lambda one: f"{float(one[0]):.2f}", given[name])
        element.attrib.clear()
        element.attrib.update(given)
    root.attrib |= {"role": "img", "aria-label": label}
    return ElementTree.tostring(root, encoding="unicode")


Entries = Sequence[Mapping[str, Any]]
#: Draws one panel of a figure.
Panel = Callable[["Axes"], None]


def plot_run(entries: Entries, results: RunResults, folder: Path) -> list[Path]:
    """Write all plots that the entries have values for, and ``overview.png``."""
    run = _RunPlots(entries, results)
    plots = run.figures()
    above = plots.get("branches") or plots.get("weights") or plots["losses"][:3]
    plots["overview"] = [*above, run.dev]
    config, tasks = results.config, [name for choice in results.config["aux"] for name in choice]
    parts = [results.dataset.name, Path(config["encoder"]).name, " + ".join(tasks) or "single task"]
    parts += [f"{next(iter(config['weights']))} weights"] * bool(tasks)
    title = ", ".join([*parts, f"seed {config['seed']}"])
    return [
        save_figure(_draw(panels, title), folder / f"{name}.png") for name, panels in plots.items()
    ]


def run_figure(entries: Entries, results: RunResults) -> Figure:
    """Return all plots of a run as panels of one figure, without a title."""
    plots = _RunPlots(entries, results).figures()
    return _draw([panel for panels in plots.values() for panel in panels], "")


def _draw(panels: Sequence[Panel], title: str) -> Figure:
    """Draw the panels of one figure over the same steps."""
    import matplotlib
    from matplotlib.figure import Figure

    height = LOW_PANEL if len(panels) > 2 else PANEL_HEIGHT
    no_formulas = {"text.parse_math": False}  # dollar signs are no formula
    with ONE_THREAD, matplotlib.rc_context(no_formulas):
        size = (WIDTH, TITLE_HEIGHT + height * len(panels))
        figure = Figure(figsize=size, layout="constrained")
        if title:
            figure.suptitle(title, fontsize=10)
        every = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, draw in zip(every, panels, strict=True):
            draw(axes)
            style_axes(axes)
        every[-1].set_xlabel("step")
        every[-1].set_xlim(left=0)
    return figure


@dataclass(frozen=True)
class _RunPlots:
    """The panels of the plots of a run. An objective has the same colour in all of them."""

    entries: Entries
    results: RunResults

    @property
    def unit(self) -> str:
        return self.results.kind.unit

    def figures(self) -> dict[str, list[Panel]]:
        weights, branches = self.results.weights, self.results.branches
        moving = len(weights) > 1 and any(
            len(set(self._series(Quantity.WEIGHT.key(name))[1])) > 1 for name in weights
        )
        plots: dict[str, list[Panel]] = {
            "dev": [self.dev],
            "branches": [self._branches] * bool(branches),
            "weights": [self._weights] * (moving and not branches),
            "factors": [
                partial(self._factors, f"{task}/{axis}/", list(values))
                for task, axes in self.results.factors.items()
                for axis, values in axes.items()
                if len(values) > 1
            ],
            "losses": self._losses(),
            "auxiliary": [self._auxiliary] * bool(self._names(Quantity.AUX)),
            "gradients": self._gradients(),
        }
        return {name: panels for name, panels in plots.items() if panels}

    def _losses(self) -> list[Panel]:
        """Return one panel for each objective: their losses are of different sizes."""
        metric, recorded = self.results.config["metric"], self._names(Quantity.LOSS)
        # A task that a rule left out has no loss in the run that it took.
        primary, *tasks = self.results.weights
        # With macro-F1, the weights are learned from 1 - F1, which is not measured in nats.
        smooth = metric != "accuracy"
        validated = any(Quantity.LOSS.key(VALIDATION) in entry for entry in self.entries)
        together = [primary, VALIDATION] if validated and not smooth else [primary]
        panels = [partial(self._loss, together, self.unit)]
        panels += [partial(self._loss, [name], "nats") for name in tasks if name in recorded]
        if validated and smooth:
            title = "F1" if metric.endswith("f1") else TITLES[metric]
            panels.append(partial(self._loss, [VALIDATION], f"1 - {title}"))
        return list(panels)

    def _gradients(self) -> list[Panel]:
        validated = [VALIDATION in pair for pair in self._pairs()]
        panels: list[tuple[Panel, Any]] = [
            (self._pair_cosines, not all(validated)),
            (self._validation_cosines, any(validated) or self._names(Quantity.COSINE)),
            (self._conflicts, self._names(Quantity.CONFLICT)),
            (self._norms, self._names(Quantity.GRADIENT_NORM) or self._names(Quantity.NORM)),
        ]
        return [panel for panel, values in panels if values]

    def dev(self, axes: Axes) -> None:
        """Draw the metrics on dev, the best checkpoint, and the majority baseline."""
        best, found = self.results.best, self.results.evaluations["dev"]
        chosen = self.results.config["metric"]
        for number, metric in enumerate(found.all.metrics):
            style = {"color": colour(number), "marker": marker(number), "markersize": 4}
            self._line(axes, Quantity.DEV.key(metric), TITLES[metric], **style)
        axes.plot(
            best.step,
            best.value,
            marker="o",
            markersize=11,
            markerfacecolor="none",
            markeredgecolor="black",
            linestyle="none",
            label=f"best {TITLES[chosen]}, {best.value:.3f}",
        )
        level = found.majority.metrics[chosen]
        axes.axhline(level, color="0.5", linewidth=1, linestyle=":", label=f"majority, {level:.3f}")
        if ERRORS.isdisjoint(found.all.metrics):
            axes.set_ylabel("score on dev (0 to 1)")
            axes.set_ylim(0, 1)
        else:
            axes.set_ylabel("metrics on dev")

    def _branches(self, axes: Axes) -> None:
        metric, branches = self.results.config["metric"], self.results.branches
        single = next((one.value for one in branches if one.gain is None), 0.0)
        for number, branch in enumerate(branches):
            gain = ""
            if branch.gain is not None:
                points = difference(metric, branch.value - single)
                loss = f"{branch.gain:+.3f} ± {branch.gain_error:.3f} {self.unit}"
                gain = f", {points}\n(loss {loss})"
            axes.plot(
                *zip(*branch.course, strict=True),
                color=colour(number),
                marker=marker(number),
                markersize=4,
                linewidth=2.5 if branch.taken else 1,
                label=f"{branch.title}{gain}" + (", taken" if branch.taken else ""),
            )
        axes.set_ylabel(f"{TITLES[metric]} on dev\nof each run compared")

    def _weights(self, axes: Axes) -> None:
        axes.set_ylabel("weight")
        names = list(self.results.weights)
        if not self._names(Quantity.CANDIDATE):
            self._lines(axes, Quantity.WEIGHT, names)
            # The weights of some rules do not sum to 1.
            axes.set_ylim(0, max(1.0, *axes.get_ylim()))
            return
        # A rule with a gate: what it learns, applied or not. The primary task's weight, which is
        # the rest, would leave no room for them.
        self._lines(axes, Quantity.WEIGHT, names[1:])
        for number, name in enumerate(names[1:], 1):
            style = {"color": colour(number), "linestyle": ":", "marker": None}
            self._line(axes, Quantity.CANDIDATE.key(name), f"{name}, learned", **style)
        ((_, options),) = self.results.config["weights"].items()
        gate = options.get("gate", 0) / len(names[1:])
        axes.axhline(gate, color="0.5", linewidth=1, linestyle="--", label=f"gate, {gate:.3g}")
        axes.set_ylim(bottom=0)

    def _factors(self, prefix: str, values: Sequence[str], axes: Axes) -> None:
        for number, value in enumerate(values):
            self._line(axes, Quantity.FACTOR.key(prefix + value), value, color=colour(number))
        axes.set_ylabel(f"weight by\n{prefix.split('/')[1]}")
        axes.set_ylim(bottom=0)

    def _loss(self, names: Sequence[str], unit: str, axes: Axes) -> None:
        self._lines(axes, Quantity.LOSS, names)
        axes.set_ylabel(f"loss ({unit})")

    def _auxiliary(self, axes: Axes) -> None:
        for number, name in enumerate(sorted(self._names(Quantity.AUX))):
            label = name.replace("/", ", ")
            self._line(axes, Quantity.AUX.key(name), label, color=colour(number))
        axes.set_ylabel("metric of the task\non its own dev examples")
        axes.set_ylim(bottom=0)

    def _pair_cosines(self, axes: Axes) -> None:
        axes.axhline(0, color="0.5", linewidth=1)
        for number, pair in enumerate(one for one in self._pairs() if VALIDATION not in one):
            series = self._series(Quantity.GRADIENT_COSINE.key("/".join(pair)))
            _smoothed(axes, series, colour(number), ", ".join(pair))
        axes.set_ylabel("cosine of two\ngradients")

    def _validation_cosines(self, axes: Axes) -> None:
        axes.axhline(0, color="0.5", linewidth=1)
        for number, name in enumerate(self.results.weights):
            series = self._series(Quantity.GRADIENT_COSINE.key(f"{name}/{VALIDATION}"))
            if not series[0]:  # what the weighting has recorded itself
                series = self._series(Quantity.COSINE.key(name))
            _smoothed(axes, series, colour(number), name)
        axes.set_ylabel("cosine with the\nvalidation gradient")

    def _conflicts(self, axes: Axes) -> None:
        for number, pair in enumerate(self._names(Quantity.CONFLICT)):
            series = self._series(Quantity.CONFLICT.key(pair))
            share = sum(series[1]) / len(series[1])
            label = f"{pair.replace('/', ', ')}\n({share:.0%} of all)"
            _smoothed(axes, series, colour(number), label, points=False)
        axes.set_ylabel("share of steps\nin conflict")
        axes.set_ylim(-0.03, 1.03)  # lines at 0 and 1 are not cut in half

    def _norms(self, axes: Axes) -> None:
        measured = self._names(Quantity.GRADIENT_NORM)
        quantity = Quantity.GRADIENT_NORM if measured else Quantity.NORM
        for number, name in enumerate(self.results.weights):
            _smoothed(axes, self._series(quantity.key(name)), colour(number), name)
        _smoothed(axes, self._series(quantity.key(VALIDATION)), "black", VALIDATION)
        axes.set_ylabel("norm of the\ngradient")
        axes.set_yscale("log")

    def _lines(self, axes: Axes, quantity: Quantity, names: Sequence[str]) -> None:
        for name in names:
            style: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1}
            if name != VALIDATION:
                style = {"color": colour(list(self.results.weights).index(name))}
            self._line(axes, quantity.key(name), name, **style)

    def _line(self, axes: Axes, key: str, label: str, **style: Any) -> None:
        steps, values = self._series(key)
        axes.plot(steps, values, label=label, **{"marker": line_marker(steps), **style})

    def _series(self, key: str) -> tuple[list[int], list[float]]:
        found = [(entry["step"], entry[key]) for entry in self.entries if key in entry]
        return [step for step, _ in found], [value for _, value in found]

    def _names(self, quantity: Quantity) -> list[str]:
        """Return the objectives, pairs or metrics that there are values of, in order."""
        return list(dict.fromkeys(name for entry in self.entries for name in quantity.read(entry)))

    def _pairs(self) -> list[list[str]]:
        return [pair.split("/") for pair in self._names(Quantity.GRADIENT_COSINE)]


def _smoothed(
    axes: Axes,
    series: tuple[list[int], list[float]],
    line_colour: str,
    label: str,
    points: bool = True,
) -> None:
    """Draw a noisy series: faint points, and a moving average over a sixth of them as a line."""
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
