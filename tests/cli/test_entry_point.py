"""The entry point: light imports, one-line errors, no output of libraries."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from auxlearn import __version__
from auxlearn.cli import COMMANDS, cli
from auxlearn.core.errors import Interrupted, UserError
from auxlearn.core.signals import SIGNALS, StopRequest, interruptible
from auxlearn.results.folder import logged_into
from tests.cli.helpers import call, error

HEAVY = ("torch", "transformers", "datasets", "sklearn", "pandas", "pyarrow", "matplotlib", "numpy")
#: Names that do not exist, which is found before heavy libraries are loaded.
MISTAKES = (
    "train --aux l3mas",
    "train --aux l3mask --weights mta",
    "predict runs/nosuch Text.",
    "evaluate runs/nosuch --dataset pydocs",
    "ensemble runs/nosuch runs/other",
)


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_commands_without_a_model_import_no_heavy_library():
    code = f"""
import sys
from auxlearn.cli import cli
for arguments in (["--help"], ["--version"]):
    cli(arguments, prog_name="auxlearn", standalone_mode=False)
print("LOADED", {{*{HEAVY}, "pydantic", "rich", "yaml"}} & {{*sys.modules}}, len(sys.modules) > 50)
for arguments in (["train", "--help"], ["list", "encoders"], ["list", "datasets"]):
    cli(arguments, prog_name="auxlearn", standalone_mode=False)
    print("LOADED", {{*{HEAVY}}} & {{*sys.modules}}, "pydantic" in sys.modules)
for arguments in {MISTAKES}:
    try:
        cli(arguments.split(), prog_name="auxlearn")
    except SystemExit as stopped:
        print("STOPPED", stopped.code, {{"torch", "transformers"}} & {{*sys.modules}})
