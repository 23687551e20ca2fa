"""Exceptions for errors that a user can fix.

Every error caused by user input is a :class:`UserError`. The command line prints its message and
exits with code 2; ``--debug`` shows the traceback. Any other exception is a bug of this package.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """An error that the user can fix; the message says what is wrong, where, and what to do."""


class ConfigError(UserError):
    """An unknown or invalid setting, plug-in or option."""


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
