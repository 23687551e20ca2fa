"""Comparisons, reports and ensembles of runs whose labels are no single classes."""

import json
from dataclasses import replace

import numpy as np
import pytest

import auxlearn
from auxlearn.comparison.scores import Predictions, scores_and_covariance
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import UserError
from auxlearn.core.files import write_text
from auxlearn.core.settings import OODSource
from auxlearn.data.dataset import Split
from auxlearn.data.ood import OODSet
from auxlearn.evaluation.metrics import evaluate
from auxlearn.kinds.base import kind_of
from auxlearn.kinds.dependency import spanning_tree
from auxlearn.kinds.predictions import LabelMap, SetPredictions as Evaluated
from auxlearn.results.predictions import write_predictions
from tests import helpers
from tests.cli.helpers import call
from tests.helpers import one_line
from tests.results import examples

NAMES = {
    "multi_label": ("a", "b", "c"),
    "regression": ("score",),
    "token_classification": ("B-LOC", "B-PER", "I-LOC", "I-PER", "O"),
    "dependency": ("dep", "nsubj", "nsubj:pass", "root"),
}
CASES = [(name, metric) for name in NAMES for metric in kind_of(name).metrics]


def labels_and_outputs(name, noise, seed, count=24):
    """True labels, the same for every seed, and logits that follow them more or less closely."""
    data, draw = np.random.default_rng(0), np.random.default_rng([seed, int(100 * noise)])
    truth, outputs = [], []
    for _ in range(count):
        if name == "regression":
            truth.append(float(np.round(data.normal(3, 1), 1)))  # some are equal
            outputs.append(truth[-1] + 0.2 + noise * draw.normal(size=1))
            continue
        words = int(data.integers(2, 6))
        if name == "multi_label":
            truth.append(tuple(np.flatnonzero(data.random(3) < 0.5).tolist()))
            wanted = 2.0 * np.isin(np.arange(3), truth[-1]) - 1
        elif name == "dependency":  # each word has an earlier one as its head, the first the root
            heads = [0, *(int(data.integers(1, word + 1)) for word in range(1, words))]
            truth.append(tuple((head, 3 if not head else int(data.integers(3))) for head in heads))
            wanted = np.zeros((words, words + 1, 5))
            for word, (head, relation) in enumerate(truth[-1]):
                wanted[word, head, 0] = wanted[word, :, 1 + relation] = 2.0
        else:
            begins = data.integers(0, 5, words)
            truth.append(tuple(4 if tag in (2, 3) else int(tag) for tag in begins))
            wanted = 2.0 * np.eye(5)[list(truth[-1])]
        outputs.append(wanted + noise * draw.normal(size=wanted.shape))
    return truth, outputs


