"""How often tasks mask each token, by kind of token, and how far they are from random masking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.data.tokens import TokenizedTexts

if TYPE_CHECKING:
    from pandas import DataFrame

#: Tokens that a group needs to be ranked; L3Masking removes rarer tags from its tables.
FEWEST = 10

#: Share of moved masks below which masking is called nearly random.
NEARLY_RANDOM = 0.05


def token_table(texts: TokenizedTexts, rates: Mapping[str, np.ndarray]) -> DataFrame:
    """Return the tokens that may be masked, one row each: ``id``, ``text``, and ``place`` among all
    tokens; ``rate TASK``, the probability of each task to mask it; and ``random TASK``, that of
    random masking at the same mean in the text.
    """
    import pandas

    owner = np.repeat(np.arange(len(texts)), texts.lengths.numpy())
    place = np.flatnonzero(texts.maskable.numpy())
    table = pandas.DataFrame(
        {"id": texts.input_ids.numpy()[place], "text": owner[place], "place": place}
    )
    for task, values in rates.items():
        table[f"rate {task}"] = values[place]
        table[f"random {task}"] = table.groupby("text")[f"rate {task}"].transform("mean")
    return table


@dataclass(frozen=True)
class Group:
    """Tokens that have something in common."""

    name: str  # part of speech, range of frequencies, or token
    tokens: int  # number of maskable tokens in the group
    rates: dict[str, float]  # mean probability to be masked, by task
    random: dict[str, float]  # the same by random masking at the same mean in each text


def groups(
    table: DataFrame, tasks: Sequence[str], keys: Any, name: Callable[[Any], str] = str
) -> list[Group]:
    """Return groups of tokens by their keys, ascending; tokens without a key are left out."""
    by_key = table.groupby(np.asarray(keys))
    sizes = by_key.size().to_dict()
    means = by_key.mean(numeric_only=True).to_dict("index")
    return [
        Group(
            name(key),
            sizes[key],
            {task: mean[f"rate {task}"] for task in tasks},
            {task: mean[f"random {task}"] for task in tasks},
        )
        for key, mean in means.items()
    ]


def ranked(members: Sequence[Group], task: str) -> list[Group]:
    """Return groups with what a task masks most often first."""
    return sorted(members, key=lambda group: (-group.rates[task], group.name))


def by_frequency(table: DataFrame, tasks: Sequence[str]) -> list[Group]:
    """Return groups of tokens by how often they occur in the texts, in powers of ten."""
    counts = table.groupby("id")["place"].transform("size")
    powers = np.floor(np.log10(counts)).astype(int)
    return groups(
        table, tasks, powers, lambda power: f"{10**power:,} to {10 ** (power + 1) - 1:,} times"
    )


@dataclass(frozen=True)
class Spread:
    """How unequally a task masks the tokens of a text."""

    mean: float  # mean mask probability of the maskable tokens
    percentile_5: float  # 5% of the maskable tokens have at most this probability
    median: float
    percentile_95: float  # 95% of them have at most this probability
    moved: float  # share of masks on other tokens than at random: sum |q - 1/n| / 2

    @property
    def nearly_random(self) -> bool:
        """Whether hardly any masks fall on other tokens than under random masking."""
        return self.moved < NEARLY_RANDOM


def spread(table: DataFrame, task: str) -> Spread:
    """Return how unequally a task masks the tokens of a text."""
    if table.empty:
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0)
    values = table[f"rate {task}"]
    by_text = values.groupby(table["text"])
    equal = 1 / by_text.transform("size")
    # In a text without masks, shares are equal.
    shares = (values / by_text.transform("sum")).fillna(equal)
    distance = (shares - equal).abs().groupby(table["text"]).sum() / 2
    low, middle, high = map(float, np.quantile(values, [0.05, 0.5, 0.95]))
    return Spread(float(values.mean()), low, middle, high, float(distance.mean()))
