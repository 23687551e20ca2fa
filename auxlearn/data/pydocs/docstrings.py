"""Extract prose from the docstrings of installed packages, which are parsed and never imported.

A docstring is split into sections (numpydoc or Google style), sections into paragraphs or parameter
entries, and their markup is reduced to plain words.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import math
import re
import sys
import textwrap
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from auxlearn.core.errors import DataError
from auxlearn.core.rng import ONE_THREAD

SUMMARY = ""  # title of the section before the first heading
BODY = "body"  # title of text that follows a heading's indented block

NOTES = frozenset({"note", "notes", "warning", "warnings", "tip", "important", "caution"})
ENTRIES = frozenset(
    {
        "arg", "args", "argument", "arguments", "attributes", "inputs", "keyword args",
        "keyword arguments", "kwargs", "methods", "other parameters", "parameter", "parameters",
        "raises", "return", "returns", "warns", "yield", "yields",
    }
)  # fmt: skip
PARAMETERS = ENTRIES & {"arg", "args", "argument", "arguments", "parameter", "parameters"}

_OTHER_HEADINGS = frozenset(
    {
        "example", "examples", "reference", "references", "see also", "shape", "usage",
        "todo", "outputs",
    }
)  # fmt: skip
_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "externals", "_vendor", "site-packages", "test", "testing", "tests", "vendor"}
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_ADDED_DOCS = re.compile(r"add_newdoc|add_docstr")
_UNDERLINE = re.compile(r"^\s*(-{3,}|={3,}|~{3,})\s*$")
_DIRECTIVE = re.compile(r"^\s*\.\. +(?:\[|\|?\w[\w-]*\|?::|_)")
_NOTE_DIRECTIVE = re.compile(r"^\.\. +(note|warning|tip|important|caution)::\s*(.*)$")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)]|\(\w\))\s+")
_TABLE = re.compile(r"[=\-+|~^#<]{2,}|\||\+-|#!")
_SIGNATURE = re.compile(r"^[\w.$]+\(.*\)?(?:\s*->.*)?$")
_GOOGLE_ENTRY = re.compile(r"^[*`\w][^:]*[^:\s]:(?!:)\s*(.*)$")


@dataclass(frozen=True)
class Docstring:
    """One documentation string, without its indentation."""

    module: str  # path of the file below the package's folder, such as ``linalg/_linalg.py``
    name: str  # dotted name of what is documented within the file; empty for the module itself
    text: str

    @property
    def public(self) -> bool:
        return bool(self.name) and not any(part.startswith("_") for part in self.name.split("."))


def package_folder(name: str) -> Path:
    """Return the folder of an installed package without importing it."""
    try:
        found = importlib.util.find_spec(name)
    except ValueError:  # already imported by something that left no record of its origin
        found = None
    locations = list(found.submodule_search_locations or ()) if found else []
    if not locations:
        raise DataError(
            f"package '{name}' is not installed as a folder of source files: "
            f"install it into the environment of {sys.executable}"
        )
    return Path(locations[0])


def source_files(folder: Path, within: Iterable[str] = ("",)) -> list[Path]:
    """Return the Python files below a folder in a fixed order, without tests and vendored code."""
    found: set[Path] = set()
    for name in within:
        path = folder / name
        found.update([path] if path.is_file() else path.rglob("*.py"))
    kept = [
        path for path in found if _SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts[:-1])
    ]
    return sorted(kept, key=lambda path: path.relative_to(folder).as_posix())


def read_docstrings(folder: Path, files: Iterable[Path]) -> Iterator[Docstring]:
    """Yield the docstrings of files in order, those attached to compiled functions too."""
    for path in files:
        try:
            with ONE_THREAD, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in other people's files
                tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        module = path.relative_to(folder).as_posix()
        for name, text in _documented(tree, ""):
            yield Docstring(module, name, inspect.cleandoc(text))


def _documented(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of a module or class and its members; functions are not entered."""
    if isinstance(node, _DOCUMENTED):
        text = ast.get_docstring(node, clean=False)
        if text:
            yield prefix, text
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _documented(child, f"{prefix}.{child.name}".lstrip("."))
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            added = _added_doc(child.value)
            if added:
                yield added
        elif isinstance(child, ast.stmt | ast.excepthandler):  # such as a class under an "if"
            yield from _documented(child, prefix)


