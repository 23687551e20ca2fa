"""Values of users in messages and tables: short, and without control characters."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Collection, Iterable
from typing import Any

#: Characters of a name or value in a message.
LENGTH = 60

#: Names that a message lists.
COUNT = 8

#: Control characters, separators that some programs take for line breaks, marks that turn the
#: direction of writing, and halves of characters.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_NAMED = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = LENGTH
_REPR.maxlevel = 3


def printable(text: str) -> str:
    r"""Return a text on one line: control characters are written as escapes.

    Examples:
        >>> print(printable("a\tb\x1b[31m"))
        a\tb\x1b[31m
    """

    def escape(found: re.Match[str]) -> str:
        number = ord(found[0])
        return _NAMED.get(found[0]) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}")

    return _CONTROL.sub(escape, text)


def shorten(text: str, limit: int = LENGTH) -> str:
    """Return a text on one line, cut off after some characters.

    Examples:
        >>> shorten("a very long name", 6)
        'a very...'
    """
    return printable(text[:limit]) + ("..." if len(text) > limit else "")


def shorten_middle(text: str, limit: int) -> str:
    """Return a text with what is beyond a number of characters left out of its middle.

    Examples:
        >>> shorten_middle("abcdefghij", 7)
        'ab...ij'
    """
    if len(text) <= limit:
        return text
    kept = (limit - 3) // 2
    return f"{text[:kept]}...{text[-kept:]}"


def describe(value: Any) -> str:
    """Return ``repr(value)``, shortened before it is made, so that no value takes long to show.

    Examples:
        >>> describe([1, 2, 3]), describe("x" * 1000)[-6:]
        ('[1, 2, 3]', "xxxxx'")
    """
    return printable(_REPR.repr(value))


def some_of(names: Iterable[Any], count: int = COUNT) -> str:
    """Return names separated by commas; of many names the first ones and the number of the others.

    Examples:
        >>> some_of("abc"), some_of(range(12), 3)
        ('a, b, c', '0, 1, 2 and 9 more')
    """
    known = names if isinstance(names, Collection) else list(names)
    shown = [shorten(str(name)) for name, _ in zip(known, range(count), strict=False)]
    rest = len(known) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
