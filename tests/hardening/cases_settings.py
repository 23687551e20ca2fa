"""Bad configurations, sweep files and options."""

from __future__ import annotations

from tests.hardening.case import Case
from tests.hardening.inputs import (
    BOMB,
    SWEEP,
    config,
    folder,
    pipe,
    sparse_file,
    sweep,
    train,
)

SETTINGS = [
    Case("config: absent", train(), r"there is no file c.yaml"),
    Case("config: a folder", train(), r"is not a regular file", folder("c.yaml")),
    Case("config: a pipe", train(), r"is not a regular file", pipe("c.yaml")),
    Case("config: large", train(), r"is too large: 1,000,000 bytes", sparse_file("c.yaml", 10**6)),
    Case("config: NUL", train(), r"not valid YAML", config("a: \0")),
    Case("config: Latin-1", train(), r"c.yaml:1: not UTF-8", config(b"dataset: caf\xe9")),
    Case("config: not YAML", train(), r"c.yaml:2: not valid YAML", config("a: [1\nb: }")),
    Case("config: a list", train(), r"is a mapping of settings", config("[1]")),
    Case("config: text", train(), r"is a mapping of settings", config("seed")),
    Case("config: two documents", train(), r"not valid YAML", config("seed: 1\n---\nseed: 2")),
    Case(
        "config: a key twice",
        train(),
        r"c.yaml:2: the key 'seed' occurs twice",
        config("seed: 1\nseed: 2"),
    ),
    Case(
        "config: an inner key twice",
        train(),
        r"c.yaml:2: the key 'alpha' occurs twice",
        config("weights: {fixed: {alpha: 0.1,\n alpha: 0.2}}"),
    ),
    Case(
        "config: alias bomb", train(), r"aliases stand for more than 100,000 values", config(BOMB)
    ),
    Case("config: a value in itself", train(), r"contains itself", config("aux: &a [*a]")),
    Case("config: deep", train(), r"more than 40 levels", config("aux: " + "[" * 20_000)),
    Case("config: deep blocks", train(), r"more than 40 levels", config("- " * 20_000)),
    Case("config: undefined alias", train(), r"undefined alias", config("aux: *a")),
    Case(
        "config: Python object",
        train(),
        r"not valid YAML",
        config("seed: !!python/object/apply:os.getpid []"),
    ),
    Case("config: NaN", train(), r"'.nan' is not a finite number", config("learning_rate: .nan")),
    Case("config: infinity", train(), r"'-.inf' is not a finite", config("learning_rate: -.inf")),
    Case(
        "config: 5,000 digits",
        train(),
        r"c.yaml:1: a value cannot be read",
        config("seed: " + "9" * 5000),
    ),
    Case("config: 4,000 digits", train(), r"c.yaml: epochs: ", config("epochs: -" + "9" * 4000)),
    Case("config: no such day", train(), r"c.yaml:1: a value cannot", config("seed: 2024-02-31")),
    Case("config: a date", train(), r"put text in quotation marks", config("dataset: 2024-01-02")),
    Case(
        "config: binary", train(), r"put text in quotation marks", config("dataset: !!binary aGk=")
    ),
    Case("config: a number for a key", train(), r"1", config("1: 2")),
    Case("config: a list for a key", train(), r"unhashable key", config("? [a]\n: 1")),
    Case(
        "config: unknown key", train(), r"unknown key 'sed': did you mean 'seed'", config("sed: 1")
    ),
    Case("config: a long unknown key", train(), r"unknown key 'xxx", config("x" * 500 + ": 1")),
    Case(
        "config: many unknown keys",
        train(),
        r"and 95 more faults",
        config("".join(f"k{i}: 1\n" for i in range(100))),
        lines=6,
    ),
    Case("config: a long value", train(), r"seed: .*xxx", config("seed: " + "x" * 100_000)),
    Case(
        "config: true for a seed",
        train(),
        r"seed: a number is needed, not true",
        config("seed: true"),
    ),
    Case(
        "config: no for epochs",
        train(),
        r"epochs: a number is needed, not true or",
        config("epochs: no"),
    ),
    Case(
        "config: true for a rate",
        train(),
        r"learning_rate: a number is needed",
        config("learning_rate: true"),
    ),
    Case(
        "config: true in an option",
        train(),
        r"alpha: a number is needed",
        config("weights: {fixed: {alpha: true}}"),
    ),
    Case(
        "config: neither of two types",
        ["train", "--aux", "random_mlm", "--fixed-alpha", "nan"],
        r"alpha: Input should be a finite number, or Input should be a list, such as .*got 'nan'",
        lines=1,
    ),
    Case(
        "config: to base 60",
        train(),
        r"c.yaml:1: '1:30' is 90 in YAML: put text in quotation marks",
        config("learning_rate: 1:30"),
    ),
    Case("config: a negative seed", train(), r"seed: ", config("seed: -1")),
    Case("config: no epochs", train(), r"epochs: ", config("epochs: 0")),
    Case("config: a mapping for a number", train(), r"batch_size: ", config("batch_size: {a: 1}")),
    Case(
        "config: name leads out",
        train(),
        r"'../../../escape' is not a plain name",
        config("ood: [{dataset: d, name: ../../../escape}]"),
    ),
    Case(
        "config: absolute name",
        train(),
        r"'/tmp/x' is not a plain name",
        config("ood: [{dataset: d, name: /tmp/x}]"),
    ),
    Case(
        "config: hidden name",
        train(),
        r"begins with a dot",
        config("ood: [{dataset: d, name: .x}]"),
    ),
    Case("config: dots for a name", train(), r"begins with a dot", config("ood: [..]")),
    Case(
        "config: backslash in a name",
        train(),
        r"is not a plain name",
        config(r"ood: [{dataset: d, name: a\b}]"),
    ),
    Case(
        "config: long name",
        train(),
        r"too long for a name",
        config(f"ood: [{{dataset: d, name: {'n' * 101}}}]"),
    ),
    Case(
        "config: control character in a name",
        train(),
        r"is not a plain name",
        config(r'ood: [{dataset: d, name: "a\eb"}]'),
    ),
    Case(
        "config: name of a split",
        train(),
        r"the name 'test' is taken",
        config("ood: [{dataset: d, name: test}]"),
    ),
    Case("config: a key of a set", train(), r"unknown key", config("ood: [{dataset: d, nme: x}]")),
    Case("config: unknown task", train(), r"did you mean 'l3mask'", config("aux: l3msk")),
    Case(
        "config: two tasks in one",
        train(),
        r"one name with its options",
        config("aux: [{l3mask: {}, random_mlm: {}}]"),
    ),
    Case(
        "config: options that are none",
        train(),
        r"options of 'l3mask' are a mapping",
        config("aux: [{l3mask: 3}]"),
    ),
    Case("sweep: absent", SWEEP, r"there is no file s.yaml"),
    Case("sweep: a list", SWEEP, r"a sweep file is a mapping", sweep("[]")),
    Case(
        "sweep: a key twice",
        SWEEP,
        r"s.yaml:2: the key 'name' occurs twice",
        sweep("name: a\nname: b"),
    ),
    Case("sweep: alias bomb", SWEEP, r"aliases stand for more", sweep(BOMB)),
    Case("sweep: many seeds", SWEEP, r"at most 20,000 seeds", sweep("name: a\nseeds: 100000000")),
    Case("sweep: negative seeds", SWEEP, r"seeds", sweep("name: a\nseeds: [-1]")),
    Case(
        "sweep: true for a seed",
        SWEEP,
        r"seeds: a number is needed",
        sweep("name: a\nseeds: [true]"),
    ),
    Case(
        "sweep: true for the seeds",
        SWEEP,
        r"seeds: a number is needed",
        sweep("name: a\nseeds: true"),
    ),
    Case("sweep: a seed twice", SWEEP, r"a seed occurs twice", sweep("name: a\nseeds: [1, 1]")),
    Case("sweep: no seeds", SWEEP, r"seeds", sweep("name: a\nseeds: 0")),
    Case(
        "sweep: a large grid",
        SWEEP,
        r"has 800,000 combinations",
        sweep(
            f"name: a\ngrid: {{epochs: {list(range(1, 801))}, batch_size: {list(range(1, 1001))}}}"
        ),
    ),
    Case(
        "sweep: many trials",
        SWEEP,
        r"has 40,000 trials \(200 combinations, 200 seeds\)",
        sweep(f"name: a\nseeds: 200\ngrid: {{epochs: {list(range(1, 201))}}}"),
    ),
    Case(
        "sweep: a search without end",
        SWEEP,
        r"search.trials",
        sweep("name: a\nsearch: {trials: 100000000, space: {epochs: [1]}}"),
    ),
    Case("sweep: name leads out", SWEEP, r"name: ", sweep("name: ../a")),
    Case("sweep: long name", SWEEP, r"name: ", sweep("name: " + "n" * 300)),
    Case(
        "sweep: unknown setting",
        SWEEP,
        r"unknown setting 'epoch': did you mean 'epochs'",
        sweep("name: a\ngrid: {epoch: [1]}"),
    ),
    Case(
        "sweep: a value for a group",
        SWEEP,
        r"grid: epochs: expected a list of values, .*got \{'epochs': \{'': 1\}\}$",
        sweep('name: a\ngrid: {epochs: {"": 1}}'),
        lines=1,
    ),
    Case(
        "sweep: a value for a list",
        SWEEP,
        r"grid: epochs: expected a list of values, .* got \{'epochs': 3\}$",
        sweep("name: a\ngrid: {epochs: 3}"),
        lines=1,
    ),
    Case(
        "sweep: a plug-in without a name",
        SWEEP,
        r"weights: the options of '' are a mapping of option to value, got \{'': 1\}$",
        sweep('name: a\ngrid: {weights: [{"": 1}]}'),
        lines=1,
    ),
    Case("card: absent", ["data", "check", "c.yaml"], r"there is no file c.yaml"),
    Case("card: a list", ["data", "check", "c.yaml"], r"must be a mapping", config("[]")),
    Case(
        "card: a key twice",
        ["data", "check", "c.yaml"],
        r"the key 'name' occurs twice",
        config("name: a\nname: b"),
    ),
    Case("card: alias bomb", ["data", "check", "c.yaml"], r"aliases stand for", config(BOMB)),
    Case(
        "card: many unknown keys",
        ["data", "check", "c.yaml"],
        r"and \d+ more",
        config("".join(f"k{i}: 1\n" for i in range(50))),
    ),
    *(
        Case(
            f"card: {what}",
            ["data", "check", "c.yaml"],
            r"is not a plain name",
            config(
                "{title: t, description: d, folder_recipe: r, metric: accuracy, licence: l, "
                f"paper: p, label_names: [a, b], {entry}}}"
            ),
        )
        for what, entry in (
            ("name leads out", "name: ../../x"),
            ("name of a set leads out", "name: x, ood: {../y: {}}"),
            ("name of a split leads out", "name: x, pairs: {test: ../z}"),
        )
    ),
]

CASES: list[Case] = SETTINGS
