"""Replicas of data sets as their owners ship them, and the frames that they are made of.

``python -m tests.data.replicas`` writes the table of ``docs/guides/data.md``.
"""

from __future__ import annotations

import csv
import gzip
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value, concatenate_datasets

from auxlearn.core.settings import USUAL, Columns
from auxlearn.data.load import card_names, find_card

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "data.md"

WORDS = ("the", "parser", "of", "a", "sentence", "is", "tested", "on", "this", "corpus")

#: Names of the classes on the hub where the cards have others.
HUB_NAMES = {"imdb": ["neg", "pos"], "paws": ["0", "1"]}


def frame(
    split: str, rows: int, names: list[str], columns: Sequence[str] = ("text",)
) -> pd.DataFrame:
    """Rows with texts that no other split has, and each of the classes."""
    texts = {
        column: [f"{split} {column} {row} {WORDS[row % len(WORDS)]}" for row in range(rows)]
        for column in columns
    }
    return pd.DataFrame({**texts, "label": [names[row % len(names)] for row in range(rows)]})


def as_dataset(rows: pd.DataFrame, names: list[str], hidden: bool = False) -> Dataset:
    """The rows as ``datasets`` has them: classes by number, -1 where they are hidden."""
    features = {column: Value("string") for column in rows if column != "label"}
    values = rows.to_dict("list")
    values["label"] = [-1 if hidden else names.index(label) for label in values["label"]]
    return Dataset.from_dict(values, Features({**features, "label": ClassLabel(names=names)}))


def write_repository(
    folder: Path, configs: dict[str, DatasetDict], default: str | None = None
) -> None:
    """Write a repository as ``push_to_hub`` does: Parquet files, and a README that lists them."""
    lines = ["---", "configs:"]
    for name, splits in configs.items():
        lines += [f"- config_name: {name}", "  data_files:"]
        for split, data in splits.items():
            path = folder / name / f"{split}-00000-of-00001.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            data.to_parquet(str(path))
            lines += [f"  - split: {split}", f"    path: {name}/{split}-*"]
        lines += ["  default: true"] if name == default else []
    (folder / "README.md").write_text("\n".join([*lines, "---", "", "# A data set", ""]))


def write_script(folder: Path, configs: dict[str, DatasetDict]) -> None:
    """Write a repository of a loading script, and beside it the hub's conversion to Parquet."""
    folder.mkdir(parents=True)
    (folder / f"{folder.name.partition('--')[2]}.py").write_text("raise SystemExit('run')\n")
    converted = folder.with_name(f"{folder.name}@refs--convert--parquet")
    for name, splits in configs.items():
        for split, data in splits.items():
            (converted / name / split).mkdir(parents=True)
            data.to_parquet(str(converted / name / split / "0000.parquet"))


