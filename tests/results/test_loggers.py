"""What experiment trackers have received, read back by their own libraries."""

from __future__ import annotations

import sys
from contextlib import closing
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from auxlearn.core.errors import ConfigError
from auxlearn.core.progress import Reporter
from auxlearn.core.registry import REPORTERS
from auxlearn.results.loggers import ForwardingReporter, ReportedRun, RunReporter
from tests.helpers import one_line
from tests.results import examples

ENTRIES = examples.entries("l3mask")


class Listener(Reporter):
    def __init__(self) -> None:
        self.received: list[object] = []

    def message(self, text: str) -> None:
        self.received.append(text)

    def log(self, entry: dict[str, object]) -> None:
        self.received.append(entry)


@pytest.fixture
def reporter_of(tmp_path):
    """Return what a tracker is called through, with the run folder ``tmp_path/run``."""
    (tmp_path / "run").mkdir()

    def of(name: str, listener: Reporter | None = None) -> ForwardingReporter:
        run = ReportedRun(tmp_path / "run", {"encoder": "tiny", "epochs": 3, "aux": ["l3mask"]})
        return ForwardingReporter(listener or Reporter(), [REPORTERS.get(name)(run)])

    return of


def send(reporter, entries=ENTRIES):
    with closing(reporter):
        for entry in entries:
            reporter.log(entry)


def read_events(folder, name):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {event.step: pytest.approx(event.value) for event in events.Scalars(name)}


def test_entries_are_written_and_forwarded(reporter_of, tmp_path):
    listener = Listener()
    reporter = reporter_of("tensorboard", listener)
    assert not any((tmp_path / "run").iterdir())
    reporter.message("hello")
    send(reporter)
    assert listener.received == ["hello", *ENTRIES]
    folder = tmp_path / "run" / "tensorboard"
    assert read_events(folder, "loss/l3mask") == {10: 1.75, 20: 1.5, 30: 1.25, 40: 1.0}
    assert read_events(folder, "dev/accuracy") == {10: 0.65, 20: 0.75, 30: 0.65, 40: 0.55}


@pytest.fixture
def tracking(tmp_path, monkeypatch):
    """MLflow's client, with a store of its own."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return pytest.importorskip("mlflow.tracking")


def test_a_run_is_known_by_its_folder_wherever_that_is(tmp_path):
    first = ReportedRun(tmp_path / "runs" / "a", {})
    first.folder.mkdir(parents=True)
    known = first.identity()
    assert ReportedRun(first.folder, {}).identity() == known
    moved = first.folder.rename(tmp_path / "moved")
    assert ReportedRun(moved, {}).identity() == known
    first.folder.mkdir()  # another run in the place of the first
    assert first.identity() != known
    (moved / "tracker_id.txt").write_text("' OR 1=1")
    assert len(ReportedRun(moved, {}).identity()) == 16


@pytest.mark.parametrize(
    ("name", "module"),
    # What is imported first: a library whose import has begun would be broken for later tests.
    [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow.entities")],
)
def test_the_error_without_the_library_says_what_to_install(reporter_of, monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"pip install 'auxlearn\[{name}\]'"):
        reporter_of(name)


def test_a_store_that_mlflow_refuses_is_one_line(tracking, reporter_of, monkeypatch):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    with one_line(ConfigError, "reporter mlflow: ", "set `MLFLOW_ALLOW_FILE_STORE=true`"):
        reporter_of("mlflow")


def test_sets_whose_names_a_tracker_refuses_stay_apart(tracking, reporter_of, tmp_path):
    sets = ("age<50", "age>50", "in domain")
    scores = [SimpleNamespace(all=SimpleNamespace(metrics={"accuracy": n / 8})) for n in range(3)]
    results = SimpleNamespace(steps=7, evaluations=dict(zip(sets, scores, strict=True)))
    for name in ("mlflow", "tensorboard"):
        with closing(reporter_of(name)) as reporter:
            reporter.log_scores(results)
    client = tracking.MlflowClient()
    (experiment,) = client.search_experiments(filter_string="name = 'auxlearn'")
    (found,) = client.search_runs([experiment.experiment_id])
    assert sorted(found.data.metrics.values()) == [0, 0.125, 0.25]
    assert found.data.metrics["final/in domain/accuracy"] == 0.25
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert sorted(events.Scalars(tag)[0].value for tag in tags) == [0, 0.125, 0.25]


def test_what_mlflow_has_no_room_for_is_seen_to_be_cut(tracking, tmp_path):
    (tmp_path / "run").mkdir()
    run = ReportedRun(tmp_path / "run", {"labels": {"yes": ["no"] * 200}, "seed": 1})
    send(REPORTERS.get("mlflow")(run))
    client = tracking.MlflowClient()
    (experiment,) = client.search_experiments(filter_string="name = 'auxlearn'")
    (found,) = client.search_runs([experiment.experiment_id])
    labels = found.data.params["labels"]
    assert len(labels) <= 500
    assert "..." in labels
    assert found.data.params["seed"] == "1"


def test_what_a_tracker_changes_is_its_own():
    class Taking(RunReporter):
        name = "taking"

        def log(self, entry):
            entry.clear()

    listener = Listener()
    send(ForwardingReporter(listener, [Taking(ReportedRun(None, {}))]))
    assert listener.received == ENTRIES
    assert all(ENTRIES)


@pytest.mark.parametrize("error", [ConnectionError, SystemExit])
def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(error):
    class Failing(RunReporter):
        name = "failing"

        def log(self, entry):
            raise error("no\nserver")

    listener = Listener()
    send(ForwardingReporter(listener, [Failing(ReportedRun(None, {}))]))
    line = (
        f"reporter failing has failed ({error.__name__}: no server): the run continues without it"
    )
    assert listener.received == [line, *ENTRIES]
