"""``auxlearn train``: fine-tuning with auxiliary objectives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import PATH, TAKES_PLUGIN_OPTIONS, RunCommand, options_of, run_config
from auxlearn.core.config import RunConfig


@click.command(cls=RunCommand, context_settings=TAKES_PLUGIN_OPTIONS)
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=PATH,
    help="YAML configuration file; options of the command line take precedence.",
)
@click.option(
    "--report",
    "with_report",
    is_flag=True,
    help="Write report.html into the run folder at the end.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1, 10_000),
    default=1,
    help="Runs at a time, for a rule that compares whole runs (meta); each has a GPU of its own if "
    "there are several.  [default: 1]",
)
@options_of(RunConfig, negatable=True)
@click.pass_context
def command(
    ctx: click.Context, /, config_file: Path | None, with_report: bool, jobs: int, **options: Any
) -> None:
    """Fine-tune an encoder for classification, tagging or regression with auxiliary tasks.

    Without options, a small built-in encoder is trained to tell which Python library a passage of
    documentation comes from. The same command resumes an interrupted run from its last checkpoint.

    \b
    Examples:
        # Built-in encoder and data set; the share of the auxiliary task is chosen on dev
        auxlearn train --aux l3mask --weights meta
        # Your own data (train, dev and test as .tsv, .csv, .jsonl or .parquet) with a fixed weight
        auxlearn train --dataset data/reviews --encoder bert --aux random_mlm --fixed-alpha 0.3
        # Another seed of an earlier run
        auxlearn train --config runs/reviews/config.yaml --seed 1 --output runs/reviews-1
    """
    from auxlearn.results.console import ConsoleReporter, print_results

    reporter = ConsoleReporter()
    with reporter.waiting("loading torch and transformers"):
        config = run_config(config_file, options, ctx.args, announce=reporter.message).resolved()

        from auxlearn.kinds.metrics import metric_title
        from auxlearn.results.folder import RunFolder
        from auxlearn.results.tables import (
            account_lines,
            branches_table,
            example_sentences,
            metrics_table,
        )
        from auxlearn.training.train import train

    results = train(config, reporter, jobs=jobs)

    folder = RunFolder.of(config).path
    metric = results.config["metric"]
    model = folder / "model"
    absent = f"{model} was deleted" if results.config.get("keep_model") else "not kept"
    print_results("", metrics_table(results.evaluations), "")
    print_results(*example_sentences(results.evaluations))
    best = f"best checkpoint: step {results.best.step} of {results.steps}"
    if results.point:
        best = f"best of runs and points between them: {results.point.title}"
    if results.branches:
        print_results(branches_table(results), "")
    print_results(
        *account_lines(results),
        *(f"warning: {line}" for line in results.warnings()),
        f"{best}, dev {metric_title(metric)} {results.best.value:.3f}",
        f"run folder: {folder}",
        f"model:      {model if model.is_dir() else absent}",
        f"plots:      {folder / 'plots'}",
    )
    if with_report:
        from auxlearn.reports.page import report

        print_results(f"report:     {report(folder)}")
