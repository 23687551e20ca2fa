"""The validation objective: the surrogate loss on mini-batches, and the head fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from auxlearn.core import rng
from auxlearn.core.errors import DataError
from auxlearn.core.processes import ALONE, Processes
from auxlearn.data.batches import Batch, UniformStream, collate
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import full_precision, upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.kinds.base import Kind
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.objectives.base import features_of
from auxlearn.training.sums import join_rows
from auxlearn.training.terms import seen_whole
from auxlearn.weighting.base import DevHead

#: Number of examples that a head is fitted to, and the settings of the fit, as in the released code
#: of META-TARTAN.
HEAD_EXAMPLES = 32
FIT_STEPS = 10
FIT_LEARNING_RATE = 1e-3
FIT_WEIGHT_DECAY = 0.1
FIT_BETAS = (0.9, 0.98)
FIT_TOLERANCE = 1e-3


def closed_form_head(features: Tensor, labels: Tensor, classes: int) -> Callable[[Tensor], Tensor]:
    r"""Return the linear head of Gaussian classes with a shared covariance (linear discriminant).

    The logit of class :math:`c` for features :math:`x` is :math:`\mu_c^\top \Sigma^{-1} x -
    \tfrac12 \mu_c^\top \Sigma^{-1} \mu_c`, where :math:`\mu_c` is the mean of the class and
    :math:`\Sigma` the covariance within classes: the log posterior up to a constant, for classes
    that are equally frequent. A few examples do not determine the covariance of hundreds of
    dimensions, so it is shrunk towards a multiple of the identity by the oracle-approximating
    coefficient (Chen, Wiesel, Eldar and Hero 2010, "Shrinkage Algorithms for MMSE Covariance
    Estimation", https://arxiv.org/abs/0907.4698, equation 23, without the terms of 2/p). The mean
    of a class without an example is the mean of all examples.

    The head has a graph to the features ``(examples, hidden size)``, so that a derivative through
    it is complete, as in Bertinetto, Henriques, Torr and Vedaldi 2019, "Meta-learning with
    differentiable closed-form solvers" (https://arxiv.org/abs/1805.08136).
    """
    truth = nn.functional.one_hot(labels, classes).to(features)
    counts = truth.sum(0)
    means = (truth.T @ features) / counts.clamp(min=1)[:, None]
    means = torch.where(counts[:, None] > 0, means, features.mean(0))
    centred = features - means[labels]
    covariance = centred.T @ centred / len(features)
    size = covariance.diagonal().mean().clamp(min=torch.finfo(features.dtype).eps)
    square = (covariance**2).mean()
    excess = square + size**2
    spread = (len(features) + 1) * (square - size**2 / len(covariance))
    shrinkage = excess / torch.maximum(spread, excess)
    identity = torch.eye(len(covariance), dtype=features.dtype, device=features.device)
    covariance = (1 - shrinkage) * covariance + shrinkage * size * identity
    # The shrunk covariance is never singular; solve_ex skips the check, which would synchronise.
    slopes = torch.linalg.solve_ex(covariance, means.T).result.T
    return partial(nn.functional.linear, weight=slopes, bias=-0.5 * (slopes * means).sum(1))


def initialise_head(
    hidden: int, classes: int, seed: int, step: int, like: Tensor, kind: Kind = CLASSIFICATION
) -> nn.Module:
    """Return a new head as the classifier's, or that of a kind that no linear layer will do for."""
    with rng.seeded(seed, "dev head", step):
        usual = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, classes))
        head = usual if kind.pipeline else kind.head(usual).eval()
    return head.to(device=like.device, dtype=like.dtype, non_blocking=True)


