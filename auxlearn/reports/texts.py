"""Texts of a report: misclassified examples, and training texts with the tokens that were changed.

The run folder holds no texts of the evaluation sets. They are read again from the data set, and
shown only if its content is still that which the run has recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from auxlearn.comparison.runs import NamedRun
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import RunError, UserError, first_fault
from auxlearn.core.files import read_json
from auxlearn.core.settings import Columns
from auxlearn.data.run_data import RunData, load_run_data
from auxlearn.mask_analysis.shown_text import ShownText
from auxlearn.results.folder import RunFolder, recorded_inputs
from auxlearn.results.perturbation_log import FILE, PerturbationRecord, read_perturbations
from auxlearn.results.predictions import Prediction, read_predictions
from auxlearn.results.record import RunResults

#: Characters of a text.
MOST_CHARACTERS = 600
#: Classes of an example whose probabilities are shown.
MOST_CLASSES = 3


@dataclass(frozen=True)
class Run:
    """A finished run; without ``reveal``, a value that may lose the choice shows dev alone."""

    named: NamedRun
    results: RunResults
    config: RunConfig
    reveal: bool

    @property
    def path(self) -> Path:
        return self.named.path

    @property
    def sets(self) -> list[str]:
        """Names of the evaluation sets whose scores may be shown: test first, dev last."""
        names = [name for name in self.results.evaluations if self.reveal or name == "dev"]
        return sorted(names, key=lambda name: (name == "dev", name != "test"))


@dataclass(frozen=True)
class Mistake:
    """A misclassified example."""

    set: str
    number: int  # number of the example in the set, from 1
    label: str
    predicted: str
    probabilities: list[tuple[str, float]]  # of the most probable labels, best first
    texts: list[str]  # the text, or the two texts of a pair; empty if they are left out


@dataclass(frozen=True)
class Mistakes:
    """Misclassified examples of a run."""

    shown: list[Mistake]  # some of them, those with the most certain predictions
    total: dict[str, int]  # number of misclassified examples by set
    order: str  # which ones are shown

    def values(self, name: str) -> list[str]:
        return sorted({getattr(mistake, name) for mistake in self.shown})


@dataclass(frozen=True)
class Piece:
    """A part of a text."""

    text: str  # the original text
    kind: Literal["plain", "kept", "changed", "rated"]  # kept: masked, predicted
    new: str = ""  # what the text was replaced by, if it was changed
    level: int = 2  # how often it is masked, from 0 to 4; 2 is about as often as random masking


@dataclass(frozen=True)
class MarkedTexts:
    """Texts with marked tokens."""

    title: str  # what the marks mean
    note: str  # how they came about
    texts: list[tuple[str, list[Piece]]]  # which text it is, and its pieces


class DataReader:
    """Reads the data sets of runs again, each once however many runs share it."""

    def __init__(self) -> None:
        self._read: dict[str, RunData | str] = {}

    def read(self, run: Run) -> tuple[RunData | None, list[str]]:
        """Return the data of a run if it is still the same, and else why not."""
        config = run.config
        fields = {"dataset", "ood", "fold", "text_window", *Columns.model_fields}
        key = config.model_dump_json(include=fields)
        if key not in self._read:
            try:
                self._read[key] = load_run_data(config, None)
            except UserError as error:
                self._read[key] = str(error)
        data = self._read[key]
        if not isinstance(data, str):
            if data.dataset.fingerprint == run.results.dataset.fingerprint:
                return data, []
            data = "the data set has changed since the run"
        return None, [f"texts are left out, and the data is not audited: {data}"]


def mistakes(run: Run, data: RunData | None, limit: int) -> Mistakes:
    """Return the misclassified examples of each set, at most so many of each."""
    shown: list[Mistake] = []
    total: dict[str, int] = {}
    kind = run.results.kind
    recorded = recorded_inputs(run.path)
    for name in run.sets:
        evaluation, labels = run.results.evaluations[name].all, run.results.names_of(name)
        split = None if data is None else data.evaluated(name, recorded)
        if split is not None and len(split) != evaluation.examples:
            split = None
        file = f"predictions/{name}.jsonl"
        stored = (run.path / file).exists() or file in run.results.files
        wrong = [
            (fault, number, prediction)
            for number, prediction in enumerate(
                read_predictions(run.path, name, kind, labels) if stored else ()
            )
            if (fault := kind.fault(prediction.truth, prediction.predicted))
        ]
        total[name] = len(wrong)
        wrong.sort(key=lambda mistake: (-mistake[0], -_certainty(mistake[2]), mistake[1]))
        for _, number, prediction in wrong[:limit]:
            likely = sorted(prediction.probabilities.items(), key=lambda pair: -pair[1])
            columns = [] if split is None else [split.texts, split.text_pairs]
            shown.append(
                Mistake(
                    name,
                    number + 1,
                    _written(prediction.content["label"]),
                    _written(prediction.content["predicted"]),
                    likely[:MOST_CLASSES],
                    [cut(column[number]) for column in columns if column],
                )
            )
    return Mistakes(shown, total, kind.mistakes_title)


def _certainty(prediction: Prediction) -> float:
    """Return the probability of the class that is predicted; 0 for labels of other kinds."""
    label = prediction.content["predicted"]
    return prediction.probabilities.get(label, 0.0) if isinstance(label, str) else 0.0


def _written(label: Any) -> str:
    """Return a label of any kind as a text."""
    if isinstance(label, list):
        return " ".join(map(str, label)) or "none"
    return f"{label:.4g}" if isinstance(label, float) else str(label)


def cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."


def perturbed_texts(run: Run, limit: int) -> MarkedTexts | None:
    """Return some training texts as Mask-tuning has perturbed them, if the run has recorded any."""
    if not (run.path / FILE).exists() and FILE not in run.results.files:
        return None
    records = read_perturbations(run.path)
    last = {record.example: record for record in records}
    model = RunFolder(run.path).model_path
    if not model.is_dir() and not run.config.keep_model:
        note = "Left out: the run kept no model (keep_model is off), whose tokenizer they need."
        return MarkedTexts("Perturbed texts", note, [])
    decode = _decoder(model / "tokenizer.json")
    names = run.results.dataset.label_names
    texts = []
    for example, record in sorted(last.items())[:limit]:
        label = "" if record.label is None else f", {names[record.label]}"
        title = f"example {example + 1}{label}, epoch {record.epoch}"
        texts.append((title, _pieces(record, decode)))
    return MarkedTexts(
        "Perturbed texts",
        f"Training texts as the classifier saw them, {len(texts)} of {len(last)} that were "
        "recorded. Struck out: a masked token that was replaced; underlined: what replaced it; "
        "marked: a masked token that was predicted correctly.",
        texts,
    )


def _decoder(path: Path) -> Callable[[Sequence[int]], str]:
    """Return a function from the tokens of a saved tokenizer to text, without loading torch."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise RunError(f"{path} is damaged ({str(error)[:200]})") from None
    special = {
        number
        for number, token in tokenizer.get_added_tokens_decoder().items()
        if token.special and "unk" not in token.content.lower()
    }

    def decode(ids: Sequence[int]) -> str:
        kept = [number for number in ids if number not in special]
        return str(tokenizer.decode(kept, skip_special_tokens=False)).strip()

    return decode