def write_lines(path: Path, rows: pd.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.to_json(path, orient="records", lines=True)


def card_frames(name: str) -> dict[str, pd.DataFrame]:
    """The rows of each split that the hub has of a card's data set, with the hub's class names."""
    card = find_card(name)
    assert card.hub is not None
    names = HUB_NAMES.get(name, card.label_names)
    texts = [card.hub.columns.get("text", "text")]
    texts += [card.hub.columns["text_pair"]] if "text_pair" in card.hub.columns else []
    used = [one for splits in card.hub.splits.values() for one in splits.split("+")]
    return {
        split: frame(split, 2 * len(names) + 20 + number, names, texts)
        for number, split in enumerate(dict.fromkeys(used))
    }


def write_cards(repositories: Path) -> None:
    """Write the repositories of all cards."""
    of_one_id: dict[str, dict[str, DatasetDict]] = {}
    for name in card_names():
        card = find_card(name)
        if card.hub is None:
            continue
        names, frames = HUB_NAMES.get(name, card.label_names), card_frames(name)
        if card.hub.id.startswith("zapsdcn/"):  # JSON lines, without any README
            stem = card.hub.id.partition("/")[2]
            for split, rows in frames.items():
                file = f"{stem}_{'dev' if split == 'validation' else split}.jsonl"
                write_lines(repositories / f"zapsdcn--{stem}" / file, rows)
            continue
        splits = {split: as_dataset(rows, names) for split, rows in frames.items()}
        hidden = "unsupervised" if name == "imdb" else "test"
        if hidden not in splits:
            splits[hidden] = as_dataset(next(iter(frames.values())).head(8), names, hidden=True)
        config = card.hub.config or "plain_text"
        of_one_id.setdefault(card.hub.id, {})[config] = DatasetDict(splits)
    for repository, configs in of_one_id.items():
        default = None if len(configs) > 1 else next(iter(configs))
        write_repository(repositories / repository.replace("/", "--"), configs, default)


NAMES = ["pos", "neg"]  # in an order that is not that of the alphabet
ROWS = {
    "train": frame("train", 24, NAMES),
    "dev": frame("dev", 8, NAMES),
    "test": frame("test", 9, NAMES),
}
SAVED = DatasetDict({split: as_dataset(rows, NAMES) for split, rows in ROWS.items()})


@dataclass(frozen=True)
class Form:
    """A form in which data come: how the page calls it, and what becomes of it."""

    given: str
    read: str  # what the page says; of what is refused, REFUSED and a part of the message
    write: Callable[[Path], Any]  # writes it; returns what is loaded, by default the folder
    rows: dict[str, pd.DataFrame] = field(default_factory=lambda: ROWS)
    names: list[str] | None = None  # of the classes in order, by default that of the alphabet
    columns: Columns = USUAL
    prepared: bool = True  # whether ``datasets`` keeps what is read of it


REFUSED = "refused: "


def files(pattern: str, change: Callable[[pd.DataFrame], pd.DataFrame] = lambda rows: rows) -> Any:
    """A writer of a file for each split in the format of its suffix."""

    def write(folder: Path) -> None:
        for split, rows in ROWS.items():
            path = folder / pattern.format(split)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, change(rows))

    return write


def write_file(path: Path, rows: pd.DataFrame) -> None:
    if path.suffix == ".jsonl":
        write_lines(path, rows)
    elif path.suffix == ".json":
        rows.to_json(path, orient="records")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(rows.to_csv(index=False).encode()))
    elif path.suffix == ".arrow":
        path.write_bytes(b"ARROW1")
    elif path.suffix == ".conllu":
        path.write_text(treebank(rows))
    else:
        rows.to_csv(path, sep="\t" if path.suffix == ".tsv" else ",", index=False)


def treebank(rows: pd.DataFrame) -> str:
    """A sentence of two words for each row, the second tagged with its class."""
    lines = []
    for text, label in rows[["text", "label"]].itertuples(index=False):
        first, second = text.split()[0], text.split()[-1]
        lines += [f"1\t{first}\t_\tNOUN\t_\t_\t2\tdep\t_\t_"]
        lines += [f"2\t{second}\t_\t{label}\t_\t_\t0\troot\t_\t_", ""]
    return "\n".join(lines) + "\n"


TAGGED = {
    split: pd.DataFrame(
        {
            "text": [f"{text.split()[0]} {text.split()[-1]}" for text in rows["text"]],
            "label": [["NOUN", label] for label in rows["label"]],
        }
    )
    for split, rows in ROWS.items()
}


def named(**names: str) -> Any:
    """A writer of JSON lines whose files have these names, by split."""

    def write(folder: Path) -> None:
        for split, name in names.items():
            write_lines(folder / f"{name}.jsonl", ROWS[split])

    return write


def glue(folder: Path) -> None:
    """SST-2 as GLUE ships it: no quoting, and a test file without labels."""
    folder.mkdir()
    for split, rows in ROWS.items():
        shown = rows[["text"]].reset_index() if split == "test" else rows
        shown = shown.rename(columns={"text": "sentence"})
        shown.to_csv(folder / f"{split}.tsv", sep="\t", index=False, quoting=csv.QUOTE_NONE)


