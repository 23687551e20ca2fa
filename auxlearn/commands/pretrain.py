"""``auxlearn pretrain``: masked language modelling before fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import PATH, options_of
from auxlearn.core.run_settings import PretrainSettings


@click.command()
@click.option(
    "--output",
    required=True,
    type=PATH,
    metavar="FOLDER",
    help="Folder for the trained encoder and its tokenizer.",
)
@options_of(PretrainSettings)
def command(output: Path, **options: Any) -> None:
    """Continue the pretraining of an encoder by masked language modelling.

    On the train texts of a data set this is task-adaptive pretraining (TAPT). For a checkpoint
    without a masked-language-model head, train the newly initialised head first (`--trainable
    head`), then all parameters.

    \b
    Examples:
        # Task-adaptive pretraining (TAPT) on the train texts of a data set
        auxlearn pretrain --encoder bert --dataset data/reviews --output encoders/bert-reviews
        # A masked-language-model head for a checkpoint without one: the backbone is frozen
        auxlearn pretrain --encoder my_encoder --corpus texts.txt --trainable head --output \\
            with_head
    """
    from auxlearn.results.console import ConsoleReporter
    from auxlearn.training.pretrain import pretrain

    results = pretrain(output=output, reporter=ConsoleReporter(), **options)
    measured = (
        f"cross-entropy {results.loss_before:.3f} -> {results.loss_after:.3f} nats, accuracy "
        f"{results.accuracy_before:.1%} -> {results.accuracy_after:.1%}"
        if results.measured
        else "none, as the texts are few and short"
    )
    click.echo(f"masked tokens of held-out texts: {measured}\nencoder: {output}")
