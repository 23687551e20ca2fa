"""``auxlearn list``: registered tasks, losses, weightings, encoders and data sets."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

import click

from auxlearn.commands.options import option_records
from auxlearn.core.errors import ConfigError, did_you_mean, shorten
from auxlearn.results.console import output


@click.command()
@click.argument(
    "what",
    type=click.Choice(["tasks", "losses", "weightings", "encoders", "datasets"]),
    metavar="WHAT",
    required=False,
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE",
    help="Python file whose tasks, losses and weightings are listed as well; repeatable.",
)
def command(what: str | None, names: tuple[str, ...], plugins: tuple[str, ...]) -> None:
    """List what there is: tasks, losses, weightings, encoders or datasets; all names without WHAT.

    With NAME, only what has that name, and of tasks, losses and weightings their options and
    defaults.

    \b
    Examples:
        # All names
        auxlearn list
        # Weightings, a line each
        auxlearn list weightings
        # One task with its options
        auxlearn list tasks l3mask
        # Auxiliary tasks, those of a plug-in file included
        auxlearn list tasks --plugin my_task.py
    """
    from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS, canonical, load_plugin
    from auxlearn.core.settings import ENCODERS
    from auxlearn.data.load import dataset_names

    for path in plugins:
        load_plugin(path)
    registries = {"tasks": TASKS, "losses": LOSSES, "weightings": WEIGHTINGS}
    if what is None:
        known = {kind: registry.names() for kind, registry in registries.items()}
        known |= {"encoders": list(ENCODERS), "datasets": list(dataset_names())}
        _print_columns([(kind, ", ".join(names_of_kind)) for kind, names_of_kind in known.items()])
        click.echo(
            "\n`auxlearn list tasks` says what each is, `auxlearn list tasks NAME` its options."
        )
    elif what in registries:
        registry = registries[what]
        summaries = {
            name: (inspect.getdoc(registry.get(name)) or "").partition("\n")[0]
            for name in map(canonical, names or registry.names())
        }
        _print_columns([*summaries.items()])
        for name in summaries if names else ():
            click.echo()
            _print_columns(option_records(registry, name))
    elif what == "encoders":
        _list({name: card.description for name, card in ENCODERS.items()}, what, names)
    else:
        _list(dataset_names(), what, names)


def _list(titles: Mapping[str, str], what: str, names: Sequence[str]) -> None:
    for name in names:
        if name not in titles:
            raise ConfigError(
                f"'{shorten(name)}' is not among the {what}: {did_you_mean(shorten(name), titles)}"
            )
    _print_columns([(name, titles[name]) for name in names or titles])


def _print_columns(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and what they are, side by side; a text too long for the window wraps."""
    formatter = click.HelpFormatter(width=output().width)
    if rows:
        formatter.write_dl(rows, col_max=40)
    click.echo(formatter.getvalue(), nl=False)
