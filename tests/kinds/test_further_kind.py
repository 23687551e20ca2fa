"""A further kind of labels is one file: counts, by Poisson regression."""

import shutil

import numpy as np
import pytest
from sklearn.metrics import mean_poisson_deviance

import auxlearn
from auxlearn.core.errors import UserError
from auxlearn.core.registry import KINDS
from auxlearn.core.settings import Columns
from auxlearn.data.load import load_dataset
from auxlearn.kinds.base import kind_of
from tests import helpers
from tests.helpers import one_line, read_lines

PLUGIN = """
from math import inf

import numpy as np
from torch.nn.functional import poisson_nll_loss

from auxlearn.kinds.regression import Regression
from auxlearn.plugins import DataError, Metric, register_kind


@register_kind("counts")
class Counts(Regression):
    "A whole number of at least 0; the mean Poisson loss of a head that predicts its logarithm."

    metrics = {"deviance": Metric("Poisson deviance", "deviance", is_error=True, most=inf)}
    unit = "nats"

    def recognises(self, table, columns):
        return False  # numbers may be anything: it is named

    def read(self, table, column, columns, form):
        found = super().read(table, column, columns, form)
        for row, number in enumerate(found.labels):
            if number < 0 or number % 1:
                raise DataError(f"{table.place(row)}: {number:g} is no count: 0, 1, 2 ...")
        return found

    def loss(self, logits, targets):
        return poisson_nll_loss(logits.squeeze(-1), targets)

    def smooth(self, logits, targets, metric):
        return self.loss(logits, targets)

    def decode(self, output, thresholds=None):
        return float(np.exp(output[0]))

    def output(self, stored):
        return np.log(np.maximum(stored, 1e-8))

    def scores(self, truth, predicted, outputs, names):
        from sklearn.metrics import mean_poisson_deviance

        return {"deviance": mean_poisson_deviance(truth, np.maximum(predicted, 1e-8))}

    def sums(self, truth, predicted, stored, names):
        y, p = np.asarray(truth, dtype=float), np.maximum(predicted, 1e-8)
        return np.stack([np.ones(len(y)), 2 * (y * np.log(np.maximum(y, 1e-300) / p) - y + p)], 1)

    def of_sums(self, metric, sums, names):
        return sums[..., 1] / sums[..., 0]
"""


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """The folder of a plug-in file, data with counts, and a run."""
    folder = tmp_path_factory.mktemp("counts")
    (folder / "counts.py").write_text(PLUGIN)
    texts = [" ".join(["rain"] * (n % 4) + ["sun"] * (n % 3 + 1)) for n in range(48)]
    rows = [{"text": text, "label": text.count("rain")} for text in texts]
    data = helpers.write_splits(folder / "data", train=rows[:32], dev=rows[32:], test=rows)
    run = auxlearn.train(
        dataset=str(data),
        kind="counts",
        plugins=[str(folder / "counts.py")],
        aux=["random_mlm"],
        weights={"meta": {"horizon": "steps", "warmup_steps": 1}},
        epochs=4,
        batch_size=8,
        learning_rate=3e-3,
        output=str(folder / "run"),
        verbose=False,
    )
    yield folder, rows, run
    KINDS._registered.pop("counts")


def test_it_trains_is_evaluated_and_exported(counted):
    _, _, run = counted
    found = run.evaluations["test"]
    assert run.config["metric"] == run.best.metric == "deviance"
    lines = read_lines(run.folder / "predictions" / "test.jsonl")
    expected = mean_poisson_deviance(
        *([one[key] for one in lines] for key in ("label", "predicted"))
    )
    assert found.all.metrics["deviance"] == pytest.approx(expected)
    assert found.all.metrics["deviance"] < found.majority.metrics["deviance"]
    assert "- deviance" in (run.folder / "model" / "README.md").read_text()
    assert "plug-in file counts.py" in (run.folder / "inputs.json").read_text()


