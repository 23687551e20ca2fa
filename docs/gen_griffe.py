"""The extension of Griffe that hands mkdocstrings docstrings as Markdown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.append(str(Path(__file__).parent))
from gen_rest import markdown


class MarkdownDocstrings(griffe.Extension):
    """Turns the reStructuredText of each docstring into Markdown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Convert the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
