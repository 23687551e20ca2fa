"""``auxlearn pretrain``: masked language modelling before fine-tuning."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--encoder", required=True, help="Short name, local folder, or hub id.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--dataset", help="Data set whose train texts are used.")
@click.option(
    "--corpus", type=click.Path(path_type=Path), help="File of texts: .txt, .jsonl, .csv, ..."
)
@click.option("--text-column", help="Column with the text; by default text.")
@click.option(
    "--parts",
    type=click.Choice(["head", "whole"]),
    default="whole",
    show_default=True,
    help="head: train the language-model head on a body that stays as it is.",
)
@click.option("--steps", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--batch-size", type=click.IntRange(1), default=32, show_default=True)
@click.option(
    "--learning-rate",
    type=click.FloatRange(0, min_open=True),
    default=5e-5,
    show_default=True,
)
@click.option("--max-length", type=click.IntRange(4), default=128, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
def command(encoder: str, **options: object) -> None:
    """Train an encoder by masked language modelling on text.

    On the train texts of a data set this is task-adaptive pretraining. A checkpoint without a
    masked-language-model head gets one that means something: `--parts head` first, then whole.
    """
    from auxlearn.commands.console import ConsoleReporter
    from auxlearn.training.pretrain import pretrain

    results = pretrain(encoder, reporter=ConsoleReporter(), **options)  # type: ignore[arg-type]
    click.echo(
        f"masked tokens of texts kept back: cross-entropy {results.loss_before:.3f} -> "
        f"{results.loss_after:.3f} nats, predicted right {results.accuracy_before:.1%} -> "
        f"{results.accuracy_after:.1%}\nwritten to {options['output']}"
    )
