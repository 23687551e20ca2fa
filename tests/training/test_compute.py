"""Which device and precision a run is given, and what it leaves alone."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Event
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn

from auxlearn.core.errors import ConfigError
from auxlearn.core.processes import joined
from auxlearn.encoders.device import choose_compute, usual_torch


@pytest.fixture
def cuda(monkeypatch):
    """Let torch say that there is CUDA, or none."""

    def offer(available, bf16=True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bf16)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Old Card")

    return offer


def test_auto_is_cuda_or_else_the_cpu(cuda, monkeypatch):
    # Other accelerators are there, and are not taken.
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    cuda(False)
    assert choose_compute().device == torch.device("cpu")
    cuda(True)
    assert choose_compute().device == torch.device("cuda")
    assert choose_compute(device="cpu").device == torch.device("cpu")


@pytest.fixture
def torchrun(monkeypatch):
    """Set what torchrun tells the second process of a machine, of four on two machines."""
    told = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    for name, value in (told | {"LOCAL_RANK": "1"}).items():
        monkeypatch.setenv(name, value)


def test_each_process_has_the_gpu_of_its_number_on_its_machine(cuda, torchrun, monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    cuda(True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    own = torch.device("cuda", 1)
    assert choose_compute().device == own
    bf16 = choose_compute(precision="bf16", device="cuda")
    assert (bf16.device, chosen) == (own, [own, own])
    assert choose_compute(device="cpu").device.type == "cpu"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match=r"process 2 of this machine has no GPU of its own"):
        choose_compute()


@pytest.mark.parametrize(("available", "backend"), [(True, "cpu:gloo,cuda:nccl"), (False, "gloo")])
def test_gpus_are_summed_by_nccl_and_the_rest_by_gloo(
    available, backend, cuda, torchrun, monkeypatch
):
    """Flags and JSON values are on the CPU, so that both are there beside GPUs."""
    begun = Mock()
    monkeypatch.setattr(dist, "init_process_group", begun)
    monkeypatch.setattr(dist, "destroy_process_group", Mock())
    for name, value in (("is_initialized", False), ("get_rank", 3), ("get_world_size", 4)):
        monkeypatch.setattr(dist, name, Mock(return_value=value))
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", Mock())
    monkeypatch.setattr("atexit.register", Mock())
    cuda(available)
    with joined() as together:
        assert (together.number, together.count, together.leads) == (3, 4, False)
    assert begun.call_args.args == (backend,)


def test_a_card_without_bfloat16_is_refused_in_one_line(cuda):
    cuda(True, bf16=False)
    with pytest.raises(ConfigError, match=r"^precision 'bf16' .* Old Card does not .*--precision"):
        choose_compute(precision="bf16")
    assert choose_compute().autocast is nullcontext
    assert choose_compute(precision="bf16", device="cpu").device.type == "cpu"


def test_autocast_sees_weights_that_change_in_place():
    compute = choose_compute(device="cpu", precision="bf16")
    layer, x = nn.Linear(2, 1, bias=False), torch.ones(1, 2)
    with compute.autocast():
        layer.weight.data.fill_(1.0)
        assert layer(x).dtype == torch.bfloat16
        layer.weight.data.fill_(3.0)
        assert layer(x).item() == 6.0


def test_the_accelerator_of_a_host_program_is_left_alone():
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        host = Accelerator(cpu=True, mixed_precision="bf16")
        choose_compute(device="cpu", precision="fp32")
        assert AcceleratorState().mixed_precision == "bf16"
        assert host.state.device == torch.device("cpu")
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


def test_blocks_in_threads_that_overlap_give_the_precision_of_the_caller_back():
    def precision():
        return torch.get_default_dtype(), torch.get_float32_matmul_precision()

    begun, ended = Event(), Event()

    def other():
        with usual_torch():
            begun.set()
            assert ended.wait(60)

    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    try:
        with ThreadPoolExecutor(1) as threads:
            with usual_torch():
                outlives = threads.submit(other)
                assert begun.wait(60)
            assert precision() == (torch.float32, "highest")  # the other one still computes
            ended.set()
            outlives.result()
        assert precision() == (torch.float64, "medium")
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.set_default_dtype(torch.float32)
