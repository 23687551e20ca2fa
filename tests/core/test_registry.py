"""Registries of plug-ins: collisions, suggestions, files, installed packages."""

import importlib
import os
import runpy
import subprocess
import sys
import traceback
from contextlib import redirect_stdout
from hashlib import sha256
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pydantic
import pytest

from auxlearn.core import registry
from auxlearn.core.errors import ConfigError
from auxlearn.core.files import content_digest
from auxlearn.core.registry import (
    LOSSES,
    REPORTERS,
    TASKS,
    WEIGHTINGS,
    Registry,
    load_plugin,
    register_kind,
    register_loss,
)
from auxlearn.core.settings import PluginChoice
from auxlearn.core.validation import Settings
from auxlearn.kinds.regression import Regression
from auxlearn.losses.base import PrimaryLoss
from auxlearn.tasks.base import AuxiliaryTask
from tests.helpers import one_line


@pytest.fixture
def tasks():
    return Registry("auxiliary task", "tasks", "nobody.announces")


class Usable:
    """What every task has."""

    prepare = loss = items = state_dict = None
    Options = AuxiliaryTask.Options


#: The same in a file.
BODY = """
    prepare = loss = items = state_dict = None
    from auxlearn.plugins import Settings as Options
"""


def test_a_name_belongs_to_one_class(tasks):
    for _ in range(2):  # as a module that is reloaded defines it

        @tasks.register("mine")
        class Mine(Usable):
            pass

    assert tasks.register("second_name")(Mine).name == "mine"
    assert tasks._registered.pop("second_name") is Mine
    assert tasks.names() == sorted([*TASKS._builtin, "mine"])
    taken = rf"task 'mine' of {__name__} is taken by {__name__}.test_.*: choose another name$"
    with pytest.raises(ConfigError, match=taken):
        tasks.register("mine")(type("Other", (), {"__module__": __name__}))
    assert tasks.get("mine") is Mine


def test_a_built_in_name_is_taken_before_it_is_loaded_and_functions_are_not_registered(tasks):
    with pytest.raises(ConfigError, match=r"'l3mask' of .* is taken by auxlearn.tasks.l3mask"):
        tasks.register("l3mask")(type("Mine", (), {}))
    with pytest.raises(ConfigError, match=r"task 'mine' is <function .*above a class that is deri"):
        tasks.register("mine")(lambda: None)
    with pytest.raises(ConfigError, match=r"task 'mine' is <class 'dict'>"):
        tasks.register("mine")(dict)
    for base, missing in ((object, "prepare, loss, items"), (AuxiliaryTask, "loss")):
        with one_line(ConfigError, f"does not define {missing}", "derive it from AuxiliaryTask"):
            tasks.register("mine")(type("Mine", (base,), {}))
    for options in (int, pydantic.BaseModel, Settings()):
        with one_line(ConfigError, "Options is no class of settings: derive it from Settings"):
            tasks.register("mine")(type("Mine", (Usable,), {"Options": options}))
    assert "mine" not in tasks.names()


def test_a_text_in_the_place_of_names_is_refused():
    """It would be read by its letters, or as what it is part of."""
    with one_line(ConfigError, "kinds is a text: write a tuple, ('regression',)"):
        register_loss("mine")(type("Mine", (PrimaryLoss,), {"kinds": "regression", "loss": len}))
    with one_line(ConfigError, "label_columns is a text: write a tuple, ('stars',)"):
        register_kind("mine")(type("Mine", (Regression,), {"label_columns": "stars"}))


@pytest.mark.parametrize("name", ["", "Mine", "2nd", "my task", "a.b", "_x", "ü", "a\n"])
def test_malformed_names(tasks, name):
    with pytest.raises(ConfigError, match="is not valid: use lower-case letters"):
        tasks.register(name)


