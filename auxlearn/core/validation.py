"""Base of all settings, and the lines in which their faults are reported."""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo

from auxlearn.core.errors import (
    MISSING,
    ConfigError,
    describe,
    did_you_mean,
    plain_words,
    shorten,
    suggestion,
)

FAULTS = 5  # faults of a configuration that are listed; the others are counted


class Settings(BaseModel):
    """Base class of all settings: immutable; unknown keys, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _path_as_text(cls, value: Any, info: ValidationInfo) -> Any:
        """Take a :class:`pathlib.Path` where a text is needed: settings are written to YAML."""
        if str not in _types_in(cls.model_fields[str(info.field_name)].annotation):
            return value
        if isinstance(value, list | tuple):
            return type(value)(_text_of_path(part) for part in value)
        return _text_of_path(value)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false for a number, which pydantic takes for 1 and 0, and huge ones."""
        field = cls.model_fields[str(info.field_name)]
        if bool not in (kinds := _types_in(field.annotation)) and kinds & {int, float}:
            values = value if isinstance(value, list | tuple) else (value,)
            # Of numpy or torch, which pydantic takes for a number by its ``__int__``.
            values = [part.item() if getattr(part, "ndim", None) == 0 else part for part in values]
            if any(isinstance(number, bool) for number in values):
                raise ValueError("a number is needed, not true or false")
            if any(isinstance(number, int) and abs(number) >= 2**63 for number in values):
                raise ValueError("a number of at most 18 digits is needed")
        return value


@dataclass(frozen=True)
class Option:
    """How a field is written on the command line, where name and type do not say it."""

    metavar: str | None = None
    flag: str | None = None  # by default the name of the field
    flag_value: Any = None  # what the option stands for without a value
    completes: bool = False  # whether the shell completes the names that there are


def option_of(field: FieldInfo) -> Option:
    return next((note for note in field.metadata if isinstance(note, Option)), Option())


class Described(Settings):
    """Base class of settings whose fields are described by the docstrings below them."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        for field in cls.model_fields.values():
            field.description = field.description and " ".join(field.description.split())


def _text_of_path(value: Any) -> Any:
    if isinstance(value, bytes):
        raise ValueError("text is needed, not bytes")
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _types_in(annotation: Any) -> set[Any]:
    """Return the classes that an annotation is composed of."""
    inner = typing.get_args(annotation)
    return {kind for part in inner for kind in _types_in(part)} if inner else {annotation}


def one_or_many(value: Any) -> Any:
    """Return what stands alone, in place of a list, as a list of one; null as an empty one."""
    if isinstance(value, set | frozenset):
        raise ValueError("a set has no order, so that no two processes agree on it: give a list")
    if value is None:
        return ()
    is_one = isinstance(value, str | os.PathLike) or hasattr(value, "keys")  # as a DataFrame has
    return (value,) if is_one else value


#: Marks a field whose list may be written as its only entry.
OneOrMany = BeforeValidator(one_or_many)


def validate(model: type[Settings], values: dict[str, Any], where: str) -> Any:
    """Build settings from a mapping and report all invalid values together."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise config_error(error, model, where) from None


#: Which type of several a value was tried as: a part of the place of a fault.
_TRIED = re.compile(
    r"(int|float|str|bool|literal|none|list|tuple|dict|set|function|json-or-python)\b.*"
)


def _by_place(faults: Iterable[Any]) -> dict[tuple[int | str, ...], list[Any]]:
    """Return faults by their place in the settings: several where a value is of none of several
    types. If it is of one of them but for a part, only the faults of that part count.
    """
    places: dict[tuple[int | str, ...], list[Any]] = {}
    for fault in faults:
        *parts, last = fault["loc"] or ("",)
        place = [part for part in parts if not _TRIED.fullmatch(str(part))]
        # The end is the type that a value is not of, where it can be of several.
        is_class = fault["type"] == "model_type" and str(last)[:1].isupper()
        if fault["type"] == "extra_forbidden" or not (is_class or _TRIED.fullmatch(str(last))):
            place.append(last)
        places.setdefault(tuple(place), []).append(fault)
    inside = {place[:length] for place in places for length in range(1, len(place))}
    return {place: faults for place, faults in places.items() if place not in inside}


def _fields_at(model: type[BaseModel], place: tuple[int | str, ...]) -> Iterable[str]:
    """Return the names of the fields that a key of settings within settings may have."""
    for part in place[:-1]:
        if field := model.model_fields.get(str(part)):
            inner = [kind for kind in _types_in(field.annotation) if hasattr(kind, "model_fields")]
            model = inner[0] if inner else model
    return model.model_fields


def config_error(error: ValidationError, model: type[Settings], where: str) -> ConfigError:
    """Return the error that reports invalid values together, one line for each."""
    lines: list[str] = []
    places = _by_place(error.errors())
    meant = [
        (place[:-1], suggestion(str(place[-1]), _fields_at(model, place)))
        for place, (fault, *_) in places.items()
        if fault["type"] == "extra_forbidden"
    ]
    for place, (fault, *others) in list(places.items())[:FAULTS]:
        key = shorten(".".join(str(part) for part in place))
        if fault["type"] == "extra_forbidden":
            name, known = shorten(str(place[-1])), _fields_at(model, place)
            is_first = not any(": unknown key " in line for line in lines)
            hint = (did_you_mean if is_first else suggestion)(name, known)
            lines.append(f"{where}: unknown key '{key}'" + (f": {hint}" if hint else ""))
            continue
        whole = ": ".join(part for part in (where, key) if part)
        if fault["type"] == "missing":
            if (place[:-1], f"did you mean {place[-1]!r}?") not in meant:
                lines.append(f"{whole} {MISSING}")
            continue
        message = ", or ".join(plain_words(tried) for tried in (fault, *others))
        value = f", got {describe(fault['input'])}" if key else ""
        lines.append(f"{whole}: {message}{value}")
    if len(places) > FAULTS:
        lines.append(f"{where}: and {len(places) - FAULTS} more faults")
    return ConfigError("\n".join(lines))
