"""Whether the trials of a sweep are still made of what they were made of."""

from __future__ import annotations

from contextlib import suppress

from auxlearn.errors import RunInUse
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import Trial
from auxlearn.training.checkpoint import CheckpointFolder
from auxlearn.training.inputs import FILE, Comparison, InputReader, RunInputs


def compare_inputs(folder: SweepFolder, trial: Trial, reader: InputReader) -> Comparison:
    """Compare what a trial was made of with what is there now.

    A trial that has nothing to be kept, or that a process is at work on, has not changed.
    """
    run = folder.run(trial.digest)
    begun = run.finished or CheckpointFolder(run.checkpoint_path).any
    if not begun or run.in_use:
        return Comparison()
    recorded = RunInputs.load(run.path)
    if recorded is None:
        return Comparison(missing=(f"some trials hold no {FILE} to compare their data by",))
    return reader.compare(trial.config, recorded)


def trial_state(folder: SweepFolder, trial: Trial, reader: InputReader) -> str:
    """Say "finished", "changed", "failed" or nothing of a trial that a sweep would find now."""
    finished = folder.run(trial.digest).finished
    if folder.failure(trial.digest) and not finished:
        return "failed"
    if compare_inputs(folder, trial, reader).changed:
        return "changed"
    return "finished" if finished else ""


def delete_leftovers(folder: SweepFolder, trial: Trial) -> None:
    """Delete the checkpoint of a finished trial, which a kill just after the results has left."""
    run = folder.run(trial.digest)
    if run.finished and run.checkpoint_path.exists():
        with suppress(RunInUse), run.claimed(trial.config):
            CheckpointFolder(run.checkpoint_path).delete()
