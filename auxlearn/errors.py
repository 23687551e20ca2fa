"""Exceptions for errors that a user can fix.

Every error caused by user input is a :class:`UserError`. The command line prints its message and
exits with code 2; ``--debug`` shows the traceback. Any other exception is a bug of this package.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from auxlearn.wording import shorten_middle


class UserError(Exception):
    """An error that the user can fix; the message says what is wrong, where, and what to do."""


class ConfigError(UserError):
    """An unknown or invalid setting, plug-in or option."""


class PluginError(UserError):
    """A plug-in that raised, or that did not return what it has to."""


class DataError(UserError):
    """A data set that cannot be read or is unsuitable for the task."""


class EncoderError(UserError):
    """An encoder that cannot be loaded or is unsuitable for the task."""


class RunError(UserError):
    """A run folder that cannot be used as requested."""


class RunInUse(RunError):
    """A run folder that is locked by another process."""


class SweepError(UserError):
    """A sweep that cannot be run or read as requested."""


class TrainingDiverged(UserError):
    """A loss became NaN or infinite."""


class Interrupted(UserError):
    """The user interrupted a run; the message says how to resume it."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that is most similar to a misspelt one.

    Args:
        name: The unknown name.
        known: The valid names.

    Returns:
        ``"did you mean 'x'?"`` if a valid name is similar, else the list of valid names.

    Examples:
        >>> did_you_mean("l3msk", ["l3mask", "random_mlm"])
        "did you mean 'l3mask'?"
        >>> did_you_mean("xyz", ["l3mask", "random_mlm"])
        'known: l3mask, random_mlm'
    """
    choices = sorted(set(known))
    near = difflib.get_close_matches(name.lower(), choices, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    return "known: " + (", ".join(choices) or "none")


def first_fault(error: Exception) -> str:
    """Return an error of a check as one short line; of several faults the first.

    Args:
        error: Any exception; those of pydantic list all faults over many lines.

    Examples:
        >>> first_fault(ValueError("no such\\nvalue"))
        'no such value'
    """
    faults: Any = getattr(error, "errors", None)
    text = str(error)
    if callable(faults) and (found := faults(include_url=False)):
        place = ".".join(str(part) for part in found[0]["loc"])
        text = f"{place}: {found[0]['msg']}"
    elif isinstance(error, KeyError):
        text = f"it has no {text}"
    return shorten_middle(" ".join(text.split()), 300)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that the memory of the machine or of its GPU is full."""
    # torch has an error of its own for a GPU; on the CPU its allocator raises a RuntimeError.
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )
