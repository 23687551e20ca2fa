"""Do learned weights find out which auxiliary task helps? Two tasks whose worth is known.

One auxiliary task is the primary task itself, on its clean labels; the other is the same with
the labels shuffled over the rows. A rule that learns from validation rows has to take weight from
the second and give it to the first.

    python examples/clean_vs_shuffled.py --output docs/img/clean_vs_shuffled.png
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from auxlearn import RunConfig, streams, train
from auxlearn.registry import register_task
from auxlearn.tasks.base import AuxiliaryTask, TaskContext

RULES: dict[str, dict[str, object]] = {
    "meta": {"learning_rate": 0.05, "split": "train:0.2"},
    "tartan": {"learning_rate": 0.05, "split": "train:0.2"},
    "tartan-released": {"learning_rate": 0.05, "split": "train:0.2"},
}


@register_task("clean_labels")
class CleanLabels(AuxiliaryTask):
    """The primary task once more, on batches of its own."""

    def prepare(self, context: TaskContext) -> None:
        """Take the labels of the training rows."""
        super().prepare(context)
        assert context.texts.labels is not None
        self.labels = self.relabelled(context.texts.labels, context.seed)

    def relabelled(self, labels: Tensor, seed: int) -> Tensor:
        """Return the labels to train on, ``(rows,)``."""
        return labels

    def loss(self, encoder, batch, generator: torch.Generator) -> Tensor:  # type: ignore[no-untyped-def]
        """Cross-entropy of the labels."""
        logits = encoder.classify(batch)
        targets = self.labels[batch.rows].to(logits.device, non_blocking=True)
        return nn.functional.cross_entropy(logits, targets)


@register_task("shuffled_labels")
class ShuffledLabels(CleanLabels):
    """The primary task with its labels dealt out to other rows."""

    def relabelled(self, labels: Tensor, seed: int) -> Tensor:
        """Return the labels in another order."""
        order = torch.randperm(len(labels), generator=streams.generator(seed, self.name))
        return labels[order]


def weights_by_step(
    rule: str, options: dict[str, object], folder: Path, **changes: object
) -> list[dict]:
    """Train with a rule, and with other settings if given; return the rows of its record."""
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
    """Draw the weights of all objectives, one axis for each rule."""
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
            values = [row[f"weight/{name}"] for row in rows]
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


def main() -> None:
    """Train with every rule and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("clean_vs_shuffled.png"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        records = {
            rule: weights_by_step(rule, options, Path(folder)) for rule, options in RULES.items()
        }
    for rule, rows in records.items():
        last = {key: round(value, 3) for key, value in rows[-1].items() if "weight/" in key}
        print(rule, f"after {rows[-1]['step']} steps:", last)
    draw(records, given.output)


if __name__ == "__main__":
    main()
