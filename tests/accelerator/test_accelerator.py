"""The pretend accelerator, and what runs on it: runs end, and their steps do not wait for it.

All tests are in one file, so that one process has the device.
"""

from __future__ import annotations

import pytest
import torch

from auxlearn import RunConfig, train
from auxlearn.core.registry import LOSSES
from tests import helpers
from tests.accelerator import pretend, runs
from tests.test_conformance import LOSS_OPTIONS, TASK_OPTIONS, WEIGHTING_OPTIONS

#: Waits of a step that a task cannot do without: what is sampled or chosen on the CPU.
OF_TASK = {"mask_tuning": 1, "typhoon": 2, "mixture": 2}

#: Waits of a step while the weights move; a rule that is not named here may wait once. The head
#: that TARTAN and AANG fit in ten steps decides after each whether there is another.
OF_WEIGHTING = {
    "fixed": 0,
    "equal": 0,
    "meta": 2,
    "tartan": 11,
    "tartan_released": 11,
    "aang": 12,
}

#: Waits of a pass within transformers, by family: the body looks into a mask of two dimensions,
#: once for each kind of attention, to find out whether there is padding. It takes no ready mask.
OF_PASS = {"modernbert": 2, "bart": 3, "mpnet": 1}
#: The primary task, two auxiliary ones and three validation batches.
PASSES = 6

#: What every run of the tests trains: it stands for the others, which are slow.
QUICK = {"random_mlm", "confidence", "tartan", "modernbert"}


