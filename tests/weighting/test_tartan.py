"""META-TARTAN against a second implementation, written from the description of its code."""

import pytest
import torch

from auxlearn import RunConfig
from auxlearn.data.batches import BatchStream, UniformStream, collate
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.optimizer import Schedule, run_optimizer
from auxlearn.training.validation import ValidationObjective, initialise_head
from auxlearn.weighting.learned import cosines_with
from auxlearn.weighting.tartan import Tartan, TartanOptions, TartanReleased
from tests import helpers
from tests.helpers import LABELS, without_dropout
from tests.training.harness import Harness, MaskedWords

STEPS = 10
cross_entropy = torch.nn.functional.cross_entropy


def ready(folder, rule, accumulation):
    encoder = without_dropout(load_encoder(str(folder), LABELS)).double()
    harness = Harness(
        encoder, [("every3", MaskedWords(3))], gradient_accumulation_steps=accumulation
    )
    training_step = harness.training_step
    training_step.schedule = Schedule(training_step.optimizer, 10**9, 0.0)
    training_step.total_steps = 10**9
    training_step.attends_to_padding = rule.attends_to_padding
    options = {"batches_per_step": accumulation, "attends_to_padding": rule.attends_to_padding}
    training_step.validation = ValidationObjective(
        harness.texts, 6, "cross_entropy", 0, head=rule.dev_head, **options
    )
    return harness


