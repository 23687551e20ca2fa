"""Every rule, resumed after any step, makes the steps that it would have made."""

from __future__ import annotations

import pytest
import torch

from auxlearn.core.registry import WEIGHTINGS
from tests.weighting.network import NAMES, RecordingStep

STEPS = 6

#: Options with which the state of a rule shows within these steps; windows end amid them.
OPTIONS = {
    "dwa": {"window": 2},
    "famo": {"learning_rate": 0.3},
    "fixed": {"mix": "gradients"},
    "imtl_l": {"learning_rate": 0.1},
    "ol_aux": {"every": 3, "learning_rate": 0.5},
    "stch": {"mu": 0.5, "warmup_steps": 1, "window": 2},
    "meta": {"horizon": "steps", "warmup_steps": 1, "margin": 0.1},
}

#: Rules whose steps follow from the step alone.
STATELESS = {
    *("aligned_mtl", "cagrad", "dualproj", "equal", "fairgrad", "fixed", "gcs", "geometric_mean"),
    *("imtl_g", "mgda", "nash_mtl", "pcgrad", "random", "upgrad"),
}
MIXED = ("fixed", "uncertainty", "dwa", "gradnorm", "famo", "ol_aux", "random", "tartan")

#: Other tests leave rules of their own behind in this process.
NAMES_OF_RULES = [
    name for name in WEIGHTINGS.names() if WEIGHTINGS.get(name).__module__.startswith("auxlearn.")
]
CASES = [
    *((name, OPTIONS.get(name, {})) for name in NAMES_OF_RULES),
    *((name, {"mix": mix}) for name in MIXED for mix in ("scaled", "steps")),
    ("meta", {"horizon": "steps", "warmup_steps": 2, "mix": "scaled", "every": 2}),
    ("meta", {"horizon": "steps", "warmup_steps": 1, "gate": 0.06, "validation_decay": 0.5}),
]


def outcome(name, options, at=None, restore=True):
    cls = WEIGHTINGS.get(name)
    fake, rule = RecordingStep(), cls(cls.Options(**options), NAMES)
    for fake.number in range(STEPS):
        if fake.number == at:
            state = {key: tensor.clone() for key, tensor in rule.checkpoint().items()}
            rule = cls(cls.Options(**options), NAMES)
            if restore:
                rule.resume(state)
        rule.step(fake)
    return [*(parameter.detach() for parameter in fake.parameters), rule.weights]


def equal(one, other):
    return all(map(torch.equal, one, other))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_resumed_rule_makes_the_same_steps(name, options):
    undisturbed = outcome(name, options)
    stateless = name in STATELESS and not {"scaled", "steps"} & {options.get("mix")}
    forgotten = [outcome(name, options, at, restore=False) for at in range(1, STEPS, 2)]
    assert all(equal(one, undisturbed) for one in forgotten) == stateless
    for at in (3,) if stateless else range(STEPS):
        assert equal(outcome(name, options, at), undisturbed), f"resumed after {at} steps"
