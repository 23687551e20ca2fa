"""Registries of plug-ins by name: tasks, losses, weightings, kinds of labels, reporters and
executors.

Built-in modules and entry points of other packages are imported when their name is requested.
"""

from __future__ import annotations

import ast
import copyreg
import importlib
import inspect
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import _lru_cache_wrapper as Cached, cache, cached_property
from hashlib import sha256
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from importlib.util import resolve_name
from itertools import accumulate
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from auxlearn.core.errors import (
    CORRECT_IT,
    ConfigError,
    PluginError,
    describe,
    did_you_mean,
    named_fault,
    plugin_title,
)
from auxlearn.core.files import content_digest
from auxlearn.core.validation import Settings

_PLUGIN_MODULE = "auxlearn_plugin_"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
#: A decorator that registers what follows under a name.
_DECORATOR = re.compile(r'^@\w+\(\s*"([a-z][a-z0-9_]*)"', re.MULTILINE)
#: Base class by kind of plug-in, and what every class of the kind has.
_INTERFACE = {
    "auxiliary task": ("AuxiliaryTask", ("prepare", "loss", "items", "state_dict", "Options")),
    "loss": ("PrimaryLoss", ("takes", "prepare", "loss", "state_dict", "Options")),
    "weighting": ("Weighting", ("weights", "step", "state_dict", "Options")),
    "reporter": ("RunReporter", ("log",)),
    "executor": ("Executor", ("submit", "wait", "stop", "close", "Options")),
    "kind of labels": ("Kind", ("read", "loss", "scores", "metrics")),
}

#: Members of classes that hold several names; a text in their place would be read by its letters.
_NAMES = ("kinds", "refuses", "text_columns", "label_columns", "columns_beside", "means")

#: Kinds of plug-in of which a run takes several.
_SEVERAL = ("auxiliary task", "reporter")


