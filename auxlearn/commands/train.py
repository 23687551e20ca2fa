"""``auxlearn train``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import RunCommand, run_config


@click.command(cls=RunCommand, options_metavar="[OPTIONS]")
@click.option("--config", "config_file", metavar="FILE", help="YAML file; options win over it.")
@click.pass_context
def command(ctx: click.Context, config_file: str | None, **given: Any) -> None:
    """Train a classifier with auxiliary tasks.

    Without options, a small encoder learns to tell which Python library a documentation text
    comes from. The same command goes on with a run that was stopped.
    """
    from auxlearn.commands.console import ConsoleReporter, print_results

    reporter = ConsoleReporter()
    with reporter.waiting("loading torch and transformers"):
        config = run_config(config_file, given, ctx.args).resolved()

        from auxlearn.reporting.tables import figures_table, seen_sentences
        from auxlearn.results.folder import default_output
        from auxlearn.training import run

    results = run.train(config, reporter)

    folder = Path(config.output) if config.output else default_output(config)
    metric = results.config["metric"]
    print_results(
        "",
        figures_table(results.evaluations),
        "",
        *seen_sentences(results.evaluations),
        *(f"warning: {line}" for line in results.warnings()),
        f"best checkpoint: step {results.best.step} of {results.steps}, "
        f"dev {metric} {results.best.value:.3f}",
        f"run folder: {folder}",
        f"model:      {folder / 'model'}",
        f"pictures:   {folder / 'plots'}",
    )
