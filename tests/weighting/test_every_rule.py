"""Every rule: resumed after any step, on losses of zero, and beside shuffled labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from auxlearn.data.batches import BatchStream
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.optimizer import LinearSchedule
from auxlearn.training.validation import ValidationObjective
from tests.helpers import LABELS, LINES, tokenized
from tests.training.harness import Given, Harness
from tests.weighting.fakes import FakeStep, RecordingStep, make, our_rules, run

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
    *((name, OPTIONS.get(name, {})) for name in our_rules()),
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


WORDS = ("parser", "tagger", "corpus")
CLASSES = [number % 3 for number in range(2 * len(LINES))]


def text(number, line):
    return " ".join([WORDS[number % 3]] * 3 + line)


TEXTS = [text(number, line.split()[:3]) for number, line in enumerate(LINES * 2)]
HELD_OUT = [text(number, line.split()[3:6]) for number, line in enumerate(LINES)]
OF_META = {"horizon": "steps", "learning_rate": 0.1, "margin": 0.1, "gate": 0}
RULES = {
    "meta": OF_META,
    "meta, two steps": {"horizon": "steps", "learning_rate": 0.1, "mix": "gradients", "unroll": 2},
    "meta, closed head": {"horizon": "steps", "learning_rate": 0.1, "dev_head": "closed"},
    "meta, every second step": OF_META | {"every": 2},
    "tartan": {"learning_rate": 0.05},
    "tartan_released": {"learning_rate": 0.05},
    "aang": {"learning_rate": 0.3},
}


def classifying(labels):
    """A task that classifies texts under labels of its own."""
    given = torch.tensor(labels)
    return Given(
        lambda encoder, batch, _: cross_entropy(encoder.classify(batch), given[batch.indices])
    )


def final_weights(folder, name, steps=60):
    """Of a task that is the primary one on clean labels, and of one on shuffled labels."""
    shuffled = torch.randperm(len(TEXTS), generator=torch.Generator().manual_seed(1)).tolist()
    tasks = [
        ("clean", classifying(CLASSES)),
        ("shuffled", classifying([CLASSES[number] for number in shuffled])),
    ]
    harness = Harness(load_encoder(str(folder), LABELS), tasks)
    step = harness.training_step
    step.schedule = LinearSchedule(step.optimizer, 10**9, 0.0)
    step.total_steps = steps
    texts = tokenized(harness.encoder, TEXTS, CLASSES)
    step.primary = BatchStream(texts, 16, 0, "primary")
    step.auxiliaries = tuple(
        replace(auxiliary, stream=BatchStream(texts, 16, 0, auxiliary.name))
        for auxiliary in step.auxiliaries
    )
    rule = make(name.split(",")[0], step.names, **RULES[name])
    held_out = tokenized(harness.encoder, HELD_OUT, CLASSES[: len(HELD_OUT)])
    step.validation = ValidationObjective(
        held_out, 16, "accuracy", 0, head=rule.dev_head, batches_per_step=rule.validation_batches
    )
    for number in range(steps):
        step.begin(number)
        rule.step(step)
    return dict(zip(step.names, rule.weights.tolist(), strict=True))


def test_every_rule_that_learns_from_validation_examples_is_tested_here():
    options = {"meta": {"horizon": "steps"}}
    rules = {name: make(name, **options.get(name, {})) for name in our_rules()}
    learning = {name for name, rule in rules.items() if rule.validation_source}
    assert learning == {rule.split(",")[0] for rule in RULES}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("meta", "tartan") else pytest.mark.slow)
        for name in RULES
    ],
)
def test_weight_moves_from_shuffled_to_clean_labels(encoder_folder, name):
    """The class of a text is a word of it, so that clean labels teach what validation tests."""
    weights = final_weights(encoder_folder("bert"), name)
    assert weights["clean"] > 1.15 * weights["shuffled"], weights
    assert weights["shuffled"] < 0.3, weights
