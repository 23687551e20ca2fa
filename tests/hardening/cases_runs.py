"""Bad run folders, folders of sweeps, and plug-ins."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from auxlearn.core.files import write_checked_json
from tests.hardening.inputs import Case, Make, cases, of_encoder, of_run, together, writes

TRAIN = "train --config config.yaml --output run"
#: What is said of every damaged file, whatever was done to it.
DAMAGED = "damaged"


def changed(name: str, how: Callable[[Path], object], which: str = "finished") -> Make:
    """A run one file of which is changed."""
    return of_run(lambda run: how(run / name), which)


def unfinished(name: str, how: Callable[[Path], object]) -> tuple[str, Make]:
    """An unfinished run one file of which is changed; the line names it or its folder."""
    return name.partition("/")[0], changed(name, how, "unfinished")


def in_place(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def put(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def resigned(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change the values of a JSON file and give it the checksum of the new ones."""

    def apply(path: Path) -> None:
        content = json.loads(path.read_text())
        del content["sha256"]
        change(content)
        write_checked_json(path, content)

    return apply


LATEST, MODEL = "checkpoint/latest.json", "model/model.safetensors"
UNFINISHED: dict[str, tuple[str, Make]] = {
    "a pipe": unfinished("metrics.jsonl", partial(in_place, make=os.mkfifo)),
    "a link out": unfinished(
        "metrics.jsonl", partial(in_place, make=lambda path: path.symlink_to("/etc/hostname"))
    ),
    "a deep checkpoint": unfinished(LATEST, put("[" * 20_000)),
    "a folder elsewhere": unfinished(LATEST, resigned(lambda state: state.update(folder="../.."))),
    "no state": unfinished(LATEST, resigned(lambda state: state.pop("state"))),
}
RESULTS: dict[str, tuple[str, Make]] = {
    "cut": (DAMAGED, changed("results.json", lambda path: os.truncate(path, 50))),
    "no evaluations": (
        DAMAGED,
        changed("results.json", resigned(lambda content: content.pop("evaluations"))),
    ),
    "label names that are numbers": (
        DAMAGED,
        changed(
            "results.json", resigned(lambda content: content["dataset"].update(label_names=[1]))
        ),
    ),
}


def sweep_with(plan: str) -> Make:
    """The folder of a sweep whose plan has some content."""
    file = writes("sweep/sweep.yaml", "name: s\ngrid: {aux: [[], l3mask]}\nseeds: 1\n")
    return together(file, writes("sweep/plan.json", plan))


TASK = """
@register_task("NAME")
class Mine(AuxiliaryTask):
    def loss(self, encoder, batch, generator):
        {line}
"""
RULE = """
@register_weighting("NAME")
class Rule(LossWeighting):
    @property
    def weights(self):
        {line}
"""
GRAM = """
from auxlearn.weighting.mixing import GramWeighting
@register_weighting("NAME")
class Rule(GramWeighting):
    def weigh(self, gram, step):
        return torch.tensor({weights}, dtype=torch.float64)
"""


def task(line: str = "return encoder.classify(batch).sum()", more: str = "") -> str:
    """A task whose loss is a line, and further lines of its class."""
    return TASK.format(line=line) + "".join(f"    {text}\n" for text in more.splitlines())


def rule(line: str = "return torch.ones(2).double() / 2", more: str = "") -> str:
    """A rule whose weights are a line, and further lines of its class."""
    return RULE.format(line=line) + "".join(f"    {text}\n" for text in more.splitlines())


