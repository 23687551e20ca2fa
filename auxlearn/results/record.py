"""Run results: what ``results.json`` holds, and the account of each task."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from auxlearn.core.arguments import UserPath, checked
from auxlearn.core.config import identity_of, no_run, written_digest
from auxlearn.core.errors import RunError, describe, shorten, some_of
from auxlearn.core.files import (
    MANIFEST,
    Damaged,
    content_digest,
    expand,
    from_here,
    name_problem,
    read_json,
    read_record,
    unusable,
    write_checked_json,
    write_json,
)
from auxlearn.core.registry import KINDS, canonical
from auxlearn.kinds.base import Kind, kind_of
from auxlearn.kinds.classification import SPARSE_KEYS
from auxlearn.kinds.metrics import metric_of, metric_title, sign
from auxlearn.results.environment import Environment
from auxlearn.results.outputs import JSON, check_output_file

if TYPE_CHECKING:
    import pandas


FILE = "results.json"

#: Files of the run folder that grow while the run trains.
LOGS = ("metrics.jsonl", "perturbations.jsonl")

#: Sets whose scores a representation on one line shows.
SHOWN_SETS = 4

#: Whole numbers stay whole ones when they are read.
Number = float | int


@dataclass(frozen=True, repr=False)
class Scores:
    """Metrics on some examples."""

    examples: int
    #: By name, those of the kind of labels; in the file they stand beside ``examples``.
    metrics: dict[str, Number]
    #: Precision, recall, F1 and support by label; of more than 100 classes, on a whole set alone.
    per_class: dict[str, dict[str, Number]]
    #: Number of examples by true class (outer) and predicted class (inner), of single classes. Of
    #: more than 100 classes it is sparse: the lists ``true``, ``predicted`` and ``count``
    #: have one entry for each pair of classes that occurs; scores on parts of a set have none.
    confusion: list[list[int]] | dict[str, list[int]]

    def __repr__(self) -> str:
        return f"<Scores on {self.examples:,} examples: {self.line(', ')}>"

    def line(self, divider: str = " ") -> str:
        metrics = self.metrics.items()
        return divider.join(f"{metric_title(name)} {value:.3f}" for name, value in metrics)

    @property
    def accuracy(self) -> float:
        """Share of correct predictions, 0 to 1; of kinds of labels that have one."""
        return self._metric("accuracy")

    @property
    def macro_f1(self) -> float:
        """Mean F1 over the classes that occur in labels or predictions, 0 to 1; likewise."""
        return self._metric("macro_f1")

    def _metric(self, name: str) -> float:
        if name not in self.metrics:
            raise AttributeError(
                f"these scores have no {metric_title(name)}: their metrics are "
                f"{', '.join(self.metrics)}"
            )
        return self.metrics[name]

    def to_dict(self) -> dict[str, Any]:
        """Return what the file holds."""
        return asdict(self, dict_factory=_flat)

    def class_counts(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the number of examples by true class and by predicted class, without zeros."""
        true, predicted = Counter[int](), Counter[int]()
        for t, p, count in self.cells:
            true[t] += count
            predicted[p] += count
        return true, predicted

    @property
    def cells(self) -> list[tuple[int, int, int]]:
        """The confusion as true class, predicted class and number of examples, without zeros."""
        if isinstance(self.confusion, dict):
            return list(zip(*(self.confusion.get(k, []) for k in SPARSE_KEYS), strict=True))
        rows = enumerate(self.confusion)
        return [(t, p, count) for t, row in rows for p, count in enumerate(row) if count]


