"""``python -m benchmarks.horizon``: draws the data, trains what is missing, writes the tables."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import torch

from auxlearn.core.errors import UserError
from auxlearn.core.files import write_text
from auxlearn.core.registry import load_plugin
from benchmarks.common import RESULTS
from benchmarks.horizon.bed import (
    FOR_KIND,
    FOR_RULES,
    GRID,
    MIXES,
    REST_OF_GRID,
    SETTINGS,
    SINGLE,
    Setting,
    Variant,
    settings_of,
    write_draw,
)
from benchmarks.horizon.record import record
from benchmarks.horizon.report import page
from benchmarks.horizon.scores import Summary, summarise
from benchmarks.tables import read_lines, write_section

#: Registers ``shuffled_labels``.
PLUGIN = Path(__file__).parents[2] / "examples" / "clean_vs_shuffled.py"
GROUPS: dict[str, Sequence[Variant]] = {
    "grid": (SINGLE[0], *GRID),
    "restarts": SINGLE[1:],
    "rest": REST_OF_GRID,
    "mixes": (SINGLE[0], *GRID[:2], *MIXES),
    "equal cost": (SINGLE[0], *SINGLE[3:]),
    "mixing": (SINGLE[0], GRID[1], MIXES[1], MIXES[3]),
}


def main() -> int:
    """Train and report; exit code 2 for bad input."""
    options = read_options()
    torch.set_num_threads(options.threads)
    load_plugin(str(PLUGIN))
    try:
        if not options.no_run:
            train_missing(options)
        summaries = read_all(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.page:
        write_section(options.page, "horizon", page(summaries))
    print(f"{len(summaries)} runs in {options.results}")
    return 0


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = options_of("horizon", __doc__, [*FOR_RULES, *FOR_KIND])
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=["grid", "restarts", "rest"])
    return parser.parse_args()


def options_of(name: str, description: str | None, draws: list[int]) -> argparse.ArgumentParser:
    """Return the options of a program that trains on draws of the settings."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with the data sets")
    parser.add_argument("--output", type=Path, default=Path("runs/horizon"), metavar="DIR")
    parser.add_argument("--results", type=Path, default=RESULTS / f"{name}.jsonl", metavar="FILE")
    parser.add_argument("--encoder", default="tiny", help="tiny, or a folder")
    parser.add_argument("--label", metavar="TEXT", help="what tables call the encoder")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="settings whose name has it")
    parser.add_argument("--draws", nargs="+", type=int, default=draws)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--eval-epochs", type=int, default=1, help="epochs between evaluations")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--minutes", type=float, help="begin no further run after this time")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-run", action="store_true", help="report on what has finished")
    parser.add_argument("--page", type=Path, help="page whose section of tables is replaced")
    return parser


def train_missing(options: argparse.Namespace) -> None:
    """Train what has no record yet, all settings of a draw before the next draw."""
    end = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    known = {(one.encoder, one.setting, one.draw, one.variant) for one in read_all(options)}
    for draw in options.draws:
        for setting in SETTINGS:
            if any(part in setting.name for part in options.only or [""]):
                key = (label(options), setting.name, draw)
                names = {variant for *rest, variant in known if tuple(rest) == key}
                train_draw(setting, draw, options, end, names)


def train_draw(
    setting: Setting,
    draw: int,
    options: argparse.Namespace,
    end: float | None,
    known: Collection[str],
) -> None:
    """Train the variants of one draw that are not among the results yet.

    What others are compared with, the single task, needs a record on this machine as well.
    """
    every = dict.fromkeys(one for group in options.groups for one in GROUPS[group])
    if draw in FOR_KIND:
        every = dict.fromkeys(one for one in every if one in GROUPS["grid"])
    if all(one.name in known for one in every):
        return
    data = options.output / "data" / folder_name(setting) / str(draw)
    write_draw(setting, draw, options.data, data)
    base = base_settings(options, setting)
    for variant in dict.fromkeys((SINGLE[0], *every)):
        path = record_folder(options, setting, draw) / f"{variant.name.replace(' ', '_')}.npz"
        if path.is_file() or (variant != SINGLE[0] and variant.name in known):
            continue
        if end is not None and time.monotonic() > end:
            return
        settings = settings_of(setting, draw, variant, data, base)
        seconds = record(settings, path)
        print(f"{setting.name}, draw {draw}, {variant.name}: {seconds:.1f} s", flush=True)


def base_settings(options: argparse.Namespace, setting: Setting) -> dict[str, Any]:
    """Return the settings that all runs of a setting share."""
    return {
        "encoder": options.encoder,
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "max_length": options.max_length,
        "learning_rate": options.learning_rate,
        "precision": options.precision,
        "device": "cpu",
        "cache_dir": str(options.output / "cache"),
        "eval_steps": options.eval_epochs * -(-setting.train // options.batch_size),
    }


def folder_name(setting: Setting) -> str:
    """Return the name of a setting's folders."""
    return setting.name.replace(" ", "_").replace(",", "")


def record_folder(options: argparse.Namespace, setting: Setting, draw: int) -> Path:
    """Return the folder of the records of a draw."""
    return Path(options.output, "records", label(options), folder_name(setting), str(draw))


def label(options: argparse.Namespace) -> str:
    """Return what tables call the encoder."""
    return options.label or Path(options.encoder).name


def read_all(options: argparse.Namespace) -> list[Summary]:
    """Return all summaries, and add those of new records to the file of results."""
    found = [Summary(**one) for one in read_lines(options.results)]
    for setting, draw in product(SETTINGS, (*FOR_RULES, *FOR_KIND)):
        folder = record_folder(options, setting, draw)
        found += summarise(folder, label(options), setting.name, draw)
    known = {(one.encoder, one.setting, one.draw, one.variant): one for one in found}
    summaries = [known[key] for key in sorted(known)]
    write_text(options.results, "".join(json.dumps(asdict(one)) + "\n" for one in summaries))
    return summaries


if __name__ == "__main__":
    sys.exit(main())
