"""What choices cost: counts by hand, and those of the same step where it is computed."""

import pytest

from benchmarks import costs, report, weighting
from benchmarks.common import SIZES, VOCABULARY, encoder_of_size

LAYERS, WIDTH, HEADS, INNER = SHAPE = (1, 16, 2, 32)
ROWS = costs.BATCH
CLASSES = weighting.CLASSES


@pytest.fixture(autouse=True)
def small_encoder(monkeypatch):
    """An encoder of one layer, known as "minilm"."""
    monkeypatch.setitem(SIZES, "minilm", SHAPE)


def products(length):
    """Operations of a step from the shapes of its products.

    Each has two in the backward pass: for its input, and for its weight. The body has a pooler of
    its own, whose output nobody uses.
    """
    tokens = ROWS * length
    projections = 4 * 2 * tokens * WIDTH * WIDTH  # query, key, value, output
    attention = 2 * (2 * ROWS * length * length * WIDTH)  # scores, and weighted values
    feed_forward = 2 * (2 * tokens * WIDTH * INNER)
    pooler = 2 * ROWS * WIDTH * WIDTH
    head = pooler + 2 * ROWS * WIDTH * CLASSES
    return 3 * (LAYERS * (projections + attention + feed_forward) + head) + pooler


@pytest.mark.parametrize(("length", "windows"), [(128, 1), (512, 1), (512, 4)])
def test_operations_are_those_of_the_products_by_hand(length, windows):
    counts = costs.step("minilm", costs.Choice(length=length, windows=windows))
    assert counts["operations"] == windows * products(length)


def test_bytes_between_steps_are_those_of_parameters_and_moments():
    encoder = encoder_of_size("minilm", CLASSES)
    whole, trained = (
        sum(parameter.numel() for parameter in module.parameters())
        for module in (encoder, encoder.classifier)
    )
    assert whole - trained == VOCABULARY + WIDTH * (WIDTH + 3)  # the output layer is tied
    constants = sum(buffer.nbytes for buffer in encoder.buffers())
    loss = 4
    kept = costs.step("minilm", costs.Choice())["bytes kept"]
    assert kept == 4 * (whole + 2 * trained) + constants + loss


#: Choices that every run of the tests counts; lengths and windows are counted above.
SOME = ("single task", costs.FIXED, "`pcgrad`")


@pytest.mark.parametrize("names", [SOME, pytest.param((*costs.CHOICES,), marks=pytest.mark.slow)])
def test_every_choice_is_counted_and_shown(names, benchmark, monkeypatch):
    monkeypatch.setattr(costs, "CHOICES", {name: costs.CHOICES[name] for name in names})
    results = benchmark("costs", "--sizes", "minilm")
    steps = results["sizes"]["minilm"]["steps"]
    assert set(steps) == {*names, costs.WHOLE_RUNS}
    operations = {name: step["operations"] for name, step in steps.items()}
    single, fixed = operations["single task"], operations[costs.FIXED]
    assert operations[costs.WHOLE_RUNS] == single + fixed
    assert operations["`pcgrad`"] == fixed > 2 * single
    text = "\n".join(report.costs(results))
    assert f"| {costs.FIXED} | {fixed / single:.2f} |" in text
