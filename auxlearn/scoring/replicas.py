"""Replicas of an encoder on several devices for work without training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from queue import SimpleQueue
from typing import TypeVar

import torch

from auxlearn.core.processes import process_count
from auxlearn.encoders.shared import SharedEncoder

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


def scoring_devices(encoder: SharedEncoder) -> list[torch.device]:
    """Return the devices for scoring: the encoder's, and all visible GPUs if that is a GPU."""
    own = encoder.device
    if own.type != "cuda" or process_count() > 1:  # each process has a GPU of its own
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
    """Apply a function to items in parallel, with one thread and one replica per device.

    Devices other than the encoder's are optional. A device that does not have the memory for a
    replica, or that runs out of memory later, is excluded with a warning, and its item is computed
    on another. At the end the replicas and their memory are freed; the CUDA context of each used
    device remains until the process ends.

    Args:
        encoder: The encoder, on the first of the devices; it is copied to the others.
        devices: The devices; if there is only one, nothing is copied and no thread is started.
        work: Called with an encoder that no other thread uses, and an item.
        items: The items; a free device takes the next one.

    Returns:
        The results, in the order of the items.

    Raises:
        Exception: What ``work`` raised for the earliest item, unless it ran out of memory on a
            device other than the encoder's; items not yet begun are dropped.
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
        replica = _replicate(encoder, device)
        if replica is not None:
            free.put(replica)

    def run(item: Item) -> Result:
        while True:
            replica = free.get()
            try:
                result = work(replica, item)
            except Exception as error:
                if replica is not encoder and _out_of_memory(error):
                    _warn_excluded(replica.device, error)  # and not put back into the queue
                    continue
                free.put(replica)
                raise
            free.put(replica)
            return result

    with ThreadPoolExecutor(free.qsize(), thread_name_prefix="replica") as pool:
        return list(pool.map(run, items))


def _replicate(encoder: SharedEncoder, device: torch.device) -> SharedEncoder | None:
    """Return a replica on a device, or ``None`` if the device does not have the memory."""
    try:
        return deepcopy(encoder).to(device)
    # A device that another process has filled or locked raises plain RuntimeErrors of CUDA.
    except RuntimeError as error:
        _warn_excluded(device, error)
        return None


def _warn_excluded(device: torch.device, error: BaseException) -> None:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    logger.warning("%s is not used for scoring: %s", device, reason)


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or isinstance(
        error.__cause__, torch.OutOfMemoryError
    )
