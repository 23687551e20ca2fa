"""The folder that a pretraining writes: its record and checkpoints, and at the end the encoder.

While the pretraining is unfinished, the folder holds ``pretraining.json`` and ``checkpoint/``; at
the end it holds the encoder as transformers reads it, and ``pretraining.json`` with the results.
The record has no times in it, so that equal pretrainings have equal folders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from auxlearn.core.config import differences
from auxlearn.core.errors import RunError
from auxlearn.core.files import filled_folder, read_record, write_checked_json
from auxlearn.core.manifest import verify_export, write_manifest
from auxlearn.core.progress import Reporter
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.results.folder import FAULT, check_contained, locked_folder
from auxlearn.results.outputs import check_output_folder
from auxlearn.training.checkpoint import CheckpointFolder
from auxlearn.training.inputs import RunInputs, compare

FILE = "pretraining.json"


@dataclass(frozen=True)
class PretrainResults:
    """Results of a pretraining, evaluated on held-out texts.

    Attributes:
        texts: Number of training texts.
        steps: Number of optimizer steps.
        loss_before: Mean cross-entropy at masked tokens before, in nats.
        loss_after: The same afterwards, with the same masks.
        accuracy_before: Share of the masked tokens that were predicted correctly before.
        accuracy_after: The same afterwards, with the same masks.
        seconds: Wall time of training; 0 for one that had finished before.
    """

    texts: int
    steps: int
    loss_before: float
    loss_after: float
    accuracy_before: float
    accuracy_after: float
    seconds: float


@dataclass(frozen=True)
class _Record:
    """What ``pretraining.json`` holds.

    Attributes:
        settings: The settings that the result depends on.
        inputs: Content of the encoder, the texts and this package.
        results: The results, once it is finished.
    """

    settings: dict[str, Any]
    inputs: RunInputs
    results: PretrainResults | None = None


class PretrainFolder:
    """Access to the folder of a pretraining."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.checkpoints = CheckpointFolder(path / "checkpoint")
        self._settings = dict(settings)
        self._inputs: RunInputs = {}

    @property
    def finished(self) -> bool:
        """Whether the encoder has been written."""
        record = self._read()
        return record is not None and record.results is not None

    def check(self) -> None:
        """Check, before any work is done, that this pretraining can use the folder."""
        check_output_folder(self.path)
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file: choose another --output")
        check_contained(self.path)
        record = self._read()
        if record is not None:
            saved, given = record.settings, self._settings
            differing = [
                one
                for name in sorted({*saved, *given})
                for one in differences(name, saved.get(name), given.get(name))
            ]
            if differing:
                raise RunError(
                    f"{self.path} holds another pretraining (it has {'; '.join(differing)}): "
                    "choose another --output or delete the folder"
                )
        elif self.path.is_dir() and self._holds_more_than(FAULT):
            raise RunError(f"{self.path} is not empty: choose another --output")

    @contextmanager
    def locked(self, inputs: RunInputs) -> Iterator[None]:
        """Lock the folder within the block; create it where it is missing."""
        self.check()
        with locked_folder(self.path):
            record = self._read()
            begun = self.checkpoints.any or (record is not None and record.results is not None)
            before = record.inputs if record is not None and begun else {}
            found = compare(before, lambda name, _: inputs.get(name, {}))
            if found.changed:
                raise RunError(
                    f"the pretraining in {self.path} cannot be resumed, as {found.changes} since "
                    f"it began: choose another --output, or delete {self.path} to start again"
                )
            self._inputs = inputs
            if record is None or record.results is None:
                self._write(_Record(self._settings, inputs))
            try:
                yield
            except Exception:
                if not self._holds_more_than(FAULT, FILE):  # free for other settings
                    (self.path / FILE).unlink(missing_ok=True)
                raise

    def _holds_more_than(self, *names: str) -> bool:
        return any(
            not entry.name.startswith(".") and entry.name not in names
            for entry in self.path.iterdir()
        )

    def finish(self, encoder: SharedEncoder, results: PretrainResults) -> None:
        """Write the encoder and the results, and delete the checkpoints."""
        with filled_folder(self.path) as temporary:
            encoder.save_language_model(temporary)
            write_manifest(temporary)
        self._write(_Record(self._settings, self._inputs, replace(results, seconds=0.0)))
        self.checkpoints.delete()

    def results(self, reporter: Reporter) -> PretrainResults:
        """Return the results of a finished pretraining, whose files are verified."""
        record = self._read()
        assert record is not None
        assert record.results is not None
        verify_export(self.path)
        self.checkpoints.delete()  # left by a kill just after the results
        reporter.message(f"{self.path} is finished; these are its results")
        return record.results

    def _read(self) -> _Record | None:
        path = self.path / FILE
        try:
            advice = f"delete {self.path} to start again"
            return read_record(_Record, path, RunError, advice, required=True)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _write(self, record: _Record) -> None:
        write_checked_json(self.path / FILE, asdict(record))
