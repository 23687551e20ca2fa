"""The checks of plug-ins find what they are there to find."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import (
    KINDS,
    LOSSES,
    TASKS,
    WEIGHTINGS,
    register_kind,
    register_loss,
)
from auxlearn.kinds.classification import Classification
from auxlearn.plugins import (
    AuxiliaryTask,
    GramWeighting,
    LogitWeighting,
    LossWeighting,
    MaskedLanguageModelling,
    PrimaryLoss,
    Settings,
    labels_of,
)
from auxlearn.testing import check_loss, check_task
from auxlearn.testing.checks import ObjectiveChecks, WeightingChecks, report
from auxlearn.testing.tiny_run import build, kind_for
from tests.cli.helpers import call, error
from tests.helpers import one_line


class Good(AuxiliaryTask):
    """Cross-entropy once more; the faults below are changes of it."""

    batches = "primary"

    def loss(self, encoder, batch, generator):
        logits = encoder.classify(batch)
        return nn.functional.cross_entropy(logits, labels_of(batch, logits))


class ItemsOfMaskedWords(MaskedLanguageModelling):
    """A mean over masked tokens that says that it is one over examples."""

    def mask_probabilities(self, batch):
        return 0.3 * batch.maskable

    def items(self, batch, generator):
        return len(batch)


class DrawsByShape(MaskedLanguageModelling):
    """Masked words that are drawn for the whole batch at once."""

    def items(self, batch, generator):
        return int(self._chosen(batch, generator).sum())

    def _chosen(self, batch, generator):
        return batch.maskable & (torch.rand(batch.input_ids.shape, generator=generator) < 0.3)

    def mask_probabilities(self, batch):
        return 0.3 * batch.maskable


class DrawsBySize(DrawsByShape):
    def _chosen(self, batch, generator):
        return batch.maskable & (torch.rand(size=batch.input_ids.shape, generator=generator) < 0.3)


class DrawsByBernoulli(DrawsByShape):
    def _chosen(self, batch, generator):
        return torch.bernoulli(0.3 * batch.maskable, generator=generator).bool()


class Undocumented(Settings):
    rate: float = 0.5


class OwnLayer(Good):
    def prepare(self, context):
        super().prepare(context)
        self.layer = nn.Linear(context.encoder.hidden_size, 1)

    def loss(self, encoder, batch, generator):
        return self.layer(encoder.features(batch)).square().mean()


class IdleHead(Good):
    def prepare(self, context):
        super().prepare(context)
        context.add_head("idle", lambda: nn.Linear(2, 2))


class ChangesEncoder(Good):
    def prepare(self, context):
        super().prepare(context)
        with torch.no_grad():
            next(context.encoder.parameters()).add_(1)


class Counting(Good):
    """Depends on what happened before, which no checkpoint holds."""

    calls = 0

    def loss(self, encoder, batch, generator):
        self.calls += 1
        return super().loss(encoder, batch, generator) * self.calls


def changed(change=lambda encoder, batch, loss: loss, **members):
    """The sound task with its loss changed, and with other members."""

    class Changed(Good):
        def loss(self, encoder, batch, generator):
            return change(encoder, batch, super().loss(encoder, batch, generator))

    for name, value in members.items():
        setattr(Changed, name, value)
    return Changed


def no_head(encoder, batch, loss):
    return encoder.classifier.classifier.weight.square().sum()


NO_GRAPH = changed(lambda encoder, batch, loss: loss.detach())
#: Says that a mean over examples is one over tokens.
WRONG_ITEMS = changed(items=lambda task, batch, generator: int(batch.maskable.sum()))
ONE_EXAMPLE = changed(batches="own", batch_size=1)
FAULTS = [
    (changed(Options=Undocumented), "options", "options without a description: rate"),
    (changed(lambda encoder, batch, _: encoder.classify(batch).sum(0)), "loss", r"shape \(3,\), n"),
    (changed(lambda *given: 0.5), "loss", "returns float, not a tensor"),
    (NO_GRAPH, "loss", "no graph"),
    (changed(lambda encoder, batch, loss: loss / 0.0), "loss", "the loss is inf"),
    (changed(lambda *given: {}["nowhere"]), "loss", "KeyError: 'nowhere'"),
    (changed(lambda _, batch, loss: loss + batch.input_ids.zero_().sum()), "loss", "in place"),
    (OwnLayer, "gradient", r"nothing trains: layer\.bias, layer\.weight"),
    (IdleHead, "gradient", "no gradient reaches head 'faulty/idle'"),
    (changed(no_head), "gradient", "no gradient reaches the encoder"),
    (ChangesEncoder, "encoder", "prepare changes the encoder: classifier"),
    (changed(lambda *given: given[2] * torch.rand(())), "randomness", "torch's global generator"),
    (Counting, "randomness", "one generator state gives losses"),
    (Counting, "padding", "not seen, as the loss of a batch differs"),
    (Counting, "checkpoint", "a resumed and an uninterrupted run differ in encoder:"),
    (WRONG_ITEMS, "accumulation", "but the loss is a mean in which the first has 0.750"),
    (ItemsOfMaskedWords, "accumulation", r"items are 3 and 1 of two parts .*, a share of 0\.750"),
    (changed(lambda _, batch, loss: loss * batch.input_ids.sum()), "padding", "tokens in padding"),
    (changed(lambda _, batch, loss: loss * batch.words.shape[1]), "padding", "how long the batch"),
]


def found_by(kind, cls, folder, check):
    """What one check says of a plug-in; an error with its name."""
    checks = WeightingChecks if kind is WEIGHTINGS else ObjectiveChecks
    try:
        return getattr(checks(kind, (cls, {}), folder), f"check_{check}")()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.fixture(autouse=True)
def named(monkeypatch):
    """Name the classes above as a registration would, without registering them."""
    for cls in {cls for cls, _, _ in FAULTS} | {
        Good,
        DrawsByShape,
        DrawsBySize,
        DrawsByBernoulli,
        ONE_EXAMPLE,
    }:
        monkeypatch.setattr(cls, "name", "faulty", raising=False)


class ByPaddedLength(MaskedLanguageModelling):
    """Its rate falls with the length of the longest text of the batch."""

    def mask_probabilities(self, batch):
        return batch.maskable * 2.0 / batch.input_ids.shape[1]


class NoPrimary(LossWeighting):
    @property
    def weights(self):
        return torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64)[: len(self.objectives)]


def test_masks_by_padded_length_and_rules_without_a_primary_task_are_noticed(tmp_path, monkeypatch):
    for cls in (ByPaddedLength, NoPrimary):
        monkeypatch.setattr(cls, "name", "faulty", raising=False)
    found = found_by(TASKS, ByPaddedLength, tmp_path, "padding")
    assert "depend on how long it is padded" in found
    found = found_by(WEIGHTINGS, NoPrimary, tmp_path, "step")
    assert found.endswith("weights 0.00, 0.50, 0.50; warning: the primary task is not trained")


def test_texts_that_prepare_has_not_set_are_noticed(tmp_path):
    class NoTexts(ByPaddedLength):
        name = "faulty"

        def prepare(self, context):
            """As it is written without a call of the base class."""

    said = "has set no texts in prepare: call super().prepare(context)"
    assert said in found_by(TASKS, NoTexts, tmp_path, "loss")


@pytest.mark.parametrize(("cls", "check", "message"), FAULTS)
def test_a_fault_of_a_task_is_found(cls, check, message, tmp_path):
    assert re.search(message, found_by(TASKS, cls, tmp_path, check))


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (DrawsByShape, "weighted by items as the whole batch"),
        (DrawsBySize, "weighted by items as the whole batch"),
        (DrawsByBernoulli, "weighted by items as the whole batch"),
        (ONE_EXAMPLE, "a batch of one example has no parts"),
    ],
)
def test_items_are_checked_however_a_task_draws_and_batches(cls, expected, tmp_path):
    found = found_by(TASKS, cls, tmp_path, "accumulation")
    assert found.endswith(expected)


def test_faults_of_a_loss_are_found(tmp_path):
    class Headless(PrimaryLoss):
        name = "headless"

        def loss(self, encoder, batch, generator):
            return encoder.features(batch).square().mean()

    found = found_by(LOSSES, Headless, tmp_path, "gradient")
    assert "no gradient reaches the classification head" in found

    class DividesByWeights(PrimaryLoss):
        name = "divides"

        def loss(self, encoder, batch, generator):
            logits = encoder.classify(batch)
            weight = torch.tensor([3.0, 1.0, 1.0])
            return nn.functional.cross_entropy(logits, batch.labels, weight=weight)

    found = found_by(LOSSES, DividesByWeights, tmp_path, "accumulation")
    assert "items are 3 and 1 of two parts of a batch, a share of 0.750, but" in found


def test_a_kind_of_someone_else_is_not_what_plug_ins_are_tried_with(monkeypatch):
    monkeypatch.setattr(KINDS, "_registered", dict(KINDS._registered))

    @register_kind("a_kind")
    class First(Classification):
        """Its name comes first, and its loss fails."""

        def loss(self, logits, targets):
            return logits.sum(-1)

    assert kind_for(build(LOSSES, ("cross_entropy", {}))).name == "classification"


@pytest.mark.parametrize("kind", KINDS.names())
def test_a_loss_of_one_kind_of_labels_is_checked_with_that(kind):
    @register_loss("of_one_kind")
    class OfOneKind(PrimaryLoss):
        kinds = (kind,)

        def loss(self, encoder, batch, generator):
            logits = encoder.classify(batch)
            return encoder.kind.loss(logits, labels_of(batch, logits)).mean()

    (resume,) = (c for c in check_loss(OfOneKind).checks if c.name == "resume")
    assert resume.detail.endswith("files byte-equal")


class Half(LossWeighting):
    name = "half"

    @property
    def weights(self):
        return torch.full((len(self.objectives),), 0.5, dtype=torch.float64)


class SinglePrecision(Half):
    @property
    def weights(self):
        return torch.full((len(self.objectives),), 0.5)


class WrongNumber(Half):
    @property
    def weights(self):
        return torch.ones(2, dtype=torch.float64)


class ByLosses(LogitWeighting):
    """It has the options of its base class."""

    name = "by_losses"

    def learn(self, step):
        self.step_with(step)
        self.apply_weight_gradient(-torch.stack([*step.losses.values()]))

    def step_with(self, step):
        LossWeighting.step(self, step)


class BelowZero(GramWeighting):
    name = "below_zero"

    def weigh(self, gram, step):
        return torch.tensor([1.0, -0.5, 0.0], dtype=torch.float64)[: len(gram)]


class NoStep(Half):
    def step(self, step):
        step.backward(self.weights)
        step.optimizer.zero_grad()


class LeavesGradients(Half):
    def step(self, step):
        super().step(step)
        step.backward(self.weights)


@pytest.mark.parametrize(
    ("cls", "check", "message"),
    [
        (SinglePrecision, "weights", r"torch\.float32, not float64"),
        (WrongNumber, "weights", r"shape \(2,\), not \(3,\)"),
        (NoStep, "step", "no parameter has changed"),
        (LeavesGradients, "step", r"left in \.grad"),
        (Half, "step", "3 steps of 3 objectives"),
        (ByLosses, "step", "3 steps of 3 objectives"),
        (BelowZero, "step", r"1\.00, -0\.50, 0\.00; warning: a weight below zero raises"),
        (Half, "weights", r"0\.50, 0\.50, 0\.50"),
    ],
)
def test_faults_of_a_weighting_are_found(cls, check, message, tmp_path):
    assert re.search(message, found_by(WEIGHTINGS, cls, tmp_path, check))


def test_an_author_s_test_fails_with_the_faults_alone():
    with pytest.raises(AssertionError) as caught:
        check_task(NO_GRAPH)
    assert str(caught.value).splitlines() == [
        "auxiliary task 'faulty' does not pass:",
        "loss: the loss has no graph: it is computed without gradients",
    ]


PLUGIN = """
from torch import nn
from auxlearn.plugins import *

