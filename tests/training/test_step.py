"""One optimizer step: weights, gradients and micro-batches."""

import weakref
from dataclasses import replace

import pytest
import torch

from auxlearn.core.errors import ConfigError, PluginError
from auxlearn.core.validation import Settings
from auxlearn.data.batches import BatchStream, UniformStream, collate
from auxlearn.tasks.base import AuxiliaryTask, TaskResult
from auxlearn.tasks.random_mlm import RandomMLM
from auxlearn.training.plugin_checks import calling, state_of
from auxlearn.weighting.base import apply_gradient
from auxlearn.weighting.gradients import weighted_sum
from tests.helpers import (
    LINES,
    assert_close,
    context,
    snapshot,
    tokenized,
    without_dropout,
)
from tests.training.harness import Given, Harness, MaskedWords


@pytest.fixture
def new_encoder(loaded):
    return lambda: loaded("bert")


@pytest.fixture
def mlm(tmp_path):
    def make(encoder):
        task = RandomMLM(RandomMLM.Options())
        task.prepare(context(encoder, tokenized(encoder, LINES), tmp_path))
        return task

    return make


def equal(one, other):
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_weight_zero_leaves_the_primary_task_unchanged(new_encoder, mlm):
    alone = Harness(new_encoder())
    alone_losses = alone.run(6, (1.0,))
    encoder = new_encoder()
    assert encoder.config.hidden_dropout_prob > 0  # dropout masks are part of the proof
    both = Harness(encoder, [("random_mlm", mlm(encoder)), ("again", mlm(encoder))])
    both_losses = both.run(6, (1.0, 0.0, 0.0))
    assert equal(snapshot(alone.encoder), snapshot(both.encoder))
    for one, other in zip(alone_losses, both_losses, strict=True):
        assert torch.equal(one["primary"], other["primary"])
        assert other["random_mlm"] > 0
        assert not torch.equal(other["random_mlm"], other["again"])  # random streams of their own
    other = Harness(new_encoder(), [("random_mlm", mlm(encoder))])
    other.run(6, (0.9, 0.1))
    assert not equal(snapshot(alone.encoder), snapshot(other.encoder))


@pytest.mark.parametrize("accumulation", [1, 3])
def test_only_an_isolated_task_of_weight_zero_is_left_out(new_encoder, mlm, accumulation):
    encoder = new_encoder()
    names = ("trained", "judged", "dropped")
    harness = Harness(
        encoder,
        [(name, mlm(encoder)) for name in names],
        gradient_accumulation_steps=accumulation,
    )
    step = harness.training_step
    step.begin(0)
    step.isolated = frozenset({"trained", "dropped"})
    step.backward((0.5, 0.5, 0.0, 0.0))
    assert set(step.losses) == {"primary", "trained", "judged"}
    kept = dict(step.losses)
    step.begin(0)
    step.gradients()  # of all, whatever is isolated
    assert set(step.losses) == {"primary", *names}
    assert equal(kept, {name: step.losses[name] for name in kept})


