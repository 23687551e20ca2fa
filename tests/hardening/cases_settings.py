"""Bad configurations, sweep files and options."""

from __future__ import annotations

from typing import Any

from tests.hardening.case import Case, cases
from tests.hardening.inputs import BOMB, SWEEP, config, folder, pipe, sparse_file, sweep, train

CONFIGS: dict[str, Any] = {
    "NUL": (r"not valid YAML", "a: \0"),
    "Latin-1": (r"c.yaml:1: not UTF-8", b"dataset: caf\xe9"),
    "not YAML": (r"c.yaml:2: not valid YAML", "a: [1\nb: }"),
    "a list": (r"must be a mapping", "[1]"),
    "text": (r"must be a mapping", "seed"),
    "two documents": (r"not valid YAML", "seed: 1\n---\nseed: 2"),
    "a key twice": (r"c.yaml:2: the key 'seed' occurs twice", "seed: 1\nseed: 2"),
    "an inner key twice": (
        r"c.yaml:2: the key 'alpha' occurs twice",
        "weights: {fixed: {alpha: 0.1,\n alpha: 0.2}}",
    ),
    "alias bomb": (r"aliases stand for more than 100,000 values", BOMB),
    "a value in itself": (r"contains itself", "aux: &a [*a]"),
    "deep": (r"more than 40 levels", "aux: " + "[" * 20_000),
    "deep blocks": (r"more than 40 levels", "- " * 20_000),
    "undefined alias": (r"undefined alias", "aux: *a"),
    "Python object": (r"not valid YAML", "seed: !!python/object/apply:os.getpid []"),
    "NaN": (r"'.nan' is not a finite number", "learning_rate: .nan"),
    "infinity": (r"'-.inf' is not a finite", "learning_rate: -.inf"),
    "5,000 digits": (r"c.yaml:1: a value cannot be read", "seed: " + "9" * 5000),
    "4,000 digits": (r"c.yaml: epochs: ", "epochs: -" + "9" * 4000),
    "no such day": (r"c.yaml:1: a value cannot", "seed: 2024-02-31"),
    "a date": (r"put text in quotation marks", "dataset: 2024-01-02"),
    "binary": (r"put text in quotation marks", "dataset: !!binary aGk="),
    "a number for a key": (r"1", "1: 2"),
    "a list for a key": (r"unhashable key", "? [a]\n: 1"),
    "unknown key": (r"unknown key 'sed': did you mean 'seed'", "sed: 1"),
    "a long unknown key": (r"unknown key 'xxx", "x" * 500 + ": 1"),
    "a long value": (r"seed: .*xxx", "seed: " + "x" * 100_000),
    "true for a seed": (r"seed: a number is needed, not true", "seed: true"),
    "no for epochs": (r"epochs: a number is needed, not true or", "epochs: no"),
    "true for a rate": (r"learning_rate: a number is needed", "learning_rate: true"),
    "true in an option": (r"alpha: a number is needed", "weights: {fixed: {alpha: true}}"),
    "to base 60": (
        r"c.yaml:1: '1:30' is 90 in YAML: put text in quotation marks",
        "learning_rate: 1:30",
    ),
    "a negative seed": (r"seed: ", "seed: -1"),
    "no epochs": (r"epochs: ", "epochs: 0"),
    "a mapping for a number": (r"batch_size: ", "batch_size: {a: 1}"),
    "name leads out": (
        r"'../../../escape' is not a plain name",
        "ood: [{dataset: d, name: ../../../escape}]",
    ),
    "absolute name": (r"'/tmp/x' is not a plain name", "ood: [{dataset: d, name: /tmp/x}]"),
    "hidden name": (r"begins with a dot", "ood: [{dataset: d, name: .x}]"),
    "dots for a name": (r"begins with a dot", "ood: [..]"),
    "backslash in a name": (r"is not a plain name", r"ood: [{dataset: d, name: a\b}]"),
    "long name": (r"too long for a name", f"ood: [{{dataset: d, name: {'n' * 101}}}]"),
    "control character in a name": (r"is not a plain name", r'ood: [{dataset: d, name: "a\eb"}]'),
    "name of a split": (r"the name 'test' is taken", "ood: [{dataset: d, name: test}]"),
    "a key of a set": (r"unknown key", "ood: [{dataset: d, nme: x}]"),
    "unknown task": (r"did you mean 'l3mask'", "aux: l3msk"),
    "two tasks in one": (r"one name with its options", "aux: [{l3mask: {}, random_mlm: {}}]"),
    "options that are none": (r"options of 'l3mask' are a mapping", "aux: [{l3mask: 3}]"),
}

