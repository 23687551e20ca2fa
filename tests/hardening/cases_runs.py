"""Bad run folders, checkpoints, results, outputs, plug-ins and sweeps."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from auxlearn import RunConfig, train
from auxlearn.core.files import write_checked_json
from tests import helpers
from tests.hardening.inputs import Case, Place, cases


@cache
def base(encoder_folder: Callable[[str], Path]) -> Path:
    """Return a folder with data, an encoder, a finished run and an unfinished one; made once."""
    folder = Path(tempfile.mkdtemp(prefix="auxlearn-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    rows = helpers.rows()
    helpers.write_splits(folder / "data", train=rows[:16], dev=rows[16:20], test=rows[20:])
    shutil.copytree(encoder_folder("bert"), folder / "encoder")
    settings: dict[str, Any] = {"dataset": folder / "data", "encoder": folder / "encoder"}
    settings |= {"aux": ["mask_tuning"], "epochs": 1, "batch_size": 4, "eval_steps": 1}
    settings |= {"patience": 0, "max_length": 16, "device": "cpu"}
    train(RunConfig(**settings, output=folder / "finished"))
    helpers.kill_before_step(2, RunConfig(**settings, output=folder / "unfinished"))
    shutil.copy(folder / "finished" / "config.yaml", folder / "config.yaml")
    return folder


def copy(place: Place, which: str) -> Path:
    """Copy a run, and the configuration of both runs beside it."""
    made = base(place.encoder_folder)
    shutil.copy(made / "config.yaml", place.path / "config.yaml")
    return Path(shutil.copytree(made / which, place.path / "run"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(bytes(content))


def in_place(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


#: Ways to damage a file that is needed whole.
DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "flipped": flip,
    "zeros": lambda path: path.write_bytes(b"\0" * path.stat().st_size),
    "missing": Path.unlink,
    "a folder": lambda path: in_place(path, Path.mkdir),
    "a pipe": lambda path: in_place(path, os.mkfifo),
    "a link out": lambda path: in_place(path, lambda p: p.symlink_to("/etc/hostname")),
}

#: Values that a JSON file may hold instead of its own.
VALUES = {"a list": "[]", "null": "null", "text": '"x"', "deep": "[" * 20_000, "number": "1" * 5000}

TRAIN = ["train", "--config", "config.yaml", "--output", "run"]
DAMAGED = r"(is damaged|leads out of|neither a file nor a folder|is not empty|cannot be read)"


def damage_run(which: str, pattern: str, how: Callable[[Path], object], place: Place) -> None:
    run = copy(place, which)
    (path,) = run.glob(pattern)
    how(path)


def put(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def resign(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change the values of a JSON file and give it the checksum of the new ones."""

    def apply(path: Path) -> None:
        content = json.loads(path.read_text())
        del content["sha256"]
        change(content)
        write_checked_json(path, content)

    return apply


UNFINISHED = {
    "environment.json": "environment.json",
    "inputs.json": "inputs.json",
    "metrics.jsonl": "metrics.jsonl",
    "perturbations.jsonl": "perturbations.jsonl",
    "latest.json": "checkpoint/latest.json",
    "encoder": "checkpoint/step-*/encoder.safetensors",
    "optimizer": "checkpoint/step-*/optimizer.safetensors",
    "best": "checkpoint/best-*.safetensors",
}
#: Without these the run starts again, or says something of its own.
NO_ERROR = {
    *(("latest.json", how) for how in ("missing", "a folder")),
    *((name, "missing") for name in ("inputs.json", "environment.json")),
}


def damaged(
    of: str, command: list[str], line: str, place: tuple[str, str], ways: dict[str, Any]
) -> list[Case]:
    """Cases of a file of a run, given as the run and its path there, by what is done to it."""
    return [
        Case(f"{of} {how}", command, line, partial(damage_run, *place, damage))
        for how, damage in ways.items()
    ]


