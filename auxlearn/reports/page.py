"""One HTML file about runs and sweeps."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import Field

from auxlearn.core.arguments import Count, UserPath, checked
from auxlearn.core.errors import UserError, printable
from auxlearn.core.files import expand, write_text
from auxlearn.core.manifest import Damaged, tensors_of
from auxlearn.core.metric_names import VALIDATION, Quantity
from auxlearn.core.version import __version__
from auxlearn.reports import compared
from auxlearn.reports.charts import LineChart, interval_chart, line_chart
from auxlearn.reports.collect import Collection, Run, collect
from auxlearn.reports.texts import (
    DataReader,
    MarkedTexts,
    Mistakes,
    masked_texts,
    mistakes,
    perturbed_texts,
)
from auxlearn.results.folder import RunFolder
from auxlearn.results.outputs import check_output_file
from auxlearn.results.plots import METRIC_TITLES
from auxlearn.results.record import Scores
from auxlearn.results.tables import account_lines, branches_grid, example_sentences, metrics_grid

FILE = "report.html"

#: Every report begins with this, and only a file that does is written over.
MARK = "<!doctype html>\n<!-- auxlearn report -->\n"
#: Misclassified examples of a set, and perturbed texts, on a page of one run; of several runs each
#: has its share.
MOST_TEXTS = 60
#: Classes beyond which the confusion matrix is a list of the most frequent confusions.
MOST_CLASSES = 20
#: Lines of such a list, and of the scores by class.
MOST_LINES = 30
#: Steps of colour of the confusion matrix.
HEATS = 5


@checked
def report(
    *folders: UserPath,
    output: UserPath | None = None,
    texts: bool = True,
    restarts: Annotated[Count, Field(ge=2)] | None = None,
) -> Path:
    """Write a report on finished runs and sweeps as one HTML file, which needs no network.

    No code of plug-ins is run.

    Args:
        folders: Run folders and folders of sweeps, or what :func:`auxlearn.sweep` returned.
        output: The file; by default ``report.html``, in the folder if there is a single one.
        texts: Whether to show texts. Those of evaluation sets are read from the data set, which
            has to be where it was, with the same content.
        restarts: Show the best by dev of this many seeds beside the methods of finished sweeps, as
            :func:`auxlearn.compare` does.

    Returns:
        The file.

    Raises:
        UserError: A folder is neither a run nor a sweep, or damaged; there are too few seeds, or no
            finished sweep, for restarts; or the file cannot be written, or exists and is no report.
            Nothing is written then.
    """
    paths = [expand(folder) for folder in folders]
    if not paths:
        raise UserError("there is nothing to report on: name a run or a sweep")
    file = expand(output) if output is not None else _default(paths)
    _check_file(file)
    collection = collect(paths)
    content = render(collection, paths, texts, restarts)
    places = {sweep.path.resolve(): sweep for sweep in collection.sweeps}
    sweep = places.get(file.parent.resolve())
    if sweep is not None:  # other processes may be running it
        sweep.save_report(file.name, content)
    else:
        write_text(file, content)
    return file


def _default(paths: Sequence[Path]) -> Path:
    return paths[0] / FILE if len(paths) == 1 else Path(FILE)


def _check_file(file: Path) -> None:
    check_output_file(file)
    if not file.exists():
        return
    try:
        with file.open("rb") as opened:
            ours = opened.read(len(MARK)) == MARK.encode()
    except OSError as error:
        raise UserError(
            f"cannot write {file} ({error.strerror}): choose another --output"
        ) from None
    if not ours:
        raise UserError(f"{file} exists and is no report: choose another --output")


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix, or the most frequent confusions of many classes.

    Attributes:
        labels: The classes.
        rows: Number of examples and step of colour by true and predicted class; empty if there are
            too many classes.
        pairs: True class, predicted class and number, most frequent first, in that case.
    """

    labels: list[str]
    rows: list[list[tuple[int, int]]]
    pairs: list[tuple[str, str, int]]

    @property
    def as_lines(self) -> list[list[str]]:
        """The confusions as lines of a table."""
        return [[f"{true}, {predicted}", str(count)] for true, predicted, count in self.pairs]


