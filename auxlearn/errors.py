"""Errors that a user can fix.

Everything that a user's input can cause is raised as a :class:`UserError`. The command line prints
its one line and exits with code 2; a traceback is shown only on request. Any other exception is a
bug of this package.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """An error that the user can fix: the message says what is wrong, where, and what to do."""


class ConfigError(UserError):
    """An invalid configuration."""


class DataError(UserError):
    """A data set that cannot be read or cannot be used as requested."""


class EncoderError(UserError):
    """An encoder that cannot be loaded or cannot be used as requested."""


class RunError(UserError):
    """A run folder that cannot be used as requested."""


class RunInUse(RunError):
    """A run folder that another process is using."""


class SweepError(UserError):
    """A sweep that cannot be run or read as requested."""


class TrainingDiverged(UserError):
    """A loss became NaN or infinite."""


class Interrupted(UserError):
    """A run stopped by the user; the message says how to resume it."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for an unknown name.

    Args:
        name: The name that the user entered.
        known: The valid names.

    Returns:
        ``"did you mean 'x'?"`` if a valid name is similar, else the list of valid names.
    """
    choices = sorted(set(known))
    near = difflib.get_close_matches(name.lower(), choices, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    return "known: " + (", ".join(choices) or "none")
