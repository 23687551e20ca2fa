"""Runs on labels of every kind: trained, resumed, exported, evaluated, compared by meta."""

import json
import random
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from safetensors.torch import load_file

import auxlearn
from auxlearn.core.errors import UserError
from auxlearn.core.progress import Reporter
from auxlearn.mask_analysis.masks import inspect_masks
from auxlearn.results.folder import RunFolder
from tests import helpers
from tests.cli.helpers import call
from tests.helpers import read_lines
from tests.trained import example

KINDS = ("multi_label", "regression", "token_classification", "dependency")

#: What takes several runs is tested with one kind in every run of the tests, with all in the slow.
ONE_AND_SLOW = [
    kind if kind == "token_classification" else pytest.param(kind, marks=pytest.mark.slow)
    for kind in KINDS
]
FIRST = {
    "multi_label": "micro_f1",
    "regression": "pearson",
    "token_classification": "span_f1",
    "dependency": "las",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("kinds")
    for kind in KINDS:
        draw = random.Random(0)
        sizes = {"train": 40, "dev": 16, "test": 16}
        parts = {name: [example(kind, draw) for _ in range(n)] for name, n in sizes.items()}
        helpers.write_splits(root / kind, **parts)
    return root


def settings(folders, data, **changes):
    base = {"epochs": 2, "batch_size": 8, "max_length": 32, "learning_rate": 1e-3}
    if data == "dependency":  # no other kind is to be named
        base["kind"] = data
    return base | {"dataset": str(folders / data), "verbose": False} | changes


@pytest.fixture
def train(folders, tmp_path, one_layer):
    """Train on the data of a kind, into a folder of the test; the smallest encoder is enough."""

    def run(kind, name="run", /, **changes):
        given = settings(folders, kind, **changes)
        small = {} if "init_from" in changes else {"encoder": str(one_layer)}
        return auxlearn.train(**small | given, output=str(tmp_path / name))

    return run


#: Labels of the further sets, which spell them in another way, by those of the model.
ELSEWHERE = {
    "multi_label": {"John": "Johannes", "Paris": "paris"},
    "token_classification": {"B-PER": "B-PERSON"},
    "dependency": {"det": "determiner", "dep": "DEP"},
}


def elsewhere(folders, kind):
    """The test examples again, other labels for the same, in two places; dev as their partners."""
    folder = folders / f"{kind}_elsewhere"
    names = ELSEWHERE.get(kind, {})
    for split, name in (("test", "test"), ("dev", "twin")):
        rows = read_lines(folders / kind / f"{split}.jsonl")
        for number, row in enumerate(rows):
            for key in {"label", "tags", "deprel"} & row.keys() if names else ():
                row[key] = [names.get(one, one) for one in row[key]]
            row["place"] = "here" if number % 3 else "there"
        helpers.write_splits(folder, **{name: rows})
    given = {"name": "elsewhere", "dataset": str(folder), "subsets": ["place"]}
    if kind != "regression":
        given["pairs"] = "twin"
        given["labels"] = {k: v for k, v in names.items() if k.casefold() != v.casefold()}
    return given


@pytest.fixture(scope="module")
def finished(folders, tmp_path_factory):
    """A run of each kind with masked language modelling beside it."""
    root = tmp_path_factory.mktemp("runs")
    given = {"aux": ["random_mlm"], "learning_rate": 2e-3}
    return {
        kind: auxlearn.train(
            **settings(folders, kind, **given, output=str(root / kind)),
            ood=[elsewhere(folders, kind)],
        )
        for kind in KINDS
    }


def further(folders, kinds):
    return [{"dataset": str(folders / kind), "kind": kind} for kind in kinds]


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_and_its_metric_are_found_and_chosen_by(kind, finished):
    found = finished[kind]
    metric = FIRST[kind]
    assert (found.config["kind"], found.config["metric"]) == (kind, metric)
    rows = read_lines(found.folder / "metrics.jsonl")
    values = [row[f"dev/{metric}"] for row in rows if row["kind"] == "eval"]
    assert found.best.value == max(values)
    assert found.best.value > found.evaluations["dev"].majority.metrics[metric]
    assert auxlearn.load_run(found.folder).reproducible() == found.reproducible()
    assert set(found.to_frame().columns) >= {metric, f"unseen_{metric}", f"majority_{metric}"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_predictions_stand_beside_the_labels_of_their_texts(kind, finished, folders):
    """Metrics of predictions are tested with each kind."""
    run = finished[kind]
    lines = read_lines(run.folder / "predictions" / "test.jsonl")
    for line, row in zip(lines, read_lines(folders / kind / "test.jsonl"), strict=True):
        label = row.get("label", row.get("tags"))
        if kind == "dependency":
            label = [list(arc) for arc in zip(row["head"], row["deprel"], strict=True)]
            assert [head for head, _ in line["predicted"]].count(0) == 1
        elif kind == "multi_label":
            label = sorted(label)
            chances = zip(run.dataset.label_names, line["probabilities"], strict=True)
            assert [name for name, chance in chances if chance >= 0.5] == line["predicted"]
        assert line["label"] == label


@pytest.mark.parametrize("kind", KINDS)
def test_a_further_set_has_the_metrics_of_the_kind_by_subset_and_pair(kind, finished):
    run = finished[kind]
    found, test = run.evaluations["elsewhere"], run.evaluations["test"]
    assert found.all == test.all
    assert (found.majority, found.loss) == (test.majority, test.loss)
    predictions = run.folder / "predictions"
    lines = read_lines(predictions / "elsewhere.jsonl")
    assert lines == read_lines(predictions / "test.jsonl"), "in the labels of the model"
    there = found.subsets["place: there"]
    assert (there.examples, found.subsets["place: here"].examples) == (6, 10)
    if kind == "regression":
        error = [abs(one["label"] - one["predicted"]) for one in lines[::3]]
        assert there.metrics["mae"] == pytest.approx(np.mean(error))
        assert found.pair_accuracy is None
        return
    assert there.metrics.keys() == found.all.metrics.keys()
    assert found.partner.metrics == {  # without scores, ranks are those of the labels
        name: value if name != "lrap" else found.partner.metrics["lrap"]
        for name, value in run.evaluations["dev"].all.metrics.items()
    }
    both = zip(lines, read_lines(predictions / "dev.jsonl"), strict=True)
    right = [all(one["label"] == one["predicted"] for one in pair) for pair in both]
    assert found.pair_accuracy == np.mean(right)
    assert set(run.to_frame().index) >= {"elsewhere", "elsewhere: place: there"}


def test_a_parser_opens_in_transformers_as_its_encoder(finished, train):
    run = finished["dependency"]
    folder = str(run.folder / "model")
    model, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert all(key.startswith("classifier.") for key in info["unexpected_keys"])
    assert all(key.startswith("pooler.") for key in info["missing_keys"])
    tensors = load_file(run.folder / "model" / "model.safetensors")
    for name, one in model.state_dict().items():
        assert name.startswith("pooler.") or one.equal(tensors[f"bert.{name}"])
    assert "AutoModel.from_pretrained" in (run.folder / "model" / "README.md").read_text()
    after = train("multi_label", "after", epochs=1, init_from=str(run.folder))
    assert after.init_from["parts"] == ["encoder", "masked-language-model head"]
    given = {"epochs": 1, "learning_rate": 1e-6, "init_from": str(run.folder)}
    again = train("dependency", "again", **given)
    assert "classification head" in again.init_from["parts"]
    assert again.best.value == pytest.approx(run.best.value, abs=0.05)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dependency"])
def test_the_model_opens_in_transformers_with_the_same_outputs(kind, finished, folders):
    run = finished[kind]
    folder = str(run.folder / "model")
    tokens = kind == "token_classification"
    part = "TokenClassification" if tokens else "SequenceClassification"
    cls = getattr(transformers, f"AutoModelFor{part}")
    model, info = cls.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    row = read_lines(folders / kind / "test.jsonl")[0]
    line = read_lines(run.folder / "predictions" / "test.jsonl")[0]
    with torch.no_grad():
        if tokens:
            inputs = tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")
            logits = model(**inputs).logits[0]
            words = inputs.word_ids()
            first = [words.index(number) for number in range(len(row["tokens"]))]
            found = logits.softmax(-1)[first]
            said = [model.config.id2label[int(one)] for one in found.argmax(-1)]
            assert said == line["predicted"]
        else:
            logits = model(**tokenizer(row["text"], return_tensors="pt")).logits[0]
            found = logits.sigmoid() if kind == "multi_label" else logits
    expected = line.get("probabilities", [line["predicted"]])
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    types = {"multi_label": "multi_label_classification", "regression": "regression"}
    assert model.config.problem_type == types.get(kind)
    task = "token-classification" if tokens else "text-classification"
    assert transformers.pipeline(task, folder)("John sees the alpha")
    assert f'pipeline("{task}"' in (run.folder / "model" / "README.md").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_evaluate_and_predict_say_what_the_run_said(kind, finished, folders, tmp_path):
    run = finished[kind]
    again = auxlearn.evaluate(run, str(folders / kind))[kind]
    recorded = run.evaluations["test"]
    for name, value in recorded.all.metrics.items():
        assert again.all.metrics[name] == pytest.approx(value, abs=1e-6)
    assert again.majority == recorded.majority
    assert again.loss == pytest.approx(recorded.loss, abs=1e-5)
    rows = read_lines(folders / kind / "test.jsonl")
    frame = pd.DataFrame(rows)[["tokens" if "tokens" in rows[0] else "text"]]
    table = auxlearn.predict(run, frame, output=tmp_path / "out.jsonl")
    lines = read_lines(run.folder / "predictions" / "test.jsonl")
    said = [line["predicted"] for line in lines]
    if kind == "regression":
        np.testing.assert_allclose(table["predicted_label"], said, atol=1e-5)
    else:
        assert list(table["predicted_label"]) == said
    written = read_lines(tmp_path / "out.jsonl")
    assert [row["predicted_label"] for row in written] == list(table["predicted_label"])
    done = call("predict", run.folder, "--file", folders / kind / "test.jsonl")
    assert done.exit_code == 0, done.output
    words = rows[-1].get("tokens", [rows[-1].get("text")])
    assert done.output.endswith(f"\t{' '.join(words)}\n")
    if kind == "multi_label":
        shown = [line.partition("\t")[0] for line in done.output.splitlines()[-len(said) :]]
        assert shown == ["|".join(labels) for labels in said]


#: Weightings with the options that they need here.
OPTIONS = {"meta": {"horizon": "steps", "warmup_steps": 1}}


@pytest.mark.parametrize("kind", ONE_AND_SLOW)
def test_weightings_of_every_sort_train_every_kind(kind, folders, train):
    aux = ["random_mlm", {"supervised": {"datasets": further(folders, ["dependency"])}}]
    for name in ("meta", "tartan", "ol_aux"):  # those beside it are trained with fixed weights
        weights = {name: OPTIONS.get(name, {})}
        found = train(kind, name, aux=aux, weights=weights, epochs=1, batch_size=20)
        assert np.isfinite(list(found.weights.values())).all(), name


def faults_of(kind, found, branch):
    """How wrong the dev predictions of a branch are: a share of labels, or of numbers the error."""
    lines = read_lines(found.folder / branch.folder / "predictions" / "dev.jsonl")
    pairs = [(line["label"], line["predicted"]) for line in lines]
    if kind == "regression":
        return np.array([abs(label - predicted) for label, predicted in pairs])
    if kind == "multi_label":
        names = len(found.dataset.label_names)
        return np.array([len({*label} ^ {*predicted}) / names for label, predicted in pairs])
    return np.array([np.mean([t != p for t, p in zip(*pair, strict=True)]) for pair in pairs])


@pytest.mark.parametrize("kind", ["multi_label", *ONE_AND_SLOW[1:]])
def test_meta_compares_whole_runs_by_the_predictions_that_they_store(kind, train):
    # Thresholds other than 0.5 make other predictions of the same probabilities.
    given = {"thresholds": "dev"} if kind == "multi_label" else {}
    found = train(kind, aux=["random_mlm"], weights="meta", epochs=1, **given)
    assert len(found.branches) == 3
    single = next(one for one in found.branches if one.gain is None)
    other = next(one for one in found.branches if one.gain is not None)
    assert np.isfinite(other.gain)
    gains = faults_of(kind, found, single) - faults_of(kind, found, other)
    assert other.correct == pytest.approx(gains.mean())
    assert other.correct_error == pytest.approx(gains.std(ddof=1) / np.sqrt(len(gains)))


@pytest.mark.parametrize("kind", ONE_AND_SLOW)
def test_sets_of_every_kind_train_beside_every_kind(kind, folders, train):
    aux = [{"supervised": {"datasets": further(folders, KINDS)}}]
    found = train(kind, aux=aux, epochs=3)
    metrics = found.auxiliary["supervised"]
    assert set(metrics) >= {f"{one}/{FIRST[one]}" for one in KINDS}
    assert np.isfinite(list(metrics.values())).all()
    assert len(list((found.folder / "heads" / "supervised").iterdir())) == len(KINDS)


def test_another_loss_trains_and_mae_chooses_the_smallest(train):
    given = {"loss": {"huber": {"delta": 0.5}}, "metric": "mae", "encoder": "tiny"}
    found = train("regression", **given, epochs=3)
    rows = read_lines(found.folder / "metrics.jsonl")
    values = [row["dev/mae"] for row in rows if row["kind"] == "eval"]
    assert found.best.value == min(values) < values[0]
    assert found.best.value < found.evaluations["dev"].majority.metrics["mae"]


def twin(run, folder):
    """A copy of a run that is taken for one with another seed."""
    copy = shutil.copytree(run, folder / "copy")
    results = auxlearn.load_run(copy)
    config = RunFolder(copy).read_config().model_copy(update={"seed": 99})
    (copy / "config.yaml").write_text(config.to_yaml())
    replace(results, digest=config.digest).save(copy)
    return copy


def test_thresholds_of_dev_are_exported_and_used(folders, train, tmp_path):
    found = train("multi_label", thresholds="dev", epochs=1)
    config = json.loads((found.folder / "model" / "config.json").read_text())
    lines = read_lines(found.folder / "predictions" / "test.jsonl")
    names = found.dataset.label_names
    for line in lines:
        pairs = zip(names, line["probabilities"], config["thresholds"], strict=True)
        assert [name for name, p, least in pairs if p >= least] == line["predicted"]
    again = auxlearn.evaluate(found, str(folders / "multi_label"))["multi_label"]
    assert again.all.metrics == pytest.approx(found.evaluations["test"].all.metrics)
    assert found.evaluations["dev"].all.metrics["macro_f1"] > 0
    copy = twin(found.folder, tmp_path)
    stored = auxlearn.ensemble(found, copy)
    assert stored.thresholds is not None

    # A run that begins from this one has none.
    other = train("multi_label", "other", epochs=1, init_from=str(found.folder))
    config = json.loads((other.folder / "model" / "config.json").read_text())
    assert config.get("thresholds") is None
    again = auxlearn.evaluate(other, str(folders / "multi_label"))["multi_label"]
    assert again.all.metrics == pytest.approx(other.evaluations["test"].all.metrics)


def test_plain_tags_words_that_are_cut_off_and_a_run_that_continues(tmp_path):
    words = ["the", "\u200b", *["runs"] * 40]
    rows = [
        {"tokens": [f"w{n % 7}", *words], "tags": ["N", "D", "X", *"V" * 40]} for n in range(20)
    ]
    given = {"dataset": pd.DataFrame(rows), "epochs": 1, "batch_size": 8, "max_length": 12}
    given["verbose"] = False
    found = auxlearn.train(**given, output=str(tmp_path / "run"))
    assert found.config["metric"] == "accuracy"
    line = read_lines(found.folder / "predictions" / "dev.jsonl")[0]
    assert len(line["predicted"]) == 43
    assert line["predicted"][2] == "V", "a word without a token has the most frequent tag"
    assert set(line["predicted"][20:]) == {"V"}, "and so have words that are cut off"
    again = auxlearn.train(**given, init_from=str(found.folder), output=str(tmp_path / "again"))
    assert "classification head" in again.init_from["parts"]
    assert auxlearn.predict(again, "w1 the runs")["predicted_label"][0]


CLOSED = {"meta": {"horizon": "steps", "dev_head": "closed"}}
WRONG_MAP = {"B-PER": "B-LOC", "B-LOC": "B-X"}
#: Kind, changed settings (or the further set, on data of a kind), and what is said.
REFUSALS = [
    (
        "regression",
        {"loss": "focal"},
        "loss: focal is not of regression: choose cross_entropy, huber",
    ),
    ("multi_label", {"loss": "huber"}, "huber is not of multi_label: choose cross_entropy, focal"),
    (
        "dependency",
        {"loss": {"cross_entropy": {"class_weights": "balanced"}}},
        "class weights and label smoothing: not offered for dependency",
    ),
    (
        "regression",
        {"metric": "macro_f1"},
        "metric: macro_f1 is not of regression: choose pearson, spearman, mae",
    ),
    ("multi_label", {"aux": ["random_mlm"], "weights": CLOSED}, "dev heads: not offered for multi"),
    ("regression", {"thresholds": "dev"}, "thresholds: not offered for"),
    ("multi_label", {"aux": "selective"}, "selective: not offered for multi_label"),
    ("regression", {"aux": "selective"}, "selective: not offered for regr"),
    ("token_classification", {"aux": "selective"}, "selective: not offered for"),
    ("regression", {"kind": "multi_label"}, "a list of labels is needed"),
    ("regression", {"split": "test", "pairs": "test"}, "pairs of splits: not offered for regr"),
    (
        "multi_label",
        {"labels": {"John": "Paris"}},
        "combined labels (John, Paris): not offered for multi_label",
    ),
    ("token_classification", {"decision": "argmax"}, "decision argmax: not offered for token_cl"),
    (
        "regression",
        {"dataset": "multi_label", "kind": "multi_label"},
        "ood: 'o' has kind: multi_label, but the run is of regression",
    ),
    (
        "token_classification",
        {"labels": WRONG_MAP},
        "which the set does not have (give 'labels' of the set, under 'ood' in a configuration",
    ),
    (
        "regression",
        {"labels": {"score": "label"}},
        "labels (label maps): not offered for regression",
    ),
]
OF_RUNS = {"loss", "metric", "aux", "thresholds", "kind"}


@pytest.mark.parametrize(("kind", "changes", "expected"), REFUSALS)
def test_what_is_not_offered_is_refused_in_one_line(kind, changes, expected, folders, train):
    if next(iter(changes)) not in OF_RUNS:
        data = str(folders / changes.get("dataset", kind))
        changes = {"ood": [changes | {"name": "o", "dataset": data}]}
    with helpers.one_line(UserError, expected):
        train(kind, **changes)


def test_a_report_of_a_parser_shows_its_trees_and_its_further_set(finished, tmp_path, monkeypatch):
    monkeypatch.setattr("auxlearn.reports.page.MOST_PLOTS", 0)
    run = finished["dependency"]
    page = tmp_path / "page.html"
    done = call("report", run.folder, "--output", page)
    assert done.exit_code == 0, done.output
    shown = page.read_text()
    lines = read_lines(run.folder / "predictions" / "elsewhere.jsonl")
    wrong = sum(line["label"] != line["predicted"] for line in lines)
    assert f"elsewhere: {wrong}" in shown
    assert "place: there" in shown
    card = (run.folder / "model" / "README.md").read_text()
    assert "| elsewhere | 16 |" in card
    assert "LAS" in card


@pytest.mark.parametrize("kind", KINDS)
def test_commands_know_every_kind(kind, folders, finished, tmp_path):
    shown = call("data", "check", folders / kind, "--kind", kind, "--json")
    audit = json.loads(shown.stdout)
    assert audit["metric"] == FIRST[kind]
    found = audit["splits"]["train"]
    assert found["examples"] == 40
    counts = {"dependency": {"root": 40}, "multi_label": {}, "token_classification": {}}
    assert found["labels"].items() >= counts.get(kind, {}).items()
    done = call("perturbations", str(finished[kind].folder))
    assert done.exit_code == 2
    assert f"perturbations: not offered for {kind}" in done.output, done.output
    given = settings(folders, kind, aux="random_mlm", cache_dir=str(tmp_path))
    del given["verbose"]
    config = auxlearn.load_config(None, **given)
    assert inspect_masks(config, texts=0, reporter=Reporter()).examples > 0


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_a_set_is_read_afterwards_as_out_of_distribution(kind, finished, folders):
    """Labels are matched ignoring case, and by a map, which is not ignored if nothing fits it."""
    run, given = finished[kind], elsewhere(folders, kind)
    (found,) = auxlearn.evaluate(run, given["dataset"], labels=given["labels"]).values()
    assert found.all == run.evaluations["elsewhere"].all
    name = next(iter(given["labels"]))
    with pytest.raises(UserError, match=f"'{kind}' has .*map names other, which the set"):
        auxlearn.evaluate(run, folders / kind, labels={name: "other"})