def _flat(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a dataclass, the metrics of scores beside the others."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if (name, value) != ("chance", None):
            values |= value if name == "metrics" else {name: value}
    return values


def _nested(content: Any) -> Any:
    """Return the fields of scores from what :func:`_flat` made of them."""
    if not isinstance(content, Mapping):
        return content
    names = ("examples", "per_class", "confusion")
    fields = {name: content[name] for name in names if name in content}
    return fields | {"metrics": {name: v for name, v in content.items() if name not in fields}}


#: Scores as the file holds them.
_Stored = Annotated[Scores, BeforeValidator(_nested)]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Results on one evaluation set."""

    all: _Stored  # scores on all examples
    #: On the examples whose text is not in train; ``None`` if there are none, or no train split.
    unseen: _Stored | None
    #: Number of examples whose text is in train; ``None`` without a train split.
    seen_examples: int | None
    #: Scores of always predicting the most frequent class of train (of numbers, their mean).
    majority: _Stored
    loss: float  # mean over the examples: cross-entropy in nats, or squared error
    #: By name, such as "heuristic: constituent".
    subsets: dict[str, _Stored] = field(default_factory=dict)
    #: On the examples that are paired with those of the set, such as originals of a contrast set.
    partner: _Stored | None = None
    pair_accuracy: float | None = None  # share of the pairs of which both predictions are correct
    #: Examples whose label is no class of the model: wrong in all scores, not in the loss.
    unknown_labels: int = 0
    #: In what way the predictions are no better than chance, as "the model ..." goes on; ``None``,
    #: and not in the file, if they are better.
    chance: str | None = None

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{metric_title(name)} {value:.3f} (majority {self.majority.metrics[name]:.3f})"
            for name, value in self.all.metrics.items()
        )
        return f"<Evaluation on {self.all.examples:,} examples: {shown}>"


def evaluations_frame(evaluations: Mapping[str, Evaluation]) -> pandas.DataFrame:
    """Return the scores on sets and their subsets as a table, with what is known beside them."""
    import pandas

    rows: dict[str, dict[str, float | None]] = {}
    for name, evaluation in evaluations.items():
        unseen, metrics = evaluation.unseen, evaluation.all.metrics
        rows[name] = {
            "examples": evaluation.all.examples,
            **metrics,
            "unseen_examples": unseen.examples if unseen else None,
            **{f"unseen_{m}": unseen.metrics[m] if unseen else None for m in metrics},
            **{f"majority_{m}": evaluation.majority.metrics[m] for m in metrics},
            "loss": evaluation.loss,
            "pair_accuracy": evaluation.pair_accuracy,
            "unknown_labels": evaluation.unknown_labels or None,
        }
        for subset, scores in evaluation.subsets.items():
            rows[f"{name}: {subset}"] = {"examples": scores.examples, **scores.metrics}
    frame = pandas.DataFrame.from_dict(rows, orient="index").rename_axis("set")
    optional = ("pair_accuracy", "unknown_labels")
    empty = [name for name in optional if name in frame and frame[name].isna().all()]
    return frame.drop(columns=empty)


class Evaluations(dict[str, Evaluation]):
    """Scores by name of the set, which show as a table."""

    @property
    def no_train(self) -> tuple[str, ...]:
        """Names of the sets without a train split to look for their texts in."""
        return tuple(name for name, evaluation in self.items() if evaluation.seen_examples is None)

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html())

    def to_frame(self) -> pandas.DataFrame:
        """Return the scores with one row for each set; see :func:`evaluations_frame`."""
        return evaluations_frame(self)

    def to_dict(self) -> dict[str, Any]:
        """Return what the JSON file of :meth:`save` holds."""
        return {name: asdict(evaluation, dict_factory=_flat) for name, evaluation in self.items()}

    @checked
    def save(self, path: UserPath) -> None:
        """Write all scores as JSON, atomically."""
        path = expand(path)
        check_output_file(path, JSON)
        write_json(path, self.to_dict())


@dataclass(frozen=True)
class DatasetRecord:
    """The data of a run."""

    name: str
    fingerprint: str  # hash of its contents
    examples: dict[str, int]  # number by split and by out-of-distribution set
    label_names: list[str]  # names of the classes, in order
    notes: list[str]  # what was done to the data on reading, and which sets were left out
    pairs: bool | None = None  # whether the examples are pairs of texts, if that was recorded
    #: Split that is evaluated, by out-of-distribution set.
    ood: dict[str, str] = field(default_factory=dict)
    folds: str = ""  # of a fold: hash of the examples of all folds together, whatever their order


@dataclass(frozen=True)
class BestCheckpoint:
    """The checkpoint that a run exports: the one with the best dev metric."""

    step: int  # optimizer steps made before it
    epoch: float  # epochs made before it
    metric: str  # the one that checkpoints are selected by
    value: float  # on dev


@dataclass(frozen=True)
class Branch:
    """One of the runs that a rule has compared on dev."""

    title: str  # the auxiliary tasks with their shares, or "single task"
    folder: str  # its run folder, below that of the run
    #: Weight of each objective; of a point between runs that with the same step to first order.
    weights: dict[str, float]
    value: float  # the metric on dev of its best checkpoint
    #: By how much the metric on dev is higher than that of the single task; ``None`` for that.
    gain: float | None
    #: By how much its share of correct predictions on dev is higher, 0 to 1, with macro-F1 the mean
    #: over the classes; of numbers, by how much the mean absolute error is lower.
    correct: float | None
    correct_error: float | None  # standard error of that difference over the examples
    taken: bool  # whether it is the run whose model is exported
    course: list[tuple[int, float]]  # the metric on dev by step
    seconds: float  # wall time of its training

    @property
    def is_trained(self) -> bool:
        """Whether it is a run, not a point between runs, which has made no step."""
        return any(step for step, _ in self.course)


def shown_branches(branches: Sequence[Branch]) -> list[Branch]:
    """Return those for tables and plots: of many, the runs and what was taken."""
    few = len(branches) <= 3**2  # of two tasks
    return [branch for branch in branches if few or branch.is_trained or branch.taken]


@dataclass(frozen=True, repr=False)
class RunResults:
    """What ``results.json`` holds.

    Attributes:
        config: The resolved configuration.
        digest: Its hash.
        dataset: The data.
        best: The exported checkpoint.
        evaluations: Results by set: "dev", "test", and each out-of-distribution set by name.
        weights: Weight of each objective at the end.
        steps: Number of optimizer steps.
        stopped: Why training with all objectives ended: "epochs" or "patience".
        final_stopped: Why the primary-only phase ended; ``None`` without one.
        seconds: Wall time by stage. Together with ``environment``, all that differs between equal
            runs.
        environment: Versions and hardware.
        surrogate: How well the validation loss that drives the weights follows the metric:
            Spearman's rank correlation over the evaluations on dev, and their number; ``None`` for
            a weighting without a validation loss.
        degenerate: In what way the predictions of the best checkpoint for dev are no better than
            chance, as "the model ..." goes on; ``None`` if they are better.
        auxiliary: Metrics of auxiliary tasks on dev examples of their own, by task, and under
            ``primary`` numbers about the loss (accuracy of a bias model on train), at the exported
            checkpoint. Nothing was chosen by them.
        init_from: The finished run that training began from: its folder, the hash of its
            configuration, a digest of its model, and the parts that were taken; ``None`` if there
            is none.
        branches: The runs that the rule has compared, in the order of their training; empty for a
            rule whose weights belong to one run. ``seconds`` are then those of all of them.
        account: Why the weight of each auxiliary task is what it is, one sentence by task; empty
            for rules whose weights are given.
        files: SHA-256 of each file of the run that its reports and comparisons are made of, by its
            path in the run folder, which is written with the results.
        factors: Of each task that is made of several objectives, the weight of each value of each
            axis within the task at the end: that of its members that have it, by axis and value.
            Empty for rules that do not weigh members.
        folder: The run folder, in full; not part of what the file holds.
    """

    config: dict[str, Any]
    digest: str
    dataset: DatasetRecord
    best: BestCheckpoint
    evaluations: dict[str, Evaluation]
    weights: dict[str, float]
    steps: int
    stopped: str
    seconds: dict[str, float]
    environment: Environment
    surrogate: dict[str, float | int | None] | None = None
    degenerate: str | None = None
    auxiliary: dict[str, dict[str, Number]] = field(default_factory=dict)
    init_from: dict[str, Any] | None = None
    branches: list[Branch] = field(default_factory=list)
    account: dict[str, str] = field(default_factory=dict)
    factors: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    final_stopped: str | None = None
    files: dict[str, str] = field(default_factory=dict, compare=False)
    folder: Path | None = field(default=None, compare=False)

    def __fspath__(self) -> str:
        if self.folder is None:
            raise RunError("these results do not know their run folder: give its path")
        # Settings name a file of data by its path, so that files tell equal settings apart.
        same = written_digest(self.folder) in ("", self.digest)
        if not same or recorded_files(self.folder) not in ({}, self.files):
            raise RunError(f"{from_here(self.folder)} holds another run than these results by now")
        return from_here(self.folder)

    @property
    def point(self) -> Branch | None:
        """The point between runs that a rule has taken: its model is no checkpoint of a run."""
        points = (one for one in self.branches if one.taken and not one.is_trained)
        return next(points, None)

    @property
    def best_epoch(self) -> float:
        """Epochs before the best checkpoint; NaN for a point between runs, which is none."""
        return math.nan if self.point else self.best.epoch

    @property
    def kind(self) -> Kind:
        """Kind of the labels."""
        return kind_of(self.config.get("kind"))

    def names_of(self, name: str) -> tuple[str, ...]:
        """Return the names of the labels of an evaluation set; of single classes, it may have some
        that the model does not know.
        """
        scores = self.evaluations[name].all
        return tuple(scores.per_class if scores.confusion else self.dataset.label_names)

    def __repr__(self) -> str:
        aux = "+".join(name for choice in self.config["aux"] for name in choice) or "single task"
        scores = ", ".join(
            f"{shorten(name)} {evaluation.all.line()}"
            for name, evaluation in list(self.evaluations.items())[:SHOWN_SETS]
        )
        more = len(self.evaluations) - SHOWN_SETS
        others = f" and {more} more sets" if more > 0 else ""
        place = "" if self.folder is None else f" in {shorten(from_here(self.folder), 200)}"
        return (
            f"<RunResults{place}: {shorten(self.dataset.name)}, "
            f"{shorten(Path(str(self.config['encoder'])).name)}, {aux}, "
            f"seed {self.config['seed']}: {scores}{others}>"
        )

    def __str__(self) -> str:
        return "\n".join([repr(self), *(f"warning: {line}" for line in self.warnings())])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in str(self).split("\n"))
        return lines + self.to_frame().to_html()

    def to_frame(self) -> pandas.DataFrame:
        """Return the scores with one row for each set; see :func:`evaluations_frame`."""
        return evaluations_frame(self.evaluations)

    def history(self) -> pandas.DataFrame:
        """Return losses, weights and metrics by step: the rows of ``metrics.jsonl``."""
        import pandas

        path = recorded_file(Path(self), LOGS[0])
        if not path.is_file():
            raise RunError(no_run(path.parent))
        return pandas.read_json(path, lines=True, precise_float=True).set_index("step")

    def save(self, folder: Path) -> RunResults:
        """Write ``results.json``, and return the results as they are loaded from it; a run folder
        with this file is a finished run.
        """
        paths = [
            *(folder / name for name in LOGS),
            *sorted((folder / "predictions").glob("*")),
            *(folder / name / MANIFEST for name in ("model", "heads", "adapter")),
        ]
        files = {
            path.relative_to(folder).as_posix(): content_digest(path)
            for path in paths
            if path.is_file()
        }
        saved = replace(self, files=files, folder=folder.absolute())
        write_checked_json(folder / FILE, saved._content())
        return saved

    def _content(self) -> dict[str, Any]:
        values = asdict(self, dict_factory=_flat)
        del values["folder"]
        if not self.factors:  # so that the files of all other runs stay what they were
            del values["factors"]
        if not self.dataset.folds:
            del values["dataset"]["folds"]
        return values

    @classmethod
    def load(cls, folder: str | Path) -> RunResults:
        """Read the results of a finished run.

        Raises:
            RunError: The folder holds none, or a damaged file.
        """
        path = (folder := expand(folder)) / FILE
        advice = "delete it and run again"
        try:
            results = read_record(RunResults, path, RunError, advice, exact=True)
        except FileNotFoundError:
            raise RunError(f"{folder} holds no {FILE}: the run is not finished") from None
        if problem := next(filter(None, map(name_problem, results.evaluations)), None):
            # They name files of predictions.
            raise RunError(f"{path} is damaged ({problem}): {advice}")
        written = written_digest(folder)
        if written not in ("", results.digest):
            raise RunError(
                f"{path} is of another run than config.yaml (hash {results.digest}, not "
                f"{written}): {advice}"
            )
        kind = results.config.get("kind")
        if kind is not None and canonical(str(kind)) not in KINDS.names():
            raise RunError(
                f"{folder} has labels of the kind {describe(kind)}, of a plug-in that is not known "
                f"here ({some_of(results.config.get('plugins', ())) or 'of a script'}): in Python, "
                "import it first; for a command, make it a package with an entry point in the "
                "group auxlearn.kinds"
            )
        return replace(results, folder=folder.absolute())

    def warnings(self) -> list[str]:
        """Return what a reader of the scores must know first, one sentence each."""
        unused = [name for name, weight in self.weights.items() if weight == 0]
        left_out = [self.account[name] for name in unused if name in self.account]
        dev = self.evaluations["dev"]
        scores, constant = dev.all.metrics, dev.majority.metrics
        # What may help, but for what is set already.
        advice = ["more epochs", "another learning rate", *self.kind.untried(self.config)]
        if sum(weight > 0 for weight in self.weights.values()) > 1:
            advice.append("a smaller share of the auxiliary tasks")
        untried = f"{', '.join(advice[:-1])} or {advice[-1]}"
        lines = []
        if self.degenerate is not None:
            lines.append(
                "degenerate run, which has learned nothing: on dev the best checkpoint "
                f"{self.degenerate}; try {untried}"
            )
        # Errors show predictions of a wrong size, which correlations do not.
        judged = {name for name in scores if metric_of(name).is_error}
        judged |= set() if self.degenerate else {self.config["metric"]}
        lines += [
            f"{metric_title(metric)} on dev, {scores[metric]:,.3f}, is no better than "
            f"{constant[metric]:,.3f}, that of always predicting {self.kind.constant_title}; "
            f"try {untried}"
            for metric in sorted(judged)
            if sign(metric) * (scores[metric] - constant[metric]) <= 0
        ]
        return [*lines, *left_out]

    def reproducible(self) -> dict[str, Any]:
        """Return all that a repeated run must reproduce: all but times, hardware and places."""
        values = self._content() | {"config": identity_of(self.config)}
        del values["seconds"], values["environment"], values["files"]
        for branch in values["branches"]:
            del branch["seconds"]
        return values


def recorded_files(run: Path) -> dict[str, str]:
    """Return the digests of the files of a finished run; none of a damaged ``results.json``."""
    try:
        return dict(read_json(run / FILE)["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def recorded_file(run: Path, name: str) -> Path:
    """Return the path of a file of a run; if it has finished, the file is what it was then."""
    path = run / name
    if (digest := recorded_files(run).get(name)) is None:
        return path
    try:
        if content_digest(path) != digest:
            raise Damaged("its checksum is not that in results.json")
    except (OSError, Damaged) as error:
        raise RunError(unusable(path, error, "delete the folder and run again")) from None
    return path