#: By what the plug-in does: its code, and what the line names.
TASKS: dict[str, tuple[str, str]] = {
    "returns None": (task("return None"), "'NAME'"),
    "is NaN": (task("return encoder.classify(batch).sum() * float('nan')"), "nan"),
    "raises in loss": (task("raise ValueError('no\\nsuch column')"), "no such column"),
    "raises what has no text": (
        "class E(BaseException):\n    def __str__(self):\n        1 / 0\n" + task("raise E('no')"),
        "E('no')",
    ),
    "leaves the program": (task("raise SystemExit(0)"), "SystemExit"),
    "raises in prepare": (task(more="def prepare(self, context):\n    1 / 0"), "prepare"),
    "has no batches": (
        task(more="batches = 'own'\ndef stream(self, *_):\n    return 3"),
        "does not return a BatchStream",
    ),
    "names its members alone": (
        task(more="members = ('first', 'last')"),
        "members of 'NAME' (Mine of",
    ),
    "samples members that it lacks": (
        task(more="members = ({'a': 'b'},)\ndef sampled(self, step):\n    return [1]"),
        "returns (1,), and not numbers of its members, which are 0 to 0",
    ),
    "freezes the encoder": (
        task("encoder.body.requires_grad_(False); return encoder.classify(batch).sum()"),
        "frozen",
    ),
    "keeps a list for resuming": (
        task(more="def state_dict(self):\n    return [3]"),
        "state_dict",
    ),
    "does not parse": ("def", "SyntaxError"),
    "exits": ("raise SystemExit(0)", "SystemExit"),
}
RULES: dict[str, tuple[str, str]] = {
    "has no weights": (
        '@register_weighting("NAME")\nclass Rule(LossWeighting):\n    pass',
        "weights",
    ),
    "gives a weight that is NaN": (rule("return torch.tensor([float('nan'), 1.0])"), "nan"),
    "gives one weight for two": (GRAM.format(weights=[0.5]), "return 2 finite weights"),
    "gives a weight of a gram that is NaN": (
        GRAM.format(weights="[float('nan'), 1.0]"),
        "return 2 finite weights",
    ),
    "computes no loss": (rule(more="def step(self, step):\n    pass"), "backward"),
    "compares runs by a number": (
        rule(more="@property\ndef branches(self):\n    return 0.5"),
        "is neither Branches nor None",
    ),
    "makes no optimizer step": (
        rule(more="def step(self, step):\n    step.backward(self.weights)"),
        "trains nothing: call step.backward(weights) or step.gradients(), then step.optimizer_step",
    ),
    "logs what is no number": (
        rule(more="def metrics(self):\n    return {'temperature': 'high'}"),
        "metrics",
    ),
}


def of_plugins(option: str, plugins: dict[str, tuple[str, str]]) -> list[Case]:
    """Cases of plug-ins; each has a name of its own, as names are registered in the process."""
    given = []
    for number, (what, (code, names)) in enumerate(plugins.items()):
        name = f"plug_in_{number}"
        command = "train --dataset d --encoder encoder --epochs 1 --batch-size 4 --output run"
        command += f" --plugin p.py {option} {name}"
        head = "import torch\nfrom auxlearn.plugins import *\n\n"
        file = writes("p.py", head + code.replace("NAME", name))
        make = together(of_encoder(lambda model: None), file)
        names = names.replace("NAME", name)
        given.append(Case(f"plug-in: {option} {what}", command, names, make, leaves="run"))
    return given


unchanged = of_run(lambda run: None, "unfinished")
CASES: list[Case] = [
    *cases("unfinished run", TRAIN, UNFINISHED),
    Case("no finished run", "predict run x", "config.yaml", of_run(lambda run: None, "unfinished")),
    *cases("results", TRAIN, RESULTS),
    Case("damaged model", TRAIN, "25 bytes", changed(MODEL, lambda path: os.truncate(path, 25))),
    Case("changed configuration", "report run", "config.yaml", changed("config.yaml", put(""))),
    Case(
        "fewer predictions",
        "report run --output page.html",
        "predictions/dev.jsonl",
        changed("predictions/dev.jsonl", lambda path: put(path.read_text().split("\n")[0])(path)),
    ),
    Case("no model", "predict run x", "model", changed(MODEL, Path.unlink)),
    Case(
        "no perturbations",
        "perturbations run",
        "perturbations.jsonl",
        changed("perturbations.jsonl", put("[]\n")),
    ),
    Case("a deep plan", "compare sweep", "plan.json", sweep_with("[" * 20_000)),
    *of_plugins("--aux", TASKS),
    *of_plugins("--aux random_mlm --weights", RULES),
]
