"""Plots of one run, drawn from the entries of its ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auxlearn.metric_keys import VALIDATION, Quantity
from auxlearn.reporting.style import (
    METRIC_TITLES,
    colour,
    line_marker,
    marker,
    new_figure,
    save_figure,
    style_axes,
)
from auxlearn.results.record import RunResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Entries = Sequence[Mapping[str, Any]]
#: Draws one panel of a figure.
Panel = Callable[["Axes", Entries, RunResults], None]


def plot_run(entries: Entries, results: RunResults, folder: Path) -> list[Path]:
    """Write all plots that the entries have values for.

    ``losses.png`` and ``dev.png`` always; ``weights.png`` with more than one objective;
    ``auxiliary.png`` if a task has metrics of its own; ``gradients.png`` if the weighting records
    gradients; ``overview.png``, which has the weights
    (or the losses, for a single objective) above the dev metric.

    Args:
        entries: Entries of ``metrics.jsonl``.
        results: Results of the run.
        folder: Where the plots are written; created where it is missing.

    Returns:
        The files written.

    Raises:
        UserError: They cannot be written.
    """
    several = len(results.weights) > 1
    plots: dict[str, Sequence[Panel]] = {"losses": [_losses], "dev": [_dev]}
    if several:
        plots["weights"] = [_weights]
    plots["overview"] = [_weights if several else _losses, _dev]
    if any(map(Quantity.AUX.read, entries)):
        plots["auxiliary"] = [_auxiliary]
    gradients = {Quantity.COSINE: _cosines, Quantity.NORM: _norms}
    if panels := [draw for kind, draw in gradients.items() if any(map(kind.read, entries))]:
        plots["gradients"] = panels
    return [
        save_figure(_draw(panels, entries, results), folder / f"{name}.png")
        for name, panels in plots.items()
    ]


def _losses(axes: Axes, entries: Entries, results: RunResults) -> None:
    # With macro-F1, the weights are learned from 1 - F1, which is not measured in nats.
    smooth = results.config["metric"] == "macro_f1"
    validation = f"{VALIDATION} (1 - F1)" if smooth else VALIDATION
    _lines(axes, entries, results, Quantity.LOSS, validation)
    axes.set_ylabel("loss (nats)")
    axes.set_ylim(bottom=0)


def _weights(axes: Axes, entries: Entries, results: RunResults) -> None:
    _lines(axes, entries, results, Quantity.WEIGHT)
    axes.set_ylabel("weight")
    # The weights of some rules do not sum to 1.
    axes.set_ylim(0, max(1.0, *axes.get_ylim()))


def _dev(axes: Axes, entries: Entries, results: RunResults) -> None:
    chosen = results.config["metric"]
    for number, (metric, title) in enumerate(METRIC_TITLES.items()):
        steps, values = _series(entries, Quantity.DEV.key(metric))
        axes.plot(
            steps,
            values,
            color=colour(number),
            marker=marker(number),
            markersize=4,
            label=title,
        )
    axes.plot(
        results.best.step,
        results.best.value,
        marker="o",
        markersize=11,
        markerfacecolor="none",
        markeredgecolor="black",
        linestyle="none",
        label=f"best {METRIC_TITLES[chosen]}, {results.best.value:.3f}",
    )
    majority = results.evaluations["dev"].majority
    baseline = majority.accuracy if chosen == "accuracy" else majority.macro_f1
    axes.axhline(
        baseline, color="0.5", linewidth=1, linestyle=":", label=f"majority, {baseline:.3f}"
    )
    axes.set_ylabel("score on dev (0 to 1)")
    axes.set_ylim(0, 1)


def _auxiliary(axes: Axes, entries: Entries, results: RunResults) -> None:
    names = sorted({name for entry in entries for name in Quantity.AUX.read(entry)})
    for number, name in enumerate(names):
        steps, values = _series(entries, Quantity.AUX.key(name))
        label = name.replace("/", ", ")
        axes.plot(steps, values, color=colour(number), marker=line_marker(steps), label=label)
    axes.set_ylabel("metric of the task\non its own dev examples")
    axes.set_ylim(bottom=0)


def _cosines(axes: Axes, entries: Entries, results: RunResults) -> None:
    axes.axhline(0, color="0.5", linewidth=1)
    _lines(axes, entries, results, Quantity.COSINE)
    axes.set_ylabel("cosine with the\nvalidation gradient")


def _norms(axes: Axes, entries: Entries, results: RunResults) -> None:
    _lines(axes, entries, results, Quantity.NORM)
    axes.set_ylabel("norm of the gradient")
    axes.set_yscale("log")


def _lines(
    axes: Axes,
    entries: Entries,
    results: RunResults,
    quantity: Quantity,
    validation: str = VALIDATION,
) -> None:
    """Draw one line for each objective, in the same colour in every plot.

    Args:
        axes: The panel.
        entries: Entries of ``metrics.jsonl``.
        results: Names the objectives, in order.
        quantity: What to draw.
        validation: Label of the validation objective, where it has this quantity.
    """
    for number, name in enumerate(results.weights):
        steps, values = _series(entries, quantity.key(name))
        axes.plot(steps, values, color=colour(number), marker=line_marker(steps), label=name)
    steps, values = _series(entries, quantity.key(VALIDATION))
    if steps:
        axes.plot(steps, values, "--k", linewidth=1, marker=line_marker(steps), label=validation)


def _series(entries: Entries, key: str) -> tuple[list[int], list[float]]:
    found = [(entry["step"], entry[key]) for entry in entries if key in entry]
    return [step for step, _ in found], [value for _, value in found]


def _draw(panels: Sequence[Panel], entries: Entries, results: RunResults) -> Figure:
    """Draw the panels of one figure over the same steps."""
    figure, every = new_figure(_title(results), len(panels), share_x=True)
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