@register_loss("no_scalar")
class Mine(PrimaryLoss):
    "Mine."
    def loss(self, encoder, batch, generator):
        return encoder.classify(batch)
"""


def test_a_rule_that_compares_whole_runs_has_no_run_to_kill(tmp_path):
    found = found_by(WEIGHTINGS, "meta", tmp_path, "resume")
    assert found == "none: it compares runs of its own, which have fixed weights"


def test_the_command_prints_a_table_and_says_by_its_exit_code(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN)
    done = call("check", file)
    LOSSES._registered.pop("no_scalar")
    assert done.exit_code == 1
    assert "loss 'no_scalar'" in done.output
    assert re.search(r"loss +failed +loss returns shape \(4, 3\), not a scalar", done.output)


def test_options_of_a_weighting_are_given_to_its_check():
    done = call("check", "fixed", "--alpha", "0.2")
    assert done.exit_code == 0
    assert "0.80, 0.10, 0.10" in done.output


@pytest.mark.parametrize(
    ("argument", "content", "message"),
    [
        ("lemask", None, "unknown plug-in 'lemask': did you mean 'l3mask'"),
        ("mine.py", "x = 1", "registers nothing: put @register_task"),
        (
            "reporter.py",
            "from auxlearn.plugins import RunReporter, register_reporter\n\n\n"
            '@register_reporter("said")\nclass Said(RunReporter):\n'
            "    def log(self, step, values): ...\n",
            "registers no task, loss or weighting, which are what is checked",
        ),
        ("none.py", None, "plug-in file none.py does not exist"),
    ],
)
def test_the_command_refuses_what_is_no_plug_in(argument, content, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if content:
        (tmp_path / argument).write_text(content)
    assert message in error("check", argument)


def test_a_device_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = error("check", "focal", "--device", "cuda")
    assert line.endswith("CUDA is not available: use --device cpu or auto")


def test_an_unknown_device_is_one_line():
    with one_line(ConfigError, "device: must be 'auto', 'cpu' or 'cuda', got 'tpu'"):
        check_loss("focal", device="tpu")


#: An object of a class that is registered.
OBJECT = TASKS.get("simcse")(TASKS.options("simcse")())


@pytest.mark.parametrize("cls", [None, nn.Linear, type("Bare", (AuxiliaryTask,), {}), OBJECT])
def test_what_is_not_registered_is_one_line(cls):
    with one_line(ConfigError, "is no registered auxiliary task: decorate the class"):
        check_task(cls)


@pytest.mark.parametrize("raised", ["GeneratorExit", "SystemExit(0)", "E('no')"])
def test_what_is_no_exception_fails_a_check(raised):
    class E(BaseException):
        pass

    class Leaves(Good):
        name = "leaves"

        def loss(self, encoder, batch, generator):
            raise eval(raised, {"E": E})

    found = report(TASKS, (Leaves, {}), resume=False).failed
    assert [(one.name, one.detail) for one in found] == [
        ("loss", {"E('no')": "E: no", "SystemExit(0)": "SystemExit: 0"}.get(raised, raised))
    ]


def test_a_class_of_another_kind_is_named():
    with pytest.raises(ConfigError, match="focal: loss, and no auxiliary task"):
        check_task(LOSSES.get("focal"))
