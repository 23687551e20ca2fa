"""A pretend accelerator: a device of torch's PrivateUse1 kind, written in Python.

Its tensors say ``pretend:0`` and keep their numbers on the CPU. As with CUDA, an operation that
mixes them with CPU tensors raises, and the device has a random generator of its own. What makes the
host wait for a CUDA device is counted: reading a value, a copy to the CPU, and operations whose
result has a size that depends on values.

Not pretended: copies to the device that wait, streams, several devices, fused kernels (attention is
computed in separate steps), and inference mode, which becomes ``torch.no_grad``.

:func:`install` changes the process for good: a backend cannot be taken back, and torch's autograd
engine must know of it before its first backward pass. So it runs in a process of its own
(:mod:`.conftest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"

aten = torch.ops.aten

#: The operations that the host has waited for, in order.
waits: list[str] = []


class PretendTensor(torch.Tensor):
    """A tensor of the device; ``inner`` holds its numbers."""

    inner: Tensor  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: Tensor) -> PretendTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device(NAME, 0),
        )
        made.inner = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"PretendTensor({self.inner!r})"

    def tolist(self) -> Any:
        """As of any tensor; torch would look for a storage."""
        waits.append("tolist")
        return self.inner.tolist()

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def data_ptr(self) -> int:
        return self.inner.data_ptr()


class _Everything(TorchDispatchMode):
    """Shows the device every operation, those on CPU tensors that name it included."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


#: Copies between devices; all else wants its tensors on one.
COPIES = {aten.copy_.default, aten._to_copy.default}

#: Take CPU tensors as indices, at the price of a copy.
INDEXING = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
}

#: Take a CPU tensor without dimensions, as all pointwise operations do.
TAKE_SCALARS = (
    "aten::fill_",
    "aten::masked_fill",
    "aten::index_put",
    "aten::_index_put_impl_",
    "aten::where",
    "aten::clamp",
    "aten::_foreach_",
)

#: The host waits for their results, for values or for sizes.
WAITING = (
    "aten::_local_scalar_dense",
    "aten::equal",
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique",
    "aten::unique_",
    "aten::bincount",
    "aten::repeat_interleave.Tensor",
)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute an operation on the numbers, if the device is to do it, and wrap what comes out."""
    ours: list[PretendTensor] = []
    foreign: list[Tensor] = []
    _sort((args, tuple(kwargs.values())), ours, foreign)
    named = kwargs.get("device")
    wanted = None if named is None else torch.device(named).type == NAME
    if not ours and not wanted:
        return func(*args, **kwargs)
    if foreign and ours and func not in COPIES:
        _refuse(func, args, foreign)
    if named is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
        kwargs.pop("pin_memory", None)
    on_device = bool(ours) if wanted is None else wanted
    if func is aten.copy_.default:
        on_device = isinstance(args[0], PretendTensor)
    if ours and (not on_device or func.name().startswith(WAITING) or _by_a_mask(func, args)):
        waits.append(func.name())
    bare, bare_named = _replaced(_bare, args), _replaced(_bare, kwargs)
    draws = on_device and torch.Tag.nondeterministic_seeded in func.tags
    with _generator_of_device() if draws else nullcontext():
        result = func(*bare, **bare_named)
    if not on_device:
        return result
    wrapped = {id(tensor.inner): tensor for tensor in ours}

    def wrap(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return wrapped[id(value)] if id(value) in wrapped else PretendTensor(value)

    return _replaced(wrap, result)


def _sort(values: Any, ours: list[PretendTensor], foreign: list[Tensor]) -> None:
    """Sort the tensors within the arguments of an operation by whose they are."""
    for value in values:
        if isinstance(value, PretendTensor):
            ours.append(value)
        elif isinstance(value, Tensor):
            foreign.append(value)
        elif isinstance(value, (tuple, list)):
            _sort(value, ours, foreign)


def _replaced(replace: Callable[[Any], Any], value: Any) -> Any:
    """Return arguments or results with each value in them replaced; torch's own is slower."""
    if isinstance(value, (tuple, list)):
        return type(value)([_replaced(replace, part) for part in value])
    if isinstance(value, dict):
        return {key: _replaced(replace, part) for key, part in value.items()}
    return replace(value)


def _bare(value: Any) -> Any:
    return value.inner if isinstance(value, PretendTensor) else value