def beside_predictions(folder: Path) -> None:
    """A set in whose folder the predictions of its test file have been written."""
    files("{}.csv")(folder)
    write_file(folder / "test_predicted.csv", ROWS["test"].assign(predicted_label="neg"))


def class_folders(folder: Path) -> None:
    """As the archive of IMDb: a file for each text, and texts without a class."""
    for split in ("train", "test"):
        for row, (text, label) in enumerate(ROWS[split].itertuples(index=False)):
            path = folder / split / label / f"{row:03}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (folder / "train" / "unsup").mkdir()
    (folder / "train" / "unsup" / "0.txt").write_text("a text without a class")
    (folder / "imdb.vocab").write_text("the\n")


def parquet(data: DatasetDict, pattern: str = "{}.parquet") -> Any:
    """A writer of a Parquet file for each split."""

    def write(folder: Path) -> None:
        folder.mkdir()
        for split, rows in data.items():
            rows.to_parquet(str(folder / pattern.format(split)))

    return write


def shards(folder: Path) -> None:
    (folder / "data").mkdir(parents=True)
    for number in range(2):
        part = SAVED["train"].shard(2, number, contiguous=True)
        part.to_parquet(str(folder / f"data/train-{number:05}-of-00002.parquet"))
    for split in ("dev", "test"):
        part = f"data/{split}-00000-of-00001-7dc8c9f1b1f4c6b1.parquet"  # as in 2022 and 2023
        SAVED[split].to_parquet(str(folder / part))


def clone(folder: Path) -> str:
    write_repository(folder, {"films": SAVED, "books": DatasetDict(train=SAVED["dev"])})
    return f"{folder}:films"


HIDDEN = DatasetDict({**SAVED, "test": as_dataset(ROWS["test"], NAMES, hidden=True)})
PARTLY = DatasetDict({**SAVED, "train": concatenate_datasets([SAVED["train"], HIDDEN["test"]])})
LABELLED = {split: ROWS[split] for split in ("train", "dev")}

