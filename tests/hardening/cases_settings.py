"""Bad configurations, sweep files and cards."""

from __future__ import annotations

from typing import Any

from tests.hardening.inputs import (
    BOMB,
    SWEEP,
    Case,
    Make,
    cases,
    config,
    folder,
    of_encoder,
    pipe,
    sparse_file,
    sweep,
    together,
    train,
)

FILES: dict[str, Any] = {
    "absent": r"there is no file c.yaml",
    "large": (r"is too large: 1,000,000 bytes", sparse_file("c.yaml", 10**6)),
    "a folder": (r"is not a regular file", folder("c.yaml")),
    "a pipe": (r"is not a regular file", pipe("c.yaml")),
    "a set whose second text is its label": (
        r"column 'label' is that of the text-pair and of the label",
        together(
            of_encoder(lambda model: None),
            config(
                "dataset: d\nencoder: encoder\n"
                "ood: [{dataset: d, split: train, text_pair_column: label}]"
            ),
        ),
    ),
}
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
    "a rate of 0": (r"learning_rate: .*greater than 0", "learning_rate: 0"),
    "a negative rate": (r"learning_rate: .*greater than 0", "learning_rate: -1.0"),
    "a word for a rate": (r"learning_rate: ", "learning_rate: fast"),
    "more micro-batches than examples": (
        r"a batch of 4 examples cannot be split into 5 micro-batches",
        "{batch_size: 4, gradient_accumulation_steps: 5}",
    ),
    "true for a seed": (r"seed: a number is needed, not true", "seed: true"),
    "no for epochs": (r"epochs: must be a whole number", "epochs: no"),
    "true for a rate": (r"learning_rate: a number is needed", "learning_rate: true"),
    "true in an option": (r"alpha: a number is needed", "weights: {fixed: {alpha: true}}"),
    "to base 60": (
        r"c.yaml:1: '1:30' is 90 in YAML: put text in quotation marks",
        "learning_rate: 1:30",
    ),
    "octal": (r"c.yaml:1: '010' is 8 in YAML: leave the first 0 out, or put text", "seed: 010"),
    "a number for a fold": (r"fold: 2 is no fold: the folds of five are 1/5", "fold: 2"),
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
    "a name of two sets": (r"the name 'x' is taken", "ood: [a/x, b/x]"),
    "a key of a set": (r"unknown key 'ood.0.nme'", "ood: [{dataset: d, nme: x}]"),
    "a decision of a set": (r"decision: ", "ood: [{dataset: x, decision: max}]"),
    "a set without data": (r"dataset is missing", "ood: [{name: x}]"),
    "unknown task": (r"did you mean 'l3mask'", "aux: l3msk"),
    "two tasks in one": (r"one name with its options", "aux: [{l3mask: {}, random_mlm: {}}]"),
    "two weightings": (r"a name, or one name with its options", "weights: {fixed: {}, meta: {}}"),
    "a number for a task": (r"aux.0: write a name, or one name with its options", "aux: [1]"),
    "a list for a task": (r"aux.0: write a name, or one name with its", "aux: [[random_mlm]]"),
    "no weighting": (r"weights: write a name, or one name with its options", "weights: null"),
    "a list for a set": (r"ood.0: write a data set, or a mapping: \{dataset", "ood: [[d]]"),
    "options that are none": (r"options of 'l3mask' are a mapping", "aux: [{l3mask: 3}]"),
    "options of a rule": (r"the options of 'fixed' are a mapping", "weights: {fixed: 0.3}"),
    "a task's own name": (r"the name 'A b': use lower-case letters", "aux: ['mlm:A b']"),
    "a rule's own name": (r"only auxiliary tasks have names of their own", "weights: 'meta:x'"),
    "3,000 tasks": (r"aux: Tuple .* at most 100", f"aux: [{', '.join(['l3mask'] * 3000)}]"),
    "3,000 plug-ins": (r"plugins: Tuple .* most 100", f"plugins: [{', '.join(['p.py'] * 3000)}]"),
    "100,001 values": (r"stand for more than 100,000", f"report_to: [{','.join('a' * 100_001)}]"),
}

SWEEPS: dict[str, Any] = {
    "a list": (r"must be a mapping", "[]"),
    "a key twice": (r"s.yaml:2: the key 'name' occurs twice", "name: a\nname: b"),
    "alias bomb": (r"aliases stand for more", BOMB),
    "a space in the name": (r"name: a folder is called so", "name: my sweep"),
    "name leads out": (r"name: ", "name: ../a"),
    "long name": (r"name: ", "name: " + "n" * 300),
}
NO_AXIS = r"'runs/\{zz\}': no axis 'zz' has a label to put there: known: aux"
#: Beside a name.
GRIDS: dict[str, Any] = {
    "many seeds": (r"at most 20,000 seeds", "seeds: 100000000"),
    "true for a seed": (r"seeds: a number is needed", "seeds: [true]"),
    "true for the seeds": (r"seeds: a number is needed", "seeds: true"),
    "a seed twice": (r"a seed occurs twice", "seeds: [1, 1]"),
    "no seeds": (r"seeds: a sweep needs a seed: write their number", "seeds: 0"),
    "a word for a selection": (r"select: must be a mapping, got 'over'$", "select: over"),
    "a large grid": (
        r"has 800,000 combinations",
        f"grid: {{epochs: {[*range(1, 801)]}, batch_size: {[*range(1, 1001)]}}}",
    ),
    "many trials": (
        r"has 40,000 trials \(200 combinations, 200 seeds\)",
        f"seeds: 200\ngrid: {{epochs: {list(range(1, 201))}}}",
    ),
    "a share of a rule": (
        r"fixed: alpha: it is outside \(0, 1\)",
        "grid: {method: {A: {}, B: {aux: l3mask, weights: {fixed: {alpha: 2}}}}}",
    ),
    "a search without end": (r"search.trials", "search: {trials: 100000000, space: {epochs: [1]}}"),
    "unknown setting": (r"setting 'epoch': did you mean 'epochs'", "grid: {epoch: [1]}"),
    "a search of nothing": (r"search.space.epochs has no values", "search: {space: {epochs: []}}"),
    "an axis twice": (
        r"'epochs' is an axis of both",
        "grid: {epochs: [1]}\nsearch: {space: {epochs: [2]}}",
    ),
    "unknown published results": (r"results 'nope': known: l3masking_table3", "published: nope"),
    "nothing to exclude": (
        r"exclude: epochs has no value '7': known: 1, 2",
        "grid: {epochs: [1, 2]}\nexclude: [{epochs: 7}]",
    ),
    "three unknown axes": (
        r"unknown setting 'nosuch0': see `auxlearn train --help`",
        "grid: {nosuch0: [1], nosuch1: [1], nosuch2: [1]}",
    ),
    "no such axis in base": (NO_AXIS, "base: {init_from: 'runs/{zz}'}\ngrid: {aux: [[], l3mask]}"),
    "no such axis in grid": (NO_AXIS, "grid: {aux: [{random_mlm: {corpus: 'runs/{zz}'}}]}"),
    "no such axis in a search": (
        NO_AXIS,
        "grid: {aux: [[]]}\nbase: {init_from: 'runs/{zz}'}\nsearch: {space: {epochs: [1]}}",
    ),
}