class RunView:
    """What the template shows of one run."""

    def __init__(self, run: Run, reader: DataReader, limit: int, texts: bool) -> None:
        self.run = run
        self.results = run.results
        self.title = run.title
        self.evaluations = {name: run.results.evaluations[name] for name in run.sets}
        data, notes = reader.read(run) if texts else (None, ["texts are left out as requested"])
        self.notes = [*run.results.dataset.notes, *notes]
        self.audit = list(data.warnings) if data else []
        self.mistakes: Mistakes = mistakes(run, data, limit)
        found = (masked_texts(run, limit), perturbed_texts(run, limit)) if texts else ()
        self.marked_texts: list[MarkedTexts] = [one for one in found if one]

    @cached_property
    def warnings(self) -> list[str]:
        """What a reader of the scores must know first."""
        constant = [
            f"{name}: '{found.constant_prediction}' is predicted for every example"
            for name, found in self.evaluations.items()
            if found.constant_prediction is not None
        ]
        return [*self.results.warnings(), *constant, *example_sentences(self.evaluations)]

    @cached_property
    def facts(self) -> list[tuple[str, str]]:
        """What was run, on what."""
        results, config = self.results, self.run.config
        data, best = results.dataset, results.best
        tasks = "; ".join(_choice(choice) for choice in config.aux) or "none"
        weights = ", ".join(f"{name} {value:.3f}" for name, value in results.weights.items())
        return [
            ("data set", f"{data.name}, fingerprint {data.fingerprint}"),
            ("examples", ", ".join(f"{name} {n:,}" for name, n in data.examples.items())),
            ("classes", f"{len(data.label_names)}"),
            ("encoder", config.encoder),
            ("auxiliary tasks", tasks),
            *([("weighting", _choice(config.weights))] if config.aux else []),
            *([("weights at the end", weights)] if config.aux else []),
            ("loss of the primary task", _choice(config.loss)),
            (
                "checkpoint",
                f"step {best.step:,} of {results.steps:,} (epoch {best.epoch:.1f}), dev "
                f"{best.metric} {best.value:.3f}; training ended by {results.stopped}"
                + (f", alone by {results.final_stopped}" if results.final_stopped else ""),
            ),
            ("seed", str(config.seed)),
            ("configuration hash", results.digest),
        ]

    @cached_property
    def metrics(self) -> tuple[list[str], list[list[str]]]:
        """The table of metrics."""
        return metrics_grid(self.evaluations)

    @cached_property
    def account(self) -> list[str]:
        """Why the tasks that were applied have their weights."""
        return account_lines(self.results)

    @cached_property
    def branches(self) -> tuple[list[str], list[list[str]]] | None:
        """The table of the runs that the rule has compared, if it has."""
        return branches_grid(self.results) if self.results.branches else None

    @cached_property
    def intervals(self) -> Any:
        """Chart of the scores with intervals over examples."""
        rows = []
        for name, found in self.evaluations.items():
            ends = compared.example_intervals(self.run, name)
            rows += [
                (f"{name} {title}", compared.score_of(found.all, metric), ends.get(metric))
                for metric, title in METRIC_TITLES.items()
            ]
        return interval_chart("scores", rows)

    @cached_property
    def charts(self) -> list[LineChart]:
        """Charts of dev scores, weights and losses by step."""
        entries = RunFolder(self.run.path).read_metrics()
        names = list(self.results.weights)

        def series(quantity: Quantity, found: Sequence[str]) -> dict[str, Any]:
            return {
                name: [
                    (e["step"], e[quantity.key(name)]) for e in entries if quantity.key(name) in e
                ]
                for name in found
            }

        metric = self.run.config.metric
        learned = {
            f"{name}, learned": points for name, points in series(Quantity.CANDIDATE, names).items()
        }
        branches = {one.title: one.course for one in self.results.branches}
        dev = series(Quantity.DEV, list(METRIC_TITLES))
        baseline = compared.score_of(self.results.evaluations["dev"].majority, metric)
        best = self.results.best
        smooth = metric == "macro_f1"
        charts = [
            line_chart(
                "Scores on dev",
                "score, 0 to 1",
                {METRIC_TITLES[name]: dev[name] for name in METRIC_TITLES},
                top=1.0,
                rules={"majority class": baseline},
                mark=(best.step, best.value),
                notes=[f"Circle: best {METRIC_TITLES[metric]}, {best.value:.3f}."],
            ),
            line_chart(
                f"{METRIC_TITLES[metric]} on dev of the runs that were compared",
                "score, 0 to 1",
                branches,
                top=1.0,
            ),
            line_chart(
                "Weights of the objectives",
                "weight",
                series(Quantity.WEIGHT, names) | learned if len(names) > 1 and not branches else {},
                top=1.0,
            ),
            line_chart(
                "Losses",
                "loss (nats)",
                series(Quantity.LOSS, [*names, VALIDATION]),
                plain=VALIDATION,
                notes=["validation: 1 - F1, not nats."] if smooth and len(names) > 1 else [],
            ),
        ]
        return [chart for chart in charts if chart is not None]

    def confusion(self, scores: Scores) -> Confusion | None:
        """Return the confusion matrix of an evaluation set; ``None`` if it is not recorded."""
        labels, cells = list(scores.per_class), scores.confusion
        if isinstance(cells, list) and cells and len(cells) <= MOST_CLASSES:
            rows = [
                [(count, -(-HEATS * count // max(1, sum(row)))) for count in row] for row in cells
            ]
            return Confusion(labels, rows, [])
        if isinstance(cells, dict):
            found = list(
                zip(*(cells.get(k, []) for k in ("true", "predicted", "count")), strict=True)
            )
        else:
            found = [(t, p, n) for t, row in enumerate(cells) for p, n in enumerate(row) if n]
        wrong = sorted((one for one in found if one[0] != one[1]), key=lambda one: -one[2])
        pairs = [(labels[t], labels[p], n) for t, p, n in wrong[:MOST_LINES]]
        return Confusion(labels, [], pairs) if found else None

    def class_lines(self, scores: Scores) -> list[list[str]]:
        """Return precision, recall, F1 and number of examples of the largest classes."""
        largest = sorted(scores.per_class.items(), key=lambda one: -one[1].get("support", 0))
        kept = dict(largest[:MOST_LINES])
        return [
            [
                label,
                *(f"{one[key]:.3f}" for key in ("precision", "recall", "f1")),
                f"{one.get('support', 0):g}",
            ]
            for label, one in scores.per_class.items()
            if label in kept
        ]

    @cached_property
    def costs(self) -> list[tuple[str, str]]:
        """Time, size of the model, and the machine."""
        found = [(stage, f"{seconds:,.1f} s") for stage, seconds in self.results.seconds.items()]
        weights = RunFolder(self.run.path).model_path / "model.safetensors"
        try:
            shapes = [one["shape"] for one in tensors_of(weights).values()]
            count = sum(_product(shape) for shape in shapes)
            size = weights.stat().st_size / 1e6
            found.append(("model", f"{count:,} parameters, {size:,.1f} MB"))
        except (OSError, Damaged):
            pass
        machine = self.results.environment
        for name, peak in (
            ("peak memory of the process", machine.peak_memory_mb),
            ("peak GPU memory", machine.peak_gpu_memory_mb),
        ):
            if peak is not None:
                found.append((name, f"{peak:,.0f} MB"))
        found.append(("processor", f"{machine.cpu or 'unknown'}, {machine.threads} threads"))
        if machine.gpus:
            found.append(("GPU", ", ".join(machine.gpus)))
        found += [(name, version) for name, version in machine.versions.items()]
        if machine.git_revision:
            found.append(("revision", machine.git_revision))
        return found

    @cached_property
    def yaml(self) -> str:
        """The resolved configuration."""
        return str(yaml.safe_dump(self.results.config, sort_keys=False, allow_unicode=True))

    @cached_property
    def command(self) -> str:
        """The command that repeats the run."""
        file, again = str(self.run.path / "config.yaml"), f"{self.run.path}-again"
        return shlex.join(["auxlearn", "train", "--config", file, "--output", again])


def _choice(choice: Any) -> str:
    options = ", ".join(
        f"{key} {value}" for key, value in choice.options.items() if value is not None
    )
    return f"{choice.written} ({options})" if options else str(choice.written)


def _product(numbers: Sequence[int]) -> int:
    product = 1
    for number in numbers:
        product *= number
    return product


def render(
    collection: Collection, paths: Sequence[Path], texts: bool, restarts: int | None = None
) -> str:
    """Return the page about what has been collected."""
    reader = DataReader()
    limit = max(5, MOST_TEXTS // max(1, len(collection.runs)))
    views = [RunView(run, reader, limit, texts) for run in collection.runs]
    settings = compared.settings_of(collection.runs) if len(views) > 1 else []
    tables, table_notes = compared.difference_tables(collection, restarts)
    environment = Environment(
        loader=PackageLoader("auxlearn.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    assert environment.loader is not None
    again = "" if collection.notes else "-again"  # an unfinished sweep is resumed
    style, script = (
        environment.loader.get_source(environment, name)[0] for name in ("page.css", "page.js")
    )
    return MARK + environment.get_template("page.html").render(
        title=views[0].title if len(views) == 1 else ", ".join(path.name for path in paths),
        version=__version__,
        folders=[str(path) for path in paths],
        collection=collection,
        views=views,
        settings=settings,
        charts={setting.title: _forest(setting) for setting in settings},
        serious=_grouped_warnings(views),
        metric_titles=METRIC_TITLES,
        tables=tables,
        table_notes=table_notes,
        sweep_commands=[
            shlex.join(
                [
                    "auxlearn",
                    "sweep",
                    str(one.path / "sweep.yaml"),
                    "--output",
                    str(one.path) + again,
                ]
            )
            for one in collection.sweeps
        ],
        most_lines=MOST_LINES,
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _grouped_warnings(views: Sequence[RunView]) -> list[str]:
    """Return what must be known first, each sentence once with the runs that it is about."""
    titles: dict[str, list[str]] = {}
    for view in views:
        for line in view.results.warnings():
            titles.setdefault(line, []).append(view.title)
    many = "{} runs ({})".format
    return [
        f"{of[0] if len(of) == 1 else many(len(of), ', '.join(of))}: {line}"
        for line, of in titles.items()
    ]


def _forest(setting: compared.Setting) -> Any:
    name = setting.columns[0][0]
    key = (name, setting.metric)
    rows = [
        (f"{method} ({scores[key].seeds})", scores[key].mean, scores[key].interval)
        for method, scores in setting.methods.items()
        if key in scores
    ]
    return interval_chart(f"{name} {METRIC_TITLES[setting.metric]} (%)", rows, percent=True)


def _visible(value: Any) -> Any:
    """Write control characters and marks of direction as escapes; line breaks are kept."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return "\n".join(printable(line) for line in value.split("\n"))
    return value


def _hash(content: str) -> str:
    """Return the hash by which the page's own policy allows a style sheet or script."""
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
