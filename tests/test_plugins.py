"""Names for plug-in authors: documented, lazily imported, complete; and ranges of options."""

from __future__ import annotations

import ast
import math
import re
import typing
from pathlib import Path

import pytest
from pydantic import ValidationError

from auxlearn import plugins
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS

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


#: Range of each option, of all plug-ins or of one; a bracket belongs to it, a parenthesis does not.
RANGES = {
    **dict.fromkeys(("bias_examples", "bias_epochs", "teacher_epochs", "batch_size"), "[1, inf)"),
    **dict.fromkeys(("batches", "unroll", "every", "anchors", "min_count"), "[1, inf)"),
    "per_step": "[1, inf)",
    "informask.candidates": "[1, 10000]",
    **dict.fromkeys(("bias_folds", "passes"), "[2, inf)"),
    **dict.fromkeys(("warmup_steps", "smoothing", "gamma"), "[0, inf)"),
    **dict.fromkeys(("cut_weight", "divergence_weight", "entropy_penalty"), "[0, inf)"),
    "collocations": "[0, inf)",
    **dict.fromkeys(("strength", "weight", "margin"), "[0, inf)"),
    **dict.fromkeys(("temperature", "learning_rate", "bias_learning_rate"), "(0, inf)"),
    **dict.fromkeys(("factor_learning_rate", "delta"), "(0, inf)"),
    **dict.fromkeys(("teacher_learning_rate", "least"), "(0, inf)"),
    **dict.fromkeys(("probability", "candidates", "learn_share", "gate_share"), "(0, 1]"),
    **dict.fromkeys(("label_smoothing", "floor", "gate", "beta"), "[0, 1)"),
    **dict.fromkeys(("validation_decay", "step_decay", "decay"), "[0, 1)"),
    **dict.fromkeys(("relaxation",), "[0, 1]"),
    "share": "(0, 1)",
    # Checked with the other options, or with the objectives; the tests of the rules have them.
    **dict.fromkeys(("fixed.alpha", "initial", "shares", "class_weights", "weights"), ""),
    "parameters": "",
    "evidence": "(-inf, inf)",
}
NUMBERS = {int, float}


def kinds(annotation) -> set:
    inner = typing.get_args(annotation)
    return {annotation} if not inner else set().union(*map(kinds, inner))


OPTIONS = [
    (registry, name, option)
    for registry in (TASKS, LOSSES, WEIGHTINGS)
    for name in registry.names()
    if registry.get(name).__module__.startswith("auxlearn.")  # other tests leave some of their own
    for option, field in registry.options(name).model_fields.items()
    if kinds(field.annotation) & NUMBERS
]


@pytest.mark.parametrize(("registry", "name", "option"), OPTIONS)
def test_options_out_of_range_are_refused(registry, name, option):
    options = registry.options(name)
    given = RANGES[f"{name}.{option}" if f"{name}.{option}" in RANGES else option]
    if not given:
        return
    low, high = (float(end) for end in given[1:-1].split(","))
    step = 1 if int in kinds(options.model_fields[option].annotation) else 1e-9

    def taken(value: float) -> bool:
        try:
            options(**{option: value if step < 1 else int(value)})
        except ValidationError as error:
            return option not in {one["loc"][0] for one in error.errors() if one["loc"]}
        return True

    assert step == 1 or not taken(math.nan)
    if math.isfinite(low):
        assert taken(low) == (given[0] == "[")
        assert taken(low + step)
        assert not taken(low - step)
    if math.isfinite(high):
        assert taken(high) == (given[-1] == "]")
        assert taken(high - step)
        assert not taken(high + step)


def test_every_range_is_of_an_option():
    assert len(OPTIONS) > 80
    used = {option for *_, option in OPTIONS} | {f"{name}.{option}" for _, name, option in OPTIONS}
    assert set(RANGES) <= used
