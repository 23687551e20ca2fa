"""One HTML file about runs and sweeps."""

from __future__ import annotations

import base64
import hashlib
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from auxlearn.comparison.compare import compare_runs, example_intervals
from auxlearn.comparison.formats import Comparison
from auxlearn.comparison.plots import figures_of
from auxlearn.comparison.runs import NamedRun, NamedRuns, named_runs
from auxlearn.core.arguments import RestartCount, UserPath, checked
from auxlearn.core.config import load_config
from auxlearn.core.errors import RunError, UserError, printable, shorten
from auxlearn.core.files import Damaged, expand, tensors_of, user_path, write_text
from auxlearn.core.version import __version__
from auxlearn.kinds.metrics import metric_title
from auxlearn.reports.texts import (
    DataReader,
    MarkedTexts,
    Mistakes,
    Run,
    masked_texts,
    mistakes,
    perturbed_texts,
)
from auxlearn.results.figures import PRINT_FONT, figure_style, inline_svg
from auxlearn.results.folder import RunFolder, finished_folder
from auxlearn.results.outputs import check_output_file
from auxlearn.results.plots import run_figure
from auxlearn.results.record import Scores
from auxlearn.results.tables import (
    Bold,
    account_lines,
    branches_table,
    example_sentences,
    metrics_table,
    text_table,
    titles,
)
from auxlearn.sweeps.folder import RESULTS, SweepFolder
from auxlearn.sweeps.sweep_file import FOLD

if TYPE_CHECKING:
    from pandas import DataFrame

FILE = "report.html"
#: Ends of the names of reports.
ENDINGS = (".html", ".htm")

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
#: Runs whose plots are drawn, each of which takes half a second; of more, those are on disk.
MOST_PLOTS = 20
#: Titles of the plots of a comparison.
FIGURES = {
    "scores": "mean scores with 95% intervals over seeds and examples",
    "curves": "dev score by epoch",
    "epochs": "score by epoch of the best checkpoint",
    "ranks": "average ranks",
    "weights": "weights by step",
}


@checked
def report(
    *folders: UserPath,
    output: UserPath | None = None,
    texts: bool = True,
    restarts: RestartCount = None,
) -> Path:
    """Write a report on finished runs and sweeps as one HTML file, which needs no network.

    No code of plug-ins is run.

    Args:
        folders: Run folders and folders of sweeps, or results of them.
        output: The file; by default ``report.html``, in the folder if there is a single one.
        texts: Whether to show texts. Those of evaluation sets are read from the data set, which
            has to be where it was, with the same content.
        restarts: Show the best by dev of this many seeds beside the methods of finished sweeps, as
            :func:`auxlearn.compare` does.

    Returns:
        The file.

    Raises:
        UserError: A folder is neither a run nor a sweep, or damaged; there are too few seeds for
            restarts; or the file cannot be written, or exists and is no report. Nothing is written.
    """
    paths = [expand(folder) for folder in folders]
    if not paths:
        raise UserError("there is nothing to report on: name a run or a sweep")
    for path in paths:
        if not user_path(path, RunError).is_dir():
            raise RunError(f"there is no folder {shorten(str(path), 200)}: check the path")
    default = paths[0] / FILE if len(paths) == 1 else Path(FILE)
    file = default if output is None else expand(output)
    _check_file(file)
    collection = collect(paths)
    if texts and output is not None:
        configs = [run.config for run in collection.runs]
        read = [name for c in configs for name in (c.dataset, *(ood.dataset for ood in c.ood))]
        check_output_file(file, ENDINGS, read)
    content = render(collection, paths, texts, restarts)
    for sweep in collection.sweeps:
        if sweep.path.resolve() == file.parent.resolve():  # other processes may be running it
            sweep.save_text(file.name, content)
            return file
    write_text(file, content)
    return file


def _check_file(file: Path) -> None:
    check_output_file(file, ENDINGS)
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
class Collection:
    """All that a report is about; ``open``: a choice on dev may still change."""

    named: NamedRuns
    runs: list[Run]
    notes: list[str]
    open: bool

    @property
    def sweeps(self) -> list[SweepFolder]:
        return [folder for folder, _ in self.named.sweeps.values()]

    @property
    def unfinished(self) -> list[NamedRun]:
        return [run for run in self.named.runs if run.results is None]


