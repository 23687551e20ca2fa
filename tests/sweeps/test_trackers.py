"""Runs, branches and trials at experiment trackers, read back by the trackers' own libraries."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import auxlearn
from auxlearn import train
from auxlearn.core.config import RunConfig
from auxlearn.results.folder import RunFolder
from auxlearn.results.record import RunResults
from auxlearn.training.loop import TrainingLoop


def read_tensorboard(place):
    found = {}
    for folder in place.rglob("tensorboard"):
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        names = events.Tags()["scalars"]
        rows = {name: {one.step: one.value for one in events.Scalars(name)} for name in names}
        found[folder.parent.name] = rows
    return found


def wandb_records(content):
    """Yield the records of an offline run: a header of 7 bytes, then a log in LevelDB's format."""
    wandb_internal_pb2 = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    block, place, parts = 32768, 7, b""
    while place + 7 <= len(content):
        if block - place % block < 7:  # too little room for a header: padding
            place += block - place % block
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield wandb_internal_pb2.Record.FromString(parts)
            parts = b""


def read_wandb(place):
    pytest.importorskip("wandb").teardown()  # as the end of a process does
    found, known = {}, {}
    for file in sorted(place.glob("wandb/offline-run-*/run-*.wandb")):
        for record in wandb_records(file.read_bytes()):
            if record.run.run_id:
                name = record.run.display_name.rpartition("/")[2]
                assert known.setdefault(name, record.run.run_id) == record.run.run_id
                rows = found.setdefault(name, {})
            row = {
                one.nested_key[0] if one.nested_key else one.key: one for one in record.history.item
            }
            for name, item in row.items():
                rows.setdefault(name, {})[int(row["step"].value_json)] = float(item.value_json)
    assert len({*known.values()}) == len(known)
    return found


def read_mlflow(place):
    client = pytest.importorskip("mlflow.tracking").MlflowClient()
    found = {}
    for run in client.search_runs([client.get_experiment_by_name("auxlearn").experiment_id]):
        name = run.info.run_name.rpartition("/")[2]
        assert run.info.status == "FINISHED"
        assert name not in found
        found[name] = {
            metric: {
                one.step: one.value for one in client.get_metric_history(run.info.run_id, metric)
            }
            for metric in run.data.metrics
        }
    return found


READERS = {"tensorboard": read_tensorboard, "wandb": read_wandb, "mlflow": read_mlflow}


@pytest.fixture(params=["tensorboard", "wandb", "mlflow"])
def tracked(request, tmp_path, monkeypatch, fast_settings):
    """Return settings of a tracked run, and what returns all that its tracker has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    settings = fast_settings | {"report_to": [request.param], "output": str(tmp_path / "run")}
    return settings, lambda: READERS[request.param](tmp_path)


def check(rows, folder):
    """Check what a tracker has of a run, whose folder must still be a sound one."""
    results = RunResults.load(folder)
    entries = [one for one in RunFolder(folder).read_metrics() if one["kind"] == "eval"]
    course = {one["step"]: one["dev/accuracy"] for one in entries}
    assert rows["dev/accuracy"] == pytest.approx(course)
    assert [*course] == ([3, 6] if results.steps else [0])  # a point between runs has no steps
    for name, found in results.evaluations.items():
        for metric, value in found.all.metrics.items():
            assert rows[f"final/{name}/{metric}"] == {results.steps: pytest.approx(value)}


def test_a_stopped_run_continues_the_same_one(tracked, tmp_path, monkeypatch):
    settings, read = tracked
    step = TrainingLoop.run_step

    def failing(self):
        if self.state.step == 4:
            raise InterruptedError
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "run_step", failing)
        with pytest.raises(InterruptedError):
            auxlearn.train(**settings)
    results = auxlearn.train(**settings)
    (rows,) = read().values()
    check(rows, tmp_path / "run")
    assert len(auxlearn.predict(tmp_path / "run", ["a text"])) == 1
    assert auxlearn.train(**settings) == results


@pytest.mark.parametrize("tracked", ["tensorboard"], indirect=True)
def test_each_branch_is_a_run_of_its_own(tracked, tmp_path):
    settings, read = tracked
    config = RunConfig.model_validate(settings | {"aux": ["random_mlm"], "weights": "meta"})
    results = train(config)
    found = read()
    assert found.keys() == {one.folder.rpartition("/")[2] for one in results.branches}
    assert len(found) == 3
    for branch in results.branches:
        check(found[branch.folder.rpartition("/")[2]], tmp_path / "run" / branch.folder)
    assert train(config) == results
