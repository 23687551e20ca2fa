"""What the tests let the process with the pretend accelerator do; see :mod:`.conftest`.

Everything here runs in that process, is given plain values, and returns plain values.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import auxlearn
from auxlearn import RunConfig
from auxlearn.core import rng
from auxlearn.core.errors import Interrupted
from auxlearn.core.registry import LOSSES
from auxlearn.encoders import device as devices
from auxlearn.encoders.load import load_encoder
from auxlearn.evaluation import evaluator
from auxlearn.evaluation.evaluator import Classifier
from auxlearn.losses.cross_entropy import CrossEntropy
from auxlearn.results import plots
from auxlearn.scoring import pseudo_likelihood
from auxlearn.testing import checks
from auxlearn.training.loop import TrainingLoop
from tests import helpers
from tests.accelerator import pretend


def begin() -> None:
    """Make the process what the tests expect: the device is there, and ``auto`` chooses it."""
    torch.set_num_threads(1)
    pretend.install()
    for module in (devices, evaluator):  # the latter has imported the function
        module.default_device = pretend.device


def call(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Call a function with warnings as errors, as pytest does in the process of the tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return function(*arguments, **named)


def train(config: dict[str, Any], stop_after: int | None = None) -> dict[str, Any]:
    """Train, until the user asks to stop.

    Returns:
        ``results``: as JSON values, ``None`` of a stopped run; ``steps``: what the host waited for
        in each step; ``parameters``: kinds of devices of the trained parameters.
    """
    steps: list[list[str]] = []
    where: set[str] = set()
    real = TrainingLoop.run_step

    def step(loop: TrainingLoop) -> None:
        before = len(pretend.waits)
        real(loop)
        steps.append(pretend.waits[before:])
        where.update(parameter.device.type for parameter in loop.training_step.parameters)
        if loop.state.step == stop_after:
            signal.raise_signal(signal.SIGTERM)

    results = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingLoop, "run_step", step)
        patch.setattr(plots, "plot_run", lambda *run: [])  # figures take longer than the run
        try:
            results = auxlearn.train(RunConfig.model_validate(config)).reproducible()
        except Interrupted:
            assert stop_after is not None
    return {"results": results, "steps": steps, "parameters": sorted(where)}


def seeds() -> list[bool]:
    """Draw within seeded blocks; say whether each generator is then as it was."""
    device = pretend.device()

    def state() -> list[torch.Tensor]:
        return [torch.get_rng_state(), torch.get_device_module(device).get_rng_state()]

    def drawn(**where: Any) -> tuple[bool, torch.Tensor]:
        before = state()
        with rng.seeded(0, "dropout", **where):
            values = torch.rand(4, **where).cpu()
        return all(map(torch.equal, before, state())), values

    alone, _ = drawn()
    there, first = drawn(device=device)
    torch.rand(4, device=device)
    again, second = drawn(device=torch.device(pretend.NAME))
    return [alone, there, again, torch.equal(first, second)]


def score(encoder: str, passes: int | None, half: bool, device: bool) -> tuple[list[float], int]:
    """Score tokens of some lines; return the log-probabilities and the number of waits."""
    shared = load_encoder(encoder, helpers.LABELS)
    if device:
        shared.to(pretend.device())
    texts = helpers.tokenized(shared, helpers.LINES[:6])
    before = len(pretend.waits)
    with pytest.MonkeyPatch.context() as patch:
        # Several batches and several reads of the output layer.
        patch.setattr(pseudo_likelihood, "TOKEN_BUDGET", {"cpu": 500, "gpu": 500})
        patch.setattr(pseudo_likelihood, "HEAD_ROWS", 16)
        dtype = torch.bfloat16 if half else torch.float32
        scores = pseudo_likelihood.pseudo_log_likelihood(shared, texts, passes=passes, dtype=dtype)
    return scores.tolist(), len(pretend.waits) - before


def predict(run: str, texts: list[str]) -> tuple[list[list[float]], str]:
    """Return class probabilities by the exported model of a run, and the model's device."""
    classifier = Classifier.of_run(Path(run))
    return classifier.outputs(texts).tolist(), str(classifier.device)


def pretrain(encoder: str, corpus: str, output: str) -> tuple[float, float]:
    """Pretrain; return the losses before and after."""
    results = auxlearn.pretrain(encoder, output, corpus=corpus, steps=2, batch_size=4, seed=1)
    return results.loss_before, results.loss_after


def checked() -> list[bool | None]:
    """Check a built-in loss, and one that is another on the device; return what "device" says."""

    class Off(CrossEntropy):
        """Larger by a hundredth on every device but the CPU."""

        name = "off"

        def loss(self, encoder: Any, batch: Any, generator: torch.Generator) -> Any:
            loss = super().loss(encoder, batch, generator)
            return loss if loss.device.type == "cpu" else 1.01 * loss

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks.ObjectiveChecks, "ALL", ("device",))
        patch.setattr(checks, "REPEATS", 1)  # nothing is asked of the cost
        reports = [
            checks.report(LOSSES, (cls, {}), device="auto", resume=False)
            for cls in (CrossEntropy, Off)
        ]
    return [check.passed for report in reports for check in report.checks if check.name == "device"]