def _by_a_mask(func: Any, args: Any) -> bool:
    """Whether an operation reads what a boolean mask chooses: its size depends on values."""
    indices = args[1] if func is aten.index.Tensor else ()
    return any(index is not None and index.dtype == torch.bool for index in indices)


def _refuse(func: Any, args: Any, foreign: list[Tensor]) -> None:
    """Raise, as CUDA does, if CPU tensors stand where tensors of the device must.

    Tensors without dimensions and indices may come from the CPU, but what the device's index.
    """
    if func in INDEXING and isinstance(args[0], PretendTensor):
        foreign = [tensor for tensor in foreign if any(tensor is value for value in args[2:])]
    scalars = torch.Tag.pointwise in func.tags or func.name().startswith(TAKE_SCALARS)
    wrong = [tuple(tensor.shape) for tensor in foreign if tensor.dim() or not scalars]
    if wrong:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but {func.name()} got tensors of "
            f"{NAME}:0 and of the CPU, the latter of shapes {wrong}"
        )


#: The generator of the device.
_generator = torch.Generator().manual_seed(0)

#: What torch asks of a device: ``torch.pretend``.
_module = SimpleNamespace(
    default_generators=(_generator,),
    is_initialized=lambda: True,
    is_available=lambda: True,
    device_count=lambda: 1,
    current_device=lambda: 0,
    _is_in_bad_fork=lambda: False,
    manual_seed_all=_generator.manual_seed,
    get_rng_state=lambda device=None: _generator.get_state(),
    set_rng_state=lambda state, device=None: _generator.set_state(state),
    get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
)


@contextmanager
def _generator_of_device() -> Iterator[None]:
    """Let an operation that draws on the device draw from the device's generator."""
    host = torch.default_generator.get_state()
    torch.default_generator.set_state(_generator.get_state())
    try:
        yield
    finally:
        _generator.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(host)


#: What autocast computes in half precision, and what in single; the rest as its inputs are.
HALF = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention")
SINGLE = (
    "layer_norm",
    "softmax.int",
    "log_softmax.int",
    "cross_entropy_loss",
    "nll_loss_nd",
    "cumsum",
    "sum",
    "sum.dim_IntList",
)

#: Operations in which ``torch.tensor`` keeps its work from Python modes and subclasses.
KEPT = ("empty.memory_format", "empty_strided", "copy_")

AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

_libraries: list[torch.library.Library] = []


def _register() -> None:
    """Let autocast do on the device what it does on CUDA, without a cache of casts."""
    fallback = torch.library.Library("_", "IMPL")
    fallback.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    kernels = torch.library.Library("aten", "IMPL")
    for name in (*HALF, *SINGLE, *KEPT):
        packet, _, overload = name.partition(".")
        function = getattr(getattr(aten, packet), overload or "default")
        if name in KEPT:
            kernels.impl(name, partial(_kernel, function), "PrivateUse1")
        else:
            kernels.impl(name, partial(_casting, function, name in HALF), "AutocastPrivateUse1")
    _libraries.extend((fallback, kernels))  # they take back what they registered when they go


def _kernel(function: Any, *args: Any, **kwargs: Any) -> Any:
    return _run(function, args, kwargs)


def _casting(function: Any, half: bool, *args: Any, **kwargs: Any) -> Any:
    dtype = torch.get_autocast_dtype(NAME) if half else torch.float32
    floats = (torch.float32, torch.float16, torch.bfloat16)

    def cast(value: Any) -> Any:
        fits = isinstance(value, PretendTensor) and value.dtype in floats
        return value.to(dtype) if fits else value

    with torch._C._ExcludeDispatchKeyGuard(AUTOCAST):
        return function(*_replaced(cast, args), **_replaced(cast, kwargs))


def _inference_mode(mode: Any = True) -> Any:
    """As ``torch.inference_mode``, which takes a flag or the function that it decorates."""
    if isinstance(mode, bool):
        return torch.no_grad() if mode else nullcontext()
    return torch.no_grad(mode)


def device() -> torch.device:
    return torch.device(NAME, 0)


def install() -> None:
    """Give this process the device, for good; before its first backward pass."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=_module)
    _register()
    # Keeps the identity of parameters, and so their ties, when a module is moved.
    torch.__future__.set_swap_module_params_on_conversion(True)
    # Tensors made of others by a Python class cannot be inference tensors.
    torch.inference_mode = _inference_mode  # type: ignore[assignment,misc]
    _Everything().__enter__()