def test_an_unknown_name_gets_a_suggestion():
    said = r"^unknown auxiliary task 'random-mln': did you mean 'random_mlm'\?$"
    with pytest.raises(ConfigError, match=said):
        TASKS.get("random-mln")
    known = r"unknown weighting 'xyzzy': known: .*equal, .*fixed, .*meta"
    with pytest.raises(ConfigError, match=known):
        WEIGHTINGS.get("xyzzy")
    # A hyphen stands for an underscore.
    assert TASKS.get("random-mlm") is TASKS.get("random_mlm")
    assert PluginChoice.model_validate({"ol-aux": {}}).name == "ol_aux"


@pytest.mark.parametrize("plugins", [TASKS, LOSSES, WEIGHTINGS, REPORTERS])
def test_every_built_in_name_leads_to_its_class(plugins):
    assert len(plugins._builtin) >= 2
    for name, module in plugins._builtin.items():
        cls = plugins.get(name)
        assert cls.name == name
        assert cls.__module__ == module
        assert cls.__doc__
        assert plugins.code_digests(name) == {}


def plugin(path, body):
    path.write_text(f"from auxlearn.core.registry import register_task\n{body}")
    return path


def test_a_file_registers_a_task(tmp_path):
    path = plugin(
        tmp_path / "my task.py",
        f'@register_task("from_file")\nclass Mine:{BODY}    origin = __file__\n',
    )
    load_plugin(path)
    first = TASKS.get("from_file")
    assert first.origin == str(path)
    load_plugin(str(path))  # twice in one process is once
    assert TASKS.get("from_file") is first
    assert "from_file" in TASKS.names()


def test_an_edited_file_replaces_its_earlier_version(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)  # whatever the environment says
    path = tmp_path / "edited.py"
    body = f'@register_task("edited")\nclass Mine:{BODY}    version = '
    for version in (1, 2, 1):
        load_plugin(plugin(path, f"{body}{version}\n"))
        assert TASKS.get("edited").version == version
    assert [found.name for found in tmp_path.iterdir()] == ["edited.py"]  # no bytecode beside it
    other = plugin(tmp_path / "other.py", f"{body}3\n")
    assert "is taken by auxlearn_plugin_edited_" in refusal(other)


def test_modules_that_a_file_imports_are_part_of_its_code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "beside_a_plug_in", raising=False)
    body = f'import json, torch, beside_a_plug_in\n@register_task("helped")\nclass Mine:{BODY}'
    (tmp_path / "beside_a_plug_in.py").write_text("VALUE = 1")
    load_plugin(plugin(tmp_path / "helped.py", body))
    digest = sha256(b"VALUE = 1").hexdigest()
    (tmp_path / "beside_a_plug_in.py").write_text("VALUE = 2")  # which this process does not see
    assert TASKS.code_digests("helped") == {"module beside_a_plug_in": digest}


def test_a_file_that_registers_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "__init__.py").write_text("from a_package import tasks\n")
    body = f'@register_task("of_a_package")\nclass Mine:{BODY}'
    plugin(tmp_path / "a_package" / "tasks.py", body)
    unused = f"from auxlearn.tasks import random_mlm\nclass Mine:{BODY}"
    for name, content in {"empty.py": "", "undecorated.py": unused}.items():
        path = plugin(tmp_path / name, content)
        assert refusal(path).startswith(f"plug-in file {path} registers nothing: put @register_")
    # What a file imports registers for it, also where it has been imported before.
    for name in ("first.py", "second.py"):
        load_plugin(plugin(tmp_path / name, "import a_package\n"))
    assert TASKS.get("of_a_package").__module__ == "a_package.tasks"
    load_plugin(plugin(tmp_path / "third.py", "from a_package.tasks import Mine\n"))


