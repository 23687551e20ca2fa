"""Command line: samples the data sets, runs missing trials seed by seed, writes the report."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from auxlearn.core.errors import DataError, Interrupted, UserError
from auxlearn.core.files import write_text
from auxlearn.sweeps.execute import run_sweep
from auxlearn.sweeps.executors import Executor, LocalExecutor
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.jobs import Job, Outcome
from auxlearn.sweeps.plan import expand_cells, plan_trials
from auxlearn.sweeps.view import ConsoleView
from benchmarks.common import RESULTS, add_device, check_device, machine
from benchmarks.regret.plan import (
    HELD_OUT,
    PAIR,
    TASKS,
    Method,
    Setting,
    choose_settings,
    methods_of,
    sweep_of,
    write_subset,
)
from benchmarks.regret.records import Record, RecordFile, read_record
from benchmarks.regret.report import write_report
from benchmarks.report import put


class TimeUp(Interrupted):
    """The time given to this start is over; no trial was running."""


class UntilDeadline(Executor):
    """Begins no further trial after a moment, and raises :class:`TimeUp` when the last has ended.

    Args:
        inner: Runs the trials.
        deadline: On the clock; ``None``: never.
        now: The clock.
    """

    def __init__(
        self,
        inner: Executor,
        deadline: float | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inner = inner
        self.threads = inner.threads
        self.deadline = deadline
        self.now = now
        self.running = 0

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and self.now() >= self.deadline

    @property
    def slots(self) -> int:  # type: ignore[override]
        """Trials at a time: none after the deadline."""
        return 0 if self.over else self.inner.slots

    def submit(self, job: Job) -> None:
        self.inner.submit(job)
        self.running += 1

    def wait(self, seconds: float) -> list[Outcome]:
        if self.over and not self.running:
            raise TimeUp("the time is up: the same command resumes")
        ended = self.inner.wait(seconds)
        self.running -= len(ended)
        return ended

    def stop(self) -> None:
        self.inner.stop()

    def close(self) -> None:
        self.inner.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing and report; exit code 1 if trials failed, 2 for bad input."""
    try:
        return _main(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _main(argv: Sequence[str] | None) -> int:
    options = read_options(argv)
    settings = choose_settings(options.only, dict(options.examples), options.encoder)
    methods = methods_of(options.methods, options.tasks, options.variant)
    base = {
        "encoder": options.encoder,
        "epochs": options.epochs,
        "max_length": options.max_length,
        "device": options.device,
        "keep_model": False,  # of hundreds of trials
    }
    plans = []
    for setting in settings:
        dataset = dataset_of(setting, options)
        name = setting.folder + (
            f"-{Path(options.encoder).name}" if options.encoder != "tiny" else ""
        )
        plans.append((setting, dataset, SweepFolder(options.output / "sweeps" / name)))
    known = RecordFile(options.records)
    failed = 0 if options.no_run else run(plans, methods, base, options, known)
    records = read_all(plans, methods, base, options, known)
    about = {
        "settings": {key: str(value) for key, value in vars(options).items()},
        "machine": machine(options),
    }
    text = write_report(records, options.held_out, options.output / "report", about)
    if options.page:
        page = put(options.page.read_text(encoding="utf-8"), "learned weights", [text.rstrip()])
        write_text(options.page, page)
        for plot in (options.output / "report").glob("*.png"):
            target = options.page.parents[1] / "img" / f"regret_{plot.name}"
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(plot, target)
    wanted = len(plans) * len(methods) * options.seeds
    print(
        f"{len(records)} of {wanted} trials finished, {failed} failed: {options.output / 'report'}"
    )
    return 1 if failed else 0


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.regret", description="Regret and harm of learned weights."
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with the data sets")
    parser.add_argument("--output", type=Path, default=Path("runs/regret"), metavar="DIR")
    parser.add_argument("--only", nargs="+", metavar="SETTING", help="some settings")
    parser.add_argument(
        "--methods", nargs="+", metavar="NAME", help="some of single, fixed, and the rules"
    )
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS, PAIR], default=[*TASKS, PAIR])
    parser.add_argument(
        "--records",
        type=Path,
        default=RESULTS / "regret.jsonl",
        metavar="FILE",
        help="results of finished trials: these are not run again, new ones are added",
    )
    parser.add_argument(
        "--variant",
        action="append",
        default=[],
        type=_variant,
        metavar="YAML",
        help="one more rule with options, such as '{meta: {split: \"train:0.2\"}}'; repeatable",
    )
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--encoder", default="tiny", help="tiny, or a folder")
    parser.add_argument(
        "--examples",
        action="append",
        default=[],
        type=_size,
        metavar="SETTING=COUNT",
        help="training examples of a setting; repeatable",
    )
    parser.add_argument("--dev-examples", type=int, default=500, help="maximum number of examples")
    parser.add_argument(
        "--test-examples", type=int, default=1000, help="maximum number of examples"
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument(
        "--held-out",
        nargs="*",
        default=list(HELD_OUT),
        metavar="SETTING",
        help="settings on which no default was chosen",
    )
    parser.add_argument("--minutes", type=float, help="start no further trial after this time")
    parser.add_argument("--jobs", type=int, default=1, help="maximum number of trials at a time")
    parser.add_argument("--threads", type=int, help="CPU threads per trial")
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="page whose section of tables is replaced, with the plots in ../img",
    )
    parser.add_argument("--no-run", action="store_true", help="report on what has finished")
    add_device(parser)
    options = parser.parse_args(argv)
    options.clock = "wall"
    check_device(parser, options)
    return options


