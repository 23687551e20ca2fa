"""``auxlearn sweep``: many runs from one file, then their comparison."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import PATH, announce_plugins, options_of
from auxlearn.core.arguments import settings_of
from auxlearn.core.errors import ConfigError
from auxlearn.core.files import from_here
from auxlearn.core.registry import EXECUTORS
from auxlearn.core.validation import validate
from auxlearn.executors.jobs import executor_maker
from auxlearn.results.outputs import is_owner
from auxlearn.sweeps.folder import SweepFolder, SweepResults
from auxlearn.sweeps.published import check_published
from auxlearn.sweeps.run import sweep
from auxlearn.sweeps.sweep_file import SweepFile, read_sweep


def options_of_executors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every executor, such as ``--slurm-partition``."""
    for name in EXECUTORS.names():
        function = options_of(EXECUTORS.options(name), prefix=f"{name}_")(function)
    return function


@click.command()
@click.argument("file", type=PATH)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show the trials and their states; train nothing.",
)
@options_of(sweep, "retry_failed", "jobs", "threads", "output", "cache_dir")
@click.option(
    "--executor",
    metavar="NAME",
    default="local",
    help="What runs the trials: processes of this machine (local), ray, or slurm.  [default: "
    "local]",
)
@options_of_executors
@click.option(
    "--report",
    "with_report",
    is_flag=True,
    help="Write report.html into the sweep folder at the end.",
)
def command(file: Path, dry_run: bool, with_report: bool, executor: str, **options: Any) -> None:
    """Run every trial of a sweep file, then compare the methods.

    The same command resumes an interrupted sweep: finished trials are not run again. The exit code
    is 1 if a trial has failed; the other trials are run nevertheless.

    \b
    Examples:
        # The trials of a sweep file; nothing is trained
        auxlearn sweep sweep.yaml --dry-run
        # Two trials at a time on this machine
        auxlearn sweep sweep.yaml --jobs 2
        # One SLURM job per trial, each with one GPU
        auxlearn sweep sweep.yaml --executor slurm --slurm-partition gpu --slurm-gpus 1
    """
    from auxlearn.results import console

    choice = {executor: _options_of(executor, options)}
    plan = read_sweep(file)
    folder = SweepFolder(options.pop("output", Path("sweeps", plan.name)))
    announce_plugins(_plugins_of(plan), str(file), console.ConsoleReporter().message)
    if dry_run:
        settings = validate(settings_of(sweep), {"source": plan, **options}, "sweep")
        executor_maker(choice, settings.jobs, settings.threads)
        if not is_owner(folder.path, "sweep"):  # which may be one that is only read
            folder.check()
        check_published(plan.published, folder.path)
        _dry_run(plan, folder)
        return
    results = sweep(plan, output=folder.path, executor=choice, **options)
    if with_report:
        from auxlearn.reports.page import report

        console.print_results(f"report: {report(folder.path)}")
    _print(results)


def _options_of(executor: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Take the options of executors out of those that are given; return the chosen one's."""
    options = {}
    for name in EXECUTORS.names():
        for option in EXECUTORS.options(name).model_fields:
            value = arguments.pop(f"{name}_{option}", None)
            if value is not None and name != executor:
                raise ConfigError(
                    f"{name}_{option}: it is an option of --executor {name}: leave it out, or "
                    "choose that executor"
                )
            if value is not None:
                options[option] = value
    return options


def _plugins_of(plan: SweepFile) -> list[str]:
    """Return the plug-in files that a sweep file names, each once."""
    groups: list[Any] = [plan.base, *plan.cases]
    for axis, values in plan.grid.items():
        if isinstance(values, dict):
            groups += values.values()
        elif axis == "plugins":
            groups += [{"plugins": value} for value in values]
    named = [group.get("plugins") or [] for group in groups]
    lists = [[plugins] if isinstance(plugins, str) else plugins for plugins in named]
    return list(dict.fromkeys(str(path) for plugins in lists for path in plugins))


def _dry_run(plan: SweepFile, folder: SweepFolder) -> None:
    from auxlearn.results.console import print_results
    from auxlearn.results.tables import text_table
    from auxlearn.sweeps.execute import check_sources, dev_metrics, has_ended, trial_state
    from auxlearn.sweeps.plan import known_trials, number_of_trials
    from auxlearn.training.inputs import InputReader

    reader = InputReader()
    trials, whole = known_trials(plan, partial(has_ended, folder), partial(dev_metrics, folder))
    states = {trial.digest: trial_state(folder, trial, reader) for trial in trials}
    left = [trial for trial in trials if states[trial.digest] in ("", "changed")]
    check_sources(plan, left, reader)
    rows = [
        [*trial.cell.values(), str(trial.seed), trial.digest, states[trial.digest]]
        for trial in trials
    ]
    axes = trials[0].cell if trials else ()
    done = list(states.values()).count("finished")
    total = str(len(trials)) if whole else f"at most {number_of_trials(plan):,}"
    print_results(
        text_table([*axes, "seed", "trial", "state"], rows),
        f"{total} trials, {done} of them finished",
    )
    if not whole:
        print_results(f"the search suggests further trials from the results of these {len(trials)}")


def _print(results: SweepResults) -> None:
    """Compare the methods, name the failures, and end with exit code 1 if there are any."""
    from auxlearn.comparison.compare import compare
    from auxlearn.results import console

    failed, folder = results.failed, Path(from_here(results.folder))
    if len(failed) < len(results.trials):
        console.print_results(*compare(results).to_terminal())
    for record in failed:
        place = f"{folder / 'failures' / record.digest}.json"
        title = ", ".join([*record.cell.values(), f"seed {record.seed}"])
        console.print_results(f"{record.state}: {title}: {record.error} ({place})")
    finished, trials = len(results.trials) - len(failed), len(results.trials)
    console.print_results(f"{finished} of {trials} trials finished: {folder}")
    if failed:
        click.get_current_context().exit(1)
