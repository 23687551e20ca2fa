"""Meta-learned weights: the exact derivative of the validation loss after one or several steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from auxlearn.core.errors import ConfigError
from auxlearn.core.metric_names import VALIDATION, Quantity
from auxlearn.core.registry import register_weighting
from auxlearn.core.settings import ValidationSource
from auxlearn.weighting.base import Branches, DevHead, TrainingStep, apply_gradient
from auxlearn.weighting.gradients import (
    HEADS,
    Gradient,
    GradientAverage,
    dot,
    gather_scalars,
    restricted,
    shared_gradient,
    squared_norm,
    weighted_sum,
)
from auxlearn.weighting.learned import EPSILON, LogitWeighting, alignment_metrics, cosines_with
from auxlearn.weighting.meta_options import (
    MetaOptions,
    default_meta_weights,
    logit_learning_rate,
    lowest_logit,
    meta_gradient_of_logits,
)
from auxlearn.weighting.optimizer_steps import gram_matrices, weight_gradient

#: Smallest weight that an auxiliary task can be left with, as a share of the gate.
LEAST_OF_GATE = 1 / 3


@register_weighting("meta")
class Meta(LogitWeighting):
    r"""The best on dev of runs with fixed shares, or weights learned by the exact meta-gradient.

    Notation: :math:`\theta` are the parameters, :math:`w = \mathrm{softmax}(z)` the weights of the
    objectives with the primary task at index 0, :math:`L_{val}` the validation loss, and v its
    gradient at the parameters :math:`\theta'` after the step.

    With ``mix: steps``, the default, each objective i has an optimizer step of its own,
    :math:`u_i`, and :math:`\theta' = \theta + u_0 + \sum_{i>0} (w_i / w_0) u_i`
    (:mod:`auxlearn.weighting.optimizer_steps`). The meta-gradient of that step is

    .. math:: \partial L_{val} / \partial z_i = (w_i / w_0) \, v^\top u_i \quad (i > 0), \qquad
        \partial L_{val} / \partial z_0 = -\sum_{i>0} \partial L_{val} / \partial z_i,

    exact, and without second derivatives of the encoder.

    Three departures make the direction reliable. In place of the gradient of one step's validation
    batches, v is a moving average over steps
    (:class:`~auxlearn.weighting.gradients.GradientAverage`), and so is each :math:`u_i`. The
    average of :math:`u_i` is, up to a factor, what a constant :math:`w_i / w_0` has changed in the
    parameters over the last steps if second derivatives are left out: forward accumulation with
    decay (Franceschi et al. 2017, "Forward and Reverse Gradient-Based Hyperparameter Optimization",
    https://arxiv.org/abs/1703.01785, without its Hessians). And an auxiliary objective is charged a
    price p, a share of the mean of :math:`|v^\top u_0|` over the steps so far: :math:`(w_i / w_0)
    (v^\top u_i + p)`, the derivative of :math:`L_{val} + p \sum_{i>0} w_i / w_0` with the price
    held constant. Without them (``validation_decay: 0``, ``step_decay: 0``, ``margin: 0``) the
    update follows the derivative of the loss alone.

    Any change of training changes its result, for better or worse. So an auxiliary objective starts
    with a small weight and is applied only once its weight has passed a gate; until then, the
    parameters of the primary task are bit by bit those of training it alone. Nor is there evidence
    for or against anything while the primary task is no better than a constant prediction: the
    logits stay as they are while the moving average of the validation loss is above that of one. A
    gate that no objective has passed in a share of the steps is closed, and the rest of the run
    trains the primary task alone: a late objective can do little but harm.

    With ``mix: gradients`` or ``scaled``, :math:`\theta' = U(\theta, \sum_i w_i g_i)` is one step U
    of the run's optimizer with the gradients :math:`g_i` of all objectives at :math:`\theta`, and
    :math:`\partial L_{val} / \partial w_i = v^\top (\partial U / \partial g) \, g_i`, exact as
    well: only the optimizer step is differentiated. Both follow the idea of META-TARTAN (Dery et
    al. 2022, "Should We Be Pre-training?", https://arxiv.org/abs/2109.07437), whose own rule leaves
    out the derivatives of the optimizer and of the softmax.

    With ``unroll: K`` the validation loss is differentiated through the next K steps with constant
    weights (as in Franceschi et al. 2018, "Bilevel Programming for Hyperparameter Optimization and
    Meta-Learning", https://arxiv.org/abs/1806.04910, and in MAML,
    https://arxiv.org/abs/1703.03400); then the first of them is made.

    The meta-gradient is small and has no fixed scale (it is proportional to the learning rate), so
    the logits are learned by Adam, whose steps do not depend on the scale.
    """

    Options = MetaOptions
    options: MetaOptions
    _contributions: Tensor

    @property
    def branches(self) -> Branches | None:
        """Whole runs to compare, with ``horizon: run``."""
        options = self.options
        if options.horizon == "steps" or len(self.objectives) == 1:
            return None
        return Branches(options.share, options.mix)

    @property
    def validation_source(self) -> ValidationSource | None:
        """Examples that the steps learn from; none with ``horizon: run``, which compares on dev."""
        return None if self.options.horizon == "run" else super().validation_source

    @property
    def dev_head(self) -> DevHead:
        return self.options.dev_head

    def __init__(self, options: MetaOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        if options.unroll > 1 and options.mix == "steps":
            raise ConfigError(
                f"{self.name}: unroll {options.unroll} differentiates through steps of one shared "
                "optimizer state: add mix scaled"
            )
        self._check_gate()
        self._average = GradientAverage(options.validation_decay)
        self._loss_average = GradientAverage(options.validation_decay)
        self._step_averages = [GradientAverage(options.step_decay) for _ in self.objectives]
        self._kept_averages = nn.ModuleList(self._step_averages)
        # The sum of the primary task's contributions, and their number.
        self.register_buffer("_contributions", torch.zeros(2, dtype=torch.float64))

    def _check_gate(self) -> None:
        """Refuse a gate that no task can reach, because the primary task keeps its floor."""
        options, count = self.options, len(self.objectives) - 1
        if options.mix == "steps" and count and options.floor + options.gate / count >= 1:
            raise ConfigError(
                f"{self.name}: no auxiliary task can reach the gate: gate {options.gate:g} divided "
                f"by their number, {count}, is {options.gate / count:.4g}, but floor "
                f"{options.floor:g} leaves them a weight of {1 - options.floor:.4g} in all: lower "
                "gate or floor"
            )

    def default_weights(self) -> Tensor:
        return default_meta_weights(len(self.objectives))

    @property
    def weights(self) -> Tensor:
        """Weights that are applied: zero for an auxiliary task below the gate; their sum is 1."""
        weights = self.softmax() * torch.tensor(self._applied())
        return weights / weights.sum()

    def _applied(self) -> list[bool]:
        """Whether each objective's steps reach the parameters of the primary task."""
        learned = self.softmax()[1:]
        gate = self.options.gate / max(1, len(learned))
        gated = self.options.mix == "steps"
        return [True, *(not gated or weight >= gate for weight in learned.tolist())]

    def step(self, step: TrainingStep) -> None:
        if self.options.mix != "steps" or len(self.objectives) == 1:
            super().step(step)
            return
        applied = self._applied()
        step.isolated = frozenset(
            name for name, on in zip(step.names, applied, strict=True) if not on
        )
        self._metrics = {}
        learned = min(self.options.learn_share, self.options.gate_share) * step.total_steps
        if step.number >= learned and not any(applied[1:]):
            # No auxiliary task will be applied any more.
            self.mixture.separate.clear()
            for average in (self._average, self._loss_average, *self._step_averages):
                average.clear()
            step.backward(self.weights)
            step.optimizer_step()
            return
        gradients = step.gradients()
        # Before the step, which clips the gradients in place.
        squares = [squared_norm(gradient) for gradient in gradients]
        weights = self.softmax()
        steps = self.mixture.separate.step(step, gradients, weights, applied)
        if self.is_learning(step):
            self._set_rate(step)
            self._update_logits(step, squares, weights, steps)

    def _update_logits(
        self,
        step: TrainingStep,
        squares: Sequence[Tensor],
        weights: Tensor,
        steps: Sequence[Gradient],
    ) -> None:
        """Update the logits with the meta-gradient of the separate steps that were just made.

        ``squares`` are the squared norms of the objectives' gradients, ``weights`` those that the
        steps were made with.
        """
        validation = self._validation_gradient(step)
        averages = zip(self._step_averages, steps, strict=True)
        steps = [average.update(last) for average, last in averages]
        (loss,) = self._loss_average.update([step.losses[VALIDATION]])
        assert loss is not None
        lengths, along = [squared_norm(u) for u in steps], [dot(u, validation) for u in steps]
        values = gather_scalars([loss, squared_norm(validation), *lengths, *along, *squares])
        sizes = [1, 1, len(lengths), len(along), len(squares)]
        loss, square, step_squares, products, gradient_squares = values.split(sizes)
        charged = self._charged(products)
        gate = self.options.gate
        if not gate or float(loss) < step.constant_validation_loss:
            self.apply_logit_gradient(meta_gradient_of_logits(weights, charged))
            if gate:
                self._bound_logits(step)
        cosines = -products / (square * step_squares).sqrt().clamp(min=EPSILON)
        norm = square.sqrt()
        self._metrics = Quantity.NORM.row([VALIDATION], norm.tolist())
        self._metrics |= Quantity.CANDIDATE.row(step.names, self.softmax().tolist())
        self._metrics |= alignment_metrics(step.names, gradient_squares.sqrt(), cosines, norm)

    def _bound_logits(self, step: TrainingStep) -> None:
        """Keep the logits of tasks that are not applied within what the gate leaves them."""
        lowest = lowest_logit(self.logits, LEAST_OF_GATE * self.options.gate)
        is_open = step.number + 1 < self.options.gate_share * step.total_steps
        with torch.no_grad():
            self.logits[1:].clamp_(min=lowest)
            for index, on in enumerate(self._applied()):
                if not (on or is_open):
                    self.logits[index] = lowest

    def _validation_gradient(self, step: TrainingStep) -> Gradient:
        return self._average.update(step.validation_gradient(batches=self.options.batches))

    @property
    def validation_batches(self) -> int:
        return self.options.batches

    def validation_batch_size(self, batch_size: int) -> int:
        """Return option ``batch_size``, by default half the training batch size.

        The moving average makes up for the noise of a small batch; a larger one costs time.
        """
        return self.options.batch_size or (batch_size + 1) // 2

    @property
    def differentiates_twice(self) -> bool:
        return self.options.unroll > 1

    def learn(self, step: TrainingStep) -> None:
        self._set_rate(step)
        if self.options.unroll > 1:
            self._unrolled(step)
        else:
            self._one_step(step)

    def _set_rate(self, step: TrainingStep) -> None:
        options = self.options
        rate = logit_learning_rate(step.total_steps, options.every, options.validation_decay)
        for group in self.optimizer.param_groups:
            group["lr"] = options.learning_rate or rate

    def _one_step(self, step: TrainingStep) -> None:
        gradients = step.gradients()
        placements = step.placements
        inside, outside = gram_matrices(
            [shared_gradient(gradient, placements) for gradient in gradients],
            [restricted(gradient, placements, HEADS) for gradient in gradients],
        )
        gram = inside + outside
        factors = self.mixture.factors(inside.diagonal().sqrt())
        weights = self.weights * factors
        apply_gradient(step, weighted_sum(gradients, weights))
        by_weight, products = weight_gradient(
            step.optimizer,
            step.parameters,
            step.max_grad_norm,
            gradients,
            weights,
            gram,
            self._validation_gradient(step),
        )
        norms, norm = gram.diagonal().sqrt(), products[-1].sqrt()
        cosines = cosines_with(products[:-1], norms, norm)
        self._metrics = alignment_metrics(step.names, norms, cosines, norm)
        self.apply_weight_gradient(self._charged(factors * by_weight))

    def _unrolled(self, step: TrainingStep) -> None:
        from auxlearn.weighting.unrolling import unrolled_gradient

        # An unroll only gives the gradient of the weighted sum: the norms need a pass of their own.
        # The scale factors of the first step are used for all of them.
        scaled = self.options.mix == "scaled"
        factors = self.mixture.measured_factors(step.gradients() if scaled else [], step)
        weights = self.weights * factors
        by_weight, first = unrolled_gradient(
            step, weights, self.options.unroll, self.options.batches
        )
        self._metrics = {}
        apply_gradient(step, first)
        self.apply_weight_gradient(self._charged(factors * by_weight.to(factors)))

    def _charged(self, gains: Tensor) -> Tensor:
        """Return the gains with the price of each auxiliary objective, which Adam has to exceed."""
        # A share of what the primary task contributes on average over the run so far, not of what
        # it does now: once that has learned what it can, noise alone would exceed it.
        contribution = abs(float(gains[0]))
        self._contributions += torch.tensor([contribution, 1.0], dtype=torch.float64)
        total, count = self._contributions.tolist()
        charged = gains.clone()
        charged[1:] += self.options.margin * total / count
        return charged

    def account(
        self, rows: Sequence[Mapping[str, Any]], exported: int, steps: int
    ) -> dict[str, str]:
        """Return when each task was applied and with what weight, as far as steps were recorded;
        nothing without a gate.
        """
        options, tasks = self.options, self.objectives[1:]
        if options.mix != "steps" or not options.gate:
            return {}
        gate = options.gate / max(1, len(tasks))
        sentences = {}
        for task in tasks:
            weight_key, candidate_key = Quantity.WEIGHT.key(task), Quantity.CANDIDATE.key(task)
            weights = [(row["step"], row[weight_key]) for row in rows if weight_key in row]
            candidates = [row[candidate_key] for row in rows if candidate_key in row]
            applied = [(step, weight) for step, weight in weights if weight > 0]
            if not applied:
                highest = f"at most {max(candidates):.3f}" if candidates else "never learned"
                sentences[task] = (
                    f"{task}: not applied in the recorded steps; its weight was {highest}, and "
                    f"{gate:.3g} by step {int(options.gate_share * steps)} is what the gate asks "
                    "for; a derivative over a few steps does not see what helps later, horizon run "
                    "does"
                )
                continue
            first, last = applied[0][0], applied[-1][0]
            highest = f"{max(weight for _, weight in applied):.3f}"
            until = "" if last == weights[-1][0] else f" to {last}"
            trained = [weight for step, weight in weights if step <= exported]
            now = trained[-1] if trained else 0.0
            there = (
                f"the exported checkpoint (step {exported}) was trained with it, weight {now:.3f}"
                if first <= exported
                else f"the exported checkpoint (step {exported}) is from before, without it"
            )
            sentences[task] = (
                f"{task}: of the recorded steps, applied from step {first}{until}, weight up to "
                f"{highest}; {there}"
            )
        return sentences