def refusal(path):
    before = set(sys.modules)
    with one_line(ConfigError) as caught:
        load_plugin(path)
    assert set(sys.modules) == before
    return str(caught.value)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Announce names of modules as an installed package does."""
    monkeypatch.syspath_prepend(tmp_path)

    def announce(body, **names):
        (tmp_path / "a_package_with_tasks.py").write_text(body)
        monkeypatch.delitem(sys.modules, "a_package_with_tasks", raising=False)
        points = {
            name: EntryPoint(name, f"a_package_with_tasks:{value}", "auxlearn.tasks")
            for name, value in names.items()
        }
        monkeypatch.setattr(
            registry, "_declared", lambda group: points if group == "auxlearn.tasks" else {}
        )
        return Registry("auxiliary task", "no room", "auxlearn.tasks")

    return announce


def test_an_installed_package_declares_a_task(installed):
    tasks = installed(f"class Mine:{BODY}", theirs="Mine")
    assert tasks.names() == ["theirs"]
    assert "a_package_with_tasks" not in sys.modules  # nothing is imported before it is wanted
    cls = tasks.get("theirs")
    assert cls.__name__ == "Mine"
    assert cls.name == "theirs"
    assert tasks.get("theirs") is cls
    with pytest.raises(ConfigError, match="did you mean 'theirs'"):
        tasks.get("their")


def test_a_declared_class_is_identified_by_module_and_distribution(
    installed, tmp_path, monkeypatch
):
    body = "from a_helper import Base\n\nclass Mine(Base):\n    pass\n"
    monkeypatch.delitem(sys.modules, "a_helper", raising=False)
    (tmp_path / "a_helper.py").write_text(f"class Base:{BODY}")
    tasks = installed(body, theirs="Mine")
    first = dict(tasks.code_digests("theirs"))
    assert first == {
        "module a_package_with_tasks": sha256(body.encode()).hexdigest(),
        "module a_helper": content_digest(tmp_path / "a_helper.py"),
    }
    assert tasks.code_digests("theirs") == first
    edited = installed(body + "# another line\n", theirs="Mine").code_digests("theirs")
    assert {name for name in first if edited[name] != first[name]} == {
        "module a_package_with_tasks"
    }

    distribution = SimpleNamespace(name="a-package", version="1.2")
    monkeypatch.setattr(EntryPoint, "dist", distribution)
    tasks = installed(body, theirs="Mine")
    assert tasks.code_digests("theirs") == {**first, "distribution a-package": "1.2"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import another_package_that_nobody_has\n", "No module named"),
        ("raise RuntimeError('no\\nluck')\n", "no luck"),
        ("x = 1\n", "has no attribute 'Mine'"),
    ],
)
def test_a_broken_package_is_one_line(installed, body, reason):
    said = "auxiliary task 'theirs' of a_package_with_tasks:Mine cannot be imported: "
    with one_line(ConfigError, said, reason):
        installed(body, theirs="Mine").get("theirs")


SCRIPT = """
import functools, re
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pandas
import torch
from torch import Tensor

import of_the_user.first
from auxlearn.core.registry import Registry
from auxlearn.core.validation import Settings

RATE, DEEP, SHOWN, WORDS, unused = {rate}, {deep}, {shown}, {{"a", {word}}}, {unused}
TABLE, TENSOR = {{"a": {{"b": {table}}}}}, torch.tensor([{tensor}])
SPARSE = torch.eye(2).to_sparse()

@dataclass(frozen=True, slots=True)
class Pair:
    first: object

@dataclass
class Asked:
    asked: int = 1
    seed: int = 0

ARGUMENTS, SETTINGS = SimpleNamespace(asked={asked}, seed={unused}), Asked({setting}, {unused})

class WithMethod:
    def method(self):
        return {method}

@functools.cache
def cached():
    return {cached}

LAYER = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.constant_(LAYER.weight, {layer})
objects = [
    object(), re.compile("a{pattern}"), b"{raw}", functools.partial(max, {part}), deque([{queue}]),
    range({span}), Path("{path}"), SimpleNamespace(a={space}), pandas.Series(["{series}"]),
    pandas.DataFrame({{"{column}": [1]}}), Pair({pair}), LAYER, WithMethod(), cached, 1j * {number},
]

class Options(Settings):
    share: int = {option}

class Further:
    value = {further}

