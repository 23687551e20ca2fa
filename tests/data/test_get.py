"""``auxlearn data get``: folders made of replicas of the files that owners ship."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from auxlearn.core.errors import DataError
from auxlearn.data.get import make_folder
from auxlearn.data.load import card_names, find_card, load_dataset, load_evaluated
from tests.cli.helpers import call
from tests.data import replicas
from tests.data.test_as_shipped import assert_same, rows_of
from tests.helpers import one_line

REVIEWS = ["Negative", "Positive"]


def tsv(path: Path, rows: pd.DataFrame, quoting: int = csv.QUOTE_MINIMAL) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.to_csv(path, sep="\t", index=False, quoting=quoting)


def hans(source: Path) -> dict[str, pd.DataFrame]:
    """Not quoted, with parses that are not needed."""
    rows = replicas.frame("test", 12, ["entailment", "non-entailment"], ["text", "text_pair"])
    rows["text"] = [f'"{text}' for text in rows["text"]]
    shipped = rows.rename(
        columns={"text": "sentence1", "text_pair": "sentence2", "label": "gold_label"}
    )
    shipped = shipped.assign(sentence1_parse="(ROOT x)", heuristic="subsequence")
    shipped = shipped.assign(subcase="a/b", template="temp1")
    tsv(source / "heuristics_evaluation_set.txt", shipped, csv.QUOTE_NONE)
    return {"test": rows}


def imdb_cad(source: Path) -> dict[str, pd.DataFrame]:
    """Quoted as CSV is; a review and its revision follow one another."""
    splits = {}
    for split, count in (("train", 20), ("dev", 6), ("test", 8)):
        first = replicas.frame(split, count, REVIEWS)
        first["text"] = [f'{text}: "so, so"' for text in first["text"]]
        second = first.assign(
            text=[f"{text} again" for text in first["text"]],
            label=[REVIEWS[label == "Negative"] for label in first["label"]],
        )
        both = pd.concat([first, second]).sort_index(kind="stable")
        both = both.assign(batch_id=[row // 2 for row in range(len(both))])
        both = both.rename(columns={"text": "Text", "label": "Sentiment"})
        tsv(source / "combined" / "paired" / f"{split}_paired.tsv", both)
        splits |= {split: first, f"{split}_revised": second}
    return splits


def imdb_contrast(source: Path) -> dict[str, pd.DataFrame]:
    names = {"dev": "contrast", "test": "contrast", "dev_original": "", "test_original": ""}
    splits = {split: replicas.frame(split, 8, REVIEWS) for split in names}
    for split, rows in splits.items():
        file = f"{split}_{names[split]}" if names[split] else split
        tsv(source / f"{file}.tsv", rows.rename(columns={"text": "Text", "label": "Sentiment"}))
    return splits


def ohsumed(source: Path) -> dict[str, pd.DataFrame]:
    """A file of several lines for each document, in a folder for each code of a category."""
    names = find_card("ohsumed").label_names
    splits = {}
    for split, folder in (("train", "training"), ("test", "test")):
        rows = replicas.frame(split, 2 * len(names), names)
        for row, (text, label) in enumerate(rows.itertuples(index=False)):
            path = source / folder / f"C{names.index(label) + 1:02}" / f"{row:07}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(" ", "\n ", 1))
        splits[split] = rows.iloc[sorted(range(len(rows)), key=lambda row: row % len(names))]
    return splits


def acl_arc(source: Path) -> dict[str, pd.DataFrame]:
    """JSON lines that are called .txt, with something else in each."""
    names = find_card("acl_arc").label_names
    splits = {split: replicas.frame(split, 18, names) for split in ("train", "dev", "test")}
    for split, rows in splits.items():
        replicas.write_lines(source / f"{split}.txt", rows.assign(metadata=[{}] * len(rows)))
    return splits


def paws_qqp(source: Path) -> dict[str, pd.DataFrame]:
    """As the authors' script writes it with Python 3."""
    names = ["different", "paraphrase"]
    splits = {
        split: replicas.frame(split, 14, names, ["text", "text_pair"])
        for split in ("train", "test")
    }
    for split, file in (("train", "train"), ("test", "dev_and_test")):
        rows = splits[split]
        rows["text_pair"] = [f"{text}, café" for text in rows["text_pair"]]
        shipped = pd.DataFrame(
            {
                "id": range(len(rows)),
                "sentence1": [repr(text.encode()) for text in rows["text"]],
                "sentence2": [repr(text.encode()) for text in rows["text_pair"]],
                "label": [names.index(label) for label in rows["label"]],
            }
        )
        tsv(source / f"{file}.tsv", shipped, csv.QUOTE_NONE)
    return splits


