"""Comparison of a trial's recorded inputs with the present data, encoder and code."""

from __future__ import annotations

from contextlib import suppress

from auxlearn.errors import RunInUse
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import Trial
from auxlearn.training.checkpoint import CheckpointFolder
from auxlearn.training.inputs import FILE, Comparison, InputReader, RunInputs


def compare_inputs(folder: SweepFolder, trial: Trial, reader: InputReader) -> Comparison:
    """Compare the inputs that a trial recorded with the present ones.

    A trial without results or checkpoint, or with a process running in its folder, counts as
    unchanged.
    """
    run = folder.run(trial.digest)
    begun = run.finished or CheckpointFolder(run.checkpoint_path).any
    if not begun or run.in_use:
        return Comparison()
    recorded = RunInputs.load(run.path)
    if recorded is None:
        return Comparison(missing=(f"some trials have no {FILE} to compare their data with",))
    return reader.compare(run.with_own_data(trial.config), recorded)


def trial_state(folder: SweepFolder, trial: Trial, reader: InputReader) -> str:
    """Return "finished", "changed", "failed", or "" for a trial that a sweep would still run."""
    finished = folder.run(trial.digest).finished
    if folder.failure(trial.digest) and not finished:
        return "failed"
    if compare_inputs(folder, trial, reader).changed:
        return "changed"
    return "finished" if finished else ""


def delete_leftovers(folder: SweepFolder, trial: Trial) -> None:
    """Delete the checkpoint of a finished trial, left by a kill just after its results."""
    run = folder.run(trial.digest)
    if run.finished and run.checkpoint_path.exists():
        with suppress(RunInUse), run.locked(trial.config):
            CheckpointFolder(run.checkpoint_path).delete()
