"""The primary-only phase, the examples that drive the weights, and the surrogate."""

import shutil

import pytest
import torch
from sklearn.covariance import oas
from torch.distributions import MultivariateNormal

from auxlearn import train
from auxlearn.core.errors import DataError
from auxlearn.core.files import read_checked_json, write_checked_json
from auxlearn.evaluation.metrics import surrogate_report
from auxlearn.results.record import RunResults
from auxlearn.tasks.l3mask import L3Mask
from auxlearn.training.loop import TrainingLoop
from auxlearn.training.validation import (
    ValidationObjective,
    closed_form_head,
    fit_head,
    initialise_head,
)
from tests import helpers

FINAL = {"final_epochs": 2, "final_learning_rate": 1e-3, "epochs": 1}


def test_the_primary_only_phase_trains_the_primary_task_alone(config, tmp_path):
    heard = helpers.Messages()
    given = config(**FINAL, final_patience=0, final_schedule="constant", warmup_ratio=0.3)
    results = train(given, heard)
    warning = "examples of dev drive the weights of meta and select the checkpoint"
    assert any(warning in line for line in heard.lines)
    rows = helpers.read_lines(tmp_path / "run/metrics.jsonl")
    assert results.steps == 18  # one epoch of 6 steps, two more
    last = [row for row in rows if row["kind"] == "train" and row["step"] > 6]
    assert {row["learning_rate"] for row in last} == {1e-3}
    assert all("loss/primary" in row for row in last)
    assert not any("loss/l3mask" in row and row["step"] > 10 for row in last)
    assert results.weights.keys() == {"primary", "l3mask"}
    best = max(row["dev/accuracy"] for row in rows if row["kind"] == "eval")
    assert results.best.value == best


def test_a_run_killed_in_any_phase_resumes_to_the_same_results(config, monkeypatch, tmp_path):
    run, whole_run = tmp_path / "run", tmp_path / "whole"
    killed = {number: tmp_path / f"killed-{number}" for number in (5, 7, 15)}
    for number, folder in killed.items():
        made = helpers.copy_before_step(monkeypatch, number, folder)
    whole = train(config(**FINAL))
    run.rename(whole_run)
    for folder in killed.values():
        made.clear()
        folder.rename(run)
        assert train(config(**FINAL)).reproducible() == whole.reproducible()
        assert 0 < len(made) < whole.steps
        helpers.assert_same_files(run, whole_run)
        shutil.rmtree(run)


def test_tasks_keep_their_state_in_the_primary_only_phase(config, monkeypatch, tmp_path):
    """A metric of a task may depend on its state, such as how many batches it has seen."""

    def loss(self, *arguments):
        self.seen = getattr(self, "seen", 0) + 1
        return real(self, *arguments)

    real = L3Mask.loss
    monkeypatch.setattr(L3Mask, "loss", loss)
    monkeypatch.setattr(L3Mask, "state_dict", lambda self: {"seen": torch.tensor(self.seen)})
    monkeypatch.setattr(
        L3Mask, "load_state_dict", lambda self, state: setattr(self, "seen", int(state["seen"]))
    )
    monkeypatch.setattr(L3Mask, "evaluate", lambda self, encoder: {"seen": float(self.seen)})
    given = config(**FINAL, final_patience=0, weights="fixed")
    helpers.kill_before_step(10, given)  # the phase has begun at step 6
    heard = helpers.Messages()
    path = tmp_path / "run" / "environment.json"
    content = read_checked_json(path)
    write_checked_json(path, content | {"versions": content["versions"] | {"torch": "1.0"}})
    results = train(given, heard)
    assert results.auxiliary["l3mask"] == {"seen": 6.0}
    (warning,) = [line for line in heard.lines if "is resumed with torch" in line]
    assert "(before: 1.0)" in warning
    assert "transformers" not in warning


def test_a_file_of_examples_may_drive_the_weights(config, monkeypatch, tmp_path):
    path = tmp_path / "validation.jsonl"
    rows = [{"text": line, "label": helpers.LABELS[0]} for line in helpers.LINES[:5]]
    helpers.write_splits(tmp_path, validation=rows)
    seen = {}
    real = TrainingLoop.run

    def run(self):
        seen["validation"] = self.training_step.validation
        return real(self)

    monkeypatch.setattr(TrainingLoop, "run", run)
    listener = helpers.Messages()
    options = {"horizon": "steps", "split": str(path), "dev_head": "fitted"}
    results = train(config(weights={"meta": options}, epochs=1), listener)
    assert len(seen["validation"].texts) == 5
    assert seen["validation"].head == "fitted"
    assert not any("drive the weights" in line for line in listener.lines)
    assert results.surrogate["evaluations"] == 2
    assert RunResults.load(tmp_path / "run") == results
    options["split"] = "nowhere.jsonl"
    with pytest.raises(DataError, match="there is no file"):
        train(config(weights={"meta": options}, output=str(tmp_path / "b")))


