"""Do learned weights find out which auxiliary task helps? A test with two known tasks.

One auxiliary task is the primary task itself, on its clean labels; the other is the same with
the labels shuffled over the examples. A rule that learns from validation examples should give less
weight to the second and more to the first.

    python examples/clean_vs_shuffled.py --output docs/img/clean_vs_shuffled.png
    python examples/clean_vs_shuffled.py --table --seeds 10 --json clean_vs_shuffled.json

The second form prints a table over all registered rules. It writes its results after every run
and skips the runs that the file already has, so it can be stopped and started again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from auxlearn import RunConfig, train
from auxlearn.core.errors import UserError
from auxlearn.core.files import write_json
from auxlearn.core.metric_names import Quantity
from auxlearn.core.registry import WEIGHTINGS
from auxlearn.plugins import AuxiliaryTask, ObjectiveContext, generator, register_task

RULES: dict[str, dict[str, object]] = {
    "meta": {"horizon": "steps", "split": "train:0.2"},
    "tartan": {"learning_rate": 0.05, "split": "train:0.2"},
    "tartan_released": {"learning_rate": 0.05, "split": "train:0.2"},
}

#: Rules whose weights never change: no need to train.
CONSTANT = ("equal", "fixed")

#: Steps that the table is about; rules that hold out validation examples have no more.
STEPS = 200

#: By how much the clean labels' share of all weights is to exceed the shuffled labels' share.
GAP = 0.3

#: For how many steps at least it has to stay there: a noisy rule may be above in the last alone.
STAY = 20


@register_task("clean_labels")
class CleanLabels(AuxiliaryTask):
    """The primary task once more, on batches of its own."""

    def prepare(self, context: ObjectiveContext) -> None:
        """Take the labels of the training examples."""
        super().prepare(context)
        assert context.texts.labels is not None
        self.labels = self.relabelled(context.texts.labels, context.seed)

    def relabelled(self, labels: Tensor, seed: int) -> Tensor:
        """Return the labels to train on, ``(examples,)``."""
        return labels

    def loss(self, encoder, batch, generator: torch.Generator) -> Tensor:  # type: ignore[no-untyped-def]
        """Cross-entropy of the labels."""
        logits = encoder.classify(batch)
        targets = self.labels[batch.indices].to(logits.device, non_blocking=True)
        return nn.functional.cross_entropy(logits, targets)


@register_task("shuffled_labels")
class ShuffledLabels(CleanLabels):
    """The primary task with its labels permuted over the examples."""

    def relabelled(self, labels: Tensor, seed: int) -> Tensor:
        """Return the labels in another order."""
        order = torch.randperm(len(labels), generator=generator(seed, self.name))
        return labels[order]


def weights_by_step(
    rule: str, options: dict[str, object], folder: Path, **changes: object
) -> list[dict]:
    """Train with a rule and with settings changed; return the training lines of its metrics."""
    config = RunConfig.model_validate(
        {
            "dataset": "pydocs",
            "encoder": "tiny",
            "max_length": 32,
            "aux": ["clean_labels", "shuffled_labels"],
            "weights": {rule: options},
            "epochs": 4,
            "patience": 0,
            "batch_size": 16,
            "output": str(folder / rule),
        }
        | changes
    )
    train(config)
    lines = (folder / rule / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == "train"]


def draw(records: dict[str, list[dict]], output: Path) -> None:
    """Plot the weights of all objectives, one panel for each rule."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(records), 3.0), layout="constrained")
    every = figure.subplots(1, len(records), sharey=True, squeeze=False)[0]
    styles = {
        "primary": ("black", "primary"),
        "clean_labels": ("#0072B2", "clean labels"),
        "shuffled_labels": ("#D55E00", "shuffled labels"),
    }
    for axes, (rule, rows) in zip(every, records.items(), strict=True):
        for name, (colour, label) in styles.items():
            values = [row[Quantity.WEIGHT.key(name)] for row in rows]
            axes.plot([row["step"] for row in rows], values, color=colour, label=label)
        axes.set_title(rule, fontsize=10)
        axes.set_xlabel("step")
        axes.set_ylim(0, 1)
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    every[0].set_ylabel("weight")
    every[-1].legend(frameon=False, fontsize=8)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=150)


def gaps(rows: list[dict]) -> list[tuple[int, float]]:
    """Return by step how far the clean labels' share of all weights is above the shuffled ones'.

    Shares, because weights sum to 1 under some rules, to the number of objectives under others,
    and to no constant under others still.
    """
    found = []
    for row in rows:
        if row["step"] <= STEPS:
            weights = Quantity.WEIGHT.read(row)
            total = sum(map(abs, weights.values()))
            gap = weights["clean_labels"] - weights["shuffled_labels"]
            found.append((row["step"], gap / total))
    return found


