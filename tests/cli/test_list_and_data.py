"""``auxlearn list`` and ``auxlearn data check``."""

import pytest

from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS
from auxlearn.core.settings import ENCODERS
from auxlearn.data.load import dataset_names
from tests.cli.helpers import call, error, write_split


@pytest.mark.parametrize(
    ("what", "registry"), [("tasks", TASKS), ("losses", LOSSES), ("weightings", WEIGHTINGS)]
)
def test_plug_ins_are_listed_with_a_line_each_and_one_with_its_options(what, registry):
    lines = [" ".join(line.split()) for line in call("list", what).stdout.splitlines()]
    assert len(lines) == len(registry.names())
    for name in registry.names():
        cls = registry.get(name)
        if not cls.__module__.startswith("auxlearn."):
            continue  # what other tests have registered
        assert f"{name} {cls.__doc__.splitlines()[0]}" in lines
    first = next(iter(registry.names()))
    for name in (first, "fixed") if what == "weightings" else (first,):
        flat = " ".join(call("list", what, name).stdout.split())
        for option, field in registry.options(name).model_fields.items():
            assert f" --{name}-{option} ".replace("_", "-") in flat
            assert " ".join((field.description or "").split()) in flat
    if what == "weightings":
        assert "--fixed-alpha Share of the auxiliary tasks" in flat
        assert "[default: 0.3]" in flat


def test_without_a_kind_all_names_are_listed():
    flat = " ".join(call("list").stdout.split())
    for known in (TASKS.names(), LOSSES.names(), WEIGHTINGS.names(), ENCODERS, dataset_names()):
        assert ", ".join(known) in flat


def test_encoders_and_data_sets_are_listed_with_their_titles():
    for what, known in (
        ("encoders", {name: card.description for name, card in ENCODERS.items()}),
        ("datasets", dataset_names()),
    ):
        lines = call("list", what).stdout.splitlines()
        assert [tuple(line.split(None, 1)) for line in lines] == list(known.items())
    assert error("list", "models").startswith("invalid value for 'WHAT': 'models' is not one of")


@pytest.fixture
def data(tmp_path):
    """A folder with a repeated text, a contradiction and a leak."""
    folder = tmp_path / "reviews"
    train = [("good", "yes"), ("bad", "no"), ("good", "no"), ("bad", "no"), ("fine", "yes")]
    write_split(folder / "train.tsv", train)
    write_split(folder / "dev.tsv", [("new", "yes"), ("poor", "no")])
    write_split(folder / "test.tsv", [("bad", "no"), ("good.", "yes"), ("fresh", "yes")])
    return folder


def test_data_check_prints_counts_and_warnings(data):
    lines = call("data", "check", data).stdout.splitlines()
    cells = [line.split() for line in lines]
    assert lines[0].startswith("reviews, fingerprint ")
    for row in (
        ["label", "train", "dev", "test"],
        ["no", "3", "1", "1"],
        ["yes", "2", "1", "2"],
        ["all", "examples", "5", "2", "3"],
        ["train", "2", "-", "-"],
        ["test", "0", "1", "2"],
    ):
        assert row in cells
    assert any("1 of 3 examples is also in train (2 if only" in line for line in lines)
    assert "- texts with more than one label: 1" in lines


def test_data_check_finds_no_problem_only_where_it_has_nothing_to_say(tmp_path):
    for name, words in {"train": "a b c d", "dev": "e f g h", "test": "i j k l"}.items():
        rows = zip(words.split(), "xyxy", strict=True)
        write_split(tmp_path / "set" / f"{name}.tsv", list(rows))
    assert call("data", "check", tmp_path / "set").stdout.endswith("\n- no problems found\n")
    (tmp_path / "set" / "scores.csv").write_text("text,label,log_probability\na,x,-1\n")
    assert call("data", "check", tmp_path / "set").stdout.splitlines()[-1].endswith("holds scores")


def test_data_check_names_the_splits_of_which_texts_are_cut(tmp_path):
    for name, words in {"train": "a b c d", "dev": "e f g h", "test": "i j k l"}.items():
        rows = [(letter, label) for letter, label in zip(words.split(), "xyxy", strict=True)]
        rows += [(" ".join(["long"] * 40) + name, "x")] if name == "test" else []
        write_split(tmp_path / "set" / f"{name}.tsv", rows)
    lines = call("data", "check", tmp_path / "set", "--encoder", "tiny", "--max-length", 32).stdout
    said = "- test: 20.0% of the texts are longer than the 32 of max_length and are cut"
    assert lines.splitlines()[-1] == said
