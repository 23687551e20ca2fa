"""Check a task, a loss or a weighting, and report what was found."""

from __future__ import annotations

import math
import statistics
import tempfile
import timeit
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from auxlearn.core import rng
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, describe, first_fault, named_fault
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS, Registry
from auxlearn.core.validation import validate
from auxlearn.data.batches import Batch, collate
from auxlearn.encoders.device import choose_compute
from auxlearn.losses.base import PrimaryLoss
from auxlearn.objectives.base import Objective
from auxlearn.tasks.base import AuxiliaryTask, MaskedLanguageModelling, TaskResult
from auxlearn.testing.check_base import SHARED, Check, Checks, Report, require_finite
from auxlearn.testing.tiny_run import (
    STEPS,
    Choice,
    Objectives,
    TinyRun,
    build,
    untrained_encoder,
    with_other_padding,
)
from auxlearn.training.plugin_checks import check_trained, versions_of
from auxlearn.training.terms import primary_items
from auxlearn.weighting.base import Weighting

#: Weightings of every kind: weighted losses, learned losses, gradients of each objective, weights
#: learned in one step and through several, by higher.
WEIGHTING_KINDS: tuple[Choice, ...] = (
    ("fixed", {}),
    ("ol_aux", {"every": 1}),
    ("metabalance", {}),
    ("tartan", {}),
    ("meta", {"horizon": "steps", "warmup_steps": 0}),
    ("meta", {"horizon": "steps", "warmup_steps": 0, "unroll": 2, "mix": "gradients"}),
)

#: The one uniform number of draws that are all equal: below it are few probabilities.
EQUAL_DRAW = 1e-3

#: Times that a cost is measured; the median is shown.
REPEATS = 5


