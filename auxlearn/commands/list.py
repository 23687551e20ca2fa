"""``auxlearn list``: registered tasks, losses, weightings, encoders and data sets."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from auxlearn.commands.options import ExampleCommand, option_flag
from auxlearn.core.errors import ConfigError, did_you_mean, shorten
from auxlearn.results.console import output

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from auxlearn.core.registry import Registry


@click.command(cls=ExampleCommand)
@click.argument(
    "what",
    type=click.Choice(["tasks", "losses", "weightings", "encoders", "datasets"]),
    metavar="WHAT",
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE",
    help="Python file whose tasks, losses and weightings are listed as well; repeatable.",
)
def command(what: str, names: tuple[str, ...], plugins: tuple[str, ...]) -> None:
    """List the names of WHAT: tasks, losses, weightings, encoders or datasets.

    Tasks, losses and weightings are listed with their options and defaults. With NAME, only what
    has that name.

    Examples:
        # Weightings with their options and defaults
        auxlearn list weightings
        # One task with its options
        auxlearn list tasks l3mask
        # Auxiliary tasks, those of a plug-in file included
        auxlearn list tasks --plugin my_task.py
    """
    from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS, canonical, load_plugin

    for path in plugins:
        load_plugin(path)
    registries = {"tasks": TASKS, "losses": LOSSES, "weightings": WEIGHTINGS}
    if what in registries:
        _list_plugins(registries[what], list(map(canonical, names)))
    elif what == "encoders":
        from auxlearn.core.settings import ENCODERS

        _list({name: card.description for name, card in ENCODERS.items()}, what, names)
    else:
        from auxlearn.data.load import dataset_names

        _list(dataset_names(), what, names)


def _list(titles: dict[str, str], what: str, names: Sequence[str]) -> None:
    for name in names:
        if name not in titles:
            raise ConfigError(
                f"'{shorten(name)}' is not among the {what}: {did_you_mean(shorten(name), titles)}"
            )
    _print_columns([(name, titles[name]) for name in names or titles])


def _list_plugins(registry: Registry, names: Sequence[str]) -> None:
    for number, name in enumerate(names or registry.names()):
        cls = registry.get(name)
        summary = (inspect.getdoc(cls) or "").partition("\n")[0]
        if number:
            click.echo()
        click.echo(f"{name}: {summary}")
        fields = cls.Options.model_fields.items()
        _print_columns([_option(name, option, field) for option, field in fields])


def _option(plugin: str, option: str, field: FieldInfo) -> tuple[str, str]:
    default: Any = field.get_default(call_default_factory=True)
    shown = f"  [default: {default}]" if default is not None else ""
    shown = "  [required]" if field.is_required() else shown
    return f"  {option_flag(plugin, option)}", f"{field.description or ''}{shown}".strip()


def _print_columns(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and what they are, side by side; a text too long for the window wraps."""
    formatter = click.HelpFormatter(width=output().width)
    if rows:
        formatter.write_dl(rows, col_max=40)
    click.echo(formatter.getvalue(), nl=False)
