"""``auxlearn masks``: which tokens masking tasks mask, before any training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from auxlearn.commands.options import PATH, json_option, options_of, print_json, run_config
from auxlearn.core.config import RunConfig
from auxlearn.core.settings import Columns

if TYPE_CHECKING:
    from pandas import DataFrame

    from auxlearn.mask_analysis.masks import MaskReport
    from auxlearn.mask_analysis.statistics import Group


#: Settings of a run that decide what is masked.
SETTINGS = (
    "dataset",
    *Columns.model_fields,
    "max_length",
    "text_window",
    "window_stride",
    "max_windows",
    "encoder",
    "random_head",
    "aux",
    "plugins",
    "seed",
    "device",
    "cache_dir",
)

#: Groups at each end of a long table.
RANKED = 5


@click.command(context_settings={"ignore_unknown_options": True})
# An option of a task may come first, and would be taken for the folder if that were an argument.
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[RUN]")
@click.option(
    "--examples",
    type=click.IntRange(1),
    help="Number of training texts to inspect, drawn at random; by default all.",
)
@click.option(
    "--texts",
    type=click.IntRange(0),
    default=8,
    show_default=True,
    help="Number of texts to show with the probability of each token.",
)
@click.option(
    "--output",
    type=PATH,
    metavar="FOLDER",
    help="Folder for masks.json and groups.csv.",
)
@json_option("all results")
@options_of(RunConfig, *SETTINGS, negatable=True)
def command(
    arguments: tuple[str, ...],
    examples: int | None,
    texts: int,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show which tokens the masking tasks of a configuration mask, and how often.

    The settings are those of `auxlearn train`, options of tasks included, or those of the run
    folder RUN, finished or not; options of the command line take precedence. Nothing is trained.
    l3mask scores the texts with the pretrained encoder; a later run reads the scores from the
    cache.

    \b
    Examples:
        # What l3mask masks in a data set with an encoder, beside random masking
        auxlearn masks --dataset data/reviews --encoder tiny --aux l3mask --aux random_mlm
        # The tasks of a run, from 200 of its training texts, as files in a folder
        auxlearn masks runs/reviews --examples 200 --output masks
    """
    from auxlearn.core.files import write_json, write_text
    from auxlearn.results import console
    from auxlearn.results.folder import RunFolder, check_contained
    from auxlearn.results.outputs import check_output_folder
    from auxlearn.results.record import RunResults

    reporter = console.ConsoleReporter()
    if output is not None:
        check_output_folder(output)
    file, run, extra = None, None, arguments
    if arguments and not arguments[0].startswith("-"):
        run, extra = PATH.convert(arguments[0], None, None), arguments[1:]
        check_contained(run)
        RunFolder(run).read_config()
        file = run / "config.yaml"
    with reporter.waiting("loading torch and transformers"):
        config = run_config(file, options, extra, announce=reporter.message).resolved()

        from auxlearn.mask_analysis.masks import inspect_masks

    report = inspect_masks(config, examples=examples, texts=texts, reporter=reporter)
    if run is not None and RunFolder(run).finished:
        trained_on = RunResults.load(run).dataset.fingerprint
        if trained_on != report.fingerprint:
            report.notes.append(f"this is not the data that {run} was trained on")
    if output is not None:
        write_json(output / "masks.json", report.to_dict())
        write_text(output / "groups.csv", report.groups_csv())
    if as_json:
        print_json(report.to_dict())
        return
    out = console.output()
    console.print_results(*_tables(report))
    if report.texts:
        console.print_results("", "texts, with the probability of each token in percent:")
        for line in report.shown_texts(out.is_terminal):
            out.print(line, soft_wrap=True)
    console.print_results("", *report.sentences(), *(f"note: {line}" for line in report.notes))
    if output is not None:
        console.print_results(f"2 files: {output}")


def _tables(report: MaskReport) -> list[Any]:
    """Return the tables of a report, with their titles."""
    items: list[Any] = [
        f"{report.dataset}, {report.encoder}: {report.examples:,} texts, "
        f"{report.tokens:,} tokens that may be masked"
    ]
    if report.parts_of_speech:
        items += ["", f"by part of speech ({report.tagger}), most and least often masked:"]
        items.append(_table("tag", _ranked(report.parts_of_speech)))
    items += ["", "by frequency of the token in the texts:"]
    items.append(_table("occurs", report.frequencies))
    items += ["", "tokens, most and least often masked:"]
    items.append(_table("token", _ranked(report.token_groups)))
    return items


def _ranked(groups: list[Group]) -> list[Group]:
    """Return the groups with enough tokens; all of them if none has."""
    from auxlearn.mask_analysis.statistics import FEWEST

    return [group for group in groups if group.tokens >= FEWEST] or groups


def _table(title: str, groups: list[Group]) -> DataFrame:
    """Return groups with the rate of each task beside random masking; of many, both ends."""
    from auxlearn.results.tables import text_table

    tasks = list(groups[0].rates) if groups else []
    heads = [title, "tokens", *(head for task in tasks for head in (task, f"random ({task})"))]
    lines = []
    for group in groups:
        rates = [rates[task] for task in tasks for rates in (group.rates, group.random)]
        lines.append([group.name, f"{group.tokens:,}", *(f"{rate:.4f}" for rate in rates)])
    if len(lines) > 2 * RANKED:
        others = f"({len(lines) - 2 * RANKED} others)"
        lines[RANKED:-RANKED] = [[others, *[""] * (len(heads) - 1)]]
    return text_table(heads, lines)