class ObjectiveChecks(Checks):
    """The checks of a task or a loss."""

    ALL = ("options", "loss", "gradient", "encoder", "randomness", "padding", "weightings", *SHARED)

    def objectives(self, weighting: Choice = ("fixed", {})) -> Objectives:
        if self.registry is TASKS:
            return Objectives([self.choice], weighting=weighting)
        # Learned weights need a second objective.
        return Objectives([("random_mlm", {})], self.choice, weighting)

    def run(self, **changes: Any) -> tuple[TinyRun, Objective, Batch]:
        run = self.tiny(**changes)
        name = "primary" if self.registry is LOSSES else next(iter(run.tasks))
        objective = run.loss if self.registry is LOSSES else run.tasks[name]
        return run, objective, run.batch(name)

    def check_loss(self) -> str:
        run, objective, batch = self.run()
        before = versions_of(batch)
        loss = _loss(run, objective, batch)
        assert versions_of(batch) == before, "the loss changes its batch in place: change a copy"
        assert loss.grad_fn is not None, "the loss has no graph: it is computed without gradients"
        value = loss.item()
        assert math.isfinite(value), f"the loss is {value}"
        return f"a scalar, {value:.3f}"

    def check_gradient(self) -> str:
        run, objective, batch = self.run()
        loss = _loss(run, objective, batch)
        trained = {id(parameter) for parameter in run.encoder.parameters()}
        check_trained(self.name, objective, loss, trained)
        gradients = torch.autograd.grad(loss, run.step.parameters, allow_unused=True)
        reached = {
            id(parameter)
            for parameter, gradient in zip(run.step.parameters, gradients, strict=True)
            if gradient is not None and bool(gradient.abs().sum() > 0)
        }

        def reaches(parameters: Iterable[nn.Parameter]) -> bool:
            return any(id(parameter) in reached for parameter in parameters)

        assert reaches(run.encoder.body_parameters()), (
            "no gradient reaches the encoder: the loss does not train it"
        )
        prefix = "primary/" if self.registry is LOSSES else f"{next(iter(run.tasks))}/"
        heads = {key: head for key, head in run.encoder.heads.items() if key.startswith(prefix)}
        for key, head in heads.items():
            assert reaches(head.parameters()), f"no gradient reaches head '{key}'"
        classifies = reaches(run.encoder.classification_parameters())
        assert classifies or self.registry is TASKS, "no gradient reaches the classification head"
        parts = {"encoder": True, "classification head": classifies, "own heads": bool(heads)}
        return "reaches " + ", ".join(part for part, reached in parts.items() if reached)

    def check_accumulation(self) -> str:
        """Losses are finite in micro-batches, and weighted by items give the gradient of all."""
        finite = super().check_accumulation()
        run, objective, _ = self.run(dropout=False)
        task = objective if isinstance(objective, AuxiliaryTask) else None
        stream = (task and run.step.auxiliaries[0].stream) or run.step.primary
        rows = stream.indices(0)
        if len(rows) < 2:
            return f"{finite}; a batch of one example has no parts"
        parts = [collate(stream.texts, chosen) for chosen in (rows, rows[:-1], rows[-1:])]
        # With equal draws the fate of a token does not depend on the other texts of its batch.
        with _EqualDraws():
            if task:
                items = [task.items(part, torch.Generator().manual_seed(3)) for part in parts[1:]]
            else:
                items = [primary_items(run.encoder.kind, part) for part in parts[1:]]
            whole, first, second = (_gradient(run, objective, part) for part in parts)
        claimed = items[0] / max(1, sum(items))
        apart = first - second
        best = float((whole - second) @ apart / (apart @ apart).clamp(min=1e-30))
        off = {share: float((whole - second - share * apart).norm()) for share in (claimed, best)}
        tolerance = 1e-4 * float(whole.norm())
        if min(off.values()) > tolerance:
            return f"{finite}; items not compared: the loss is no mean over parts of a batch"
        assert off[claimed] <= tolerance, (
            f"items are {items[0]} and {items[1]} of two parts of a batch, a share of "
            f"{claimed:.3f}, but the loss is a mean in which the first has {best:.3f}"
        )
        return f"{finite}, weighted by items as the whole batch"

    def check_encoder(self) -> str:
        prepared = self.tiny().encoder
        bare, after = untrained_encoder(prepared.kind).tensors(), prepared.tensors()
        changed = [name for name in bare if not torch.equal(bare[name], after[name].cpu())]
        assert not changed, f"prepare changes the encoder: {', '.join(changed[:3])}"
        return "unchanged by prepare"

    def check_randomness(self) -> str:
        """All randomness except dropout comes from the generator that is passed."""
        run, objective, batch = self.run(dropout=False)
        before = torch.get_rng_state()
        first, second = (_loss(run, objective, batch, seeded=False).item() for _ in range(2))
        assert torch.equal(torch.get_rng_state(), before), (
            "the loss draws from torch's global generator: use the generator that is passed"
        )
        assert first == second, f"one generator state gives losses {first} and {second}"
        return "from the generator alone"

    def check_padding(self) -> str:
        run, objective, batch = self.run(dropout=False)
        padding = int((batch.attention_mask == 0).sum())
        assert padding, "the batch has no padding"
        other = with_other_padding(batch, 17)
        first, again, second = (_loss(run, objective, one).item() for one in (batch, batch, other))
        assert first == again, f"not seen, as the loss of a batch differs: {first} and {again}"
        assert abs(first - second) <= 1e-5 * max(1.0, abs(first)), (
            f"the loss depends on the tokens in padding: {first} and {second}"
        )
        if _loss(run, objective, batch, seed=4).item() == first:  # else a longer row draws others
            wider = _loss(run, objective, with_other_padding(batch, 17, more=3)).item()
            assert abs(first - wider) <= 1e-5 * max(1.0, abs(first)), (
                f"the loss depends on how long the batch is padded: {first} and {wider}"
            )
        if isinstance(objective, MaskedLanguageModelling):
            probabilities = objective.checked_probabilities(batch)
            for row, index in zip(probabilities, batch.indices, strict=True):
                alone = objective.checked_probabilities(collate(objective.texts, index[None]))[0]
                assert torch.allclose(row[: len(alone)], alone.to(row)), (
                    f"mask probabilities of a text depend on how long it is padded: "
                    f"{float(row.max()):.3f} at most beside longer texts, {float(alone.max()):.3f} "
                    "alone"
                )
        return f"{padding} padding tokens change nothing"

    def check_weightings(self) -> str:
        for weighting in WEIGHTING_KINDS:
            try:
                run = self.tiny(self.objectives(weighting))
                require_finite(run.train())
            except Exception as error:
                raise AssertionError(f"under {weighting[0]}: {first_fault(error)}") from error
        return ", ".join(dict.fromkeys(str(name) for name, _ in WEIGHTING_KINDS))

    def cost(self) -> str:
        """Return the time of a loss and its gradients, over that of one pass of MLM."""
        run, objective, batch = self.run()
        other = self.tiny(Objectives([("random_mlm", {})]))
        mlm, its_batch = other.tasks["random_mlm"], other.batch("random_mlm")
        seconds = _seconds(lambda: _loss(run, objective, batch).backward())
        unit = _seconds(lambda: _loss(other, mlm, its_batch).backward())
        return f"{seconds / unit:.1f} times masked language modelling"


