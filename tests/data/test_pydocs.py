"""The built-in data set: balanced, without leaks, reproducible."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from auxlearn.core.errors import DataError
from auxlearn.data.dataset import TextDataset
from auxlearn.data.load import load_dataset
from auxlearn.data.pydocs import build as build_pydocs, docstrings
from tests.helpers import one_line


@pytest.fixture(scope="module")
def dataset() -> TextDataset:
    return load_dataset("pydocs", seed=5)


def everything(dataset: TextDataset) -> dict[str, tuple[str, ...]]:
    return {name: split.texts for name, split in dataset.everything.items()}


def test_the_texts_are_those_of_all_published_results(dataset: TextDataset) -> None:
    assert dataset.fingerprint == "fdb7bef970ebd726"
    assert list(dataset.ood) == ["pydocs_notes"]
    assert any("scikit-learn 1.9.1" in note for note in dataset.notes)


def test_a_library_that_is_missing_or_has_few_texts_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = {
        kind: {label: ["one text"] for label in build_pydocs.LABELS}
        for kind in ("summary", "notes")
    }
    with one_line(DataError, "needs 380 summary texts of numpy"):
        list(build_pydocs.examples(pool))
    monkeypatch.setitem(build_pydocs.DISTRIBUTIONS, "no_such_library", "no-such-library")
    with one_line(DataError, "pip install no-such-library"):
        load_dataset("pydocs")


def test_sizes_balance_and_length_of_texts(dataset: TextDataset) -> None:
    sizes = {"train": 200, "dev": 60, "test": 120, "pydocs_notes": 120}
    assert dataset.label_names == build_pydocs.LABELS
    assert set(everything(dataset)) == set(sizes)
    for name, size in sizes.items():
        split = dataset.split(name)
        assert split.labels is not None
        assert Counter(split.labels) == dict.fromkeys(range(5), size)
        assert len(set(split.labels[:50])) == 5, "rows are in the order of their labels"
    lengths = [len(text.split()) for texts in everything(dataset).values() for text in texts]
    assert len(lengths) == 2500
    assert 8 <= min(lengths) <= max(lengths) <= 60


NUMPYDOC = '''
class Thing:
    def method(self):
        """Return the cosine of x."""
        def inner():
            """Never seen by a reader."""

if True:
    def google(x):
        """Add things up."""

add_newdoc("pkg", "attached", ("part", """Attached to something compiled."""))
add_docstr(pkg.other, r"""
other(input) -> Thing

Also attached.
""")
raise RuntimeError("a file is read, not run")
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a_package_to_read"
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "code.py").write_text(NUMPYDOC)
    (folder / "broken.py").write_text("def (")
    (folder / "tests" / "test_it.py").write_text('"""Not documentation."""')
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_docstrings_are_read_without_import(package: Path) -> None:
    folder = docstrings.package_folder("a_package_to_read")
    assert folder == package
    files = docstrings.source_files(folder)
    assert [path.name for path in files] == ["__init__.py", "broken.py", "code.py"]
    found = list(docstrings.read_docstrings(folder, files))
    assert [(d.module, d.name, d.public) for d in found] == [
        ("code.py", "Thing.method", True),
        ("code.py", "google", True),
        ("code.py", "part", True),
        ("code.py", "other", True),
    ]
    assert "a_package_to_read" not in sys.modules


def test_near_copies_equal_those_of_all_pairs() -> None:
    draw = random.Random(5)
    texts = [" ".join(draw.choices("abcdefghij", k=draw.randint(1, 9))) for _ in range(400)]
    kept: list[int] = []
    for row, text in enumerate(texts):
        own = set(text.split())
        if all(
            len(own & set(texts[k].split())) < 0.7 * len(own | set(texts[k].split())) for k in kept
        ):
            kept.append(row)
    assert docstrings.without_near_copies(texts, 0.7) == kept
    assert 20 < len(kept) < 380
