"""The inputs of a run: recorded, and compared when it is resumed or requested again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from auxlearn import RunConfig, train
from auxlearn.core.errors import RunError
from auxlearn.core.registry import TASKS
from auxlearn.core.settings import PluginChoice
from auxlearn.results.folder import recorded_inputs
from tests import helpers

PLUGIN = """
from auxlearn import register_task
from auxlearn.tasks.random_mlm import RandomMLM

@register_task("NAME")
class Words(RandomMLM):
    def prepare(self, context):
        super().prepare(context)
        self.words = context.track_file(WORDS).read_text().split()
"""


def examples(first: int, count: int) -> list[dict[str, str]]:
    return [
        {"body": helpers.LINES[number], "label": helpers.LABELS[number % 3]}
        for number in range(first, first + count)
    ]


def write_inputs(place: Path, encoder: Path) -> RunConfig:
    """Write everything that a run can read, and return its configuration."""
    parts = {"train": examples(0, 12), "dev": examples(12, 6), "test": examples(18, 6)}
    helpers.write_splits(place / "data", **parts)
    helpers.write_splits(place / "other", test=examples(3, 6))
    helpers.write_splits(place, validation=examples(6, 6), corpus=examples(0, 8))
    (place / "words.txt").write_text("the of and")
    (place / "words.py").write_text(
        PLUGIN.replace("WORDS", repr(str(place / "words.txt"))).replace("NAME", place.name)
    )
    shutil.copytree(encoder, place / "encoder")
    return RunConfig.model_validate(
        {
            "dataset": str(place / "data"),
            "text_column": "body",
            "ood": [{"dataset": str(place / "other"), "text_column": "body"}],
            "encoder": str(place / "encoder"),
            "plugins": [str(place / "words.py")],
            "aux": [{"random_mlm": {"corpus": str(place / "corpus.jsonl")}}, place.name],
            "weights": {"meta": {"horizon": "steps", "split": str(place / "validation.jsonl")}},
            "epochs": 2,
            "batch_size": 4,
            "eval_steps": 2,
            "patience": 0,
            "learning_rate": 1e-3,
            "device": "cpu",
            "output": str(place / "run"),
        }
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory, one_layer):
    place = tmp_path_factory.mktemp("world")
    config = write_inputs(place, one_layer)
    return place, config, train(config)


@pytest.fixture
def nothing_computed(monkeypatch):
    computed = ("setup.load_initial_encoder", "setup.Tokenization.tokenize_split")
    for name in (*computed, "run.TrainingLoop"):
        fail = Mock(side_effect=AssertionError(f"{name} was called"))
        monkeypatch.setattr(f"auxlearn.training.{name}", fail)


def test_the_record_names_every_input(finished):
    place, _, _ = finished
    recorded = recorded_inputs(place / "run")
    assert set(recorded) == {
        "data set",
        "out-of-distribution set other",
        "validation file",
        "encoder",
        "plug-in file words.py",
        "auxlearn",
        f"file {place / 'corpus.jsonl'} that random_mlm reads",
        f"file {place / 'words.txt'} that {place.name} reads",
    }
    assert set(recorded["data set"]) == {"train", "dev", "test"}
    assert {"config.json", "model.safetensors"} < set(recorded["encoder"])


def test_a_finished_run_is_returned_while_nothing_has_changed(finished, nothing_computed):
    place, config, results = finished
    for path in (place / "data").iterdir():
        path.touch()
    assert train(config) == results


def test_every_set_whose_texts_are_cut_is_named(tmp_path, one_layer):
    config = write_inputs(tmp_path / "world", one_layer)
    further = {"dataset": config.dataset, "text_column": "body"}
    changes = {
        "ood": [{**further, "name": "twin", "split": "dev", "pairs": "test"}],
        "aux": [config.aux[0], {"supervised": {"datasets": [{**further, "name": "more"}]}}],
        "epochs": 1,
        "max_length": 4,
    }
    reporter = helpers.Messages()
    train(RunConfig.model_validate(config.model_dump(exclude_unset=True) | changes), reporter)
    lines = [line for line in reporter.lines if line.startswith("tokens per text of ")]
    assert all("are longer than the 4 of max_length and are cut" in line for line in lines)
    assert [line.removeprefix("tokens per text of ").split(":")[0] for line in lines] == [
        *("train", "dev", "test", "twin", "twin, paired", "the validation examples"),
        *(str(tmp_path / "world" / "corpus.jsonl"), "more, train", "more, dev"),
    ]


CHANGES = [
    ("data/train.jsonl", "the data set (train) has"),
    ("data/dev.jsonl", "the data set (dev) has"),
    ("other/test.jsonl", "the out-of-distribution set other (test) has"),
    ("validation.jsonl", "the validation file ({place}/validation.jsonl) has"),
    ("encoder/model.safetensors", "the encoder (model.safetensors) has"),
    ("encoder/tokenizer.json", "the encoder (tokenizer.json) has"),
    ("corpus.jsonl", "the file {place}/corpus.jsonl that random_mlm reads (content) has"),
    ("words.txt", "the file {place}/words.txt that {place.name} reads (content) has"),
    ("words.py", "the plug-in file words.py (content) has"),
]
OTHERWISE = ": choose another output, or delete {} to train again"


def change(path: Path) -> None:
    """Change the class of one example of a table; append a byte to any other file."""
    content = path.read_text(encoding="latin-1")
    if path.suffix == ".jsonl":
        first, rest = content.split("\n", 1)
        row = json.loads(first)
        row["label"] = next(label for label in helpers.LABELS if label != row["label"])
        content = json.dumps(row) + "\n" + rest
    else:
        content += "\n"
    path.write_text(content, encoding="latin-1")


@contextmanager
def changed(path: Path, how: Callable[[Path], object] = change) -> Iterator[None]:
    """Change a file for a while."""
    kept = path.read_bytes()
    how(path)
    try:
        yield
    finally:
        path.write_bytes(kept)


@pytest.mark.parametrize(("name", "what"), CHANGES)
def test_a_finished_run_is_refused_when_an_input_has_changed(
    finished, nothing_computed, name, what
):
    place, config, results = finished
    with changed(place / name), pytest.raises(RunError) as caught:
        train(config)
    run, said = place / "run", f"{what.format(place=place)} changed since"
    assert str(caught.value) == f"{run} is finished, but {said}{OTHERWISE.format(run)}"
    assert train(config) == results


def test_a_new_split_two_changes_at_once_and_another_version_of_the_package(finished, monkeypatch):
    place, config, _ = finished
    both = r"the data set \(hard\), .*corpus.jsonl .* have changed"
    helpers.write_splits(place / "data", hard=examples(0, 3))
    with changed(place / "corpus.jsonl"), pytest.raises(RunError, match=both):
        train(config)
    (place / "data" / "hard.jsonl").unlink()
    monkeypatch.setattr("auxlearn.training.inputs.__version__", "99.0")
    with pytest.raises(RunError, match=r"but the auxlearn \(version\) has changed since"):
        train(config)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("data", ["the data set is not there", "the out-of-distribution set other is not there"]),
        ("corpus.jsonl", ["corpus.jsonl that random_mlm reads is not there to compare"]),
        ("run/inputs.json", ["has no inputs.json: whether its data have changed is unknown"]),
    ],
)
def test_results_are_returned_with_a_note_where_an_input_is_missing(
    finished, nothing_computed, name, lines
):
    place, config, results = finished
    messages = helpers.Messages()
    (place / name).rename(place / "hidden")
    try:
        assert train(config, messages) == results
    finally:
        (place / "hidden").rename(place / name)
    *notes, last = messages.lines
    assert last.endswith("is finished: its results are read")
    assert len(notes) == len(lines)
    for line, note in zip(lines, notes, strict=True):
        assert line in note
        assert "\n" not in note


def test_data_that_can_no_longer_be_read_have_changed(finished):
    place, config, _ = finished
    path = place / "data" / "train.jsonl"
    said = r"but the data set \(.*train.jsonl.*13.*has changed"
    with (
        changed(path, lambda path: path.write_text(path.read_text() + "{no json\n")),
        pytest.raises(RunError, match=said),
    ):
        train(config)


@pytest.fixture
def killed(tmp_path, one_layer):
    def make(steps: int) -> RunConfig:
        config = write_inputs(tmp_path, one_layer)
        helpers.kill_before_step(steps, config)
        return config

    return make


def test_a_run_is_not_resumed_on_other_inputs(killed, tmp_path):
    config = killed(3)
    for name in ("data/train.jsonl", "words.txt"):
        with changed(tmp_path / name), pytest.raises(RunError) as caught:
            train(config)
        what = dict(CHANGES)[name].format(place=tmp_path)
        run, said = tmp_path / "run", f"{what} changed since it began"
        expected = f"the run in {run} cannot be resumed, as {said}{OTHERWISE.format(run)}"
        assert str(caught.value) == expected


def test_a_run_killed_before_its_first_checkpoint_begins_with_the_present_inputs(killed, tmp_path):
    config = killed(1)
    assert not (tmp_path / "run" / "checkpoint" / "latest.json").exists()
    before = recorded_inputs(tmp_path / "run")
    change(tmp_path / "corpus.jsonl")
    change(tmp_path / "data" / "train.jsonl")
    train(config)
    after = recorded_inputs(tmp_path / "run")
    assert after["data set"]["train"] != before["data set"]["train"]
    assert after["data set"]["dev"] == before["data set"]["dev"]
    corpus = f"file {tmp_path / 'corpus.jsonl'} that random_mlm reads"
    assert after[corpus] != before[corpus]
    train(config)  # its results are those of the present inputs


def test_a_run_of_an_installed_plug_in_is_refused_when_its_code_or_version_has_changed(
    tmp_path, one_layer, monkeypatch
):
    digests = {"module someones.code": "1", "distribution someones": "1.0"}
    monkeypatch.setattr(TASKS, "code_digests", lambda name: dict(digests))
    changes = {"plugins": (), "aux": (PluginChoice(name="random_mlm"),), "ood": (), "epochs": 1}
    config = write_inputs(tmp_path, one_layer).model_copy(update=changes)
    results = train(config)
    assert train(config) == results
    for name in digests:
        with monkeypatch.context() as patch:
            patch.setitem(digests, name, "2")
            with pytest.raises(RunError, match=rf"the task random_mlm \({name}\) has changed"):
                train(config)
