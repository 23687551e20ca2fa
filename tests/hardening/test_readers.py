"""Whatever values a file holds, its reader returns a value or raises a ``UserError`` of few lines.

Bytes that change are those of :mod:`.test_bad_input`. The number of examples per test is
``AUXLEARN_FUZZ_EXAMPLES``, by default 40.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from auxlearn.core.config import RunConfig, load_config
from auxlearn.core.errors import UserError
from auxlearn.data.load import DatasetCard, read_card
from auxlearn.results.record import RunResults
from auxlearn.sweeps.plan import expand_cells
from auxlearn.sweeps.sweep_file import read_sweep
from tests.results import examples

EXAMPLES = int(os.environ.get("AUXLEARN_FUZZ_EXAMPLES", "40"))
#: Characters and lines of an error at most.
LONGEST, MOST_LINES = 1000, 8

fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=EXAMPLES == 40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -1, 0, 2**63])
WORDS = st.sampled_from(
    ["good", "bad", "nan", "None", "", " ", "\u200b", "0.5", "7", "a|b", "[1]", "\x1b", "x" * 300]
)
PLAIN = st.none() | st.booleans() | NUMBERS | WORDS | st.text(max_size=20)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


@contextmanager
def refused_well(kind: type[Exception] = UserError) -> Iterator[None]:
    """Allow an error that is a few lines which can be shown."""
    try:
        yield
    except kind as error:
        message = re.sub(r"/\S+/", "", str(error))  # the folder, which can be of any length
        assert 0 < len(message) <= LONGEST, message
        assert message.count("\n") < MOST_LINES
        message.encode()


SETTINGS = st.dictionaries(
    st.sampled_from([*RunConfig.model_fields, "x"]), VALUES, min_size=1, max_size=3
)
OF_A_SWEEP = ("name", "seeds", "base", "grid", "cases", "search", "select", "compare")
SWEEPS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(OF_A_SWEEP, VALUES)
    | {
        "name": st.just("s") | VALUES,
        "base": SETTINGS | VALUES,
        "grid": st.dictionaries(st.sampled_from(["epochs", "seed", "x", "aux"]), VALUES) | VALUES,
    },
)
CARDS = st.dictionaries(st.sampled_from([*DatasetCard.model_fields, "x"]), VALUES)


@pytest.mark.parametrize(
    ("values", "reader"),
    [
        (SETTINGS, load_config),
        (SWEEPS, lambda path: expand_cells(read_sweep(path))),
        (CARDS, read_card),
    ],
    ids=["configurations", "sweeps", "cards"],
)
def test_files_of_settings(values, reader, tmp_path):
    @fuzz
    @given(values=values)
    def check(values):
        (tmp_path / "c.yaml").write_text(json.dumps(values))
        with refused_well():
            reader(tmp_path / "c.yaml")

    check()


@fuzz
@given(
    key=st.sampled_from(["config", "dataset", "best", "evaluations", "environment", "steps", "x"]),
    value=VALUES,
)
def test_results(tmp_path, key, value):
    examples.results().save(tmp_path)
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with refused_well():
        RunResults.load(tmp_path)
