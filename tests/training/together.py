"""A program that trains several runs, as each of the processes that torchrun starts does.

``python -m tests.training.together CASES FOLDER MICRO_BATCHES``: CASES is a JSON list of settings.
``python -m tests.training.together FAULT train ...`` is ``auxlearn train ...``, in which the second
call of a function fails: FAULT is "raise MODULE.FUNCTION" or "stop MODULE.FUNCTION", or "-".
"""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import sys
from pathlib import Path

import auxlearn


def train_all(cases: list[dict], folder: Path, micro_batches: int, first: int = 0) -> None:
    """Train each case into the folder of its number."""
    for number, case in enumerate(cases, first):
        auxlearn.train(
            **case,
            output=folder / str(number),
            gradient_accumulation_steps=micro_batches,
            verbose=False,
        )


def break_function(action: str, name: str) -> None:
    place, _, attribute = name.rpartition(".")
    owner = pkgutil.resolve_name(place)
    function, calls = getattr(owner, attribute), []

    def broken(*arguments, **named):
        calls.append(1)
        if len(calls) == 2 and action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif len(calls) == 2:
            raise RuntimeError("a fault on purpose")
        return function(*arguments, **named)

    setattr(owner, attribute, broken)


if __name__ == "__main__":
    if sys.argv[2] == "train":
        from auxlearn.cli import main

        fault = sys.argv.pop(1)
        if fault != "-":
            break_function(*fault.split())
        main()
    else:
        train_all(json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
