"""Copies of an encoder on several devices, which share out work that needs no training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from queue import SimpleQueue
from typing import TypeVar

import torch

from auxlearn.encoders.shared import SharedEncoder

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


def scoring_devices(encoder: SharedEncoder) -> list[torch.device]:
    """Return the encoder's device and, if that is a GPU, the other visible GPUs."""
    own = encoder.device
    if own.type != "cuda":
        return [own]
    number = torch.cuda.current_device() if own.index is None else own.index
    others = [n for n in range(torch.cuda.device_count()) if n != number]
    return [own, *(torch.device("cuda", n) for n in others)]


def map_on_replicas(
    encoder: SharedEncoder,
    devices: Sequence[torch.device],
    work: Callable[[SharedEncoder, Item], Result],
    items: Iterable[Item],
) -> list[Result]:
    """Work through items on several devices at once, one thread and one replica for each.

    The other devices are a help, not a need. One that cannot hold a replica, or on which memory
    runs out, is left out with a warning, and what it was at is done elsewhere. At the end the
    replicas are dropped and their memory is given back; what CUDA itself holds on a device that a
    process has used stays until the process ends.

    Args:
        encoder: The encoder; it works on the first device, on which it is. It is copied to the
            others as it is now.
        devices: Where to work; with one, nothing is copied and no thread started.
        work: Called with an encoder that no other thread uses, and an item.
        items: What there is to do; whoever is free takes the next.

    Returns:
        The results, in the order of the items.

    Raises:
        Exception: What ``work`` raised for the earliest item, on the encoder's own device or for
            another reason than memory; items not yet begun are left.
    """
    if len(devices) == 1:
        return [work(encoder, item) for item in items]
    try:
        return _with_replicas(encoder, devices[1:], work, items)
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _with_replicas(
    encoder: SharedEncoder,
    others: Sequence[torch.device],
    work: Callable[[SharedEncoder, Item], Result],
    items: Iterable[Item],
) -> list[Result]:
    free: SimpleQueue[SharedEncoder] = SimpleQueue()
    free.put(encoder)
    for device in others:
        replica = _copied(encoder, device)
        if replica is not None:
            free.put(replica)

    def run(item: Item) -> Result:
        while True:
            one = free.get()
            try:
                result = work(one, item)
            except Exception as error:
                if one is not encoder and _out_of_memory(error):
                    _leave_out(one.device, error)  # and not back into the queue
                    continue
                free.put(one)
                raise
            free.put(one)
            return result

    with ThreadPoolExecutor(free.qsize(), thread_name_prefix="replica") as pool:
        return list(pool.map(run, items))


def _copied(encoder: SharedEncoder, device: torch.device) -> SharedEncoder | None:
    """Return a replica on a device, or ``None`` if the device has no room for it."""
    try:
        return deepcopy(encoder).to(device)
    # A device that another program fills or holds alone raises plain errors of CUDA, too.
    except RuntimeError as error:
        _leave_out(device, error)
        return None


def _leave_out(device: torch.device, error: BaseException) -> None:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    logger.warning("%s does not take part in scoring: %s", device, reason)


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or isinstance(
        error.__cause__, torch.OutOfMemoryError
    )
