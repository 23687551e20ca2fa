"""Evaluation on sets with other labels than the model: decision rules, subsets, pairs."""

import numpy as np
import pytest

from auxlearn.core.settings import OODSource
from auxlearn.data.dataset import Split
from auxlearn.data.ood import OODSet, map_labels
from auxlearn.evaluation.metrics import evaluate, predictions_of
from auxlearn.kinds.classification import map_predictions
from auxlearn.results.tables import metrics_table

NLI = ("entailment", "neutral", "contradiction")
HANS = ("entailment", "non-entailment")
MAP = map_labels(
    NLI, HANS, {"neutral": "non-entailment", "contradiction": "non-entailment"}, "hans"
)

# Entailment is the most likely class of examples 0 and 1, but exceeds 0.5 only for example 0.
PROBABILITIES = np.array(
    [[0.6, 0.3, 0.1], [0.4, 0.3, 0.3], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]],
)


def predictions(ood, probabilities, split=None):
    """What is kept of these probabilities of the model for the examples of a set."""
    return predictions_of(probabilities, ood, split or ood.split)


def test_probabilities_are_summed_before_the_decision_or_the_most_likely_class_is_taken():
    probabilities, predicted = map_predictions(PROBABILITIES, MAP, "sum")
    np.testing.assert_allclose(probabilities, [[0.6, 0.4], [0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])
    assert predicted.tolist() == [0, 1, 1, 1]
    _, predicted = map_predictions(PROBABILITIES, MAP, "argmax")
    assert predicted.tolist() == [0, 0, 1, 1]


def hans(decision="sum", partner=None):
    split = Split(
        "test",
        ("a", "b", "c", "d"),
        (0, 0, 1, 0),
        HANS,
        meta={"heuristic": ("overlap", "subsequence", "overlap", "subsequence")},
    )
    source = OODSource(dataset="hans", name="hans", decision=decision, subsets=("heuristic",))
    return OODSet(source, split, MAP, partner)


@pytest.mark.parametrize(("decision", "accuracy"), [("sum", 0.5), ("argmax", 0.75)])
def test_metrics_by_subset(decision, accuracy):
    ood = hans(decision)
    found = evaluate(ood, predictions(ood, PROBABILITIES), None, [False] * 4, 2)
    assert found.all.accuracy == accuracy
    assert found.subsets["heuristic: overlap"].accuracy == 1.0
    assert found.subsets["heuristic: subsequence"].accuracy == 2 * accuracy - 1
    assert [scores.examples for scores in found.subsets.values()] == [2, 2]
    assert found.majority.accuracy == 0.25, "contradiction counts as non-entailment"
    assert found.pair_accuracy is None
    assert found.loss == pytest.approx(-np.log([0.6, 0.4, 0.8, 0.1]).mean())


def test_a_pair_is_right_if_both_examples_are():
    # The partner has its labels in another order.
    partner = Split("orig", ("e", "f", "g", "h"), (0, 1, 1, 1), ("non-entailment", "entailment"))
    ood = hans(partner=partner)
    mapped = predictions(ood, PROBABILITIES)  # right, wrong, right, wrong
    others = predictions(ood, PROBABILITIES[[3, 0, 1, 0]], partner)  # right, right, wrong, right
    found = evaluate(ood, mapped, others, [False] * 4, 0)
    assert found.partner.accuracy == 0.75
    assert found.all.accuracy == 0.5
    assert found.pair_accuracy == 0.25


def paired():
    partner = Split("orig", ("e", "f", "g", "h"), (1, 0, 0, 0), HANS)
    mapped = predictions(hans(), PROBABILITIES)
    others = predictions(hans(), PROBABILITIES, partner)
    return evaluate(hans(partner=partner), mapped, others, [False] * 4, 0)


def test_the_table_has_pairs_and_subsets():
    found = paired()
    plain = evaluate(hans(), predictions(hans(), PROBABILITIES), None, [False] * 4, 0)
    table = metrics_table({"test": plain, "hans": found}).set_index("set")
    assert table["pair accuracy"]["hans"] == f"{found.pair_accuracy:.3f}"
    assert table["pair accuracy"]["test"] == "-"
    assert list(table.loc["hans, heuristic: overlap"])[:2] == ["2", "1.000"]
    assert table["examples"]["hans, paired examples"] == "4"
    assert "pair accuracy" not in metrics_table({"test": plain})
