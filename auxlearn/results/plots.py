"""Plots of one run, drawn from the entries of its ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.core.metric_names import VALIDATION, Quantity
from auxlearn.kinds.metrics import difference, metric_of, metric_title
from auxlearn.results.figures import (
    SCREEN_WIDTH,
    colour,
    figure_of,
    figure_style,
    legend_beside,
    line_marker,
    marker,
    save_figure,
)
from auxlearn.results.record import RunResults, shown_branches

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Height of the title and of a panel, and that of a panel among many, in inches.
TITLE_HEIGHT, PANEL_HEIGHT, LOW_PANEL = 0.6, 2.7, 1.8

Entries = Sequence[Mapping[str, Any]]
#: Steps and values of what is drawn as a line.
Series = tuple[list[int], list[float]]
#: Draws one panel of a figure.
Panel = Callable[["Axes"], None]


def plot_run(entries: Entries, results: RunResults, folder: Path) -> list[Path]:
    """Write all plots that the entries have values for, and ``overview.png``."""
    run = RunPlots(entries, results)
    plots = run.figures()
    above = plots.get("branches") or plots.get("weights") or plots.get("losses", [])[:3]
    plots["overview"] = [*above, *plots.get("dev", [])]
    config, tasks = results.config, [name for choice in results.config["aux"] for name in choice]
    parts = [results.dataset.name, Path(config["encoder"]).name, " + ".join(tasks) or "single task"]
    if tasks:
        parts.append(f"{next(iter(config['weights']))} weights")
    title = ", ".join([*parts, f"seed {config['seed']}"])
    return [
        save_figure(draw(panels, title), folder / f"{name}.png") for name, panels in plots.items()
    ]


def run_figure(entries: Entries, results: RunResults) -> Figure:
    """Return all plots of a run as panels of one figure, without a title."""
    plots = RunPlots(entries, results).figures()
    return draw([panel for panels in plots.values() for panel in panels], "")


def draw(panels: Sequence[Panel], title: str) -> Figure:
    """Draw the panels of one figure over the same steps."""
    height = LOW_PANEL if len(panels) > 2 else PANEL_HEIGHT
    with figure_style():
        figure, every = figure_of(
            SCREEN_WIDTH, TITLE_HEIGHT + height * len(panels), len(panels), sharex=True
        )
        if title:
            figure.suptitle(title)
        for axes, panel in zip(every, panels, strict=True):
            panel(axes)
            legend_beside(axes)
        every[-1].set_xlabel("step")
        every[-1].set_xlim(left=0)
    return figure


@dataclass(frozen=True)
class RunPlots:
    """The panels of the plots of a run. An objective has the same colour in all of them."""

    entries: Entries
    results: RunResults

    def figures(self) -> dict[str, list[Panel]]:
        """Return the panels of each plot, without plots that there are no values for."""
        results = self.results
        plots: dict[str, list[Panel]] = {
            "dev": [] if results.point else [self.dev],  # of a point one dot
            "branches": [self.branches] if results.branches else [],
            "weights": [] if results.branches else self.weights(),
            "factors": [
                self.lines(
                    f"weight by\n{axis}",
                    {value: Quantity.FACTOR.key(f"{task}/{axis}/{value}") for value in values},
                )
                for task, axes in results.factors.items()
                for axis, values in axes.items()
                if len(values) > 1
            ],
            "losses": self.losses(),
            "auxiliary": self.auxiliary(),
            "gradients": self.gradients(),
        }
        return {name: panels for name, panels in plots.items() if panels}

    def series(self, key: str) -> Series:
        entries = [entry for entry in self.entries if key in entry]
        return [entry["step"] for entry in entries], [entry[key] for entry in entries]

    def names(self, quantity: Quantity) -> list[str]:
        """Return the objectives, pairs or metrics that there are values of, in order."""
        return list(dict.fromkeys(name for entry in self.entries for name in quantity.read(entry)))

    def style(self, name: str, number: int) -> dict[str, Any]:
        """Return how the line of an objective looks, or of anything else by its number."""
        if name == VALIDATION:
            return {"color": "black", "linestyle": "--", "linewidth": 1}
        objectives = list(self.results.weights)
        return {"color": colour(objectives.index(name) if name in objectives else number)}

    def lines(
        self, title: str, keys: Mapping[str, str], *, smooth: bool = False, bottom: float | None = 0
    ) -> Panel:
        """Return a panel of the series of some keys, by the label of each; smooth noisy ones."""

        def panel(axes: Axes) -> None:
            for number, (label, key) in enumerate(keys.items()):
                steps, values = self.series(key)
                style = self.style(label, number)
                if smooth and steps:
                    draw_smoothed(axes, (steps, values), label, style)
                else:
                    axes.plot(steps, values, label=label, marker=line_marker(steps), **style)
            axes.set_ylabel(title)
            axes.set_ylim(bottom=bottom)

        return panel

    def dev(self, axes: Axes) -> None:
        """Draw the metrics on dev, the best checkpoint, and the majority baseline."""
        best, evaluation = self.results.best, self.results.evaluations["dev"]
        chosen = self.results.config["metric"]
        for number, metric in enumerate(evaluation.all.metrics):
            series = self.series(Quantity.DEV.key(metric))
            axes.plot(
                *series, label=metric_title(metric), color=colour(number), marker=marker(number)
            )
        axes.plot(
            best.step,
            best.value,
            marker="o",
            markersize=11,
            markerfacecolor="none",
            markeredgecolor="black",
            linestyle="none",
            label=f"best {metric_title(chosen)}, {best.value:.3f}",
        )
        level = evaluation.majority.metrics[chosen]
        axes.axhline(level, color="0.5", linewidth=1, linestyle=":", label=f"majority, {level:.3f}")
        if not any(metric_of(name).is_error for name in evaluation.all.metrics):
            axes.set_ylabel("score on dev (0 to 1)")
            axes.set_ylim(0, 1)
        else:
            axes.set_ylabel("metrics on dev")

    def branches(self, axes: Axes) -> None:
        """Draw the metric on dev of each run that the rule has compared."""
        metric = self.results.config["metric"]
        for number, branch in enumerate(shown_branches(self.results.branches)):
            label = branch.title
            if branch.gain is not None:
                label += f", {difference(metric, branch.gain)}"
            style: dict[str, Any] = {
                "color": colour(number),
                "linewidth": 2.5 if branch.taken else 1,
                "label": f"{label}, taken" if branch.taken else label,
            }
            if branch.is_trained:
                axes.plot(*zip(*branch.course, strict=True), marker=marker(number), **style)
            else:
                axes.axhline(branch.value, linestyle="--", **style)
        axes.set_ylabel(f"{metric_title(metric)} on dev\nof each run compared")

    def weights(self) -> list[Panel]:
        """Return the panel of the weights, if any of them moves."""
        names = list(self.results.weights)
        keys = {name: Quantity.WEIGHT.key(name) for name in names}
        if len(names) < 2 or all(len(set(self.series(key)[1])) < 2 for key in keys.values()):
            return []
        if self.names(Quantity.CANDIDATE):
            return [self.candidates]
        applied = self.lines("weight", keys)

        def panel(axes: Axes) -> None:
            applied(axes)
            axes.set_ylim(0, max(1.0, *axes.get_ylim()))  # those of some rules do not sum to 1

        return [panel]

    def candidates(self, axes: Axes) -> None:
        """Draw what a rule with a gate learns for each auxiliary task, applied or not."""
        tasks = list(self.results.weights)[1:]
        self.lines("weight", {name: Quantity.WEIGHT.key(name) for name in tasks})(axes)
        for name in tasks:
            series = self.series(Quantity.CANDIDATE.key(name))
            style = self.style(name, 0) | {"linestyle": ":"}
            axes.plot(*series, label=f"{name}, learned", **style)
        ((_, options),) = self.results.config["weights"].items()
        gate = options.get("gate", 0) / len(tasks)
        axes.axhline(gate, color="0.5", linewidth=1, linestyle="--", label=f"gate, {gate:.3g}")

    def losses(self) -> list[Panel]:
        """Return one panel for each objective: their losses are of different sizes."""
        metric, recorded = self.results.config["metric"], self.names(Quantity.LOSS)
        # A task that a rule left out has no loss in the run that it took, a point has none at all.
        primary, *tasks = self.results.weights
        if primary not in recorded:
            return []
        validated = VALIDATION in recorded
        # With macro-F1, the weights are learned from 1 - F1, which is not measured in nats.
        smooth = metric != "accuracy"
        groups = [([primary], self.results.kind.unit)]
        if validated and not smooth:
            groups[0][0].append(VALIDATION)
        groups += [([name], "nats") for name in tasks if name in recorded]
        if validated and smooth:
            groups.append(
                ([VALIDATION], f"1 - {'F1' if metric.endswith('f1') else metric_title(metric)}")
            )
        return [
            self.lines(
                f"loss ({unit})", {name: Quantity.LOSS.key(name) for name in names}, bottom=None
            )
            for names, unit in groups
        ]

    def auxiliary(self) -> list[Panel]:
        names = sorted(self.names(Quantity.AUX))
        keys = {name.replace("/", ", "): Quantity.AUX.key(name) for name in names}
        return [self.lines("metric of the task\non its own dev examples", keys)] if keys else []

    def gradients(self) -> list[Panel]:
        """Return the panels of cosines, conflicts and norms that were measured."""
        cosine = Quantity.GRADIENT_COSINE
        pairs = [pair.split("/") for pair in self.names(cosine)]
        between = {
            ", ".join(pair): cosine.key("/".join(pair)) for pair in pairs if VALIDATION not in pair
        }
        # What the weighting has recorded itself stands in for what was not measured.
        with_validation = {
            name: cosine.key(f"{name}/{VALIDATION}")
            for name in self.results.weights
            if [name, VALIDATION] in pairs
        }
        recorded = {name: Quantity.COSINE.key(name) for name in self.names(Quantity.COSINE)}
        with_validation |= {n: key for n, key in recorded.items() if n not in with_validation}
        conflicts = {}
        for pair in self.names(Quantity.CONFLICT):
            key = Quantity.CONFLICT.key(pair)
            share = np.mean(self.series(key)[1])
            conflicts[f"{pair.replace('/', ', ')}\n({share:.0%} of all)"] = key
        panels = [
            self.lines(title, keys, smooth=True, bottom=None)
            for title, keys in (
                ("cosine of two\ngradients", between),
                ("cosine with the\nvalidation gradient", with_validation),
                ("share of steps\nin conflict", conflicts),
            )
            if keys
        ]
        measured = self.names(Quantity.GRADIENT_NORM)
        quantity = Quantity.GRADIENT_NORM if measured else Quantity.NORM
        if norms := {name: quantity.key(name) for name in self.names(quantity)}:
            drawn = self.lines("norm of the\ngradient", norms, smooth=True, bottom=None)

            def panel(axes: Axes) -> None:
                drawn(axes)
                axes.set_yscale("log")

            panels.append(panel)
        return panels


def draw_smoothed(axes: Axes, series: Series, label: str, style: Mapping[str, Any]) -> None:
    """Draw a noisy series: faint points, and a moving average over a sixth of them as a line."""
    steps, values = series
    half = len(values) // 12
    parts = [values[max(0, place - half) : place + half + 1] for place in range(len(values))]
    means = [sum(part) / len(part) for part in parts]
    if half:
        axes.plot(steps, values, ".", color=style["color"], markersize=3, alpha=0.35)
    axes.plot(steps, means, label=label, marker=line_marker(steps), **style)
