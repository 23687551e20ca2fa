"""A step looks at nothing that lies on the device, so that no GPU has to be waited for."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from auxlearn.data.batches import BatchStream
from auxlearn.encoders.load import load_encoder
from auxlearn.registry import TASKS, WEIGHTINGS
from auxlearn.training.objectives import Auxiliary, Objectives
from auxlearn.training.optimization import LinearSchedule, build_optimizer
from tests import helpers
from tests.helpers import LABELS, LINES, tokenized


@pytest.fixture(params=["bert", "roberta", "distilbert", "electra"])
def objectives(request, encoder_folder, tmp_path):
    """Two objectives on an encoder whose values cannot be looked at, only computed with."""
    encoder = load_encoder(str(encoder_folder(request.param)), LABELS)
    texts = tokenized(encoder, LINES, labels=[row % 3 for row in range(len(LINES))])
    auxiliaries = []
    for name in ("random_mlm", "l3mask"):
        cls = TASKS.get(name)
        task = cls(cls.Options())
        task.prepare(helpers.context(encoder, texts, tmp_path))
        auxiliaries.append(Auxiliary(name, task, BatchStream(texts, 8, 0, name)))
    encoder.to("meta").train()
    optimizer = build_optimizer(encoder.parameters(), 1e-3, 0.01)
    return Objectives(
        encoder=encoder,
        auxiliaries=auxiliaries,
        primary=BatchStream(texts, 8, 0, "primary"),
        optimizer=optimizer,
        schedule=LinearSchedule(optimizer, 10, 0.1),
        seed=0,
        accumulation=1,
        clip_norm=1.0,
        validation=None,
        autocast=nullcontext,
    )


def test_a_step_needs_no_value_from_the_device(objectives):
    with pytest.raises(RuntimeError, match="meta tensors"):
        float(torch.zeros(1, device="meta"))  # what a look would do
    rule = WEIGHTINGS.get("fixed")
    weighting = rule(rule.Options(), objectives.names)
    for step in range(2):
        objectives.begin(step)
        weighting.step(objectives)
    assert all(loss.device.type == "meta" for loss in objectives.losses.values())
    assert {*objectives.losses} == {"primary", "random_mlm", "l3mask"}
