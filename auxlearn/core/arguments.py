"""Arguments of public functions, checked once against the annotations of their parameters."""

from __future__ import annotations

import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

import click
from pydantic import ConfigDict, Field, PlainValidator, create_model

from auxlearn.core.errors import NO_ROOM, UserError, is_out_of_memory
from auxlearn.core.files import check_working_folder
from auxlearn.core.registry import fault_of_plugin
from auxlearn.core.settings import Columns, is_path
from auxlearn.core.validation import Option, Settings, validate

#: Options of commands that are keywords of functions: those of columns, and the settings of runs
#: once they are defined.
KEYWORDS: set[str] = {*Columns.model_fields}

P = ParamSpec("P")
R = TypeVar("R")


def as_path(value: Any) -> str:
    if not isinstance(value, str | os.PathLike) or not isinstance(path := os.fspath(value), str):
        raise ValueError("a path is needed, as text or pathlib.Path")
    return is_path(path)


#: A path of the user; the function gets it as text.
UserPath = Annotated[str | os.PathLike[str], PlainValidator(as_path)]
Count = Annotated[int, Field(ge=1)]  # a positive number
JobCount = Annotated[int, Field(ge=1, le=10_000)]  # each has memory of its own
#: Seeds that the best of are compared with; three where their number is not said.
RestartCount = Annotated[int | None, Field(ge=2), Option("K", flag_value=3)]
Column = Annotated[str, Field(min_length=1, max_length=1000)]  # name of a column


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose arguments are a class of settings, with a field for each parameter,
    described as the docstring says; what ``**settings`` takes is not checked.
    """
    signature = inspect.signature(function)
    parameters = signature.parameters
    kinds = {parameter.kind: name for name, parameter in parameters.items()}
    more = kinds.get(inspect.Parameter.VAR_POSITIONAL)
    others = kinds.get(inspect.Parameter.VAR_KEYWORD)

    @cache
    def settings() -> type[Settings]:
        annotated = {name: p.annotation for name, p in parameters.items() if name != others}
        hints = typing.get_type_hints(
            types.SimpleNamespace(__annotations__=annotated),
            vars(inspect.getmodule(function)),
            include_extras=True,
        )
        descriptions = _descriptions(inspect.getdoc(function) or "")
        fields: dict[str, Any] = {}
        for name, hint in hints.items():
            default = parameters[name].default
            hint = Any if hint is inspect.Parameter.empty else hint  # self
            if name == more:
                hint, default = tuple[hint, ...], ()  # type: ignore[valid-type]
            required = default is inspect.Parameter.empty
            described = Annotated[hint, Field(description=descriptions.get(name))]  # type: ignore[valid-type]
            fields[name] = (described, ... if required else default)
        extra: Literal["allow", "forbid"] = "allow" if others else "forbid"
        config = ConfigDict(arbitrary_types_allowed=True, extra=extra)
        base = type("_Base", (Settings,), {"model_config": config})
        return create_model(function.__name__, __base__=base, **fields)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind_partial(*args)
            if bound.arguments.keys() & kwargs.keys():
                raise TypeError("an argument is given twice")
        except TypeError:
            return function(*args, **kwargs)  # Python says what is wrong
        check_working_folder()
        values = validate(settings(), {**bound.arguments, **kwargs}, function.__name__)
        for name in parameters:
            bound.arguments[name] = values.model_extra if name == others else getattr(values, name)
        try:
            return function(*bound.args, **bound.kwargs)
        except UserError as error:
            if click.get_current_context(silent=True) is None:  # called from Python
                error.args = (_in_python(str(error), parameters),)
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a SystemExit would end a command as if all were well
            full = isinstance(error, OSError) and error.errno in NO_ROOM
            if full or is_out_of_memory(error) or (fault := fault_of_plugin(error)) is None:
                raise
            raise fault from error

    vars(call)["settings"] = settings
    return call


def settings_of(function: Callable[..., Any]) -> type[Settings]:
    """Return the class of settings that the arguments of a :func:`checked` function are."""
    settings: type[Settings] = vars(function)["settings"]()
    return settings


@contextmanager
def named_as_in_a_file() -> Iterator[None]:
    """Name settings in errors as a file does: options are those of the run's own data set."""
    try:
        yield
    except UserError as error:
        error.args = (_in_python(str(error)),)
        raise


def _in_python(message: str, parameters: Collection[str] = ()) -> str:
    """Return a message with settings, and parameters of the function that was called, as they are
    called in Python, and not as on the command line.

    >>> _in_python("name it with --text-column, or leave --no-compile out (--fixed-alpha 0.3)")
    'name it with text_column, or leave compile out (--fixed-alpha 0.3)'
    """

    def keyword(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        return name if name in KEYWORDS or name in parameters else match[0]

    # What stands in backquotes, as `auxlearn data get NAME --output FOLDER`, is a command.
    option = re.compile(r"`[^`]*`|(?<![\w-])--(?:no-)?([a-z]+(?:-[a-z]+)*)")
    return option.sub(lambda match: keyword(match) if match[1] else match[0], message)


def _descriptions(docstring: str) -> dict[str, str]:
    """Return what a docstring says of each argument, on one line and without markup."""
    _, _, after = docstring.partition("\nArgs:\n")
    section = re.split(r"\n(?=\S)", after)[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.M)
    return {name: " ".join(text.replace("``", "").split()) for name, text in entries}
