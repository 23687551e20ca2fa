"""A program that trains several runs, as each of the processes that torchrun starts does.

``python -m tests.training.together CASES FOLDER MICRO_BATCHES``: CASES is a JSON list of settings.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import auxlearn


def train_all(cases: list[dict], folder: Path, micro_batches: int) -> None:
    for number, case in enumerate(cases):
        auxlearn.train(
            **case,
            output=folder / str(number),
            gradient_accumulation_steps=micro_batches,
            verbose=False,
        )


if __name__ == "__main__":
    train_all(json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