def named(content: str) -> Make:
    return sweep(f"name: a\n{content}")


#: Answered by one line.
VALUES: dict[str, Any] = {
    "a value for a group": (
        r"grid: epochs: expected a list of values, .*got \{'epochs': \{'': 1\}\}$",
        'grid: {epochs: {"": 1}}',
    ),
    "a value for a list": (
        r"grid: epochs: expected a list of values, .* got \{'epochs': 3\}$",
        "grid: {epochs: 3}",
    ),
    "negative seeds": (r"seeds.0: must be greater", "seeds: [-1]"),
    "a value for a range": (
        r"search.space.epochs: must be a mapping, or must be a list, .* got 2$",
        "search: {space: {epochs: 2}}",
    ),
    "a plug-in without a name": (
        r"weights: the options of '' are a mapping of option to value, got \{'': 1\}$",
        'grid: {weights: [{"": 1}]}',
    ),
}
#: What trials cannot use: settings of ``base``, the error line, and more of the command.
UNUSABLE: dict[str, tuple[str, ...]] = {
    "dataset: nowhere/d, encoder: encoder": (r"no folder 'nowhere/d'",),
    "dataset: d, text_column: txt": (r"no text column 'txt'",),
    "dataset: d, ood: [nowhere/d]": (r"no folder 'nowhere/d'",),
    "dataset: d, encoder: ./nowhere": (r"./nowhere does not exist",),
    "dataset: nowhere/e": (r"no folder 'nowhere/e'", "--dry-run"),
    "dataset: d, encoder: encoder, max_length: 9999": (
        r"max_length 9999 is more than",
        "--dry-run",
    ),
    "dataset: d, encoder: encoder, freeze: 50": (r"freeze: 50 layers are more than the",),
    "dataset: d, encoder: encoder}\nselect: {metric: mae": (r"metric: mae is not of", "--dry-run"),
    "dataset: d": (r"cannot write to s.yaml/c", "--cache-dir", "s.yaml/c"),
}
CARD = (
    "{{title: t, description: d, get: {{source: s, splits: {{test: t}}}}, metric: accuracy, "
    "licence: l, paper: p, label_names: [a, b], {}}}"
)
CARDS: dict[str, Any] = {
    "a list": (r"must be a mapping", "[]"),
    "a key twice": (r"the key 'name' occurs twice", "name: a\nname: b"),
    "alias bomb": (r"aliases stand for", BOMB),
    "name leads out": (r"is not a plain name", CARD.format("name: ../../x")),
    "name of a set leads out": (r"is not a plain name", CARD.format("name: x, ood: {../y: {}}")),
    "name of a split leads out": (r"not a plain name", CARD.format("name: x, pairs: {test: ../z}")),
}
CHECK_CARD = ("data", "check", "c.yaml")
#: Five faults and the number of the others.
MANY_KEYS = {
    "many unknown keys": (r"and (95|102) more faults", "".join(f"k{i}: 1\n" for i in range(100)))
}

CASES: list[Case] = [
    *cases("config", train(), FILES),
    *cases("config", train(), CONFIGS, config),
    *cases("config", train(), MANY_KEYS, config, lines=6),
    *cases("sweep", SWEEP, SWEEPS, sweep),
    *cases("sweep", SWEEP, GRIDS, named),
    *cases("sweep", SWEEP, VALUES, named, lines=1),
    *(
        Case(
            f"sweep: trials of {settings} {' '.join(more)}",
            ["sweep", "s.yaml", *more],
            line,
            together(of_encoder(lambda model: None), named(f"seeds: 2\nbase: {{{settings}}}")),
        )
        for settings, (line, *more) in UNUSABLE.items()
    ),
    *cases("card", CHECK_CARD, CARDS, config),
    *cases("card", CHECK_CARD, MANY_KEYS, config, lines=6),
    Case(
        "config: neither of two types",
        ["train", "--aux", "random_mlm", "--fixed-alpha", "nan"],
        r"alpha: must be a finite number, or must be a list, such as .*got 'nan'",
        lines=1,
    ),
    Case("sweep: absent", SWEEP, r"there is no file s.yaml"),
    Case("card: absent", CHECK_CARD, r"there is no file c.yaml"),
]
