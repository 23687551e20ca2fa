"""Entry point of the command line: ``auxlearn COMMAND``.

Every command is a module of its own, imported when the command is called; heavy libraries are
imported when it runs. ``auxlearn --help`` therefore loads neither torch nor transformers.
"""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import io
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from auxlearn.core.errors import (
    MAKE_ROOM,
    NO_ROOM,
    ConfigError,
    Interrupted,
    UserError,
    first_fault,
    is_out_of_memory,
    named_fault,
    plugin_title,
    printable,
    shorten,
    shorten_middle,
    suggestion,
)
from auxlearn.core.processes import WAITING, muted, process_count, process_number, silent
from auxlearn.core.signals import ignore_signals, interruptible
from auxlearn.core.version import __version__

#: Lines that an error is shown in, and characters of a line.
MAX_LINES = 20
MAX_LINE = 1500

#: One-line help by name of the command; ``auxlearn.commands.NAME`` defines it as ``command``.
COMMANDS = {
    "train": "Fine-tune an encoder with auxiliary tasks.",
    "evaluate": "Evaluate a finished run on a data set.",
    "predict": "Predict the labels of texts with a finished run.",
    "ensemble": "Average the predictions of finished runs.",
    "perturbations": "Show the tokens that Mask-tuning substituted.",
    "score": "Score tokens, words and texts by a language model.",
    "masks": "Show which tokens masking tasks mask, and how often.",
    "sweep": "Run many trials and compare the methods.",
    "compare": "Compare the methods of sweeps and runs.",
    "report": "Write runs or sweeps as one HTML file.",
    "data": "Audit a data set, or make the folder of a published one.",
    "list": "List tasks, losses, weightings, encoders or data sets.",
    "check": "Check a task, loss or weighting of your own.",
    "pretrain": "Continue pretraining by masked language modelling (TAPT).",
}


class Failure(click.ClickException):
    """An error that ends the command line: one line per problem, and an exit code."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the lines to standard error, however long they are."""
        lines = self.message.split("\n")
        if len(lines) > MAX_LINES:
            lines = [*lines[:MAX_LINES], f"and {len(lines) - MAX_LINES} more like these"]
        for line in lines:
            click.echo(f"error: {printable(shorten_middle(line, MAX_LINE))}", err=True)


class Stopped(Failure):
    """The user stopped the command."""

    exit_code = 130


class Fault(Failure):
    """An error that nobody foresaw: a fault of this package. The code is ``EX_SOFTWARE``."""

    exit_code = 70