"""
    lines = python(code).splitlines()
    assert [line for line in lines if "LOADED" in line] == ["LOADED set() True"] * 4
    assert [line for line in lines if "STOPPED" in line] == ["STOPPED 2 set()"] * len(MISTAKES)


def test_every_command_is_listed_and_has_help():
    listing = call("--help").stdout
    for name, help_text in COMMANDS.items():
        assert f"  {name}" in listing
        assert help_text in listing
        assert call(name, "--help").stdout.startswith(f"Usage: cli {name}")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["trian"], "unknown command 'trian': did you mean 'train'?"),
        (["--versoin"], "unknown option '--versoin': did you mean '--version'?"),
        (["evaluate", "x"], "missing option '--dataset' (see `cli evaluate --help`)"),
        (["predict"], "missing argument 'RUN' (see `cli predict --help`)"),
        (["check", "simcse", "mlm"], "unexpected argument 'mlm': see `auxlearn check --help`"),
    ],
)
def test_a_usage_error_is_one_line(arguments, line):
    assert error(*arguments) == line


@pytest.fixture
def failing(monkeypatch):
    """Make ``auxlearn list encoders`` fail in a chosen way."""

    def fail_with(problem: BaseException) -> None:
        @click.command()
        @click.argument("what")
        def command(what: str) -> None:
            raise problem

        monkeypatch.setattr("auxlearn.commands.list.command", command)

    return fail_with


def test_debug_shows_the_traceback_and_every_line_is_an_error_line(failing):
    failing(UserError("this is wrong\nand this"))
    result = call("--debug", "list", "encoders")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Traceback (most recent call last):")
    assert "in command" in result.stderr
    assert result.stderr.endswith("error: this is wrong\nerror: and this\n")


@pytest.mark.parametrize("problem", [Interrupted("stopped at step 3"), KeyboardInterrupt()])
def test_a_stopped_command_exits_with_130(failing, problem):
    failing(problem)
    result = call("list", "encoders")
    assert result.exit_code == 130
    assert result.stderr == f"error: {str(problem) or 'interrupted'}\n"


@pytest.mark.parametrize(
    "problem",
    [kind("a bug") for kind in (RuntimeError, OSError, BaseException)],
)
def test_an_unforeseen_error_is_one_line_and_a_log(failing, problem, monkeypatch):
    monkeypatch.setattr("auxlearn.core.registry.plugins_in_use", list)
    failing(problem)
    result = call("list", "encoders", fault=True)
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: this is a fault of auxlearn ({type(problem).__name__}: ")
    log = Path(re.search(r"its traceback is in (.+): report it", line)[1])
    text = log.read_text()
    assert text.startswith(f"auxlearn {__version__}, Python ")
    assert "Traceback (most recent call last)" in text
    assert "in command" in text
    shutil.rmtree(log.parent)
    assert "in command" in call("--debug", "list", "encoders", fault=True).stderr


def test_an_unforeseen_error_may_be_one_of_a_plug_in_in_use(failing, monkeypatch):
    class Mine:
        name = "mine"

    monkeypatch.setattr("auxlearn.core.registry.plugins_in_use", lambda: [Mine])
    failing(TypeError("a bug"))
    line = call("list", "encoders", fault=True).stderr
    said = (
        f"this is a fault of auxlearn, or of a plug-in ('mine' ({Mine.__qualname__} of {__name__}))"
    )
    assert line.startswith(f"error: {said} (TypeError: a bug); ")


def test_the_log_of_an_unforeseen_error_is_in_the_folder_in_use(failing, tmp_path):
    problem = RuntimeError("a bug")
    with pytest.raises(RuntimeError), logged_into(tmp_path):
        raise problem
    failing(problem)
    line = call("list", "encoders", fault=True).stderr
    assert f"its traceback is in {tmp_path / 'error.log'}: " in line
    with logged_into(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (errno.EACCES, "cannot use some/path (Permission denied): check the path and its "),
        (errno.EMFILE, "the system refuses more (Too many open files): raise its limit"),
        (errno.ENOSPC, "no room for some/path (No space left on device): free some space"),
        (MemoryError(), "out of memory ("),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: x"), "out of memory ("),
    ],
)
def test_an_error_of_the_system_is_one_line(failing, problem, line):
    if isinstance(problem, int):
        problem = OSError(problem, os.strerror(problem), "some/path")
    failing(problem)
    assert error("list", "encoders").startswith(line)


def test_a_closed_pipe_is_silent(failing):
    failing(OSError(errno.EPIPE, "Broken pipe"))
    result = call("list", "encoders")
    assert (result.exit_code, result.output) == (1, "")


def test_an_error_of_any_length_is_a_few_short_lines(failing):
    failing(UserError("\n".join(["x" * 100_000] * 1000)))
    result = call("list", "encoders")
    assert len(result.stderr.splitlines()) == 21
    assert len(result.stderr) < 21 * 1600
    assert result.stderr.endswith("error: and 980 more like these\n")


def test_control_characters_of_an_error_are_escaped(failing):
    failing(UserError("label '\x1b[2J\x07\r\u202e'"))
    assert error("list", "encoders") == r"label '\x1b[2J\x07\r\u202e'"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_command_with_one_line(monkeypatch, number):
    @click.command()
    def command() -> None:
        os.kill(os.getpid(), number)
        time.sleep(1)

    monkeypatch.setattr("auxlearn.commands.list.command", command)
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    given = signal.signal(number, usual)  # which a shell may have told to be ignored
    try:
        before = [signal.getsignal(one) for one in SIGNALS]
        result = call("list")
        assert before == [signal.getsignal(one) for one in SIGNALS]
    finally:
        signal.signal(number, given)
    assert result.exit_code == 130
    name = "" if number == signal.SIGINT else f" by {number.name}"
    assert result.stderr == f"error: interrupted{name}\n"


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with StopRequest() as stop, interruptible():
            os.kill(os.getpid(), signal.SIGHUP)
        assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_handler_that_is_not_of_python_stays(monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda number: None)  # as within R, or uWSGI
    monkeypatch.setattr(signal, "signal", pytest.fail)
    with StopRequest() as stop:
        assert not stop.requested


def test_a_second_signal_interrupts():
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt, match="by SIGTERM"):
            os.kill(os.getpid(), signal.SIGTERM)


def test_warnings_of_libraries_are_hidden(monkeypatch):
    @click.command()
    def command() -> None:
        logging.getLogger("auxlearn.some.module").warning("look at %s", "this")
        logging.getLogger("some_library").warning("noise")
        warnings.warn("noise", stacklevel=1)
        click.echo("done")

    monkeypatch.setattr("auxlearn.commands.list.command", command)
    logger = logging.getLogger("auxlearn")
    before = logger.level, logger.propagate, list(logger.handlers), list(logging.root.handlers)
    result = call("list")
    assert result.stdout == "done\n"
    assert result.stderr == "warning: look at this\n"
    assert before == (logger.level, logger.propagate, logger.handlers, logging.root.handlers)


def test_a_program_that_ends_looks_for_no_cycles():
    """It would look at all objects of torch: for longer than an interruption may take."""
    code = (
        "import atexit, gc, sys; sys.argv[1:] = ['--version']; "
        "atexit.register(lambda: print(gc.get_freeze_count() > 1000)); "
        "from auxlearn.cli import main; main()"
    )
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.endswith("True\n")


def test_a_program_that_ends_is_not_interrupted():
    """What it was asked for is done, and Python has no handler of one line any more."""
    code = (
        "import atexit, os, signal, sys; sys.argv[1:] = ['--version']; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from auxlearn.cli import main; from auxlearn.core.signals import SIGNALS; "
        "[atexit.register(os.kill, os.getpid(), number) for number in SIGNALS]; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == ""


def test_python_m_auxlearn_is_the_program():
    command = [sys.executable, "-m", "auxlearn", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == f"auxlearn {__version__}\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--aux l3", ["plain,l3mask"]),
        ("--weights metab", ["plain,metabalance"]),
        ("--encoder bio", ["plain,bio-clinicalbert"]),
        ("--dataset pyd", ["plain,pydocs"]),
        ("--dataset ./da", ["dir,./da"]),
    ],
)
def test_names_complete_in_the_shell(monkeypatch, words, expected):
    option, incomplete = words.split()
    monkeypatch.setenv("COMP_WORDS", f"auxlearn train {option} {incomplete}")
    monkeypatch.setenv("COMP_CWORD", "3")
    done = CliRunner().invoke(
        cli, prog_name="auxlearn", env={"_AUXLEARN_COMPLETE": "bash_complete"}
    )
    assert done.output.splitlines() == expected
