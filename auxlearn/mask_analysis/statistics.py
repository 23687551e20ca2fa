"""How often a task masks each token, by kind of token, and how tasks differ.

A task that defines mask probabilities is asked for them. Of any other task the masked tokens are
counted over many draws: those at which it lets the encoder predict tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from auxlearn.core import rng
from auxlearn.core.progress import ProgressBar, no_progress_bar
from auxlearn.data.batches import Batch, collate, unpad_token_values
from auxlearn.data.pos_tags import DESCRIPTIONS
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.tasks.base import AuxiliaryTask, MaskedLanguageModelling
from auxlearn.training.plugin_checks import calling

#: Draws over which the masked tokens of a task without mask probabilities are counted.
DRAWS = 400

#: Texts of a batch.
BATCH_TEXTS = 256


@dataclass(frozen=True)
class MaskRates:
    """How often a task masks each token."""

    name: str
    texts: TokenizedTexts  # the texts that the task draws from
    rates: Tensor  # mask probabilities, (tokens,), float64; 0 where nothing may be masked
    draws: int | None = None  # that the rates are counted over; None if they are exact


class _Seen(BaseException):
    """Ends a loss once it is known which tokens it masks. No handler of errors takes it."""

    def __init__(self, batch: Batch, positions: Tensor) -> None:
        self.batch = batch
        self.positions = positions


def mask_rates(
    task: AuxiliaryTask,
    name: str,
    encoder: SharedEncoder,
    seed: int,
    progress: ProgressBar = no_progress_bar,
    draws: int = DRAWS,
) -> MaskRates | None:
    """Return how often a prepared task masks each token of its texts."""
    texts = task.texts
    rates = torch.zeros(len(texts.input_ids), dtype=torch.float64)
    parts = torch.arange(len(texts)).split(BATCH_TEXTS)
    if isinstance(task, MaskedLanguageModelling):
        for indices in parts:
            with calling(task, "mask_probabilities", name):
                probabilities = task.checked_probabilities(collate(texts, indices))
            unpad_token_values(texts, probabilities.double().cpu(), indices, rates)
        return MaskRates(name, texts, rates)
    if _masked(task, name, encoder, collate(texts, torch.arange(min(2, len(texts)))), seed) is None:
        return None
    with progress(f"draws of {name}", draws) as advance:
        for draw in range(draws):
            counts = torch.zeros_like(rates)
            for indices in parts:
                masked = _masked(task, name, encoder, collate(texts, indices), seed, draw)
                if masked is not None:
                    unpad_token_values(texts, masked.double().cpu(), indices, counts)
            rates += counts
            advance(1)
    return MaskRates(name, texts, rates / draws, draws)


def _masked(
    task: AuxiliaryTask, name: str, encoder: SharedEncoder, batch: Batch, seed: int, draw: int = 0
) -> Tensor | None:
    """Return the tokens of a batch that a task masks in one draw, ``(batch, length)``, bool."""
    generator = rng.generator(seed, name, "masks", draw, int(batch.indices[0]))
    try:
        with _watched(encoder), encoder.evaluating(), torch.no_grad(), calling(task, "loss", name):
            task.loss(encoder, batch, generator)
    except _Seen as seen:
        same = torch.equal(seen.batch.indices, batch.indices)
        return seen.positions if same and seen.positions.shape == batch.input_ids.shape else None
    return None


@contextmanager
def _watched(encoder: SharedEncoder) -> Iterator[None]:
    """Stop where the encoder is asked for the tokens at masked positions."""

    def predict_tokens(batch: Batch, positions: Tensor) -> Tensor:
        raise _Seen(batch, positions)

    object.__setattr__(encoder, "predict_tokens", predict_tokens)
    try:
        yield
    finally:
        object.__delattr__(encoder, "predict_tokens")


#: Tokens that a group needs to be ranked; L3Masking removes rarer tags from its tables.
FEWEST = 10


@dataclass(frozen=True)
class Group:
    """Tokens that have something in common."""

    name: str  # part of speech, range of frequencies, or token
    description: str  # what the name stands for; "" where it speaks for itself
    tokens: int  # number of maskable tokens in the group
    rates: dict[str, float]  # mean probability to be masked, by task
    random: dict[str, float]  # the same by random masking at the same mean in each text

    def ratio(self, task: str) -> float:
        """Return how many times as often a task masks these tokens as random masking does."""
        return self.rates[task] / self.random[task] if self.random[task] else 0.0


def by_frequency(found: Sequence[MaskRates]) -> list[Group]:
    """Return groups of tokens by how often they occur in the texts, in powers of ten."""
    ids, maskable = found[0].texts.input_ids.numpy(), found[0].texts.maskable.numpy()
    counts = np.bincount(ids[maskable], minlength=int(ids.max()) + 1)
    power = np.floor(np.log10(np.maximum(1, counts[ids]))).astype(int)

    return [
        _group(found, power == exponent, f"{10**exponent:,} to {10 ** (exponent + 1) - 1:,} times")
        for exponent in np.unique(power[maskable])
    ]


def by_token(found: Sequence[MaskRates], tokenizer: Any) -> list[Group]:
    """Return one group for each token of the vocabulary that occurs, by the first task's mean."""
    ids = found[0].texts.input_ids.numpy()
    maskable = found[0].texts.maskable.numpy()
    present, place = np.unique(ids[maskable], return_inverse=True)
    names = tokenizer.convert_ids_to_tokens(present.tolist())
    counts = np.bincount(place)
    means = {one.name: _means(one.rates.numpy()[maskable], place) for one in found}
    random = {one.name: _means(_random(one)[maskable], place) for one in found}
    groups = [
        Group(
            str(names[number]),
            "",
            int(counts[number]),
            {task: float(values[number]) for task, values in means.items()},
            {task: float(values[number]) for task, values in random.items()},
        )
        for number in range(len(present))
    ]
    return sorted(groups, key=lambda group: (-group.rates[found[0].name], group.name))