def _added_doc(call: ast.Call) -> tuple[str, str] | None:
    """Return name and text of ``add_newdoc(place, name, text)`` and its relatives, if it is one."""
    function = call.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if not _ADDED_DOCS.search(called) or not call.args:
        return None
    parts: list[ast.expr] = []
    for argument in call.args:
        parts.extend(argument.elts if isinstance(argument, ast.Tuple) else [argument])
    last = parts[-1]
    if isinstance(last, ast.Call) and isinstance(last.func, ast.Attribute):
        last = last.func.value  # r"""...""".format(**shared)
    if not isinstance(last, ast.Constant) or not isinstance(last.value, str):
        return None
    names = [
        part.value if isinstance(part, ast.Constant) else ast.unparse(part) for part in parts[:-1]
    ]
    return (str(names[-1]).rpartition(".")[2] if names else ""), last.value


def sections(text: str) -> list[tuple[str, str]]:
    """Split a docstring into (title, body) pairs, titles in lower case and bodies dedented."""
    lines = text.splitlines()
    found: list[tuple[str, list[str]]] = [(SUMMARY, [])]
    indented_only = False
    index = 0
    while index < len(lines):
        line = lines[index]
        following = lines[index + 1] if index + 1 < len(lines) else ""
        heading = line.strip().rstrip(":").lower()
        note = _NOTE_DIRECTIVE.match(line)
        if line.strip() and _UNDERLINE.match(following):
            found.append((heading, []))
            indented_only = False
            index += 2
            continue
        if line.rstrip().endswith(":") and heading in NOTES | ENTRIES | _OTHER_HEADINGS:
            found.append((heading, []))
            indented_only = True
        elif note:
            found.append((note[1], [note[2]]))
            indented_only = True
        else:
            if indented_only and line.strip() and not line.startswith((" ", "\t")):
                found.append((BODY, []))
                indented_only = False
            found[-1][1].append(line)
        index += 1
    return [(title, _dedent(body)) for title, body in found]


def _dedent(lines: list[str]) -> str:
    # The first line may stand on the heading's own line, without the indentation of the rest.
    first, rest = (lines[:1], lines[1:]) if lines and not lines[0].startswith(" ") else ([], lines)
    if first and not any(line.strip() and line[0] not in " \t" for line in rest):
        return "\n".join([*first, textwrap.dedent("\n".join(rest))])
    return textwrap.dedent("\n".join(lines))


def paragraphs(body: str) -> Iterator[str]:
    """Yield the prose paragraphs and list items of a section as plain words."""
    kept: list[list[str]] = [[]]
    for line in _without_code(body.splitlines()):
        if not line.strip() or _BULLET.match(line):
            kept.append([])
        kept[-1].append(_BULLET.sub("", line))
    texts = (plain(" ".join(line.strip() for line in lines)) for lines in kept)
    yield from (text for text in texts if is_prose(text))


def entries(body: str) -> Iterator[str]:
    """Yield the descriptions of a section's entries as plain words, without names and types."""
    found: list[list[str]] = []
    for line in body.splitlines():
        if line and not line[0].isspace():
            google = None if re.search(r"\s:(\s|$)", line) else _GOOGLE_ENTRY.match(line)
            found.append([google[1] if google else ""])
        elif found:
            found[-1].append(line)
    for first, *rest in found:
        text = " ".join(paragraphs("\n".join([first, textwrap.dedent("\n".join(rest))])))
        if text:
            yield text