def same(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

def made(size):
    class Mine:
        Options = Options
        prepare = items = state_dict = None

        def loss(self, started={default}):
            assert isinstance(TENSOR, torch.Tensor) and (Tensor, SPARSE)
            sums = [(lambda: RATE * size * helper() * TABLE["a"]["b"])() for _ in WORDS]
            asked = of_the_user.first.VALUE * ARGUMENTS.asked * SETTINGS.asked
            return sum(sums) * TENSOR * Further.value * len(objects) * asked

        @property
        def shown(self):
            return SHOWN

        @staticmethod
        @same
        def wrapped():
            return BELOW
    return Mine

tasks = Registry("auxiliary task", "tasks", "nobody.announces")
tasks.register("mine")(made({size}))
BELOW = {below}

def helper():
    return deeper() + {helped}

def deeper():
    return DEEP

{after}
print(dict(tasks.code_digests("mine")))
"""

USED = ("rate", "deep", "shown", "word", "table", "tensor", "option", "further", "default", "size")
USED += ("below", "helped", "method", "cached", "layer", "pattern", "raw", "part", "queue", "span")
USED += ("path", "space", "series", "column", "pair", "number", "asked", "setting")
#: Values of modules beside the script, of which the second is imported by the first.
USED += ("first", "second")


def run_script(path, output):
    """Run a script in a fork of this process, which has imported what it needs."""
    child = os.fork()
    if not child:
        try:
            sys.path.insert(0, str(path.parent))
            with output.open("a") as file, redirect_stdout(file):
                runpy.run_path(str(path), run_name="__main__")
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, path.read_text()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_class_of_a_script_is_told_apart_by_all_that_it_uses(tmp_path):
    # What is written into the script while it runs, and what the class does not use.
    edited = "tasks.code_digests('mine'); Path(__file__).write_text('edited')"
    changes = [{}, {"unused": 2}, {"after": edited}, *({name: 2} for name in USED)]
    importlib.import_module("pandas")
    output = tmp_path / "output"
    for number, change in enumerate(changes):
        path = tmp_path / str(number) / "script.py"
        (package := path.parent / "of_the_user").mkdir(parents=True)
        values = dict.fromkeys(USED, 1) | {"unused": 1, "after": ""} | change
        path.write_text(SCRIPT.format(**values))
        (package / "first.py").write_text(f"VALUE = {values['first']}\nimport of_the_user.second")
        (package / "second.py").write_text(f"VALUE = {values['second']}")
        run_script(path, output)
    first, unused, after, *changed = output.read_text().splitlines()
    assert first == unused == after != "{}"
    assert len({first, *changed}) == 1 + len(USED) == 1 + len(changed)


CELLS = """
import linecache, sys
from auxlearn.core.registry import Registry
from auxlearn.core.validation import Settings as Options

tasks = Registry("auxiliary task", "tasks", "nobody.announces")
source = (
    "@tasks.register('mine')\\nclass Mine:\\n  prepare = items = state_dict = None\\n"
    "  Options, rate = Options, {{}}\\n"
    "  def loss(self):\\n    return [{{}} for word in {{{{'a', {{}}}}}}]\\n"
)
for number, version in enumerate({versions}):
    name, cell = f"cell {{number}}", source.format(*version)
    if {stored}:  # as IPython does
        linecache.cache[name] = len(cell), None, cell.splitlines(True), name
    exec(compile(cell, name, "exec"))
    print(dict(tasks.code_digests("mine")))
"""


@pytest.mark.parametrize("stored", [True, False])
def test_a_class_of_a_cell_is_told_apart_from_those_of_others(stored):
    versions = [(1, 1, "'b'"), (2, 1, "'b'"), (1, 2, "'b'"), (1, 1, "'c'"), (1, 1, "'b'")]
    program = [sys.executable, "-c", CELLS.format(versions=versions, stored=stored)]
    outputs = [subprocess.run(program, capture_output=True, text=True).stdout for _ in range(2)]
    assert outputs[0] == outputs[1], "sets have no order of their own"
    *different, last = outputs[0].splitlines()
    assert different[0] == last != "{}"
    assert len({*different}) == len(different) == 4


def test_a_task_is_no_loss():
    losses = Registry("loss", "losses", "nobody.announces")
    with one_line(ConfigError, "loss 'mine'", "takes", "derive it from PrimaryLoss"):
        losses.register("mine")(type("Mine", (AuxiliaryTask,), {}))
