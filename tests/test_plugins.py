"""Names for plug-in authors: documented, lazily imported, complete; and ranges of options."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from auxlearn import plugins

#: Modules with the classes that a plug-in may subclass.
PLUGIN_BASES = ("tasks/base.py", "weighting/base.py", "weighting/learned.py")


def test_the_docstring_lists_every_name_in_one_line():
    listed = re.findall(r"^\* ``(\w+)``: .+[.]$", plugins.__doc__, re.M)
    assert sorted(listed) == plugins.__all__
    assert len(listed) > 30


def test_names_lead_to_the_objects_of_their_modules():
    stub = ast.parse(Path(plugins.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imported = {alias.asname: node.module for node in stub.body for alias in node.names}
    aliases = ("typing", "builtins", "types")  # of types, such as Gradient
    for name in plugins.__all__:
        defined_in = getattr(getattr(plugins, name), "__module__", "typing")
        assert defined_in in (imported[name], *aliases), name
    assert dir(plugins) == plugins.__all__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = plugins.nothing


@pytest.mark.parametrize("module", PLUGIN_BASES)
def test_every_public_class_of_the_base_modules_is_there(module):
    source = (Path(plugins.__file__).parent / module).read_text(encoding="utf-8")
    classes = {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    assert classes
    assert classes <= set(plugins.__all__)