def fit_head(
    head: nn.Module,
    features: Callable[[], Tensor],
    labels: Tensor,
    loss_of: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
) -> nn.Module:
    """Fit a head as META-TARTAN's code does, to new ``features()`` in each step, and freeze it."""
    optimizer = torch.optim.AdamW(
        head.parameters(), lr=FIT_LEARNING_RATE, weight_decay=FIT_WEIGHT_DECAY, betas=FIT_BETAS
    )
    previous = float("inf")
    for _ in range(FIT_STEPS):
        inputs = features()
        with full_precision(inputs.device):  # autocast would reuse its cached copy of the weights
            loss = loss_of(head(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        current = float(loss.detach())
        if abs(previous - current) < FIT_TOLERANCE:
            break
        previous = current
    return head.requires_grad_(False)


@dataclass(eq=False)
class ValidationObjective:
    """Loss on mini-batches of validation examples.

    For accuracy it is one minus the smooth accuracy on uniformly drawn batches; for macro-F1 one
    minus the smooth macro-F1 on batches with equal numbers of examples per class, as far as
    possible.
    """

    texts: TokenizedTexts
    batch_size: int
    surrogate: str
    seed: int
    head: DevHead = "own"
    batches_per_step: int = 1
    attends_to_padding: bool = False
    kind: Kind = CLASSIFICATION

    def __post_init__(self) -> None:
        texts = self.texts
        targets = texts.labels if texts.tags is None else texts.tags
        if targets is None:
            raise ValueError("a validation objective needs labelled texts")
        self.labels = targets
        if self.head == "closed":
            self.kind.require("dev heads")
        self._balanced = self.surrogate == self.kind.balanced
        if self.head != "own" and len(texts) < 2:
            raise DataError(
                "a dev head is fitted to other validation examples than those of the loss: give "
                "at least two, or choose the dev head own"
            )
        size = self._head_size = 0 if self.head == "own" else min(HEAD_EXAMPLES, len(texts) // 2)
        self.batch_size = min(self.batch_size, len(texts) - size)
        # Of a step if it has a dev head, whose examples come first; else of one batch.
        drawn = size + (self.batches_per_step if size else 1) * self.batch_size
        self._stream = UniformStream(texts, drawn, self.seed, "validation")
        self._heads: dict[int, nn.Module] = {}

    @cached_property
    def _by_class(self) -> list[Tensor]:
        return members_by_class(self.labels)

    @cached_property
    def constant_loss(self) -> float:
        """Loss of the best constant prediction: the smooth macro-F1 of a balanced batch is 1 /
        classes, of a smaller one 2 / (classes + examples).
        """
        if self._balanced:
            classes = len(self.labels.unique())
            return 1 - 2 / (classes + min(classes, self.batch_size))
        return self.kind.constant_loss(self.labels, self.surrogate)

    def loss(
        self,
        encoder: SharedEncoder,
        step: int,
        index: int = 0,
        batches: int = 1,
        part: int = 0,
        processes: Processes = ALONE,
    ) -> Tensor:
        """Return the loss on a part of a step's batches, a scalar with a graph.

        The mean over the parts is the mean loss of the batches. Of several processes each computes
        some examples. All return the whole loss, and its graph leads to their own examples.
        """
        batch = self._batch(self._part(step * self.batches_per_step + index, batches, part))
        assert batch.targets is not None
        head = None
        if self.head != "own":
            head = self._dev_head(encoder, step, new=index + part == 0 or step not in self._heads)
        logits = self._logits(encoder, head, batch, processes)
        targets = upload(batch.targets, logits.device)
        return self.kind.surrogate(logits, targets, self.surrogate)

    def _logits(
        self,
        encoder: SharedEncoder,
        head: Callable[[Tensor], Tensor] | None,
        batch: Batch,
        processes: Processes,
    ) -> Tensor:
        """Return the logits of a batch, whose examples the processes divide among them."""
        number, count, texts = processes.number, processes.count, len(batch.indices)
        first, end = texts * number // count, texts * (number + 1) // count
        place, count_of_rows = first, texts
        if self.kind.per_token and batch.windows is not None:  # those of texts are pooled
            place, count_of_rows = int(batch.windows[:first].sum()), len(batch)
        length, outputs = batch.input_ids.shape[1], encoder.config.num_labels
        shape = self.kind.logits_shape(count_of_rows, length, outputs)
        if first == end:  # fewer examples than processes
            rows = next(encoder.parameters()).new_zeros((0, *shape[1:]))
        elif head is None:
            rows = encoder.classify(batch.part(slice(first, end)))
        else:
            features = features_of(encoder, self.kind, batch.part(slice(first, end)))
            with full_precision(features.device):
                rows = head(features)
        return join_rows(processes, rows, shape, place)

    def _examples(self, number: int) -> Tensor:
        """Return the numbers of the examples of a batch, which are none of those of the head."""
        step, index = divmod(number, self.batches_per_step)
        if self._balanced:
            generator = rng.generator(self.seed, "validation", "balanced", number)
            head = self._head_examples(step) if self._head_size else None
            return balanced_sample(self.labels, self._by_class, self.batch_size, generator, head)
        if not self._head_size:
            return self._stream.indices(number)
        rest = self._stream.indices(step)[self._head_size :]
        places = torch.arange(index * self.batch_size, (index + 1) * self.batch_size)
        return rest[places % len(rest)]

    def _head_examples(self, step: int) -> Tensor:
        return self._stream.indices(step)[: self._head_size]

    def _part(self, first: int, batches: int, part: int) -> Tensor:
        """Return the examples of a part of some batches; grouped by length if the mean stays."""
        if self.surrogate not in self.kind.means or batches == 1:
            return self._examples(first + part)
        drawn = torch.cat([self._examples(first + number) for number in range(batches)])
        order = self.texts.lengths[drawn].argsort(descending=True, stable=True)
        return drawn[order].split(self.batch_size)[part]

    def _dev_head(self, encoder: SharedEncoder, step: int, new: bool) -> Callable[[Tensor], Tensor]:
        """Return the head of a step; one in closed form has a graph to the features."""
        batch = self._batch(self._head_examples(step))
        assert batch.targets is not None
        classes = encoder.config.num_labels
        if self.head == "closed":
            features = encoder.features(batch)
            with full_precision(features.device):
                return closed_form_head(features, upload(batch.targets, features.device), classes)
        if new:
            self._heads = {step: self._fit(encoder, batch, batch.targets, classes, step)}
        return self._heads[step]

    def _fit(
        self, encoder: SharedEncoder, batch: Batch, labels: Tensor, classes: int, step: int
    ) -> nn.Module:
        def features() -> Tensor:
            with torch.no_grad():
                return features_of(encoder, self.kind, batch)

        first = features()
        head = initialise_head(first.shape[-1], classes, self.seed, step, first, self.kind)
        # With dropout off, the features of a frozen backbone are the same at every step of the fit.
        source = features if self.head == "refitted" else lambda: first
        return fit_head(head, source, upload(labels, first.device), self.kind.loss)

    def _batch(self, examples: Tensor) -> Batch:
        batch = collate(self.texts, examples)
        return seen_whole(batch) if self.attends_to_padding else batch


def members_by_class(labels: Tensor) -> list[Tensor]:
    """Return the numbers of the examples of each class, of class 0 first."""
    return list(labels.argsort(stable=True).split(labels.bincount().tolist()))


def balanced_sample(
    labels: Tensor,
    members: Sequence[Tensor],
    size: int,
    generator: torch.Generator,
    without: Tensor | None = None,
) -> Tensor:
    """Draw examples evenly from the classes as far as they are large enough, the rest at random."""
    barred = set() if without is None else set(without.tolist())
    sizes = torch.tensor([len(numbers) for numbers in members])
    if without is not None:
        sizes -= labels[without].bincount(minlength=len(sizes))
    counts, left = torch.zeros_like(sizes), min(size, int(sizes.sum()))
    while left:
        unfilled = (counts < sizes).nonzero().squeeze(1)
        each = left // len(unfilled)
        if each:
            counts = torch.minimum(counts + each, sizes)
        else:
            counts[unfilled[torch.randperm(len(unfilled), generator=generator)[:left]]] += 1
        left = min(size, int(sizes.sum())) - int(counts.sum())
    return torch.cat(
        [
            _draw(numbers, count, generator, barred)
            for numbers, count in zip(members, counts.tolist(), strict=True)
        ]
    )


def _draw(
    numbers: Tensor, count: int, generator: torch.Generator, barred: AbstractSet[int]
) -> Tensor:
    """Draw different numbers, each with the same chance; of many, by trial."""
    drawn: dict[int, None] = {}
    few = len(numbers) < 4 * (count + len(barred))
    while len(drawn) < count:
        places = (
            torch.randperm(len(numbers), generator=generator)
            if few
            else torch.randint(len(numbers), (2 * count,), generator=generator)
        )
        drawn |= dict.fromkeys(n for n in numbers[places].tolist() if n not in barred)
    return torch.tensor(list(drawn)[:count], dtype=torch.int64)
