"""Several processes that train one run: the numbers of one, and what happens when one dies."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from torch.distributed import TCPStore

from auxlearn.cli import cli
from auxlearn.core.errors import ConfigError
from auxlearn.core.processes import PeerLost, _peers_alive, _timeout, joined
from auxlearn.core.registry import LOSSES
from auxlearn.core.signals import interruptible
from auxlearn.results.perturbation_log import FILE
from tests import helpers
from tests.test_conformance import LOSS_OPTIONS, TASK_OPTIONS, WEIGHTING_OPTIONS
from tests.training.together import train_all

#: Weighting, its options, auxiliary tasks, loss: what each does with gradients is different.
QUICK = [
    ("fixed", {}, ["mask_tuning", "typhoon"], "cross_entropy"),
    ("meta", {"horizon": "steps", "batches": 3}, ["l3mask", "supervised"], "r_drop"),
    ("tartan", {}, ["mask_tuning", "simcse"], "cross_entropy"),
]


def case(folder, encoder, rule, options, tasks, loss):
    """Return the settings of a run, with the options of the conformance tests for the rest."""
    beside = {"BIAS": folder.with_name("bias.jsonl"), "TEXTS": folder.with_name("texts.txt")}
    paths = {name: str(path) for name, path in {"DATA": folder, **beside}.items()}

    def filled(given):
        return {name: paths.get(str(value), value) for name, value in given.items()}

    return {
        "dataset": str(folder),
        "encoder": str(encoder),
        "cache_dir": str(folder.with_name("cache")),
        "aux": [{task: filled(TASK_OPTIONS[task])} for task in tasks],
        "loss": {loss: filled(LOSS_OPTIONS[loss])},
        "weights": {"name": rule, "options": options},
        "epochs": 1,
        "batch_size": 8,
        "max_length": 32,
    }


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    place = tmp_path_factory.mktemp("together")
    rows = [
        {"text": f"{helpers.LINES[n % 24]} {helpers.LINES[(n + 5) % 24]}", "label": "ab"[n % 2]}
        for n in range(20)
    ]
    bias = [{"a": 0.7, "b": 0.3} if n % 3 else {"a": 0.2, "b": 0.8} for n in range(20)]
    helpers.write_splits(place, bias=bias)
    (place / "texts.txt").write_text("\n".join(helpers.LINES))
    return helpers.write_splits(place / "data", train=rows, dev=rows[:12], test=rows[:8])


OUTPUT = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
ALONE = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}


def launch(*arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node=2", "-m", *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | ALONE, **OUTPUT)


def compare(cases, folder):
    program = launch("tests.training.together", json.dumps(cases), folder / "two", 1)
    try:
        train_all(cases, folder / "one", 2)
        output = program.communicate(timeout=300)[0]
    finally:
        program.kill()
        program.stdout.close()
    assert program.returncode == 0, output
    assert_same_numbers(cases, folder)


def assert_same_numbers(cases, folder):
    """Compare what each run left with one process and with two."""
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
        entries = [helpers.read_lines(run / "metrics.jsonl") for run in (one, two)]
        assert len(entries[0]) == len(entries[1])
        for expected, found in zip(*entries, strict=True):
            assert found.pop("kind") == expected.pop("kind")
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-6), case
        if (one / FILE).is_file():
            assert (two / FILE).read_bytes() == (one / FILE).read_bytes()


def train_as(number, port, said, cases, folder):
    """Train as a process that torchrun has started; the first says why it ends too early."""
    os.environ |= together(port) | {"RANK": str(number)}
    try:
        train_all(cases, folder, 1)
    except BaseException:
        if number == 0:
            said.write_text(traceback.format_exc())
        raise


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_two_processes_give_the_numbers_of_one_which_resumes_when_they_are_killed(
    dataset, encoder_folder, tmp_path
):
    """Two processes give the numbers of two micro-batches, and the last of their runs is killed.

    They are forks of this process, which has imported what they need.
    """
    encoder = encoder_folder("bert")
    cases = [case(dataset, encoder, *given) for given in QUICK]
    long = case(dataset, encoder, "fixed", {}, ["random_mlm"], "cross_entropy")
    long |= {"epochs": 12, "patience": 0}
    place = tmp_path / "two" / str(len(cases))
    said, port = tmp_path / "said", free_port()
    leader, other = (
        get_context("fork").Process(
            target=train_as, args=(number, port, said, [*cases, long], place.parent)
        )
        for number in range(2)
    )
    leader.start()
    other.start()
    try:
        train_all(cases, tmp_path / "one", 2)
        deadline = time.monotonic() + 200
        while not (place / "checkpoint" / "latest.json").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        other.kill()
        leader.join(60)
    finally:
        for process in (leader, other):
            process.kill()
            process.join()
    assert "has ended without a word" in said.read_text()
    assert leader.exitcode == 1
    assert not (place / "results.json").exists(), "it had ended before it was killed"
    train_all([long], tmp_path / "one", 2, int(place.name))
    assert_same_numbers(cases, tmp_path)
    train_all([long], place.parent, 1, int(place.name))  # as many micro-batches as before
    helpers.assert_same_files(place, tmp_path / "one" / place.name)


@pytest.mark.slow
def test_validation_gradients_of_words_in_two_processes(dataset, encoder_folder, tmp_path):
    """Logits of pairs of words, and of tags whose texts have several windows."""
    cases = []
    for name, columns in (("heads", ("head", "deprel")), ("tagged", ("tags",))):
        rows = []
        for n in range(12):
            words = " ".join(helpers.LINES[n : n + 1 + n % 3]).split()
            given = {
                "head": [0] + [1] * (len(words) - 1),
                "deprel": ["root"] + ["dep"] * (len(words) - 1),
                "tags": ["AB"[len(word) % 2] for word in words],
            }
            rows.append({"tokens": words} | {column: given[column] for column in columns})
        folder = helpers.write_splits(dataset.with_name(name), train=rows, dev=rows, test=rows[:4])
        settings = case(
            folder, encoder_folder("bert"), "tartan", {}, ["random_mlm"], "cross_entropy"
        )
        windows = {"max_length": 16, "text_window": "windows", "window_stride": 4}
        settings["loss"] = "cross_entropy"  # its options are of classes
        cases.append(settings | ({"kind": "dependency"} if name == "heads" else windows))
    compare(cases, tmp_path)


@pytest.mark.slow
def test_every_task_loss_and_rule_in_two_processes(dataset, encoder_folder, tmp_path):
    """Those of the conformance tests, whose tables have all that are registered."""
    tasks, rules = list(TASK_OPTIONS), list(WEIGHTING_OPTIONS)
    losses = [name for name in LOSS_OPTIONS if "classification" in LOSSES.get(name).kinds]
    cases = []
    for number in range(max(map(len, (tasks, losses, rules)))):
        rule = rules[number % len(rules)]
        own = {"random_mlm": {}, tasks[number % len(tasks)]: {}}
        if rule == "aang":
            own = {"space": {}}  # whose members it weighs
        given = (rule, WEIGHTING_OPTIONS[rule], list(own), losses[number % len(losses)])
        cases.append(case(dataset, encoder_folder("bert"), *given))
    compare(cases, tmp_path)


@pytest.mark.slow
def test_sigterm_writes_a_checkpoint_and_accelerate_resumes(dataset, encoder_folder, tmp_path):
    """As a scheduler sends it to torchrun; ``accelerate launch`` goes on, to the same model."""
    given = ["-m", "auxlearn", "train", "--dataset", dataset, "--encoder", encoder_folder("bert")]
    given += ["--batch-size", 8, "--max-length", 32, "--device", "cpu", "--aux", "random_mlm"]
    given = [str(one) for one in [*given, "--epochs", 300, "--patience", 0]]
    place = tmp_path / "run"
    program = launch(*given[1:], "--output", place)
    deadline = time.monotonic() + 200
    while not (place / "checkpoint" / "latest.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    program.send_signal(signal.SIGTERM)
    output = program.communicate(timeout=100)[0]
    assert "run the same command again to resume" in output
    assert not (place / "results.json").exists(), "it had ended before"
    accelerate = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    accelerate += ["--multi_gpu", "--num_processes", "2"]
    done = subprocess.run(
        [*accelerate, *given, "--output", str(place)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "2 processes train, each on its part of 2 micro-batches" in done.stdout + done.stderr
    assert "resumed from step" in done.stdout + done.stderr
    steps = [row["step"] for row in helpers.read_lines(place / "metrics.jsonl")]
    assert steps == sorted(steps)
    assert steps[-1] == 900


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
def test_the_first_process_has_time_to_speak_of_settings(arguments, said, monkeypatch):
    """torchrun ends it when another one has ended; one that lives on says the error as well."""
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    spoken = []
    for rank in ("0", "1"):
        result = CliRunner().invoke(cli, arguments, env=variables | {"RANK": rank})
        assert result.exit_code == 2
        spoken.append(result.output)
        assert waited == [10] * int(rank)
    assert said in spoken[0]
    assert spoken[1] == spoken[0]


def test_a_process_that_does_not_answer_is_one_line_after_a_time(monkeypatch):
    monkeypatch.setenv("AUXLEARN_PROCESS_TIMEOUT", "7")
    for said, line in [
        ("Timed out waiting 7000ms for recv operation to complete", "has not answered for 7 sec"),
        ("Connection closed by peer [127.0.0.1]:5", "has ended without a word"),
        ("timed out connecting: SO_ERROR: Connection refused", "has ended without a word"),
    ]:
        with pytest.raises(PeerLost, match=line), _peers_alive():
            raise RuntimeError(said)
    monkeypatch.delenv("AUXLEARN_PROCESS_TIMEOUT")
    assert _timeout() == 1800
    for wrong in ("0", "-1", "5m", "1e3", "9" * 30):
        monkeypatch.setenv("AUXLEARN_PROCESS_TIMEOUT", wrong)
        with pytest.raises(ConfigError, match=r"AUXLEARN_PROCESS_TIMEOUT is .* give whole seconds"):
            _timeout()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def together(port):
    """The environment of two processes, as torchrun sets it, but for the number of each."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return address | {"WORLD_SIZE": "2", "AUXLEARN_PROCESS_TIMEOUT": "60"}


