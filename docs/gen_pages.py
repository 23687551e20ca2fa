"""Pages and tables that the code itself is the source of; a hook of mkdocs (see ``mkdocs.yml``).

A line ``<!-- card: NAME -->`` becomes the card of a task, loss or weighting, ``<!-- tasks -->``,
``<!-- losses -->``, ``<!-- weightings -->``, ``<!-- encoders -->``, ``<!-- settings -->``,
``<!-- commands -->`` and ``<!-- public names -->`` become tables. A task, loss or weighting without
a page of its own gets one with its card, each package one with the reference of its modules.
``docs/cards.yaml`` holds what no class can say: when to choose it, what it costs, and where it
comes from.

Run as a program, it copies the examples into the documents that show them: the block below a line
``<!-- examples/NAME.py -->`` or ``<!-- auxlearn/tasks/NAME.py -->`` is that file without its
docstring.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

import yaml
from gen_rest import markdown

import auxlearn
from auxlearn.cli import COMMANDS
from auxlearn.commands.options import option_flag
from auxlearn.core.config import RunConfig
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS, Registry
from auxlearn.core.run_settings import section_of
from auxlearn.core.settings import ENCODERS
from auxlearn.kinds.base import FEATURES, all_kinds

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent

#: Files of the repository that are pages of the site as well.
ADOPTED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/RESULTS.md": "results/performance.md",
}


@cache
def cards() -> dict[str, dict[str, Any]]:
    """Return what ``cards.yaml`` says of each task, loss and weighting, by name."""
    return yaml.safe_load((DOCS / "cards.yaml").read_text(encoding="utf-8"))


def registry_of(name: str) -> Registry:
    """Return where a name is registered."""
    return next(one for one in (TASKS, LOSSES, WEIGHTINGS) if name in one.names())


# ------------------------------------------------------------------------------------------ cards


def card(name: str) -> str:
    """Return the card of a plug-in: what, when, cost, source, use, options, details."""
    cls, said = registry_of(name).get(name), cards()[name]
    summary, _, rest = (inspect.getdoc(cls) or "").partition("\n")
    facts = [("Cost", said["cost"]), ("Source", source(said))]
    if "decides" in said:
        facts.insert(0, ("Weights follow", said["decides"]))
        facts.insert(1, ("Validation data", "yes" if said.get("validation") else "none"))
    facts.append(
        (
            "Code",
            f'<autoref identifier="{cls.__module__}.{cls.__qualname__}" optional>'
            f"`{cls.__module__}.{cls.__qualname__}`</autoref>",
        )
    )
    if "extra" in said:
        facts.append(("Needs", f'`pip install "auxlearn[{said["extra"]}]"`'))
    lines = [
        markdown(summary),
        _table(("", ""), [(f"**{title}**", text) for title, text in facts]),
        "## When to use it",
        said["when"].strip(),
        "## How to use it",
        usage(name),
        "## Options",
        options_table(name),
        "## How it works",
        *filter(None, [markdown(rest).strip()]),
        *_module_text(cls),
    ]
    return "\n\n".join(lines)


def source(said: Mapping[str, Any]) -> str:
    """Return the citation of a card with its link."""
    found = said["source"]
    text, url = found.get("text"), found.get("url")
    return f"[{text}]({url})" if url else text


def usage(name: str) -> str:
    """Return how a task, loss or weighting is chosen on the command line and in a file."""
    registry = registry_of(name)
    if registry is TASKS:
        command, key = f"auxlearn train --aux {name} --weights meta", f"aux: [{name}]"
    elif registry is LOSSES:
        command, key = f"auxlearn train --loss {name}", f"loss: {name}"
    else:
        command, key = f"auxlearn train --aux l3mask --weights {name}", f"weights: {name}"
    said = cards()[name]
    if "use" in said:
        command, key = said["use"]["command"].strip(), said["use"]["yaml"].strip()
    return f"```console\n{command}\n```\n\n```yaml\n{key}\n```"


def options_table(name: str) -> str:
    """Return the options of a task, loss or weighting with their defaults."""
    fields = registry_of(name).get(name).Options.model_fields
    if not fields:
        return "None."
    rows = [
        (
            f"`{option}`",
            _type(field.annotation),
            _code(field.get_default(call_default_factory=True)),
            field.description or "",
        )
        for option, field in fields.items()
    ]
    first = option_flag(name, next(iter(fields)))
    table = _table(("option", "type", "default", "meaning"), rows)
    return f"{table}\n\nOn the command line: `{first}` and so on."


def _module_text(cls: type) -> Iterable[str]:
    """Return what the module of a class says, if it is more than a title."""
    text = inspect.cleandoc(importlib.import_module(cls.__module__).__doc__ or "")
    if "\n\n" in text:
        yield markdown(text)


# ----------------------------------------------------------------------------------------- tables


def table_of(registry: Registry, prefix: str = "") -> str:
    """Return the table of all tasks or losses, with links to their pages."""
    rows = [
        (
            f"[`{name}`]({prefix}{name}.md)",
            _summary(registry.get(name)),
            cards()[name]["cost"],
            source(cards()[name]),
        )
        for name in order(registry)
    ]
    kind = "task" if registry is TASKS else "loss"
    return _table((kind, "what it trains", "cost", "source"), rows)


def weightings_by_purpose() -> dict[str, list[str]]:
    """Return the names of the weightings by what they are for."""
    groups: dict[str, list[str]] = {}
    for name in order(WEIGHTINGS):
        groups.setdefault(cards()[name]["group"], []).append(name)
    return groups


def weightings_tables() -> str:
    """Return a table of the weightings for each purpose, with links to their pages."""
    heads = ("weighting", "what the weights follow", "validation data", "cost per step", "source")
    tables = []
    for group, names in weightings_by_purpose().items():
        rows = []
        for name in names:
            entry = cards()[name]
            validation = "yes" if entry.get("validation") else "none"
            link = f"[`{name}`]({name}.md)"
            rows.append((link, entry["decides"], validation, entry["cost"], source(entry)))
        tables.append(f"### {group}\n\n{_table(heads, rows)}")
    return "\n\n".join(tables)


def order(registry: Registry) -> list[str]:
    """Return the built-in names in the order of ``cards.yaml``."""
    return [name for name in cards() if name in registry.names()]


def settings_table() -> str:
    """Return every setting of a run by section."""
    sections: dict[str, list[tuple[str, ...]]] = {}
    for name, field in RunConfig.model_fields.items():
        default = field.default.name if name in ("weights", "loss") else field.default
        row = (f"`{name}`", _type(field.annotation), _code(default), field.description or "")
        sections.setdefault(section_of(name), []).append(row)
    heads = ("setting", "type", "default", "meaning")
    return "\n\n".join(f"## {title}\n\n{_table(heads, rows)}" for title, rows in sections.items())


def encoders_table() -> str:
    """Return the short names of encoders."""
    rows = [
        (
            f"`{name}`",
            "shipped with auxlearn" if name == "tiny" else f"`{card.source}`",
            card.title,
            "not said" if card.casing == "unsaid" else card.casing,
        )
        for name, card in ENCODERS.items()
    ]
    return _table(("name", "checkpoint", "what it is", "casing"), rows)


def kinds_table() -> str:
    """Return which losses and features work with which kinds of labels."""
    kinds = all_kinds()
    rows = [
        (
            f"loss `{name}`",
            *("yes" if LOSSES.get(name).takes(kind) else "no" for kind in kinds),
            "",
        )
        for name in LOSSES.names()
    ]
    for feature, advice in FEATURES.items():
        rows.append((feature, *("yes" if kind.offers(feature) else "no" for kind in kinds), advice))
    return _table(("feature", *(f"`{kind.name}`" for kind in kinds), "instead"), rows)


def commands_table() -> str:
    """Return the commands of the program."""
    rows = [(f"`auxlearn {name}`", text) for name, text in COMMANDS.items()]
    return _table(("command", "what it does"), rows)


def public_table() -> str:
    """Return the public names with a link to the place of each."""
    rows = []
    for name in auxlearn.__all__:
        if name.startswith("_"):
            continue
        found = getattr(auxlearn, name)
        module = getattr(found, "__module__", "")
        if inspect.isclass(found) or inspect.isfunction(found):
            path = f"{module}.{found.__qualname__}"
            summary = _summary(found)
        else:  # a method of a registry
            path = "auxlearn.core.registry.Registry.register"
            summary = _summary(found)
        link = f'<autoref identifier="{path}" optional>`auxlearn.{name}`</autoref>'
        rows.append((link, summary))
    return _table(("name", "what it is"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "kinds": kinds_table,
    "tasks": lambda: table_of(TASKS),
    "losses": lambda: table_of(LOSSES),
    "weightings": weightings_tables,
    "settings": settings_table,
    "encoders": encoders_table,
    "commands": commands_table,
    "public names": public_table,
}


def _summary(found: Any) -> str:
    return markdown((inspect.getdoc(found) or "").partition("\n\n")[0].replace("\n", " "))


def _type(annotation: Any) -> str:
    """Return a type as a reader of a configuration file would say it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(one) for one in arguments if one is not type(None))
    if origin is tuple:
        return f"list of {_type(arguments[0])}s"
    if origin is dict:
        return "mapping"
    names = {bool: "yes or no", int: "integer", float: "number", str: "string"}
    return names.get(annotation, "name")