def ewt(source: Path) -> dict[str, pd.DataFrame]:
    tags = {"pos": "VERB", "neg": "ADJ"}
    for split, rows in replicas.ROWS.items():
        source.mkdir(exist_ok=True)
        text = replicas.treebank(rows.replace({"label": tags}))
        (source / f"en_ewt-ud-{split}.conllu").write_text(text)
    tagged = {split: rows.copy() for split, rows in replicas.TAGGED.items()}
    for rows in tagged.values():
        rows["label"] = [[first, tags[second]] for first, second in rows["label"]]
    return tagged


OWNERS = (hans, imdb_cad, imdb_contrast, ohsumed, acl_arc, paws_qqp, ewt)


def test_every_set_that_needs_a_folder_has_a_replica():
    recipes = {name for name in card_names() if find_card(name).get is not None}
    assert recipes == {write.__name__ for write in OWNERS}
    assert {name for name in card_names() if find_card(name).hub is None} <= recipes


@pytest.mark.parametrize("write", OWNERS, ids=lambda write: write.__name__)
def test_the_folder_is_what_the_owner_ships(tmp_path, write):
    name = write.__name__
    expected = write(tmp_path / "source")
    lines = make_folder(name, tmp_path / "source", tmp_path / name)
    assert {line.split(":")[0] for line in lines} == set(expected)
    sizes = find_card(name).sizes
    assert all(("are published" in line) == (line.split(":")[0] in sizes) for line in lines)
    for split, rows in expected.items():
        found, _ = load_evaluated(tmp_path / name, split, alone=True)
        assert_same(rows_of(found), rows)
        assert set(found.meta) >= set(find_card(name).get.meta)
        assert "sentence1_parse" not in found.meta
    if "train" in expected:
        assert set(load_dataset(tmp_path / name).splits) >= set(expected)


def test_a_single_file_is_given_itself_and_the_command_says_what_it_made(tmp_path):
    hans(tmp_path)
    source = tmp_path / "heuristics_evaluation_set.txt"
    out = call("data", "get", "hans", "--from", source, "--output", tmp_path / "made").stdout
    assert out == "test: 12 examples; 30,000 are published\n"
    assert len(load_evaluated(tmp_path / "made", "test")[0]) == 12


def spoil(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("write", "damage", "expected"),
    [
        (
            ewt,
            lambda f: (f / "en_ewt-ud-dev.conllu").unlink(),
            "name by --from the folder of github",
        ),
        (
            hans,
            lambda f: spoil(f / "heuristics_evaluation_set.txt", "non-ent", "not-ent"),
            "has the labels not-entailment, which are none of the card's",
        ),
        (
            hans,
            lambda f: spoil(f / "heuristics_evaluation_set.txt", "gold_label", "label"),
            "has no column gold_label, but sentence1, sentence2, label, ",
        ),
        (
            hans,
            lambda f: spoil(f / "heuristics_evaluation_set.txt", "non-entailment", "-"),
            "has the labels -, which are none of the card's: entailment, non-entailment",
        ),
        (
            imdb_cad,
            lambda f: spoil(f / "combined/paired/dev_paired.tsv", "Positive\t0", "Positive\t7"),
            "pairs are not on lines that follow one another",
        ),
        (ohsumed, lambda f: (f / "test" / "C23").rename(f / "C23"), "and not 23 of them"),
        (
            paws_qqp,
            lambda f: spoil(f / "train.tsv", "b'train text 3", "b'train \\x text 3"),
            "are no bytes of Python",
        ),
    ],
    ids=[
        "no file",
        "other labels",
        "no column",
        "a missing label",
        "no pairs",
        "no class",
        "no bytes",
    ],
)
def test_what_is_not_there_or_other_than_the_card_says_is_one_line(
    tmp_path, write, damage, expected
):
    write(tmp_path / "source")
    damage(tmp_path / "source")
    with one_line(DataError, expected):
        make_folder(write.__name__, tmp_path / "source", tmp_path / "made")
    assert not (tmp_path / "made").exists()
    with one_line(DataError, f"there is no {tmp_path / 'nothing.txt'}: name by --from"):
        make_folder(write.__name__, tmp_path / "nothing.txt", tmp_path / "made")
    with one_line(DataError, "'mnli' needs no folder"):
        make_folder("mnli", tmp_path, tmp_path / "made")