def start(*arguments):
    """Start two processes, as torchrun would."""
    settings = os.environ | ALONE | together(free_port())
    command = [sys.executable, "-m", "tests.training.together"]
    return [
        subprocess.Popen([*command, *map(str, own)], env=settings | {"RANK": str(number)}, **OUTPUT)
        for number, own in enumerate(arguments)
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_waits_for_another_hears_a_signal(number, monkeypatch):
    port = free_port()
    for name, value in (together(port) | {"RANK": "0"}).items():
        monkeypatch.setenv(name, value)

    def wait():
        with pytest.raises(KeyboardInterrupt), interruptible(), joined():
            os._exit(1)
        os._exit(7)

    process = get_context("fork").Process(target=wait)
    process.start()
    with socket.socket() as probe:
        while probe.connect_ex(("127.0.0.1", port)) != 0 and process.is_alive():
            time.sleep(0.05)
    os.kill(process.pid, number)
    process.join(20)
    process.kill()
    assert process.exitcode == 7


def test_a_process_that_waits_for_another_ends_with_torchrun(monkeypatch):
    """The parent of the process is another one than when auxlearn was imported."""
    environment = together(free_port()) | {"RANK": "0", "TORCHELASTIC_RUN_ID": "run"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("auxlearn.core.processes._LAUNCHER", -1)

    def wait():
        with pytest.raises(PeerLost, match="torchrun has ended"), joined():
            os._exit(1)
        os._exit(7)

    process = get_context("fork").Process(target=wait)
    process.start()
    process.join(20)
    process.kill()
    assert process.exitcode == 7


@pytest.mark.slow
def test_a_process_that_is_stopped_as_it_waits_does_not_abort_when_the_other_ends(dataset):
    """The other is the store of addresses alone, so that the process waits in torch for ever."""
    port = free_port()
    store = TCPStore("127.0.0.1", port, None, is_master=True, wait_for_workers=False)
    command = [sys.executable, "-m", "auxlearn", "train", "--dataset", dataset]
    environment = os.environ | ALONE | together(port) | {"RANK": "1"}
    waiting = subprocess.Popen([*map(str, command)], env=environment, **OUTPUT)
    try:
        before = store.num_keys()
        while store.num_keys() == before and waiting.poll() is None:
            time.sleep(0.1)
        time.sleep(0.5)
        waiting.terminate()
        time.sleep(0.1)
        del store
        said = waiting.communicate(timeout=60)[0]
    finally:
        waiting.kill()
    assert waiting.returncode == 130, said
    assert "terminate called" not in said


#: A function of a process that fails in its second call, what the process does, and the line.
FAULTS = [
    (1, "raise auxlearn.evaluation.evaluator.Evaluator.dev_metrics", "a fault on purpose"),
    (0, "stop auxlearn.training.whole_runs.branches._copy_folder", "has not answered for"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faulty", "fault", "line"), FAULTS, ids=[f"{n} {f}" for n, f, _ in FAULTS]
)
def test_a_process_that_fails_or_hangs_ends_the_other(
    dataset, encoder_folder, tmp_path, faulty, fault, line
):
    arguments = ["train", "--dataset", dataset, "--encoder", encoder_folder("bert"), "--epochs", 2]
    arguments += ["--aux", "random_mlm", "--weights", "meta", "--output", tmp_path / "run"]
    arguments += ["--batch-size", 8, "--max-length", 32, "--device", "cpu"]
    pair = start(*([fault if number == faulty else "-", *arguments] for number in range(2)))
    try:
        said = pair[1 - faulty].communicate(timeout=400)[0]
        if fault.startswith("raise"):
            said += pair[faulty].communicate(timeout=60)[0]
            assert pair[faulty].returncode > 0
        assert pair[1 - faulty].returncode == 2, said
    finally:
        for process in pair:
            process.kill()
            process.wait()
            process.stdout.close()
    (error,) = [one for one in said.splitlines() if one.startswith("error: ")]
    assert line in error
    assert "Traceback" not in said
    assert not (tmp_path / "run" / "results.json").exists()
