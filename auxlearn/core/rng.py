"""Named random streams: seeds and generators derived from a run's seed and a purpose.

Numbers do not depend on those drawn before, so that an auxiliary task leaves the batches and
dropout masks of the primary task unchanged, and a resumed run needs no saved generator states.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


#: Held by the thread that uses what a process has once: torch's generators, the log level of
#: transformers, the style of matplotlib, the filters of warnings.
ONE_THREAD = threading.RLock()


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed for one purpose; different purposes give independent streams."""
    text = "\x1f".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a CPU generator for a purpose; arguments as for :func:`derive_seed`."""
    import torch

    return torch.Generator().manual_seed(derive_seed(seed, *purpose))


@contextmanager
def seeded(seed: int, *purpose: str | int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generators within the context and restore them afterwards.

    Dropout and newly initialised layers accept no other generators. Those of other devices stay.
    """
    import torch

    generators = [torch.default_generator]
    if device is not None and device.type != "cpu":
        module = torch.get_device_module(device)
        current = module.current_device()  # initialises CUDA's generators if necessary
        number = current if device.index is None else device.index
        generators.append(module.default_generators[number])
    with ONE_THREAD:
        states = [generator.get_state() for generator in generators]
        try:
            for generator in generators:
                generator.manual_seed(derive_seed(seed, *purpose))
            yield
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)
