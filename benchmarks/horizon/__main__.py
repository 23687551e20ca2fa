"""``python -m benchmarks.horizon``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from auxlearn.registry import load_plugin
from benchmarks.horizon.bed import (
    FALLING,
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

PLUGIN = Path(__file__).parents[2] / "examples" / "clean_vs_shuffled.py"
GROUPS = {
    "grid": (SINGLE[0], *GRID),
    "restarts": SINGLE[1:],
    "mixes": MIXES,
    "falling": FALLING,
    "rest": REST_OF_GRID,
    "branches": (SINGLE[0], *GRID[:2]),
    "mixed": (MIXES[1],),
    "high": REST_OF_GRID[:1],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.horizon")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--output", type=Path, default=Path("runs/horizon"))
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--draws", nargs="+", type=int, default=[*FOR_RULES, *FOR_KIND])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--eval-epochs", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    load_plugin(str(PLUGIN))
    end = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    base = {
        "encoder": options.encoder,
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "max_length": options.max_length,
        "device": "cpu",
        "cache_dir": str(options.output / "cache"),
        "precision": options.precision,
    }
    if options.learning_rate:
        base["learning_rate"] = options.learning_rate
    chosen = [s for s in SETTINGS if not options.only or any(o in s.name for o in options.only)]
    variants = [v for group in options.groups for v in GROUPS[group]]
    for draw in options.draws:
        for setting in chosen:
            run_draw(setting, draw, variants, options, base, end)
            if end is not None and time.monotonic() > end:
                return 0
    return 0


def run_draw(setting: Setting, draw: int, variants: list[Variant], options, base, end) -> None:
    name = setting.name.replace(" ", "_").replace(",", "")
    encoder = Path(options.encoder).name
    data = options.output / "data" / name / str(draw)
    write_draw(setting, draw, options.data, data)
    folder = options.output / "records" / encoder / name / str(draw)
    epoch = -(-setting.train // options.batch_size)
    base = base | {"eval_steps": options.eval_epochs * epoch}
    single: dict[str, torch.Tensor] = {}
    for variant in variants:
        path = folder / f"{variant.name.replace(' ', '_')}.npz"
        if path.is_file() or (draw in FOR_KIND and variant not in GROUPS["grid"]):
            continue
        if end is not None and time.monotonic() > end:
            return
        begun = time.monotonic()
        found = record(settings_of(setting, draw, variant, data, base), single)
        found.save(path)
        if not variant.share and not variant.restart:
            single = found.final
        print(
            f"{encoder} {setting.name} draw {draw} {variant.name}: {found.seconds:.1f} s of "
            f"{time.monotonic() - begun:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
