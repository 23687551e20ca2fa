"""Bad options, configurations, sweep files, cards and outputs."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.hardening.inputs import (
    GOOD,
    Case,
    Make,
    beside_run,
    cases,
    of_encoder,
    pipe,
    sparse_file,
    together,
    writes,
)

config, sweep = partial(writes, "c.yaml"), partial(writes, "s.yaml")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
CONFIGS: dict[str, Any] = {
    "large": ("c.yaml", sparse_file("c.yaml", 10**6)),
    "a pipe": ("c.yaml", pipe("c.yaml")),
    "empty": ("c.yaml must be a mapping", config("")),
    "a key twice": ("c.yaml:2", config("seed: 1\nseed: 2")),
    "alias bomb": ("c.yaml", config(BOMB)),
    "deep": ("levels", config("aux: " + "[" * 20_000)),
    "Python object": ("c.yaml", config("seed: !!python/object/apply:os.getpid []")),
    "NaN": (".nan", config("learning_rate: .nan")),
    "a date": ("quotation marks", config("dataset: 2024-01-02")),
    "name leads out": ("../../escape", config("ood: [{dataset: d, name: ../../escape}]")),
    "absolute name": ("/tmp/x", config("ood: [{dataset: d, name: /tmp/x}]")),
    "without effect": ("window_stride: it has no effect", config("window_stride: 8")),
    "3,000 tasks": ("aux", config(f"aux: [{', '.join(['l3mask'] * 3000)}]")),
}


def named(content: str) -> Make:
    return sweep(f"name: a\n{content}")


def with_encoder(content: str) -> Make:
    return together(of_encoder(lambda model: None), named(content))


SWEEPS: dict[str, Any] = {
    "a key twice": ("s.yaml:2", sweep("name: a\nname: b")),
    "name leads out": ("name", sweep("name: ../a")),
    "a pretraining for nothing": (
        "name p as the encoder",
        named("pretrain: {encoder: tiny, dataset: d, output: p}"),
    ),
    "without effect": ("base: lora_alpha: it has no", named("base: {lora_alpha: 32}")),
    "many seeds": ("seeds", named("seeds: 100000000")),
    "many trials": (
        "40,000 trials",
        named(f"seeds: 200\ngrid: {{epochs: {[*range(1, 201)]}}}"),
    ),
    "nothing to exclude": ("'7'", named("grid: {epochs: [1, 2]}\nexclude: [{epochs: 7}]")),
    "no such axis": ("'zz'", named("base: {init_from: 'runs/{zz}'}\ngrid: {aux: [[], l3mask]}")),
    "no data": ("nowhere/d", with_encoder("base: {dataset: nowhere/d}")),
    "too long texts": (
        "9999",
        with_encoder("base: {dataset: d, encoder: encoder, max_length: 9999}"),
    ),
}
CARD = (
    "{{title: t, description: d, get: {{source: s, splits: {{test: t}}}}, metric: accuracy, "
    "licence: l, paper: p, label_names: [a, b], {}}}"
)
CARDS: dict[str, Any] = {
    "name leads out": ("../../x", config(CARD.format("name: ../../x"))),
}

#: By command: what the line names, and what makes the case.
COMMANDS: dict[str, tuple[str, Make | None]] = {
    "data check d --txt-column x": ("--txt-column", None),
    "train --aux random_mlm:primary": ("'primary'", None),
    "train --plugin p.py": ("p.py", pipe("p.py")),
    "sweep s.yaml --dry-run --slurm-partition a": ("slurm_partition", sweep("name: s\n")),
    "sweep s.yaml --dry-run --output run": ("run", beside_run(named("base: {dataset: d}"))),
    "evaluate run --dataset d --output ''": ("path", beside_run(writes("d/test.jsonl", GOOD))),
    "train --dataset d --encoder encoder --output out": (
        "out is",
        together(of_encoder(lambda model: None), writes("out", "a file")),
    ),
    "train --dataset d --encoder encoder --output ~nosuchuser/x": (
        "~nosuchuser",
        of_encoder(lambda model: None),
    ),
    "train --dataset d --encoder encoder --output /proc/nothing/run": (
        "/proc/nothing",
        of_encoder(lambda model: None),
    ),
}

CASES: list[Case] = [
    *cases("config", "train --config c.yaml", CONFIGS),
    *cases("sweep", "sweep s.yaml --dry-run", SWEEPS),
    *cases("card", "data check c.yaml", CARDS),
    *(Case(command[:60], command, names, make) for command, (names, make) in COMMANDS.items()),
]