def by_part_of_speech(found: Sequence[MaskRates], tags: Sequence[str | None]) -> list[Group]:
    """Return a group for each part of speech of words, the first task's highest first."""
    column = np.array([tag or "" for tag in tags])
    maskable = found[0].texts.maskable.numpy()
    groups = [
        _group(found, column == tag, str(tag), DESCRIPTIONS.get(str(tag), ""))
        for tag in np.unique(column[maskable])
        if tag
    ]
    return sorted(groups, key=lambda group: (-group.rates[found[0].name], group.name))


def _group(
    found: Sequence[MaskRates], members: np.ndarray, name: str, description: str = ""
) -> Group:
    members = members & found[0].texts.maskable.numpy()
    return Group(
        name,
        description,
        int(members.sum()),
        {one.name: float(one.rates.numpy()[members].mean()) for one in found},
        {one.name: float(_random(one)[members].mean()) for one in found},
    )


def _random(rates: MaskRates) -> np.ndarray:
    """Return each token's probability under random masking at the mean that its text has here."""
    texts = rates.texts
    owner = np.repeat(np.arange(len(texts)), texts.lengths.numpy())
    totals = np.bincount(owner, rates.rates.numpy(), minlength=len(texts))
    counts = np.bincount(owner, texts.maskable.numpy(), minlength=len(texts))
    return (totals / np.maximum(1, counts))[owner] * texts.maskable.numpy()


