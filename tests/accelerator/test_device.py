"""The pretend accelerator does what it is there for: refuses mixtures, counts waits, computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.accelerator import pretend


def on_device(*shape: int, **kinds: Any) -> Tensor:
    """Ones of the device."""
    return pretend.tensor_of(torch.ones(shape).tolist(), **kinds)


def raises(source: str) -> str:
    """Evaluate an expression of ``x`` and ``mask`` on the device and ``cpu``; return the error."""
    names = {"torch": torch, "x": on_device(3, 3), "cpu": torch.ones(3, 3)}
    try:
        eval(source, names)
    except RuntimeError as error:
        return str(error)
    return ""


def waits(source: str) -> list[str]:
    """Run a statement on tensors of the device; return what was waited for."""
    names = {
        "torch": torch,
        "device": pretend.device(),
        "x": on_device(3, 3),
        "whole": pretend.tensor_of([0, 2, 1]),
        "mask": pretend.tensor_of([True, False, True]),
        "cpu": torch.ones(3, 3),
    }
    with pretend.counted() as found:
        exec(source, names)
    return [wait.what for wait in found]


MIXTURES = (
    "x + cpu",
    "x @ cpu",
    "cpu @ x",
    "torch.cat([x, cpu])",
    "torch.stack([x.sum(), cpu.sum()])",
    "torch.dot(x[0], cpu[0])",
    "x.index_select(0, torch.tensor([1]))",
    "x.gather(1, torch.tensor([[1]]))",
    "torch.nn.functional.embedding(torch.tensor([1]), x)",
    "torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, 2]))",
    "cpu[x.long()]",
    "x.index_put_((x[0].long(),), cpu[:, :1])",
)


def test_mixtures_are_refused(on_accelerator):
    assert len(MIXTURES) > 5
    for source in MIXTURES:
        assert "same device" in on_accelerator(raises, source), source


def test_a_number_from_the_cpu_is_taken(on_accelerator):
    for source in ("x * torch.tensor(2.0)", "torch.where(x > 0, x, torch.tensor(0.0))"):
        assert on_accelerator(raises, source) == ""


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("x.sum().item()", 1),
        ("float(x.sum())", 1),
        ("bool(x.sum())", 1),
        ("int(x[0, 0])", 1),
        ("x.tolist()", 1),
        ("[float(number) for number in x[0]]", 3),
        ("x.cpu()", 1),
        ("x.to('cpu', non_blocking=True)", 1),
        ("cpu.copy_(x)", 1),
        ("cpu.to(device)", 1),
        ("x.copy_(cpu)", 1),
        ("torch.tensor([1.0], device=device)", 1),
        ("whole.new_tensor([1, 2])", 1),
        ("x[mask]", 1),
        ("x[mask] = x[mask]", 2),
        ("x[torch.tensor([0, 1])]", 1),
        ("x.nonzero()", 1),
        ("whole.unique()", 1),
        ("torch.equal(x, x)", 1),
        ("torch.linalg.solve(x + torch.eye(3, device=device), x)", 1),
        ("cpu.to(device, non_blocking=True)", 0),
        ("x.copy_(cpu, non_blocking=True)", 0),
        ("x[mask] = 0.0", 0),
        ("x[whole]", 0),
        ("x.index_select(0, whole)", 0),
        ("torch.zeros(3, device=device) + torch.arange(3, device=device)", 0),
        ("(x @ x).softmax(-1).sum()", 0),
        ("cpu.sum().item()", 0),
    ],
)
def test_waits_are_counted(on_accelerator, source, count):
    assert len(on_accelerator(waits, source)) == count


def place_of_a_wait() -> tuple[str, str]:
    from auxlearn.weighting.gradients import weighted_sum

    with pretend.counted() as found:
        weighted_sum([[on_device(2)]], on_device(1))  # reads the weights one by one
    ((_, inside),) = found
    with pretend.counted() as found:
        on_device(1).item()
    return inside, found[0].place


def test_a_wait_has_a_place(on_accelerator):
    inside, outside = on_accelerator(place_of_a_wait)
    path, line = inside.split(":")
    assert path == "auxlearn/weighting/gradients.py"
    source = (pretend.ROOT / path).read_text().splitlines()[int(line) - 1]
    assert "float(weight)" in source
    assert outside == "elsewhere"


def test_a_folder_named_like_the_package_is_not_the_package():
    names: dict = {"place": pretend.place}
    exec(compile("found = place()", "/clone/auxlearn/.venv/lib/module.py", "exec"), names)
    assert names["found"] == "elsewhere"


def trained_beside_the_cpu() -> tuple[float, list[str], bool, bool]:
    """Train a small network on both devices; return the largest difference of a weight."""
    made = []
    for device in (torch.device("cpu"), pretend.device()):
        torch.manual_seed(0)
        first, last = nn.Linear(4, 8), nn.Linear(8, 4)
        last.weight = nn.Parameter(first.weight.detach().T.clone())
        again = nn.Linear(4, 8)
        again.weight = first.weight  # tied
        network = nn.Sequential(first, nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.5), last, again)
        network.to(device)
        optimizer = torch.optim.AdamW(network.parameters(), lr=0.1)
        x = torch.randn(16, 4).to(device, non_blocking=True)
        targets = (torch.arange(16) % 8).to(device, non_blocking=True)
        torch.manual_seed(1)
        with pretend.counted() as found:
            for _ in range(3):
                nn.functional.cross_entropy(network(x), targets).backward()
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        tied = network[0].weight is network[5].weight
        made.append([p.detach().cpu() for p in network.parameters()])
    difference = max(float((a - b).abs().max()) for a, b in zip(*made, strict=True))
    return difference, [wait.what for wait in found], tied, len(made[0]) == 7


def test_it_computes_what_the_cpu_computes(on_accelerator):
    difference, found, tied, complete = on_accelerator(trained_beside_the_cpu)
    assert difference < 1e-6
    assert found == []
    assert tied
    assert complete


def generators() -> list[bool]:
    device = pretend.device()
    torch.manual_seed(3)
    host = torch.get_rng_state()
    first = torch.rand(4, device=device).cpu()
    untouched = torch.equal(torch.get_rng_state(), host)
    second = torch.rand(4, device=device).cpu()
    torch.manual_seed(3)
    return [
        untouched,
        not torch.equal(first, second),
        torch.equal(torch.rand(4, device=device).cpu(), first),
    ]


def test_it_draws_from_a_generator_of_its_own(on_accelerator):
    assert on_accelerator(generators) == [True, True, True]


def half_precision() -> list[str]:
    layer, x = nn.Linear(3, 3).to(pretend.device()), on_device(2, 3)
    with torch.autocast(pretend.NAME, torch.bfloat16):
        y = layer(x)
        normed = nn.functional.layer_norm(y, (3,))
    normed.sum().backward()
    return [str(t.dtype) for t in (y, normed, layer.weight.grad)]


def test_autocast_is_that_of_cuda(on_accelerator):
    assert on_accelerator(half_precision) == ["torch.bfloat16", "torch.float32", "torch.float32"]


def no_gradient() -> list[str]:
    layer, x = nn.Linear(3, 3).to(pretend.device()), on_device(2, 3)
    with torch.inference_mode():
        y = layer(x)[:, :2]
        y += 1
        return [str(y.device), str(y.cpu().device), str(y.requires_grad)]


def test_inference_mode_keeps_no_gradient(on_accelerator):
    assert on_accelerator(no_gradient) == ["pretend:0", "cpu", "False"]


def error() -> None:
    raise KeyError("there")


def test_errors_come_back(on_accelerator):
    with pytest.raises(KeyError, match="there"):
        on_accelerator(error)


def test_the_process_of_the_tests_is_left_alone(on_accelerator):
    on_accelerator(no_gradient)
    assert not hasattr(torch, pretend.NAME)
    assert torch.accelerator.current_accelerator() is None or torch.cuda.is_available()
