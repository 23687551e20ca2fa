"""Docstrings as Markdown: the reStructuredText roles and formulas that they use."""

from __future__ import annotations

import re

_ROLE = re.compile(r":(?:class|meth|func|data|mod|attr|exc|const):`(~?)([^`]+)`", re.DOTALL)
_INLINE_MATH = re.compile(r":math:`([^`]+)`", re.DOTALL)
_MATH_BLOCK = re.compile(r"^( *)\.\. math::[ ]?(.*(?:\n(?:\1 +.*|[ ]*(?=\n\1 )))*)", re.MULTILINE)


def markdown(docstring: str) -> str:
    """Return a docstring as Markdown: formulas between dollars, roles as links or code.

    Args:
        docstring: A docstring without the indentation of the code.
    """
    text = _MATH_BLOCK.sub(_display, docstring)
    text = _INLINE_MATH.sub(lambda match: f"${' '.join(match[1].split())}$", text)
    text = _ROLE.sub(_link, text)
    return re.sub(r"::\n(?=\n +\S)", ":\n", text)


def _display(match: re.Match[str]) -> str:
    indent, formula = match[1], " ".join(match[2].split())
    if "&" in formula or r"\\" in formula:
        formula = rf"\begin{{aligned}} {formula} \end{{aligned}}"
    return f"{indent}$$\n{indent}{formula}\n{indent}$$"


def _link(match: re.Match[str]) -> str:
    target = " ".join(match[2].split())
    shown = target.rpartition(".")[2] if match[1] else target
    if not target.startswith("auxlearn."):
        return f"`{shown}`"
    return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'
