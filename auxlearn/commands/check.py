"""``auxlearn check``: whether a plug-in keeps the promises that training relies on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from auxlearn.commands.options import TAKES_PLUGIN_OPTIONS, with_plugin_options

if TYPE_CHECKING:
    from rich.table import Table

    from auxlearn.core.registry import Registry
    from auxlearn.testing.check_base import Report


@click.command(context_settings=TAKES_PLUGIN_OPTIONS)
@click.argument("plugin", metavar="FILE|NAME")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Also compare losses on this device with those on the CPU.",
)
@click.pass_context
def command(ctx: click.Context, /, plugin: str, device: str) -> None:
    """Check a task, loss or weighting on a tiny model and print what was found.

    FILE is a Python file that registers plug-ins, NAME a registered one. Options of a plug-in are
    given as in `auxlearn train`. The exit code is 1 if a check does not hold.

    \b
    Examples:
        # Every plug-in of a file
        auxlearn check examples/long_or_short.py
        # A built-in task with one of its options
        auxlearn check l3mask --score surprisal
    """
    from auxlearn.results.console import ConsoleReporter, print_results

    reporter = ConsoleReporter()
    with reporter.waiting("loading torch and transformers"):
        chosen = _chosen(plugin, ctx.args)
        from auxlearn.testing.checks import report

    failed = False
    for registry, name, options in chosen:
        with reporter.waiting(f"checking {registry.kind} '{name}'"):
            result = report(registry, (name, options), device=device)
        print_results("", _table(result))
        failed |= bool(result.failed)
    ctx.exit(1 if failed else 0)


def _chosen(plugin: str, extra: list[str]) -> list[tuple[Registry, str, dict[str, Any]]]:
    from auxlearn.core.config import RunConfig
    from auxlearn.core.errors import ConfigError, did_you_mean
    from auxlearn.core.registry import CHOSEN_BY, canonical, load_plugin

    if plugin.endswith(".py") or Path(plugin).is_file():
        module = load_plugin(plugin)
        named = [
            (kind, name)
            for kind, registry in CHOSEN_BY.items()
            for name in registry.registered_by(module)
        ]
        if not named:
            raise ConfigError(
                f"{plugin} registers no task, loss or weighting, which are what is checked: put "
                "@register_task, @register_loss or @register_weighting above a class"
            )
    else:
        name = canonical(plugin)
        named = [(kind, name) for kind, registry in CHOSEN_BY.items() if name in registry.names()]
        if not named:
            known = [name for registry in CHOSEN_BY.values() for name in registry.names()]
            raise ConfigError(f"unknown plug-in '{plugin}': {did_you_mean(plugin, known)}")
    chosen = []
    for kind, name in named:
        config = RunConfig.model_validate({kind: [name] if kind == "aux" else name})
        config = with_plugin_options(config, extra).resolved() if extra else config.resolved()
        choice = config.aux[0] if kind == "aux" else getattr(config, kind)
        chosen.append((CHOSEN_BY[kind], name, choice.options))
    return chosen


def _table(report: Report) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=report.plugin, title_justify="left", box=None, pad_edge=False)
    for heading in ("check", "", "found"):
        table.add_column(heading, overflow="fold")
    marks = {True: ("ok", "green"), False: ("failed", "bold red"), None: ("", "")}
    for check in report.checks:
        mark, style = marks[check.passed]
        table.add_row(Text(check.name), Text(mark, style=style), Text(check.detail))
    return table
