"""Reading plain values of YAML that may come from anywhere, with bounds on what it may cost.

A file of a few bytes can stand for millions of values, by aliases of aliases; values are therefore
counted as if every alias were written out.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import yaml

from auxlearn.core.errors import UserError, shorten
from auxlearn.core.files import read_file, user_path

LARGEST_FILE = 500_000  # bytes of a file
MOST_VALUES = 100_000  # values of a file with every alias written out
DEEPEST = 40  # lists and mappings within each other
_TOO_DEEP = f"more than {DEEPEST} levels of lists and mappings"


def read_yaml(path: str | Path, what: str, error: type[UserError]) -> dict[str, Any]:
    """Return the mapping that a YAML file holds."""
    content = read_file(user_path(path, error), LARGEST_FILE, error)
    try:
        mapping = parse_yaml(content.decode("utf-8-sig"))
    except UnicodeDecodeError as fault:
        line = content[: fault.start].count(b"\n") + 1
        raise error(f"{what} {path}:{line}: not UTF-8: save the file as UTF-8") from None
    except ValueError as fault:
        raise error(f"{what} {path}{fault}") from None
    if not isinstance(mapping, dict):
        raise error(f"{what} {path} must be a mapping of keys to values")
    return mapping


def parse_yaml(text: str) -> Any:
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        for number, _ in enumerate(_nodes(node, 1), 1):
            if number > MOST_VALUES:
                raise ValueError(f": it or its aliases stand for more than {MOST_VALUES:,} values")
        return None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        line = f":{mark.line + 1}" if mark else ""
        problem = shorten(" ".join(str(fault.problem or fault.context).split()), 150)
        kind = "" if isinstance(fault, _Refused) else "not valid YAML: "
        raise ValueError(f"{line}: {kind}{problem}") from None
    except RecursionError:
        raise ValueError(f": {_TOO_DEEP}") from None
    except yaml.YAMLError as fault:
        problem = shorten(" ".join(str(fault).split()), 150)
        raise ValueError(f": not valid YAML: {problem}") from None
    finally:
        if loader is not None:
            loader.dispose()


def _nodes(node: yaml.Node | None, depth: int) -> Iterator[yaml.Node]:
    """Yield a node and those below it, as if every alias were written out."""
    if node is None:
        return
    if depth > DEEPEST:
        raise _fault(node, _TOO_DEEP)
    yield node
    if isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _nodes(child, depth + 1)
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            for child in pair:
                yield from _nodes(child, depth + 1)


class _Loader(yaml.SafeLoader):
    """The safe loader without repeated keys and non-finite numbers."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[tuple[str, str]] = set()
        # Before the merge keys (<<) are resolved, whose entries may be overridden.
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise _fault(key, f"the key '{shorten(key.value)}' occurs twice")
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep=deep)
        except yaml.YAMLError:
            raise
        except (ValueError, TypeError, ArithmeticError, AttributeError, LookupError) as fault:
            # Such as an integer of more digits than Python converts, or the 31st of February.
            raise _fault(node, f"a value cannot be read ({shorten(str(fault), 80)})") from None
        number = isinstance(value, int | float) and isinstance(node, yaml.ScalarNode)
        if number and re.search(r"^[-+]?0[0-7_]+$|:", str(node.value)):  # octal or of base 60
            advice = "put text in quotation marks, and write a number without a first 0"
            raise _fault(node, f"'{node.value}' is {value} in YAML: {advice}")
        if isinstance(value, float) and not math.isfinite(value):
            raise _fault(node, f"'{shorten(str(node.value))}' is not a finite number")
        if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
            raise _fault(node, "half of a surrogate pair: write the whole character")
        if isinstance(value, datetime.date | bytes | set):
            raise _fault(node, "a value is a date, a set or binary: put text in quotation marks")
        return value


_BOOL = "tag:yaml.org,2002:bool"
# As in YAML 1.2: yes, no, on and off are texts, as labels often are; settings take them as well.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != _BOOL]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile("true|True|TRUE|false|False|FALSE"), list("tTfF"))


class _Refused(yaml.MarkedYAMLError):
    """YAML that is valid but is not read."""


def _fault(node: yaml.Node, problem: str) -> _Refused:
    return _Refused(None, None, problem, node.start_mark)