def _without_code(lines: list[str]) -> Iterator[str]:
    """Yield the lines, blank those that are code, doctest, table, directive or literal block."""
    skip_deeper_than: int | None = None
    fenced = doctest = False
    for line in lines:
        stripped, indent = line.strip(), len(line) - len(line.lstrip())
        if fence := stripped.startswith(("```", "~~~")):
            fenced = not fenced
        else:
            doctest = bool(stripped) and (doctest or stripped.startswith((">>>", "$ ", "In [")))
        hidden = fence or fenced or doctest
        if not hidden and skip_deeper_than is not None:
            hidden = not stripped or indent > skip_deeper_than
            skip_deeper_than = skip_deeper_than if hidden else None
        if not hidden and _DIRECTIVE.match(line):
            skip_deeper_than, hidden = indent, True
        hidden = hidden or bool(_TABLE.match(stripped))
        if not hidden and stripped.endswith("::"):
            skip_deeper_than = indent
        yield "" if hidden or _SIGNATURE.match(stripped) else line


_PLAIN = [
    (re.compile(r"<[^<>\s][^<>]*>`__?"), "`"),  # target of `text <target>`_
    (re.compile(r"\[\[.*?\]\]"), " "),
    (re.compile(r"\[([^\]]+)\]\([^)]*\)"), r"\1"),  # markdown link
    (re.compile(r"\[`~?([^`\]]+)`\]"), r"`\1`"),  # Hugging Face cross reference
    (re.compile(r"https?://\S+|www\.\S+"), " "),
    (re.compile(r"\[(?:\d+|[A-Za-z]+\d*)\]_"), " "),  # citation
    (re.compile(r":math:`[^`]*[\\^_{=][^`]*`"), "formula"),
    (re.compile(r":[\w:+-]+:`[~!]?([^`]*?)\s*(?:<[^>]*>)?`"), r"\1"),  # role
    (re.compile(r"</?[A-Za-z][^<>]*>"), " "),
    (re.compile(r"``?|[*]{1,2}(?=\w)|(?<=\w)[*]{1,2}|\\"), ""),
    (re.compile(r"(?<=\w)__?(?=[\s.,;)]|$)"), ""),  # end of a hyperlink reference
    (re.compile(r"[\u201c\u201d]"), '"'),
    (re.compile(r"[\u2018\u2019]"), "'"),
    (re.compile(r"::"), ":"),
    (re.compile(r"\s+"), " "),
    (re.compile(r" (?=[.,;:)](?:\s|$))"), ""),
]


def plain(text: str) -> str:
    """Reduce reStructuredText and Markdown of one paragraph to words; LaTeX becomes "formula"."""
    for pattern, replacement in _PLAIN:
        text = pattern.sub(replacement, text)
    return text.strip()


def is_prose(text: str) -> bool:
    """Whether a paragraph is natural language, not code, a table or a template."""
    if len(text.split()) < 3 or not text[:1].isalnum():
        return False
    if re.search(r"[{}]|%\(|>>>|\w = \w|__\w", text):
        return False
    letters = sum(character.isalpha() or character.isspace() for character in text)
    return letters >= 0.85 * len(text)


def without_near_copies(texts: Sequence[str], threshold: float = 0.75) -> list[int]:
    """Return the indices of texts whose sets of words overlap no earlier one by the threshold."""
    words = [frozenset(re.findall(r"\w+", text.casefold())) for text in texts]
    counts = Counter(word for row in words for word in row)
    by_rare_word: dict[str, list[int]] = defaultdict(list)
    kept: list[int] = []
    for row, own in enumerate(words):
        if not own:
            continue
        ordered = sorted(own, key=lambda word: (counts[word], word))
        prefix = ordered[: len(own) - math.ceil(threshold * len(own)) + 1]
        candidates = {other for word in prefix for other in by_rare_word[word]}
        least, most = threshold * len(own), len(own) / threshold
        if any(
            least <= len(words[other]) <= most
            and len(own & words[other]) / len(own | words[other]) >= threshold
            for other in candidates
        ):
            continue
        kept.append(row)
        for word in prefix:
            by_rare_word[word].append(row)
    return kept
