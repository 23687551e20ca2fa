"""Progress in a notebook, with a stand-in for IPython."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from auxlearn.core.progress import Reporter
from auxlearn.results.console import (
    ConsoleReporter,
    NotebookReporter,
    default_reporter,
    in_notebook,
)


@pytest.fixture
def shown(monkeypatch):
    """A Jupyter kernel; return what its display shows, first to last."""
    pages: list[str] = []

    def display(content, display_id):
        assert display_id is True
        pages.append(content)
        return SimpleNamespace(update=pages.append)

    shell = SimpleNamespace(kernel=object())
    ipython = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    module = SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return pages


def test_elsewhere_the_console_shows_progress_unless_it_is_not_wanted():
    assert not in_notebook()
    assert isinstance(default_reporter(), ConsoleReporter)
    assert type(default_reporter(verbose=False)) is Reporter


def test_a_notebook_shows_bar_messages_and_evaluations(shown):
    assert type(default_reporter(verbose=False)) is Reporter
    reporter = default_reporter()
    assert isinstance(reporter, NotebookReporter)
    reporter.message("reading <b>")
    with reporter.progress("training", 10) as advance:
        assert '<progress value="0" max="10"></progress> training: 0 of 10' in shown[-1]
        reporter._shown = float("-inf")
        advance(4)
        assert "training: 4 of 10" in shown[-1]
        reporter.log({"kind": "eval", "step": 4, "dev/accuracy": 0.5})
        assert "step 4  dev accuracy 0.500" in shown[-1]
        number = len(shown)
        reporter.log({"kind": "train", "step": 5, "loss/primary": 1.0})  # too soon after the last
        assert len(shown) == number
    assert "<progress" not in shown[-1]
    assert "reading &lt;b&gt;" in shown[-1]
