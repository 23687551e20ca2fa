"""Base of all settings, and the lines in which their faults are reported."""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Iterable
from typing import Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
)

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
            return type(value)(_text_of_path(one) for one in value)
        return _text_of_path(value)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false for a number, which pydantic takes for 1 and 0, and huge ones."""
        field = cls.model_fields[str(info.field_name)]
        if bool not in (kinds := _types_in(field.annotation)) and kinds & {int, float}:
            values = value if isinstance(value, list | tuple) else (value,)
            if any(isinstance(one, bool) for one in values):
                raise ValueError("a number is needed, not true or false")
            if any(isinstance(one, int) and abs(one) >= 2**63 for one in values):
                raise ValueError("a number of at most 18 digits is needed")
        return value


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
    return {annotation} if not inner else {kind for one in inner for kind in _types_in(one)}


def one_or_many(value: Any) -> Any:
    """Return what stands alone, in place of a list, as a list of one; null as an empty one."""
    if isinstance(value, set | frozenset):
        raise ValueError("a set has no order, so that no two processes agree on it: give a list")
    if value is None:
        return ()
    return (value,) if isinstance(value, str | dict | os.PathLike) else value


#: Marks a field whose list may be written as its only entry.
OneOrMany = BeforeValidator(one_or_many)


def validate(model: type[Settings], values: dict[str, Any], where: str) -> Any:
    """Build settings from a mapping and report all invalid values together.

    >>> class Options(Settings):
    ...     temperature: float = 1.0
    >>> validate(Options, {"temprture": 0.5}, "mine")
    Traceback (most recent call last):
    auxlearn.core.errors.ConfigError: mine: unknown key 'temprture': did you mean 'temperature'?
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise config_error(error, model, where) from None


#: The end of the place of a fault in a value that can be of several types: which of them it is not.
_TYPE = re.compile(
    r"(int|float|str|bool|none|list|tuple|dict|set|function|json-or-python)\b.*|[A-Z]\w*"
)


#: Which type of several a value was tried as, in the middle of the place of a fault.
_TRIED = re.compile(r"(dict|list|tuple|set|json-or-python|function)\S*\[.*")


def _deepest(faults: Iterable[Any]) -> list[Any]:
    """Of the types that a value was tried as, keep that of which only a part is wrong."""
    kept, tried, partly = [], [], set()
    for fault in faults:
        place = fault["loc"]
        at = next((i for i, one in enumerate(place) if _TRIED.fullmatch(str(one))), len(place))
        inside = at < len(place) - 1
        partly |= {place[:at]} if inside else set()
        kept.append(fault | {"loc": place[:at] + place[at + 1 :]} if inside else fault)
        tried.append(None if inside or at == len(place) else place[:at])
    return [one for one, place in zip(kept, tried, strict=True) if place not in partly]


def _together(faults: list[Any]) -> list[Any]:
    """Return faults with those that one value has as each of the types that it can be as one."""
    found: list[Any] = []
    for fault in faults:
        last, place = found[-1] if found else None, fault["loc"]
        if (
            last
            and last["input"] is fault["input"]
            and len(place) > 1
            and all(_TYPE.fullmatch(str(one["loc"][-1])) for one in (last, fault))
            and place[:-1] == last["loc"][:-1]
        ):
            last["alternatives"] = [*last.get("alternatives", ()), _message(fault)]
        else:
            found.append({**fault})
    for one in found:
        if "alternatives" in one:
            message = ", or ".join([_message(one), *one.pop("alternatives")])
            one |= {"loc": one["loc"][:-1], "type": "several", "msg": message}
    return found


def _message(fault: Any) -> str:
    if fault["type"] == "missing" and fault["loc"] and isinstance(fault["loc"][-1], int):
        return f"the list is too short: add value {fault['loc'][-1] + 1}"
    return plain_words(fault)


def _fields_at(model: type[BaseModel], place: tuple[int | str, ...]) -> Iterable[str]:
    """Return the names of the fields that a key of settings within settings may have."""
    for part in place[:-1]:
        if field := model.model_fields.get(str(part)):
            inner = [one for one in _types_in(field.annotation) if hasattr(one, "model_fields")]
            model = inner[0] if inner else model
    return model.model_fields


def config_error(error: ValidationError, model: type[Settings], where: str) -> ConfigError:
    """Return the error that reports invalid values together, one line for each."""
    lines: list[str] = []
    faults = _together(_deepest(error.errors()))
    for fault in faults[:FAULTS]:
        key = shorten(".".join(str(part) for part in fault["loc"]))
        if fault["type"] == "extra_forbidden":
            name, known = shorten(str(fault["loc"][-1])), _fields_at(model, fault["loc"])
            hint = suggestion(name, known) or "no such setting"
            if not lines:  # the known ones are listed once
                hint = did_you_mean(name, known)
            lines.append(f"{where}: unknown key '{key}': {hint}")
        else:
            message = _message(fault)
            given = (
                ""
                if fault["loc"] == () or fault["type"] == "missing"
                else f", got {describe(fault['input'])}"
            )
            place = ": ".join(part for part in (where, key) if part)
            joint = " " if message == MISSING else ": "
            lines.append(f"{place}{joint}{message}{given}")
    if len(faults) > FAULTS:
        lines.append(f"{where}: and {len(faults) - FAULTS} more faults")
    return ConfigError("\n".join(lines))
