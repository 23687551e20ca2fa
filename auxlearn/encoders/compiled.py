"""The shared body through ``torch.compile``: fewer passes over memory, after a slow start.

The body is compiled in place, so that parameters, their names, checkpoints and exports stay what
they are. Only what has a graph is compiled: scoring, evaluations and the validation gradient run
as they are written, and their figures are those of the exported model
(:meth:`~auxlearn.encoders.shared.SharedEncoder.evaluating`).

The compiler writes code for the shapes that it sees first, and a resumed run sees another batch
first. So the first batch is one that is made up here, the same in every process.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from auxlearn import rng
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.errors import ConfigError

#: Rows and tokens of the batch that is compiled for.
FIRST_BATCH = (8, 32)


def check_compiler(device: torch.device) -> None:
    """Compile a sum, to find out at once whether anything can be compiled here.

    Raises:
        ConfigError: It cannot: there is no C++ compiler, or no Triton on a GPU.
    """
    try:
        x = torch.ones(16, device=device)
        torch.compile(_try, dynamic=True)(x)
    # Backends, drivers and compilers raise whatever they like.
    except Exception as error:
        lines = str(error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise ConfigError(
            f"torch.compile does not work on this machine ({reason}): install a C++ compiler "
            "such as g++, or leave --compile out"
        ) from None


def _try(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + x.cos()


def compile_body(
    encoder: SharedEncoder, autocast: Callable[[], AbstractContextManager[None]]
) -> None:
    """Compile the body in place, for batches of any shape.

    Args:
        encoder: The encoder, on its device; its weights and modes are left as they are.
        autocast: Gives the context that forward passes will run in.
    """
    torch.compiler.reset()  # what an earlier run of this process has compiled must not count
    encoder.body.compile(dynamic=True)
    rows, length = FIRST_BATCH
    pad = encoder.tokenizer.pad_token_id
    mask = torch.ones(rows, length, dtype=torch.long)
    padded = mask.clone()
    padded[0, length // 2 :] = 0
    was = encoder.training
    encoder.train()
    parameters = [p for p in encoder.body_parameters() if p.requires_grad]
    for attention in (mask, padded):
        ids = torch.full_like(mask, encoder.tokenizer.mask_token_id).where(attention.bool(), pad)
        types = torch.zeros_like(mask) if _has_segments(encoder) else None
        batch = Batch(
            input_ids=ids,
            attention_mask=attention,
            maskable=attention.bool(),
            words=torch.zeros_like(mask),
            indices=torch.arange(rows),
            token_type_ids=types,
        )
        with rng.seeded(0, "compile", device=encoder.device), autocast():
            hidden = encoder.encode(batch).last_hidden_state
        torch.autograd.grad(hidden.float().sum(), parameters, allow_unused=True)
    encoder.train(was)


def _has_segments(encoder: SharedEncoder) -> bool:
    return "token_type_ids" in encoder.tokenizer.model_input_names
