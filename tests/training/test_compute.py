"""Which device and precision a run is given, and what it leaves alone."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn

from auxlearn import RunConfig
from auxlearn.core.errors import ConfigError
from auxlearn.encoders.device import choose_compute


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
    assert choose_compute(RunConfig()).device == torch.device("cpu")
    cuda(True)
    assert choose_compute(RunConfig()).device == torch.device("cuda")
    assert choose_compute(RunConfig(device="cpu")).device == torch.device("cpu")


def test_a_card_without_bfloat16_is_refused_in_one_line(cuda):
    cuda(True, bf16=False)
    with pytest.raises(ConfigError, match=r"^precision 'bf16' .* Old Card does not .*--precision"):
        choose_compute(RunConfig(precision="bf16"))
    assert choose_compute(RunConfig()).autocast is nullcontext
    assert choose_compute(RunConfig(precision="bf16", device="cpu")).device.type == "cpu"


def test_autocast_sees_weights_that_change_in_place():
    compute = choose_compute(RunConfig(device="cpu", precision="bf16"))
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
        choose_compute(RunConfig(device="cpu", precision="fp32"))
        assert AcceleratorState().mixed_precision == "bf16"
        assert host.state.device == torch.device("cpu")
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
