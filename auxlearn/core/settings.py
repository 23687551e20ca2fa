"""The values that a configuration is composed of."""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from auxlearn.core.errors import ConfigError, describe, printable, shorten
from auxlearn.core.files import name_problem, path_problem
from auxlearn.core.registry import canonical
from auxlearn.core.validation import Described, Option, Settings, config_error

#: How a text longer than ``max_length`` is read; see :mod:`auxlearn.data.tokens`.
TextWindow = Literal["head", "head+tail", "windows"]

#: How the class logits of the windows of a text become those of the text.
WindowPooling = Literal["mean", "max"]

MAX_WINDOWS = 16  # windows of a text that are read unless ``max_windows`` says otherwise

#: Characters of the name of a class.
LONGEST_LABEL = 200


class Windowing(Settings):
    """How texts longer than ``max_length`` are read; an exported model has it in config.json."""

    text_window: TextWindow = "head"
    window_stride: int = Field(0, ge=0)  # tokens that a window shares with the one before it
    max_windows: int = Field(MAX_WINDOWS, ge=1)  # from the beginning of a text
    window_pooling: WindowPooling = "mean"

    @property
    def in_windows(self) -> bool:
        """Whether a text can be more than one row of tokens."""
        return self.text_window == "windows"

    @property
    def tokens_key(self) -> tuple[str | int, ...]:
        """What cached tokens depend on; nothing for the first ones."""
        if self.in_windows:
            return self.text_window, self.window_stride, self.max_windows
        return () if self.text_window == "head" else (self.text_window,)


def labels_as_texts(value: Any) -> Any:
    """Take a whole number or a boolean for the label that a file has in its place."""
    if not isinstance(value, Mapping):
        return value
    return {
        label_text(name): tuple(
            map(label_text, labels if isinstance(labels, list | tuple) else (labels,))
        )
        for name, labels in value.items()
    }


