"""Every number that a task, a loss or a weighting takes has a range, and both ends of it hold."""

from __future__ import annotations

import math
import typing

import pytest
from pydantic import ValidationError

from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS

#: Range of each option, of all plug-ins or of one; a bracket belongs to it, a parenthesis does not.
RANGES = {
    **dict.fromkeys(("bias_examples", "bias_epochs", "teacher_epochs", "batch_size"), "[1, inf)"),
    **dict.fromkeys(("batches", "unroll", "every", "window", "anchors", "min_count"), "[1, inf)"),
    "per_step": "[1, inf)",
    "informask.candidates": "[1, 10000]",
    **dict.fromkeys(("bias_folds", "passes"), "[2, inf)"),
    **dict.fromkeys(("warmup_steps", "generator_weight", "smoothing", "gamma"), "[0, inf)"),
    **dict.fromkeys(("cut_weight", "divergence_weight", "entropy_penalty"), "[0, inf)"),
    "collocations": "[0, inf)",
    **dict.fromkeys(("strength", "weight", "weight_decay", "margin", "alpha"), "[0, inf)"),
    **dict.fromkeys(("temperature", "learning_rate", "bias_learning_rate"), "(0, inf)"),
    **dict.fromkeys(("factor_learning_rate", "delta"), "(0, inf)"),
    **dict.fromkeys(("teacher_learning_rate", "least", "mu", "fairgrad.alpha"), "(0, inf)"),
    **dict.fromkeys(("probability", "candidates", "learn_share", "gate_share"), "(0, 1]"),
    **dict.fromkeys(("label_smoothing", "c", "floor", "gate", "beta"), "[0, 1)"),
    **dict.fromkeys(("validation_decay", "step_decay", "decay"), "[0, 1)"),
    **dict.fromkeys(("gradvac.beta", "relaxation", "tau"), "[0, 1]"),
    "share": "(0, 1)",
    # Checked with the other options, or with the objectives; the tests of the rules have them.
    **dict.fromkeys(("fixed.alpha", "initial", "shares", "class_weights", "weights"), ""),
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
