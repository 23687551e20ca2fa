"""What processes that train together sum: gradients, rows of a batch, gradients at tokens.

A sum of gradients is made in buckets, each of which is sent as soon as its gradients are known. The
order of the buckets follows the parameters alone, so that it is the same in all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from auxlearn.core.processes import Processes, buckets
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.training.plugin_checks import leaves
from auxlearn.weighting.gradients import Gradient


def add_gradient(total: Gradient, gradient: Sequence[Tensor | None]) -> None:
    """Add a gradient to a total out of place: autograd may return one for several parameters."""
    for number, addend in enumerate(gradient):
        old = total[number]
        if addend is not None:
            total[number] = addend if old is None else old + addend


class GradientSum:
    """The sum of a gradient over all processes; ``like``: the trained parameters."""

    def __init__(self, processes: Processes, like: Sequence[Tensor]) -> None:
        self.processes = processes
        self.like = list(like)
        # Backward passes reach the last layers first.
        last = len(like) - 1
        from_last = buckets([*reversed(self.like)])
        self._buckets = [[last - number for number in bucket] for bucket in from_last]
        self._sent: list[tuple[Tensor, Callable[[], None]]] = []

    def send(self, gradient: Sequence[Tensor | None]) -> None:
        """Begin to sum all buckets that have not been sent."""
        while len(self._sent) < len(self._buckets):
            self._send_next(gradient)

    @contextmanager
    def sending(self, loss: Tensor, parameters: Sequence[Tensor]) -> Iterator[None]:
        """Send each bucket of ``.grad`` once the backward pass of the last loss has reached it."""
        place = {id(parameter): number for number, parameter in enumerate(parameters)}
        missing = {place[id(leaf)] for leaf in leaves(loss) if id(leaf) in place}

        def arrived(parameter: Tensor) -> None:
            missing.discard(place[id(parameter)])
            while len(self._sent) < len(self._buckets):
                if not missing.isdisjoint(self._buckets[len(self._sent)]):
                    break
                self._send_next([parameter.grad for parameter in parameters])

        hooks = [
            parameters[number].register_post_accumulate_grad_hook(arrived) for number in missing
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _send_next(self, gradient: Sequence[Tensor | None]) -> None:
        members = self._buckets[len(self._sent)]
        grads = [gradient[number] for number in members]
        parts = [
            torch.zeros_like(self.like[number]) if grad is None else grad.detach()
            for number, grad in zip(members, grads, strict=True)
        ]
        present = torch.tensor([grad is not None for grad in grads], dtype=parts[0].dtype)
        present = upload(present, parts[0].device)
        flat = torch.cat([*(part.reshape(-1) for part in parts), present])
        self._sent.append((flat, self.processes.adding(flat)))

    def receive(self) -> Gradient:
        places, parts, present = [], [], []
        for members, (flat, wait) in zip(self._buckets, self._sent, strict=True):
            wait()
            *pieces, counts = flat.split([*(self.like[n].numel() for n in members), len(members)])
            places += members
            parts += pieces
            present.append(counts.double())
        total: Gradient = [None] * len(self.like)
        counted = torch.cat(present).tolist() if present else []  # the device is read once
        for place, part, count in zip(places, parts, counted, strict=True):
            if count:
                total[place] = part.view_as(self.like[place])
        return total


class ObjectiveSums:
    """Gradients of objectives, each summed over processes once its ``counts`` are complete."""

    def __init__(
        self,
        processes: Processes,
        like: Sequence[Tensor],
        order: Sequence[str],
        counts: Mapping[str, int],
    ) -> None:
        self._processes = processes
        self._like = like
        self._totals: dict[str, Gradient] = {name: [None] * len(like) for name in order}
        self._left = {name: counts.get(name, 0) for name in order}
        self._sums: dict[str, GradientSum] = {}
        self._send_complete()

    def add(self, name: str, gradient: Sequence[Tensor | None]) -> None:
        add_gradient(self._totals[name], gradient)
        self._left[name] -= 1
        self._send_complete()

    def _send_complete(self) -> None:
        for name, total in self._totals.items():
            if self._left[name] or self._processes.count == 1:
                return
            if name not in self._sums:
                self._sums[name] = GradientSum(self._processes, self._like)
                self._sums[name].send(total)

    def receive(self, name: str) -> Gradient:
        return self._sums[name].receive() if self._sums else self._totals[name]


@contextmanager
def summed_grad(processes: Processes, parameters: Sequence[Tensor]) -> Iterator[GradientSum | None]:
    """Add to ``.grad`` the sum, over all processes, of what the block leaves there."""
    if processes.count == 1:
        yield None
        return
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    total = GradientSum(processes, parameters)
    yield total
    total.send([parameter.grad for parameter in parameters])
    add_gradient(before, total.receive())
    for parameter, grad in zip(parameters, before, strict=True):
        parameter.grad = grad


def sum_gradient(processes: Processes, gradient: Gradient, like: Sequence[Tensor]) -> Gradient:
    if processes.count == 1:
        return gradient
    total = GradientSum(processes, like)
    total.send(gradient)
    return total.receive()


def join_rows(processes: Processes, rows: Tensor, shape: Sequence[int], first: int) -> Tensor:
    """Return the rows of all processes, of a ``shape``; those of this one keep their graph."""
    if processes.count == 1:
        return rows
    whole = rows.new_zeros(shape)
    place = (slice(first, first + len(rows)), *(slice(size) for size in rows.shape[1:]))
    whole[place] = rows.detach()
    processes.add(whole)
    if rows.requires_grad:
        whole[place] = rows
    return whole


class Observed:
    """Token ids and gradients of the primary loss at the tokens, by micro-batch of a step."""

    def __init__(self, encoder: SharedEncoder) -> None:
        self._encoder = encoder
        self._passes: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def watched(self, micro_batch: int) -> AbstractContextManager[None]:
        def report(token_ids: Tensor, gradients: Tensor) -> None:
            self._passes.setdefault(micro_batch, []).append((token_ids, gradients))

        return self._encoder.watching_embeddings(report)

    def of_whole_batches(self, processes: Processes) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ids and gradients of the whole batch, once for each pass that the loss made."""
        table = self._encoder.body.get_input_embeddings().weight
        local = {
            number: [list(ids.shape) for ids, _ in passes]
            for number, passes in self._passes.items()
        }
        shapes: dict[int, list[list[int]]] = {}
        for part in processes.gather(sorted(local.items())):
            shapes |= dict(part)
        for turn in range(max(map(len, shapes.values()), default=0)):
            parts = [(n, *shapes[n][turn]) for n in sorted(shapes) if turn < len(shapes[n])]
            rows, length = sum(part[1] for part in parts), max(part[2] for part in parts)
            ids = torch.zeros(rows, length, dtype=torch.int64)
            gradients = torch.zeros(rows, length, table.shape[1], dtype=table.dtype)
            first = 0
            for number, size, width in parts:
                if number in self._passes:
                    place = (slice(first, first + size), slice(width))
                    ids[place], gradients[place] = self._passes[number][turn]
                first += size
            processes.add(ids)
            processes.add(gradients)
            yield ids, gradients
        self._passes = {}


