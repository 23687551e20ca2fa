"""The steps in which the first pages are walked through; the walk itself is marked slow."""

import runpy
import subprocess
import sys

import pytest

from tests.test_docs import ROOT

PROGRAM = ROOT / "scripts" / "walk_documents.py"


@pytest.fixture(scope="module")
def program():
    return runpy.run_path(str(PROGRAM))


def test_every_document_has_steps_and_every_stand_in_a_place(program):
    found = {name: (ROOT / name).read_text(encoding="utf-8") for name in program["DOCUMENTS"]}
    for name, sections in program["DOCUMENTS"].items():
        assert len(list(program["steps"](found[name], sections))) > 5
    assert all(any(said in text for text in found.values()) for said in program["STAND_INS"])


@pytest.mark.slow
def test_the_first_pages_work_in_a_new_environment():
    subprocess.run([sys.executable, str(PROGRAM)], check=True, cwd=ROOT)
