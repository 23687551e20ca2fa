"""``perturbations.jsonl`` of a run folder: what was put into a sample of the training texts.

One line for each time that a text of the sample was perturbed in training, that is one for each
epoch and task::

    {"step": 3, "epoch": 1, "task": "mask_tuning", "row": 17, "label": 1,
     "input_ids": [...], "words": [...], "token_type_ids": null, "positions": [4],
     "predicted": [2307]}

``positions`` are the tokens that were masked and ``predicted`` what was put in for them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from auxlearn import rng
from auxlearn.errors import RunError
from auxlearn.files import write_text
from auxlearn.results.folder import read_jsonl

if TYPE_CHECKING:
    from torch import Tensor

    from auxlearn.data.batches import Batch

FILE = "perturbations.jsonl"

#: Texts that are followed; Mask-tuning (2023, section V) looks at 200 of each data set.
SAMPLE = 200


@dataclass(frozen=True)
class Perturbed:
    """One text as it was perturbed once in training; the fields are those of the file."""

    step: int
    epoch: int
    task: str
    row: int
    label: int | None
    input_ids: list[int]
    words: list[int]
    token_type_ids: list[int] | None
    positions: list[int]
    predicted: list[int]


class PerturbationLog:
    """Keeps what becomes of a sample of the training texts.

    The sample is the same for every seed of a run. Nothing is computed for it: what is kept is
    what the classifier was trained on, dropout included.

    Args:
        folder: The run folder.
        rows: How many training texts there are.
        sample: How many of them are followed.
    """

    def __init__(self, folder: Path, rows: int, sample: int = SAMPLE) -> None:
        import torch

        self.path = folder / FILE
        order = torch.randperm(rows, generator=rng.generator(0, "perturbation sample"))
        self._follows = torch.zeros(rows, dtype=torch.bool)
        self._follows[order[:sample]] = True
        self._waiting: dict[tuple[int, str, int], Perturbed] = {}

    def note(
        self, step: int, epoch: int, task: str, before: Batch, after: Batch, replaced: Tensor
    ) -> None:
        """Take note of a batch; a row noted twice in a step counts once.

        Args:
            step: Number of the update, from 1.
            epoch: Number of the pass over the training rows, from 1.
            task: Name of the objective.
            before: The batch as it was.
            after: The batch as the primary task is trained on it.
            replaced: Which tokens were put in, ``(batch, length)``, bool.
        """
        rows = before.indices.tolist()
        for place in self._follows[before.indices].nonzero().squeeze(1).tolist():
            length = int(before.attention_mask[place].sum())
            positions = replaced[place, :length].nonzero().squeeze(1)
            types = before.token_type_ids
            self._waiting[step, task, rows[place]] = Perturbed(
                step=step,
                epoch=epoch,
                task=task,
                row=rows[place],
                label=None if before.labels is None else int(before.labels[place]),
                input_ids=before.input_ids[place, :length].tolist(),
                words=before.words[place, :length].tolist(),
                token_type_ids=None if types is None else types[place, :length].tolist(),
                positions=positions.tolist(),
                predicted=after.input_ids[place][positions].tolist(),
            )

    def flush(self) -> None:
        """Write what has been noted; call it before a checkpoint is written."""
        if not self._waiting:
            return
        lines = [json.dumps(asdict(one)) + "\n" for one in self._waiting.values()]
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(lines)
        self._waiting = {}

    def cut(self, last_step: int) -> None:
        """Drop what a resumed run is going to make again."""
        if self.path.is_file():
            kept = [one for one in read_jsonl(self.path) if one["step"] <= last_step]
            write_text(self.path, "".join(json.dumps(one) + "\n" for one in kept))
        self._waiting = {}


def read_perturbations(folder: Path) -> list[Perturbed]:
    """Return what a run has recorded, in order.

    Raises:
        RunError: It has recorded nothing, or the file is damaged.
    """
    path = folder / FILE
    try:
        records = [Perturbed(**one) for one in read_jsonl(path)]
    except (ValueError, TypeError) as error:
        raise RunError(f"{path} is damaged ({error})") from None
    if not records:
        raise RunError(
            f"{folder} holds no perturbed texts: only runs with a task that changes the text of "
            "the primary task, such as mask_tuning, record them"
        )
    return records
