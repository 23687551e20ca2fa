"""Processes that train one run together, as torchrun and ``accelerate launch`` start them.

The first one leads: it reads and writes the run folder and shows progress. The others compute their
part of every step. ``torch.distributed`` is imported only where there are several.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from auxlearn.core.errors import ConfigError, Interrupted, TrainingDiverged, UserError, describe

if TYPE_CHECKING:
    from torch import Tensor

R = TypeVar("R")

#: Environment variable of the seconds that a process waits for the others.
TIMEOUT_VARIABLE = "AUXLEARN_PROCESS_TIMEOUT"

#: Its default: as long as the leader may read data alone. One that has ended is noticed at once.
_TIMEOUT = 1800

#: Name of a thread that waits in torch for other processes.
WAITING = "auxlearn waits"

_LAUNCHER = os.getppid()  # with torchrun, its process
_LAST_WORDS = 10  # seconds in which a process that ends asks whether another one has said why
_BUCKET = 2**25  # bytes that are summed at a time: large enough for the bandwidth of the network


def process_count() -> int:
    """Return how many processes were started together; 1 without torchrun."""
    set_by_torchrun = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    started = all(os.environ.get(name) for name in set_by_torchrun)
    return int(os.environ["WORLD_SIZE"]) if started else 1


def process_number() -> int:
    """Return the number of this process among those started together; the first one leads."""
    return int(os.environ["RANK"]) if process_count() > 1 else 0


def threads_given(otherwise: int) -> int:
    """Return ``OMP_NUM_THREADS`` if it is set."""
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(given) if given.isdecimal() and int(given) else otherwise


class PeerLost(UserError):
    """Another process of the training has ended."""


class AlreadySaid(UserError):
    """Another process of the training has ended with a message; this one has nothing to add."""


def silent(error: UserError) -> bool:
    """Whether this process leaves it to another one to print an error: the first that failed.

    One that failed before the processes were joined cannot ask the others: it waits, for torchrun
    ends all when it ends, and the leader is likely to fail of the same.
    """
    if isinstance(error, AlreadySaid):
        return True
    if process_number() > 0 and not hasattr(error, "process"):
        time.sleep(_LAST_WORDS)
    return False


@contextmanager
def muted() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


@dataclass(frozen=True)
class Processes:
    """The processes that train together; by default this one alone, for which nothing is done."""

    number: int = 0  # of this process
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process reads and writes the run folder."""
        return self.number == 0

    def owns(self, part: int) -> bool:
        """Whether a part of the work is this process's own."""
        return part % self.count == self.number

    def add(self, tensor: Tensor) -> None:
        """Replace a tensor, in place, by its sum over all processes."""
        if self.count > 1:
            self.adding(tensor)()

    def adding(self, tensor: Tensor) -> Callable[[], None]:
        """Begin to replace a tensor by its sum, in place; return what waits until that is done."""
        import torch.distributed as dist

        with _peers_alive():
            work = dist.all_reduce(tensor, async_op=True)

        def wait() -> None:
            with _peers_alive():
                work.wait()

        return wait

    def any(self, flag: bool) -> bool:
        if self.count == 1:
            return flag
        import torch

        total = torch.tensor([int(flag)])
        self.add(total)
        return bool(total)

    def share(self, value: Any = None, source: int = 0) -> Any:
        """Return the JSON value of one process in all of them."""
        if self.count == 1:
            return value
        import torch
        import torch.distributed as dist

        content = json.dumps(value).encode() if self.number == source else b""
        size = torch.tensor([len(content)])
        with _peers_alive():
            dist.broadcast(size, source)
            data = torch.zeros(int(size), dtype=torch.uint8)
            if content:
                data = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            dist.broadcast(data, source)
        return json.loads(data.numpy().tobytes())

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON values of all processes, in their order."""
        return [self.share(value, source) for source in range(self.count)]

    def share_tensors(
        self, groups: Mapping[str, Mapping[str, Tensor]] | None = None
    ) -> dict[str, dict[str, Tensor]]:
        """Return tensors of the leader, by group and name, on the CPU, in all processes."""
        if self.count == 1:
            return {group: dict(values) for group, values in (groups or {}).items()}
        import torch
        import torch.distributed as dist

        shapes = self.share(
            {
                group: {
                    name: [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]
                    for name, tensor in values.items()
                }
                for group, values in (groups or {}).items()
            }
        )
        shared: dict[str, dict[str, Tensor]] = {group: {} for group in shapes}
        with _peers_alive():
            for group, values in shapes.items():
                for name, (dtype, shape) in values.items():
                    if groups is None:
                        tensor = torch.empty(shape, dtype=getattr(torch, dtype))
                    else:
                        tensor = groups[group][name].detach().cpu().contiguous()
                    dist.broadcast(tensor, 0)
                    shared[group][name] = tensor
        return shared


ALONE = Processes()  # this process alone


def buckets(tensors: Sequence[Tensor]) -> Iterator[list[int]]:
    """Yield the numbers of tensors that are summed together: neighbours of one dtype."""
    bucket: list[int] = []
    size = 0
    for number, tensor in enumerate(tensors):
        joins = bucket and tensor.dtype == tensors[bucket[0]].dtype
        if bucket and not (joins and size + tensor.nbytes <= _BUCKET):
            yield bucket
            bucket, size = [], 0
        bucket.append(number)
        size += tensor.nbytes
    if bucket:
        yield bucket


@contextmanager
def _peers_alive() -> Iterator[None]:
    """Turn the error of a collective operation into one line."""
    try:
        yield
    except RuntimeError as error:
        said = str(error).lower()
        # Gloo says both at once of a process that has ended before all were connected.
        if "timed out" in said and "connection refused" not in said:
            raise PeerLost(
                f"another process of this training has not answered for {_timeout()} seconds: run "
                "the same command again to resume; if it was at work, raise the seconds by the "
                f"environment variable {TIMEOUT_VARIABLE}"
            ) from error
        raise PeerLost(
            "another process of this training has ended without a word, as one does that is killed "
            "or whose machine is lost: run the same command again to resume"
        ) from error


def _timeout() -> int:
    seconds = os.environ.get(TIMEOUT_VARIABLE) or str(_TIMEOUT)
    if not (seconds.isdecimal() and 0 < int(seconds) < 10**8):
        raise ConfigError(
            f"the environment variable {TIMEOUT_VARIABLE} is {describe(seconds)}: give whole "
            "seconds, at least 1"
        )
    return int(seconds)


def _fails_first(store: Any) -> bool:
    """Return whether no other process has failed before, or none can be asked in time."""
    try:
        return _in_thread(lambda: store.add("auxlearn failures", 1) == 1, _LAST_WORDS)
    except TimeoutError:  # the process that holds the store hangs
        return True
    except RuntimeError:  # it has ended
        return False


def _in_thread(function: Callable[[], R], seconds: float | None = None) -> R:
    """Call what waits outside of Python, where no signal is heard, and wait so long for it."""
    outcome: Future[R] = Future()

    def call() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=call, name=WAITING, daemon=True).start()
    if seconds is None and "TORCHELASTIC_RUN_ID" in os.environ:
        while not wait([outcome], timeout=1).done:
            if os.getppid() != _LAUNCHER:  # killed, it could not end this process
                raise PeerLost("torchrun has ended: run the same command again")
    return outcome.result(seconds)


@contextmanager
def joined() -> Iterator[Processes]:
    """Join the processes that were started together, within the block, in a group of the caller if
    there is one; if several fail, the first says why.
    """
    if process_count() == 1:
        yield Processes()
        return
    import torch
    import torch.distributed as dist

    seconds = timedelta(seconds=_timeout())
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        with _peers_alive():
            _in_thread(partial(dist.init_process_group, backend, timeout=seconds))
        # For all trainings of the program: a group that is initialised again finds the addresses of
        # the one before.
        atexit.register(dist.destroy_process_group)
    processes = Processes(dist.get_rank(), dist.get_world_size())
    store = dist.distributed_c10d._get_default_store()
    try:
        yield processes
    except BaseException as error:
        same_for_all = isinstance(error, (Interrupted, TrainingDiverged))
        if not processes.leads and same_for_all:
            raise AlreadySaid from error
        first = _fails_first(store)  # also of a fault, so that the others do not speak
        if not first and isinstance(error, UserError):
            raise AlreadySaid from error
        error.process = processes.number  # type: ignore[attr-defined]
        raise
