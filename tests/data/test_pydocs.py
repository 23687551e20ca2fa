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


def test_neutral_by_hand() -> None:
    assert build_pydocs.neutral("Convert a numpy.ndarray to a torch.Tensor with np.asarray.") == (
        "Convert an object to an object with asarray."
    )
    assert build_pydocs.neutral("Build a DataFrame from a list of Series; raises ValueError.") == (
        "Build an object from a list of object; raises ValueError."
    )
    assert build_pydocs.neutral(
        "This PyTorch API mirrors NumPy, e.g. the axis. Read more in the User Guide."
    ) == ("This library API mirrors library, e.g. the axis.")
    assert build_pydocs.neutral("A power series in x, and the index of an array_like.") == (
        "A power series in x, and the index of an array."
    )
    assert (
        build_pydocs.neutral("Fit the model. See RandomForest for more details.")
        == "Fit the model."
    )


NUMPYDOC = '''
class Thing:
    def method(self):
        """Return the :func:`~pkg.mod.cosine` of ``x``.

        Second paragraph, see [1]_.

        >>> Thing().method()
        1

        .. versionadded:: 1.2
            Not prose at all.

        Parameters
        ----------
        x : array_like
            The input array, with `emphasis`_ in it.
        *args
            Passed along to something else.

        Notes
        -----
        This holds for positive numbers only::

            code = block

        Afterwards:

            >>> Thing()

        The prose goes on.
        """
        def inner():
            """Never seen by a reader."""

if True:
    def google(x):
        """Add things up.

        Args:
            x (int): the first thing
                over two lines
            y (str, optional): the second of the things

        Back to the body again.

        .. note::
            Mind the gap between them.
        """

add_newdoc("pkg", "attached", ("part", """Attached to something compiled."""))
add_docstr(pkg.other, r"""
other(input) -> Thing

Also attached to {it}.
""".format(it=1))
raise RuntimeError("this file is read, not run")
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


def test_prose_of_numpydoc_and_google_docstrings(package: Path) -> None:
    method, google, attached, other = docstrings.read_docstrings(package, [package / "code.py"])
    assert list(docstrings.readable(method.text)) == [
        "Return the pkg.mod.cosine of x.",
        "Second paragraph, see.",
        "The input array, with emphasis in it.",
        "Passed along to something else.",
        "This holds for positive numbers only:",
        "The prose goes on.",
    ]
    assert list(docstrings.readable(google.text)) == [
        "Add things up.",
        "the first thing over two lines",
        "the second of the things",
        "Back to the body again.",
        "Mind the gap between them.",
    ]
    assert list(docstrings.readable(attached.text)) == ["Attached to something compiled."]
    assert list(docstrings.readable(other.text)) == []  # a template that nobody filled in


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