def label_text(value: Any) -> Any:
    """Return the name of a label: its digits, "true", "false", or a text in Unicode's composed form
    without spaces and invisible marks, such as a byte order mark, around it; others as they are.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    is_fractional = isinstance(value, float | Decimal) and math.isfinite(value)
    if isinstance(value, Integral) or (is_fractional and value == int(value)):
        return str(int(value))
    if not isinstance(value, str):
        return value
    return unicodedata.normalize("NFC", value).strip().strip("\ufeff\u200b\u2060").strip()


def _are_labels(value: Mapping[str, Any]) -> Mapping[str, Any]:
    by_class = labels_as_texts(value)
    for name, labels in by_class.items():
        if not labels or not all(isinstance(label, str) and label for label in labels):
            raise ValueError(
                f"the class '{shorten(name)}' stands for a label, or a list of labels: texts, "
                "whole numbers, true or false"
            )
    return value


#: Label of a further set, or list of labels, by class of the model.
LabelMap = Annotated[Mapping[str, Any], AfterValidator(_are_labels)]


def each_label_once(value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    owners: dict[str, str] = {}
    for name, labels in value.items():
        if not name or not labels or not all(labels):
            raise ValueError(f"the class '{shorten(name)}' stands for nothing, or has no name")
        if printable(name) != name or len(name) > LONGEST_LABEL:
            raise ValueError(
                f"the class '{shorten(name)}' has a control character, or more than "
                f"{LONGEST_LABEL} characters"
            )
        for label in labels:
            other = owners.setdefault(label, name)
            if other is not name or labels.count(label) > 1:
                twice = "twice" if other is name else f"for '{shorten(other)}' as well"
                raise ValueError(
                    f"the label '{shorten(label)}' is given for the class '{shorten(name)}' and "
                    f"{twice}: a label has one class"
                )
    return value


#: Labels of the data by the class that they stand for: ``{positive: 1, other: [2, 3]}``.
ClassLabels = Annotated[
    dict[str, tuple[str, ...]], BeforeValidator(labels_as_texts), AfterValidator(each_label_once)
]


def is_path(path: str) -> str:
    if problem := path_problem(path):
        raise ValueError(problem)
    return path


PathText = Annotated[str, AfterValidator(is_path)]  # a path in the settings


def _one_of_several(fold: Any) -> Any:
    shown = str(fold)
    match = re.fullmatch("([1-9][0-9]{0,2})/([1-9][0-9]{0,2})", shown)
    number, count = map(int, match.groups()) if match else (0, 0)
    if count < 2 or number > count:
        raise ValueError(
            f"{shorten(shown)} is no fold (of 999 at most): those of five are 1/5 to 5/5"
        )
    return fold


#: A fold of a cross-validation, such as ``2/5``.
Fold = Annotated[str, BeforeValidator(_one_of_several)]


def _copied(value: Any) -> Any:
    """Return a value without the lists and mappings of who gave it, who may change them later."""
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value


class PluginChoice(Settings):
    """A plug-in chosen by name, with its options; in YAML ``name`` or ``{name: {option: value}}``,
    where a task may have a name of its own in results and logs, as in ``supervised:questions``.
    """

    name: Annotated[str, AfterValidator(canonical)]
    title: str = ""  # its own name; empty without one
    #: Those left out have their defaults.
    options: Annotated[dict[str, Any], AfterValidator(_copied)] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, str):
            if "{" in value:
                raise ValueError(
                    "write its name alone: options are a mapping in a file or in Python, and flags "
                    "of their own on the command line"
                )
            value = {value: {}}
        is_mapping = isinstance(value, dict)
        if isinstance(value, cls) or (is_mapping and value.keys() <= {"name", "title", "options"}):
            return value
        if not is_mapping or len(value) != 1:
            raise ValueError("write a name, or one name with its options: {name: {...}}")
        ((name, options),) = value.items()
        if options is not None and not isinstance(options, dict):
            raise ValueError(f"the options of '{name}' are a mapping of option to value")
        name, colon, title = name.partition(":") if isinstance(name, str) else (name, "", "")
        if colon and not title:
            raise ValueError(f"'{name}:' has no name behind the colon: write {name}:NAME")
        return {"name": name, "title": title, "options": options or {}}

    @property
    def label(self) -> str:
        """Its own name, or else that of the plug-in."""
        return self.title or self.name

    @property
    def written(self) -> str:
        return f"{self.name}:{self.title}" if self.title else self.name

    @field_validator("title")
    @classmethod
    def _in_small_letters(cls, title: str) -> str:
        if title and not re.fullmatch(r"[a-z][a-z0-9_-]*", title):
            raise ValueError(f"the name '{shorten(title)}': use lower-case letters, digits and '_'")
        if title == "primary":
            raise ValueError("the name 'primary' is that of the primary task: choose another one")
        return canonical(title)

    @model_serializer
    def _short_form(self) -> dict[str, dict[str, Any]]:
        return {self.written: self.options}


#: What a setting says: on what and by which measure is trained, which methods that are compared
#: share; or where and what is recorded, which changes no result. All others make the method.
Role = Literal["setting", "record"]


def setting(default: Any, role: Role, **rules: Any) -> Any:
    """Return a field of settings that makes no method."""
    return Field(default, json_schema_extra={"role": role}, **rules)


def settings_with(role: Role, settings: type[Settings]) -> set[str]:
    fields = settings.model_fields.items()
    return {name for name, field in fields if field.json_schema_extra == {"role": role}}


#: Name of a column of a data set.
ColumnName = Annotated[str, Field(min_length=1)]


class Columns(Described):
    """How the columns of a labelled data set are read."""

    #: Whether nothing is trained on the data: they may lack labels of ``labels``, and their dev and
    #: test may have some that their train lacks.
    only_evaluated: ClassVar[bool] = False

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, *unnamed: Any, **values: Any) -> None:
            if unnamed:
                raise ConfigError(
                    f"{type(self).__name__} takes settings by name, such as "
                    f"label_column='stance', but {describe(unnamed[0])} has none"
                )
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise config_error(error, type(self), "settings") from None

        __init__.__pydantic_base_init__ = True  # what is read from files does not pass through it

    text_column: ColumnName | None = setting(None, "setting")
    """Column of the text; by default 'text'."""

    text_pair_column: ColumnName | None = setting(None, "setting")
    """Column of the second text of a pair; by default 'text_pair' if there is such a column."""

    label_column: ColumnName | None = setting(None, "setting")
    """Column of the label; by default 'label'."""

    kind: Annotated[str | None, Option(completes=True)] = setting(
        None, "setting", exclude_if=lambda kind: kind is None
    )
    """Kind of the labels: one class (classification), a list of labels (multi_label), a number
    (regression), a tag for each word (token_classification), or its head and relation (dependency);
    by default found from them."""

    keep_null_labels: bool = setting(False, "setting")
    """Accept labels such as nan, None, null and NA, which usually stand for a missing value, as
    names of classes."""

    labels: Annotated[ClassLabels, Option("CLASS=LABEL")] = Field({})
    """Label of the data that a class stands for; repeatable, also for one class. A label that is
    not named is a class itself."""

    unknown_labels: Literal["error", "count"] = "error"
    """Labels of dev and test that train lacks: they are an error, or their examples count as
    wrong."""

    @property
    def text(self) -> str:
        return self.text_column or "text"

    @property
    def text_pair(self) -> str:
        """Column of the second text of a pair; that of the default name need not be there."""
        return self.text_pair_column or "text_pair"

    @property
    def label(self) -> str:
        return self.label_column or "label"

    @property
    def renamed(self) -> dict[str, str]:
        """Class by label of the data, for the labels that ``labels`` names."""
        return {label: name for name, labels in self.labels.items() for label in labels}

    _codes: bool = PrivateAttr(False)

    @property
    def codes(self) -> bool:
        """Whether a label such as 428.0 is a name, and not the number 428, as a model has it."""
        return self._codes

    def of_model(self, label_names: Iterable[str]) -> Self:
        """Return these settings for data with the classes of a model, which has read them so."""
        copy = self.model_copy()
        copy._codes = any(re.fullmatch(r"[+-]?[0-9]+\.[0-9]+", name) for name in label_names)
        return copy

    @property
    def columns(self) -> Columns:
        """These settings alone."""
        return Columns(**{name: getattr(self, name) for name in Columns.model_fields})


USUAL = Columns()  # columns of the usual names, without rules for labels


class FurtherSet(Settings):
    """A labelled data set besides that of the run: a path, card name or hub id, or a mapping."""

    dataset: str
    name: str = ""  # in the results; by default the last part of ``dataset``
    text_column: ColumnName | None = None
    text_pair_column: ColumnName | None = None
    label_column: ColumnName | None = None
    keep_null_labels: bool = False
    kind: str | None = Field(None, exclude_if=lambda kind: kind is None)

    @property
    def columns(self) -> Columns:
        """How its columns are read: labels as they are, without a map."""
        mapped = {"labels"}  # of an evaluation set, by label of the model
        return Columns(**{k: v for k, v in self if k in Columns.model_fields and k not in mapped})

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, str | os.PathLike):
            value = {"dataset": os.fspath(value)}
        if not isinstance(value, dict | cls):
            raise ValueError(
                "write a path, card name or hub id, or a mapping: {dataset: ..., name: ...}"
            )
        if isinstance(value, dict) and not value.get("name"):
            source = value.get("dataset")
            if isinstance(source, str | os.PathLike):
                value = {**value, "name": Path(source).name.split(":")[-1]}
        return value

    @field_validator("name")
    @classmethod
    def _names_a_file(cls, name: str) -> str:
        if problem := name_problem(name):
            raise ValueError(f"{problem}; give the set one by 'name'")
        return name


class OODSource(FurtherSet):
    """An evaluation set out of distribution; what is left out, the card of that name says."""

    split: str = "test"  # split to evaluate on
    #: Label of the set by label of the model. Several labels of the model may map to one label of
    #: the set; labels that are equal up to case need no entry.
    labels: dict[str, str] | None = None
    #: Of labels of the model that map to one label, the sum of their probabilities counts, or the
    #: most likely label of the model.
    decision: Literal["sum", "argmax"] = "sum"
    #: Columns whose values define subsets with metrics of their own.
    subsets: tuple[str, ...] | None = None
    pairs: str | None = None  # split whose examples are paired, in order, with those of ``split``
    #: A label that the model does not know is an error, or its examples count as wrong.
    unknown_labels: Literal["error", "count"] = "error"


@dataclass(frozen=True)
class ValidationSource:
    """Examples of a validation gradient: ``dev``, ``train:SHARE`` or the path of a file."""

    share: float | None = None  # share of train that is held out, between 0 and 1
    file: Path | None = None  # with neither of the two, the examples are those of dev

    @property
    def is_dev(self) -> bool:
        return self.share is None and self.file is None

    @classmethod
    def parse(cls, text: str) -> ValidationSource:
        if text == "dev":
            return cls()
        if share := re.fullmatch(r"train:(0?\.\d*[1-9]\d*)", text):
            return cls(share=float(share[1]))
        if re.fullmatch(r".+\.(jsonl|csv|tsv|parquet)", text):
            return cls(file=Path(text))
        raise ValueError(
            "expected dev, train:SHARE with 0 < SHARE < 1, or a .jsonl, .csv, .tsv or .parquet file"
        )


BASE_LEARNING_RATE = 1e-4  # L3Masking (Table 2) trains all its base-sized encoders at this rate


@dataclass(frozen=True)
class EncoderCard:
    """Encoder of a short name."""

    source: str  # hub id or folder
    title: str  # one line for lists
    #: Whether its vocabulary is one of lower-cased texts. "unsaid": its vocabulary has capitals,
    #: but neither its files nor its owner say that texts are to keep theirs.
    casing: Literal["cased", "uncased", "unsaid"]
    learning_rate: float = BASE_LEARNING_RATE  # recommended peak learning rate under AdamW

    @property
    def description(self) -> str:
        """Title, casing and hub id in one line."""
        casing = "casing not said" if self.casing == "unsaid" else self.casing
        hub_id = "" if Path(self.source).is_absolute() else f", {self.source}"
        return f"{self.title}, {casing}{hub_id}"


ENCODERS = {
    "tiny": EncoderCard(
        str(Path(__file__).parents[1] / "encoders" / "tiny"),
        "1.4 M parameter BERT shipped with auxlearn, for demos and tests",
        "uncased",
        1e-3,
    ),
    "bert": EncoderCard("google-bert/bert-base-uncased", "BERT base", "uncased"),
    "roberta": EncoderCard("FacebookAI/roberta-base", "RoBERTa base", "cased"),
    "scibert": EncoderCard(
        "allenai/scibert_scivocab_uncased", "BERT base of scientific papers", "uncased"
    ),
    "clinicalbert": EncoderCard("medicalai/ClinicalBERT", "DistilBERT of clinical text", "unsaid"),
    "bio-clinicalbert": EncoderCard(
        "emilyalsentzer/Bio_ClinicalBERT", "BERT base of clinical notes", "cased"
    ),
    # The middle of the grid of Mask-tuning (2023, section IV), the one paper here that trains BART.
    "bart": EncoderCard("facebook/bart-base", "BART base (encoder-decoder)", "cased", 3e-5),
}

_FORMER_IDS = {
    "google-bert": "bert-base-uncased bert-base-cased bert-large-uncased bert-large-cased "
    "bert-base-multilingual-cased bert-base-multilingual-uncased bert-base-chinese "
    "bert-base-german-cased",
    "FacebookAI": "roberta-base roberta-large xlm-roberta-base xlm-roberta-large",
    "distilbert": "distilbert-base-uncased distilbert-base-cased distilroberta-base "
    "distilbert-base-multilingual-cased",
    "albert": "albert-base-v1 albert-base-v2 albert-large-v2 albert-xlarge-v2 albert-xxlarge-v2",
    "almanach": "camembert-base",
}
#: Ids from before repositories had owners, and where the hub redirects them to.
REDIRECTED = {
    name: f"{owner}/{name}" for owner, names in _FORMER_IDS.items() for name in names.split()
}


def encoder_source(name: str) -> str:
    """Return the hub id or folder of an encoder."""
    if name in ENCODERS:
        return ENCODERS[name].source
    if name.startswith("~"):
        with suppress(RuntimeError):  # there is no such user
            return str(Path(name).expanduser())
    redirected = name in REDIRECTED and not Path(name).is_dir()
    return REDIRECTED[name] if redirected else name


def recommended_learning_rate(name: str) -> float:
    card = ENCODERS.get(name)
    return card.learning_rate if card else BASE_LEARNING_RATE