class Registry:
    """Registry of one kind of plug-in."""

    def __init__(self, kind: str, room: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._room = room
        self._registered: dict[str, type] = {}
        self._code: dict[str, dict[str, str]] = {}

    def register(self, name: str) -> Callable[[type], type]:
        """Return a class decorator that registers a class under a name."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"{self.kind} name {describe(name)} is not valid: use lower-case letters, "
                "digits and '_', 100 at most"
            )

        def decorate(cls: type) -> type:
            base = _INTERFACE[self.kind][0]
            if not isinstance(cls, type) or cls.__module__ == "builtins":
                raise ConfigError(
                    f"{self.kind} '{name}' is {describe(cls)}: put the decorator above a class "
                    f"that is derived from {base} of auxlearn.plugins"
                )
            known = self._registered.get(name)
            owner = self._builtin.get(name, cls.__module__)
            same = known is None or _origin(known) == _origin(cls)
            if owner != cls.__module__ or not same:
                other = f"{known.__module__}.{known.__qualname__}" if known else owner
                raise ConfigError(
                    f"{self.kind} '{name}' of {cls.__module__} is taken by {other}: "
                    "choose another name"
                )
            self._check_interface(name, cls)
            self._code[name] = {} if name in self._builtin else _code_of(cls)
            if cls not in self._registered.values():  # under another name, it keeps its first one
                cls.name = name  # type: ignore[attr-defined]
            self._registered[name] = cls
            return cls

        return decorate

    @cached_property
    def _builtin(self) -> Mapping[str, str]:
        """Modules of this package by the names that their decorators register, read unimported."""
        return {
            name: f"auxlearn.{self._room}.{path.stem}"
            for path in sorted((Path(__file__).parents[1] / self._room).glob("*.py"))
            for name in _DECORATOR.findall(path.read_text(encoding="utf-8"))
        }

    def names(self) -> list[str]:
        return sorted({*self._builtin, *self._registered, *_declared(self.group)})

    def get(self, name: str) -> Any:
        """Return the class of a name; its module is imported if necessary."""
        given, name = name, canonical(name)
        if name not in self._registered:
            entries = _declared(self.group)
            if name in self._builtin:
                importlib.import_module(self._builtin[name])
            elif name in entries:
                try:
                    cls = entries[name].load()
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    raise ConfigError(
                        f"{self.kind} '{name}' of {entries[name].value} cannot be imported: "
                        f"{named_fault(error)}"
                    ) from error
                self.register(name)(cls)
                if (installed := entries[name].dist) is not None:
                    self._code[name][f"distribution {installed.name}"] = installed.version
            else:
                self.require(given)
        return self._registered[name]

    def require(self, name: str) -> None:
        """Refuse an unknown name; nothing is imported."""
        if canonical(name) not in (names := self.names()):
            hint = did_you_mean(name, names)
            if self.kind == "weighting" and re.fullmatch(r"[0-9.]+", name):
                hint = f"for a share write --weights fixed --fixed-alpha {name}"
            elif "," in name and self.kind in _SEVERAL:
                hint = "several are named one by one, by repeating the option, or as a list"
            raise ConfigError(f"unknown {self.kind} {describe(name)}: {hint}")

    def is_found(self, name: str) -> bool:
        """Return whether every process finds a name: of this package or of an installed one."""
        return canonical(name) in self._builtin or canonical(name) in _declared(self.group)

    def registered_by(self, module: str) -> list[str]:
        """Return the names that a module has registered, in its order."""
        return [name for name, cls in self._registered.items() if cls.__module__ == module]

    def options(self, name: str) -> Any:
        return self.get(name).Options

    def _check_interface(self, name: str, cls: type) -> None:
        """Refuse a class that is none of the kind, which would fail wherever all are asked."""
        base, needed = _INTERFACE[self.kind]
        missing = sorted(getattr(cls, "__abstractmethods__", ()))
        missing += [member for member in needed if not hasattr(cls, member)]
        which = f"{self.kind} '{name}' ({cls.__module__}.{cls.__qualname__})"
        if missing:
            raise ConfigError(
                f"{which} does not define {', '.join(missing)}: derive it from {base} of "
                "auxlearn.plugins, and define them"
            )
        options = getattr(cls, "Options", None)
        if "Options" in needed and not (
            isinstance(options, type) and issubclass(options, Settings)
        ):
            raise ConfigError(
                f"{which}: Options is no class of settings: derive it from Settings of "
                "auxlearn.plugins"
            )
        if "metrics" in needed and not cls.metrics:  # type: ignore[attr-defined]
            raise ConfigError(f"{which}: metrics is empty: give one at least, by its name")
        for member in _NAMES:
            if isinstance(value := getattr(cls, member, ()), str):
                raise ConfigError(f"{which}: {member} is a text: write a tuple, ({value!r},)")

    def code_digests(self, name: str) -> Mapping[str, str]:
        """Return digests of the code of a plug-in as this process has imported it."""
        cls = self.get(name)
        code = self._code[canonical(name)]
        # What stands below a class in a script, or in another cell, is there by now.
        return code | _code_of(cls) if cls.__module__ == "__main__" else code


@cache  # reading those of all packages takes 20 ms
def _declared(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {canonical(entry.name): entry for entry in entry_points(group=group)}


def canonical(name: str) -> str:
    """Return the canonical name of a plug-in: a hyphen is an alias of an underscore."""
    return name if name.startswith("-") else name.replace("-", "_")  # an option is none


TASKS = Registry("auxiliary task", "tasks", "auxlearn.tasks")
WEIGHTINGS = Registry("weighting", "weighting", "auxlearn.weightings")
LOSSES = Registry("loss", "losses", "auxlearn.losses")
REPORTERS = Registry("reporter", "results", "auxlearn.reporters")
EXECUTORS = Registry("executor", "executors", "auxlearn.executors")
KINDS = Registry("kind of labels", "kinds", "auxlearn.kinds")
#: What the plug-ins are that a setting of a run chooses.
CHOSEN_BY = {"aux": TASKS, "weights": WEIGHTINGS, "loss": LOSSES}

register_task = TASKS.register
register_loss = LOSSES.register
register_weighting = WEIGHTINGS.register
register_reporter = REPORTERS.register
register_executor = EXECUTORS.register
register_kind = KINDS.register


def load_plugin(path: str | Path) -> str:
    """Import a Python file, whose decorators register its plug-ins."""
    path = Path(path)
    if not path.is_file():
        fault = "is no file: name a .py file" if path.exists() else "does not exist"
        raise ConfigError(f"plug-in file {path} {fault}")
    # The digest is part of the module name, so that an edited file is imported again.
    name = f"{_PLUGIN_MODULE}{path.stem}_{plugin_digest(path)[:8]}"
    if name in sys.modules:
        return name
    if path.suffix != ".py":
        raise ConfigError(f"plug-in file {path} is not a Python file: name a .py file")
    plugins = [other for other in sys.modules if other.startswith(_PLUGIN_MODULE)]
    earlier = [other for other in plugins if sys.modules[other].__file__ == str(path)]
    known = _packages_of_plugins()
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        # Not by an import, whose bytecode is told from that of an earlier version by whole seconds.
        exec(compile(path.read_bytes(), path, "exec", dont_inherit=True), vars(module))
        packages = _packages_of_plugins()
        # What it imports may have been imported, and so registered, before.
        if packages == known and not {*packages.values()} & {*map(_package, vars(module).values())}:
            raise ConfigError(
                f"plug-in file {path} registers nothing: put @register_task above a class"
            )
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ConfigError | KeyboardInterrupt):
            raise
        raise ConfigError(
            f"plug-in file {path} cannot be imported: {named_fault(error)}"
        ) from error
    for other in earlier:
        del sys.modules[other]  # imported again if the edit is undone
    return name


def _package(value: Any) -> str:
    """Return the package or module, at the top, of a module, a class or an instance of one."""
    return _module_of(value).partition(".")[0]


def _packages_of_plugins() -> dict[type, str]:
    """Return the registered classes that are not of auxlearn, with their packages."""
    registries = (TASKS, WEIGHTINGS, LOSSES, REPORTERS, EXECUTORS, KINDS)
    classes = [cls for registry in registries for cls in registry._registered.values()]
    return {cls: package for cls in classes if (package := _package(cls)) != "auxlearn"}


def plugins_in_use() -> list[type]:
    """Return the classes that are registered in this process and are not of auxlearn."""
    return list(_packages_of_plugins())


def fault_of_plugin(error: BaseException) -> PluginError | None:
    """Return the error of the plug-in in whose method an exception was raised, if it was in one."""
    plugins = _packages_of_plugins()
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code, module = frame.f_code, str(frame.f_globals.get("__name__"))
        owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        cls = owner if isinstance(owner, type) else type(owner)
        if cls in plugins and module.partition(".")[0] != "auxlearn":
            return PluginError(
                f"{plugin_title(owner)} failed in {code.co_name} ({named_fault(error)}): "
                f"{CORRECT_IT}"
            )
    return None


def plugin_digest(path: str | Path) -> str:
    """Return the SHA-256 of a plug-in file, which is part of a run's identity."""
    try:
        return content_digest(Path(path))
    except OSError as error:
        raise ConfigError(f"plug-in file {path} cannot be read ({error.strerror})") from None


def _origin(cls: type) -> tuple[str, str]:
    """Return the file or module of a class, and its name; equal for versions of an edited file."""
    place = cls.__module__
    if place.startswith(_PLUGIN_MODULE) and place in sys.modules:
        place = str(sys.modules[place].__file__)
    return place, cls.__qualname__


def _code_of(cls: type) -> dict[str, str]:
    """Return digests of the modules that a class and its bases come from, and of the user's that
    they import; of a class in a script, often edited for other reasons, of what it uses.
    """
    code: dict[str, str] = {}
    for base in cls.__mro__:
        name = base.__module__
        top = name.split(".")[0]
        if top == "auxlearn" or top in sys.stdlib_module_names:
            continue
        try:
            if top == "__main__":
                digest, seen = sha256(), dict[int, Any]()
                for part in _script_parts(base, seen):
                    digest.update(part.encode())
                code[f"class {base.__qualname__}"] = digest.hexdigest()
                code |= _own_modules({*map(_module_of, seen.values())})
            elif top.startswith(_PLUGIN_MODULE):  # whose file is an input itself
                code |= _own_modules(_imports(str(sys.modules[name].__file__), None))
            else:
                code[f"module {name}"] = content_digest(Path(str(sys.modules[name].__file__)))
                code |= _own_modules([name])
        except (OSError, TypeError, AttributeError, KeyError):
            continue
    return code


def _module_of(value: Any) -> str:
    """Return the name of a module, or of that of a class, a function or an instance."""
    return str(getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", ""))


def _is_installed(file: str) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def _own_modules(names: Iterable[str]) -> dict[str, str]:
    """Return digests of the named modules that are not installed, and of all such they import."""
    library = sysconfig.get_path("stdlib")
    own = [part for part in sys.path if not (_is_installed(part) or part.startswith(library))]
    digests: dict[str, str] = {}
    pending = list(names)
    while pending:
        path = own
        for name in accumulate(pending.pop().split("."), "{}.{}".format):  # packages first
            spec = PathFinder.find_spec(name, path)
            if spec is None or name in ("auxlearn", "__main__"):
                break
            path = spec.submodule_search_locations or []
            if f"module {name}" not in digests and str(spec.origin).endswith(".py"):
                digests[f"module {name}"] = content_digest(Path(str(spec.origin)))
                pending += _imports(str(spec.origin), spec.parent)
    return digests


def _imports(file: str, package: str | None) -> list[str]:
    """Return the dotted names of all that a file imports, modules or not, in functions as well."""
    names: list[str] = []
    with suppress(SyntaxError, ImportError):  # of what is not imported here
        for node in ast.walk(ast.parse(Path(file).read_bytes())):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = resolve_name("." * node.level + (node.module or ""), package)
                names += [f"{base}.{alias.name}" for alias in node.names]
    return names


@cache  # as it was when it was first asked for: the script may be edited while it runs
def _source(value: type | FunctionType) -> str:
    """Return the source of a class or function; what was typed at a prompt has only bytecode."""
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return value.__qualname__ if isinstance(value, type) else _bytecode(value.__code__)


def _bytecode(code: CodeType) -> str:
    parts = [code.co_code.hex(), *code.co_names, *code.co_varnames]
    for constant in code.co_consts:
        within = isinstance(constant, CodeType)
        parts += [_bytecode(constant)] if within else _script_parts(constant, {})
    return "\n".join(parts)


def _script_parts(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    """Yield the sources of a class or function of a script, of what it uses, and plain values;
    what else there is may be written by its place in memory.
    """
    if id(value) in seen:
        return
    if not isinstance(value, str | bytes | int | float | complex | None):
        seen[id(value)] = value  # which keeps its place in memory from being used again
    if type(value).__module__ == "__main__":
        yield from _script_parts(type(value), seen)
    if isinstance(value, str | bytes | int | float | complex | None):
        yield repr(value)
    elif isinstance(value, type):
        if value.__module__ == "__main__":
            yield _source(value)
            members = vars(value).items()
            shown = {name: value for name, value in members if callable(value) or name[:2] != "__"}
            yield from _script_parts(shown, seen)
            fields = getattr(value, "model_fields", {})
            yield from _script_parts([field.default for field in fields.values()], seen)
    elif isinstance(value, FunctionType | BuiltinFunctionType | ModuleType):
        if isinstance(value, FunctionType) and value.__module__ == "__main__":
            yield _source(value)
            yield from _script_parts(_used_by(value), seen)
    elif isinstance(value, property | staticmethod | classmethod | cached_property | Cached):
        for name in ("fget", "fset", "__func__", "func", "__wrapped__"):
            yield from _script_parts(getattr(value, name, None), seen)
    elif isinstance(value, Mapping):
        yield from _script_parts([*value.keys(), *value.values()], seen)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _script_parts(part, seen)
    elif isinstance(value, set | frozenset):
        yield from sorted(repr(part) for part in value if isinstance(part, str | int | float))
    elif hasattr(value, "__array__"):
        import numpy

        with suppress(TypeError, ValueError, RuntimeError):  # a sparse tensor is no array
            array = numpy.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
            digest = sha256(array.tobytes()).hexdigest() if array.dtype != object else ""
            yield f"{array.dtype}{array.shape}{digest}"
            names = [getattr(value, name, None) for name in ("index", "columns")]  # of pandas
            yield from _script_parts([*names, [] if digest else array.tolist()], seen)
    elif not _is_installed(getattr(sys.modules.get(type(value).__module__), "__file__", "") or ""):
        yield from _script_parts(_reduced(value), seen)
    elif hasattr(value, "state_dict"):
        yield from _script_parts(value.state_dict(), seen)


def _reduced(value: Any) -> Any:
    """Return what an instance of a class of Python or of the user is made again from."""
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        parts = reduce(value) if reduce else value.__reduce_ex__(2)
        return [list(part) if isinstance(part, Iterator) else part for part in parts]
    except Exception:  # such as of a file or a lock, which cannot be made again
        return ()


def _used_part(value: Any, names: set[str]) -> Any:
    """Return the named attributes of an object that holds settings, such as parsed arguments, of
    which others may differ from run to run; the object itself if it is none, or has a named method.
    """
    cls, held = type(value), getattr(value, "__dict__", {})
    holds_settings = cls.__module__ in ("__main__", "argparse", "types")
    named = {name: held[name] for name in sorted(names & held.keys())} if holds_settings else {}
    return [cls, named] if named and names.isdisjoint({*dir(cls)} - held.keys()) else value


def _used_by(function: FunctionType) -> list[Any]:
    """Return the defaults of a function, and the names that it refers to with their values."""
    codes = [function.__code__]
    names: set[str] = set()
    for code in codes:  # those of functions and comprehensions within it follow
        names.update(code.co_names)
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    values = function.__globals__
    used = {name: _used_part(values[name], names) for name in names & values.keys()}
    modules = [value for value in used.values() if isinstance(value, ModuleType)]
    for module in modules:  # those within a package of the user follow
        within = [vars(module)[name] for name in names & vars(module).keys()]
        modules += [one for one in within if isinstance(one, ModuleType) and one not in modules]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it has no value yet
            used[name] = cell.cell_contents
    return [function.__defaults__, function.__kwdefaults__, sorted(used.items()), modules]
