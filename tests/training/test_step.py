"""One step's objectives: weights, gradients, parts, and the meta-gradient of a real encoder."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch.func import functional_call

from auxlearn.config import Settings
from auxlearn.data.batches import BatchStream, UniformStream, collate
from auxlearn.encoders.load import load_encoder
from auxlearn.errors import ConfigError
from auxlearn.registry import TASKS
from auxlearn.tasks.base import AuxiliaryTask, TaskResult
from auxlearn.tasks.random_mlm import RandomMLM
from auxlearn.training.optimization import LinearSchedule
from auxlearn.training.step import Auxiliary, RunStep, cut
from auxlearn.training.validation import ValidationObjective
from auxlearn.weighting.meta import Meta, MetaOptions
from tests.helpers import LABELS, LINES, context, snapshot, tokenized, without_dropout

CLASSES = [number % 3 for number in range(len(LINES))]


class Harness:
    """Objectives over an encoder, its labelled lines and some tasks, as in a run."""

    def __init__(
        self,
        encoder,
        tasks=(),
        batch_size=8,
        gradient_accumulation_steps=1,
        max_grad_norm=1.0,
        seed=0,
        clips_apart=False,
    ):
        encoder.train()
        self.encoder = encoder
        self.texts = tokenized(encoder, LINES, CLASSES)
        self.optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3, weight_decay=0.1)
        auxiliaries = [
            Auxiliary(
                name,
                task,
                BatchStream(self.texts, batch_size, seed, name) if task.batches == "own" else None,
            )
            for name, task in tasks
        ]
        self.objectives = RunStep(
            encoder=encoder,
            auxiliaries=auxiliaries,
            primary=BatchStream(self.texts, batch_size, seed, "primary"),
            optimizer=self.optimizer,
            schedule=LinearSchedule(self.optimizer, 10, 0.2),
            seed=seed,
            gradient_accumulation_steps=gradient_accumulation_steps,
            max_grad_norm=max_grad_norm,
            validation=ValidationObjective(self.texts, 6, "accuracy", seed),
            autocast=nullcontext,
            clips_apart=clips_apart,
        )

    def run(self, steps, weights):
        losses = []
        for step in range(steps):
            self.objectives.begin(step)
            self.objectives.backward(weights)
            losses.append(dict(self.objectives.losses))
            self.objectives.update()
        return losses


@pytest.fixture
def fresh(encoder_folder):
    """Load the same tiny BERT again and again."""
    return lambda: load_encoder(str(encoder_folder("bert")), LABELS)


@pytest.fixture
def mlm(tmp_path):
    """Make a random_mlm task that is ready for an encoder."""

    def make(encoder):
        task = RandomMLM(RandomMLM.Options())
        task.prepare(context(encoder, tokenized(encoder, LINES), tmp_path))
        return task

    return make


def equal(one, other):
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_weight_zero_leaves_the_primary_run_as_it_was(fresh, mlm):
    alone = Harness(fresh())
    alone_losses = alone.run(6, (1.0,))
    encoder = fresh()
    assert encoder.config.hidden_dropout_prob > 0  # dropout draws are part of the proof
    both = Harness(encoder, [("random_mlm", mlm(encoder)), ("again", mlm(encoder))])
    both_losses = both.run(6, (1.0, 0.0, 0.0))
    assert equal(snapshot(alone.encoder), snapshot(both.encoder))
    for one, other in zip(alone_losses, both_losses, strict=True):
        assert torch.equal(one["primary"], other["primary"])
        assert other["random_mlm"] > 0
        assert not torch.equal(other["random_mlm"], other["again"])  # streams of their own
    other = Harness(fresh(), [("random_mlm", mlm(encoder))])
    other.run(6, (0.9, 0.1))
    assert not equal(snapshot(alone.encoder), snapshot(other.encoder))


def test_the_order_of_the_tasks_does_not_matter_to_their_losses(fresh, mlm):
    encoder = fresh()
    tasks = [("first", mlm(encoder)), ("second", mlm(encoder))]
    (one,) = Harness(encoder, tasks).run(1, (0.0, 0.0, 0.0))
    encoder = fresh()
    (other,) = Harness(encoder, tasks[::-1]).run(1, (0.0, 0.0, 0.0))
    assert equal(one, other)


def test_dropout_draws_follow_from_seed_and_step(fresh):
    harness = Harness(fresh())
    found = []
    for step, seed in [(0, 0), (0, 0), (1, 0), (0, 1)]:
        harness.objectives.seed = seed
        harness.objectives.primary = BatchStream(harness.texts, len(LINES), 0, "primary")
        harness.objectives.begin(step)
        harness.objectives.backward((0.0,))
        found.append(float(harness.objectives.losses["primary"]))
    assert found[0] == found[1]
    assert len(set(found)) == 3
    before = torch.random.get_rng_state()
    harness.objectives.begin(0)
    harness.objectives.gradients()
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("parts", [2, 3, 4, 100])
def test_parts_of_a_batch_sum_to_it(fresh, parts):
    def gradient(accumulation):
        harness = Harness(
            without_dropout(fresh()).double(), gradient_accumulation_steps=accumulation
        )
        harness.objectives.begin(0)
        (found,) = harness.objectives.gradients()
        loss = harness.objectives.losses["primary"]
        harness.objectives.begin(0)
        harness.objectives.backward((1.0,))
        for tensor, parameter in zip(found, harness.objectives.parameters, strict=True):
            if tensor is None:
                assert parameter.grad is None
            else:
                torch.testing.assert_close(parameter.grad, tensor, rtol=1e-12, atol=1e-15)
        return loss, found

    whole_loss, whole = gradient(1)
    loss, found = gradient(parts)
    torch.testing.assert_close(loss, whole_loss, rtol=1e-12, atol=0)
    assert sum(tensor is not None for tensor in whole) > 20
    for one, other in zip(whole, found, strict=True):
        if one is None:
            assert other is None
        else:
            torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_backward_is_the_weighted_sum_of_the_gradients(fresh, mlm, accumulation):
    encoder = fresh().double()
    harness = Harness(
        encoder, [("random_mlm", mlm(encoder))], gradient_accumulation_steps=accumulation
    )
    objectives = harness.objectives
    objectives.begin(2)
    primary, auxiliary = objectives.gradients()
    assert all(parameter.grad is None for parameter in objectives.parameters)
    measured = dict(objectives.losses)
    objectives.begin(2)
    objectives.backward(torch.tensor([0.7, 0.3], dtype=torch.float64))
    assert equal(measured, objectives.losses)
    only_one = 0
    for parameter, p, a in zip(objectives.parameters, primary, auxiliary, strict=True):
        only_one += (p is None) != (a is None)
        if p is None and a is None:
            assert parameter.grad is None
            continue
        expected = sum(w * g for w, g in ((0.7, p), (0.3, a)) if g is not None)
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-10, atol=1e-15)
    assert only_one > 0  # each objective has a head of its own


def test_update_clips_steps_and_clears(fresh):
    harness = Harness(fresh(), max_grad_norm=0.01)
    objectives = harness.objectives
    twin = load_twin(harness.encoder, fresh())
    parameters = [p for p in twin.parameters() if p.requires_grad]
    objectives.begin(0)
    rate = harness.optimizer.param_groups[0]["lr"]
    assert rate == pytest.approx(1e-3 / 3, rel=1e-12)  # the first of two rising steps
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.1)
    objectives.backward((1.0,))
    for parameter, copy in zip(objectives.parameters, parameters, strict=True):
        copy.grad = None if parameter.grad is None else parameter.grad.clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters, 0.01)
    assert norm > 0.01
    optimizer.step()
    objectives.update()
    assert equal(snapshot(harness.encoder), snapshot(twin))
    assert all(parameter.grad is None for parameter in objectives.parameters)


@pytest.mark.parametrize("apart", [False, True])
def test_the_classification_head_may_be_clipped_apart(fresh, mlm, apart):
    encoder = fresh().double()
    harness = Harness(
        encoder, [("random_mlm", mlm(encoder))], max_grad_norm=0.01, clips_apart=apart
    )
    objectives = harness.objectives
    objectives.optimizer = torch.optim.SGD(encoder.parameters(), lr=1.0)
    objectives.begin(0)
    objectives.backward((0.5, 0.5))
    before = [parameter.detach().clone() for parameter in objectives.parameters]
    objectives.update()
    moved = [old - new for old, new in zip(before, objectives.parameters, strict=True)]
    head, rest = (
        torch.cat(
            [m.flatten() for m, part in zip(moved, objectives.parts, strict=True) if kind(part)]
        )
        for kind in (lambda part: part == "primary", lambda part: part != "primary")
    )
    norms = [float(one.detach().norm()) for one in (head, rest, torch.cat([head, rest]))]
    if apart:
        assert norms[:2] == pytest.approx([0.01, 0.01], rel=1e-3)
    else:
        assert norms[2] == pytest.approx(0.01, rel=1e-3)


def load_twin(encoder, twin):
    twin.load_tensors(snapshot(encoder))
    return twin


def test_the_validation_gradient_is_the_mean_over_batches(fresh):
    objectives = Harness(fresh()).objectives
    objectives.begin(2)
    mean, loss = objectives.validation_gradient(batches=3), objectives.losses["validation"]
    single, losses = [], []
    for draw in range(3):
        single.append(objectives.validation_gradient(draw))
        losses.append(float(objectives.losses["validation"]))
    assert len(set(losses)) == 3
    assert float(loss) == pytest.approx(sum(losses) / 3, rel=1e-6)
    for found, *parts in zip(mean, *single, strict=True):
        assert (found is None) == (parts[0] is None)
        if found is not None:
            torch.testing.assert_close(found, sum(parts) / 3, rtol=1e-4, atol=1e-7)


def test_the_validation_gradient_has_no_dropout_and_leaves_the_mode(fresh):
    harness = Harness(fresh())
    objectives = harness.objectives
    objectives.begin(3)
    modes = [module.training for module in harness.encoder.modules()]
    one, other = objectives.validation_gradient(), objectives.validation_gradient()
    assert [module.training for module in harness.encoder.modules()] == modes
    rows = UniformStream(harness.texts, 6, 0, "validation").rows(3)
    batch = collate(harness.texts, rows)
    with harness.encoder.evaluating():
        loss = torch.nn.functional.cross_entropy(harness.encoder.classify(batch), batch.labels)
    expected = torch.autograd.grad(loss, objectives.parameters, allow_unused=True)
    assert torch.equal(objectives.losses["validation"], loss.detach())
    for first, second, third in zip(one, other, expected, strict=True):
        if third is None:
            assert first is None
        else:
            assert torch.equal(first, second)
            assert torch.equal(first, third)
    objectives.validation = None
    with pytest.raises(RuntimeError, match="no validation objective"):
        objectives.validation_gradient()


def test_every_objective_has_dropout_masks_of_its_own(fresh):
    class Same(AuxiliaryTask):
        """The primary loss once more, on the primary batch."""

        batches = "primary"

        def loss(self, encoder, batch, generator):
            return torch.nn.functional.cross_entropy(encoder.classify(batch), batch.labels)

    tasks = [("one", Same(Settings())), ("other", Same(Settings()))]
    (losses,) = Harness(fresh(), tasks).run(1, (0.0, 0.0, 0.0))
    assert len({float(loss) for loss in losses.values()}) == 3
    (losses,) = Harness(without_dropout(fresh()), tasks).run(1, (0.0, 0.0, 0.0))
    assert len({float(loss) for loss in losses.values()}) == 1


class Perturbing(AuxiliaryTask):
    """A task that shares the primary batch and hands back a changed one."""

    name = "perturbing"
    batches = "primary"

    def __init__(self):
        super().__init__(Settings())
        self.given = []

    def loss(self, encoder, batch, generator):
        self.given.append(batch)
        changed = batch.input_ids.masked_fill(batch.maskable, encoder.tokenizer.mask_token_id)
        loss = encoder.classify(batch).pow(2).mean()
        return TaskResult(loss, primary=replace(batch, input_ids=changed))


@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_task_may_change_what_the_primary_task_is_trained_on(fresh, accumulation):
    encoder = without_dropout(fresh()).double()
    task = Perturbing()
    harness = Harness(encoder, [("perturbing", task)], gradient_accumulation_steps=accumulation)
    harness.objectives.begin(0)
    harness.objectives.gradients()
    batch = harness.objectives.primary.batch(0)
    assert torch.equal(torch.cat([part.rows for part in task.given]), batch.rows)
    masked = batch.input_ids.masked_fill(batch.maskable, encoder.tokenizer.mask_token_id)
    with torch.no_grad():
        logits = encoder.classify(replace(batch, input_ids=masked))
        expected = torch.nn.functional.cross_entropy(logits, batch.labels)
        squares = encoder.classify(batch).pow(2).mean()
    losses = harness.objectives.losses
    torch.testing.assert_close(losses["primary"], expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(losses["perturbing"], squares, rtol=1e-10, atol=0)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_primary_batch_may_grow(fresh, accumulation):
    """Rows that a task adds share the weight of the batch; they do not add to it."""

    class Doubling(Perturbing):
        def loss(self, encoder, batch, generator):
            doubled = collate(harness.texts, batch.rows.repeat(2))
            return TaskResult(encoder.classify(batch).mean(), primary=doubled)

    encoder = without_dropout(fresh()).double()
    harness = Harness(encoder, [("doubling", Doubling())], gradient_accumulation_steps=accumulation)
    harness.objectives.begin(0)
    harness.objectives.backward((0.0, 0.0))
    batch = harness.objectives.primary.batch(0)
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(encoder.classify(batch), batch.labels)
    found = harness.objectives.losses["primary"]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)


def test_own_batches_and_draws_of_a_task(fresh):
    class Watching(AuxiliaryTask):
        name = "watching"

        def __init__(self):
            super().__init__(Settings())
            self.seen = []

        def loss(self, encoder, batch, generator):
            self.seen.append((batch.rows.tolist(), float(torch.rand((), generator=generator))))
            return encoder.classify(batch).sum()

    def watch(accumulation, steps=(0, 1)):
        encoder, task = fresh(), Watching()
        harness = Harness(encoder, [("watching", task)], gradient_accumulation_steps=accumulation)
        for step in steps:
            harness.objectives.begin(step)
            harness.objectives.backward((0.0, 0.0))
        return task.seen, harness.texts

    seen, texts = watch(1)
    stream = BatchStream(texts, 8, 0, "watching")
    assert [rows for rows, _ in seen] == [stream.rows(step).tolist() for step in (0, 1)]
    assert len({draw for _, draw in seen}) == 2
    assert watch(1)[0] == seen
    assert watch(1, steps=(1,))[0] == seen[1:]  # as a resumed run has it
    parts, _ = watch(4)
    for step, (rows, _) in enumerate(seen):
        assert [row for some, _ in parts[4 * step : 4 * step + 4] for row in some] == rows
    assert len({draw for _, draw in parts}) == 8


def test_every_row_of_a_task_is_used_where_the_primary_batch_is_short(fresh):
    """The last batch of an epoch is short, and at another step for every objective."""

    class Counting(AuxiliaryTask):
        name = "counting"

        def loss(self, encoder, batch, generator):
            self.seen += batch.rows.tolist()
            return encoder.classify(batch).mean()

    encoder, task = without_dropout(fresh()).double(), Counting(Settings())
    harness = Harness(encoder, [("counting", task)], batch_size=7, gradient_accumulation_steps=4)
    stream = harness.objectives.auxiliaries[0].stream
    sizes = set()
    for step in range(12):
        task.seen = []
        harness.objectives.begin(step)
        harness.objectives.backward((0.0, 0.0))
        own = stream.batch(step)
        assert task.seen == own.rows.tolist()
        with torch.no_grad():
            expected = encoder.classify(own).mean()
        found = harness.objectives.losses["counting"]
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)
        sizes.add((len(harness.objectives.primary.batch(step)), len(own)))
    assert {(3, 7), (7, 3)} <= sizes


def test_cut(fresh):
    encoder = fresh()
    texts = tokenized(encoder, LINES[:7], CLASSES[:7])
    batch = collate(texts, torch.arange(7))
    for parts, sizes in [(1, [7]), (2, [4, 3]), (3, [3, 3, 1]), (7, [1] * 7), (20, [1] * 7)]:
        found = cut(batch, parts)
        assert [len(part) for part in found] == sizes
        if parts > 1:
            assert len({part.input_ids.shape[1] for part in found}) > 1
        expected = [collate(texts, part.rows) for part in found]
        for part, alone in zip(found, expected, strict=True):
            for name, value in vars(alone).items():
                assert torch.equal(getattr(part, name), value)
        assert torch.equal(torch.cat([part.rows for part in found]), batch.rows)


@pytest.mark.parametrize("accumulation", [2, 3])
@pytest.mark.parametrize("name", ["random_mlm", "l3mask", "mask_tuning"])
def test_parts_sum_to_the_mean_over_all_masked_tokens(fresh, tmp_path, accumulation, name):
    """Parts differ in how many tokens are masked; each of these counts the same."""
    encoder = without_dropout(fresh())
    cls = TASKS.get(name)
    task = cls(cls.Options())
    task.prepare(context(encoder, tokenized(encoder, LINES, CLASSES), tmp_path))
    encoder.double()
    seen = []
    predict = encoder.predict_tokens

    def spy(batch, positions):
        seen.append((predict(batch, positions), positions))
        return seen[-1][0]

    encoder.predict_tokens = spy
    harness = Harness(
        encoder, [(name, task)], batch_size=7, gradient_accumulation_steps=accumulation
    )
    auxiliary = harness.objectives.auxiliaries[0]
    stream = auxiliary.stream or harness.objectives.primary
    uneven = 0
    for step in range(6):
        seen.clear()
        harness.objectives.begin(step)
        harness.objectives.backward((0.0, 0.0))
        losses, counts = [], []
        for part, (logits, positions) in zip(
            cut(stream.batch(step), accumulation), seen, strict=True
        ):
            truth = part.input_ids[positions]
            losses += (logits.logsumexp(1) - logits[torch.arange(len(truth)), truth]).tolist()
            counts.append(len(truth) / len(part))
        uneven += len(set(counts)) > 1
        found = float(harness.objectives.losses[name])
        assert found == pytest.approx(sum(losses) / len(losses), rel=1e-12)
    assert uneven > 2


def test_a_loss_that_reaches_what_nothing_trains_is_refused(fresh):
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
        r"a parameter of shape \(2,\), head.bias, head.weight\. Compute .*$"
    )
    for run in (lambda o: o.backward((1.0, 0.0)), lambda o: o.gradients()):
        harness = Harness(fresh(), [("second", task)])
        harness.objectives.begin(3)
        with pytest.raises(ConfigError, match=message) as caught:
            run(harness.objectives)
        assert "\n" not in str(caught.value)
    task.head.requires_grad_(False)
    task.hidden[0].requires_grad_(False)
    harness.run(2, (0.5, 0.5))  # what is to stay as it is may be used


def test_one_objective_has_a_graph_at_a_time(fresh):
    """Also with weight 0, where no backward pass frees it."""
    alive = []

    class Marker:
        pass

    class Marked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, given):
            ctx.marker = Marker()
            alive.append(weakref.ref(ctx.marker))
            return given.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    class Watching(AuxiliaryTask):
        def loss(self, encoder, batch, generator):
            graphs.append(sum(one() is not None for one in alive))
            return Marked.apply(encoder.classify(batch).sum())

    tasks = [(name, Watching(Settings())) for name in ("one", "two", "three")]
    for weights in ((0.0, 0.0, 0.0, 0.0), (0.1, 0.3, 0.0, 0.6)):
        for accumulation in (1, 2):
            graphs = []
            Harness(fresh(), tasks, gradient_accumulation_steps=accumulation).run(2, weights)
            assert graphs == [0] * 6 * accumulation


class MaskedWords(AuxiliaryTask):
    """Predict fixed positions, so that the loss can be written again without this package."""

    name = "masked_words"

    def __init__(self, every):
        super().__init__(Settings())
        self.every = every

    def inputs(self, encoder, batch):
        places = torch.arange(batch.input_ids.shape[1]) % self.every == 1
        positions = batch.maskable & places
        ids = batch.input_ids.masked_fill(positions, encoder.tokenizer.mask_token_id)
        return replace(batch, input_ids=ids), positions, batch.input_ids[positions]

    def loss(self, encoder, batch, generator):
        changed, positions, targets = self.inputs(encoder, batch)
        logits = encoder.predict_tokens(changed, positions)
        return torch.nn.functional.cross_entropy(logits, targets)


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
@pytest.mark.parametrize("max_grad_norm", [0.0, 0.5])
def test_the_meta_gradient_of_a_real_encoder(fresh, kind, max_grad_norm):
    """Three ordinary steps, then one whose whole tape is kept, through the encoder as well."""
    warm_up = 3
    encoder = without_dropout(fresh()).double()
    encoder.body.set_attn_implementation("eager")  # the others have no second derivative
    tasks = [("every3", MaskedWords(3)), ("every5", MaskedWords(5))]
    harness = Harness(encoder, tasks, max_grad_norm=max_grad_norm)
    objectives = harness.objectives
    if kind == "adamw":
        objectives.optimizer = torch.optim.AdamW(encoder.parameters(), lr=0.01, weight_decay=0.1)
    else:
        objectives.optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01, momentum=0.9)
    objectives.schedule = LinearSchedule(objectives.optimizer, 10, 0.2)
    given = MetaOptions(
        warmup_steps=warm_up,
        learn_share=1,
        batches=1,
        mix="gradients",
        scale="none",
        initial=(1, 1, 1),
        floor=0,
    )
    rule = Meta(given, objectives.names)
    with torch.no_grad():
        rule.logits.copy_(torch.tensor([0.2, -0.4, 0.5]))
    for step in range(warm_up):
        objectives.begin(step)
        rule.step(objectives)

    # What the step starts from, taken before it is made.
    names = [name for name, p in encoder.named_parameters() if p.requires_grad]
    start = {n: p.detach().clone().requires_grad_() for n, p in encoder.named_parameters()}
    state = {
        name: {k: torch.as_tensor(v).clone() for k, v in objectives.optimizer.state[p].items()}
        for name, p in encoder.named_parameters()
    }
    logits = rule.logits.detach().clone().requires_grad_()
    primary = objectives.primary.batch(warm_up)
    own = [auxiliary.stream.batch(warm_up) for auxiliary in objectives.auxiliaries]
    held_out = collate(
        harness.texts, UniformStream(harness.texts, 6, 0, "validation").rows(warm_up)
    )
    objectives.begin(warm_up)
    rate = objectives.optimizer.param_groups[0]["lr"]
    rule.step(objectives)

    # Where each parameter is to be put in: tied ones in each of their places, but the body, which
    # is one object under two names, under one name only.
    first_name = {id(p): name for name, p in encoder.named_parameters()}
    places = {
        place: first_name[id(p)]
        for place, p in encoder.named_parameters(remove_duplicate=False)
        if not place.startswith("language_model.bert.")
    }

    def call(parameters, *arguments):
        given = {place: parameters[name] for place, name in places.items()}
        return functional_call(encoder, given, arguments, tie_weights=False)

    cross_entropy = torch.nn.functional.cross_entropy
    losses = [cross_entropy(call(start, "classify", primary), primary.labels)]
    for (_, task), batch in zip(tasks, own, strict=True):
        changed, positions, targets = task.inputs(encoder, batch)
        losses.append(cross_entropy(call(start, "predict_tokens", changed, positions), targets))
    total = (logits.softmax(0) * torch.stack(losses)).sum()
    grads = torch.autograd.grad(
        total, [start[name] for name in names], create_graph=True, allow_unused=True
    )
    norm = torch.stack([(g**2).sum() for g in grads if g is not None]).sum().sqrt()
    if max_grad_norm:
        assert norm > max_grad_norm
        grads = [None if g is None else g * max_grad_norm / (norm + 1e-6) for g in grads]
    updated = {}
    for name, g in zip(names, grads, strict=True):
        p, known = start[name], state[name]
        if g is None:
            updated[name] = p
        elif kind == "sgd":
            updated[name] = p - rate * (0.9 * known["momentum_buffer"] + g)
        else:
            count = float(known["step"]) + 1
            mean = (0.9 * known["exp_avg"] + 0.1 * g) / (1 - 0.9**count)
            # Rows of the embedding that no batch held have no gradient and a moment of zero, where
            # the root has no derivative; a number far below every other stands in for the zero.
            square = (0.999 * known["exp_avg_sq"] + 0.001 * g**2) / (1 - 0.999**count) + 1e-60
            updated[name] = p - rate * 0.1 * p - rate * mean / (square.sqrt() + 1e-8)
    validation = cross_entropy(call(updated, "classify", held_out), held_out.labels)
    (expected,) = torch.autograd.grad(validation, logits)

    for name, p in encoder.named_parameters():
        torch.testing.assert_close(p, updated[name].detach(), rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(
        objectives.losses["validation"], validation.detach(), rtol=1e-9, atol=0
    )
    assert expected.abs().min() > 1e-7
    torch.testing.assert_close(rule.logits.grad, expected, rtol=1e-8, atol=0)