def dataset_of(setting: Setting, options: argparse.Namespace) -> str:
    """Return where a setting's data are, drawn from the source if need be.

    Raises:
        DataError: There is no source.
    """
    if setting.source is None:
        return setting.name
    folder = options.output / "data" / setting.folder
    if options.no_run:  # records and run folders are all that is read
        return str(folder)
    source = None if options.data is None else options.data / setting.source
    if source is None or not source.is_dir():
        raise DataError(
            f"setting '{setting.name}' needs the folder {setting.source} in --data: name where it "
            "is, or leave the setting out with --only"
        )
    examples = {
        "train": setting.train,
        "dev": options.dev_examples,
        "test": options.test_examples,
    }
    write_subset(source, folder, examples)
    return str(folder)


Plans = Sequence[tuple[Setting, str, SweepFolder]]


def trial_of(sweep: str, method: Method, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return what tells a trial from others in the file of records.

    It names settings of the benchmark instead of the digest of the run's configuration, so that a
    setting that auxlearn gains does not make the records of earlier revisions useless.
    """
    settings = {key: value for key, value in method.settings.items() if key != "plugins"}
    return {
        "sweep": sweep,
        "method": settings,
        "seed": seed,
        "epochs": options.epochs,
        "max_length": options.max_length,
        "dev": options.dev_examples,
        "test": options.test_examples,
    }


def run(
    plans: Plans,
    methods: Sequence[Method],
    base: dict[str, Any],
    options: argparse.Namespace,
    known: RecordFile,
) -> int:
    """Run what is missing: one seed in all settings, then the next; return how many failed."""
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    console = Console(stderr=True)
    failed = 0
    with UntilDeadline(LocalExecutor(options.jobs, options.threads), deadline) as executor:
        for seed in range(options.seeds):
            for setting, dataset, folder in plans:
                missing = [
                    method
                    for method in methods
                    if known.get(trial_of(folder.path.name, method, seed, options)) is None
                ]
                if not missing:
                    continue
                console.print(f"seed {seed}: {folder.path.name}")
                sweep = sweep_of(setting, missing, [seed], dataset, base)
                try:
                    with ConsoleView(console, folder) as view:
                        records = run_sweep(sweep, folder, executor, view=view)
                except TimeUp as error:
                    console.print(str(error))
                    return failed
                for record in records:
                    if not record.finished:
                        failed += 1
                        console.print(f"{record.cell['method']}: {record.error}", markup=False)
    return failed


def read_all(
    plans: Plans,
    methods: Sequence[Method],
    base: dict[str, Any],
    options: argparse.Namespace,
    known: RecordFile,
) -> list[Record]:
    """Return the records of all finished trials, and add those of run folders to the file."""
    by_label = {method.label: method for method in methods}
    records = []
    for setting, dataset, folder in plans:
        sweep = sweep_of(setting, methods, range(options.seeds), dataset, base)
        for trial in plan_trials(sweep, expand_cells(sweep)):
            method = by_label[trial.cell["method"]]
            name = trial_of(folder.path.name, method, trial.seed, options)
            record = known.get(name)
            if record is None:
                record = read_record(folder.run(trial.digest).path, setting, method, trial.seed)
                if record is not None:
                    known.add(name, record)
            if record is not None:
                records.append(record)
    known.save()
    return records


def _variant(text: str) -> dict[str, Any]:
    content = yaml.safe_load(text)
    if not isinstance(content, dict) or len(content) != 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not one rule with its options")
    return content


def _size(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not count.isdigit() or int(count) < 2:
        raise argparse.ArgumentTypeError(f"'{text}' is not SETTING=COUNT")
    return name, int(count)
