"""Install the wheel into a new virtual environment and do what the first pages say, word for word.

The wheel is built from this clone and installed with ``constraints.txt``; then every block of the
README's section on use and of the page "Getting started" is run in an empty folder, with nothing
of the clone on the path: commands by bash, Python by the interpreter. Lines that install from the
clone are left out, and data and encoders that a reader would have are replaced by built-in ones::

    python scripts/walk_documents.py

The exit code is 1 if a block fails. It takes about ten minutes of one core.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Documents, and the sections of each that are walked through; ``None``: all.
DOCUMENTS = {"README.md": ["Use"], "docs/getting_started.md": None}

#: What stands for a reader's own, and for what a hub has.
STAND_INS = {"path/to/encoder": "tiny", "--encoder scibert": "--encoder tiny"}

#: A data set where the documents have one of the reader's.
DATA = """
import pathlib, auxlearn
frame = auxlearn.load_dataset("pydocs").to_frame()
folder = pathlib.Path("data/acl-arc")
folder.mkdir(parents=True)
for split in ("train", "dev", "test"):
    rows = frame[frame["split"] == split].head(64)
    rows.to_json(folder / f"{split}.jsonl", orient="records", lines=True)
"""

#: Lines that install from the clone, or need it.
FROM_CLONE = ("pip install", "make ")


def blocks(text: str, sections: list[str] | None) -> Iterator[tuple[str, str]]:
    """Yield the language and content of the code blocks of sections of a document, in order."""
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        title = section.partition("\n")[0].strip()
        if sections is None or title in sections:
            yield from re.findall(r"^```(\w+)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def steps(text: str, sections: list[str] | None) -> Iterator[list[str]]:
    """Yield the arguments of the processes that the blocks of a document stand for.

    Python goes to the interpreter, each line of a console block to bash, and of blocks of text only
    what turns on shell completion, with a question whether it is on.
    """
    for language, content in blocks(text, sections):
        if language == "python":
            yield ["python", "-c", content]
        elif language == "console":
            for line in content.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith(FROM_CLONE):
                    for said, meant in STAND_INS.items():
                        line = line.replace(said, meant)
                    yield ["bash", "-c", line]
        elif language == "text" and "_COMPLETE" in content:
            yield ["bash", "-c", f"{content.strip()}\ncomplete -p auxlearn"]


def install(folder: Path) -> dict[str, str]:
    """Build the wheel, install it into a new environment, and return what a shell in it has."""
    wheels, environment = folder / "wheels", folder / "venv"
    venv.create(environment, with_pip=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip"]
    subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)], check=True
    )
    (wheel,) = wheels.glob("auxlearn-*.whl")
    limits = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, "install", "--quiet", "--no-compile", *limits, str(wheel)], check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept["PATH"] = f"{environment / 'bin'}{os.pathsep}{kept['PATH']}"
    return kept


def walk(folder: Path, environment: Mapping[str, str]) -> int:
    """Run the blocks of the documents in a folder; return how many failed."""
    empty = folder / "empty"
    empty.mkdir()
    subprocess.run(["python", "-c", DATA], cwd=empty, env=environment, check=True)
    failed = done = 0
    for document, sections in DOCUMENTS.items():
        for step in steps((ROOT / document).read_text(encoding="utf-8"), sections):
            found = subprocess.run(
                step, cwd=empty, env=environment, capture_output=True, text=True, check=False
            )
            done += 1
            title = step[2].strip().splitlines()
            print(f"{document}: exit code {found.returncode}: {title[0]} ...", flush=True)
            if found.returncode:
                failed += 1
                print(found.stdout[-2000:], found.stderr[-2000:], flush=True)
    print(f"{done} steps, {failed} failed")
    return failed if done else 1


def main() -> None:
    """Install, walk, and say what failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="a new folder to keep; by default none is")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.folder is not None:
            folder = options.folder.resolve()
            folder.mkdir(parents=True)
        sys.exit(1 if walk(folder, install(folder)) else 0)


if __name__ == "__main__":
    main()