def verdict(found: list[tuple[int, float]]) -> dict[str, float | int | None]:
    """Say when the gap was first above :data:`GAP`, from when on it stayed there, and its end.

    Args:
        found: The gap by recorded step, as :func:`gaps` returns it.

    Returns:
        ``first`` and ``lasting`` (for :data:`STAY` steps or more), steps or ``None`` for never, and
        ``end``, the mean gap over the last fifty steps.
    """
    above = [step for step, gap in found if gap > GAP]
    below = [step for step, gap in found if gap <= GAP]
    lasting = min((step for step in above if step > max(below, default=0)), default=STEPS)
    last = [gap for step, gap in found if step > STEPS - 50]
    return {
        "first": min(above, default=None),
        "lasting": lasting if lasting <= STEPS - STAY else None,
        "end": statistics.fmean(last),
    }


def measure(rules: list[str], seeds: int, path: Path) -> dict[str, dict[str, dict]]:
    """Train every rule with every seed that the file does not hold yet; return all verdicts.

    Raises:
        UserError: The file was written with other settings.
    """
    settings = {"steps": STEPS, "gap": GAP, "stay": STAY, "options": RULES}
    runs: dict[str, dict[str, dict]] = {}
    if path.is_file():
        known = json.loads(path.read_text(encoding="utf-8"))
        if known["settings"] != settings:
            raise UserError(f"{path} was written with other settings: choose another --json")
        runs = known["runs"]
    for seed in map(str, range(seeds)):
        for rule in rules:
            if seed in runs.setdefault(rule, {}):
                continue
            if rule in CONSTANT:
                runs[rule][seed] = {"first": None, "lasting": None, "end": 0.0}
            else:
                with tempfile.TemporaryDirectory() as folder:
                    options = RULES.get(rule, {})
                    rows = weights_by_step(rule, options, Path(folder), seed=int(seed))
                runs[rule][seed] = verdict(gaps(rows))
            write_json(path, {"settings": settings, "runs": runs})
    return runs


def table(runs: dict[str, dict[str, dict]]) -> str:
    """Return the verdicts as a Markdown table, the fastest rules first."""

    def steps(found: list[dict], key: str) -> str:
        reached = [run[key] for run in found if run[key] is not None]
        if not reached:
            return "never"
        middle = f"{statistics.median(reached):g}"
        extent = f" ({min(reached)} to {max(reached)})" if len(reached) > 1 else ""
        return f"{middle}{extent}, {len(reached)} of {len(found)} seeds"

    def order(item: tuple[str, dict]) -> tuple[float, float]:
        found = list(item[1].values())
        ends = statistics.fmean(run["end"] for run in found)
        reached = [run["lasting"] for run in found if run["lasting"] is not None]
        return (-len(reached) / len(found), statistics.median(reached) if reached else -ends)

    lines = [
        "| rule | steps until the gap stays above 0.3 | until it is above for the first time "
        "| gap over the last 50 steps |",
        "|---|---|---|---|",
    ]
    for rule, by_seed in sorted(runs.items(), key=order):
        found = list(by_seed.values())
        ends = [run["end"] for run in found]
        spread = f" ± {statistics.stdev(ends):.2f}" if len(ends) > 1 else ""
        lines.append(
            f"| `{rule}` | {steps(found, 'lasting')} | {steps(found, 'first')} "
            f"| {statistics.fmean(ends):z.2f}{spread} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Plot the weights of the rules that learn from validation examples, or tabulate all rules."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("clean_vs_shuffled.png"))
    parser.add_argument("--table", action="store_true", help="compare all rules over seeds")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of the table, from 0 on")
    parser.add_argument("--rules", nargs="+", help="rules of the table; by default all")
    parser.add_argument("--json", type=Path, default=Path("clean_vs_shuffled.json"))
    given = parser.parse_args()
    if given.table:
        try:
            print(table(measure(given.rules or WEIGHTINGS.names(), given.seeds, given.json)))
        except UserError as error:
            parser.error(str(error))
        return
    with tempfile.TemporaryDirectory() as folder:
        records = {
            rule: weights_by_step(rule, options, Path(folder)) for rule, options in RULES.items()
        }
    for rule, rows in records.items():
        last = {key: round(value, 3) for key, value in Quantity.WEIGHT.read(rows[-1]).items()}
        print(rule, f"after {rows[-1]['step']} steps:", last)
    draw(records, given.output)


if __name__ == "__main__":
    main()