def some_slow(names):
    """Mark all but some of the cases as slow."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


def check(report, most: int) -> None:
    """Make sure that a run of two steps ended, on the device, without needless waits in them."""
    assert report["results"]["steps"] == len(report["steps"]) == 2
    assert report["parameters"] == [pretend.NAME]
    for waits in report["steps"]:
        assert len(waits) <= most, waits


@pytest.mark.parametrize("task", some_slow(TASK_OPTIONS))
def test_every_task(task, config, labelled, on_accelerator):
    paths = {"DATA": str(labelled), "TEXTS": str(labelled / "train.jsonl")}
    options = {name: paths.get(str(value), value) for name, value in TASK_OPTIONS[task].items()}
    settings = config(aux=[{task: options}], gradient_accumulation_steps=2, precision="bf16")
    check(on_accelerator(runs.train, settings), 2 * OF_TASK.get(task, 0))


OF_CLASSES = [n for n in LOSS_OPTIONS if "classification" in LOSSES.get(n).kinds]


@pytest.mark.parametrize("loss", some_slow(OF_CLASSES))
def test_every_loss(loss, config, one_layer, on_accelerator):
    options = {
        "bias_encoder": str(one_layer),
        "bias_folds": 2,
        "bias_epochs": 1,
        "teacher_epochs": 1,
    }
    known = LOSSES.get(loss).Options.model_fields
    chosen = {loss: {name: value for name, value in options.items() if name in known}}
    report = on_accelerator(runs.train, config(loss=chosen, encoder=str(one_layer)))
    check(report, int(loss == "hidden_cut"))  # unfused attention takes a mask of two dimensions


@pytest.mark.parametrize("weighting", some_slow(WEIGHTING_OPTIONS))
def test_every_weighting(weighting, config, one_layer, on_accelerator):
    weights = {weighting: WEIGHTING_OPTIONS[weighting]}
    settings = config(encoder=str(one_layer), aux=["random_mlm", "l3mask"], weights=weights)
    check(on_accelerator(runs.train, settings), OF_WEIGHTING.get(weighting, 1))


@pytest.mark.parametrize("family", some_slow(helpers.FAMILIES))
def test_every_family(family, config, on_accelerator):
    weights = {"meta": WEIGHTING_OPTIONS["meta"]}
    settings = config(family, aux=["l3mask", "mask_tuning"], weights=weights)
    most = OF_TASK["mask_tuning"] + OF_WEIGHTING["meta"] + PASSES * OF_PASS.get(family, 0)
    check(on_accelerator(runs.train, settings), most)


@pytest.mark.parametrize("head", ["closed", pytest.param("fitted", marks=pytest.mark.slow)])
def test_a_head_that_is_fitted_to_validation_examples(head, config, on_accelerator):
    options = {"horizon": "steps", "warmup_steps": 0, "dev_head": head}
    settings = config(aux=["random_mlm"], weights={"meta": options})
    check(on_accelerator(runs.train, settings), OF_WEIGHTING["meta"] + 10 * (head == "fitted"))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_is_that_of_the_cpu(precision, config, on_accelerator, encoder_folder, tmp_path):
    settings = config(
        encoder=helpers.copy_without_dropout(encoder_folder("bert"), tmp_path / "encoder"),
        aux=["mask_tuning", "l3mask"],
        weights={"meta": WEIGHTING_OPTIONS["meta"]},
        metric="macro_f1",
        precision=precision,
    )
    there = on_accelerator(runs.train, settings | {"output": str(tmp_path / "there")})["results"]
    here = train(
        RunConfig.model_validate(settings | {"output": str(tmp_path / "here"), "device": "cpu"})
    ).reproducible()
    tolerance = 1e-4 if precision == "fp32" else 0.05
    for name, evaluation in here["evaluations"].items():
        loss = there["evaluations"][name]["loss"]
        assert loss == pytest.approx(evaluation["loss"], abs=tolerance), name
    assert there["weights"] == pytest.approx(here["weights"], abs=tolerance)
    texts = list(helpers.LINES[:5])
    rows, device = on_accelerator(runs.predict, str(tmp_path / "there"), texts)
    assert device == f"{pretend.NAME}:0"
    assert [sum(row) for row in rows] == pytest.approx([1] * 5, abs=1e-6)


def test_a_stopped_run_is_resumed(config, labelled, on_accelerator, tmp_path):
    """A run of four steps that is stopped after three ends as an undisturbed one.

    A batch of two sets is of one of them, and the head of the other is not reached by the step.
    """
    sets = [{"dataset": str(labelled), "name": name} for name in ("first", "second")]
    options = {"horizon": "steps", "warmup_steps": 0, "gate_share": 1}
    settings = config(aux=[{"supervised": {"datasets": sets}}], weights={"meta": options}, epochs=2)
    whole, parts = (settings | {"output": str(tmp_path / name)} for name in ("a", "b"))
    expected = on_accelerator(runs.train, whole)["results"]
    stopped = on_accelerator(runs.train, parts, stop_after=3)  # between two rows of losses
    assert stopped["results"] is None
    resumed = on_accelerator(runs.train, parts)["results"]
    helpers.assert_same_files(tmp_path / "a", tmp_path / "b", "metrics.jsonl")
    assert resumed == expected


def test_pretraining(on_accelerator, encoder_folder, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(helpers.LINES))
    before, after = on_accelerator(
        runs.pretrain, str(encoder_folder("bert")), str(corpus), str(tmp_path / "out")
    )
    assert after < before


def test_a_check_compares_losses_with_those_of_the_cpu(on_accelerator):
    assert on_accelerator(runs.checked) == [True, False]


@pytest.mark.parametrize(("passes", "half"), [(None, False), (4, False), (4, True)])
@pytest.mark.parametrize("family", some_slow(helpers.FAMILIES))
def test_scores(family, passes, half, encoder_folder, on_accelerator):
    folder = str(encoder_folder(family))
    there, waits = on_accelerator(runs.score, folder, passes, half, True)
    here, _ = on_accelerator(runs.score, folder, passes, half, False)
    assert len(here) > 50
    # In half precision the two round differently, by an encoder whose logits differ widely.
    assert there == pytest.approx(here, abs=1.0 if half else 2e-4)
    assert waits == 1 or family in OF_PASS


# ------------------------------------------------------------------------------------- the device


def outcome_of(source: str) -> int | str:
    """Run a statement on tensors of the device; return the number of waits, or the error."""
    device = pretend.device()
    names = {
        "torch": torch,
        "device": device,
        "x": torch.ones(3, 3).to(device),
        "whole": torch.tensor([0, 2, 1]).to(device),
        "mask": torch.tensor([True, False, True]).to(device),
        "cpu": torch.ones(3, 3),
    }
    before = len(pretend.waits)
    try:
        exec(source, names)
    except RuntimeError as error:
        return str(error)
    return len(pretend.waits) - before


MIXTURES = (
    "x + cpu",
    "cpu @ x",
    "torch.cat([x, cpu])",
    "torch.stack([x.sum(), cpu.sum()])",
    "x.index_select(0, torch.tensor([1]))",
    "torch.nn.functional.embedding(torch.tensor([1]), x)",
    "torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, 2]))",
    "cpu[x.long()]",
    "x.index_put_((x[0].long(),), cpu[:, :1])",
)


def test_mixtures_are_refused(on_accelerator):
    for source in MIXTURES:
        assert "same device" in on_accelerator(outcome_of, source), source


COUNTS = {
    "float(x.sum())": 1,
    "bool(x.sum())": 1,
    "[float(number) for number in x[0]]": 3,
    "x.to('cpu', non_blocking=True)": 1,
    "cpu.copy_(x)": 1,
    "x[mask]": 1,
    "x.nonzero()": 1,
    "torch.equal(x, x)": 1,
    "x * torch.tensor(2.0)": 0,
    "torch.where(x > 0, x, torch.tensor(0.0))": 0,
    "cpu.to(device, non_blocking=True)": 0,
    "x[mask] = 0.0": 0,
    "x[whole]": 0,
    "(x @ x).softmax(-1).sum()": 0,
}


def test_waits_are_counted(on_accelerator):
    assert {source: on_accelerator(outcome_of, source) for source in COUNTS} == COUNTS


def test_random_numbers_are_of_the_device(on_accelerator):
    assert on_accelerator(runs.seeds) == [True, True, True, True]
