"""The masks of a configuration before training: data, encoder and masking tasks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Annotated, Any

import torch
from pydantic import Field, SkipValidation

from auxlearn.core import rng
from auxlearn.core.arguments import Count, checked
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError
from auxlearn.core.progress import Reporter
from auxlearn.data.dataset import Split
from auxlearn.data.pos_tags import ADVICE, find_tagger, token_tags
from auxlearn.data.run_data import with_found_kind
from auxlearn.data.tokens import Tokenization
from auxlearn.encoders.device import usual_torch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.mask_analysis.shown_text import ShownText
from auxlearn.mask_analysis.statistics import (
    Agreement,
    Group,
    MaskRates,
    Spread,
    agreement,
    by_frequency,
    by_part_of_speech,
    by_token,
    mask_rates,
    spread,
)
from auxlearn.results.tables import csv_text
from auxlearn.training.setup import Materials, build_weighting, prepare_task


@dataclass(frozen=True)
class MaskReport:
    """What masking tasks mask."""

    dataset: str
    encoder: str
    examples: int  # number of training texts that were inspected
    tokens: int  # number of their maskable tokens
    draws: dict[str, int | None]  # that masks were counted over; None for exact probabilities
    spreads: dict[str, Spread]  # how far each task is from random masking
    agreements: list[Agreement]  # how much every two tasks on the same texts agree
    tagger: str | None  # name of the part-of-speech tagger; None without one
    parts_of_speech: list[Group]  # groups by part of speech; empty without a tagger
    frequencies: list[Group]  # groups by frequency
    token_groups: list[Group]  # one group for each token of the vocabulary
    texts: list[ShownText]
    notes: list[str]  # what was left out, and why

    def sentences(self) -> list[str]:
        """Return what the numbers say of each task, one sentence each."""
        return [_sentence(name, found, self.draws[name]) for name, found in self.spreads.items()]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON has it, with the sentences, and without single tokens."""
        content = asdict(self)
        del content["token_groups"]
        return content | {"sentences": self.sentences()}

    def groups_csv(self) -> str:
        heads = ["grouped_by", "group", "description", "tokens", "task", "probability", "random"]
        kinds = {
            "part of speech": self.parts_of_speech,
            "frequency": self.frequencies,
            "token": self.token_groups,
        }
        lines = (
            [kind, one.name, one.description, one.tokens, task, rate, one.random[task]]
            for kind, groups in kinds.items()
            for one in groups
            for task, rate in one.rates.items()
        )
        return csv_text([heads, *lines])


@checked
@usual_torch()
def inspect_masks(
    config: Annotated[RunConfig, SkipValidation],
    *,
    examples: Count | None = None,
    texts: Annotated[int, Field(ge=0)] = 8,
    reporter: Reporter,
) -> MaskReport:
    """Return what the tasks of a configuration mask in its training texts."""
    config = with_found_kind(config, None)
    if not config.aux:
        raise ConfigError("no auxiliary task is given: choose one with --aux, such as --aux l3mask")
    validation = build_weighting(config).validation_source
    parts = Materials.read(config, reporter, validation)
    split, rows = _sample(parts.data.train, examples, config.seed)
    encoder = parts.encoder
    notes: list[str] = []
    found = _rates(parts, split, notes)
    main = [one for one in found if _same_texts(one, found[0])]
    notes += [
        f"{one.name} draws from other texts than {found[0].name}: it has no part in the tables"
        for one in found
        if one not in main
    ]
    tagger, tags = _tags(main[0], encoder, split, config, notes)
    return MaskReport(
        dataset=parts.data.dataset.name,
        encoder=config.encoder,
        examples=len(split),
        tokens=int(main[0].texts.maskable.sum()),
        draws={one.name: one.draws for one in found},
        spreads={one.name: spread(one, config.seed) for one in found},
        agreements=[agreement(one, other) for one, other in combinations(main, 2)],
        tagger=tagger,
        parts_of_speech=by_part_of_speech(main, tags) if tags else [],
        frequencies=by_frequency(main),
        token_groups=by_token(main, encoder.tokenizer),
        texts=_shown(main, encoder.tokenizer, rows, texts),
        notes=notes,
    )


