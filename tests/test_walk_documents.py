"""The steps in which the first pages are walked through; the walk itself is marked slow."""

import runpy
import subprocess
import sys

import pytest

from tests.test_docs import ROOT

PROGRAM = ROOT / "scripts" / "walk_documents.py"
TEXT = """# Title

```console
auxlearn list tasks
```

## Use

```python
print(1)
```

```console
pip install .
auxlearn train --encoder path/to/encoder \\
  --seed 1

auxlearn list losses
```

```text
what a program prints
```
"""


@pytest.fixture(scope="module")
def program():
    return runpy.run_path(str(PROGRAM))


def test_blocks_become_steps(program):
    steps = list(program["steps"](TEXT, ["Use"]))
    assert steps == [
        ["python", "-c", "print(1)\n"],
        ["bash", "-c", "auxlearn train --encoder tiny    --seed 1"],
        ["bash", "-c", "auxlearn list losses"],
    ]
    assert next(program["steps"](TEXT, None)) == ["bash", "-c", "auxlearn list tasks"]


def test_every_document_has_steps_and_every_stand_in_a_place(program):
    found = {name: (ROOT / name).read_text(encoding="utf-8") for name in program["DOCUMENTS"]}
    for name, sections in program["DOCUMENTS"].items():
        assert len(list(program["steps"](found[name], sections))) > 5
    assert all(any(said in text for text in found.values()) for said in program["STAND_INS"])


@pytest.mark.slow
def test_the_first_pages_work_in_a_new_environment():
    subprocess.run([sys.executable, str(PROGRAM)], check=True, cwd=ROOT)
