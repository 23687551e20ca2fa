"""Names of users in LaTeX, Markdown and CSV: nothing in them is taken for markup or a formula."""

from __future__ import annotations

import re

from auxlearn.wording import printable

_LATEX = {character: "\\" + character for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
}


def escape_latex(text: str) -> str:
    r"""Return text as LaTeX prints it.

    >>> escape_latex("l3mask_v2 & 5%")
    'l3mask\\_v2 \\& 5\\%'
    """
    return "".join(_LATEX.get(character, character) for character in printable(text))


def escape_markdown(text: str) -> str:
    """Return text as Markdown and HTML print it, also within a table.

    >>> escape_markdown("a|b <c>")
    'a&#124;b &lt;c&gt;'
    """
    text = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*\[\]~$]|(?<!\w)_|_(?!\w))", r"\\\1", text)
    return text.replace("|", "&#124;")


def code_span(text: str) -> str:
    """Return text as code within Markdown.

    >>> print(code_span("<b>"), code_span("a`b"))
    `<b>` `` a`b ``
    """
    text = printable(text)
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence, space = "`" * (longest + 1), " " * bool(longest)
    return f"{fence}{space}{text}{space}{fence}"


def escape_csv(value: object) -> object:
    """Return a value for a CSV file that no spreadsheet takes for a formula; numbers stay.

    >>> escape_csv("=1+1"), escape_csv(-0.5)
    ("'=1+1", -0.5)
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text[:1] in tuple("=+-@") else text
