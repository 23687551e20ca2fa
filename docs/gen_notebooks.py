"""Notebooks among the pages; a hook of mkdocs (see ``mkdocs.yml``).

A page whose front matter has ``jupyter`` is a notebook in the Markdown of jupytext: its ``python``
blocks are cells. They are run when the site is built, in an empty folder; what they print and plot
stands below them, and the whole is offered as an ``.ipynb`` file. A cell that raises or warns fails
the build.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

#: Seconds that a cell may take.
TIMEOUT = 600

#: Left out is what tells of the machine: bars, widgets, workers of a sweep that start anew.
QUIET = {
    "PYTHONWARNINGS": "ignore:IProgress not found,ignore:A worker stopped while some jobs",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


def executed(text: str) -> Any:
    """Run a notebook and return it with its outputs.

    Raises:
        RuntimeError: A cell raises, or writes to standard error.
    """
    import jupytext
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = jupytext.reads(text, "md")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=TIMEOUT,
            startup_timeout=TIMEOUT,
            resources={"metadata": {"path": folder}},
            coalesce_streams=True,
        )
        try:
            client.execute(env=os.environ | QUIET)
        except CellExecutionError as error:
            raise RuntimeError(str(error)) from None
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times: no two builds are the same with them
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                raise RuntimeError(f"{cell.source}\n\nwrites to standard error: {output.text}")
    return notebook


def to_markdown(notebook: Any, stem: str) -> tuple[str, dict[str, bytes]]:
    """Return an executed notebook as Markdown, and its images by name."""
    from nbconvert import MarkdownExporter

    names = {"unique_key": stem, "output_files_dir": f"{stem}_files"}
    text, resources = MarkdownExporter().from_notebook_node(notebook, names)
    for brought in (r"<style scoped>.*?</style>\n", r'( border="\d")? class="dataframe"'):
        text = re.sub(brought, "", text, flags=re.DOTALL)  # tables look as all others of the site
    return text.replace('<tr style="text-align: right;">', "<tr>"), resources["outputs"]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Run a page that is a notebook, and add its images and its file to the site."""
    import nbformat
    from mkdocs.exceptions import PluginError
    from mkdocs.structure.files import File

    if "jupyter" not in page.meta:
        return markdown
    place = Path(page.file.src_uri)
    try:
        notebook = executed(markdown)
    except RuntimeError as error:
        raise PluginError(f"{place}: {error}") from None
    text, images = to_markdown(notebook, place.stem)
    made = {**images, f"{place.stem}.ipynb": nbformat.writes(notebook).encode()}
    for name, content in made.items():
        files.append(File.generated(config, (place.parent / name).as_posix(), content=content))
    link = f"[This page as a notebook]({place.stem}.ipynb), with its outputs."
    return re.sub(r"^(# .*\n)", rf"\1\n{link}\n", text, count=1, flags=re.MULTILINE)
