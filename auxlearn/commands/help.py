"""Command help that ends with runnable examples."""

from __future__ import annotations

from typing import Any, NamedTuple

import click


class Example(NamedTuple):
    """A command line that the help shows.

    Attributes:
        title: What it does.
        line: The command line, which begins with ``auxlearn``.
    """

    title: str
    line: str


class ExampleCommand(click.Command):
    """A command whose help ends with a section of examples.

    Attributes:
        examples: Shown in this order.
    """

    def __init__(self, *args: Any, examples: tuple[Example, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples below the options; their lines are never wrapped."""
        with formatter.section("Examples"):
            indent = " " * formatter.current_indent
            for example in self.examples:
                formatter.write(f"{indent}# {example.title}\n{indent}{example.line}\n")
