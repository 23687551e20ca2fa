"""Named random streams: every draw is a function of the run's seed and of what it is for.

A draw depends on the seed, the purpose and the step, and on nothing that was drawn before it.
So adding an auxiliary task leaves the batches and dropout masks of the primary task as they
were, and a resumed run needs no saved generator states to go on exactly as before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed for one purpose, such as ``derive_seed(0, "l3mask", "mask", 17)``."""
    text = "\x1f".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a CPU generator for one purpose."""
    import torch

    return torch.Generator().manual_seed(derive_seed(seed, *purpose))


@contextmanager
def seeded(seed: int, *purpose: str | int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generators within the block and put them back after it.

    Dropout and fresh layers draw from the global generators and take no other; this is the one
    way this package touches them, and it leaves no trace.
    """
    import torch

    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derive_seed(seed, *purpose))
        yield