def test_the_report_of_the_surrogate():
    def row(metric, surrogate):
        return {"dev/accuracy": metric, "dev/surrogate": surrogate}

    falling = [row(0.1, 3.0), row(0.5, 2.0), row(0.7, 1.5), row(0.6, 1.8)]
    assert surrogate_report(falling, "accuracy") == {"spearman": 1.0, "evaluations": 4}
    mixed = [row(0.1, 3.0), row(0.5, 1.0), row(0.7, 2.0)]
    assert surrogate_report(mixed, "accuracy")["spearman"] == pytest.approx(0.5)
    assert surrogate_report(falling[:2], "accuracy") == {"spearman": None, "evaluations": 2}
    constant = [row(0.5, 3.0), row(0.5, 1.0), row(0.5, 2.0)]
    assert surrogate_report(constant, "accuracy")["spearman"] is None
    assert surrogate_report([{"dev/accuracy": 0.1}], "accuracy") is None


def test_the_closed_form_head_is_a_linear_discriminant():
    """Against Gaussian densities with the covariance that scikit-learn estimates."""
    labels = torch.arange(24) % 3
    noise = torch.randn(24, 5, generator=helpers.generator(), dtype=torch.float64)
    features = noise + labels[:, None]
    head = closed_form_head(features, labels, 3)
    means = torch.stack([features[labels == label].mean(0) for label in range(3)])
    covariance = torch.from_numpy(oas((features - means[labels]).numpy(), assume_centered=True)[0])
    densities = [MultivariateNormal(mean, covariance).log_prob(features) for mean in means]
    expected = torch.stack(densities, 1).log_softmax(-1)
    torch.testing.assert_close(head(features).log_softmax(-1), expected, rtol=1e-8, atol=1e-10)
    few = closed_form_head(features[:2], labels[:2], 3)  # a class without an example
    assert few(features).isfinite().all()


def test_a_fitted_head_is_frozen_and_better_than_a_newly_initialised_one():
    labels = torch.arange(32) % 2
    features = torch.randn(32, 8, generator=helpers.generator()) + 3 * labels[:, None]
    head = initialise_head(8, 2, 0, 5, features)
    assert torch.equal(head[0].weight, initialise_head(8, 2, 0, 5, features)[0].weight)
    assert not torch.equal(head[0].weight, initialise_head(8, 2, 0, 6, features)[0].weight)
    before = torch.nn.functional.cross_entropy(head(features), labels)
    calls = []
    fitted = fit_head(head, lambda: calls.append(None) or features, labels)
    assert 2 <= len(calls) <= 10
    assert torch.nn.functional.cross_entropy(fitted(features), labels) < before
    assert not any(parameter.requires_grad for parameter in fitted.parameters())


def test_a_head_is_fitted_in_single_precision_under_autocast():
    """Autocast would reuse its copy of the weights from before the first step."""
    labels = torch.arange(32) % 2
    features = torch.randn(32, 8, generator=helpers.generator()) + labels[:, None]
    expected = fit_head(initialise_head(8, 2, 0, 5, features), lambda: features, labels)
    seen = []

    def half():
        seen.append(torch.is_autocast_enabled("cpu"))
        return features

    with torch.autocast("cpu", torch.bfloat16):
        found = fit_head(initialise_head(8, 2, 0, 5, features), half, labels)
    assert all(seen)  # the backbone stays in half precision
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("head", ["closed", "fitted"])
def test_logits_of_a_dev_head_are_in_single_precision(tiny_bert, monkeypatch, head):
    """The same features must give the same loss, whatever precision the body is computed in."""
    texts = helpers.tokenized(tiny_bert, helpers.LINES, [row % 3 for row in range(24)])
    tiny_bert.eval()
    real, computed, losses = type(tiny_bert).features, {}, []

    def once(encoder, batch):
        key = tuple(batch.indices.tolist())
        if key not in computed:
            computed[key] = real(encoder, batch)
        return computed[key]

    monkeypatch.setattr(type(tiny_bert), "features", once)
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            made = ValidationObjective(texts, 8, "accuracy", 0, head=head)
            losses.append(made.loss(tiny_bert, 3))
    assert torch.equal(*losses)


def test_the_derivative_through_a_closed_form_head_is_complete(tiny_bert):
    """Central differences, with the head computed again at every point."""
    encoder = tiny_bert.double().eval()
    texts = helpers.tokenized(encoder, helpers.LINES, [row % 3 for row in range(24)])
    made = ValidationObjective(texts, 8, "accuracy", 0, head="closed", batches_per_step=2)
    parameters = encoder.body_parameters()
    generator = helpers.generator()
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
    for draw in (0, 1):  # the second has a graph as well
        loss = made.loss(encoder, 4, draw)
        gradient = torch.autograd.grad(loss, parameters, allow_unused=True)
        slope = sum(
            (g * d).sum() for g, d in zip(gradient, direction, strict=True) if g is not None
        )

        def at(shift, draw=draw):
            with torch.no_grad():
                torch._foreach_add_(parameters, direction, alpha=float(shift))
                value = made.loss(encoder, 4, draw)
                torch._foreach_add_(parameters, direction, alpha=-float(shift))
            return value

        numeric = helpers.slopes(at, torch.zeros(1, dtype=torch.float64), size=1e-5)
        assert float(numeric) == pytest.approx(float(slope), rel=1e-5)