def _code(default: Any) -> str:
    if default is None or default in ((), {}):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; in narrow windows one with headings is stacked, cell by cell."""

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(' '.join(cell.split()) for cell in cells)} |"

    def labelled(row: Sequence[str]) -> Iterable[str]:
        yield row[0]
        for head, cell in zip(heads[1:], row[1:], strict=True):
            yield f'<span class="label">{head}: </span>{cell}' if head and cell else cell

    lines = [line(heads), line(["---"] * len(heads)), *(line(labelled(row)) for row in rows)]
    table = "\n".join(lines)
    return f'<div class="stacked" markdown>\n\n{table}\n\n</div>' if any(heads) else table


# ------------------------------------------------------------------------------------------ pages


def generated_pages() -> dict[str, str]:
    """Return the pages that are not files under ``docs/``, by path."""
    pages = {}
    for registry, folder in (
        (TASKS, "tasks"),
        (LOSSES, "losses"),
        (WEIGHTINGS, "weightings"),
    ):
        for name in order(registry):
            if not (DOCS / folder / f"{name}.md").exists():
                pages[f"{folder}/{name}.md"] = f"# `{name}`\n\n<!-- card: {name} -->\n"
    for package, modules in packages().items():
        title = f"# `{package}`\n\n{_summary(importlib.import_module(package))}".rstrip()
        entries = [f"::: {module}\n" for module in modules]
        pages[f"reference/{package.rpartition('.')[2]}.md"] = "\n\n".join([title, *entries])
    for path, page in ADOPTED.items():
        pages[page] = adopted(path, page)
    return pages


def packages() -> dict[str, list[str]]:
    """Return the modules to document by package; those at the top come under ``auxlearn``."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "auxlearn").rglob("*.py")):
        *parents, stem = path.relative_to(ROOT).with_suffix("").parts
        if stem.startswith("_") or parents[1:2] == ["commands"] or stem == "cli":
            continue
        found.setdefault(".".join(parents[:2]), []).append(".".join([*parents, stem]))
    return found


