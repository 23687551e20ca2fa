"""Several processes that train one run: the numbers of one, and what happens when one dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from auxlearn.cli import cli
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError
from auxlearn.core.processes import Processes, _buckets
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS
from auxlearn.losses.bias import BiasLoss
from auxlearn.results.perturbation_log import FILE
from auxlearn.training import run
from tests import helpers
from tests.training.together import train_all

RULES = [
    ("fixed", {}),
    ("meta", {"horizon": "steps", "batches": 3}),
    ("meta", {"horizon": "steps", "unroll": 1}),
    ("tartan", {}),
    ("meta", {}),
]

#: Tasks that no run can have without options of theirs, and the one for a single process.
LEFT_OUT = ("supervised", "difference", "mixture", "typhoon")


def cases_of(rules, folder, encoder):
    tasks = [name for name in sorted(TASKS.names()) if name not in LEFT_OUT]
    losses = ("cross_entropy", "r_drop", "focal")
    return [
        {
            "dataset": str(folder),
            "encoder": str(encoder),
            "cache_dir": str(folder.with_name("cache")),
            "aux": ["mask_tuning", tasks[number % len(tasks)]][number % 2 :],
            "loss": losses[number % len(losses)],
            "weights": {"name": name, "options": options},
            "epochs": 1,
            "batch_size": 8,
            "max_length": 32,
        }
        for number, (name, options) in enumerate(rules)
    ]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together") / "data"
    folder.mkdir()
    for split, count in (("train", 20), ("dev", 12), ("test", 8)):
        rows = [
            {"text": f"{helpers.LINES[n % 24]} {helpers.LINES[(n + 5) % 24]}", "label": "ab"[n % 2]}
            for n in range(count)
        ]
        content = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(content)
    return folder


def launch(*arguments, count=2):
    """Start a module in several processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={count}", "-m", *map(str, arguments)]
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def compare(cases, folder):
    """Train in two processes, and in this one with two micro-batches."""
    program = launch("tests.training.together", json.dumps(cases), folder / "two", 1)
    train_all(cases, folder / "one", 2)
    output = program.communicate(timeout=300)[0]
    assert program.returncode == 0, output
    for number, case in enumerate(cases):
        one, two = (folder / name / str(number) for name in ("one", "two"))
        for path in one.rglob("*.safetensors"):
            expected, found = load_file(path), load_file(two / path.relative_to(one))
            assert found.keys() == expected.keys()
            # AdamW makes a whole step of a gradient that is zero but for rounding, so that single
            # entries may differ, where gradients are added in another order.
            apart = torch.cat([(found[name] - expected[name]).flatten() for name in expected])
            whole = torch.cat([tensor.flatten() for tensor in expected.values()])
            assert apart.norm() <= 1e-4 * whole.norm(), (case, apart.norm() / whole.norm())
        entries = [
            [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            for run in (one, two)
        ]
        assert len(entries[0]) == len(entries[1])
        for expected, found in zip(*entries, strict=True):
            assert found.pop("kind") == expected.pop("kind")
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-6), case
        if (one / FILE).is_file():
            assert (two / FILE).read_bytes() == (one / FILE).read_bytes()


def test_two_processes_give_the_numbers_of_two_micro_batches(dataset, encoder_folder, tmp_path):
    compare(cases_of(RULES, dataset, encoder_folder("bert")), tmp_path)


@pytest.mark.slow
def test_every_rule_and_loss_in_two_processes(dataset, encoder_folder, tmp_path):
    rules = [(name, {}) for name in sorted(WEIGHTINGS.names())]
    cases = cases_of(rules, dataset, encoder_folder("bert"))
    losses = [name for name in sorted(LOSSES.names()) if not issubclass(LOSSES.get(name), BiasLoss)]
    for number, case in enumerate(cases):
        case["loss"] = losses[number % len(losses)]
        if case["weights"]["name"] == "aang":
            case["aux"] = ["space"]  # whose members it weighs
    compare(cases, tmp_path)


def test_a_killed_process_ends_the_others_and_one_process_resumes(
    dataset, encoder_folder, tmp_path
):
    case = cases_of(RULES[:1], dataset, encoder_folder("bert"))[0]
    case |= {"epochs": 12, "patience": 0, "aux": ["random_mlm"], "weights": "fixed"}
    train_all([case], tmp_path / "whole", 2)
    place = tmp_path / "killed" / "0"
    program = launch("tests.training.together", json.dumps([case]), place.parent, 1)
    deadline = time.monotonic() + 120
    while not (place / "checkpoint" / "latest.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    output = program.communicate(timeout=60)[0]
    assert program.returncode != 0, output
    assert not (place / "results.json").exists(), "it had ended before it was killed"
    train_all([case], tmp_path / "killed", 1)  # as many micro-batches as before
    model = Path("0", "model", "model.safetensors")
    expected, found = (tmp_path / name / model for name in ("whole", "killed"))
    assert found.read_bytes() == expected.read_bytes()


@pytest.mark.slow
def test_a_mistake_is_one_line(dataset, tmp_path, encoder_folder):
    run = tmp_path / "r"
    arguments = ["train", "--batch-size", "1", "--output", run, "--dataset", dataset]
    arguments += ["--encoder", encoder_folder("bert")]
    output = launch("auxlearn", *arguments).communicate(timeout=120)[0]
    (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
    assert "2 processes cannot divide a batch of 1 examples" in line
    assert not run.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweep", "x.yaml"], "sweep runs in one process, but 2 were started together"),
        (["train", "--aux", "nosuch"], "unknown auxiliary task 'nosuch'"),
    ],
)
def test_the_first_process_speaks_of_settings(arguments, said, monkeypatch):
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    spoken = []
    for rank in ("0", "1"):
        result = CliRunner().invoke(cli, arguments, env=variables | {"RANK": rank})
        assert result.exit_code == 2
        spoken.append(result.output)
    assert said in spoken[0]
    assert spoken[1] == ""


def test_a_task_that_follows_all_examples_needs_one_process(dataset, encoder_folder, tmp_path):
    (case,) = cases_of(RULES[:1], dataset, encoder_folder("bert"))
    config = RunConfig(**case | {"aux": ["typhoon"]}, output=str(tmp_path / "run"))
    with pytest.raises(ConfigError, match="typhoon follows the gradients of all examples"):
        run.train(config, processes=_NothingToShare(0, 2))
    assert not (tmp_path / "run").exists()


class _NothingToShare(Processes):
    def share(self, value=None, source=0):
        return value


def test_one_process_alone_does_nothing():
    alone, values = Processes(), [torch.ones(2), None]
    alone.add_gradients([values], [torch.zeros(2)] * 2)
    assert values[1] is None
    assert alone.leads
    assert alone.owns(7)
    assert alone.share({"a": 1}) == {"a": 1}
    assert alone.gather(3) == [3]
    assert alone.any(True)
    assert alone.share_tensors({"a": {"b": torch.ones(1)}})["a"]["b"] == 1


def test_buckets_hold_every_tensor_once():
    tensors = [torch.zeros(size) for size in (2**22, 2**22, 2**24, 1, 2**23)]
    assert [[one.numel() for one in bucket] for bucket in _buckets(tensors)] == [
        [2**22, 2**22],
        [2**24],
        [1],
        [2**23],
    ]