def collect(folders: Sequence[Path]) -> Collection:
    for folder in folders:
        if (folder / "sweep.yaml").is_file():
            continue
        if not (folder / "config.yaml").is_file():
            raise RunError(
                f"{folder} is neither a run nor a sweep: it has no config.yaml and no sweep.yaml"
            )
        finished_folder(folder)
    named = named_runs(folders)
    notes, hidden = [], set()
    for name, (place, sweep) in named.sweeps.items():
        trials = [run for run in named.runs if run.source == name]
        if (place.path / RESULTS).is_file() and all(run.state != "unfinished" for run in trials):
            continue
        count = sum(run.results is not None for run in trials)
        notes.append(f"sweep {sweep.name} is not finished: {count} of its trials have results")
        if sweep.chosen_axes or sweep.search is not None:
            hidden.add(name)
    known: dict[tuple[object, ...], Path] = {}
    runs = []
    for run in named.runs:
        if run.results is None:
            continue
        key = (run.setting, title_of(run))
        if (other := known.setdefault(key, run.path)) != run.path:
            raise RunError(
                f"{other} and {run.path} are runs of the same method, data and seed, which "
                "would count as two seeds: leave one of them out"
            )
        config = RunFolder(run.path).with_own_data(load_config(run.path / "config.yaml"))
        runs.append(Run(run, run.results, config, run.chosen and run.source not in hidden))
    return Collection(named, runs, notes, bool(hidden))


def title_of(run: NamedRun) -> str:
    fold = dict(run.setting).get(FOLD)
    parts = [run.method, *run.values.values(), *([f"fold {fold}"] if fold else [])]
    return ", ".join([*parts, f"seed {run.seed}"])


