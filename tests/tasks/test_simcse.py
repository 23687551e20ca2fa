"""SimCSE against a computation from its formula."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from auxlearn.core import rng
from auxlearn.tasks.simcse import SimCSE
from tests import helpers


def drops():
    """Dropout as it is in a step."""
    return rng.seeded(0, "test", 0)


def test_simcse_is_the_cross_entropy_of_finding_the_second_pass(loaded, tmp_path):
    encoder = loaded("bert")
    task = SimCSE(SimCSE.Options(temperature=0.1))
    task.prepare(helpers.context(encoder, helpers.tokenized(encoder, helpers.LINES), tmp_path))
    batch = helpers.collated(helpers.tokenized(encoder, helpers.LINES[:5]))
    encoder.train()
    with drops():
        loss = task.loss(encoder, batch, torch.Generator())
    with drops():
        passes = [
            encoder.apply_head(task.head, encoder.features(batch)).detach().double().numpy()
            for _ in range(2)
        ]
    first, second = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in passes)
    assert not np.allclose(first, second)
    expected = -np.diag(log_softmax(first @ second.T / 0.1, axis=1)).mean()
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    loss.backward()
    assert encoder.body.embeddings.word_embeddings.weight.grad.abs().sum() > 0