class _Sum(torch.autograd.Function):
    """The sum of a gradient over all processes, whose derivative is summed likewise."""

    @staticmethod
    def forward(ctx: Any, processes: Processes, like: Sequence[Tensor], *gradient: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.processes = processes
        ctx.present = [grad is not None for grad in gradient]
        total = sum_gradient(processes, list(gradient), like)
        ctx.summed = [like[n] for n, grad in enumerate(total) if grad is not None]
        ctx.places = [n for n, grad in enumerate(total) if grad is not None]
        return tuple(total)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> Any:
        total = sum_gradient(ctx.processes, [outer[n] for n in ctx.places], ctx.summed)
        gradients: list[Tensor | None] = [None] * len(outer)
        for place, grad in zip(ctx.places, total, strict=True):
            gradients[place] = grad if ctx.present[place] else None
        return (None, None, *gradients)


def sum_with_graph(processes: Processes, gradient: Gradient, like: Sequence[Tensor]) -> Gradient:
    """Return the sum of a gradient over all processes, to be differentiated once."""
    if processes.count == 1:
        return gradient
    places = [place for place, tensor in enumerate(like) if tensor.requires_grad]
    shapes = [like[place].detach() for place in places]
    total: Gradient = [None] * len(gradient)
    summed = _Sum.apply(processes, shapes, *(gradient[place] for place in places))
    for place, grad in zip(places, summed, strict=True):
        total[place] = grad
    return total