class RunView:
    """What the template shows of one run."""

    def __init__(self, run: Run, reader: DataReader, limit: int, texts: bool) -> None:
        self.run = run
        self.results = run.results
        self.title = title_of(run.named)
        self.evaluations = {name: run.results.evaluations[name] for name in run.sets}
        data, notes = reader.read(run) if texts else (None, ["texts are left out as requested"])
        self.notes = [*run.results.dataset.notes, *notes]
        self.audit = list(data.warnings) if data else []
        self.mistakes: Mistakes = mistakes(run, data, limit)
        marked = (masked_texts(run, limit), perturbed_texts(run, limit)) if texts else ()
        self.marked_texts: list[MarkedTexts] = [group for group in marked if group]
        self.warnings = [*run.results.warnings(), *example_sentences(self.evaluations)]
        self.metrics = metrics_table(self.evaluations)
        self.account = account_lines(run.results)
        self.branches = branches_table(run.results) if run.results.branches else None
        self.yaml = yaml.safe_dump(run.results.config, sort_keys=False, allow_unicode=True)
        file, again = str(run.path / "config.yaml"), f"{run.path}-again"
        self.command = shlex.join(["auxlearn", "train", "--config", file, "--output", again])

    @cached_property
    def intervals(self) -> DataFrame:
        """The 95% interval over examples of each score."""
        lines = [
            [f"{name} {metric_title(metric)}", f"{low:.3f} to {high:.3f}"]
            for name in self.evaluations
            for metric, (low, high) in example_intervals(self.results, name).items()
        ]
        return text_table(["score", "95% interval"], lines)

    @property
    def figure(self) -> Markup:
        entries = RunFolder(self.run.path).read_metrics()
        label = f"dev scores, weights and losses by step of {self.title}"
        return Markup(inline_svg(run_figure(entries, self.results), label, str(self.run.path)))

    def confusion(self, scores: Scores) -> list[list[tuple[int, int]]]:
        """Return the confusion matrix, each number with a step of colour; empty of many classes."""
        rows = scores.confusion
        if not isinstance(rows, list) or len(rows) > MOST_CLASSES:
            return []
        return [[(count, -(-HEATS * count // max(1, sum(row)))) for count in row] for row in rows]

    def confusions(self, scores: Scores) -> DataFrame:
        """Return the most frequent confusions of labels."""
        labels = list(scores.per_class)
        wrong = sorted((cell for cell in scores.cells if cell[0] != cell[1]), key=lambda c: -c[2])
        lines = [[f"{labels[t]}, {labels[p]}", str(count)] for t, p, count in wrong[:MOST_LINES]]
        return text_table(["label, predicted", "examples"], lines)

    def classes(self, scores: Scores) -> DataFrame:
        """Return precision, recall, F1 and number of examples of the largest classes."""
        largest = sorted(scores.per_class.items(), key=lambda pair: -pair[1].get("support", 0))
        kept = {label for label, _ in largest[:MOST_LINES]}
        lines = [
            [
                label,
                *(f"{of_class[key]:.3f}" for key in ("precision", "recall", "f1")),
                f"{of_class.get('support', 0):g}",
            ]
            for label, of_class in scores.per_class.items()
            if label in kept
        ]
        return text_table(["class", "precision", "recall", "F1", "examples"], lines)

    def model_size(self) -> str:
        """Return the number of parameters and the size of the model; "" if it was not kept."""
        weights = RunFolder(self.run.path).model_path / "model.safetensors"
        try:
            count = sum(math.prod(tensor["shape"]) for tensor in tensors_of(weights).values())
            return f"{count:,} parameters, {weights.stat().st_size / 1e6:,.1f} MB"
        except (OSError, Damaged):
            return ""


def _choice(choice: Any) -> str:
    options = [f"{key} {value}" for key, value in choice.options.items() if value is not None]
    return f"{choice.written} ({', '.join(options)})" if options else str(choice.written)


def _cell(text: str) -> Markup:
    shown = escape(_visible(text))
    return Markup("<b>{}</b>").format(shown) if isinstance(text, Bold) else shown


@cache
def _environment() -> Environment:
    """Return the environment of the page, which keeps the compiled template."""
    environment = Environment(
        loader=PackageLoader("auxlearn.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cell": _cell, "choice": _choice, "titles": titles}
    return environment


def render(
    collection: Collection, paths: Sequence[Path], texts: bool, restarts: int | None = None
) -> str:
    comparison, table_notes = _compared(collection, restarts)  # what it refuses, before any work
    reader = DataReader()
    limit = max(5, MOST_TEXTS // max(1, len(collection.runs)))
    views = [RunView(run, reader, limit, texts) for run in collection.runs]
    environment = _environment()
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
        unfinished=[(title_of(run), run) for run in collection.unfinished],
        comparison=comparison,
        figures=_figures(comparison) if comparison else [],
        serious=_grouped_warnings(views),
        table_notes=table_notes,
        sweep_commands=[
            shlex.join(
                ["auxlearn", "sweep", f"{s.path}/sweep.yaml", "--output", f"{s.path}{again}"]
            )
            for s in collection.sweeps
        ],
        most_lines=MOST_LINES,
        most_plots=MOST_PLOTS,
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _grouped_warnings(views: Sequence[RunView]) -> list[str]:
    """Return what must be known first, each sentence once with the runs that it is about."""
    by_line: dict[str, list[str]] = {}
    for view in views:
        for line in view.results.warnings():
            by_line.setdefault(line, []).append(view.title)
    return [
        f"{runs[0]}: {line}" if len(runs) == 1 else f"{len(runs)} runs ({', '.join(runs)}): {line}"
        for line, runs in by_line.items()
    ]


def _compared(collection: Collection, restarts: int | None) -> tuple[Comparison | None, list[str]]:
    """Return the comparison of the methods, or why there is none."""
    if len(collection.runs) < 2 and restarts is None:
        return None, []
    sets = ["dev"] if collection.open else []
    measured = [run.results.evaluations["dev"].all.metrics for run in collection.runs]
    metrics = [metric for of_run in measured for metric in of_run]
    try:
        return compare_runs(collection.named, metrics=metrics, sets=sets, restarts=restarts), []
    except UserError as error:
        if restarts is not None:
            raise
        return None, [str(error)]


def _figures(comparison: Comparison) -> list[tuple[str, Markup]]:
    drawn = []
    with figure_style(PRINT_FONT):
        for number, ((kind, *names), figure) in enumerate(figures_of(comparison.blocks)):
            title = ", ".join(filter(None, [FIGURES[kind], *names]))
            drawn.append((title, Markup(inline_svg(figure, title, f"{number} {title}"))))
    return drawn


def _visible(value: Any) -> Any:
    """Write control characters and marks of direction as escapes; line breaks are kept."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return "\n".join(printable(line) for line in value.split("\n"))
    return value


def _hash(content: str) -> str:
    """Return the hash by which the page's own policy allows a style sheet or script."""
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