def test_dropout_follows_from_seed_and_step(new_encoder):
    harness = Harness(new_encoder())
    found = []
    for step, seed in [(0, 0), (0, 0), (1, 0), (0, 1)]:
        harness.training_step.seed = seed
        harness.training_step.primary = BatchStream(harness.texts, len(LINES), 0, "primary")
        harness.training_step.begin(step)
        harness.training_step.backward((0.0,))
        found.append(float(harness.training_step.losses["primary"]))
    assert found[0] == found[1]
    assert len(set(found)) == 3
    before = torch.random.get_rng_state()
    harness.training_step.begin(0)
    harness.training_step.gradients()
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("micro_batches", [3, 100])
def test_micro_batches_sum_to_the_batch(new_encoder, micro_batches):
    def gradient(accumulation):
        harness = Harness(
            without_dropout(new_encoder()).double(), gradient_accumulation_steps=accumulation
        )
        harness.training_step.begin(0)
        (found,) = harness.training_step.gradients()
        loss = harness.training_step.losses["primary"]
        harness.training_step.begin(0)
        harness.training_step.backward((1.0,))
        own = [parameter.grad for parameter in harness.training_step.parameters]
        assert_close(own, found, rtol=1e-12, atol=1e-15)
        return loss, found

    whole_loss, whole = gradient(1)
    loss, found = gradient(micro_batches)
    torch.testing.assert_close(loss, whole_loss, rtol=1e-12, atol=0)
    assert sum(tensor is not None for tensor in whole) > 20
    assert_close(found, whole, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_backward_is_the_weighted_sum_of_the_gradients(new_encoder, mlm, accumulation):
    encoder = new_encoder().double()
    harness = Harness(
        encoder, [("random_mlm", mlm(encoder))], gradient_accumulation_steps=accumulation
    )
    training_step = harness.training_step
    training_step.begin(2)
    primary, auxiliary = training_step.gradients()
    assert all(parameter.grad is None for parameter in training_step.parameters)
    measured = dict(training_step.losses)
    training_step.begin(2)
    training_step.backward(torch.tensor([0.7, 0.3], dtype=torch.float64))
    assert equal(measured, training_step.losses)
    pairs = list(zip(primary, auxiliary, strict=True))
    assert any((p is None) != (a is None) for p, a in pairs)  # heads of their own
    found = [parameter.grad for parameter in training_step.parameters]
    assert_close(found, weighted_sum([primary, auxiliary], [0.7, 0.3]), rtol=1e-10, atol=1e-15)


def test_the_update_clips_steps_and_clears_the_gradients(new_encoder):
    harness = Harness(new_encoder(), max_grad_norm=0.01)
    training_step = harness.training_step
    twin = new_encoder()
    parameters = [p for p in twin.parameters() if p.requires_grad]
    training_step.begin(0)
    rate = harness.optimizer.param_groups[0]["lr"]
    assert rate == pytest.approx(1e-3 / 3, rel=1e-12)  # the first of two warm-up steps
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.1)
    training_step.backward((1.0,))
    for parameter, copy in zip(training_step.parameters, parameters, strict=True):
        copy.grad = None if parameter.grad is None else parameter.grad.clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters, 0.01)
    assert norm > 0.01
    optimizer.step()
    training_step.optimizer_step()
    assert equal(snapshot(harness.encoder), snapshot(twin))
    assert all(parameter.grad is None for parameter in training_step.parameters)


@pytest.mark.parametrize("separately", [False, True])
def test_the_classification_head_may_be_clipped_separately(new_encoder, mlm, separately):
    encoder = new_encoder().double()
    harness = Harness(
        encoder, [("random_mlm", mlm(encoder))], max_grad_norm=0.01, clip_head_separately=separately
    )
    training_step = harness.training_step
    training_step.optimizer = torch.optim.SGD(encoder.parameters(), lr=1.0)
    training_step.begin(0)
    training_step.backward((0.5, 0.5))
    before = [parameter.detach().clone() for parameter in training_step.parameters]
    training_step.optimizer_step()
    moved = [old - new for old, new in zip(before, training_step.parameters, strict=True)]
    parts = {True: [], False: []}
    for change, part in zip(moved, training_step.placements, strict=True):
        parts[part == "primary_head"].append(change.detach().flatten())
    groups = [parts[True], parts[False]] if separately else [parts[True] + parts[False]]
    for group in groups:
        assert float(torch.cat(group).norm()) == pytest.approx(0.01, rel=1e-3)


def test_the_validation_gradient_is_the_mean_over_batches(new_encoder):
    training_step = Harness(new_encoder().double()).training_step
    training_step.begin(2)
    mean, loss = training_step.validation_gradient(batches=3), training_step.losses["validation"]
    single, losses = [], []
    for index in range(3):
        single.append(training_step.validation_gradient(index))
        losses.append(float(training_step.losses["validation"]))
    assert len(set(losses)) == 3
    assert float(loss) == pytest.approx(sum(losses) / 3, rel=1e-12)
    expected = [None if part[0] is None else sum(part) / 3 for part in zip(*single, strict=True)]
    assert_close(mean, expected, rtol=1e-9, atol=1e-12)


def test_the_validation_gradient_has_no_dropout_and_restores_the_mode(new_encoder):
    harness = Harness(new_encoder())
    training_step = harness.training_step
    training_step.begin(3)
    modes = [module.training for module in harness.encoder.modules()]
    one, other = training_step.validation_gradient(), training_step.validation_gradient()
    assert [module.training for module in harness.encoder.modules()] == modes
    rows = UniformStream(harness.texts, 6, 0, "validation").indices(3)
    batch = collate(harness.texts, rows)
    with harness.encoder.evaluating():
        loss = torch.nn.functional.cross_entropy(harness.encoder.classify(batch), batch.labels)
    expected = torch.autograd.grad(loss, training_step.parameters, allow_unused=True)
    assert torch.equal(training_step.losses["validation"], loss.detach())
    for found in (one, other):
        assert_close(found, expected, rtol=0, atol=0)
    training_step.validation = None
    with pytest.raises(RuntimeError, match="no validation objective"):
        training_step.validation_gradient()


