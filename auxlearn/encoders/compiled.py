"""Compilation of the shared body with ``torch.compile``.

The body is compiled in place, so that parameters, their names, checkpoints and exports do not
change. Only training passes are compiled: scoring, evaluations and the validation gradient run
eagerly, and their results are those of the exported model
(:meth:`~auxlearn.encoders.shared.SharedEncoder.evaluating`).

The compiler specialises code for the shapes of the first batch, which is another one in a resumed
run. The body is therefore compiled with a fixed artificial batch, the same in every process.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from auxlearn.core import rng
from auxlearn.core.errors import ConfigError, first_line
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder

#: Batch size and length of the artificial batch.
FIRST_BATCH = (8, 32)


def check_compiler(device: torch.device) -> None:
    """Check early that ``torch.compile`` works, by compiling a sum."""
    try:
        x = torch.ones(16, device=device)
        torch.compile(lambda x: x.sin() + x.cos(), dynamic=True)(x)
    # Backends, drivers and compilers raise exceptions of any type.
    except Exception as error:
        raise ConfigError(
            "torch.compile does not work on this machine "
            f"({first_line(error) or type(error).__name__}): install a C++ compiler such as g++, "
            "or leave --compile out"
        ) from None


def compile_body(
    encoder: SharedEncoder, autocast: Callable[[], AbstractContextManager[None]]
) -> None:
    """Compile the body in place, for batches of any shape."""
    torch.compiler.reset()  # forget what an earlier run of this process has compiled
    encoder.body.compile(dynamic=True)
    rows, length = FIRST_BATCH
    pad = encoder.tokenizer.pad_token_id
    mask = torch.ones(rows, length, dtype=torch.long)
    padded = mask.clone()
    padded[0, length // 2 :] = 0
    has_segments = "token_type_ids" in encoder.tokenizer.model_input_names
    was = encoder.training
    encoder.train()
    parameters = [p for p in encoder.body_parameters() if p.requires_grad]
    for attention in (mask, padded):
        ids = torch.full_like(mask, encoder.tokenizer.mask_token_id).where(attention.bool(), pad)
        batch = Batch(
            input_ids=ids,
            attention_mask=attention,
            maskable=attention.bool(),
            words=torch.zeros_like(mask),
            indices=torch.arange(rows),
            token_type_ids=torch.zeros_like(mask) if has_segments else None,
        )
        with rng.seeded(0, "compile", device=encoder.device), autocast():
            hidden = encoder.encode(batch).last_hidden_state
        torch.autograd.grad(hidden.float().sum(), parameters, allow_unused=True)
    encoder.train(was)