FORMS = [
    Form("`train`, `dev` and `test` as `.csv`", "as they are", files("{}.csv")),
    Form(
        "the same as `.tsv`",
        "a line is a row; quoted cells as CSV writers make them",
        files("{}.tsv"),
    ),
    Form("the same as `.jsonl`", "as they are", files("{}.jsonl")),
    Form(
        "`training`; `validation`, `valid`, `val`, `validate`, `development`, `devel`; `testing`, "
        "`eval`, `evaluation`",
        "as train, dev and test",
        named(train="training", dev="devel", test="eval"),
    ),
    Form(
        "`multinli_1.0_train`, `..._dev_matched`, `..._dev_mismatched`",
        "what all names begin with is left out; `matched` is dev, or test",
        named(train="m_1.0_train", dev="m_1.0_dev_matched", test="m_1.0_dev_mismatched"),
        {**LABELLED, "dev_mismatched": ROWS["test"]},
    ),
    Form(
        "`en_ewt-ud-train.conllu`: a treebank as it is shipped",
        "the same",
        files("en_ewt-ud-{}.conllu"),
        TAGGED,
    ),
    Form(
        "`train-00000-of-00002.parquet`, in a folder `data`",
        "the parts of a split together",
        shards,
        names=NAMES,
    ),
    Form("a folder for each split, with tables", "as they are", files("{}/part.csv")),
    Form(
        "a folder for each split, in it one for each class, with a file for each text",
        "the folder is the class; texts in `unsup` are left out, with a note",
        class_folders,
        {split: ROWS[split].sort_values("label", kind="stable") for split in ("train", "test")},
    ),
    Form(
        "Parquet that `datasets` has written",
        "names of classes and their order from its metadata, also of tags and lists",
        parquet(SAVED),
        names=NAMES,
    ),
    Form(
        "a folder of `save_to_disk`",
        "as the object in memory",
        lambda folder: SAVED.save_to_disk(str(folder)),
        names=NAMES,
    ),
    Form("a `DatasetDict` in memory", "as the same from the hub", lambda _: SAVED, names=NAMES),
    Form(
        "a copy of a repository of the hub whose README lists its files",
        "as from the hub; `FOLDER:CONFIGURATION` where it has several",
        clone,
        names=NAMES,
    ),
    Form(
        "a split whose labels are all -1 (or -1.0), as those of GLUE's tests, in memory",
        "left out, with a note",
        lambda _: HIDDEN,
        LABELLED,
        NAMES,
    ),
    Form("the same in files", "left out, with a note", parquet(HIDDEN), LABELLED, NAMES),
    Form(
        "a further file of predictions (column `predicted_label`) or scores (`log_probability`)",
        "left out, with a note",
        beside_predictions,
    ),
    Form(
        "some labels -1 where classes have names",
        "these examples are left out, with a note",
        parquet(PARTLY),
        names=NAMES,
    ),
    Form(
        "a test file without a label column, as GLUE's own",
        "left out, with a note",
        glue,
        LABELLED,
        columns=Columns(text_column="sentence"),
    ),
    Form(
        "`train.csv.gz` and other packed files",
        f"{REFUSED}a packed file cannot be read: unpack it",
        files("{}.csv.gz"),
    ),
    Form(
        "`train.json`",
        f"{REFUSED}a table in JSON has one object on each line and the suffix .jsonl: save it so",
        files("{}.json"),
    ),
    Form(
        "`train.arrow`",
        f"{REFUSED}save it as .parquet, or give the folder of save_to_disk",
        files("{}.arrow"),
    ),
    Form(
        "texts such as `b'...'`, as PAWS-QQP has them if it is made with Python 3",
        f"{REFUSED}holds bytes as Python writes them",
        files("{}.csv", lambda rows: rows.assign(text=[repr(t.encode()) for t in rows["text"]])),
    ),
    Form(
        "a treebank whose words are all `_`",
        f"{REFUSED}every word is _: the texts were left out of this copy",
        files("{}.conllu", lambda rows: rows.assign(text="_ _")),
    ),
    Form(
        "an address of the hub",
        f"{REFUSED}give the id of a data set of the hub, which is OWNER/NAME",
        lambda _: "https://huggingface.co/datasets/nyu-mll/glue",
    ),
]


def on_hub(write: Callable[[Path], None], name: str, ending: str = "") -> Any:
    """A writer of a repository ``me/NAME``; what is loaded is its id with an ending."""

    def write_it(repositories: Path) -> str:
        write(repositories / f"me--{name}")
        return f"me/{name}{ending}"

    return write_it


SCORES = {
    split: rows.assign(label=-1.0 if split == "test" else rows.index / 4)
    for split, rows in ROWS.items()
}
QUOTED = {
    split: rows.assign(
        text=[f'"{text}' if row in (2, 5) else text for row, text in enumerate(rows["text"])]
    )
    for split, rows in ROWS.items()
}
WITH_NA = {split: rows.replace({"label": {"neg": "NA"}}) for split, rows in ROWS.items()}
WITH_HIDDEN = {
    split: rows.assign(label=["-" if row == 1 else name for row, name in enumerate(rows["label"])])
    for split, rows in ROWS.items()
}
TWO_DEVS = DatasetDict(train=SAVED["train"], dev=SAVED["dev"], validation=SAVED["test"])
USUAL_NAMES = DatasetDict(train=SAVED["train"], validation=SAVED["dev"], test=SAVED["test"])


def zipped(folder: Path) -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "all.zip", "w") as file:
        for split, rows in ROWS.items():
            file.writestr(f"{split}.csv", rows.to_csv(index=False))


