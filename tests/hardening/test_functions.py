"""Functions refuse bad arguments by a :class:`UserError` of one line, and write nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest

import auxlearn
from auxlearn import UserError
from auxlearn.comparison.formats import Comparison
from auxlearn.core.arguments import checked
from auxlearn.results.record import Evaluations
from tests import helpers

FRAME = pandas.DataFrame({"text": ["a", "b"], "label": ["x", "y"]})
CYCLE: list[object] = []
CYCLE.append(CYCLE)


class Mute:
    """What cannot be shown."""

    def __repr__(self):
        raise RuntimeError("no text")


def rows(more):
    """Labelled rows of which the last has a further column."""
    made = [{"text": f"text {number}", "label": "ab"[number % 2]} for number in range(6)]
    return [*made[:-1], {**made[-1], "more": more}]


def weighted(weights):
    """A loss with weights of classes."""
    return {"cross_entropy": {"class_weights": weights}}


@pytest.mark.parametrize(
    ("name", "args", "more", "names"),
    [
        ("score", ("tiny", ["a text"]), {"txt": 1}, "'texts'"),
        ("score", ("tiny", [None]), {}, "row 1"),
        ("pretrain", ("tiny", None), {"corpus": ["a"]}, "output"),
        ("pretrain", ("tiny", "o"), {}, "one source of text: dataset or corpus"),
        ("load_run", ("a\0",), {}, "null character"),
        ("load_dataset", ("\ud800",), {}, "a path has no half of a surrogate pair"),
        ("sweep", ("\ud800",), {}, "a path has no half of a surrogate pair"),
        ("train", (FRAME,), {"text_column": ""}, "text_column"),
        ("load_run", (Mute(),), {}, "<Mute instance"),
        ("evaluate", ("r", "d"), {"labels": {"no": 10**5000}}, "a number of"),
        ("compare", ("a",), {"names": {"a": 1}}, "names.a"),
        ("compare", (), {}, "name a run or a sweep"),
        ("sweep", ({"name": "a", "base": {"aux": CYCLE}},), {}, "levels"),
        ("train", (), {"dataset": FRAME, "bacth_size": 4}, "'batch_size'"),
        ("train", (), {"dataset": FRAME, "ood": [FRAME]}, "ood: a data set in memory"),
        ("train", (), {"dataset": FRAME, "ood": {"text": ["a"], "label": ["x"]}}, "in memory"),
        ("train", (), {"dataset": FRAME, "ood": 3}, "got 3"),
        ("train", (), {"dataset": FRAME, "ood": [None]}, "got None"),
        ("train", (FRAME,), {"loss": weighted([1.0])}, "class_weights: must be 'none'"),
        ("train", (FRAME,), {"loss": weighted({"x": float("nan")})}, "class_weights.x: must be"),
        ("train", (FRAME,), {"output": " "}, "output: a path is needed, not an empty text"),
        ("train", (FRAME,), {"epochs": np.True_}, "epochs: a number is needed, not true or false"),
        ("train", (FRAME,), {"seed": np.uint64(2**63)}, "seed: a number of at most 18 digits"),
        ("train", (FRAME,), {"split_column": "part"}, "names splits (split_column): known: label"),
        ("train", (FRAME,), {"ood": [{"datset": "x"}]}, "ood.0.datset': did you mean 'dataset'"),
        ("train", ("pydocs",), {"jobs": 10**9}, "jobs: must be less than or equal to 10000"),
        ("sweep", ("pydocs",), {"jobs": 10**9}, "jobs: must be less than or equal to 10000"),
        ("sweep", ("",), {}, "a path is needed"),
        ("load_dataset", ("",), {}, "a path is needed"),
        ("train", (), {"dataset": rows(CYCLE)}, "row 6"),
        ("train", (), {"dataset": rows(Mute())}, "row 6"),
    ],
)
def test_bad_arguments(name, args, more, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with helpers.one_line(UserError, names):
        getattr(auxlearn, name)(*args, **more)
    assert list(tmp_path.iterdir()) == []


def test_what_is_saved_by_a_method_needs_a_path():
    for result in (Evaluations(), Comparison([], None, [], [], "", [])):
        with helpers.one_line(UserError, "save: ", "a path is needed, not an empty text"):
            result.save("")


def test_columns_whose_names_are_no_texts_keep_their_values():
    made = [{"text": f"text {number}", "label": "ab"[number % 2], 3: number} for number in range(4)]
    dataset = auxlearn.load_dataset({"train": made, "dev": made})
    assert dataset.splits["train"].meta["3"] == ("0", "1", "2", "3")


def test_arguments_are_passed_as_they_are_checked():
    @checked
    def add(first: int, *rest: int, scale: float = 1.0) -> float:
        return scale * (first + sum(rest))

    assert add(1) == 1
    assert add(1, 2, 3, scale=2) == 12
    with pytest.raises(TypeError, match="multiple values"):
        add(1, first=2)  # type: ignore[misc]


def test_settings_that_are_left_to_the_function_are_passed_on():
    @checked
    def paths(folder: str, **settings: object) -> tuple[str, dict[str, object]]:
        return folder, settings

    assert paths(Path("a"), depth=FRAME) == ("a", {"depth": FRAME})  # type: ignore[arg-type]
