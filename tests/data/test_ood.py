"""Out-of-distribution sets: label mappings, pairs, subsets, cards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auxlearn.core.config import RunConfig, load_config
from auxlearn.core.errors import DataError
from auxlearn.core.settings import Columns, OODSource, ValidationSource
from auxlearn.data.dataset import Split
from auxlearn.data.folders import read_folder
from auxlearn.data.load import load_dataset
from auxlearn.data.ood import load_ood_set, load_ood_sets, map_labels, match_labels, with_labels_of
from auxlearn.data.run_data import split_validation
from auxlearn.evaluation.finished import read_evaluated
from auxlearn.evaluation.metrics import true_labels
from auxlearn.kinds.base import kind_of
from tests.helpers import one_line, write_splits

NLI = ("entailment", "neutral", "contradiction")
HANS = ("entailment", "non-entailment")
TO_HANS = {"neutral": "non-entailment", "contradiction": "non-entailment"}


def write(folder: Path, **splits) -> Path:
    """A folder with a file for each split; a row is (text, label) with further columns after."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        lines = [
            json.dumps({"text": text, "label": label, **(more[0] if more else {})})
            for text, label, *more in rows
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_labels_of_the_same_name_need_no_map():
    classes = ("negative", "positive")
    found = map_labels(classes, ("Positive", "Negative"), None, "set")
    assert (found.label_names, found.labels, found.targets) == (classes, (1, 0), (0, 1))
    fewer = map_labels(NLI, ("neutral", "entailment"), None, "set")
    assert (fewer.label_names, fewer.labels) == (NLI, (1, 0))
    alike = map_labels(("NEG", "Pos", "pos"), ("Pos", "neg", "pos"), None, "set")
    assert (alike.label_names, alike.labels) == (("NEG", "Pos", "pos"), (1, 0, 2))
    given = {"entailment": "yes", "neutral": "maybe"}
    renamed = map_labels(NLI, ("maybe", "yes"), given, "set")
    assert (renamed.label_names, renamed.labels) == (("yes", "maybe", "contradiction"), (1, 0))
    assert renamed.targets == (0, 1, 2)


def test_a_set_of_another_kind_is_held_against_the_model_and_not_its_own_train(tmp_path):
    numbers = {"train": [("a", "0.5"), ("b", "1.5")], "dev": [("c", "2.5")], "test": [("d", "3.5")]}
    split, _ = read_evaluated(write(tmp_path / "set", **numbers), "test", RunConfig(), None)
    with one_line(DataError, "'set' has the labels 3.5, the model knows x, y"):
        match_labels(("x", "y"), split, OODSource(dataset="set", name="set"))


def test_several_classes_may_map_to_one_label_but_not_all():
    found = map_labels(NLI, HANS, TO_HANS, "hans")
    assert found.label_names == HANS
    assert found.targets == (0, 1, 1)
    assert found.labels == (0, 1)
    with pytest.raises(DataError, match="'hans': every class of the model maps to the label 'x'"):
        map_labels(("a", "b"), ("x",), {"a": "x", "b": "x"}, "hans")


def test_two_spellings_of_a_label_are_one_label_of_an_example():
    labels, names = ((0, 1), (1,)), ("X", "x")
    split = Split("test", ("one", "two"), labels, names, kind=kind_of("multi_label"))
    found = with_labels_of(("x", "y"), split, OODSource(dataset="d", name="d"))
    assert found.labels == ((0,), (0,))
    found = with_labels_of(("x", "X"), split, OODSource(dataset="d", name="d"))
    assert found.labels == ((0, 1), (0,))


