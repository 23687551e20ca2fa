"""Build the data set ``pydocs``: which library does a documentation text come from?

The texts are the docstrings of five libraries that this package depends on. The out-of-distribution
set ``pydocs_notes`` has parameter descriptions and notes instead of opening summaries.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from auxlearn.core.cache import default_folder
from auxlearn.core.errors import DataError
from auxlearn.core.files import write_text
from auxlearn.core.rng import derive_seed
from auxlearn.data.pydocs.docstrings import (
    NOTES,
    PARAMETERS,
    Docstring,
    entries,
    package_folder,
    paragraphs,
    read_docstrings,
    sections,
    source_files,
    without_near_copies,
)
from auxlearn.data.splits import normalise

LABELS = ("numpy", "pandas", "scipy", "sklearn", "torch")
ROWS_PER_LABEL = {"train": 200, "dev": 60, "test": 120}
OOD_NAME, OOD_ROWS_PER_LABEL = "pydocs_notes", 120
SHORTEST, LONGEST = 8, 60  # words of a text
NEAR_COPY = 0.7  # overlap of word sets above which two texts count as near copies
NOTES_PER_DOCSTRING = 3  # else functions with many parameters would dominate
EXTRACTION = 2  # part of the name of the file; raise it when a change of the code changes texts
DISTRIBUTIONS = {label: label for label in LABELS} | {"sklearn": "scikit-learn"}
Pool = dict[str, dict[str, list[str]]]  # texts by kind ("summary" or "notes"), then by label

# Subpackages with public reference documentation on the library's own subject. Reading everything
# would take three times as long and add build systems, compilers and vendored code.
_SUBPACKAGES = {
    "numpy": (
        "_core", "ctypeslib", "fft", "lib", "linalg", "ma", "matrixlib", "polynomial", "random",
    ),
    "pandas": ("core", "tseries"),
    "scipy": (
        "cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "odr", "optimize",
        "signal", "spatial", "special",
    ),
    "sklearn": (
        "cluster", "compose", "covariance", "decomposition", "ensemble", "feature_extraction",
        "feature_selection", "gaussian_process", "impute", "inspection", "linear_model",
        "manifold", "metrics", "mixture", "model_selection", "naive_bayes.py", "neighbors",
        "neural_network", "pipeline.py", "preprocessing", "semi_supervised", "svm", "tree",
    ),
    "torch": (
        "_tensor_docs.py", "_torch_docs.py", "amp", "autograd", "distributions", "fft",
        "functional.py", "linalg", "nn", "optim", "random.py", "serialization.py", "signal",
        "sparse", "special", "storage.py", "utils/checkpoint.py", "utils/data",
    ),
}  # fmt: skip

_SENTENCE = r"(?:[^.]|\.(?=\S))*"  # without its full stop
_NEUTRAL: list[tuple[re.Pattern[str], str]] = [
    # Sentences that only refer to other pages, for which each library has its own phrase.
    (
        re.compile(rf"(?i)(?:^|(?<=\.) ){_SENTENCE}\b(?:user guide|read more in)\b{_SENTENCE}\.?"),
        "",
    ),
    (re.compile(r"\s*\bSee (?:\S+ ){1,6}for (?:\w+ ){0,2}(?:details|information)[^.]{0,40}\."), ""),
    # Module paths: only the last part says what it is about.
    (re.compile(r"(?<![\w.])\.?(?:[A-Za-z_]\w+\.)+(?=[A-Za-z_]\w+)"), ""),
    (re.compile(r"(?<![\w.])(?:np|pd|sp|F)\.(?=\w)"), ""),
    # Names, aliases and nicknames of the libraries, compounds such as "PyTorch" included.
    (re.compile(r"(?i)\b\w*(?:numpy|scipy|sklearn|pandas|torch)\w*\b"), "library"),
    (re.compile(r"(?i)\bscikits?(?:[- ]learn)?\b|\b(?:np|pd)\b"), "library"),
    # Classes: all names in CamelCase except errors and warnings, and single words that are
    # characteristic of a library.
    (re.compile(r"\b(?!\w+(?:Error|Warning)\b)[A-Z]\w*[a-z]\w*[A-Z]\w*\b"), "object"),
    (re.compile(r"(?i)\b(?:nd|rec|masked|char|memory)array(s?)\b"), r"object\1"),
    (
        re.compile(r"(?i)\b(?:tensor|estimator|dataframe|ufunc|groupby|timestamp)(s?)\b"),
        r"object\1",
    ),
    (re.compile(r"\b(?:Series|Index|Indexes|Categorical|Timedelta|Period|Interval)\b"), "object"),
    (re.compile(r"(?i)\barray[-_]like\b"), "array"),
    (re.compile(r"\bobject(?:[ /]object)+(s?)\b"), r"object\1"),
    (re.compile(r"\b([Aa])n? (objects?)\b"), r"\1n \2"),
    (re.compile(r"\b([Aa])n? library\b"), r"\1 library"),
]


def neutral(text: str) -> str:
    """Replace words that reveal a library, by the same for all; technical terms are kept."""
    for pattern, replacement in _NEUTRAL:
        text = pattern.sub(replacement, text)
    return re.sub(r"\s+", " ", text).strip()


def installed() -> dict[str, str]:
    """Return the versions of the libraries, by the names under which they are installed."""
    versions = {}
    for label, name in DISTRIBUTIONS.items():
        try:
            package_folder(label)
            versions[name] = importlib.metadata.version(name)
        except (DataError, importlib.metadata.PackageNotFoundError):
            raise DataError(
                f"data set 'pydocs' is read from installed libraries and '{name}' is not installed "
                f"here: pip install {name}"
            ) from None
    return versions


def texts_file() -> Path:
    """Return the file with the texts of the installed versions, read from the libraries once."""
    name = hashlib.sha256(json.dumps([EXTRACTION, installed()]).encode()).hexdigest()[:16]
    path = default_folder() / f"pydocs-{name}.jsonl"
    if not path.is_file():
        rows = examples(read_libraries())
        write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def examples(pool: Pool) -> Iterator[dict[str, str]]:
    """Yield 1,000 train, 300 dev, 600 test and 600 out-of-distribution texts, balanced over the
    labels, with split and label.
    """
    splits: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for label in LABELS:
        wanted = {"summary": ROWS_PER_LABEL, "notes": {OOD_NAME: OOD_ROWS_PER_LABEL}}
        for kind, sizes in wanted.items():
            texts = sorted(pool[kind][label], key=lambda text: derive_seed(0, "pydocs", text))
            if len(texts) < sum(sizes.values()):
                raise DataError(
                    f"data set 'pydocs' needs {sum(sizes.values())} {kind} texts of {label}, and "
                    f"the installed version has {len(texts)}: install the tested version"
                )
            drawn = iter(texts)
            for name, size in sizes.items():
                splits[name].extend((next(drawn), label) for _ in range(size))
    for name, pairs in splits.items():
        pairs.sort(key=lambda pair: derive_seed(0, "pydocs", "order", pair[0]))
        yield from ({"split": name, "text": text, "label": label} for text, label in pairs)


def read_libraries() -> Pool:
    """Return all texts of the libraries, without copies and near copies."""
    labels_of: dict[str, set[str]] = defaultdict(set)
    found: dict[str, tuple[str, str, str]] = {}
    for label in LABELS:
        folder = package_folder(label)
        for docstring in read_docstrings(folder, source_files(folder, _SUBPACKAGES[label])):
            for kind, text in _texts(docstring):
                key = normalise(text)
                labels_of[key].add(label)
                found.setdefault(key, (kind, label, text))
    # A text that two libraries share has no label. Of near copies, summaries are preferred, then
    # the first by hash, which is independent of the library.
    rows = [row for key, row in found.items() if len(labels_of[key]) == 1]
    rows.sort(key=lambda row: (row[0] != "summary", hashlib.sha256(row[2].encode()).digest()))
    pool: Pool = {kind: {label: [] for label in LABELS} for kind in ("summary", "notes")}
    for index in without_near_copies([text for _, _, text in rows], NEAR_COPY):
        kind, label, text = rows[index]
        pool[kind][label].append(text)
    return pool


def _texts(docstring: Docstring) -> Iterator[tuple[str, str]]:
    """Yield the kind and text of each text of a docstring with an allowed length."""
    if not docstring.public:
        return
    (_, opening), *rest = sections(docstring.text)
    summary = _summary(opening)
    if _fits(summary):
        yield "summary", summary
    raw = itertools.chain.from_iterable(
        entries(body) if title in PARAMETERS else paragraphs(body)
        for title, body in rest
        if title in PARAMETERS or title in NOTES
    )
    notes = (neutral(text) for text in raw if _fits(text))
    yield from itertools.islice(
        (("notes", text) for text in notes if _fits(text)), NOTES_PER_DOCSTRING
    )


def _fits(text: str) -> bool:
    return SHORTEST <= len(text.split()) <= LONGEST


def _summary(opening: str) -> str:
    """Return as many opening paragraphs as the maximum length allows."""
    summary = ""
    for paragraph in paragraphs(opening):
        longer = f"{summary} {neutral(paragraph)}".strip()
        if len(longer.split()) > LONGEST:
            break
        summary = longer
    return summary