class WeightingChecks(Checks):
    """The checks of a weighting."""

    ALL = ("options", "weights", "step", "single", "frozen", "adapters", *SHARED)

    def objectives(self) -> Objectives:
        return Objectives([("random_mlm", {}), ("mask_tuning", {})], weighting=self.choice)

    def check_weights(self) -> str:
        run = self.tiny()
        weights = run.weighting.weights
        assert isinstance(weights, Tensor), f"weights are {describe(weights)}, no tensor"
        assert tuple(weights.shape) == (3,), f"weights have shape {tuple(weights.shape)}, not (3,)"
        assert weights.dtype == torch.float64, f"weights are {weights.dtype}, not float64"
        assert weights.device.type == "cpu", "weights are not on the CPU"
        assert bool(weights.isfinite().all()), f"weights are {weights.tolist()}"
        return f"at first {', '.join(f'{weight:.2f}' for weight in weights.tolist())}"

    def check_step(self) -> str:
        run = self.tiny()
        before = run.tensors()
        require_finite(run.train())
        after = run.tensors()
        assert any(
            not torch.equal(tensor, after[name])
            for name, tensor in before.items()
            if name.startswith("encoder:")
        ), "no parameter has changed after the steps"
        assert bool(run.weighting.weights.isfinite().all()), "the weights are not finite"
        left = [name for name, p in run.encoder.named_parameters() if p.grad is not None]
        assert not left, "gradients are left in .grad after the step"
        weights = run.weighting.weights.tolist()
        shown = ", ".join(f"{weight:.2f}" for weight in weights)
        note = "" if weights[0] else "; warning: the primary task is not trained"
        if min(weights) < 0:
            note += "; warning: a weight below zero raises the loss of its objective"
        return f"{STEPS} steps of 3 objectives, at the end with weights {shown}{note}"

    def check_single(self) -> str:
        run = self.tiny(Objectives(weighting=self.choice))
        require_finite(run.train())
        return "the primary task alone trains"

    def check_frozen(self) -> str:
        """A step with frozen embeddings."""
        return f"{self._train_a_part(freeze='embeddings')} frozen tensors unchanged"

    def check_adapters(self) -> str:
        """A step with low-rank adapters, unless the weighting is refused with them."""
        if find_spec("peft") is None:
            return "not checked: peft is not installed"
        if build(WEIGHTINGS, self.choice, ("primary", "other")).differentiates_twice:
            return "none: optimizer steps cannot be unrolled through adapters"
        return f"{self._train_a_part(lora_rank=2)} tensors of the body unchanged"

    def _train_a_part(self, **changes: Any) -> int:
        """Return how many tensors a step has left as they were, which all frozen ones are."""
        run = self.tiny(Objectives([("random_mlm", {})], weighting=self.choice), **changes)
        before = {name: p.detach().clone() for name, p in run.encoder.named_parameters()}
        require_finite(run.train(0, 1))
        frozen = {name for name, p in run.encoder.named_parameters() if not p.requires_grad}
        changed = {
            name for name, p in run.encoder.named_parameters() if not torch.equal(p, before[name])
        }
        assert frozen, "nothing is frozen"
        assert not changed & frozen, f"frozen, but changed: {min(changed & frozen)}"
        prefix = f"classifier.{run.encoder.classifier.base_model_prefix}."
        assert any(name.startswith(prefix) for name in changed), "no other part of the body changed"
        assert bool(run.weighting.weights.isfinite().all()), "the weights are not finite"
        return len(frozen)

    def cost(self) -> str:
        """Return the time of an optimizer step over that of ``fixed``."""
        run, fixed = self.tiny(), self.tiny(replace(self.objectives(), weighting=("fixed", {})))
        seconds, unit = _seconds(lambda: run.train(0, 1)), _seconds(lambda: fixed.train(0, 1))
        return f"{seconds / unit:.1f} times fixed"