def _means(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    return np.bincount(place, values) / np.bincount(place)


#: Share of moved masks below which masking is called nearly random.
NEARLY_RANDOM = 0.05


@dataclass(frozen=True)
class Spread:
    """How unequally a task masks the tokens of a text."""

    mean: float  # mean mask probability of the maskable tokens
    percentile_5: float  # 5% of the maskable tokens have at most this probability
    median: float
    percentile_95: float  # 95% of them have at most this probability
    moved: float  # share of masks on other tokens than at random: sum |q - 1/n| / 2
    by_chance: float  # ``moved`` of random masks, counted over as many draws

    @property
    def nearly_random(self) -> bool:
        """Whether hardly any masks fall on other tokens than under random masking."""
        return self.moved - self.by_chance < NEARLY_RANDOM


@dataclass(frozen=True)
class Agreement:
    """How much the masks of two tasks agree."""

    first: str
    second: str
    overlap: float  # share of masks on the same tokens: sum min(q, q')
    # Spearman's rank correlation of the mask probabilities within a text, mean over the texts; None
    # where one of them masks all tokens of a text alike
    rank_correlation: float | None


def spread(rates: MaskRates, seed: int = 0) -> Spread:
    """Return how unequally a task masks the tokens of a text."""
    owner, values = _by_text(rates)
    shares = _shares(owner, values)
    by_chance = 0.0
    if rates.draws is not None:
        totals = np.bincount(owner, values)
        mean = (totals / np.maximum(1, np.bincount(owner)))[owner]
        random = np.random.default_rng(seed).binomial(rates.draws, np.clip(mean, 0, 1))
        by_chance = _moved(owner, _shares(owner, random / rates.draws))
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95]) if len(values) else (0.0, 0.0, 0.0)
    return Spread(
        mean=float(values.mean()) if len(values) else 0.0,
        percentile_5=float(low),
        median=float(middle),
        percentile_95=float(high),
        moved=_moved(owner, shares),
        by_chance=by_chance,
    )


def agreement(one: MaskRates, other: MaskRates) -> Agreement:
    """Return how much the masks of two tasks on the same texts agree."""
    owner, values = _by_text(one)
    _, others = _by_text(other)
    smaller = np.minimum(_shares(owner, values), _shares(owner, others))
    texts = np.bincount(owner) > 0
    overlap = np.bincount(owner, smaller)[texts].mean() if len(owner) else 0.0
    return Agreement(one.name, other.name, float(overlap), _rank_correlation(owner, values, others))


def _by_text(rates: MaskRates) -> tuple[np.ndarray, np.ndarray]:
    """Return the text and the rate of each maskable token."""
    texts = rates.texts
    owner = np.repeat(np.arange(len(texts)), texts.lengths.numpy())
    maskable = texts.maskable.numpy()
    return owner[maskable], rates.rates.numpy()[maskable]


def _shares(owner: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return each token's share of the masks of its text; equal shares in a text without masks."""
    totals, counts = np.bincount(owner, values), np.bincount(owner)
    equal = 1 / np.maximum(1, counts)
    return np.where(
        totals[owner] > 0, values / np.where(totals > 0, totals, 1)[owner], equal[owner]
    )


def _moved(owner: np.ndarray, shares: np.ndarray) -> float:
    if not len(owner):
        return 0.0
    counts = np.bincount(owner)
    distance = np.bincount(owner, np.abs(shares - (1 / np.maximum(1, counts))[owner])) / 2
    return float(distance[counts > 0].mean())


def _rank_correlation(owner: np.ndarray, one: np.ndarray, other: np.ndarray) -> float | None:
    import pandas as pd

    # Equal probabilities may differ by rounding, which ranks would take for an order.
    table = pd.DataFrame({"one": one.round(12), "other": other.round(12)}).groupby(owner)
    ranks = table.rank()
    centred = ranks - ranks.groupby(owner).transform("mean")
    products = (centred**2).assign(product=centred["one"] * centred["other"])
    sums = products.groupby(owner).sum()
    sums = sums[(sums["one"] > 0) & (sums["other"] > 0)]
    if not len(sums):
        return None
    return float((sums["product"] / (sums["one"] * sums["other"]) ** 0.5).mean())