def test_it_predicts_and_is_compared(counted, tmp_path):
    folder, rows, run = counted
    predicted = auxlearn.predict(run, [row["text"] for row in rows])["predicted_label"]
    stored = [one["predicted"] for one in read_lines(run.folder / "predictions" / "test.jsonl")]
    np.testing.assert_allclose(predicted, stored, rtol=1e-5)
    again = auxlearn.evaluate(run, folder / "data")["data"]
    assert again.all.metrics == pytest.approx(run.evaluations["test"].all.metrics)
    (column,) = auxlearn.compare(run, sets=["test"]).blocks[0].columns
    assert (column.metric, column.examples) == ("deviance", 48)


def test_a_reader_without_the_plug_in_says_so(counted, monkeypatch):
    folder, _, run = counted
    monkeypatch.delitem(KINDS._registered, "counts")
    readers = (
        lambda path: auxlearn.predict(path, ["rain"]),
        lambda path: auxlearn.evaluate(path, folder / "data"),
        auxlearn.compare,
        auxlearn.report,
    )
    for reader in readers:
        with one_line(UserError, r"of the kind 'counts', of a plug-in that is not known here (/"):
            reader(run.folder)


def test_settings_are_known_whatever_has_become_of_the_plug_in(counted, tmp_path):
    folder, _, run = counted
    shutil.copytree(run.folder, tmp_path / "run")
    (folder / "counts.py").rename(folder / "gone.py")
    assert auxlearn.load_run(tmp_path / "run") == run
    (folder / "gone.py").rename(folder / "counts.py")
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("epochs: 4", "epochs: 5"))
    with one_line(UserError, "config.yaml has been changed since it was written"):
        auxlearn.report(tmp_path / "run")


def test_what_does_not_fit_is_one_line(counted, tmp_path):
    folder, rows, _ = counted
    data = helpers.write_splits(tmp_path, train=[*rows, {"text": "snow", "label": 0.5}])
    with one_line(UserError, "train.jsonl:49: 0.5 is no count"):
        load_dataset(data, columns=Columns(kind="counts"))
    given = {"dataset": str(folder / "data"), "kind": "counts", "output": str(tmp_path / "run")}
    with one_line(UserError, "loss: focal is not of counts: choose cross_entropy, huber"):
        auxlearn.train(**given, loss="focal", verbose=False)
    with pytest.raises(UserError, match="unknown kind of labels 'count': did you mean 'counts'"):
        kind_of("count")


#: By what is wrong in a method of a kind: the method, and what the one line says.
FAULTS = {
    "read fails": ("def read(self, *_): return [][1]", "failed in read (IndexError"),
    "read returns nothing": ("def read(self, *_): return None", "one label for each row"),
    "leaves the program": ("def texts(self, *_): raise SystemExit(0)", "SystemExit: 0"),
    "targets fail": ("def targets(self, *_): 1 / 0", "ZeroDivisionError: division by zero"),
    "a loss fails": ("def loss(self, *_): return [][1]", "failed in loss (IndexError"),
    "a loss by example": (
        "def loss(self, logits, targets): return logits.sum(-1)",
        "the loss of 'faulty' (Faulty of ",
    ),
    "decode fails": ("def decode(self, *_): return {}[1]", "failed in decode (KeyError"),
    "no scores": ("def scores(self, *_): return {}", "has no pearson"),
    "no metrics": ("metrics = {}", "metrics is empty: give one at least, by its name"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kind_that_fails_is_named_in_one_line(fault, tmp_path, one_layer, monkeypatch):
    monkeypatch.setattr(KINDS, "_registered", dict(KINDS._registered))
    method, said = FAULTS[fault]
    rows = [{"text": line, "label": place / 2} for place, line in enumerate(helpers.LINES)]
    helpers.write_splits(tmp_path / "data", train=rows, dev=rows)
    plugin = tmp_path / "faulty.py"
    plugin.write_text(
        "from auxlearn.kinds.regression import Regression\n"
        "from auxlearn.plugins import register_kind\n"
        '@register_kind("faulty")\nclass Faulty(Regression):\n'
        f"    def recognises(self, *_): return False\n    {method}\n"
    )
    with one_line(UserError, said):
        auxlearn.train(
            dataset=tmp_path / "data",
            encoder=one_layer,
            kind="faulty",
            plugins=[plugin],
            epochs=1,
            device="cpu",
            output=tmp_path / "run",
            verbose=False,
        )
