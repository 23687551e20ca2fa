"""``auxlearn pretrain``: masked language modelling before fine-tuning."""

from __future__ import annotations

import click

from auxlearn.commands.options import (
    PATH,
    Example,
    ExampleCommand,
    setting_options,
)

EXAMPLES = (
    Example(
        "Task-adaptive pretraining (TAPT) on the train texts of a data set",
        "auxlearn pretrain --encoder bert --dataset data/reviews --output encoders/bert-reviews",
    ),
    Example(
        "A masked-language-model head for a checkpoint without one: the backbone is frozen",
        "auxlearn pretrain --encoder my_encoder --corpus texts.txt --trainable head "
        "--output with_head",
    ),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.option(
    "--encoder",
    required=True,
    help="Pretrained encoder: short name, local folder, or Hugging Face hub id.",
)
@click.option(
    "--output",
    required=True,
    type=PATH,
    help="Folder for the trained encoder and its tokenizer.",
)
@click.option("--dataset", help="Data set whose train texts are used.")
@click.option("--corpus", type=PATH, help="File of texts: .txt, .jsonl, .csv, ...")
@setting_options("text_column", "text_pair_column", "label_column")
@click.option(
    "--trainable",
    type=click.Choice(["head", "all"]),
    default="all",
    show_default=True,
    help="Parameters to train: the masked-language-model head on a frozen backbone, or all.",
)
@click.option(
    "--steps",
    type=int,
    default=1000,
    show_default=True,
    help="Number of optimizer steps.",
)
@setting_options("batch_size", batch_size="Texts per optimizer step.")
@click.option(
    "--learning-rate",
    type=float,
    default=5e-5,
    show_default=True,
    help="Peak learning rate.",
)
@setting_options("max_length", "seed", "device")
def command(encoder: str, **options: object) -> None:
    """Continue the pretraining of an encoder by masked language modelling.

    On the train texts of a data set this is task-adaptive pretraining (TAPT). For a checkpoint
    without a masked-language-model head, train the newly initialised head first (`--trainable
    head`), then all parameters.
    """
    from auxlearn import api
    from auxlearn.commands.console import ConsoleReporter

    results = api.pretrain(encoder, reporter=ConsoleReporter(), **options)  # type: ignore[arg-type]
    click.echo(
        f"masked tokens of held-out texts: cross-entropy {results.loss_before:.3f} -> "
        f"{results.loss_after:.3f} nats, accuracy {results.accuracy_before:.1%} -> "
        f"{results.accuracy_after:.1%}\nencoder: {options['output']}"
    )