def adopted(path: str, page: str) -> str:
    """Return a file of the repository with its links as they are from a page of the site."""
    text = (ROOT / path).read_text(encoding="utf-8")
    up = "../" * page.count("/")
    text = re.sub(r"\]\((?:\.\./)?docs/", f"]({up}", text)
    return text.replace("](img/growth.png)", f"]({up}img/growth.png)")


def filled(text: str) -> str:
    """Return a page with its markers replaced by cards and tables."""
    text = re.sub(r"^<!-- card: (\w+) -->$", lambda match: card(match[1]), text, flags=re.M)
    for name, table in TABLES.items():
        marker = f"<!-- {name} -->\n"
        if marker in text:
            text = text.replace(marker, table() + "\n")
    return text


def navigation(nav: list[Any]) -> list[Any]:
    """Return the navigation with every task, loss, weighting and package in its place."""
    lists: dict[str, list[Any]] = {
        "Auxiliary tasks": [f"tasks/{name}.md" for name in order(TASKS)],
        "Losses of the primary task": [f"losses/{name}.md" for name in order(LOSSES)],
        "Weightings": [
            {group: [f"weightings/{name}.md" for name in names]}
            for group, names in weightings_by_purpose().items()
        ],
        "API reference": [f"reference/{name.rpartition('.')[2]}.md" for name in packages()],
    }
    return [
        {title: [*pages, *lists.get(title, [])] if isinstance(pages, list) else pages}
        for entry in nav
        for title, pages in entry.items()
    ]


def with_examples(text: str) -> str:
    """Return a document with every block that shows an example as the example is now."""

    def block(match: re.Match[str]) -> str:
        code = (ROOT / match[1]).read_text(encoding="utf-8")
        docstring = ast.parse(code).body[0].end_lineno
        body = "\n".join(code.splitlines()[docstring:]).strip("\n")
        return f"<!-- {match[1]} -->\n```{match[2]}\n{body}\n```"

    pattern = r"<!-- ((?:examples|auxlearn/tasks)/\w+\.py) -->\n```(\w+)\n.*?```"
    return re.sub(pattern, block, text, flags=re.DOTALL)


# ------------------------------------------------------------------------------- events of mkdocs


def on_config(config: MkDocsConfig) -> None:
    """Complete the navigation."""
    config.nav = navigation(config.nav or [])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the plot of a page from elsewhere."""
    from mkdocs.structure.files import File

    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    plot = ROOT / "benchmarks" / "img" / "growth.png"
    files.append(File.generated(config, "img/growth.png", abs_src_path=str(plot)))
    return files


def on_page_markdown(markdown: str, page: Page, **kwargs: Any) -> str:
    """Replace the markers of a page."""
    return filled(markdown)


def on_page_content(html: str, **kwargs: Any) -> str:
    """Turn formulas into MathML, which browsers draw without a script."""
    from latex2mathml.converter import convert

    def mathml(match: re.Match[str]) -> str:
        from html import unescape

        display = "block" if match[1] == "div" else "inline"
        return convert(unescape(match[2]), display=display)

    pattern = r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>'
    return re.sub(pattern, mathml, html, flags=re.DOTALL)


if __name__ == "__main__":
    for document in (ROOT / "README.md", *DOCS.rglob("*.md")):
        document.write_text(with_examples(document.read_text(encoding="utf-8")), encoding="utf-8")
