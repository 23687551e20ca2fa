"""What the tests let the process with the pretend accelerator do; see :mod:`.conftest`.

Everything here runs in that process, is given plain values, and returns plain values.
"""

from __future__ import annotations

import runpy
import signal
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import auxlearn
from auxlearn import RunConfig
from auxlearn.core import rng
from auxlearn.core.errors import Interrupted
from auxlearn.core.processes import Processes
from auxlearn.core.registry import LOSSES
from auxlearn.encoders import device as devices
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.evaluation import evaluator
from auxlearn.evaluation.evaluator import Classifier
from auxlearn.losses.cross_entropy import CrossEntropy
from auxlearn.results import plots
from auxlearn.scoring import pseudo_likelihood
from auxlearn.testing.checks import report
from auxlearn.training import train as train_module
from auxlearn.training.loop import TrainingLoop
from tests import helpers
from tests.accelerator import pretend

#: Waits of a process that has the device: for each step of a training, and for the rest of it.
Report = dict[str, Any]


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


def train(config: dict[str, Any], stop_after: int | None = None, idle_peer: bool = False) -> Report:
    """Train, until the user asks to stop, or as one of two processes whose peer has nothing to do.

    Returns:
        ``results``: as JSON values, ``None`` of a stopped run; ``steps``: the waits of each step as
        ``(what, place)``; ``others``: how many more there were; ``parameters``: kinds of
        devices of the trained parameters; ``summed``: elements summed over processes by kind.
    """

    class IdlePeer(Processes):
        """This process does all of the work; sums over both are therefore its own."""

        def owns(self, part: int) -> bool:
            return True

        def adding(self, tensor: torch.Tensor) -> Callable[[], None]:
            summed[tensor.device.type] = summed.get(tensor.device.type, 0) + tensor.numel()
            return lambda: None

        def share(self, value: Any = None, source: int = 0) -> Any:
            return value

        def share_tensors(self, groups: Any = None) -> Any:
            return groups

    summed: dict[str, int] = {}
    steps: list[list[pretend.Wait]] = []
    where: set[str] = set()
    real = TrainingLoop.run_step

    def step(loop: TrainingLoop) -> None:
        with pretend.counted() as waits:
            real(loop)
        steps.append(waits)
        where.update(parameter.device.type for parameter in loop.training_step.parameters)
        if loop.state.step == stop_after:
            signal.raise_signal(signal.SIGTERM)

    results = None
    with pretend.counted() as every, pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingLoop, "run_step", step)
        patch.setattr(plots, "plot_run", lambda *given: [])  # figures take longer than the run
        if idle_peer:
            patch.setattr(train_module, "joined", lambda: nullcontext(IdlePeer(0, 2)))
        try:
            results = auxlearn.train(RunConfig.model_validate(config)).reproducible()
        except Interrupted:
            assert stop_after is not None
    return {
        "results": results,
        "steps": [[tuple(wait) for wait in waits] for waits in steps],
        "others": len(every) - sum(map(len, steps)),
        "parameters": sorted(where),
        "summed": summed,
    }


def masks(config: dict[str, Any]) -> list[str]:
    """Train; return what kinds of attention masks the body was given while it trained."""
    kinds: set[str] = set()
    real = SharedEncoder.encode

    def encode(encoder: SharedEncoder, batch: Any) -> Any:
        def note(module: Any, positional: Any, named: dict[str, Any]) -> None:
            mask = named["attention_mask"]
            if encoder.training:
                kinds.add("none" if mask is None else f"{mask.dim()} {mask.dtype}")

        with encoder.body.register_forward_pre_hook(note, with_kwargs=True):
            return real(encoder, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedEncoder, "encode", encode)
        train(config)
    return sorted(kinds)


def seeds() -> list[bool]:
    """Draw within seeded blocks; say whether each generator is then as it was."""
    device = pretend.device()

    def draw() -> torch.Tensor:
        return torch.rand(4, device=device).cpu()

    def state() -> list[torch.Tensor]:
        return [torch.get_rng_state(), torch.get_device_module(device).get_rng_state()]

    def left_alone(**where: Any) -> tuple[bool, torch.Tensor]:
        before = state()
        with rng.seeded(0, "dropout", **where):
            drawn = draw() if where else torch.rand(4)
        return all(map(torch.equal, before, state())), drawn

    torch.manual_seed(5)
    alone, _ = left_alone()
    there, first = left_alone(device=device)
    draw()
    again, second = left_alone(device=torch.device(pretend.NAME))
    return [alone, there, again, torch.equal(first, second)]


def score(encoder: str, passes: int | None, half: bool, device: bool) -> tuple[list[float], Any]:
    """Score tokens of some lines; return the log-probabilities and the waits."""
    shared = load_encoder(encoder, helpers.LABELS)
    if device:
        shared.to(pretend.device())
    texts = helpers.tokenized(shared, helpers.LINES[:6])
    # Several batches and several reads of the output layer.
    budgets = {"cpu": 500, "gpu": 500}
    with pretend.counted() as waits, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pseudo_likelihood, "TOKEN_BUDGET", budgets)
        patch.setattr(pseudo_likelihood, "HEAD_ROWS", 16)
        dtype = torch.bfloat16 if half else torch.float32
        scores = pseudo_likelihood.pseudo_log_likelihood(shared, texts, passes=passes, dtype=dtype)
    return scores.tolist(), [tuple(wait) for wait in waits]


def predict(run: str, texts: list[str]) -> tuple[list[list[float]], str]:
    """Return class probabilities by the exported model of a run, and the model's device."""
    classifier = Classifier.of_run(Path(run))
    return classifier.probabilities(texts).tolist(), str(classifier.device)


def pretrain(encoder: str, corpus: str, output: str) -> tuple[float, float, int, int]:
    """Pretrain; return the losses before and after, the waits, and how many tensors there are."""
    with pretend.counted() as waits:
        found = auxlearn.pretrain(encoder, output, corpus=corpus, steps=2, batch_size=4, seed=1)
    tensors = len(load_encoder(encoder, ["unused"]).state_dict())
    return found.loss_before, found.loss_after, len(waits), tensors


def example(path: str, folder: str, settings: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Run ``weights_by_step`` of ``examples/clean_vs_shuffled.py`` with each of its rules."""
    script = runpy.run_path(path)
    return [
        script["weights_by_step"](
            rule, options, Path(folder), **settings | {"output": f"{folder}/{rule}"}
        )
        for rule, options in script["RULES"].items()
    ]


def checked() -> list[tuple[bool | None, str]]:
    """Check a built-in loss, and one that is another on the device; return what "device" says."""

    class Off(CrossEntropy):
        """Larger by a hundredth on every device but the CPU."""

        name = "off"

        def loss(self, encoder: Any, batch: Any, generator: torch.Generator) -> Any:
            loss = super().loss(encoder, batch, generator)
            return loss if loss.device.type == "cpu" else 1.01 * loss

    checks = [
        check
        for cls in (CrossEntropy, Off)
        for check in report(LOSSES, (cls, {}), device="auto", resume=False).checks
    ]
    return [(check.passed, check.detail) for check in checks if check.name == "device"]