STATES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no state": lambda c: c.pop("state"),
    "a state of other keys": lambda c: c["state"].update(step="x"),
    "a folder elsewhere": lambda c: c.update(folder="../.."),
    "a folder that is a number": lambda c: c.update(folder=1),
    "no groups": lambda c: c.pop("groups"),
    "groups in a list": lambda c: c.update(groups=["encoder"]),
    "no best weights": lambda c: c.update(best=None),
    "no logs": lambda c: c.pop("logs"),
    "logs that are longer": lambda c: c["logs"]["metrics.jsonl"].update(bytes=10**6),
    "no checksum of a group": lambda c: c["groups"]["encoder"].pop("sha256"),
}
HELD = {f"holds {what}": put(content) for what, content in VALUES.items()}
CASES: list[Case] = [
    *(
        case
        for name, path in UNFINISHED.items()
        for case in damaged(
            f"unfinished run: {name}",
            TRAIN,
            DAMAGED,
            ("unfinished", path),
            {f"is {how}": way for how, way in DAMAGES.items() if (name, how) not in NO_ERROR}
            | (HELD if name in ("environment.json", "inputs.json", "latest.json") else {}),
        )
    ),
    *damaged(
        "unfinished run: latest.json has",
        TRAIN,
        DAMAGED,
        ("unfinished", "checkpoint/latest.json"),
        {what: resign(change) for what, change in STATES.items()},
    ),
]
#: Files of the unfinished run with something else done to them, and what is said of that.
CASES += damaged(
    "config.yaml",
    ["report", "run"],
    r"run/config.yaml has been changed since it was written",
    ("finished", "config.yaml"),
    {"emptied": put("")},
)
OTHERWISE: dict[tuple[str, str], tuple[Callable[[Path], object], str]] = {
    ("inputs.json", "is missing"): (Path.unlink, "holds a checkpoint but no inputs.json"),
    ("environment.json", "is missing"): (
        Path.unlink,
        "environment.json is missing: delete run to train again",
    ),
    ("config.yaml", "is missing"): (Path.unlink, "is not empty and is not a run folder"),
    ("config.yaml", "is no YAML"): (put("{"), "whose config.yaml cannot be read"),
}
CASES += [
    case
    for (name, how), (damage, line) in OTHERWISE.items()
    for case in damaged(f"unfinished run: {name}", TRAIN, line, ("unfinished", name), {how: damage})
]
CASES += [
    Case(
        "unfinished run of another configuration",
        [*TRAIN, "--seed", "7"],
        "holds the run of another configuration .it has seed 0, not 7.",
        lambda place: copy(place, "unfinished"),
    ),
    Case(
        "unfinished run: predict",
        ["predict", "run", "x"],
        "is not finished: resume it with .auxlearn train .*--config run/config.yaml --output run",
        lambda place: copy(place, "unfinished"),
    ),
]

RESULTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no evaluations": lambda c: c.pop("evaluations"),
    "evaluations in a list": lambda c: c.update(evaluations=[]),
    "an evaluation that is a number": lambda c: c["evaluations"].update(dev=1),
    "an accuracy that is a text": lambda c: c["evaluations"]["dev"]["all"].update(accuracy="x"),
    "a data set that is null": lambda c: c.update(dataset=None),
    "label names that are numbers": lambda c: c["dataset"].update(label_names=[1]),
    "steps that are a list": lambda c: c.update(steps=[]),
    "no environment": lambda c: c.pop("environment"),
    "another key": lambda c: c.update(more=1),
}
CASES += damaged(
    "finished run: results.json",
    TRAIN,
    r"results\.json is damaged|leads out of|neither a file",
    ("finished", "results.json"),
    {
        **{f"is {how}": DAMAGES[how] for how in DAMAGES if how not in ("missing", "a folder")},
        **HELD,
        **{f"has {what}": resign(change) for what, change in RESULTS.items()},
    },
)
CASES += [
    case
    for name in ("model.safetensors", "config.json", "tokenizer.json", "manifest.json")
    for case in damaged(
        f"finished run: {name} is",
        ["predict", "run", "a text"],
        r"is damaged|leads out of|neither a file|holds no",
        ("finished", f"model/{name}"),
        {
            how: DAMAGES[how]
            for how in ("empty", "flipped", "missing", "a pipe", "a link out")
            if (name, how) != ("manifest.json", "missing")
        },
    )
]
CASES += damaged(
    "finished run: perturbations.jsonl",
    ["perturbations", "run"],
    r"perturbations\.jsonl is damaged|has no perturbed texts",
    ("finished", "perturbations.jsonl"),
    {
        "is empty": put(""),
        "is no JSON": put("{\n"),
        "holds a list": put("[]\n"),
        "holds other keys": put('{"step": 1}\n'),
        "is not UTF-8": lambda path: path.write_bytes(b"\xff\n"),
        "has ids that are texts": lambda path: path.write_text(
            path.read_text().replace('"input_ids": [', '"input_ids": ["x", ', 1)
        ),
    },
)

