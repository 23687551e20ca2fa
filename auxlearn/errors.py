"""Errors a user can act on.

Everything that a user's input can cause is raised as a :class:`UserError`.
The command line prints its one line and exits with code 2; a traceback is
shown only on request. Anything else that escapes is a bug of this package.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can mend: the message says what, where, and what to do."""


class ConfigError(UserError):
    """A configuration that cannot be run."""


class DataError(UserError):
    """A data set that cannot be read or does not fit its use."""


class EncoderError(UserError):
    """An encoder that cannot be loaded or does not fit its use."""


class RunError(UserError):
    """A run folder that cannot be used as asked."""


class RunInUse(RunError):
    """A run folder in which another process is at work."""


class SweepError(UserError):
    """A sweep that cannot be run or read as asked."""


class TrainingDiverged(UserError):
    """A loss became NaN or infinite."""


class Interrupted(UserError):
    """The user stopped a run; the message says how to go on with it."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests known names near ``name``.

    Args:
        name: What the user wrote.
        known: The names that would have been valid.

    Returns:
        ``"did you mean 'x'?"`` if something is near, else the list of known names.
    """
    choices = sorted(set(known))
    near = difflib.get_close_matches(name.lower(), choices, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    return "known: " + (", ".join(choices) or "none")
