"""``perturbations.jsonl`` of a run folder: the perturbations of a sample of the training texts.

There is one line for each time that a text of the sample was perturbed in training, that is one for
each epoch and task, and for each window of a text that is read in windows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from auxlearn.core import rng
from auxlearn.core.errors import RunError
from auxlearn.core.processes import Processes
from auxlearn.results.folder import append_jsonl, read_jsonl, truncate_jsonl
from auxlearn.results.record import recorded_file

if TYPE_CHECKING:
    from torch import Tensor

    from auxlearn.data.batches import Batch

FILE = "perturbations.jsonl"

#: Number of texts in the sample; Mask-tuning (2023, section V) analyses 200 of each data set.
SAMPLE = 200


@dataclass(frozen=True)
class PerturbationRecord:
    """One perturbation of one training text; the fields are those of the file."""

    step: int
    epoch: int
    task: str
    example: int
    label: int | None
    input_ids: list[int]
    words: list[int]
    token_type_ids: list[int] | None
    positions: list[int]  # of the masked tokens
    predicted: list[int]  # the tokens that were substituted


class PerturbationLog:
    """Records the perturbations of a sample of the training texts, the same for every seed."""

    def __init__(self, folder: Path, examples: int, sample: int = SAMPLE) -> None:
        import torch

        self.path = folder / FILE
        order = torch.randperm(examples, generator=rng.generator(0, "perturbation sample"))
        self._sampled = torch.zeros(examples, dtype=torch.bool)
        self._sampled[order[:sample]] = True
        self._pending: dict[tuple[int, str, int, int], PerturbationRecord] = {}

    def add(
        self, step: int, epoch: int, task: str, before: Batch, after: Batch, replaced: Tensor
    ) -> None:
        """Record sampled examples of a batch, perturbed where ``replaced``, ``(batch, length)``; of
        one that is added twice in a step, the last perturbation. Steps and epochs are from 1.
        """
        counts = [1] * len(before) if before.windows is None else before.windows.tolist()
        rows = ((text, window) for text, count in enumerate(counts) for window in range(count))
        labels, types = before.labels, before.token_type_ids
        one_class = labels is not None and not labels.is_floating_point()
        for place, (number, window) in enumerate(rows):
            example = int(before.indices[number])
            if not self._sampled[example]:
                continue
            length = int(before.attention_mask[place].sum())
            positions = replaced[place, :length].nonzero().squeeze(1)
            self._pending[step, task, example, window] = PerturbationRecord(
                step=step,
                epoch=epoch,
                task=task,
                example=example,
                label=int(labels[number]) if labels is not None and one_class else None,
                input_ids=before.input_ids[place, :length].tolist(),
                words=before.words[place, :length].tolist(),
                token_type_ids=None if types is None else types[place, :length].tolist(),
                positions=positions.tolist(),
                predicted=after.input_ids[place][positions].tolist(),
            )

    def flush(self, processes: Processes) -> None:
        """Write the perturbations that all processes have recorded, before a checkpoint."""
        gathered = processes.gather([asdict(record) for record in self._pending.values()])
        if records := [record for of_process in gathered for record in of_process]:
            append_jsonl(self.path, sorted(records, key=lambda record: record["step"]))
        self._pending = {}

    def truncate(self, last_step: int) -> None:
        """Remove the records after a step, which a resumed run will write again."""
        if self.path.is_file():
            truncate_jsonl(self.path, last_step)
        self._pending = {}


def read_perturbations(folder: Path) -> list[PerturbationRecord]:
    """Return the records of a run, in order."""
    records = [PerturbationRecord(**row) for row in read_jsonl(recorded_file(folder, FILE))]
    if not records:
        raise RunError(
            f"{folder} has no perturbed texts: only runs with a task that changes the text of "
            "the primary task, such as mask_tuning, record them, and only while it is applied"
        )
    return records