@pytest.mark.parametrize(
    ("model", "found", "given", "fault"),
    [
        (NLI, HANS, None, "no counterpart for neutral, contradiction"),
        (("a", "b"), ("x", "y"), None, "no counterpart for a, b"),
        (("a", "b"), ("a", "b", "c"), {"a": "a"}, "no counterpart for c"),
        (("a", "b"), ("a", "b"), {"z": "a"}, "the map names z, which the model does not know"),
        (("a", "b"), ("a", "b"), {"z": "z"}, "the map names z, which the model does not know"),
        (("a", "b"), ("x", "y"), {"a": "x", "b": "q"}, "the map names q, which the set does not"),
        (("a", "b"), ("a", "b"), {"a": "p", "b": "q"}, "the map names p, q, which the set does"),
        (("X", "x"), ("X", "x", "xx"), None, "no counterpart for xx"),
    ],
)
def test_unmatched_labels_give_one_line_with_both_label_sets(model, found, given, fault):
    said = f"'hans' has the labels {', '.join(found)}, the model knows {', '.join(model)}: {fault}"
    with one_line(DataError, said):
        map_labels(model, found, given, "hans")


def test_counting_unknown_labels_is_not_advised_where_it_was_asked_for():
    for asked in ("error", "count"):
        with pytest.raises(DataError, match="no counterpart for a, b") as caught:
            map_labels(("a", "b"), ("x",), None, "hans", asked)
        assert ("unknown_labels: count" in str(caught.value)) == (asked == "error")


def test_the_card_of_the_trained_set_maps_the_labels(tmp_path):
    rows = [("a b", HANS[0], {"heuristic": "x"}), ("c d", HANS[1], {"heuristic": "y"})]
    folder = write(tmp_path / "hans", test=rows)
    ood = load_ood_set(OODSource.model_validate(str(folder)), "mnli", NLI)
    assert ood.source.name == "hans"
    assert ood.labels.targets == (0, 1, 1)
    assert ood.source.subsets == ("heuristic",)
    assert ood.partner is None
    with pytest.raises(DataError, match="no counterpart for neutral, contradiction"):
        load_ood_set(OODSource.model_validate(str(folder)), "another_set", NLI)
    # A card that does not fit the folder is ignored.
    write(folder, test=[("a", "yes"), ("b", "no")])
    ood = load_ood_set(OODSource.model_validate(str(folder)), "mnli", ("no", "yes"))
    assert ood.source.subsets == ()
    assert ood.labels.targets == (0, 1)


def test_contrast_sets_find_their_originals(tmp_path):
    folder = write(
        tmp_path / "imdb_contrast",
        test=[("bad", "Negative"), ("good", "Positive")],
        test_original=[("fine", "Positive"), ("poor", "Negative")],
    )
    ood = load_ood_set(OODSource.model_validate(str(folder)), "sst2", ("negative", "positive"))
    assert ood.partner is not None
    assert ood.partner.texts == ("fine", "poor")
    (folder / "test_original.jsonl").unlink()
    alone = load_ood_set(OODSource.model_validate(str(folder)), "sst2", ("negative", "positive"))
    assert alone.partner is None


def test_a_table_is_paired_by_its_splits_alone(tmp_path):
    classes = ("negative", "positive")
    table = tmp_path / "set.csv"
    source = OODSource(name="imdb_contrast", dataset=str(table))

    def load(column, **settings):
        rows = [("bad", "negative", "test"), ("good", "positive", "test")]
        rows += [("fine", "positive", "test_original"), ("poor", "negative", "test_original")]
        lines = [f"text,label,{column}", *map(",".join, rows)]
        table.write_text("\n".join(lines) + "\n")
        return load_ood_set(source.model_copy(update=settings), "sst2", classes)

    divided = load("split")
    assert divided.partner is not None
    assert divided.split.texts == ("bad", "good")
    assert divided.partner.texts == ("fine", "poor")
    assert load("part").partner is None
    with pytest.raises(DataError, match="no column 'split', so that its examples would be paired"):
        load("part", pairs="test_original")
    with pytest.raises(DataError, match="has no split 'dev'"):
        load("split", pairs="dev")


def test_pairs_and_subsets_that_do_not_fit_are_refused(tmp_path):
    folder = write(
        tmp_path / "set",
        test=[("a", "x", {"kind": "1"}), ("b", "y", {"kind": "2"})],
        short=[("c", "x")],
        foreign=[("c", "x"), ("d", "z")],
    )

    def load(**settings):
        source = OODSource.model_validate({"dataset": str(folder), **settings})
        return load_ood_set(source, "set", ("x", "y"))

    assert load(pairs="test").partner is not None
    with pytest.raises(DataError, match="test has 2 examples but short 1: pairs need"):
        load(pairs="short")
    with pytest.raises(DataError, match="the model knows x, y: no counterpart for z"):
        load(pairs="foreign")
    with pytest.raises(DataError, match="no column 'knd' to make subsets by: it has kind"):
        load(subsets=["knd"])
    with pytest.raises(DataError, match="has no split 'tests'"):
        load(split="tests")