def frames(data: dict[str, pd.DataFrame], suffix: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for split, rows in data.items():
            folder.mkdir(exist_ok=True)
            if suffix == ".tsv":
                lines = [rows.columns, *rows.itertuples(index=False)]
                text = "".join("\t".join(map(str, line)) + "\n" for line in lines)
                (folder / f"{split}.tsv").write_text(text)
            else:
                write_file(folder / f"{split}{suffix}", rows)

    return write


HUB_FORMS = [
    Form(
        "Parquet files, with `validation`",
        "as they are; the split is dev",
        on_hub(lambda f: write_repository(f, {"default": USUAL_NAMES}), "parquet"),
        names=NAMES,
    ),
    Form(
        "splits `dev` and `validation`",
        "both: `dev` is dev, and `validation` a further set",
        on_hub(lambda f: write_repository(f, {"default": TWO_DEVS}), "two-devs"),
        {**LABELLED, "validation": ROWS["test"]},
        NAMES,
    ),
    Form(
        "several configurations",
        "`OWNER/NAME:CONFIGURATION`; without one, a line lists them",
        on_hub(lambda f: write_repository(f, {"a": SAVED, "b": HIDDEN}), "several", ":a"),
        names=NAMES,
    ),
    Form(
        "the same without one",
        f"{REFUSED}has the configurations a, b: write one of them after the id and a colon",
        lambda _: "me/several",
        prepared=False,
    ),
    Form(
        "a revision (branch, tag, commit)",
        "`OWNER/NAME@REVISION`",
        lambda _: "me/parquet@main",
        names=NAMES,
        prepared=False,
    ),
    Form(
        "a loading script",
        "not run: the hub's own Parquet files of the set (`refs/convert/parquet`)",
        on_hub(lambda f: write_script(f, {"plain": SAVED}), "script"),
        names=NAMES,
        prepared=False,
    ),
    Form(
        "scores that are all -1.0, as the test split of STS-B",
        "left out, with a note",
        on_hub(frames(SCORES, ".jsonl"), "scores"),
        {split: SCORES[split] for split in LABELLED},
        ["score"],
        Columns(kind="regression"),
    ),
    Form(
        "CSV with a class `NA`",
        "a class, with `--keep-null-labels`; without it an error says so",
        on_hub(frames(WITH_NA, ".csv"), "na"),
        WITH_NA,
        columns=Columns(keep_null_labels=True),
        prepared=False,
    ),
    Form(
        "TSV with lone quotation marks",
        "a line is a row",
        on_hub(frames(QUOTED, ".tsv"), "quotes"),
        QUOTED,
        prepared=False,
    ),
    Form(
        "`.conllu`",
        "as the same on disk",
        on_hub(files("en_toy-ud-{}.conllu"), "treebank"),
        TAGGED,
        prepared=False,
    ),
    Form(
        "-100, or `-` as SNLI has it, among classes without names",
        "these examples are left out, with a note",
        on_hub(frames(WITH_HIDDEN, ".jsonl"), "hidden"),
        {split: rows[rows["label"] != "-"] for split, rows in WITH_HIDDEN.items()},
    ),
    Form(
        "a zip file",
        f"{REFUSED}is an archive, all.zip: unpack it and give the folder",
        on_hub(zipped, "zip"),
        prepared=False,
    ),
]


def page_table(forms: list[Form], head: str) -> list[str]:
    lines = [f"| {head} | how it is read |", "|---|---|"]
    return lines + [f"| {form.given} | {form.read} |" for form in forms]


def page() -> str:
    """The page with the tables of the forms below."""
    text = PAGE.read_text()
    for head, forms in (("in files or memory", FORMS), ("on the hub", HUB_FORMS)):
        begin = text.index(f"| {head} |")
        end = text.index("\n\n", begin)
        text = text[:begin] + "\n".join(page_table(forms, head)) + text[end:]
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
