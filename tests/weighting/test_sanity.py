"""An auxiliary task that is the primary task on clean labels, beside one on shuffled labels.

Every rule that learns from validation rows is to take weight from the shuffled labels and give it
to the clean ones within STEPS updates.
"""

from __future__ import annotations

import pytest
import torch

from auxlearn.encoders.load import load_encoder
from auxlearn.registry import WEIGHTINGS
from auxlearn.tasks.base import AuxiliaryTask, Settings
from auxlearn.training.optimization import LinearSchedule
from auxlearn.training.validation import ValidationObjective
from tests.helpers import LABELS
from tests.training.test_objectives import CLASSES, Harness

STEPS = 40
RULES = {
    "meta": {"learning_rate": 0.05},
    "meta, two steps": {"learning_rate": 0.05, "unroll": 2},
    "meta, closed head": {"learning_rate": 0.05, "dev_head": "closed"},
    "meta, every second": {"learning_rate": 0.1, "every": 2},
    "tartan": {"learning_rate": 0.05},
    "tartan-released": {"learning_rate": 0.05},
}


class Labels(AuxiliaryTask):
    """Classify texts under labels of the task's own."""

    def __init__(self, labels):
        super().__init__(Settings())
        self.labels = torch.tensor(labels)

    def loss(self, encoder, batch, generator):
        return torch.nn.functional.cross_entropy(encoder.classify(batch), self.labels[batch.rows])


def final_weights(folder, name, steps=STEPS):
    rule_name = name.split(",")[0]
    cls = WEIGHTINGS.get(rule_name)
    shuffled = [(label + 1 + number // 3 % 2) % 3 for number, label in enumerate(CLASSES)]
    assert not any(one == other for one, other in zip(shuffled, CLASSES, strict=True))
    tasks = [("clean", Labels(CLASSES)), ("shuffled", Labels(shuffled))]
    harness = Harness(load_encoder(str(folder), LABELS), tasks, batch_size=12)
    objectives = harness.objectives
    objectives.schedule = LinearSchedule(objectives.optimizer, 10**9, 0.0)
    rule = cls(cls.Options(**RULES[name]), objectives.names)
    objectives.validation = ValidationObjective(
        harness.texts, 12, "accuracy", 0, head=rule.dev_head
    )
    for step in range(steps):
        objectives.begin(step)
        rule.step(objectives)
    return dict(zip(objectives.names, rule.weights.tolist(), strict=True))


def test_every_rule_that_learns_from_validation_rows_has_a_line_here():
    names = {
        name
        for name in WEIGHTINGS.names()
        if WEIGHTINGS.get(name)(WEIGHTINGS.get(name).Options(), ("primary", "a")).validation_split
    }
    assert names == {rule.split(",")[0] for rule in RULES}


@pytest.mark.parametrize("name", RULES)
def test_weight_moves_from_shuffled_to_clean_labels(encoder_folder, name):
    weights = final_weights(encoder_folder("bert"), name)
    assert weights["clean"] > 1.2 * weights["shuffled"], weights
    assert weights["shuffled"] < 1 / 3 < weights["clean"] + weights["primary"]
