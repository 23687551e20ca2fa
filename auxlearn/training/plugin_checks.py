"""Checks of what plug-ins do: a plug-in that misbehaves is named in one line.

The code of this package is trusted; an exception in it is a fault of the package and stays what it
is. Everything else that raises, or returns what it should not, is a fault of the plug-in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from auxlearn.core.errors import (
    ConfigError,
    PluginError,
    blamed_on,
    describe,
    plugin_title,
)
from auxlearn.data.batches import Batch
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.tasks.base import TaskResult


@contextmanager
def calling(
    plugin: object,
    method: str,
    name: str | None = None,
    inputs: Batch | TokenizedTexts | None = None,
) -> Iterator[None]:
    """Name the plug-in whose method raises, or changes its ``inputs`` in place, in one line."""
    gradients = torch.is_grad_enabled()
    before = versions_of(inputs)
    try:
        with blamed_on(plugin, method, name):
            yield
        counts = versions_of(inputs).items()
        if changed := [key for key, count in counts if count != before[key]]:
            raise PluginError(
                f"{plugin_title(plugin, name)} changes {changed[0]} in place in {method}: change a "
                f"copy, such as {changed[0]}.clone()"
            )
    finally:
        torch.set_grad_enabled(gradients)


def versions_of(inputs: Batch | TokenizedTexts | None) -> dict[str, int]:
    """Return how often each tensor was changed in place, as torch counts it."""
    if inputs is None:
        return {}
    values = {field.name: getattr(inputs, field.name) for field in fields(inputs)}
    tensors = {key: tensor for key, tensor in values.items() if isinstance(tensor, Tensor)}
    return {key: tensor._version for key, tensor in tensors.items() if not tensor.is_inference()}


def check_loss(plugin: object, name: str, loss: object) -> None:
    """Refuse the loss of an objective that is no scalar tensor with a graph."""
    wrong = ""
    if not isinstance(loss, Tensor):
        wrong = "None" if loss is None else f"a {type(loss).__name__}"
    elif loss.dim() != 0:
        wrong = f"a tensor of shape {tuple(loss.shape)}"
    elif not loss.is_floating_point():
        wrong = f"a tensor of dtype {loss.dtype}"
    elif torch.is_grad_enabled() and loss.grad_fn is None:  # a leaf, or without a gradient
        wrong = "a tensor without a graph, which trains nothing"
    if wrong:
        raise PluginError(
            f"the loss of {plugin_title(plugin, name)} is {wrong}: return a finite scalar tensor "
            "that is computed with the encoder"
        )


def check_result(plugin: object, name: str, result: TaskResult, batch: Batch) -> None:
    """Check what a task returns besides a loss: a batch with its mask, and losses of members."""
    wrong = ""
    primary, replaced = result.primary, result.replaced
    count = len(getattr(plugin, "members", ()))
    if bool(result.members) != bool(count) or not set(result.members) <= set(range(count)):
        wrong = f"it has losses of the members {sorted(result.members)}, and declares {count}"
    elif primary is not None and not isinstance(primary, Batch):
        wrong = f"its primary is a {type(primary).__name__}, not a Batch"
    elif primary is not None and (not len(primary) or primary.targets is None):
        wrong = "its primary has no labelled examples"
    elif replaced is not None and (
        not isinstance(replaced, Tensor) or replaced.shape != batch.input_ids.shape
    ):
        wrong = f"its replaced is not of shape {tuple(batch.input_ids.shape)}"
    if wrong:
        raise PluginError(f"the result of {plugin_title(plugin, name)} does not fit: {wrong}")


def check_sampled(plugin: Any, name: str, numbers: tuple[Any, ...]) -> None:
    """Check that the members of a step are some of those that a task declares."""
    count = len(plugin.members)
    if not numbers or not all(number in range(count) for number in numbers):
        raise PluginError(
            f"sampled of {plugin_title(plugin, name)} returns {describe(numbers)}, and not numbers "
            f"of its members, which are 0 to {count - 1}"
        )


def check_prepared(plugin: object, name: str) -> None:
    """Check that a task with batches of its own has texts after ``prepare``."""
    batches, texts, size = (getattr(plugin, n, None) for n in ("batches", "texts", "batch_size"))
    members = getattr(plugin, "members", ())
    if not isinstance(members, tuple | list) or not all(isinstance(m, Mapping) for m in members):
        raise PluginError(
            f"members of {plugin_title(plugin, name)} is {describe(members)}: give a tuple with "
            "the factors of each by axis, such as ({'output': 'first'}, {'output': 'last'})"
        )
    if batches not in ("own", "primary"):
        raise PluginError(f"batches of {plugin_title(plugin, name)} is neither 'own' nor 'primary'")
    if batches == "own" and not hasattr(plugin, "texts"):
        raise PluginError(
            f"{plugin_title(plugin, name)} has set no texts in prepare: call "
            "super().prepare(context), or set batches = 'primary'"
        )
    wrong = ""
    if texts is not None and not (isinstance(texts, TokenizedTexts) and len(texts)):
        wrong = "its texts are no TokenizedTexts with a text in them"
    elif size is not None and not (isinstance(size, int) and size > 0):
        wrong = f"its batch_size is {describe(size)}, neither None nor a positive whole number"
    if wrong:
        raise PluginError(f"{plugin_title(plugin, name)} is not ready after prepare: {wrong}")


def check_stepped(weighting: object, done: bool, fault: str) -> None:
    """Refuse a rule whose steps have not done what trains a model."""
    if not done:
        raise PluginError(
            f"step of {plugin_title(weighting)} {fault}: call step.backward(weights) or "
            "step.gradients(), then step.optimizer_step()"
        )


def check_weights(
    weighting: object, step: int, unusable: tuple[int, dict[str, float]] | None
) -> None:
    """Refuse a rule that gave weights that are no numbers at a step whose losses are finite."""
    if unusable is not None and unusable[0] == step:
        raise PluginError(
            f"the weights by {plugin_title(weighting)} are {describe(unusable[1])} at step {step}, "
            "whose losses are finite: return finite weights"
        )


def check_frozen(
    plugin: object, name: str, parameters: Iterable[Tensor], method: str = "loss"
) -> None:
    if not all(parameter.requires_grad for parameter in parameters):
        raise PluginError(
            f"{method} of {plugin_title(plugin, name)} has frozen trained parameters: use detach() "
            "in it"
        )


def state_of(plugin: Any) -> dict[str, Tensor]:
    """Return what an objective or a weighting keeps for a resumed run."""
    with calling(plugin, "state_dict"):
        state: Any = plugin.state_dict()
    wrong = None
    if not isinstance(state, dict):
        wrong = f"a {type(state).__name__}"
    for key, value in {} if wrong else state.items():
        if not (isinstance(key, str) and isinstance(value, Tensor)):
            wrong = f"a {type(value).__name__} for '{key}'"
        elif key == "__metadata__" or not key.isprintable():  # no file can hold it
            wrong = f"a tensor named {key!a}"
        elif value.is_meta or value.layout != torch.strided:
            wrong = f"a tensor without values of its own, or a sparse one, for '{key}'"
    if wrong:
        raise PluginError(
            f"state_dict of {plugin_title(plugin)} returns {wrong}: return tensors by name, a "
            "number as torch.tensor(number)"
        )
    return dict(state)


MOST_METRICS = 1000  # that a method returns at a time


def numbers_of(
    plugin: object, method: str, *arguments: object, name: str | None = None
) -> dict[str, float]:
    """Return the metrics that a method of a plug-in returns, as numbers that JSON can hold."""
    with calling(plugin, method, name):
        metrics = getattr(plugin, method)(*arguments)
        if len(metrics) > MOST_METRICS:
            raise PluginError(
                f"{method} of {plugin_title(plugin, name)} returns {len(metrics):,} metrics: "
                f"return at most {MOST_METRICS:,}"
            )
        numbers = {str(k): v if isinstance(v, int) else float(v) for k, v in metrics.items()}
    if any(abs(number) >= 2**63 for number in numbers.values() if isinstance(number, int)):
        raise PluginError(
            f"{method} of {plugin_title(plugin, name)} returns a number of over 18 digits"
        )
    return numbers


def leaves(loss: Tensor) -> list[Tensor]:
    """Return the leaf tensors of the autograd graph of a loss."""
    tensors: list[Tensor] = []
    seen, queue = set(), [loss.grad_fn]
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):  # only nodes that accumulate the gradient of a leaf
            tensors.append(node.variable)
        queue.extend(following for following, _ in node.next_functions)
    return tensors


def check_trained(objective: str, owner: object, loss: Tensor, trained: Collection[int]) -> None:
    """Refuse a loss that depends on parameters which no optimizer updates and no checkpoint has."""
    untrained = [leaf for leaf in leaves(loss) if id(leaf) not in trained]
    if not untrained:
        return
    names = {id(parameter): name for name, parameter in _named_tensors(owner)}
    listed = sorted(
        names.get(id(leaf), f"a parameter of shape {tuple(leaf.shape)}") for leaf in untrained
    )
    raise ConfigError(
        f"the loss of '{objective}' ({type(owner).__name__}) reaches parameters that nothing "
        f"trains: {', '.join(listed)}. Add layers of its own by context.add_head and call "
        "encoder.apply_head; or, to hold them fixed, call requires_grad_(False) on them"
    )


def _named_tensors(owner: object) -> Iterator[tuple[str, Tensor]]:
    for attribute, value in vars(owner).items():
        if isinstance(value, nn.Module):
            for name, parameter in value.named_parameters():
                yield f"{attribute}.{name}", parameter
        elif isinstance(value, Tensor):
            yield attribute, value