class _EqualDraws(TorchFunctionMode):
    """Within the context, every uniform number that torch draws is :data:`EQUAL_DRAW`."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in (torch.rand, torch.rand_like, Tensor.uniform_):
            return result.fill_(EQUAL_DRAW)
        if func in (torch.bernoulli, Tensor.bernoulli) and torch.is_tensor(args[0]):
            return (args[0] > EQUAL_DRAW).to(result)
        return result


def _loss(
    run: TinyRun, objective: Objective, batch: Batch, *, seeded: bool = True, seed: int = 3
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    with rng.seeded(0, "check") if seeded else nullcontext():
        loss = run.encoder(objective.loss, batch, generator)
    if isinstance(loss, TaskResult):
        loss = loss.loss
    assert isinstance(loss, Tensor), f"loss returns {type(loss).__name__}, not a tensor"
    assert loss.ndim == 0, f"loss returns shape {tuple(loss.shape)}, not a scalar"
    return loss


def _gradient(run: TinyRun, objective: Objective, batch: Batch) -> Tensor:
    """Return the gradient of all trained parameters in one vector, float64."""
    parameters = run.step.parameters
    loss = _loss(run, objective, batch)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in gradients]).double()


def _seconds(run: Callable[[], object]) -> float:
    run()
    return statistics.median(timeit.repeat(run, number=1, repeat=REPEATS))


def check_task(
    cls: Any, options: Mapping[str, Any] | None = None, *, device: str = "cpu"
) -> Report:
    """Check an auxiliary task, with a fixed seed on a tiny model.

    Args:
        cls: The class, or its registered name.
        options: Its options.
        device: Also compare losses on this device with those on the CPU; as for ``train``.

    Raises:
        AssertionError: A check does not hold; the message lists those that do not.
        ConfigError: There is no such device, or the class is not registered.
    """
    return report(TASKS, (cls, options or {}), device=device).require()


def check_loss(
    cls: Any, options: Mapping[str, Any] | None = None, *, device: str = "cpu"
) -> Report:
    """Check a loss of the primary task; arguments and errors as for :func:`check_task`."""
    return report(LOSSES, (cls, options or {}), device=device).require()


def check_weighting(
    cls: Any, options: Mapping[str, Any] | None = None, *, device: str = "cpu"
) -> Report:
    """Check a weighting; arguments and errors as for :func:`check_task`."""
    return report(WEIGHTINGS, (cls, options or {}), device=device).require()


def report(
    registry: Registry, choice: Choice, *, device: str = "cpu", resume: bool = True
) -> Report:
    """Return the report of a plug-in of any kind, whatever it finds; to kill and ``resume`` a whole
    run takes as long as all other checks.
    """
    is_class = isinstance(choice[0], type) and isinstance(getattr(choice[0], "name", None), str)
    if not isinstance(choice[0], str) and not is_class:
        raise ConfigError(
            f"{describe(choice[0])} is no registered {registry.kind}: decorate the class by the "
            "register function of auxlearn.plugins"
        )
    bases = {TASKS: AuxiliaryTask, LOSSES: PrimaryLoss, WEIGHTINGS: Weighting}
    for other, base in bases.items():
        if other is not registry and isinstance(choice[0], type) and issubclass(choice[0], base):
            raise ConfigError(f"{choice[0].name}: {other.kind}, and no {registry.kind}")
    chosen = choose_compute(validate(RunConfig, {"device": device}, "settings").device).device
    wanted = {"device": chosen.type != "cpu", "resume": resume}
    with tempfile.TemporaryDirectory(prefix="auxlearn-check-") as folder:
        kind = WeightingChecks if registry is WEIGHTINGS else ObjectiveChecks
        checks = kind(registry, choice, Path(folder), chosen)
        results = Report(f"{registry.kind} '{checks.name}'")
        for name in checks.ALL:
            if not wanted.get(name, True):
                continue
            results.checks.append(_result(name, getattr(checks, f"check_{name}")))
            if results.failed and name in ("options", "loss", "weights"):
                return results  # nothing else can be said
        if not results.failed:
            results.checks.append(Check("cost", None, checks.cost()))
    return results


def _result(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        fault = first_fault(error) if isinstance(error, AssertionError) else named_fault(error)
        return Check(name, False, fault or "failed")