def write_run(folder, name, noise, seed, **settings):
    """A finished run with predictions of dev and test, written without training."""
    kind, names = kind_of(name), NAMES[name]
    numbers, metric = tuple(range(len(names))), next(iter(kind.metrics))
    given = {"dataset": "data", "kind": name, "metric": metric, "seed": seed} | settings
    config = RunConfig(**given)
    truth, outputs = labels_and_outputs(name, noise, seed)
    write_text(folder / "config.yaml", config.to_yaml())
    for split in ("dev", "test"):
        path = folder / "predictions" / f"{split}.jsonl"
        labels, said = (
            [kind.written(one, names) for one in found]
            for found in (truth, map(kind.decode, outputs))
        )
        write_predictions(path, labels, said, map(kind.line, outputs))
    # As the file has them.
    stored = [kind.output(kind.stored(line, names)) for line in helpers.read_lines(path)]
    constant = kind.constant(truth)
    said = [kind.decode(one) for one in outputs]
    split = Split("test", tuple(map(str, truth)), tuple(truth), names, kind=kind)
    labels = LabelMap(names, numbers, numbers, len(names))
    ood = OODSet(OODSource(dataset="data", name="test"), split, labels)
    found = evaluate(ood, Evaluated(kind, names, truth, said, stored), None, None, constant)
    results = examples.results(*config.objective_names()[1:])
    metrics = {f"dev/{one}": value for one, value in found.all.metrics.items()}
    steps = ({"kind": "eval", "step": 10 * n, "epoch": float(n)} for n in (1, 2))
    helpers.write_splits(folder, metrics=[one | metrics for one in steps])
    replace(
        results,
        config=config.model_dump(mode="json"),
        digest=config.digest,
        dataset=replace(results.dataset, name="data", label_names=list(names)),
        best=replace(results.best, metric=config.metric, value=found.all.metrics[config.metric]),
        evaluations={"dev": found, "test": found},
    ).save(folder)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of each kind, four seeds of the single task and of a better method."""
    root = tmp_path_factory.mktemp("kinds")
    return {
        name: [
            write_run(root / name / f"{method}-{seed}", name, noise, seed, aux=aux)
            for method, noise, aux in (("single", 1.5, []), ("better", 0.6, ["random_mlm"]))
            for seed in range(4)
        ]
        for name in NAMES
    }


def brute_force(name, metric, truth, outputs):
    """The metric of the kind, by scikit-learn or scipy, without each of the examples."""
    kind, names = kind_of(name), NAMES[name]
    predicted = [kind.decode(one) for one in outputs]
    kept = [[row for row in range(len(truth)) if row != left] for left in range(len(truth))]
    return [
        kind.scores(*([one[row] for row in rows] for one in (truth, predicted, outputs)), names)[
            metric
        ]
        for rows in ([*range(len(truth))], *kept)
    ]


def test_a_data_set_without_the_metrics_asked_for_is_left_out_with_a_line(runs):
    both = [runs["multi_label"][0], runs["regression"][0]]
    found = auxlearn.compare(*both, metrics=["lrap"])
    assert [column.metric for block in found.blocks for column in block.columns] == ["lrap"]
    (note,) = (note for note in found.notes if "is left out: its runs have no lrap" in note)
    assert note in found.to_markdown()
    assert not any("is left out" in note for note in auxlearn.compare(*both).notes)


@pytest.mark.parametrize(("name", "metric"), CASES)
def test_the_covariance_is_that_of_leaving_out_each_example(name, metric):
    kind, names = kind_of(name), NAMES[name]
    found, expected = [], []
    for seed in range(2):
        truth, outputs = labels_and_outputs(name, 1.0, seed)
        predicted = [kind.decode(one) for one in outputs]
        found.append(kind.sums(truth, predicted, outputs, names))
        expected.append(brute_force(name, metric, truth, outputs))
    scores, covariance = scores_and_covariance(Predictions(kind, names, truth, found), metric)
    expected = np.array(expected)
    np.testing.assert_allclose(scores, expected[:, 0], rtol=1e-12)
    count = len(truth)
    jackknife = np.cov(expected[:, 1:], ddof=0) * (count - 1)
    np.testing.assert_allclose(covariance, jackknife, rtol=1e-9, atol=1e-15)
    if (name, metric) in (("regression", "mae"), ("multi_label", "accuracy")):
        single = [
            abs(t - p) if name == "regression" else float(t == p)
            for t, p in zip(truth, predicted, strict=True)
        ]
        assert covariance[1, 1] == pytest.approx(np.var(single, ddof=1) / count)


def test_equal_predictions_have_no_correlation():
    kind = kind_of("regression")
    truth, numbers = [1.0, 2.0, 4.0, 7.0], [0.1, 0.1, 0.1, 5.0]
    sums = kind.sums(truth, numbers, [np.array([n]) for n in numbers], ("score",))
    for metric in ("pearson", "spearman"):
        assert kind.jackknife(metric, sums, ("score",))[4] == 0  # without the one that differs
    constant = kind.sums(truth, [0.1] * 4, [np.array([0.1])] * 4, ("score",))
    assert (kind.jackknife("pearson", constant, ("score",)) == 0).all()


@pytest.mark.parametrize("label", ["PER", "a", "nsubj:pass"])
def test_one_label_or_type_of_spans_is_scored_by_its_counts(label):
    from sklearn.metrics import precision_recall_fscore_support

    name = {"a": "multi_label", "PER": "token_classification"}.get(label, "dependency")
    kind, names = kind_of(name), NAMES[name]
    truth, outputs = labels_and_outputs(name, 1.0, 0)
    predicted = [kind.decode(one) for one in outputs]
    sums = kind.sums(truth, predicted, outputs, names).sum(0)
    expected = kind.per_class(truth, predicted, names)[label]
    for part in ("precision", "recall", "f1"):
        assert kind.of_sums(f"{part}:{label}", sums, names) == pytest.approx(expected[part])
    if label == "a":
        one = [[0 in found for found in both] for both in (truth, predicted)]
        parts = precision_recall_fscore_support(*one, average="binary")
        assert kind.of_sums("recall:a", sums, names) == pytest.approx(parts[1])


@pytest.mark.parametrize("name", NAMES)
def test_methods_are_compared_by_the_metrics_of_the_kind(name, runs, tmp_path):
    metrics = list(kind_of(name).metrics)
    found = auxlearn.compare(*runs[name], metrics=metrics)
    (block,) = found.blocks
    assert [column.metric for column in block.columns] == metrics
    for column in block.columns:
        assert column.best == "random_mlm, fixed"
        recorded = [
            auxlearn.load_run(run).evaluations["test"].all.metrics[column.metric]
            for run in runs[name][4:]
        ]
        assert column.means["random_mlm, fixed"] == pytest.approx(np.mean(recorded))
        assert 0 < column.noises["single task"].examples < 1
    (pair,) = block.columns[0].pairs
    assert pair.first == "random_mlm, fixed"
    assert pair.seeds == 4
    (default,) = auxlearn.compare(*runs[name]).blocks[0].columns
    assert default.metric == metrics[0]
    drawn = name == "regression"  # plots of the others differ in names alone
    output = ["--output", tmp_path / "tables"] * drawn
    done = call("compare", *runs[name], "--show", "pairs", *output)
    assert done.exit_code == 0, done.output
    assert "random_mlm, fixed - single task" in done.output
    assert len(list((tmp_path / "tables").glob("*.pdf"))) == 3 * drawn


def test_the_smaller_error_is_the_better_one(runs, tmp_path):
    found = auxlearn.compare(*runs["regression"], metrics=["mae", "pearson"])
    error, correlation = found.blocks[0].columns
    assert error.means[error.best] < error.means["single task"]
    (pair,) = error.pairs
    assert pair.difference < 0
    assert pair.low < pair.difference < pair.high
    assert pair.beats > 0.5
    assert correlation.pairs[0].difference > 0
    frame = found.to_frame()
    assert list(frame[frame["metric"] == "mae"]["best"]) == [False, True]
    text = found.to_markdown(show=["pairs"])
    assert "Scores in percent (MAE in the unit of the labels) on test" in text
    assert f"**{error.means[error.best]:.3f} ± " in text
    assert f"| random_mlm, fixed - single task | {pair.difference:.3f} |" in text
    alone = auxlearn.compare(*runs["regression"], metrics=["mae"], against="single task")
    mean = frame.query("metric == 'mae' and method == 'single task'")["mean"].iloc[0]
    paper = {"source": "A paper", "row_axis": "method", "tables": []}
    for metric in ("mae", "accuracy"):  # no run here has the second one
        table = {"cell": {}, "columns": [[{}, "test"]], "rows": {"single task": [0.5]}}
        paper["tables"].append(table | {"metric": metric})
    (tmp_path / "paper.yaml").write_text(json.dumps(paper))  # which is YAML
    beside = auxlearn.compare(*runs["regression"], published=str(tmp_path / "paper.yaml"))
    error, share = beside.published_table()[0].to_dict("records")
    assert error["here"].startswith(f"{mean:.2f}")
    assert error["difference"] == f"{mean - 0.5:+.2f}"
    assert share["here"] == share["difference"] == "-"
    assert "MAE in the unit of the labels on test, mean" in alone.to_markdown()
    assert ("▲" in alone.to_markdown()) == pair.significant


def test_metrics_of_other_kinds_are_not_there(runs):
    done = call("compare", *runs["regression"], "--metric", "accuracy")
    assert done.exit_code == 2
    assert "there are no scores for accuracy" in done.output
    both = auxlearn.compare(*runs["multi_label"], metrics=["f1:b", "lrap"])
    assert [column.metric for column in both.blocks[0].columns] == ["f1:b", "lrap"]
    for wrong in ("pearson", "f1:B"):
        with one_line(UserError, f"there are no scores for {wrong}: choose what the runs have"):
            auxlearn.compare(*runs["multi_label"], metrics=["f1:b", wrong, "lrap"])


@pytest.mark.parametrize("name", NAMES)
def test_an_ensemble_averages_what_the_kind_stores(name, runs):
    kind, names = kind_of(name), NAMES[name]
    members = runs[name][4:]
    found = auxlearn.ensemble(*members)
    by_run = [labels_and_outputs(name, 0.6, seed) for seed in range(4)]
    truth = by_run[0][0]
    stored = [
        [kind.stored({"label": label, "predicted": kind.decode(one), **kind.line(one)}, names)
         for label, one in zip(truth, outputs, strict=True)]
        for _, outputs in by_run
    ]  # fmt: skip
    mean = [np.mean(one, axis=0) for one in zip(*stored, strict=True)]
    for own, other in zip(found.probabilities, mean, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-7)
    metric = "accuracy"
    if name == "regression":
        metric, expected = "pearson", np.corrcoef(truth, [float(one[0]) for one in mean])[0, 1]
    elif name == "multi_label":
        said = [tuple(np.flatnonzero(one >= 0.5).tolist()) for one in mean]
        expected = np.mean([a == b for a, b in zip(truth, said, strict=True)])
    elif name == "dependency":
        said = []
        for one in mean:
            heads, relations = spanning_tree(np.log(one[:, : len(one) + 1])), one[:, len(one) + 1 :]
            said.append(tuple(zip(heads, relations.argmax(-1).tolist(), strict=True)))
        right = [
            head == other and {one, two} in ({one}, {1, 2})  # nsubj:pass is nsubj
            for both in zip(truth, said, strict=True)
            for (head, one), (other, two) in zip(*both, strict=True)
        ]
        metric, expected = "las", np.mean(right)
    else:
        said = np.concatenate([one.argmax(-1) for one in mean])
        expected = np.mean(said == np.concatenate(truth))
    assert found.scores.metrics[metric] == pytest.approx(expected)
    assert list(found.to_frame().columns) == list(kind.metrics)
    assert found.mean(next(iter(kind.metrics))) == pytest.approx(
        np.mean([auxlearn.load_run(run).best.value for run in members])
    )
    done = call("ensemble", *members, "--json")
    assert json.loads(done.stdout)["ensemble"].keys() >= kind.metrics.keys()


def test_thresholds_of_an_ensemble_are_chosen_on_dev(runs, tmp_path):
    members = [
        write_run(tmp_path / str(seed), "multi_label", 1.5, seed, thresholds="dev")
        for seed in range(2)
    ]
    found = auxlearn.ensemble(*members)
    kind = kind_of("multi_label")
    dev = [kind.output(one) for one in found.probabilities]  # test has the examples of dev
    np.testing.assert_array_equal(found.thresholds, kind.best_thresholds(found.labels, dev))
    said = [kind.decode(one, found.thresholds) for one in dev]
    right = [a == b for a, b in zip(found.labels, said, strict=True)]
    assert found.scores.metrics["accuracy"] == np.mean(right)


def test_a_sweep_chooses_the_smaller_error(tmp_path):
    from auxlearn.sweeps.plan import chosen_trials, expand_cells, mean_dev, plan_trials
    from auxlearn.sweeps.sweep_file import SweepFile

    base = {"dataset": "data", "kind": "regression", "metric": "mae"}
    grid = {"learning_rate": [1e-3, 1e-4]}
    select = {"over": ["learning_rate"]}
    sweep = SweepFile(name="s", base=base, grid=grid, seeds=(0, 1), select=select)
    trials = plan_trials(sweep, expand_cells(sweep))
    dev = {one.digest: {"mae": one.config.learning_rate} for one in trials}
    chosen = chosen_trials(sweep, trials, dev.get)
    assert chosen == {one.digest for one in trials if one.config.learning_rate == 1e-4}
    assert mean_dev(trials[:2], sweep, dev.get) == pytest.approx(-1e-3)
