"""What the kinds compute, against other libraries, finite differences and enumeration."""

import copy
import itertools
import json
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    label_ranking_average_precision_score,
    precision_recall_fscore_support,
)

from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import KINDS
from auxlearn.kinds.base import FEATURES, kind_of
from auxlearn.kinds.token_classification import spans_of
from auxlearn.kinds.words import NO_TAG
from auxlearn.results.record import Scores
from tests import helpers
from tests.helpers import one_line

MULTI, REGRESSION, TOKENS = (
    kind_of(name) for name in ("multi_label", "regression", "token_classification")
)
METRICS = [(k, m) for k in KINDS.names() for m in (*kind_of(k).metrics, "cross_entropy")]
BIO = ("B-A", "B-B", "I-A", "I-B", "O")


def examples(kind, count=7, seed=0):
    """Logits in double precision and targets, as of a batch."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    if kind is REGRESSION:
        return normal(count, 1), normal(count)
    if kind is MULTI:
        return normal(count, 3), (normal(count, 3) > 0).double()
    if kind is kind_of("dependency"):
        tree = [[NO_TAG] * 3, [1, 2, 0], [NO_TAG] * 3, [2, 0, 1], [3, 2, 2]]
        return normal(2, 5, 5, 4), torch.tensor([tree, tree[:3] + [[NO_TAG] * 3] * 2])
    targets = torch.randint(0, 4, (count, 5), generator=generator)
    targets[torch.rand(count, 5, generator=generator) < 0.3] = NO_TAG
    if kind is TOKENS:
        return normal(count, 5, 4), targets
    return normal(count, 3), torch.randint(0, 3, (count,), generator=generator)


def labels_of(targets):
    """Targets of several labels as a data set has them."""
    return [tuple(row.nonzero().flatten().tolist()) for row in targets]


def test_a_score_that_a_kind_does_not_have_is_named():
    scores = Scores(3, {"pearson": 0.5, "mae": 0.1}, {}, [])
    with pytest.raises(AttributeError, match="have no macro-F1: their metrics are pearson, mae"):
        _ = scores.macro_f1
    assert not hasattr(scores, "accuracy")


@pytest.mark.parametrize("name", KINDS.names())
def test_a_copy_of_a_kind_is_the_kind(name):
    kind = kind_of(name)
    assert kind is pickle.loads(pickle.dumps(kind)) is copy.deepcopy(kind)


@pytest.mark.parametrize(("name", "metric"), METRICS)
def test_every_smooth_form_has_the_derivative_of_finite_differences(name, metric):
    kind = kind_of(name)
    for seed in range(2):
        logits, targets = examples(kind, seed=seed)
        logits.requires_grad_()
        assert torch.autograd.gradcheck(
            partial(kind.surrogate, targets=targets, metric=metric), logits
        )
        gradient = torch.autograd.grad(kind.surrogate(logits, targets, metric), logits)[0]
        assert gradient.abs().max() > 1e-6


@pytest.mark.parametrize("count", [1, 7, 300])
def test_the_metrics_of_several_labels_are_those_of_scikit_learn_to_the_last_digit(count):
    logits, targets = examples(MULTI, count, 1)
    truth, outputs = targets.numpy(), logits.numpy().round(1)  # some are equal
    said = (outputs >= 0).astype(float)
    names, labels, predicted = (
        ("a", "b", "c"),
        labels_of(targets),
        [MULTI.decode(o) for o in outputs],
    )
    assert MULTI.scores(labels, predicted, outputs, names) == {
        "micro_f1": f1_score(truth, said, average="micro", zero_division=0),
        "macro_f1": f1_score(truth, said, average="macro", zero_division=0),
        "accuracy": accuracy_score(truth, said),
        "lrap": label_ranking_average_precision_score(truth, outputs),
    }
    found = precision_recall_fscore_support(truth, said, zero_division=0)
    by_class = MULTI.per_class(labels, predicted, names)
    assert [[*one.values()] for one in by_class.values()] == np.transpose(found).tolist()


@pytest.mark.parametrize("metric", ["micro_f1", "macro_f1", "accuracy"])
def test_the_smooth_forms_of_certain_predictions_are_the_metrics_of_scikit_learn(metric):
    _, targets = examples(MULTI, 50, 1)
    chosen = examples(MULTI, 50, 2)[1]
    logits = (2 * chosen - 1) * 200
    found = MULTI.scores(labels_of(targets), labels_of(chosen), None, ("a", "b", "c"))[metric]
    assert 1 - float(MULTI.smooth(logits, targets, metric)) == pytest.approx(found, abs=1e-12)


def test_the_smooth_form_of_pearson_is_that_of_scipy():
    logits, targets = examples(REGRESSION, 40)
    truth, said = targets.tolist(), logits[:, 0].tolist()
    scores = REGRESSION.scores(truth, said, None, ("score",))
    assert 1 - float(REGRESSION.smooth(logits, targets, "pearson")) == pytest.approx(
        scores["pearson"], abs=1e-12
    )
    assert float(REGRESSION.smooth(logits, targets, "mae")) == pytest.approx(scores["mae"])
    same = REGRESSION.scores([1.0, 2.0], [3.0, 3.0], None, ("score",))
    assert same == {"pearson": 0.0, "spearman": 0.0, "mae": 1.5}


def test_the_loss_of_tags_is_the_mean_over_words_alone():
    logits, targets = examples(TOKENS)
    here = targets != NO_TAG
    expected = -logits.log_softmax(-1)[here].gather(-1, targets[here][:, None]).mean()
    torch.testing.assert_close(TOKENS.loss(logits, targets), expected)
    nothing = TOKENS.loss(logits.requires_grad_(), torch.full_like(targets, NO_TAG))
    assert nothing.item() == 0
    assert nothing.requires_grad


def test_spans_have_the_f1_of_seqeval():
    """40 random cases with their scores by seqeval 1.2.2, predictions with malformed spans."""
    cases = json.loads(Path(__file__).with_name("seqeval_cases.json").read_text())
    assert len(cases) == 40
    assert any("O I-" in case[1] for case in cases)
    for true, said, f1, precision, recall in cases:
        index = {tag: number for number, tag in enumerate(BIO)}
        truth, predicted = (
            [tuple(index[tag] for tag in one.split()) for one in text.split(" | ")]
            for text in (true, said)
        )
        assert TOKENS.scores(truth, predicted, None, BIO)["span_f1"] == pytest.approx(f1)
        right, told, there = TOKENS._counts(truth, predicted, BIO)
        assert right.total() == pytest.approx(precision * told.total())
        assert right.total() == pytest.approx(recall * there.total())


def test_spans_of_one_type_may_follow_each_other():
    assert spans_of(["B-A", "B-A", "I-A", "I-B"]) == {("A", 0, 0), ("A", 1, 2), ("B", 3, 3)}
    assert spans_of(["O"]) == set()


def test_plain_tags_have_the_share_of_right_ones():
    names = ("DET", "NOUN")
    assert TOKENS.scores([(0, 1), (1,)], [(0, 0), (1,)], None, names) == {"accuracy": 2 / 3}
    found = TOKENS.per_class([(0, 1), (1,)], [(0, 0), (1,)], names)
    assert found["DET"] == {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "support": 1}
    with pytest.raises(ConfigError, match="span_f1 is of BIO tags"):
        TOKENS.check_metric("span_f1", names)


def test_thresholds_are_the_best_of_all_that_differ():
    logits, targets = examples(MULTI, 12, 3)
    truth = [tuple(one for one in label if one != 2) for label in labels_of(targets)]
    chosen = MULTI.best_thresholds(truth, list(logits.numpy()))
    assert chosen[2] == 0.5, "a label without examples"

    def f1(label, threshold):
        said = logits.sigmoid().numpy()[:, label] >= threshold
        true = np.array([label in one for one in truth])
        return 2 * (said & true).sum() / (said.sum() + true.sum())

    for label in (0, 1):
        best = max(f1(label, one) for one in np.linspace(0, 1, 2001))
        assert f1(label, chosen[label]) == pytest.approx(best)
        assert best > f1(label, 0.5)


@pytest.mark.parametrize("kind", [MULTI, REGRESSION, TOKENS], ids=lambda kind: kind.name)
def test_a_line_of_predictions_gives_the_outputs_back(kind):
    logits, _ = examples(kind, 4)
    names = ("score",) if kind is REGRESSION else ("a", "b", "c", "d")[: logits.shape[-1]]
    index = {name: number for number, name in enumerate(names)}
    for output in logits.numpy():
        label = kind.decode(output)
        line = dict.fromkeys(("label", "predicted"), kind.written(label, names))
        line |= kind.line(output)
        read = json.loads(json.dumps(line))
        assert kind.encode(read["label"], index) == label
        back = kind.output(kind.stored(read, names))
        if kind is TOKENS:
            output = output - np.log(np.exp(output).sum(-1, keepdims=True))
        np.testing.assert_allclose(back, output, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "targets", "metric", "expected"),
    [
        (REGRESSION, [1.0, 2.0, 6.0], "pearson", 1.0),
        (REGRESSION, [1.0, 2.0, 6.0], "mae", 5 / 3),
        (REGRESSION, [1.0, 2.0, 6.0], "cross_entropy", 14 / 3),
        (MULTI, [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]], "accuracy", 1 / 3),
        (MULTI, [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]], "micro_f1", 1 - 4 / 5),
        (TOKENS, [[0, 0, 1, NO_TAG]], "accuracy", 1 / 3),
        (TOKENS, [[0, 0, 1, NO_TAG]], "span_f1", 1 / 2),
        (TOKENS, [[0, 0, NO_TAG]], "span_f1", 1.0),
    ],
    ids=lambda one: getattr(one, "name", str(one)[:9]),
)
def test_the_loss_of_a_constant_prediction(kind, targets, metric, expected):
    assert kind.constant_loss(torch.tensor(targets), metric) == pytest.approx(expected)


@pytest.mark.parametrize("metric", ["micro_f1", "macro_f1"])
@pytest.mark.parametrize("shares", [(9, 7, 5, 3, 2, 1), (19, 2, 1), (12, 11, 0), (1, 1)])
def test_no_constant_labels_beat_the_loss_of_a_constant_prediction(metric, shares):
    """An F1 of expected counts is highest where each label is predicted for all texts or none."""
    targets = torch.stack([(torch.arange(20) < share).float() for share in shares], 1)
    occurs = [place for place, share in enumerate(shares) if share]
    best = max(
        f1_score(
            targets[:, occurs],
            np.tile(np.array(chosen)[occurs], (20, 1)),
            average=metric.removesuffix("_f1"),
            zero_division=0,
        )
        for chosen in itertools.product((0, 1), repeat=len(shares))
        if metric == "micro_f1" or all(chosen)
    )
    found = MULTI.constant_loss(targets, metric)
    assert found == pytest.approx(1 - best, abs=1e-6)
    draw = torch.rand(300, 1, len(shares), generator=helpers.generator())
    for logits in draw.logit():
        assert MULTI.smooth(logits.expand_as(targets), targets, metric) >= found - 1e-6


def test_no_constant_tags_beat_the_loss_of_a_constant_prediction():
    targets = torch.tensor([[0] * 9 + [1] * 4 + [2] * 2 + [3, NO_TAG]])
    found = TOKENS.constant_loss(targets, "span_f1")
    for logits in 20 * torch.randn(500, 4, generator=helpers.generator()):
        assert TOKENS.smooth(logits.expand(1, 17, 4), targets, "span_f1") >= found - 1e-6
    certain = torch.tensor([0.0, 60, 0, 0]).expand(1, 17, 4)
    assert TOKENS.smooth(certain, targets, "span_f1") == pytest.approx(found, abs=1e-6)


def test_what_is_refused_is_refused_by_name_in_one_line():
    checked = 0
    for kind in map(kind_of, KINDS.names()):
        assert kind.refuses < FEATURES.keys()
        for feature in kind.refuses:
            with one_line(ConfigError, feature, kind.name):
                kind.require(feature)
            checked += 1
        for feature in FEATURES.keys() - kind.refuses:
            kind.require(feature)
    assert checked > 30
