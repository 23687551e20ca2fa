"""The space of objectives of AANG: data, transform, representation and output in combination."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, product
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core import rng
from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import register_task
from auxlearn.core.validation import Described, OneOrMany
from auxlearn.data.batches import Batch, BatchStream, UniformStream, collate, pad_token_values
from auxlearn.data.tokens import TokenizedTexts, concatenate, consecutive
from auxlearn.encoders.device import upcast, upload
from auxlearn.encoders.families import require_pairwise_attention, states_at
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.base import head_of
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import CORRUPTIONS, choose, corrupt, ordinary_ids, uniform
from auxlearn.tasks.base import AuxiliaryTask, TaskResult

#: What becomes of the chosen tokens, as a kind of corruption.
CORRUPTION_OF = {"none": "keep", "mask": "mask", "replace": "random", "bert": "bert"}

#: Largest value of the regressions: a text's most frequent token has it (Aroca-Ouellette and
#: Rudzicz 2020).
SCALE = 10.0

Transform = Literal["none", "mask", "replace", "bert"]
Representation = Literal["bidirectional", "left_to_right", "right_to_left", "random"]
Output = Literal["denoise", "label", "tf", "tf_idf"]

#: The data that have labels.
TASK_TEXT = "task"


class Combination(NamedTuple):
    """One objective of the space."""

    data: str  # texts that it is computed on
    transform: Transform  # what becomes of the chosen tokens
    representation: Representation  # which tokens each token attends to
    output: Output  # what is predicted


def combinations(
    data: Sequence[str],
    transforms: Sequence[Transform],
    representations: Sequence[Representation],
    outputs: Sequence[Output],
) -> list[Combination]:
    """Return the legal combinations, each once.

    Labels are known of the task's own texts alone, and are not predicted in one direction, as in
    the authors' code (``get_illegal_sets`` of ``searchspace_options.py``).

    >>> orders = ("bidirectional", "left_to_right", "right_to_left", "random")
    >>> len(combinations(["task"], ["none", "mask", "bert"], orders, ["denoise", "label"]))
    18
    """
    every = map(Combination._make, product(data, transforms, representations, outputs))
    return [
        combination
        for combination in dict.fromkeys(every)
        if combination.output != "label"
        or (
            combination.data == TASK_TEXT
            and combination.representation in ("bidirectional", "random")
        )
    ]


def reading_order(
    representation: Representation, batch: Batch, generator: torch.Generator
) -> Tensor | None:
    """Return when each token is read, ``(batch, length)``, float64; ``None`` if all attend to all.

    A token attends to itself and to those that are read before it. In random order (the
    permutations of XLNet, Yang et al. 2019, https://arxiv.org/abs/1906.08237, eq. 3) special tokens
    come first, together, and the first token of a text, which stands for the text, last: it attends
    to all others, and none attends to it. One number is drawn for each token but padding.
    """
    if representation == "bidirectional":
        return None
    places = torch.arange(batch.input_ids.shape[1], dtype=torch.float64).expand(
        batch.input_ids.shape
    )
    if representation == "left_to_right":
        return places
    if representation == "right_to_left":
        return -places
    inside = batch.attention_mask.bool()
    order = torch.zeros(inside.shape, dtype=torch.float64)
    order[inside] = torch.rand(int(inside.sum()), generator=generator, dtype=torch.float64)
    order[batch.words < 0] = -1
    order[:, 0] = 2
    return order


def attends_in_order(order: Tensor, batch: Batch) -> Tensor:
    """Return what each token attends to, ``(batch, length, length)``; padding, to itself too."""
    inside = batch.attention_mask.bool()[:, None]
    itself = torch.eye(order.shape[1], dtype=torch.bool)
    return (order[:, None] <= order[:, :, None]) & inside | itself


class Slots(NamedTuple):
    """Texts with a slot behind them for each token that is to be predicted."""

    batch: Batch  # token ids, attention mask and segments of texts and slots
    attends: Tensor  # which tokens and slots each attends to, (batch, length + slots, ...), bool
    positions: Tensor  # position of each in its text, (batch, length + slots)
    predicted: Tensor  # slots of ``chosen``, in its row-major order, ``(batch, length + slots)``


def with_slots(batch: Batch, order: Tensor, chosen: Tensor, mask_id: int) -> Slots:
    """Give each chosen token a slot that predicts it from the tokens that are read before it.

    A token that stays in the text must not be seen where it is predicted. XLNet computes a second
    stream of states for this (section 2.3); here it is a mask token behind the text, with the
    position of the token, to which nothing else attends.
    """
    length, counts = chosen.shape[1], chosen.sum(1)
    width = int(counts.max()) if len(counts) else 0
    places = chosen.long().argsort(dim=1, descending=True, stable=True)[:, :width]
    filled = torch.arange(width) < counts[:, None]
    slots = torch.full_like(places, mask_id)
    inside = batch.attention_mask.bool()[:, None]
    before = (order[:, None] < order.gather(1, places)[:, :, None]) & inside
    itself = torch.eye(width, dtype=torch.bool).expand(len(places), -1, -1)
    unseen = torch.zeros(len(places), length, width, dtype=torch.bool)
    types = batch.token_type_ids
    return Slots(
        replace(
            batch,
            input_ids=torch.cat([batch.input_ids, slots], 1),
            attention_mask=torch.cat([batch.attention_mask, filled.long()], 1),
            token_type_ids=None
            if types is None
            else torch.cat([types, types.gather(1, places)], 1),
        ),
        torch.cat(
            [
                torch.cat([attends_in_order(order, batch), unseen], 2),
                torch.cat([before, itself], 2),
            ],
            1,
        ),
        torch.cat([torch.arange(length).expand(len(places), -1), places], 1),
        torch.cat([torch.zeros_like(chosen), filled], 1),
    )


class SpaceOptions(Described):
    per_step: int = Field(3, ge=1)
    """Objectives that are sampled in each step; 3 and 6 in the paper."""

    corpus: Annotated[tuple[str, ...], OneOrMany] = ()
    """Files of unlabelled texts, each a further value of the axis data beside the labelled
    texts."""

    transform: Annotated[tuple[Transform, ...], OneOrMany] = ("none", "mask", "replace", "bert")
    """What becomes of the chosen tokens: none: they stay; mask: mask token; replace: random token;
    bert: 80% mask token, 10% random token, 10% unchanged."""

    representation: Annotated[tuple[Representation, ...], OneOrMany] = (
        "bidirectional",
        "left_to_right",
        "right_to_left",
        "random",
    )
    """Tokens that each token attends to: all; those on its left or on its right; those before it in
    an order drawn for each text."""

    output: Annotated[tuple[Output, ...], OneOrMany] = ("denoise", "label")
    """What is predicted: denoise: the chosen tokens; label: the label of the text; tf, tf_idf: how
    frequent the chosen tokens are in their text, how characteristic of it."""

    probability: float = Field(0.15, gt=0, le=1)
    """Probability of each token to be chosen."""


class _Input(NamedTuple):
    """What is known of one input: texts of one kind of data, transformed and read in an order."""

    batch: Batch  # the texts as they were
    chosen: Tensor  # the tokens to be predicted, (batch, length), bool
    states: Tensor  # hidden states at the chosen tokens, (chosen.sum(), hidden size)
    hidden: Tensor  # last hidden states, (batch, length, hidden size)


@register_task("space")
class Space(AuxiliaryTask):
    r"""Train with objectives sampled from a space: data x transform x representation x output.

    Dery, Michel, Khodak, Neubig and Talwalkar 2023, "AANG: Automating Auxiliary Learning",
    https://arxiv.org/abs/2205.14082. Every legal combination of the four axes is an objective; with
    the default options there are 24, and 40 with a corpus. In each step ``per_step`` of them are
    sampled uniformly without replacement. Those with the same data, transform and representation
    share a forward pass, so that a step costs at most ``per_step`` passes, however many objectives
    there are. Those with the same output share a head.

    In each text tokens are chosen with ``probability``, and transformed. Objectives of tokens
    predict something of the chosen tokens: a mean over the texts of the mean over a text's chosen
    tokens, of the cross-entropy in nats (``denoise``) or of the squared error (``tf``,
    ``tf_idf``, both scaled to at most 10 in each text: Aroca-Ouellette and Rudzicz 2020,
    https://arxiv.org/abs/2010.12784). ``label`` predicts the label of the text, or those of its
    words (the mean over them), with a head of its own. The weighting `aang` learns how much each
    value of each axis counts; all other rules see one task, whose loss is the mean of the sampled
    objectives.

    It departs from the authors' code (ldery/Automating-Auxiliary-Learning) in these points. A token
    that stays in the text (``none``) and is read in one direction or in random order is predicted
    by a slot of its own that does not see it, as in GPT and XLNet; there, it is seen where it is
    predicted. Random order is an order; there, each token attends to a random 60% of the others.
    ``replace`` draws from the vocabulary without special tokens. Each objective has a full batch of
    its data; there, a batch is divided among the objectives in proportion to their weights. All
    texts count alike, one without a chosen token as 0; there, all chosen tokens. Each transform is
    an objective; there, by default, mixtures of them around 80/10/10 are learned as well. ``tf`` is
    a number; there, four classes. Noise on embeddings and objectives of sentences are left
    out, which that code names and, but for one, does not compute.
    """

    Options = SpaceOptions
    options: SpaceOptions

    def __init__(self, options: SpaceOptions) -> None:
        super().__init__(options)
        self.data = [TASK_TEXT]
        for number in range(1, len(options.corpus) + 1):
            self.data.append("corpus" if number == 1 else f"corpus_{number}")
        self.combinations = combinations(
            self.data, options.transform, options.representation, options.output
        )
        self.members = tuple(combination._asdict() for combination in self.combinations)

    def prepare(self, context: ObjectiveContext) -> None:
        options, encoder = self.options, context.encoder
        if context.windowing.in_windows:
            raise ConfigError(
                f"{context.name} reads a text as one row of tokens: leave --text-window windows out"
            )
        if not self.members:
            raise ConfigError(
                f"{context.name} has no legal objective: give every axis a value, and with output "
                "label representation bidirectional or random"
            )
        if "denoise" in options.output:
            encoder.require_language_model(context.name)
        if set(options.representation) != {"bidirectional"}:
            require_pairwise_attention(encoder.config, context.name)
        self.name_in_run, self.seed, self.now = context.name, context.seed, 0
        self.random_ids = ordinary_ids(encoder.tokenizer)
        self.kind = encoder.kind
        parts = [context.texts_of(source) for source in (None, *options.corpus)]
        self.texts = concatenate(
            *(replace(part, labels=None, tags=None, starts=None) for part in parts)
        )
        self.sizes = [len(part) for part in parts]
        self.labelled = replace(
            consecutive(self.texts, self.sizes)[0], labels=parts[0].labels, tags=parts[0].tags
        )
        self.targets: dict[str, Tensor] = {}
        if {"tf", "tf_idf"} & set(options.output):
            counted = [frequencies(part) for part in parts]
            self.targets = {"tf": torch.cat([tf for tf, _ in counted])}
            self.targets["tf_idf"] = torch.cat([tf_idf for _, tf_idf in counted])
        size, outputs = encoder.hidden_size, encoder.config.num_labels
        factories: Mapping[str, Callable[[], nn.Module]] = {
            "label": lambda: head_of(encoder, self.kind, outputs),
            **dict.fromkeys(("tf", "tf_idf"), lambda: nn.Linear(size, 1)),
        }
        self.heads = {
            name: context.add_head(name, factories[name])
            for name in dict.fromkeys(options.output)
            if name in factories
        }

    def sampled(self, step: int) -> tuple[int, ...]:
        generator = rng.generator(self.seed, self.name_in_run, "objectives", step)
        order = torch.randperm(len(self.members), generator=generator)
        return tuple(sorted(order[: self.options.per_step].tolist()))

    def data_of(self, step: int) -> list[int]:
        """Return the numbers of the data that the objectives of a step need."""
        return sorted({self.data.index(self.combinations[k].data) for k in self.sampled(step)})

    def stream(self, batch_size: int, seed: int, name: str) -> BatchStream:
        return _Stream(self, batch_size, seed, name)

    def begin_step(self, step: int, total: int) -> None:
        self.now = step

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> TaskResult:
        chosen = [(number, self.combinations[number]) for number in self.sampled(self.now)]
        share = len(self.data_of(self.now)) / len(batch)
        ends = torch.tensor(self.sizes).cumsum(0)
        source = torch.searchsorted(ends, batch.indices, right=True)
        losses = {}
        for (data, transform, representation), members in groupby(
            chosen, lambda member: member[1][:3]
        ):
            rows = batch.part(source == self.data.index(data))
            if len(rows):  # a micro-batch may have none of these texts
                read = self._read(encoder, rows, transform, representation, generator)
                for number, member in members:
                    losses[number] = self._loss(encoder, read, member.output) * share
        mean = torch.stack(list(losses.values())).sum() / len(chosen)
        return TaskResult(mean, members=losses)

    def _read(
        self,
        encoder: SharedEncoder,
        batch: Batch,
        transform: Transform,
        representation: Representation,
        generator: torch.Generator,
    ) -> _Input:
        """Run the encoder once for all objectives with the same input."""
        chosen = choose(uniform(batch.maskable, self.options.probability), generator)
        shares = CORRUPTIONS[CORRUPTION_OF[transform]]
        mask_id = encoder.tokenizer.mask_token_id
        ids = corrupt(batch.input_ids, chosen, mask_id, self.random_ids, generator, *shares)
        shown = replace(batch, input_ids=ids)
        order = reading_order(representation, batch, generator)
        if order is None:
            hidden = encoder.encode(shown).last_hidden_state
        elif transform == "none":
            slots = with_slots(shown, order, chosen, mask_id)
            hidden = encoder.encode(slots.batch, slots.attends, slots.positions).last_hidden_state
            return _Input(batch, chosen, states_at(hidden, slots.predicted), hidden)
        else:
            hidden = encoder.encode(shown, attends_in_order(order, batch)).last_hidden_state
        return _Input(batch, chosen, states_at(hidden, chosen), hidden)

    def _loss(self, encoder: SharedEncoder, read: _Input, output: Output) -> Tensor:
        """Return the sum over the texts of the loss of one output."""
        batch, chosen, device = read.batch, read.chosen, read.hidden.device
        if output == "label":
            labels = collate(self.labelled, batch.indices).targets
            assert labels is not None
            if self.kind.per_token:
                inputs = read.hidden[:, : labels.shape[1]]
            else:
                inputs = encoder.features_of(read.hidden, batch)
            logits = encoder.apply_head(self.heads[output], upcast(inputs))
            targets = upload(labels, device)
            if not self.kind.per_token:
                return self.kind.loss(logits, targets) * len(batch)
            each = zip(logits.split(1), targets.split(1), strict=True)
            return torch.stack([self.kind.loss(*of_text) for of_text in each]).sum()
        if output == "denoise":
            logits = encoder.token_logits(read.states)
            targets = upload(batch.input_ids[chosen], device)
            losses = nn.functional.cross_entropy(logits, targets, reduction="none")
        else:
            values = pad_token_values(self.texts, self.targets[output], batch.indices, 0)
            predicted = encoder.apply_head(self.heads[output], read.states).squeeze(-1)
            expected = upload(values[:, : chosen.shape[1]][chosen].float(), device)
            losses = nn.functional.mse_loss(predicted, expected, reduction="none")
        parts = 1 / chosen.sum(1).clamp(min=1)[:, None].expand_as(chosen)[chosen]
        return losses @ upload(parts.to(losses.dtype), device)


class _Stream(BatchStream):
    """Batches with as many texts of each of the data that the objectives of a step need."""

    def __init__(self, space: Space, batch_size: int, seed: int, name: str) -> None:
        super().__init__(space.texts, batch_size, seed, name)
        self.space = space
        sizes = torch.tensor(space.sizes)
        self.starts = sizes.cumsum(0) - sizes
        rows = min([batch_size, *space.sizes])
        self._streams = [
            UniformStream(texts, rows, seed, f"{name}/{number}")
            for number, texts in enumerate(consecutive(space.texts, space.sizes))
        ]

    def indices(self, step: int) -> Tensor:
        """Return the indices of the texts, the data in turn, so that micro-batches have all."""
        drawn = [self.starts[n] + self._streams[n].indices(step) for n in self.space.data_of(step)]
        return torch.stack(drawn, 1).flatten()


def frequencies(texts: TokenizedTexts) -> tuple[Tensor, Tensor]:
    r"""Return term frequency and TF-IDF of each token in its text, each scaled to at most 10.

    With :math:`n` the count of a token in its text and :math:`d` the number of the :math:`N` texts
    that have it, TF-IDF is :math:`n \log(1 + (N + 1) / (d + 1))`, as in AANG's code.
    """
    size = int(texts.input_ids.max()) + 1
    text = torch.arange(len(texts)).repeat_interleave(texts.lengths)
    key = text * size + texts.input_ids.long()
    kinds, place, counts = key.unique(return_inverse=True, return_counts=True)
    documents = (kinds % size).bincount(minlength=size)
    rarity = torch.log(1 + (len(texts) + 1) / (documents.double() + 1))
    tf = counts[place].double()
    scaled = []
    for values in (tf, tf * rarity[texts.input_ids.long()]):
        inside = values.masked_fill(~texts.maskable, 0)
        most = torch.zeros(len(texts), dtype=torch.float64)
        most.scatter_reduce_(0, text, inside, "amax")
        scaled.append((SCALE * inside / most.clamp(min=1e-9)[text]).float())
    return scaled[0], scaled[1]
