"""Console output on a terminal and in a log, and progress in a notebook."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from auxlearn.results.console import (
    ConsoleReporter,
    describe_row,
    print_results,
)
from auxlearn.results.tables import text_table
from tests.results import examples


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (
            {"kind": "train", "step": 10, "epoch": 0.312, "loss/primary": 1.23456},
            "step 10  epoch 0.3  loss primary 1.235",
        ),
        (  # the primary task first, whatever was computed first; no weights where there is one
            {"kind": "train", "step": 1, "loss/b": 2, "loss/primary": 1, "weight/primary": 1},
            "step 1  loss primary 1.000 b 2.000",
        ),
        (
            {"kind": "eval", "step": 8, "epoch": 1, "dev/accuracy": 0.5, "dev/loss": 0.7},
            "step 8  epoch 1.0  dev accuracy 0.500",
        ),
        ({"kind": "train", "step": 5, "loss/mlm": 3.25}, "step 5  loss mlm 3.250"),
    ],
)
def test_a_row_is_one_line(row, line):
    assert describe_row(row) == line


def test_a_terminal_shows_progress_bars_losses_and_weights():
    reporter, screen = ConsoleReporter(), io.StringIO()
    reporter.console = Console(file=screen, force_terminal=True, width=80, legacy_windows=False)
    with reporter.waiting("loading"):
        pass
    with reporter.progress("training", 40) as advance:
        for row in examples.entries("l3mask"):
            reporter.log(row)
        advance(40)
    shown = screen.getvalue()
    assert "loading" in shown
    assert "40/40" in shown
    assert "loss primary 2.000 l3mask 1.000\n" in shown  # the moving lines at the end
    assert "weights primary 0.333 l3mask 0.667" in shown
    assert "dev accuracy 0.550 macro-F1 0.700" in shown


def test_a_log_ends_with_the_amount_of_work_done(capsys):
    for amount in (3, 2):
        with ConsoleReporter().progress("scoring tokens", 3000) as advance:
            advance(amount * 1000)
    whole, part = capsys.readouterr().err.splitlines()
    assert whole.startswith("scoring tokens: 3,000 in 0.")
    assert part.startswith("scoring tokens: 2,000 of 3,000 in 0.")


def test_the_seconds_of_resumed_work_are_those_of_the_rest(capsys):
    with ConsoleReporter().progress_of_rest("training", 40, 20) as advance:
        advance(20)
    assert capsys.readouterr().err.startswith("training, 20 done before: 20 in 0.")


def test_a_failed_block_is_not_reported_as_done(capsys):
    with pytest.raises(ValueError, match="stop"), ConsoleReporter().progress("training", 3):
        raise ValueError("stop")
    assert capsys.readouterr().err == ""


def test_names_of_users_are_no_markup_and_no_emoji(capsys):
    names = ["data [v2]", "[x]", "a:b:joy:", "[/b]"]
    print_results(text_table(names, [names]), Table(*names), *names)
    shown = capsys.readouterr().out
    assert [shown.count(name) for name in names] == [4, 4, 4, 4]
    reporter, screen = ConsoleReporter(), io.StringIO()
    reporter.console = Console(file=screen, force_terminal=True, width=80, legacy_windows=False)
    with reporter.waiting("loading [/b]"), reporter.progress("reading [x]", 2) as advance:
        advance(2)
    assert "loading [/b]" in screen.getvalue()
    assert "reading [x]" in screen.getvalue()


def test_long_cells_are_wrapped_and_control_characters_escaped(capsys):
    words = [f"word{number}" for number in range(80)]
    table = Table("a", "b")
    table.add_row("red \x1b[31m text", " ".join(words))
    print_results(table)
    shown = capsys.readouterr().out
    assert [word for word in words if word in shown.split()] == words
    assert "\\n" not in shown
    assert "\x1b" not in shown
    assert r"\x1b" in shown
    ConsoleReporter().message("reading data set a\nerror: b")
    assert capsys.readouterr().err == "reading data set a\\nerror: b\n"
