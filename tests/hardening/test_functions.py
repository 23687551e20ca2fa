"""Functions refuse bad arguments by a :class:`UserError` of one line, and write nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pandas
import pytest

import auxlearn
from auxlearn import RunConfig, UserError
from auxlearn.core.arguments import checked

FRAME = pandas.DataFrame({"text": ["a", "b"], "label": ["x", "y"]})
A_PATH = "a path is needed, as text or pathlib.Path"


class Mute:
    """What cannot be shown."""

    def __repr__(self):
        raise RuntimeError("no text")


class Named(Mute):
    __str__ = Mute.__repr__


HUGE = 10**5000
CYCLE: list[object] = []
CYCLE.append(CYCLE)
DEEP: list[object] = []
for _ in range(5000):
    DEEP = [DEEP]


def rows(**more):
    """Labelled rows of which the last has further columns."""
    made = [{"text": f"text {number}", "label": "ab"[number % 2]} for number in range(6)]
    return [*made[:-1], {**made[-1], **more}]


#: A function, its arguments, and what the line says.
CALLS = [
    *(
        ("score", ("tiny", ["a text"]), {name: value}, line)
        for name, value, line in (
            ("level", "char", r"level: must be 'token', 'word' or 'text', got 'char'"),
            ("passes", -3, r"passes: .*greater than or equal to 1, got -3"),
            ("passes", 10**22, r"passes: a number of at most 18 digits"),
            ("passes", True, r"passes: a number is needed, not true or false"),
            ("max_length", 0, r"max_length: .*greater than or equal to 4, got 0"),
            ("text_column", 5, r"text_column: must be text, got 5"),
            ("text_column", "", r"text_column: .*at least 1 character"),
            ("reporter", 5, r"reporter: .*instance of Reporter, got 5"),
            ("output", "a\0b.csv", r"output: a path has no null character"),
            ("output", "", r"output: a path is needed, not an empty text"),
            ("txt", 1, r"unknown key 'txt': did you mean 'texts'\?"),
        )
    ),
    ("score", (None, ["a text"]), {}, rf"encoder: {A_PATH}, got None"),
    ("score", ("tiny",), {}, r"score: texts is missing$"),
    ("score", ("tiny", [None]), {}, r"row 1: empty text"),
    ("score", ("tiny", [b"x"]), {}, r"row 1: .*must hold text"),
    ("score", ("tiny", [1]), {}, r"row 1: .*must hold text"),
    ("score", ("tiny", {"a": ["x"]}), {}, r"there is no column 'text'"),
    ("score", ("tiny", FRAME), {"text_column": "txt"}, r"no column 'txt' .*did you mean 'text'"),
    ("score", ("tiny", []), {}, r"there is no text"),
    ("score", ("tiny", 5), {}, r"5 \(int\) is not a table"),
    *(
        ("pretrain", ("tiny", "o"), {"corpus": ["a text"], name: value}, line)
        for name, value, line in (
            ("steps", 0, r"steps: .*greater than or equal to 1, got 0"),
            ("steps", -1, r"steps: .*greater than or equal to 1, got -1"),
            ("steps", True, r"steps: a number is needed"),
            ("steps", 1.5, r"steps: must be a whole number"),
            ("batch_size", 10**30, r"batch_size: a number of at most 18 digits"),
            ("learning_rate", float("nan"), r"learning_rate: .*finite number"),
            ("trainable", "body", r"trainable: must be 'head' or 'all', got 'body'"),
            ("dataset", "pydocs", r"one source of text"),
            ("corpus", pandas.DataFrame({"a": ["x"]}), r"there is no column 'text'"),
            ("corpus", None, r"one source of text"),
            ("stps", 3, r"unknown key 'stps': did you mean 'steps'\?"),
        )
    ),
    ("pretrain", ("tiny", None), {"corpus": ["a"]}, rf"output: {A_PATH}, got None"),
    ("load_dataset", ("pydocs",), {"fold": "9/3"}, r"9/3 is no fold"),
    ("load_dataset", ("pydocs",), {"fold": 3}, r"fold: 3 is no fold: the folds of five"),
    ("load_dataset", ("pydocs",), {"fold": "3"}, r"3 is no fold: the folds of five are 1/5"),
    ("load_dataset", ("pydocs",), {"seed": -1}, r"seed: .*greater than or equal to 0"),
    ("load_dataset", ("pydocs",), {"columns": "x"}, r"columns: .*instance of Columns"),
    ("load_dataset", ("pydocs",), {"cache_dir": "a\0"}, r"cache_dir: .*no null character"),
    ("load_dataset", (None,), {}, r"None \(NoneType\) is not a data set"),
    ("load_run", (None,), {}, rf"path: {A_PATH}, got None"),
    ("load_run", (5,), {}, rf"path: {A_PATH}, got 5"),
    ("load_run", (["a"],), {}, rf"path: {A_PATH}"),
    ("load_run", (b"a",), {}, r"path: text is needed, not bytes"),
    ("load_run", ("a" * 400,), {}, r"path: .*is too long"),
    ("load_run", ("a\0",), {}, r"path: a path has no null character"),
    *(
        ("evaluate", ("r", "d"), {name: value}, line)
        for name, value, line in (
            ("split", None, r"split: must be text, got None"),
            ("labels", ["a"], r"labels: must be a mapping"),
            *(
                ("labels", {"no": wrong, "yes": "b"}, r"labels: .*'no' stands for a label, or a")
                for wrong in (None, 0.5, {"a"}, [["a"]], [], "", object(), Named())
            ),
            ("labels", {"no": HUGE}, r"labels: Exceeds the limit .*, got \{'no': a number of"),
            ("decision", "max", r"decision: must be 'sum' or 'argmax', got 'max'"),
            ("text_column", 5, r"text_column: must be text"),
            ("output", "", r"output: a path is needed, not an empty text"),
        )
    ),
    ("load_config", (5,), {}, rf"path: {A_PATH}, got 5"),
    ("load_config", ("",), {}, r"path: a path is needed, not an empty text"),
    ("load_config", (b"a",), {}, r"path: text is needed, not bytes"),
    ("predict", ("r", ["a"]), {"output": 5}, rf"output: {A_PATH}, got 5"),
    ("predict", (None, ["a"]), {}, rf"run: {A_PATH}, got None"),
    ("ensemble", (None, "r"), {}, rf"runs.0: {A_PATH}, got None"),
    ("ensemble", ("a", "b"), {"split": None}, r"split: must be text"),
    ("ensemble", ("a", "b"), {"method": 5}, r"method: must be text"),
    ("compare", (None,), {}, rf"folders.0: {A_PATH}, got None"),
    ("compare", ("a",), {"metrics": None}, r"metrics: must be a list, got None"),
    ("compare", ("a",), {"metrics": "accuracy"}, r"metrics: must be a list, such as"),
    ("compare", ("a",), {"names": "a=b"}, r"names: must be a mapping, or must be a list"),
    ("compare", ("a",), {"names": {"a": 1}}, r"compare: names.a: must be text, got 1$"),
    ("compare", ("a",), {"names": ["a", 1]}, r"compare: names.1: must be text, got 1$"),
    ("compare", ("a",), {"restarts": 1}, r"restarts: .*greater than or equal to 2"),
    ("report", (None,), {}, rf"folders.0: {A_PATH}, got None"),
    ("report", ("a",), {"output": []}, rf"output: {A_PATH}"),
    ("perturbations", (None,), {}, rf"run: {A_PATH}, got None"),
    ("perturbations", ("a",), {"texts": -1}, r"texts: .*greater than or equal to 0"),
    ("sweep", ({"name": "a"},), {"jobs": "x"}, r"jobs: must be a whole number"),
    ("sweep", ({"name": "a"},), {"jobs": 0}, r"jobs: .*greater than or equal to 1"),
    ("sweep", ({"name": "a", "base": {"dataset": FRAME}},), {"jobs": 0}, r"jobs: "),
    ("sweep", ({"name": "a"},), {"threads": 10**6}, r"threads: .*less than or equal to 1024"),
    ("sweep", ({"name": "a"},), {"gpus": -1}, r"gpus: .*greater than or equal to 0"),
    ("sweep", ({"name": "a"},), {"output": 5}, rf"output: {A_PATH}, got 5"),
    ("sweep", (5,), {}, r"5 \(int\) is no sweep"),
    ("sweep", ({"name": "a", "base": {"aux": CYCLE}},), {}, r"more than 40 levels"),
    ("sweep", ({"name": "a", "base": {"aux": DEEP}},), {}, r"more than 40 levels"),
    ("sweep", ({"name": "a", HUGE: 5},), {}, r"sweep: .*: Keys should be strings, got a number of"),
    ("sweep", ({"name": "a", "bass": {}},), {}, r"unknown key 'bass': did you mean 'base'\?"),
    ("sweep", ({"name": "a", "base": {"epochs": object}},), {}, r"cannot stand in a sweep"),
    (
        "sweep",
        ({"name": "a", "grid": {"dataset": [FRAME]}},),
        {},
        r"sweep.grid.dataset\[0\]: a data set in memory can be the 'dataset' of 'base' only",
    ),
    (
        "sweep",
        ({"name": "a", "base": {"dataset": {"text": ["a"], "label": ["b"]}, "epocs": 2}},),
        {},
        r"has a single class",
    ),
    *(
        ("train", (), {"dataset": FRAME, **given}, line)
        for given, line in (
            ({"bacth_size": 4}, r"settings: unknown key 'bacth_size': did you mean 'batch_size'\?"),
            ({"epochs": 0}, r"settings: epochs: must be greater than or equal to 1, got 0"),
            ({"aux": "l3msk"}, r"did you mean 'l3mask'\?"),
            ({"split_column": "fold"}, r"there is no column 'fold' that names splits"),
            ({"dataset": "pydocs", "dataset_name": "x"}, r"name is for a data set in memory"),
            ({"config": RunConfig(), "epochs": 3}, r"by a RunConfig and by keywords \(epochs\)"),
            ({"config": RunConfig(dataset="x")}, r"and by keywords \(dataset\)"),
            ({"config": "run.yaml"}, r"config is the data set.* auxlearn\.load_config reads"),
            ({"ood": [FRAME]}, r"ood: a data set in memory cannot be named there"),
            ({"dataset_name": "../x"}, r"'../x' is not a plain name"),
            ({"dataset": "no/such"}, r"cannot be loaded"),
        )
    ),
    ("train", (), {"dataset": FRAME, "output": b"o"}, r"output: text is needed, not bytes"),
    ("train", (), {"jobs": "x"}, r"jobs: must be a whole number"),
    ("train", (), {"reporter": 5}, r"reporter: .*instance of Reporter"),
    ("train", (), {"dataset": FRAME, "split_column": 5}, r"split_column: must be text"),
    ("train", (), {"dataset": FRAME, "dataset_name": 5}, r"dataset_name: must be text"),
    ("train", (), {"dataset": FRAME, "output": "x" * 300}, r"output: .*is too long"),
    ("train", (), {"dataset": FRAME, "cache_dir": "a\0b"}, r"cache_dir: .*no null character"),
    *(
        ("train", (), {"dataset": rows(**more), "output": "o"}, line)
        for more, line in (
            ({"label": HUGE}, r"row 6: .*holds a number of 16,610 bits"),
            ({"label": Named()}, r"row 6: .*holds <Named instance"),
            ({"more": HUGE}, r"row 6: a number of 16,610 bits cannot be written as JSON"),
            ({"more": [HUGE]}, r"row 6: \[a number of .* cannot be written as JSON"),
            ({"more": ["\ud800"]}, r"row 6: .* cannot be written as JSON .*surrogates"),
            ({"more": {"\ud800": 1}}, r"row 6: .* cannot be written as JSON .*surrogates"),
            ({"more": CYCLE}, r"row 6: .* cannot be written as JSON .Circular reference"),
            ({"more": DEEP}, r"row 6: .* cannot be written as JSON .maximum recursion"),
            ({"more": {(1, 2): 3}}, r"row 6: .* cannot be written as JSON .keys must be str"),
            ({"more": Named()}, r"row 6: <Named .* cannot be written as JSON .no text"),
        )
    ),
    ("train", (), {"dataset": [{**one, HUGE: Named()} for one in rows()]}, r"row 1: <Named"),
    ("train", (), {"dataset": {HUGE: rows()}}, r"no train split, only a number of 16,610 bits"),
    ("train", (), {"dataset": {Named(): [3]}}, r"its columns are <Named instance"),
    ("train", (), {"dataset": FRAME.set_index(pandas.Index([HUGE, 1])).iloc[:1]}, r"bits|class"),
    ("train", (), {"seed": Named()}, r"seed: .*got <Named instance"),
    ("load_run", (Named(),), {}, rf"path: {A_PATH}, got <Named instance"),
    ("train", (), {"epochs": 10**400}, r"epochs: a number of at most 18 digits"),
    ("train", (), {"batch_size": 10**30}, r"batch_size: a number of at most 18 digits"),
    ("train", (), {"lora_rank": 10**8}, r"lora_rank: .*less than or equal to 1024"),
]


@pytest.mark.parametrize(
    ("name", "args", "more", "line"),
    CALLS,
    ids=[f"{name} {number}" for number, (name, *_) in enumerate(CALLS)],
)
def test_bad_arguments(name, args, more, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as found:
        getattr(auxlearn, name)(*args, **more)
    assert re.search(line, str(found.value)), found.value
    assert len(str(found.value).splitlines()) == 1
    assert len(str(found.value)) < 400
    assert list(tmp_path.iterdir()) == []


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
