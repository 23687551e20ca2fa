"""Pictures of a run, drawn from the rows of its ``metrics.jsonl``."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auxlearn.files import write_bytes
from auxlearn.metric_keys import VALIDATION, Quantity
from auxlearn.results.record import RunResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]

#: Okabe and Ito's palette, told apart with any kind of colour vision; black is the validation.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
METRICS = {"accuracy": "accuracy", "macro_f1": "macro-F1"}
DPI = 150


def plot_run(rows: Rows, results: RunResults, folder: Path) -> list[Path]:
    """Draw everything that the rows have figures for.

    ``losses.png`` and ``dev.png`` always; ``weights.png`` with more than one objective;
    ``gradients.png`` if the weighting records gradients; ``overview.png``, which has the weights
    (or the losses, for a single objective) above the dev metric.

    Args:
        rows: Rows of ``metrics.jsonl``.
        results: What the run came to.
        folder: Where the pictures go; made if need be.

    Returns:
        The files written.

    Raises:
        UserError: They cannot be written.
    """
    several = len(results.weights) > 1
    drawings = {"losses": _losses, "dev": _dev}
    if several:
        drawings["weights"] = _weights
    written = [
        _write(folder / f"{name}.png", _draw((draw,), rows, results))
        for name, draw in drawings.items()
    ]
    top = _weights if several else _losses
    written.append(_write(folder / "overview.png", _draw((top, _dev), rows, results)))
    gradients = {Quantity.COSINE: _cosines, Quantity.NORM: _norms}
    if drawn := [draw for kind, draw in gradients.items() if any(map(kind.read, rows))]:
        picture = _draw(drawn, rows, results)
        written.append(_write(folder / "gradients.png", picture))
    return written


def _losses(axes: Axes, rows: Rows, results: RunResults) -> None:
    # With macro-F1, what the weights are learned from is 1 - F1, which is no number of nats.
    smooth = results.config["metric"] == "macro_f1"
    validation = "validation (1 - F1)" if smooth else "validation"
    _lines(axes, rows, results, Quantity.LOSS, validation)
    axes.set_ylabel("loss (nats)")
    axes.set_ylim(bottom=0)


def _weights(axes: Axes, rows: Rows, results: RunResults) -> None:
    _lines(axes, rows, results, Quantity.WEIGHT)
    axes.set_ylabel("weight")
    # Some rules keep no sum of 1.
    axes.set_ylim(0, max(1.0, *axes.get_ylim()))


def _dev(axes: Axes, rows: Rows, results: RunResults) -> None:
    chosen = results.config["metric"]
    for number, (key, label) in enumerate(METRICS.items()):
        steps, values = _series(rows, Quantity.DEV.key(key))
        axes.plot(
            steps,
            values,
            color=COLOURS[number],
            marker=MARKERS[number],
            markersize=4,
            label=label,
        )
    axes.plot(
        results.best.step,
        results.best.value,
        marker="o",
        markersize=11,
        markerfacecolor="none",
        markeredgecolor="black",
        linestyle="none",
        label=f"best {METRICS[chosen]}, {results.best.value:.3f}",
    )
    majority = results.evaluations["dev"].majority
    baseline = majority.accuracy if chosen == "accuracy" else majority.macro_f1
    axes.axhline(
        baseline, color="0.5", linewidth=1, linestyle=":", label=f"majority, {baseline:.3f}"
    )
    axes.set_ylabel("score on dev (0 to 1)")
    axes.set_ylim(0, 1)


def _cosines(axes: Axes, rows: Rows, results: RunResults) -> None:
    axes.axhline(0, color="0.5", linewidth=1)
    _lines(axes, rows, results, Quantity.COSINE)
    axes.set_ylabel("cosine with the\nvalidation gradient")


def _norms(axes: Axes, rows: Rows, results: RunResults) -> None:
    _lines(axes, rows, results, Quantity.NORM)
    axes.set_ylabel("norm of the gradient")
    axes.set_yscale("log")


def _lines(
    axes: Axes,
    rows: Rows,
    results: RunResults,
    quantity: Quantity,
    validation: str = VALIDATION,
) -> None:
    """Draw one line for each objective, in the same colour in every picture.

    Args:
        axes: Where to.
        rows: Rows of ``metrics.jsonl``.
        results: Names the objectives, in order.
        quantity: What to draw.
        validation: What to call the validation objective, where it has such a key.
    """
    for number, name in enumerate(results.weights):
        steps, values = _series(rows, quantity.key(name))
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(steps, values, color=colour, marker=_marker(steps), label=name)
    steps, values = _series(rows, quantity.key(VALIDATION))
    if steps:
        axes.plot(steps, values, "--k", linewidth=1, marker=_marker(steps), label=validation)


def _marker(steps: Sequence[int]) -> str | None:
    return "." if len(steps) == 1 else None  # a line of one point would not show


def _series(rows: Rows, key: str) -> tuple[list[int], list[float]]:
    found = [(row["step"], row[key]) for row in rows if key in row]
    return [step for step, _ in found], [value for _, value in found]


def _draw(draws: Sequence[Any], rows: Rows, results: RunResults) -> Figure:
    """Draw one picture with an axis for each drawing, over the same steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 0.6 + 2.7 * len(draws)), layout="constrained")
    figure.suptitle(_title(results), fontsize=10)
    every = figure.subplots(len(draws), 1, sharex=True, squeeze=False)[:, 0]
    for axes, draw in zip(every, draws, strict=True):
        draw(axes, rows, results)
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
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


def _write(path: Path, figure: Figure) -> Path:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    write_bytes(path, buffer.getvalue())
    return path
