"""Command help that begins with runnable examples."""

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
    """A command whose help shows examples before its options.

    Attributes:
        examples: Shown in this order.
    """

    def __init__(self, *args: Any, examples: tuple[Example, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description and the examples, whose lines are never wrapped."""
        super().format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            indent = " " * formatter.current_indent
            for example in self.examples:
                formatter.write(f"{indent}# {example.title}\n{indent}{example.line}\n")