SWEEPS: dict[str, Any] = {
    "a list": (r"must be a mapping", "[]"),
    "a key twice": (r"s.yaml:2: the key 'name' occurs twice", "name: a\nname: b"),
    "alias bomb": (r"aliases stand for more", BOMB),
    "a space in the name": (r"name: a folder is called so", "name: my sweep"),
    "many seeds": (r"at most 20,000 seeds", "name: a\nseeds: 100000000"),
    "negative seeds": (r"seeds", "name: a\nseeds: [-1]"),
    "true for a seed": (r"seeds: a number is needed", "name: a\nseeds: [true]"),
    "true for the seeds": (r"seeds: a number is needed", "name: a\nseeds: true"),
    "a seed twice": (r"a seed occurs twice", "name: a\nseeds: [1, 1]"),
    "no seeds": (r"seeds", "name: a\nseeds: 0"),
    "a large grid": (
        r"has 800,000 combinations",
        f"name: a\ngrid: {{epochs: {[*range(1, 801)]}, batch_size: {[*range(1, 1001)]}}}",
    ),
    "many trials": (
        r"has 40,000 trials \(200 combinations, 200 seeds\)",
        f"name: a\nseeds: 200\ngrid: {{epochs: {list(range(1, 201))}}}",
    ),
    "a search without end": (
        r"search.trials",
        "name: a\nsearch: {trials: 100000000, space: {epochs: [1]}}",
    ),
    "name leads out": (r"name: ", "name: ../a"),
    "long name": (r"name: ", "name: " + "n" * 300),
    "unknown setting": (
        r"unknown setting 'epoch': did you mean 'epochs'",
        "name: a\ngrid: {epoch: [1]}",
    ),
}

SETTINGS = [
    *cases(
        "config",
        train(),
        {
            "absent": r"there is no file c.yaml",
            "large": (r"is too large: 1,000,000 bytes", sparse_file("c.yaml", 10**6)),
            "a folder": (r"is not a regular file", folder("c.yaml")),
            "a pipe": (r"is not a regular file", pipe("c.yaml")),
        },
    ),
    *cases("config", train(), CONFIGS, config),
    *cases("sweep", SWEEP, SWEEPS, sweep),
    *cases(
        "sweep",
        SWEEP,
        {
            "a value for a group": (
                r"grid: epochs: expected a list of values, .*got \{'epochs': \{'': 1\}\}$",
                'name: a\ngrid: {epochs: {"": 1}}',
            ),
            "a value for a list": (
                r"grid: epochs: expected a list of values, .* got \{'epochs': 3\}$",
                "name: a\ngrid: {epochs: 3}",
            ),
            "a plug-in without a name": (
                r"weights: the options of '' are a mapping of option to value, got \{'': 1\}$",
                'name: a\ngrid: {weights: [{"": 1}]}',
            ),
        },
        sweep,
        lines=1,
    ),
    *cases(
        "card",
        ["data", "check", "c.yaml"],
        {
            "a list": (r"must be a mapping", "[]"),
            "a key twice": (r"the key 'name' occurs twice", "name: a\nname: b"),
            "alias bomb": (r"aliases stand for", BOMB),
        },
        config,
    ),
    Case(
        "card: many unknown keys",
        ["data", "check", "c.yaml"],
        r"and \d+ more",
        config("".join(f"k{i}: 1\n" for i in range(50))),
        lines=6,  # five faults and the number of the others
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
    Case(
        "config: many unknown keys",
        train(),
        r"and 95 more faults",
        config("".join(f"k{i}: 1\n" for i in range(100))),
        lines=6,
    ),
    Case(
        "config: neither of two types",
        ["train", "--aux", "random_mlm", "--fixed-alpha", "nan"],
        r"alpha: Input should be a finite number, or Input should be a list, such as .*got 'nan'",
        lines=1,
    ),
    Case("sweep: absent", SWEEP, r"there is no file s.yaml"),
    Case("card: absent", ["data", "check", "c.yaml"], r"there is no file c.yaml"),
]

CASES: list[Case] = SETTINGS