def test_every_objective_has_dropout_masks_of_its_own(new_encoder):
    def loss(encoder, batch, _):
        return torch.nn.functional.cross_entropy(encoder.classify(batch), batch.labels)

    tasks = [(name, Given(loss, "primary")) for name in ("one", "other")]
    (losses,) = Harness(new_encoder(), tasks).run(1, (0.0, 0.0, 0.0))
    assert len({float(loss) for loss in losses.values()}) == 3
    (losses,) = Harness(without_dropout(new_encoder()), tasks).run(1, (0.0, 0.0, 0.0))
    assert len({float(loss) for loss in losses.values()}) == 1


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("times", [1, 2])
def test_a_task_may_change_and_enlarge_the_primary_batch(new_encoder, accumulation, times):
    """Examples that a task adds share the weight of the batch; they do not add to it."""
    encoder = without_dropout(new_encoder()).double()
    seen = []

    def masked(batch):
        batch = collate(harness.texts, batch.indices.repeat(times))
        ids = batch.input_ids.masked_fill(batch.maskable, encoder.tokenizer.mask_token_id)
        return replace(batch, input_ids=ids)

    def loss(encoder, batch, _):
        seen.append(batch)
        return TaskResult(encoder.classify(batch).pow(2).mean(), primary=masked(batch))

    tasks = [("perturbing", Given(loss, "primary"))]
    harness = Harness(encoder, tasks, gradient_accumulation_steps=accumulation)
    step = harness.training_step
    batch = step.primary.batch(0)
    with torch.no_grad():
        changed = masked(batch)
        expected = torch.nn.functional.cross_entropy(encoder.classify(changed), changed.labels)
        squares = encoder.classify(batch).pow(2).mean()
    for compute in (step.gradients, lambda: step.backward((0.0, 0.0))):
        seen.clear()
        step.begin(0)
        compute()
        assert torch.equal(torch.cat([part.indices for part in seen]), batch.indices)
        torch.testing.assert_close(step.losses["primary"], expected, rtol=1e-10, atol=0)
        torch.testing.assert_close(step.losses["perturbing"], squares, rtol=1e-10, atol=0)


def test_a_task_has_its_own_batches_and_random_stream(new_encoder):
    def watch(accumulation, steps=(0, 1)):
        seen = []

        def loss(encoder, batch, generator):
            seen.append((batch.indices.tolist(), float(torch.rand((), generator=generator))))
            return encoder.classify(batch).sum()

        tasks = [("watching", Given(loss))]
        harness = Harness(new_encoder(), tasks, gradient_accumulation_steps=accumulation)
        for step in steps:
            harness.training_step.begin(step)
            harness.training_step.backward((0.0, 0.0))
        return seen, harness.texts

    seen, texts = watch(1)
    stream = BatchStream(texts, 8, 0, "watching")
    assert [rows for rows, _ in seen] == [stream.indices(step).tolist() for step in (0, 1)]
    assert len({number for _, number in seen}) == 2
    assert watch(1)[0] == seen
    assert watch(1, steps=(1,))[0] == seen[1:]  # as a resumed run has it
    split, _ = watch(4)
    for step, (rows, _) in enumerate(seen):
        assert [row for some, _ in split[4 * step : 4 * step + 4] for row in some] == rows
    assert len({number for _, number in split}) == 8


def test_every_example_of_a_task_is_used_where_the_primary_batch_is_short(new_encoder):
    """The last batch of an epoch is short, at a different step for every objective."""

    def loss(encoder, batch, _):
        seen.extend(batch.indices.tolist())
        return encoder.classify(batch).mean()

    encoder = without_dropout(new_encoder()).double()
    tasks = [("counting", Given(loss))]
    harness = Harness(encoder, tasks, batch_size=7, gradient_accumulation_steps=4)
    stream = harness.training_step.auxiliaries[0].stream
    sizes = set()
    for step in range(12):
        seen = []
        harness.training_step.begin(step)
        harness.training_step.backward((0.0, 0.0))
        own = stream.batch(step)
        assert seen == own.indices.tolist()
        with torch.no_grad():
            expected = encoder.classify(own).mean()
        found = harness.training_step.losses["counting"]
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)
        sizes.add((len(harness.training_step.primary.batch(step)), len(own)))
    assert {(3, 7), (7, 3)} <= sizes


