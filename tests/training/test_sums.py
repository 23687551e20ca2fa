"""What processes that train together sum, against one process that computes whole batches.

The processes are threads here, which add what they give to each other; those of torch are in
``test_processes.py``. Batches are very uneven: one text is many times as long as the others.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from threading import Condition

import pytest
import torch

from auxlearn.core import processes
from auxlearn.core.processes import Processes
from auxlearn.data.batches import BatchStream
from auxlearn.kinds.base import Kind, kind_of
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.objectives.base import outputs_of
from auxlearn.training.sums import GradientSum
from auxlearn.training.validation import ValidationObjective
from auxlearn.weighting.unrolling import unrolled_gradient
from tests.helpers import LINES, assert_close, ragged, tokenized, without_dropout
from tests.training.harness import Harness, MaskedWords

EXACT = {"rtol": 1e-10, "atol": 1e-13}


class Thread(Processes):
    """A process that is a thread, and counts its collective operations."""

    def __init__(self, number, count, given, changed):
        super().__init__(number, count)
        self._given, self._changed = given, changed
        self.sizes = []
        self.events = []

    def _exchange(self, value):
        with self._changed:
            place = len(self._given[self.number])
            self._given[self.number].append(value)
            self._changed.notify_all()

        def wait():
            with self._changed:
                assert self._changed.wait_for(
                    lambda: all(len(given) > place for given in self._given), timeout=60
                ), "the processes do not make the same operations"
                return [given[place] for given in self._given]

        return wait

    def adding(self, tensor):
        self.sizes.append(tensor.numel())
        self.events.append("sent")
        wait = self._exchange(tensor.clone())

        def done():
            parts = wait()
            assert len({(part.shape, part.dtype) for part in parts}) == 1
            tensor.copy_(sum(parts[1:], parts[0]))

        return done

    def share(self, value=None, source=0):
        given = self._exchange(json.dumps(value if self.number == source else None))()
        return json.loads(given[source])


def in_processes(count, work):
    given, changed = [[] for _ in range(count)], Condition()
    everyone = [Thread(number, count, given, changed) for number in range(count)]
    with ThreadPoolExecutor(count) as pool:
        return [one.result(120) for one in [pool.submit(work, each) for each in everyone]]


#: Texts of 1, 1, 60, 2, 1 ... words: with the shortest and the longest in different processes.
UNEVEN = ["so", "we", " ".join(LINES[:9]), "we parse", "no", *LINES[:2], "yes"]


@pytest.fixture(scope="module")
def step_of(loaded):
    """Return a training step in double precision, without dropout, in the place of a process."""
    original = without_dropout(loaded("bert")).double()
    original.body.set_attn_implementation("eager")  # what a thread does to fused kernels is global

    def make(own=None, batch_size=8, surrogate="cross_entropy", head="own"):
        encoder = deepcopy(original)
        tasks = [(f"every {n}", MaskedWords(n)) for n in (2, 3)]
        for _, task in tasks:
            task.items = lambda batch, _, task=task: int(task.inputs(encoder, batch)[1].sum())
            task.texts = tokenized(encoder, LINES)
        count = own.count if own else 1
        harness = Harness(encoder, tasks, batch_size, gradient_accumulation_steps=count)
        step = harness.training_step
        texts = tokenized(encoder, UNEVEN, [n % 3 for n in range(len(UNEVEN))])
        step.primary = BatchStream(texts, batch_size, 0, "primary")
        if surrogate:
            step.validation = ValidationObjective(texts, 7, surrogate, 0, head)
        if own:
            step.processes = own
        step.begin(0)
        return step

    return make


def assert_equal(found, expected, **tolerance):
    assert_close(found, expected, **EXACT | tolerance)


def assert_all_equal(found, expected):
    assert_equal([g for one in found for g in one], [g for one in expected for g in one])


@pytest.mark.parametrize(("count", "batch_size"), [(2, 8), (3, 8), (3, 7)])
def test_uneven_shards_give_the_gradients_of_the_whole_batch(step_of, count, batch_size):
    """Of eight texts, the first batch of seven is the one left over: two processes have none."""
    expected = step_of(batch_size=batch_size)
    lengths = expected.primary.batch(0).attention_mask.sum(1)
    assert len(lengths) == 1 if batch_size == 7 else lengths.max() > 10 * lengths.median()
    gradients = expected.gradients()
    losses = dict(expected.losses)

    def work(own):
        step = step_of(own, batch_size)
        assert_all_equal(step.gradients(), gradients)
        assert_equal(step.losses.values(), [losses[name] for name in step.losses])
        totals = [[None if g is None else 0 * g for g in one] for one in gradients]
        for found in step.micro_gradients():
            totals = [
                [a if b is None else a + b for a, b in zip(one, other, strict=True)]
                for one, other in zip(totals, found, strict=True)
            ]
        assert_all_equal(totals, gradients)
        step.backward((0.5, 0.2, 0.3))
        return [parameter.grad for parameter in step.parameters]

    expected.backward((0.5, 0.2, 0.3))
    for found in in_processes(count, work):
        assert_equal(found, [parameter.grad for parameter in expected.parameters])


def test_gradients_of_two_passes_add_up(step_of):
    """A rule may call ``backward`` twice: what was summed before is not summed again."""
    expected = step_of()
    expected.backward((0.5, 0.2, 0.3))

    def work(own):
        step = step_of(own)
        step.backward((0.5, 0.0, 0.3))
        step.backward((0.0, 0.2, 0.0))
        return [parameter.grad for parameter in step.parameters]

    for found in in_processes(2, work):
        assert_equal(found, [parameter.grad for parameter in expected.parameters])


@pytest.mark.parametrize(
    ("count", "surrogate", "head"),
    [
        (2, "cross_entropy", "own"),
        (9, "macro_f1", "own"),
        (9, "accuracy", "closed"),
        (2, "accuracy", "fitted"),
    ],
)
def test_a_divided_validation_gradient(step_of, count, surrogate, head):
    """With nine processes, some have no example of the seven."""
    expected = step_of(surrogate=surrogate, head=head)
    gradient = expected.validation_gradient(batches=2)

    def work(own):
        step = step_of(own, surrogate=surrogate, head=head)
        return step.validation_gradient(batches=2), step.losses["validation"]

    for found, loss in in_processes(count, work):
        assert_equal([*found, loss], [*gradient, expected.losses["validation"]])


@pytest.mark.parametrize("count", [2, 4])
def test_steps_that_are_differentiated_through_are_divided(step_of, count):
    """With four processes and batches of three, one has no example of the objectives."""
    weights = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)

    def derivative(step):
        found, first = unrolled_gradient(step, weights, 2, batches=2)
        return [found, *first]

    expected = derivative(step_of(batch_size=3))
    assert float(expected[0].abs().min()) > 1e-9
    for found in in_processes(count, lambda own: derivative(step_of(own, batch_size=3))):
        assert_equal(found, expected, rtol=1e-8)


def test_a_bucket_is_one_operation_which_begins_during_the_backward_pass(step_of, monkeypatch):
    monkeypatch.setattr(processes, "_BUCKET", 50_000)

    def fixed(own):
        step = step_of(own)
        count = len(GradientSum(own, step.parameters)._buckets)
        embeddings = step.encoder.body.get_input_embeddings().weight
        embeddings.register_post_accumulate_grad_hook(lambda _: own.events.append("reached"))
        step.backward((0.5, 0.2, 0.3))
        return count, len(step.parameters), own

    for count, parameters, own in in_processes(2, fixed):
        assert 3 < count < parameters / 2
        assert len(own.sizes) == count + 1  # the losses are summed together
        last = len(own.events) - 1 - own.events[::-1].index("reached")
        assert 0 < own.events[:last].count("sent") < count
        assert own.events[: own.events.index("sent")].count("reached") == 2  # of the tasks

    def by_objective(own):
        step = step_of(own)
        loss = step.primary_loss.loss
        step.primary_loss.loss = lambda *given: own.events.append("primary") or loss(*given)
        step.gradients()
        return len(GradientSum(own, step.parameters)._buckets), own

    for count, own in in_processes(2, by_objective):
        assert len(own.sizes) == 3 * count + 1
        assert own.events.index("primary") == 2 * count  # those of both tasks are on their way


@pytest.mark.parametrize("count", [2, 3])
def test_evaluation_is_divided_and_equal_to_the_last_bit(tiny_bert, count):
    texts = tokenized(tiny_bert, LINES, [n % 3 for n in range(len(LINES))])
    seen = []

    def classify(batch):
        seen.append(len(batch))
        return tiny_bert.classify(batch)

    def outputs(size, *given):
        return outputs_of(
            CLASSIFICATION, classify, texts, (), None, *given, batch_size=size
        ).tolist()

    tiny_bert.eval()
    for size in (4, len(LINES)):  # the second: a single batch, which the first process has
        expected = outputs(size)
        whole, seen[:] = list(seen), []
        found = in_processes(count, lambda own, size=size: outputs(size, nullcontext, own))
        assert found == [expected] * count
        assert sorted(seen) == sorted(whole)
        seen.clear()


@pytest.mark.parametrize("name", ["multi_label", "token_classification"])
def test_outputs_of_other_kinds_are_divided(monkeypatch, name):
    monkeypatch.setattr(Kind, "eval_batch", 2)
    lengths = [3, 9, 2, 3, 30, 4, 3]
    texts = ragged(lengths)
    inside = texts.maskable.long()
    texts = replace(texts, starts=(inside.cumsum(0) * inside - 1).int())
    kind = kind_of(name)

    def classify(batch):
        logits = batch.input_ids[..., None].double() * torch.tensor([1.0, 0.5, -2.0])
        return logits.sin() if kind.per_token else logits.sum(1).sin()

    def outputs(*given):
        words = [length - 2 for length in lengths] if kind.per_token else []
        return [one.tolist() for one in outputs_of(kind, classify, texts, words, 1, *given)]

    expected = outputs()
    assert len(expected) == len(lengths)
    assert in_processes(3, lambda own: outputs(nullcontext, own)) == [expected] * 3


@pytest.mark.parametrize("count", [2, 9])
def test_gradients_at_the_tokens_are_those_of_the_whole_batch(step_of, count):
    def seen_by(step):
        seen = []
        (task, _) = (one.task for one in step.auxiliaries)
        task.watches_primary = True
        task.observe_primary = lambda *given: seen.append(given)
        step.gradients()
        return seen

    ((ids, gradients),) = seen_by(step_of())
    assert float(gradients.norm(dim=-1)[ids != 0].min()) > 0
    for found in in_processes(count, lambda own: seen_by(step_of(own))):
        ((own_ids, own_gradients),) = found
        assert torch.equal(own_ids, ids)
        assert_equal([own_gradients], [gradients])
