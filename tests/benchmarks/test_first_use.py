"""The newcomer's comparison: lines are counted right, the page shows what came out."""

from __future__ import annotations

import json

import pytest

from auxlearn.core.errors import RunError
from benchmarks.first_use import __main__ as program
from benchmarks.first_use.__main__ import (
    FILE,
    LIBRARIES,
    lines_of_code,
    measure,
    results_table,
    script,
)
from tests.test_docs import ROOT

SOURCE = '''"""A docstring
of two lines."""

import sys
from os import (
    path,
)

# a comment
first = sys.argv


def call(text):
    """Counted: it is a function's own."""

    return path.join(  # two lines
        text)
'''


def test_lines_of_code_are_those_that_are_written_for_the_job():
    assert lines_of_code(SOURCE) == 5
    assert lines_of_code("import sys\n") == 0


def test_the_page_has_the_recorded_results_and_the_lines_of_the_scripts():
    results = json.loads(FILE.read_text(encoding="utf-8"))
    assert set(results["libraries"]) == set(LIBRARIES)
    for name, found in results["libraries"].items():
        assert found["lines"] == lines_of_code(script(name).read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "results" / "first_use.md").read_text(encoding="utf-8")
    assert results_table(results) in page


def test_a_script_that_fails_is_an_error_with_its_last_words(tmp_path, monkeypatch):
    broken = tmp_path / "with_nothing.py"
    broken.write_text("raise SystemExit('no such data')")
    monkeypatch.setattr(program, "script", lambda library: broken)
    with pytest.raises(RunError, match=r"with_nothing\.py failed with seed 3:\nno such data"):
        measure("nothing", tmp_path, tmp_path, 3, "")
    broken.write_text(
        "import sys\nopen('predictions.csv', 'w')\n"
        "print('accuracy', sys.argv[3])\nprint('macro_f1', 0.5)"
    )
    found = measure("nothing", tmp_path, tmp_path, 1, "")
    assert (found["accuracy"], found["macro_f1"]) == (1, 0.5)
    assert 0 < found["cpu_seconds"] < 60
