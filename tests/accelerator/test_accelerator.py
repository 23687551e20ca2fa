"""The pretend accelerator, and what runs on it: runs end, and their steps do not wait for it.

All tests are in one file, so that one process has the device.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from auxlearn import RunConfig, train
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS, Registry
from tests import helpers
from tests.accelerator import pretend, runs
from tests.test_conformance import TASK_OPTIONS, WEIGHTING_OPTIONS

EXAMPLES = Path(__file__).parents[2] / "examples"

STEPS = 2

slow = pytest.mark.slow


def some_slow(names, quick):
    """Mark all but some of the cases as slow: those stand for the others in every run."""
    return [name if name in quick else pytest.param(name, marks=slow) for name in names]


#: Waits of a step that a task cannot do without.
OF_TASK = {
    # The tokens that the encoder predicts are put into the text, which is on the CPU: tasks that
    # come after read it there, and the record of the run keeps it.
    "mask_tuning": 1,
    # The probabilities, from which a token is sampled on the CPU, and the sampled tokens.
    "replaced_tokens": 2,
    # The tokens of the primary loss and its gradients at them: the masks that follow from their
    # averages are chosen on the CPU. The mixture that is trained here has it as a part.
    "typhoon": 2,
    "mixture": 2,
}

#: Waits of a step while the weights move; a rule that is not named here may wait once.
OF_WEIGHTING = {
    "fixed": 0,
    "equal": 0,
    # The Gram matrix, which clipping is computed from, and what the validation gradient gives.
    "meta": 2,
    # The inner products, and the loss of each of ten steps of the head's fit: whether there is a
    # next step depends on it.
    "tartan": 11,
    "tartan_released": 11,
    # As tartan, and the inner products of the members.
    "aang": 12,
}

#: Waits of a pass within transformers, by family: the body looks into a mask of two dimensions,
#: once for each kind of attention, to find out whether there is padding. It takes no ready mask.
OF_PASS = {
    "modernbert": 2,  # full and sliding
    "bart": 3,  # encoder, decoder, decoder to encoder
    "mpnet": 1,
}
LOOKS_INTO_MASKS = "transformers/masking_utils.py"


def builtin(registry: Registry) -> list[str]:
    return [n for n in registry.names() if registry.get(n).__module__.startswith("auxlearn.")]


def check(report: runs.Report, most: int, most_in_masks: int = 0) -> None:
    """Make sure that a run ended, on the device, without needless waits in its steps."""
    assert report["results"]["steps"] == len(report["steps"]) == STEPS
    assert report["parameters"] == [pretend.NAME]
    for number, waits in enumerate(report["steps"]):
        in_masks = [place for _, place in waits if place.startswith(LOOKS_INTO_MASKS)]
        assert len(in_masks) <= most_in_masks, f"step {number}: {waits}"
        assert len(waits) - len(in_masks) <= most, f"step {number}: {waits}"


def options_of(task: str, labelled: Path) -> dict[str, object]:
    """Options that a task is tested with; DATA stands for a data set, TEXTS for a file of texts."""
    paths = {"DATA": str(labelled), "TEXTS": str(labelled / "train.jsonl")}
    return {name: paths.get(str(value), value) for name, value in TASK_OPTIONS[task].items()}


@pytest.mark.parametrize(
    ("task", "weighting"),
    [
        ("random_mlm", "fixed"),
        ("mask_tuning", "meta"),
        *(pytest.param(t, "fixed", marks=slow) for t in builtin(TASKS) if t != "random_mlm"),
        *(pytest.param(task, "meta", marks=slow) for task in ("random_mlm", "supervised")),
    ],
)
def test_every_task(task, weighting, config, labelled, on_accelerator):
    weights = {weighting: WEIGHTING_OPTIONS[weighting]}
    settings = config(aux=[{task: options_of(task, labelled)}], weights=weights)
    report = on_accelerator(runs.train, settings)
    check(report, OF_TASK.get(task, 0) + OF_WEIGHTING[weighting])


#: Waits of a loss within transformers: unfused attention takes a mask of two dimensions.
MASKS_OF_LOSS = {"hidden_cut": 1}


@pytest.mark.parametrize("loss", some_slow(builtin(LOSSES), ("cross_entropy", "confidence")))
def test_every_loss(loss, config, smallest, on_accelerator):
    options = {
        "bias_encoder": smallest["encoder"],
        "bias_folds": 2,
        "bias_epochs": 1,
        "teacher_epochs": 1,
    }
    known = LOSSES.get(loss).Options.model_fields
    chosen = {loss: {name: value for name, value in options.items() if name in known}}
    report = on_accelerator(runs.train, config(loss=chosen, **smallest))
    check(report, 0, MASKS_OF_LOSS.get(loss, 0))


@pytest.fixture(scope="module")
def smallest(one_layer, tmp_path_factory) -> dict[str, str]:
    """An encoder of one layer, and one cache: rules neither read layers nor score tokens."""
    return {"encoder": str(one_layer), "cache_dir": str(tmp_path_factory.mktemp("cache"))}


#: One of the rules of a module, such as TorchJD's aggregations, stands for them.
RULES = {WEIGHTINGS.get(name).__module__: name for name in builtin(WEIGHTINGS)}


@pytest.mark.parametrize(
    "weighting", some_slow(sorted({*RULES.values(), *OF_WEIGHTING}), ("fixed", "meta", "tartan"))
)
def test_every_weighting_with_two_tasks(weighting, config, smallest, on_accelerator):
    settings = config(
        **smallest,
        aux=["random_mlm", "l3mask"],
        weights={weighting: WEIGHTING_OPTIONS.get(weighting, {})},
        metric="macro_f1",
    )
    check(on_accelerator(runs.train, settings), OF_WEIGHTING.get(weighting, 1))


@pytest.mark.parametrize("family", some_slow(helpers.FAMILIES, ("bert", "modernbert")))
def test_every_family(family, config, on_accelerator):
    weights = {"meta": WEIGHTING_OPTIONS["meta"]}
    settings = config(family, aux=["l3mask", "mask_tuning"], weights=weights)
    most = OF_TASK["mask_tuning"] + OF_WEIGHTING["meta"]
    passes = 6  # two auxiliary tasks, the primary one, three validation batches
    check(on_accelerator(runs.train, settings), most, passes * OF_PASS.get(family, 0))


#: Sums of gradients in a step: of each objective, of validation; on each micro-batch for `tartan`.
SUMS_OF_STEP = {"fixed": 2, "pcgrad": 2, "meta": 3, "tartan": 6}


@pytest.mark.parametrize("weighting", some_slow(list(SUMS_OF_STEP), ("pcgrad", "meta")))
def test_sums_over_processes_are_made_on_the_device(weighting, config, on_accelerator, tmp_path):
    """A step of two processes waits once more for each sum of gradients, and no oftener."""
    settings = config(
        aux=["random_mlm"],
        weights={weighting: WEIGHTING_OPTIONS.get(weighting, {})},
        gradient_accumulation_steps=2,
        precision="bf16",
    )
    alone, together = (
        on_accelerator(runs.train, settings | {"output": str(tmp_path / str(peer))}, idle_peer=peer)
        for peer in (False, True)
    )
    sums = SUMS_OF_STEP[weighting]
    for one, other in zip(alone["steps"], together["steps"], strict=True):
        assert len(other) <= len(one) + sums
    assert alone["summed"] == {}
    assert together["summed"][pretend.NAME] > 1000 > together["summed"]["cpu"]  # flags and outputs
    if weighting in ("fixed", "pcgrad"):  # of the validation batches, half would be the peer's
        for report in (alone, together):
            del report["results"]["config"]["output"]
        assert together["results"] == alone["results"]


def validated(head: str) -> dict[str, Any]:
    options = {"horizon": "steps", "warmup_steps": 0, "dev_head": head}
    return {"aux": ["random_mlm"], "weights": {"meta": options}}


#: Other settings, and the waits of a step.
SETTINGS: dict[str, tuple[dict[str, Any], int]] = {
    "two tasks on the primary batch": ({"aux": ["mask_tuning", "mask_tuning"]}, 2),
    # The chances as well, which are drawn from on the CPU.
    "drawn predictions": ({"aux": [{"mask_tuning": {"predictions": "sample"}}]}, 2),
    "a head in closed form": (validated("closed"), OF_WEIGHTING["meta"]),
    "a fitted head": (validated("fitted"), OF_WEIGHTING["meta"] + 10),
    "the plug-in of the README": (
        {"aux": ["rare_first"], "plugins": [str(EXAMPLES / "rare_first.py")]},
        0,
    ),
}


@pytest.mark.parametrize("what", SETTINGS)
def test_other_settings(what, config, on_accelerator):
    settings, waits = SETTINGS[what]
    check(on_accelerator(runs.train, config(**settings)), waits)


ACCUMULATED = ["random_mlm", "mask_tuning", "replaced_tokens", "supervised"]


@pytest.mark.parametrize("task", some_slow(ACCUMULATED, ("mask_tuning",)))
def test_accumulation(task, config, labelled, on_accelerator):
    more = {"gradient_accumulation_steps": 2, "precision": "bf16", "weights": "fixed"}
    settings = config(aux=[{task: options_of(task, labelled)}], **more)
    check(on_accelerator(runs.train, settings), 2 * OF_TASK.get(task, 0))


def test_a_body_is_given_masks_of_one_kind(config, on_accelerator):
    # What a compiled body has been compiled for; another kind would be compiled for in a step.
    kinds = on_accelerator(runs.masks, config(aux=["mask_tuning", "random_mlm"]))
    assert set(kinds) <= {"none", "4 torch.bool"}
    assert "4 torch.bool" in kinds


def test_an_evaluation_waits_once_for_each_set(config, on_accelerator, labelled, tmp_path):
    few = on_accelerator(runs.train, config(output=str(tmp_path / "few")))
    more = on_accelerator(
        runs.train,
        config(output=str(tmp_path / "more"), ood=[{"dataset": str(labelled), "name": "again"}]),
    )
    check(few, 0)
    check(more, 0)
    assert more["others"] == few["others"] + 1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_is_that_of_the_cpu(precision, config, on_accelerator, encoder_folder, tmp_path):
    settings = config(
        encoder=helpers.copy_without_dropout(encoder_folder("bert"), tmp_path / "encoder"),
        aux=["mask_tuning", "l3mask"],
        weights={"meta": WEIGHTING_OPTIONS["meta"]},
        metric="macro_f1",
        precision=precision,
    )
    there = on_accelerator(runs.train, settings | {"output": str(tmp_path / "there")})
    here = train(
        RunConfig.model_validate(settings | {"output": str(tmp_path / "here"), "device": "cpu"})
    ).reproducible()
    tolerance = 1e-4 if precision == "fp32" else 0.05
    for name, evaluation in here["evaluations"].items():
        found = there["results"]["evaluations"][name]["loss"]
        assert found == pytest.approx(evaluation["loss"], abs=tolerance), name
    assert there["results"]["weights"] == pytest.approx(here["weights"], abs=tolerance)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "there" / "model")
    assert model.config.architectures == ["BertForSequenceClassification"]


@pytest.mark.parametrize("weighting", ["fixed", "meta", "meta of two heads"])
def test_a_stopped_run_is_resumed(weighting, config, labelled, on_accelerator, tmp_path):
    """A run of four steps that is stopped after three ends as an undisturbed one.

    A batch of two sets is of one of them, and the head of the other is not reached by the step.
    """
    settings = config(aux=["l3mask", "mask_tuning"], epochs=2)
    if weighting == "meta of two heads":
        sets = [{"dataset": str(labelled), "name": name} for name in ("one", "other")]
        settings["aux"] = [{"supervised": {"datasets": sets}}]
        options = {"horizon": "steps", "warmup_steps": 0, "gate_share": 1}
        settings["weights"] = {"meta": options}
    else:
        settings["weights"] = {weighting: WEIGHTING_OPTIONS[weighting]}
    whole, parts = (settings | {"output": str(tmp_path / name)} for name in ("a", "b"))
    expected = on_accelerator(runs.train, whole)
    stopped = on_accelerator(runs.train, parts, stop_after=3)  # between two rows of losses
    assert stopped["results"] is None
    resumed = on_accelerator(runs.train, parts)
    assert [len(report["steps"]) for report in (expected, stopped, resumed)] == [4, 3, 1]
    rows = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("a", "b")]
    assert rows[0] == rows[1]
    del expected["results"]["config"]["output"], resumed["results"]["config"]["output"]
    assert resumed["results"] == expected["results"]


def test_an_exported_model_predicts(config, on_accelerator, tmp_path):
    on_accelerator(runs.train, config(aux=["random_mlm"]))
    texts = list(helpers.LINES[:5])
    found, device = on_accelerator(runs.predict, str(tmp_path / "run"), texts)
    assert device == f"{pretend.NAME}:0"
    assert len(found) == 5
    assert all(sum(row) == pytest.approx(1, abs=1e-6) for row in found)


def test_pretraining(on_accelerator, encoder_folder, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(helpers.LINES))
    before, after, waits, tensors = on_accelerator(
        runs.pretrain, str(encoder_folder("bert")), str(corpus), str(tmp_path / "out")
    )
    assert after < before
    # One for each tensor of the encoder on its way there, into the checkpoint, with the optimizer's
    # two moments, and into the output; and five: two of each measurement, and one for the losses.
    assert waits <= 5 * tensors + 5


@pytest.mark.slow
def test_clean_and_shuffled_labels(config, on_accelerator, tmp_path):
    every = on_accelerator(
        runs.example, str(EXAMPLES / "clean_vs_shuffled.py"), str(tmp_path), config()
    )
    assert len(every) == 3
    assert all({"weight/clean_labels", "weight/shuffled_labels"} <= set(rows[-1]) for rows in every)


def test_a_check_compares_losses_with_those_of_the_cpu(on_accelerator):
    (equal, said), (off, why) = on_accelerator(runs.checked)
    assert (equal, said) == (True, "losses on pretend:0 equal to those on the CPU")
    assert off is False
    assert re.fullmatch(r"the loss of 'primary' at step 1 is \S+ on the CPU, \S+ on pretend:0", why)


CASES = [
    *((family, passes, False) for family in helpers.FAMILIES for passes in (None, 4)),
    *((family, 4, True) for family in ("bert", "modernbert")),  # one of each kind of pass
]


@pytest.mark.parametrize(("family", "passes", "half"), CASES)
def test_scores(family, passes, half, encoder_folder, on_accelerator):
    folder = str(encoder_folder(family))
    found, waits = on_accelerator(runs.score, folder, passes, half, True)
    expected, _ = on_accelerator(runs.score, folder, passes, half, False)
    assert len(found) > 50
    # In half precision the two round differently, by an encoder whose logits differ widely.
    assert found == pytest.approx(expected, abs=1.0 if half else 2e-4)
    assert len([place for _, place in waits if LOOKS_INTO_MASKS not in place]) == 1, waits


# ------------------------------------------------------------------------------------- the device


def on_device(*shape: int, **kinds: Any) -> Tensor:
    return pretend.tensor_of(torch.ones(shape).tolist(), **kinds)


def outcome_of(source: str) -> int | str:
    """Run a statement on tensors of the device; return the number of waits, or the error."""
    names = {
        "torch": torch,
        "device": pretend.device(),
        "x": on_device(3, 3),
        "whole": pretend.tensor_of([0, 2, 1]),
        "mask": pretend.tensor_of([True, False, True]),
        "cpu": torch.ones(3, 3),
    }
    with pretend.counted() as found:
        try:
            exec(source, names)
        except RuntimeError as error:
            return str(error)
    return len(found)


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
    for source in MIXTURES:
        assert "same device" in on_accelerator(outcome_of, source), source


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
        ("x * torch.tensor(2.0)", 0),
        ("torch.where(x > 0, x, torch.tensor(0.0))", 0),
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
    assert on_accelerator(outcome_of, source) == count


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
    """Whether the device draws from a generator of its own."""
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


def half_precision() -> list[str]:
    layer, x = nn.Linear(3, 3).to(pretend.device()), on_device(2, 3)
    with torch.autocast(pretend.NAME, torch.bfloat16):
        y = layer(x)
        normed = nn.functional.layer_norm(y, (3,))
    normed.sum().backward()
    return [str(t.dtype) for t in (y, normed, layer.weight.grad)]


def no_gradient() -> list[str]:
    layer, x = nn.Linear(3, 3).to(pretend.device()), on_device(2, 3)
    with torch.inference_mode():
        y = layer(x)[:, :2]
        y += 1
        return [str(y.device), str(y.cpu().device), str(y.requires_grad)]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (generators, [True, True, True]),
        (half_precision, ["torch.bfloat16", "torch.float32", "torch.float32"]),
        (no_gradient, ["pretend:0", "cpu", "False"]),
        (runs.seeds, [True, True, True, True]),
    ],
)
def test_it_draws_casts_and_infers_as_cuda_does(on_accelerator, function, expected):
    assert on_accelerator(function) == expected


def missing() -> None:
    raise KeyError("there")


def test_errors_come_back_and_the_process_of_the_tests_is_left_alone(on_accelerator):
    with pytest.raises(KeyError, match="there"):
        on_accelerator(missing)
    assert not hasattr(torch, pretend.NAME)
    assert torch.accelerator.current_accelerator() is None or torch.cuda.is_available()
