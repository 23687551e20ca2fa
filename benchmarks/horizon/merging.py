"""ForkMerge (Jiang et al. 2023, https://arxiv.org/abs/2301.12618): branches merged each quarter.

Two branches, the single task and one with a fixed share of the auxiliary task, train a quarter of
the steps each; then both continue from the mixture of their parameters that is best on dev.
Each keeps the moments of its optimizer.
"""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np

from auxlearn import RunConfig, train
from auxlearn.training.loop import TrainingLoop
from benchmarks.horizon.record import Recorded, data_labels, predict

#: Weights of the branch with the auxiliary task in a mixture.
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
MERGES = 4


class _Turns:
    """Lets two threads run by turns: random streams and patches are those of the process."""

    def __init__(self) -> None:
        self._tokens = [threading.Semaphore(1), threading.Semaphore(0)]
        self.loops: list[TrainingLoop | None] = [None, None]

    def wait(self, branch: int) -> None:
        self._tokens[branch].acquire()

    def give(self, branch: int) -> None:
        self._tokens[1 - branch].release()


def merged_run(single: Mapping[str, Any], other: Mapping[str, Any]) -> Recorded:
    """Train two branches and return what their mixture predicts at each merge."""
    found = Recorded(labels=data_labels(single))
    turns, local, failed = _Turns(), threading.local(), []
    evaluate = TrainingLoop._evaluate

    def recorded_evaluate(loop: TrainingLoop) -> None:
        evaluate(loop)
        before, now = loop.state.step - loop.eval_steps, loop.state.step
        quarter = loop.total_steps / MERGES
        if math.floor(before / quarter) == math.floor(now / quarter):
            return
        turns.loops[local.branch] = loop
        if local.branch == 1:
            first, second = turns.loops
            assert first is not None
            assert second is not None
            _merge(first, second, found)
        turns.give(local.branch)
        if local.branch == 0 or now < loop.total_steps:
            turns.wait(local.branch)  # the first does not load its best checkpoint before a merge

    def branch(number: int, settings: Mapping[str, Any], folder: str) -> None:
        local.branch = number
        turns.wait(number)
        try:
            output = f"{folder}/{number}"
            config = RunConfig(**settings, keep_model=False, patience=0, output=output)
            results = train(config)
            found.seconds = max(found.seconds, results.seconds["training"])
        except BaseException as error:
            failed.append(error)
            turns.give(number)

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(TrainingLoop, "_evaluate", recorded_evaluate),
    ):
        threads = [
            threading.Thread(target=branch, args=(number, settings, folder))
            for number, settings in enumerate((single, other))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
    found.average = [found.dev[-1], found.test[-1]]
    return found


def _merge(first: TrainingLoop, second: TrainingLoop, found: Recorded) -> None:
    """Give both branches the mixture of their parameters that is best on dev."""
    encoders = first.training_step.encoder, second.training_step.encoder
    own = [{k: v.detach().clone() for k, v in one.tensors().items()} for one in encoders]
    labels = found.labels[0]
    best: tuple[float, float] | None = None
    for share in SHARES:
        mixture = {
            name: (1 - share) * tensor + share * own[1].get(name, tensor)
            for name, tensor in own[0].items()
        }
        encoders[0].load_tensors(mixture)
        dev = predict(first, "dev")
        loss = -np.log(np.maximum(dev[np.arange(len(labels)), labels], 1e-9)).mean()
        score = float((dev.argmax(1) == labels).mean()), -float(loss)
        if best is None or score > best:
            best, chosen, probabilities = score, mixture, dev
    encoders[0].load_tensors(chosen)
    encoders[1].load_tensors({k: chosen.get(k, v) for k, v in own[1].items()})
    found.steps.append(first.state.step)
    found.dev.append(probabilities)
    found.test.append(predict(first, "test"))
