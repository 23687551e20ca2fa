"""An auxiliary task that is the primary task on clean labels, beside one on shuffled labels.

The class of a text is a word of it, so that clean labels teach what the validation examples test
and shuffled ones do not. Within STEPS optimizer steps, every rule that learns from validation
examples must give less weight to the shuffled labels and more to the clean ones.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from auxlearn.core.registry import WEIGHTINGS
from auxlearn.data.batches import BatchStream
from auxlearn.encoders.load import load_encoder
from auxlearn.training.optimizer import LinearSchedule
from auxlearn.training.validation import ValidationObjective
from tests.helpers import LABELS, LINES, tokenized
from tests.training.harness import Given, Harness

STEPS = 60
WORDS = ("parser", "tagger", "corpus")
CLASSES = [number % 3 for number in range(2 * len(LINES))]


def text(number, line):
    return " ".join([WORDS[number % 3]] * 3 + line)


TEXTS = [text(number, line.split()[:3]) for number, line in enumerate(LINES * 2)]
HELD_OUT = [text(number, line.split()[3:6]) for number, line in enumerate(LINES)]
RULES = {
    "meta": {"horizon": "steps", "learning_rate": 0.1, "margin": 0.1, "gate": 0},
    "meta, two steps": {"horizon": "steps", "learning_rate": 0.1, "mix": "gradients", "unroll": 2},
    "meta, closed head": {"horizon": "steps", "learning_rate": 0.1, "dev_head": "closed"},
    "meta, every second step": {
        "horizon": "steps",
        "learning_rate": 0.1,
        "margin": 0.1,
        "gate": 0,
        "every": 2,
    },
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


def final_weights(folder, name, steps=STEPS):
    rule_name = name.split(",")[0]
    cls = WEIGHTINGS.get(rule_name)
    shuffled = torch.randperm(len(TEXTS), generator=torch.Generator().manual_seed(1)).tolist()
    tasks = [
        ("clean", classifying(CLASSES)),
        ("shuffled", classifying([CLASSES[number] for number in shuffled])),
    ]
    harness = Harness(load_encoder(str(folder), LABELS), tasks)
    training_step = harness.training_step
    training_step.schedule = LinearSchedule(training_step.optimizer, 10**9, 0.0)
    training_step.total_steps = steps
    texts = tokenized(harness.encoder, TEXTS, CLASSES)
    training_step.primary = BatchStream(texts, 16, 0, "primary")
    training_step.auxiliaries = tuple(
        replace(auxiliary, stream=BatchStream(texts, 16, 0, auxiliary.name))
        for auxiliary in training_step.auxiliaries
    )
    rule = cls(cls.Options(**RULES[name]), training_step.names)
    training_step.validation = ValidationObjective(
        tokenized(harness.encoder, HELD_OUT, CLASSES[: len(HELD_OUT)]),
        16,
        "accuracy",
        0,
        head=rule.dev_head,
        batches_per_step=rule.validation_batches,
    )
    for step in range(steps):
        training_step.begin(step)
        rule.step(training_step)
    return dict(zip(training_step.names, rule.weights.tolist(), strict=True))


def test_every_rule_that_learns_from_validation_examples_is_tested_here():
    names = set()
    for name in WEIGHTINGS.names():
        cls = WEIGHTINGS.get(name)
        ours = cls.__module__.startswith("auxlearn.")  # other tests register some of their own
        options = cls.Options(**({"horizon": "steps"} if name == "meta" else {}))
        if ours and cls(options, ("primary", "a")).validation_source:
            names.add(name)
    assert names == {rule.split(",")[0] for rule in RULES}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("meta", "tartan") else pytest.mark.slow)
        for name in RULES
    ],
)
def test_weight_moves_from_shuffled_to_clean_labels(encoder_folder, name):
    weights = final_weights(encoder_folder("bert"), name)
    assert weights["clean"] > 1.15 * weights["shuffled"], weights
    assert weights["shuffled"] < 0.3, weights