def test_a_loss_that_depends_on_untrained_parameters_is_refused(new_encoder):
    class OwnHead(AuxiliaryTask):
        name = "own_head"

        def __init__(self):
            super().__init__(Settings())
            self.head = torch.nn.Linear(32, 2)
            self.hidden = [torch.zeros(2, requires_grad=True)]

        def loss(self, encoder, batch, generator):
            return (self.head(encoder.features(batch)) + self.hidden[0]).pow(2).mean()

    task = OwnHead()
    message = (
        r"^the loss of 'second' \(OwnHead\) reaches parameters that nothing trains: "
        r"a parameter of shape \(2,\), head.bias, head.weight\. Add layers of its own by .*$"
    )
    for run in (lambda o: o.backward((1.0, 0.0)), lambda o: o.gradients()):
        harness = Harness(new_encoder(), [("second", task)])
        harness.training_step.begin(3)
        with pytest.raises(ConfigError, match=message):  # a dot stands for no line break
            run(harness.training_step)
    task.head.requires_grad_(False)
    task.hidden[0].requires_grad_(False)
    harness.run(2, (0.5, 0.5))  # frozen parameters may be used


def test_the_gradient_of_a_sum_of_a_parameter_is_clipped(new_encoder):
    """Autograd returns it expanded, which cannot be changed in place."""

    task = Given(lambda encoder, *_: next(encoder.parameters()).sum())
    step = Harness(new_encoder(), [("second", task)]).training_step
    step.begin(0)
    apply_gradient(step, step.gradients()[1])


def test_a_number_of_items_is_a_number(new_encoder):
    class Odd(MaskedWords):
        def items(self, batch, generator):
            return -1

    step = Harness(new_encoder(), [("odd", Odd(2))], gradient_accumulation_steps=2).training_step
    step.begin(0)
    with pytest.raises(PluginError, match=r"'odd' .* failed in items .*at least 0, not -1"):
        step.backward((0.5, 0.5))


def leaf(encoder, batch, generator):
    return torch.zeros((), requires_grad=True)


def in_place(encoder, batch, generator):
    batch.input_ids[:, 1] = 0
    return encoder.classify(batch).sum()


def spoils_its_graph(encoder, batch, generator):
    hidden = encoder.classify(batch).exp()
    loss = hidden.sum()
    hidden.detach().zero_()  # exp keeps its result for the backward pass
    return loss


@pytest.mark.parametrize("way", ["backward", "gradients"])
@pytest.mark.parametrize(
    ("loss", "fault"),
    [
        (leaf, "trains nothing"),
        (in_place, "changes input_ids in place in loss"),
        (spoils_its_graph, "failed in the backward pass of loss"),
    ],
)
def test_a_fault_of_a_task_in_the_step_is_one_line_that_names_it(new_encoder, loss, fault, way):
    step = Harness(new_encoder(), [("odd", Given(loss, "primary"))]).training_step
    step.begin(0)
    with pytest.raises(PluginError, match=f"'odd' .*{fault}"):
        list(getattr(step, way)(*[(0.5, 0.5)] * (way == "backward")) or ())


def test_a_state_has_names_that_a_file_can_hold():
    task = Given(None)
    task.state_dict = lambda: {"__metadata__": torch.zeros(1)}
    with pytest.raises(PluginError, match="a tensor named"):
        state_of(task)


def test_texts_of_the_context_are_not_to_be_changed(new_encoder, tmp_path):
    class Zeroing(MaskedWords):
        def prepare(self, given):
            given.texts.input_ids.zero_()

    encoder = new_encoder()
    given = context(encoder, tokenized(encoder, LINES), tmp_path)
    fault = pytest.raises(PluginError, match="changes input_ids in place in prepare")
    with fault, calling(Zeroing, "prepare", "zeroing", given.texts):
        Zeroing(2).prepare(given)


def test_one_graph_is_alive_at_a_time(new_encoder):
    """Also with weight 0, where no backward pass frees it."""
    alive = []

    class Marker:
        pass

    class Marked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            ctx.marker = Marker()
            alive.append(weakref.ref(ctx.marker))
            return logits.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    def loss(encoder, batch, _):
        graphs.append(sum(one() is not None for one in alive))
        return Marked.apply(encoder.classify(batch).sum())

    tasks = [(name, Given(loss)) for name in ("one", "two", "three")]
    for weights in ((0.0, 0.0, 0.0, 0.0), (0.1, 0.3, 0.0, 0.6)):
        for accumulation in (1, 2):
            graphs = []
            Harness(new_encoder(), tasks, gradient_accumulation_steps=accumulation).run(2, weights)
            assert graphs == [0] * 6 * accumulation
