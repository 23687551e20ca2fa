"""Where and how an encoder computes: device, precision, attention."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from auxlearn.core.errors import ConfigError, first_line
from auxlearn.core.processes import process_count


def default_device() -> torch.device:
    """Return the CUDA device if there is one, else the CPU: others have not been tested."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def usual_torch() -> Iterator[None]:
    """Compute within the block with gradients, in single precision, without autocast and with new
    tensors on the CPU, whatever the caller has switched for this thread or as torch's default.
    """
    elsewhere = torch.get_default_device().type != "cpu"
    with (
        _SINGLE_PRECISION,
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autocast(default_device().type, enabled=False),
        torch.device("cpu") if elsewhere else nullcontext(),
    ):
        yield


class _SinglePrecision:
    """Makes tensors in single precision and multiplies them without TF32 or bfloat16. Threads share
    these settings: the first of their blocks saves those of the caller, the last restores them.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._blocks = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._blocks:
                self._save()
            self._blocks += 1
            torch.set_default_dtype(torch.float32)
            torch.set_float32_matmul_precision("highest")

    def _save(self) -> None:
        onednn: Any = torch.backends.mkldnn
        backends = (onednn.matmul, torch.backends.cuda.matmul)
        self._dtype = torch.get_default_dtype()
        self._backends = [(backend, backend.fp32_precision) for backend in backends]
        try:
            self._legacy = torch.get_float32_matmul_precision()
        except RuntimeError:  # the backends are switched otherwise than all at once
            self._legacy = "highest"

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                torch.set_default_dtype(self._dtype)
                torch.set_float32_matmul_precision(self._legacy)
                for backend, precision in self._backends:
                    backend.fp32_precision = precision


_SINGLE_PRECISION = _SinglePrecision()


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without blocking the host; from the CPU by pinned memory, so that
    it overlaps with computation and the tensor must not be modified afterwards.
    """
    if tensor.device.type == "cpu" and device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


@dataclass(frozen=True)
class Compute:
    """Device of a run, and the autocast context of its forward passes."""

    device: torch.device
    autocast: Callable[[], AbstractContextManager[None]]


def choose_compute(device: str = "auto", precision: str = "fp32") -> Compute:
    """Return what a device and a precision name; each of several processes has its own GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device 'cuda' is requested, but CUDA is not available: use --device cpu or auto"
        )
    chosen = default_device() if device == "auto" else torch.device(device)
    if chosen.type == "cuda" and process_count() > 1:
        chosen = torch.device("cuda", _own_gpu())
        torch.cuda.set_device(chosen)
    if precision == "fp32":
        return Compute(chosen, nullcontext)
    if precision == "fp16" and chosen.type != "cuda":
        raise ConfigError("precision 'fp16' needs a GPU: use --precision bf16 or fp32")
    if precision == "bf16" and chosen.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ConfigError(
            f"precision 'bf16' is requested, but {torch.cuda.get_device_name()} does not support "
            "it: use --precision fp16, fp32 or --device cpu"
        )
    # The weight cache would miss in-place changes of weights within one context.
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    return Compute(chosen, partial(torch.autocast, chosen.type, dtype, cache_enabled=False))


def _own_gpu() -> int:
    """Return the GPU of this process among those that were started on this machine."""
    rank, visible = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if rank >= visible:
        raise ConfigError(
            f"process {rank + 1} of this machine has no GPU of its own ({visible} visible): start "
            "as many processes per machine as it has GPUs, or use --device cpu"
        )
    return rank


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Return a context without autocast, whose cached casts miss in-place changes."""
    available = torch.amp.is_autocast_available(device.type)
    if available and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def upcast(values: Tensor) -> Tensor:
    """Return half-precision values in single precision, all others unchanged."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


SINGLE = "sdpa_single"

#: Names in transformers of the implementations that use torch's scaled_dot_product_attention.
FUSED = frozenset({"sdpa", SINGLE})


@contextmanager
def unfused_attention(body: Any) -> Iterator[None]:
    """Let a body compute attention step by step within the context."""
    usual = body.config._attn_implementation
    body.set_attn_implementation("eager")
    try:
        yield
    finally:
        body.set_attn_implementation(usual)


def attend_in_single_precision(body: Any) -> None:
    """Make a body that uses torch's attention differentiate it in single precision."""
    if body.config._attn_implementation == "sdpa":
        body.set_attn_implementation(SINGLE)


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    **settings: Any,
) -> tuple[Tensor, None]:
    if dropout or not query.requires_grad:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, **settings
        )
    with torch.autocast(query.device.type, enabled=False):
        output, _ = sdpa_attention_forward(
            module, query.float(), key.float(), value.float(), attention_mask, **settings
        )
    return output.to(query.dtype), None


AttentionInterface.register(SINGLE, _attend)
AttentionMaskInterface.register(SINGLE, sdpa_mask)


def check_compiler(device: torch.device) -> None:
    """Check early that ``torch.compile`` works, by compiling a sum."""
    try:
        x = torch.ones(16, device=device)
        torch.compile(lambda x: x.sin() + x.cos(), dynamic=True)(x)
    # Backends, drivers and compilers raise exceptions of any type.
    except Exception as error:
        raise ConfigError(
            f"torch.compile does not work here ({first_line(error) or type(error).__name__}): "
            "install a C++ compiler such as g++, or leave --compile out"
        ) from None