#: Ways in which the lines of a file may change that leave each of them what a line may be.
LINES: dict[str, Callable[[list[str]], list[str]]] = {
    "by half": lambda lines: lines[: len(lines) // 2],
    "in order": lambda lines: [lines[-1], *lines[1:-1], lines[0]],
    "by a line twice": lambda lines: [*lines, lines[-1]],
    "in a digit": lambda lines: [re.sub(r"\d(?=[,}\]])", "7", lines[0]), *lines[1:]],
}


def change_lines(change: Callable[[list[str]], list[str]]) -> Callable[[Path], object]:
    return lambda path: path.write_text("\n".join(change(path.read_text().split("\n")[:-1])) + "\n")


CASES += [
    case
    for name in ("predictions/dev.jsonl", "metrics.jsonl", "perturbations.jsonl")
    for case in damaged(
        f"finished run: {name} has changed",
        ["report", "run", "--output", "page.html"],
        rf"{name} is damaged \(.*\): delete the folder and run again",
        ("finished", name),
        {
            **{what: change_lines(change) for what, change in LINES.items()},
            "to a folder": DAMAGES["a folder"],
            "to nothing": DAMAGES["missing"],
        },
    )
]


def output(make: Callable[[Place], object]) -> Callable[[Place], object]:
    def both(place: Place) -> None:
        made = base(place.encoder_folder)
        shutil.copy(made / "config.yaml", place.path / "settings.yaml")
        place.write("texts.txt", "\n".join(helpers.LINES))
        make(place)

    return both


COMMANDS = {
    "train": ["train", "--config", "settings.yaml"],
    "pretrain": ["pretrain", "--encoder", "tiny", "--corpus", "texts.txt", "--steps", "1"],
}
OUTPUTS: dict[str, tuple[str, str, Callable[[Place], object]]] = {
    "a file": ("out", r"is a file", lambda p: p.write("out", "x")),
    "below a file": ("out/x/y", r"is a file", lambda p: p.write("out", "x")),
    "the working folder": (".", r"is not empty", lambda p: p.write("thesis.tex", "x")),
    "a folder of other files": ("out", r"is not empty", lambda p: p.write("out/thesis.tex", "x")),
    "a name too long": ("x" * 300, r"File name too long", lambda p: None),
    "a home of nobody": ("~nosuchuser/x", r"no home folder for ~nosuchuser/x", lambda p: None),
    "a link to nowhere": (
        "out/run",
        r"(is a file|cannot write|File exists|No such file)",
        lambda p: (p.path / "out").symlink_to("/nonexistent/place"),
    ),
    "not to be made": ("/proc/nothing/run", r"cannot write to /proc/nothing/run", lambda p: None),
}
CASES += [
    Case(f"{name}: --output is {what}", [*command, "--output", path], line, output(make))
    for name, command in COMMANDS.items()
    for what, (path, line, make) in OUTPUTS.items()
]

PLUGIN = """
import torch
from auxlearn.plugins import *

"""


def write_plugin(name: str, number: int, body: str, place: Place) -> None:
    """Write a plug-in; its name gets a number, as names are registered for good in a process."""
    place.write(f"{name}.py", PLUGIN + body.replace(f'"{name}"', f'"{name}_{number}"'))


TASK = """
@register_task("mine")
class Mine(AuxiliaryTask):
    def loss(self, encoder, batch, generator):
        {line}
"""


def task(line: str = "return encoder.classify(batch).sum()", more: str = "") -> str:
    """A task whose loss is a line, and further lines of its class."""
    return TASK.format(line=line) + "".join(f"    {one}\n" for one in more.splitlines())


MUTE = "class E(Exception):\n    def __str__(self):\n        1 / 0\n"
MEMBERS = "members = ({'a': 'b'},)"
PLUGINS: dict[str, tuple[str, str]] = {
    "returns None": (task("return None"), r"loss of 'mine' \(Mine of .*\) is None"),
    "returns a float": (task("return 1.0"), r"loss of 'mine' .* is a float"),
    "returns a list": (task("return [1]"), r"loss of 'mine' .* is a list"),
    "returns a vector": (
        task("return encoder.classify(batch).sum(1)"),
        r"loss of 'mine' .* is a tensor of shape \(4,\)",
    ),
    "returns integers": (task("return torch.tensor(1)"), r"of dtype torch\.int64"),
    "has no graph": (task("return torch.tensor(1.0)"), r"without a graph"),
    "is NaN": (
        task("return encoder.classify(batch).sum() * float('nan')"),
        r"loss of 'mine' is nan in its first step",
    ),
    "is infinite": (
        task("return encoder.classify(batch).exp().sum() / 0"),
        r"loss of 'mine' is inf in its first step",
    ),
    "raises in loss": (
        task("raise ValueError('no\\nsuch column')"),
        r"'mine' \(Mine of .*mine\.py\) failed in loss \(ValueError: no such column\)",
    ),
    "raises no Exception": (
        "class E(BaseException):\n    pass\n" + task("raise E('no')"),
        r"failed in loss \(E: no\)",
    ),
    "ends a generator": (task("raise GeneratorExit"), r"in loss \(GeneratorExit\)"),
    "leaves the program": (task("raise SystemExit(0)"), r"in loss \(SystemExit: 0"),
    "raises what has no text": (MUTE + task("raise E('no')"), r"failed in loss \(E: E\('no'\)\)"),
    "raises KeyError in loss": (task("return {}['a']"), r"failed in loss \(KeyError"),
    "multiplies wrong shapes": (
        task("return (torch.ones(2, 3) @ torch.ones(2, 3)).sum()"),
        r"failed in loss \(RuntimeError: mat1",
    ),
    "raises in prepare": (
        task("pass", "def prepare(self, context):\n    1 / 0"),
        r"'mine' .* failed in prepare \(ZeroDivisionError",
    ),
    "reads a file that is missing": (
        task("pass", "def prepare(self, context):\n    open('gone.txt')"),
        r"'mine' .* failed in prepare \(FileNotFoundError: .*gone\.txt",
    ),
    "sets no texts": (
        task("pass", "def prepare(self, context):\n    pass"),
        r"'mine' .* has set no texts in prepare",
    ),
    "sets texts of another type": (
        task("pass", "def prepare(self, context):\n    self.texts = ['a']"),
        r"'mine' .* is not ready after prepare: its texts are no TokenizedTexts",
    ),
    "has half a text in a batch": (
        task("pass", "batch_size = 1.5"),
        r"'mine' .* is not ready after prepare: its batch_size is 1\.5, neither None nor",
    ),
    "samples nothing": (
        task("pass", "members = ({'a': 'b'},)\ndef sampled(self, step):\n    pass"),
        r"'mine' .* failed in sampled \(TypeError: 'NoneType'",
    ),
    "freezes the encoder": (
        task(
            "encoder.body.requires_grad_(False); "
            "return sum(one.sum() for one in encoder.parameters() if one.requires_grad)"
        ),
        r"loss of 'mine' .* has frozen trained parameters: use detach\(\) in it",
    ),
    "freezes the encoder as it is prepared": (
        task(
            "pass",
            "def prepare(self, context):\n    super().prepare(context)\n"
            "    context.encoder.body.requires_grad_(False)",
        ),
        r"prepare of 'mine' .* has frozen trained parameters",
    ),
    "switches off gradients": (
        task("torch.set_grad_enabled(False); return encoder.classify(batch).sum()"),
        r"loss of 'mine' .* without a graph",
    ),
    "has other batches": (task("pass", "batches = 'mine'"), r"is neither 'own' nor 'primary'"),
    "has no loss": (
        '@register_task("mine")\nclass Mine(AuxiliaryTask):\n    pass',
        r"'mine' .* does not define loss: derive it from AuxiliaryTask",
    ),
    "is no task": (
        '@register_task("mine")\nclass Mine:\n    pass',
        r"does not define prepare, loss, items, state_dict, Options",
    ),
    "has no class of options": (task("pass", "Options = 3"), r"Options is no class of settings"),
    "masks a wrong shape": (
        '@register_task("mine")\nclass Mine(MaskedLanguageModelling):\n'
        "    def mask_probabilities(self, batch):\n        return torch.ones(3)\n",
        r"failed in loss \(ValueError: mask_probabilities of task 'mine': expected a tensor",
    ),
    "masks by a number": (
        '@register_task("mine")\nclass Mine(MaskedLanguageModelling):\n'
        "    def mask_probabilities(self, batch):\n        return 0.3\n",
        r"mask_probabilities of task 'mine': expected a tensor of shape \(.*\), got 0\.3",
    ),
    "scores by a list": (
        '@register_task("mine")\nclass Mine(ScoredMasking):\n'
        "    def scores(self, context):\n        return [1]\n",
        r"scores of task 'mine': expected a tensor of shape \(.*\), got \[1\]",
    ),
    "is a class of Python": (
        'register_task("mine")(int)',
        r"auxiliary task 'mine' is <class 'int'>: put the decorator above a class",
    ),
    "changes to no batch": (
        task("return TaskResult(encoder.classify(batch).sum(), primary=3)"),
        r"does not fit: its primary is a int, not a Batch",
    ),
    "forgets its members": (
        task(more=MEMBERS),
        r"does not fit: it has losses of the members \[\], and declares 1",
    ),
    "samples with a fault": (
        task(more=f"{MEMBERS}\ndef sampled(self, step):\n    1 / 0"),
        r"'mine' .* failed in sampled \(ZeroDivisionError",
    ),
    "evaluates to no number": (
        task(more="def evaluate(self, encoder):\n    return 0.5"),
        r"'mine' .* failed in evaluate \(AttributeError: 'float' object has no attribute 'items'",
    ),
    "evaluates to what is beyond all numbers": (
        task(more="def evaluate(self, encoder):\n    return {'a': 10**400}"),
        r"evaluate of 'mine' .* returns a number of over 18 digits",
    ),
    "keeps a sparse tensor for resuming": (
        task(more="def state_dict(self):\n    return {'a': torch.eye(2).to_sparse()}"),
        r"state_dict of 'mine' .* returns a tensor without values of its own, or a sparse one",
    ),
    "keeps a list for resuming": (
        task(more="def state_dict(self):\n    return [3]"),
        r"state_dict of 'mine' .* returns a list: return tensors by name",
    ),
    "takes the name of another": (
        '@register_task("l3mask")\nclass Mine(AuxiliaryTask):\n    pass',
        r"'l3mask' of .* is taken by",
    ),
    "does not parse": ("def", r"cannot be imported: SyntaxError"),
    "raises no Exception at once": (
        "class E(BaseException):\n    pass\nraise E('no')",
        r"cannot be imported: E: no",
    ),
    "raises what has no text at once": (f"{MUTE}raise E", r"cannot be imported: E: E\(\)"),
    "exits": ("raise SystemExit(0)", r"cannot be imported: SystemExit"),
    "registers nothing": ("", r"unknown auxiliary task 'mine'"),
}


def of_plugins(of: str, name: str, option: str, found: dict[str, tuple[str, str]]) -> list[Case]:
    return [
        Case(
            f"{of} {what}",
            COMMANDS["train"] + f"--plugin {name}.py {option} {name}_{number} --output run".split(),
            line.replace(f"'{name}'", f"'{name}_{number}'"),
            output(partial(write_plugin, name, number, body)),
            leaves=("run",),
        )
        for number, (what, (body, line)) in enumerate(found.items())
    ]


RULE = """
@register_weighting("rule")
class Rule(LossWeighting):
    @property
    def weights(self):
        {line}
"""


def rule(*method: str, line: str = "return torch.ones(2).double() / 2") -> str:
    """A rule whose weights are a line, and a further method: its head and its line."""
    more = "    def {}:\n        {}\n".format(*method) if method else ""
    return RULE.format(line=line) + more


RULES: dict[str, tuple[str, str]] = {
    "raises": (rule(line="raise ValueError('x')"), r"'rule' .* failed in __init__"),
    "has no weights": (
        '@register_weighting("rule")\nclass Rule(LossWeighting):\n    pass',
        r"does not define weights: derive it from Weighting",
    ),
    "raises in step": (
        rule("step(self, step)", "raise OverflowError('too much')"),
        r"'rule' \(Rule of .*\) failed in step \(OverflowError: too much\)",
    ),
    "gives a weight that is NaN": (
        rule(line="return torch.tensor([float('nan'), 1.0])"),
        r"the weights by 'rule_\d+' \(Rule of .*\) are \{.*'primary': nan.* at step 1, whose",
    ),
    "gives a weight too many": (
        rule(line="return torch.ones(3)"),
        r"rule_\d+: its weights are a tensor of shape \(2,\), .* and not \(3,\)",
    ),
    "computes no loss": (
        rule("step(self, step)", "pass"),
        r"step of 'rule' \(Rule of .*\) computes no loss: call step\.backward\(weights\)",
    ),
    "learns from a text": (
        rule() + "    validation_source = 'dev'\n",
        r"rule_\d+: its validation_source is 'dev': derive Options from ValidationOptions",
    ),
    "keeps a number for resuming": (
        rule("state_dict(self)", "return {'count': 3}"),
        r"state_dict of 'rule' \(Rule of .*\) returns a int for 'count': return tensors by name",
    ),
    "keeps a list for resuming": (
        rule("state_dict(self)", "return [3]"),
        r"'rule' .* failed in state_dict \(TypeError: unsupported operand",
    ),
    "logs what is no number": (
        rule("metrics(self)", "return {'temperature': 'high'}"),
        r"'rule' .* failed in metrics \(ValueError: could not convert",
    ),
}
CASES += of_plugins("plug-in", "mine", "--aux", PLUGINS)
CASES += of_plugins("weighting", "rule", "--weights", RULES)


def lose_plugin(place: Place) -> None:
    run = copy(place, "finished")
    config = (run / "config.yaml").read_text()
    (place.path / "config.yaml").write_text(config.replace("plugins: []", "plugins: [gone.py]"))


CASES.append(
    Case("the plug-in is gone", TRAIN, r"plug-in file gone\.py does not exist", lose_plugin)
)

TRIAL = {"digest": "0123456789ab", "cell": {"aux": "none"}, "seed": 0}
TRIAL |= {"dataset": "d", "encoder": "e", "metric": "accuracy"}
SWEEPS: dict[str, str] = {
    "is empty": "",
    "is no JSON": "{",
    **{f"holds {what}": content for what, content in VALUES.items()},
    "has no trials": "{}",
    "has trials that are a number": '{"trials": 1}',
    "has a trial that is a text": '{"trials": ["x"]}',
    "has a trial without keys": '{"trials": [{}]}',
    **{
        f"has a trial with {key} {value!r}": json.dumps({"trials": [{**TRIAL, key: value}]})
        for key, value in {"digest": "a", "cell": "x", "seed": "x", "metric": 3}.items()
    },
}


def sweep(content: str, place: Place) -> None:
    place.write("sweep/sweep.yaml", "name: s\ngrid: {aux: [[], l3mask]}\nseeds: 1\n")
    place.write("sweep/plan.json", content)


CASES += cases(
    "sweep: plan.json",
    ["compare", "sweep"],
    {what: (r"plan\.json is damaged", content) for what, content in SWEEPS.items()},
    lambda content: partial(sweep, content),
)
CASES += [
    Case("sweep: no folder", ["compare", "nothing"], "is not the folder of a sweep"),
    Case(
        "sweep: no plan",
        ["compare", "sweep"],
        "holds no plan.json: run the same `auxlearn sweep` again",
        lambda p: p.write("sweep/sweep.yaml", "name: s\ngrid: {aux: [[], l3mask]}\n"),
    ),
    Case(
        "sweep: --output is a file",
        ["sweep", "s.yaml", "--output", "out"],
        "out is a file",
        lambda p: (p.write("s.yaml", "name: s\n"), p.write("out", "x")),
    ),
    Case(
        "compare: --output is a file",
        ["compare", "sweep", "--output", "out"],
        "out is a file",
        lambda p: p.write("out", "x"),
    ),
]