def _sample(train: Split, examples: int | None, seed: int) -> tuple[Split, list[int]]:
    """Return some of the training examples in their order, and their numbers."""
    if examples is None or examples >= len(train):
        return train, list(range(len(train)))
    generator = rng.generator(seed, "inspected examples")
    rows = sorted(torch.randperm(len(train), generator=generator)[:examples].tolist())
    return train.select(rows), rows


def _rates(parts: Materials, split: Split, notes: list[str]) -> list[MaskRates]:
    """Return the mask rates of every task that masks tokens; the others get a note."""
    config, progress = parts.config, parts.reporter.progress
    texts = parts.perturbed(parts.tokenize(split))
    found, others = [], []
    for name, choice in zip(config.objective_names()[1:], config.aux, strict=True):
        task = prepare_task(choice, parts.context(name, split, texts))
        rates = mask_rates(task, name, parts.encoder, config.seed, progress)
        if rates is None:
            others.append(name)
        else:
            found.append(rates)
    if not found:
        raise ConfigError(
            f"{', '.join(others)} masks no tokens: choose a task that does, such as l3mask, "
            "random_mlm or mask_tuning, with --aux"
        )
    notes += [f"{name} masks no tokens, so it is left out" for name in others]
    return found


def _same_texts(one: MaskRates, other: MaskRates) -> bool:
    return torch.equal(one.texts.input_ids, other.texts.input_ids) and torch.equal(
        one.texts.offsets, other.texts.offsets
    )


def _tags(
    rates: MaskRates, encoder: SharedEncoder, split: Split, config: RunConfig, notes: list[str]
) -> tuple[str | None, list[str | None] | None]:
    """Return the name of the tagger and the part of speech of each token, if there are any."""
    found = find_tagger()
    if found is None:
        notes.append(f"no parts of speech: there is no tagger; {ADVICE}")
        return None, None
    tagger, name = found
    tokenization = Tokenization(encoder.tokenizer, config.max_length, config.windowing)
    tags = token_tags(split, rates.texts, tokenization, tagger)
    if tags is None:
        notes.append(f"no parts of speech: the texts of {rates.name} are not those of the data set")
        return None, None
    return name, tags


def _shown(found: list[MaskRates], tokenizer: Any, rows: list[int], count: int) -> list[ShownText]:
    texts = found[0].texts
    shown = []
    for number in range(min(count, len(texts))):
        places = torch.arange(int(texts.offsets[number]), int(texts.offsets[number + 1]))
        places = places[texts.words[places] >= 0]
        ids = texts.input_ids[places].tolist()
        names = [tokenizer.decode([token]).strip() or "_" for token in ids]
        rates = {one.name: one.rates[places].tolist() for one in found}
        maskable = max(1, int(texts.maskable[places].sum()))
        random = {name: sum(values) / maskable for name, values in rates.items()}
        shown.append(ShownText(rows[number % len(rows)], names, rates, random))
    return shown


def _sentence(name: str, found: Spread, draws: int | None) -> str:
    if not found.mean:
        return f"{name} masks nothing: the encoder knows no token of these texts"
    mean = f"mean probability {found.mean:.3f}"
    if draws is None and found.moved < 1e-9:
        return f"{name} masks all tokens of a text with one probability, as random masking ({mean})"
    between = (
        f"{mean}, 90% of the tokens between {found.percentile_5:.3f} and {found.percentile_95:.3f}"
    )
    if draws is None:
        nearly = " is nearly random masking on these texts: it" if found.nearly_random else ""
        return (
            f"{name}{nearly} puts {found.moved:.1%} of its masks on other tokens than random "
            f"masking would ({between})"
        )
    verb = "cannot be told from random masking" if found.nearly_random else "is not random masking"
    return (
        f"{name} {verb}: over {draws} draws, {found.moved:.1%} of its masks are on other tokens "
        f"than if all were masked alike, where chance alone gives {found.by_chance:.1%} ({mean})"
    )