def test_pairs_may_have_labels_that_the_other_split_lacks(tmp_path):
    folder = write(tmp_path / "set", test=[("a", "y"), ("b", "y")], was=[("c", "x"), ("d", "x")])
    source = OODSource.model_validate({"dataset": str(folder), "pairs": "was"})
    found = load_ood_set(source, "set", ("x", "y"))
    assert found.partner is not None
    assert true_labels(found.split, found) == [1, 1]
    assert true_labels(found.partner, found) == [0, 0]


@pytest.mark.parametrize("pairs", [True, False])
def test_pairs_for_a_run_on_single_texts_are_refused(pairs, tmp_path):
    more = {"text_pair": "b"} if pairs else {}
    folder = write(tmp_path / "set", test=[("a", "x", more), ("b", "y", more)])
    with one_line(DataError, "'set' has", "but the run was trained on"):
        load_ood_set(OODSource(dataset=str(folder), name="set"), "d", ("x", "y"), pairs=not pairs)


def test_an_unavailable_set_of_the_card_is_skipped_with_a_note(tmp_path):
    folder = write(
        tmp_path / "sst2",
        train=[("a", "negative"), ("b", "positive")],
        dev=[("c", "negative")],
        test=[("d", "positive")],
    )
    dataset = load_dataset(str(folder))
    given = [OODSource(dataset=str(folder), name="imdb_cad")]
    # As if it had been loaded by the name of the card, which needs the hub.
    sets, notes = load_ood_sets(given, "sst2", dataset)
    assert [one.source.name for one in sets] == ["imdb_cad"]
    assert len(notes) == 1
    assert "'imdb_contrast' was left out" in notes[0]
    assert "allenai/contrast-sets" in notes[0], "it does not say where to get it"
    assert load_ood_sets([], str(folder), dataset) == ([], [])


def test_a_set_that_is_unavailable_or_has_the_name_of_a_split_is_an_error(tmp_path):
    rows = [("a", "n"), ("b", "p")]
    folder = write(tmp_path / "own", train=rows, dev=rows, test=rows, extra=rows)
    dataset = load_dataset(str(folder))
    for given, said in (
        (OODSource(dataset="./nowhere", name="x"), "nowhere"),
        (
            OODSource(dataset=str(folder), name="extra"),
            "'own' has a split 'extra': give the out-of",
        ),
        (
            OODSource(dataset=str(folder), name="x", label_column="gold"),
            "another column is named with label_column",
        ),
    ):
        with pytest.raises(DataError, match=said):
            load_ood_sets([given], str(folder), dataset)


def test_forms_in_a_configuration(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(
        "ood:\n- data/hans\n- {dataset: data/imdb_cad, split: test_revised, name: revised}\n"
        "- nyu-mll/glue:mnli\n"
    )
    config = load_config(file)
    assert [source.name for source in config.ood] == ["hans", "revised", "mnli"]
    assert config.ood[1].split == "test_revised"
    file.write_text(config.to_yaml())
    assert load_config(file) == config
    assert config.digest != RunConfig().digest


@pytest.mark.parametrize("trained_on_pairs", [False, True])
def test_examples_that_drive_the_weights_are_pairs_as_train_has_them(trained_on_pairs, tmp_path):
    single = [{"text": f"text {label}", "label": label} for label in ("no", "yes")]
    pairs = [row | {"text_pair": "a second one"} for row in single]
    rows, others = (pairs, single) if trained_on_pairs else (single, pairs)
    write_splits(tmp_path, other=others)
    write_splits(tmp_path / "set", train=rows)
    dataset = read_folder(tmp_path / "set")
    with one_line(DataError, "other.jsonl", "the run was trained on"):
        split_validation(dataset, ValidationSource(file=tmp_path / "other.jsonl"), Columns())
