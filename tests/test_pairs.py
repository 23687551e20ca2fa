"""Every two of the tasks, losses and weightings train together, in a covering of all pairs."""

from __future__ import annotations

import math
from itertools import combinations, product

import pytest
import torch

from auxlearn.core.registry import TASKS
from auxlearn.plugins import MaskedLanguageModelling
from auxlearn.testing import TinyRun
from auxlearn.testing.tiny_run import Circumstances, Objectives
from tests.test_conformance import (
    LOSS_OPTIONS,
    TASK_OPTIONS,
    WEIGHTING_OPTIONS,
    further as further,  # a fixture
)

#: Masking strategies differ in their probabilities alone, but for those with state of their own.
PAIRED = [
    name
    for name in TASK_OPTIONS
    if not issubclass(TASKS.get(name), MaskedLanguageModelling)
    or name in ("random_mlm", "l3mask", "typhoon")
]

COLUMNS = max(len(LOSS_OPTIONS), len(PAIRED))

#: Every weighting with every loss; the tasks rotate, so that each meets every other name.
TRIPLES = [
    (weighting, [*LOSS_OPTIONS][column % len(LOSS_OPTIONS)], PAIRED[(row + column) % len(PAIRED)])
    for row, weighting in enumerate(WEIGHTING_OPTIONS)
    for column in range(COLUMNS)
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_every_two_plug_ins_meet():
    tables = (WEIGHTING_OPTIONS, LOSS_OPTIONS, PAIRED)
    for one, other in combinations(range(3), 2):
        met = {(case[one], case[other]) for case in TRIPLES}
        assert met == set(product(tables[one], tables[other]))
    some = [t for number, t in enumerate(TRIPLES) if quick(*divmod(number, COLUMNS))]
    for place, table in enumerate(tables):
        assert {triple[place] for triple in some} == set(table)


def quick(row: int, column: int) -> bool:
    """Whether every run of the tests trains it: each weighting with a third of the losses."""
    return (row - column) % 3 == 0


@pytest.mark.parametrize(
    "triple",
    [
        pytest.param(
            triple,
            marks=() if quick(*divmod(number, COLUMNS)) else pytest.mark.slow,
            id="-".join(triple),
        )
        for number, triple in enumerate(TRIPLES)
    ],
)
def test_a_weighting_a_loss_and_a_task_train_together(triple, further, cache):
    weighting, loss, task = triple
    objectives = Objectives(
        [(task, further(TASK_OPTIONS[task]))],
        (loss, further(LOSS_OPTIONS[loss])),
        (weighting, WEIGHTING_OPTIONS[weighting]),
    )
    number = TRIPLES.index(triple)
    circumstances = Circumstances(
        cache,
        gradient_accumulation_steps=1 + number % 2,
        metric=("accuracy", "macro_f1")[number % 3 // 2],
    )
    run = TinyRun(objectives, circumstances)
    parameters = dict(run.encoder.named_parameters())
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    for losses in run.train(0, 2):
        assert all(math.isfinite(value) for value in losses.values())
    assert run.weighting.weights.isfinite().all()
    assert all(parameter.isfinite().all() for parameter in parameters.values())
    assert any(not torch.equal(tensor, parameters[name]) for name, tensor in before.items())
