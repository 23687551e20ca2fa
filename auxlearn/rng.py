"""Named random streams: every draw is a function of the run's seed and of what it is for.

A draw depends on the seed, the purpose and the step, and on nothing that was drawn before it.
So adding an auxiliary task leaves the batches and dropout masks of the primary task as they
were, and a resumed run needs no saved generator states to draw exactly what it would have drawn.
On the CPU it then computes the same digits; on a GPU some sums have no fixed order (those in the
backward passes of fused attention), and digits differ although no draw does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed for one purpose.

    Seeds of different purposes give independent random streams.

    Args:
        seed: Seed of the run.
        purpose: What is drawn, such as ``"l3mask", "mask", 17``.

    Examples:
        >>> derive_seed(0, "l3mask", "mask", 17) == derive_seed(0, "l3mask", "mask", 17)
        True
        >>> derive_seed(0, "l3mask", "mask", 17) == derive_seed(0, "l3mask", "mask", 18)
        False
    """
    text = "\x1f".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a CPU generator for one purpose."""
    import torch

    return torch.Generator().manual_seed(derive_seed(seed, *purpose))


@contextmanager
def seeded(seed: int, *purpose: str | int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generators within the block and put them back after it.

    Dropout and newly initialised layers draw from the global generators and take no other; this is
    the one way this package touches them, and it leaves no trace: not on the devices of others
    either, which ``torch.manual_seed`` would seed.

    Args:
        seed: The run's seed.
        purpose: What is drawn.
        device: Where it is drawn beside the CPU.
    """
    import torch

    generators = [torch.default_generator]
    if device is not None and device.type != "cpu":
        module = torch.get_device_module(device)
        current = module.current_device()  # makes the generators of CUDA, if nothing has yet
        number = current if device.index is None else device.index
        generators.append(module.default_generators[number])
    states = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(derive_seed(seed, *purpose))
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
