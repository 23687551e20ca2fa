"""Every rule: resumed after any step, on losses of zero, and beside shuffled labels."""

import numpy as np
import pytest
import torch

from auxlearn.core.registry import WEIGHTINGS
from tests.weighting.fakes import FakeStep, RecordingStep, make, run

#: Options with which the state of a rule shows within these steps; windows end amid them.
OPTIONS = {
    "fixed": {"mix": "gradients"},
    "ol_aux": {"every": 3, "learning_rate": 0.5},
    "meta": {"horizon": "steps", "warmup_steps": 1, "margin": 0.1},
}
#: Rules whose steps follow from the step alone.
STATELESS = {"equal", "fixed", "gcs", "torchjd"}

MIXED = ("fixed", "ol_aux", "tartan")

CASES = [
    *((name, OPTIONS.get(name, {})) for name in WEIGHTINGS._builtin),
    *((name, {"mix": "scaled"}) for name in MIXED),
    *((name, {"mix": "steps"}) for name in MIXED),
    ("meta", {"horizon": "steps", "warmup_steps": 2, "mix": "scaled", "every": 2}),
    ("meta", {"horizon": "steps", "warmup_steps": 1, "gate": 0.06, "validation_decay": 0.5}),
]


def outcome(name, options, at=None, restore=True):
    fake, rule = RecordingStep(), make(name, **options)
    for fake.number in range(6):
        if fake.number == at:
            state = {key: tensor.clone() for key, tensor in rule.state_dict().items()}
            rule = make(name, **options)
            if restore:
                rule.load_state_dict(state)
        rule.step(fake)
    return [*(parameter.detach() for parameter in fake.parameters), rule.weights]


def equal(one, other):
    return all(map(torch.equal, one, other))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_resumed_rule_makes_the_same_steps(name, options):
    undisturbed = outcome(name, options)
    stateless = name in STATELESS and options.get("mix", "gradients") == "gradients"
    forgotten = [outcome(name, options, at, restore=False) for at in range(1, 6, 2)]
    assert all(equal(one, undisturbed) for one in forgotten) == stateless
    for at in (3,) if stateless else range(6):
        assert equal(outcome(name, options, at), undisturbed), f"resumed after {at} steps"


@pytest.mark.parametrize("zeros", [[0.7, 0.0, 0.6], [0.7, 0.0, 0.0], [0.0, 0.0, 0.0]])
def test_losses_of_zero_leave_the_weights_of_ol_aux_finite(zeros):
    """A loss of zero, such as that of a batch without a masked token, has no gradient."""
    none = [0.0, 0.0]
    losses = [zeros, [0.7, 0.5, 0.6]] * 2
    gradients = [
        [[[1.0, 0.5], none, none, none]]
        + [[none if loss == 0 else [0.3, -0.2], none, none, none] for loss in row[1:]]
        for row in losses
    ]
    combined, weights = run(make("ol_aux"), FakeStep(gradients, losses))
    assert np.isfinite(weights).all()
    assert np.isfinite([step[0] for step in combined]).all()
