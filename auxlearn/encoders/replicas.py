"""Copies of an encoder on several devices, which share out work that needs no training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from queue import SimpleQueue
from typing import TypeVar

import torch

from auxlearn.encoders.shared import SharedEncoder

Item = TypeVar("Item")
Result = TypeVar("Result")


def devices_beside(encoder: SharedEncoder) -> list[torch.device]:
    """Return the encoder's device and, if that is a GPU, the other visible GPUs."""
    own = encoder.device
    if own.type != "cuda":
        return [own]
    number = torch.cuda.current_device() if own.index is None else own.index
    others = [n for n in range(torch.cuda.device_count()) if n != number]
    return [own, *(torch.device("cuda", n) for n in others)]


def share_out(
    encoder: SharedEncoder,
    devices: Sequence[torch.device],
    work: Callable[[SharedEncoder, Item], Result],
    items: Iterable[Item],
) -> list[Result]:
    """Work through items on several devices at once, one thread and one replica for each.

    Args:
        encoder: The encoder; it works on the first device, on which it is. It is copied to the
            others as it is now, and the copies are dropped at the end.
        devices: Where to work; with one, nothing is copied and no thread started.
        work: Called with an encoder that no other thread uses, and an item.
        items: What there is to do; whoever is free takes the next.

    Returns:
        The results, in the order of the items.

    Raises:
        Exception: What ``work`` raised for the earliest item; items not yet begun are left.
    """
    if len(devices) == 1:
        return [work(encoder, item) for item in items]
    free: SimpleQueue[SharedEncoder] = SimpleQueue()
    free.put(encoder)
    for device in devices[1:]:
        free.put(deepcopy(encoder).to(device))

    def run(item: Item) -> Result:
        replica = free.get()
        try:
            return work(replica, item)
        finally:
            free.put(replica)

    with ThreadPoolExecutor(len(devices), thread_name_prefix="replica") as pool:
        return list(pool.map(run, items))