def _pieces(record: PerturbationRecord, decode: Callable[[Sequence[int]], str]) -> list[Piece]:
    """Return the pieces of a text: every masked token, and what is between them."""
    new = dict(zip(record.positions, record.predicted, strict=True))
    pieces = []
    for masked, group in groupby(enumerate(record.input_ids), lambda pair: pair[0] in new):
        if not masked:
            pieces.append(Piece(decode([token for _, token in group]), "plain"))
            continue
        for place, token in group:
            kept = new[place] == token
            after = "" if kept else decode([new[place]])
            pieces.append(Piece(decode([token]), "kept" if kept else "changed", after))
    return pieces


#: File in a run folder that ``auxlearn masks RUN --output RUN/masks`` writes.
MASKS_FILE = "masks/masks.json"
#: Least probability of each level but the lowest, relative to random masking.
LEVELS = (0.25, 0.75, 1.25, 1.75)


def masked_texts(run: Run, limit: int) -> MarkedTexts | None:
    """Return some training texts with the mask probabilities of their tokens."""
    path = run.path / MASKS_FILE
    try:
        shown = TypeAdapter(list[ShownText]).validate_python(read_json(path)["texts"])
        texts = []
        for text in shown:
            for task in text.rates:
                pieces = [
                    Piece(cut(token), "rated", level=sum(times >= least for least in LEVELS))
                    for token, times in zip(text.tokens, text.times(task), strict=True)
                ]
                texts.append((f"example {text.example + 1}, {task}", pieces))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path} is damaged ({first_fault(error)}): delete it, or run "
            f"`auxlearn masks {run.path} --output {path.parent}` again"
        ) from None
    return MarkedTexts(
        "Masked tokens",
        "Tokens of training texts by the probability of being masked, relative to random masking "
        "at the same mean in the text: blue up to three quarters, red from five quarters, stronger "
        "and underlined beyond.",
        texts[:limit],
    )