def second_implementation(harness, accumulation, masked, compared, late):
    """Logits after some steps; only batches and initial weights of the heads are shared."""
    encoder, task = harness.encoder, MaskedWords(3)
    classifier, language_model = encoder.classifier, encoder.language_model
    named = dict(encoder.named_parameters())
    parameters = list(named.values())
    inside = [compared(name) for name in named]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1)
    half = len(harness.texts) // 2  # is fewer than 32 examples
    draws = {
        name: kind(harness.texts, size, 0, name)
        for name, size, kind in (
            ("primary", 8, BatchStream),
            ("every3", 8, BatchStream),
            ("validation", half + accumulation * 6, UniformStream),
        )
    }
    logits = torch.zeros(2, dtype=torch.float64)

    def inputs(batch):
        mask = batch.attention_mask if masked else torch.ones_like(batch.attention_mask)
        return {
            "input_ids": batch.input_ids,
            "attention_mask": mask,
            "token_type_ids": torch.zeros_like(batch.input_ids),
        }

    def trimmed(batch, rows):
        """Some examples, padded to the longest of them, as a micro-batch is."""
        longest = int(batch.attention_mask[rows].sum(1).max())
        cut = {k: v if v is None else v[rows] for k, v in vars(batch).items()}
        return type(batch)(
            **{k: v[:, :longest] if v is not None and v.ndim == 2 else v for k, v in cut.items()}
        )

    def gradient(loss):
        return torch.autograd.grad(loss, parameters, allow_unused=True)

    def flat(grads):
        parts = [
            (torch.zeros_like(p) if g is None else g).flatten()
            for p, g, kept in zip(parameters, grads, inside, strict=True)
            if kept
        ]
        return torch.cat(parts)

    for number in range(STEPS):
        sums = [[torch.zeros_like(p) for p in parameters] for _ in range(2)]
        falls = torch.zeros(2, dtype=torch.float64)
        head = None
        for part in range(accumulation):
            rows = slice(part * 8 // accumulation, (part + 1) * 8 // accumulation)
            primary = draws["primary"].batch(number)
            guesses = classifier(**inputs(trimmed(primary, rows))).logits
            raw = [gradient(cross_entropy(guesses, primary.labels[rows]) / accumulation)]
            own = draws["every3"].batch(number)
            changed, positions, targets = task.inputs(encoder, trimmed(own, rows))
            tokens = language_model(**inputs(changed)).logits[positions]
            raw.append(gradient(cross_entropy(tokens, targets) / accumulation))

            drawn = draws["validation"].indices(number)
            if head is None:
                batch = collate(harness.texts, drawn[:half])
                head = initialise_head(32, 3, 0, number, torch.zeros((), dtype=torch.float64))
                fit = torch.optim.AdamW(
                    head.parameters(), lr=1e-3, weight_decay=0.1, betas=(0.9, 0.98)
                )
                previous = None
                for _ in range(10):
                    with torch.no_grad():
                        features = encoder.body(**inputs(batch)).last_hidden_state[:, 0]
                    loss = cross_entropy(head(features), batch.labels)
                    fit.zero_grad()
                    loss.backward()
                    fit.step()
                    if previous is not None and abs(loss.item() - previous) < 1e-3:
                        break
                    previous = loss.item()
            batch = collate(harness.texts, drawn[half:].roll(-6 * part)[:6])
            features = encoder.body(**inputs(batch)).last_hidden_state[:, 0]
            dev = flat(gradient(cross_entropy(head(features), batch.labels)))
            for index, grads in enumerate(raw):
                one = flat(grads)
                falls[index] -= (one @ dev / (one.norm() * dev.norm())).item() / accumulation
                for total, g in zip(sums[index], grads, strict=True):
                    if g is not None:
                        total += g
        before = logits.clone()
        logits -= 0.01 * falls
        weights = (before if late else logits).softmax(0)
        for number, parameter in enumerate(parameters):
            parameter.grad = weights[0] * sums[0][number] + weights[1] * sums[1][number]
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return logits


@pytest.mark.parametrize(("kind", "accumulation"), [(TartanReleased, 2), (Tartan, 1)])
def test_the_logits_after_some_steps(one_layer, kind, accumulation):
    released = kind is TartanReleased
    rule = kind(TartanOptions(), ("primary", "every3"))
    harness = ready(one_layer, rule, accumulation)
    for number in range(STEPS):
        harness.training_step.begin(number)
        rule.step(harness.training_step)

    def compared(name):
        heads = ["classifier.classifier.", "classifier.bert.pooler."]
        return not name.startswith(tuple(heads if released else [*heads, "language_"]))

    again = ready(one_layer, rule, accumulation)
    expected = second_implementation(again, accumulation, not released, compared, late=released)
    assert expected.abs().min() > 1e-5  # far above the tolerance
    torch.testing.assert_close(rule.logits.detach(), expected, rtol=0, atol=1e-8)
    assert {"cosine/primary", "norm/every3", "norm/validation"} <= rule.metrics().keys()


def test_the_released_settings_as_documented(encoder_folder):
    folder = str(encoder_folder("roberta"))
    config = RunConfig.model_validate(helpers.released_settings() | {"encoder": folder}).resolved()
    expected = {
        **{"batch_size": 128, "gradient_accumulation_steps": 2, "warmup_ratio": 0.06},
        **{"max_grad_norm": 1.0, "eval_steps": 30, "patience": 20, "min_epochs": 0},
        **{"ties": "later", "final_epochs": 10, "final_patience": 3},
        **{"final_schedule": "constant", "final_learning_rate": 5e-6},
    }
    assert config.model_dump().items() >= expected.items()
    of_the_rule = {"batch_size": 64, "optimizer": "sgd", "learning_rate": 0.01}
    assert config.weights.options.items() >= of_the_rule.items()
    encoder = load_encoder(folder, LABELS)
    groups = run_optimizer(config, encoder).param_groups
    found = {id(parameter): group for group in groups for parameter in group["params"]}
    heads = {"classifier.classifier": (1e-3, 0.1)}  # the language-model head has what the body has
    for name, parameter in encoder.named_parameters():
        rate, decay = heads.get(".".join(name.split(".")[:2]), (1e-4, 0.01))
        group = found[id(parameter)]
        assert group["lr"] == rate, name
        assert group["weight_decay"] == (decay if parameter.ndim > 1 else 0.0), name
        assert (group["betas"], group["eps"]) == ((0.9, 0.98), 1e-6)


@pytest.mark.parametrize(("name", "released"), [("tartan", False), ("tartan_released", True)])
def test_the_metric_only_selects_in_the_released_form(name, released, encoder_folder, tmp_path):
    rows = helpers.rows()
    helpers.write_splits(tmp_path, train=rows[:8], dev=rows[8:16], test=rows[16:])
    given = {"dataset": str(tmp_path), "encoder": str(encoder_folder("bert")), "device": "cpu"}
    given |= {"aux": ["random_mlm"], "weights": name, "metric": "macro_f1", "learning_rate": 1e-3}
    config = RunConfig(**given, output=str(tmp_path / "run"))
    training_step = helpers.first_step(config)
    assert training_step.validation.surrogate == ("cross_entropy" if released else "macro_f1")
    assert training_step.clip_head_separately == released


def test_a_gradient_of_zero_has_a_cosine_of_zero():
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones((), dtype=torch.float64)
    assert cosines_with(zero, zero, one).tolist() == [0.0]


def test_the_account_says_what_a_weight_has_become_and_followed():
    rows = [
        {"step": step, "weight/a": weight, "cosine/a": cosine}
        for step, weight, cosine in ((10, 0.35, 0.1), (20, 0.52, 0.3), (30, 0.9, -1.0))
    ]
    rule = Tartan(TartanOptions(initial=(3, 1)), ("primary", "a"))
    rule.logits.data += torch.tensor([0.0, 2.0])  # as learned
    assert rule.account(rows, 20, 30) == {
        "a": "a: weight 0.250 at first, 0.520 at the exported checkpoint; the cosine of its "
        "gradient with that of dev was on average +0.200 in 2 recorded steps"
    }
    assert rule.account([], 20, 30) == {}