class LazyGroup(click.Group):
    """The group of all :data:`COMMANDS`, which turns errors into single lines."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return importlib.import_module(f"auxlearn.commands.{name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; refuse an option with two values, of which click drops the first."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            _refuse_repeated(command, ctx, name, rest)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with one_line_errors(debug=False):
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with one_line_errors(ctx.params["debug"]), interruptible():
            from auxlearn.core.files import check_working_folder  # loads pydantic

            check_working_folder()  # without it some libraries cannot be loaded
            return super().invoke(ctx)


def _refuse_repeated(
    command: click.Command, ctx: click.Context, name: str | None, args: list[str]
) -> None:
    with click.Context(command, ctx, name, **command.context_settings) as inner:
        _, rest, order = command.make_parser(inner).parse_args(list(args))
        for option, count in Counter(order).items():
            if count < 2 or not isinstance(option, click.Option) or option.multiple:
                continue
            if option.secondary_opts or not option.is_flag:  # of the one flag it says the same
                flag = option.opts[0]
                raise ConfigError(f"option '{flag}' is given twice: leave one of them out")
        if isinstance(command, click.Group) and rest:
            name, nested, rest = command.resolve_command(inner, rest)
            if nested is not None:
                _refuse_repeated(nested, inner, name, rest)


@contextmanager
def one_line_errors(debug: bool) -> Iterator[None]:
    """Turn errors that a user can fix into a :class:`Failure`."""
    try:
        yield
    except UserError as error:
        if debug:
            traceback.print_exception(error)
        kind = Stopped if isinstance(error.__cause__ or error, Interrupted) else Failure
        if silent(error):
            raise click.exceptions.Exit(kind.exit_code) from None
        raise kind(str(error)) from None
    except KeyboardInterrupt as error:
        if debug:
            traceback.print_exception(error)
        if process_number():
            raise click.exceptions.Exit(Stopped.exit_code) from None
        raise Stopped(f"interrupted {error}".strip()) from None
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        raise Failure(_usage_line(error)) from None
    except (click.ClickException, click.exceptions.Exit, click.Abort, SystemExit):
        raise
    except BaseException as error:  # libraries in other languages have some that are no Exception
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise  # the reader of the output has ended, which click handles
        if debug:
            traceback.print_exception(error)
        line = _line_of_system(error)
        raise (Failure(line) if line else Fault(_line_of_fault(error))) from None


def _line_of_system(error: BaseException) -> str:
    """Return the line for an error of the system; "" if it is no such error."""
    if is_out_of_memory(error):
        return f"out of memory ({first_fault(error)}): lower --batch-size or --max-length"
    if not isinstance(error, OSError):
        return ""
    where = f" for {error.filename}" if error.filename else ""
    if error.errno in NO_ROOM:
        return f"no room{where} ({error.strerror}): {MAKE_ROOM}"
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM):
        return f"the system refuses more ({error.strerror}): raise its limit (ulimit -a shows all)"
    if error.filename and error.strerror:
        return f"cannot use {error.filename} ({error.strerror}): check the path and its permissions"
    return ""


def _line_of_fault(error: BaseException) -> str:
    from auxlearn.core.registry import plugins_in_use
    from auxlearn.results.folder import log_of

    log = log_of(error)
    advice = (
        f"its traceback is in {log}: report it to the authors with that file"
        if log
        else "run it again with --debug before the command, and report what is shown to the authors"
    )
    others = plugins_in_use()
    whose = f", or of a plug-in ({', '.join(map(plugin_title, others))})" if others else ""
    return f"this is a fault of auxlearn{whose} ({named_fault(error)}); {advice}"


def _usage_line(error: click.UsageError) -> str:
    """Return the error with a suggestion, or with a pointer to the help."""
    known: list[str] = []
    if isinstance(error, click.NoSuchOption):
        message, name = f"unknown option '{error.option_name}'", error.option_name
        if error.ctx is not None:
            known = [flag for option in error.ctx.command.params for flag in option.opts]
        known = [flag for flag in known if flag.startswith("--")]
    elif isinstance(error, click.exceptions.NoSuchCommand):
        message, name = f"unknown command '{error.command_name}'", error.command_name
        if error.ctx is not None and isinstance(error.ctx.command, click.Group):
            known = error.ctx.command.list_commands(error.ctx)
    else:
        message, name = error.format_message().rstrip("."), ""
        message = shorten(" ".join(message.split()), 300)
        message = message[:1].lower() + message[1:]
    if hint := suggestion(name, known):
        return f"{message}: {hint}"
    path = error.ctx.command_path if error.ctx else "auxlearn"
    if name and error.ctx and any(one.nargs == -1 for one in error.ctx.command.params):
        return f"{message} (before texts that begin with -, write --; see `{path} --help`)"
    return f"{message} (see `{path} --help`)"


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--debug", is_flag=True, help="Show tracebacks, and warnings of libraries.")
@click.version_option(__version__, package_name="auxlearn", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Fine-tune text encoders with auxiliary objectives whose weights are fixed or learned."""
    from auxlearn.results.console import clean_output

    if process_count() > 1 and ctx.invoked_subcommand != "train":
        raise ConfigError(
            f"{ctx.invoked_subcommand} runs in one process, but {process_count()} were started "
            "together: start it without torchrun"
        )
    os.environ.pop("MPLBACKEND", None)  # plots are files, and a window system may not be there
    if isinstance(sys.stdout, io.TextIOWrapper):  # else a text that its encoding lacks is an error
        sys.stdout.reconfigure(errors="replace")
    ctx.with_resource(clean_output(debug))
    if process_number():
        ctx.with_resource(muted())


def main() -> None:
    atexit.register(gc.freeze)  # else Python looks for cycles among torch's objects, for a second
    try:
        cli(prog_name="auxlearn")
    except SystemExit as end:
        ignore_signals()
        if any(thread.name == WAITING for thread in threading.enumerate()):
            # What waits in torch for other processes would abort this one at its end.
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(end.code if isinstance(end.code, int) else 1)
        raise
