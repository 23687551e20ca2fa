"""The masks of a configuration before training: data, encoder and masking tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from pydantic import Field, SkipValidation

from auxlearn.core import rng
from auxlearn.core.arguments import Count, checked
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, shorten
from auxlearn.core.progress import Reporter
from auxlearn.data.batches import collate, unpad_token_values
from auxlearn.data.dataset import Split
from auxlearn.data.pos_tags import ADVICE, find_tagger, token_tags
from auxlearn.data.run_data import with_found_kind
from auxlearn.data.tokens import Tokenization, TokenizedTexts
from auxlearn.encoders.device import usual_torch
from auxlearn.mask_analysis.shown_text import ShownText
from auxlearn.mask_analysis.statistics import (
    Group,
    Spread,
    by_frequency,
    groups,
    ranked,
    spread,
    token_table,
)
from auxlearn.results.tables import to_csv
from auxlearn.tasks.base import MaskedLanguageModelling
from auxlearn.training.plugin_checks import calling
from auxlearn.training.setup import Materials, build_weighting, prepare_task

if TYPE_CHECKING:
    from rich.text import Text

#: Texts of a batch.
BATCH_TEXTS = 256

#: Characters of a token that are shown.
LONGEST = 24


@dataclass(frozen=True)
class MaskReport:
    """What masking tasks mask."""

    dataset: str
    fingerprint: str  # of the data set
    encoder: str
    examples: int  # number of texts that were inspected: of train, or of the corpus of a task
    tokens: int  # number of their maskable tokens
    spreads: dict[str, Spread]  # how far each task is from random masking
    tagger: str | None  # name of the part-of-speech tagger; None without one
    parts_of_speech: list[Group]  # groups by part of speech; empty without a tagger
    frequencies: list[Group]  # groups by frequency
    token_groups: list[Group]  # one group for each token of the vocabulary
    texts: list[ShownText]
    notes: list[str]  # what was left out, and why

    def sentences(self) -> list[str]:
        """Return what the numbers say of each task, one sentence each."""
        return [_sentence(task, measured) for task, measured in self.spreads.items()]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON has it, with the sentences, and without single tokens."""
        content = asdict(self)
        del content["token_groups"]
        return content | {"sentences": self.sentences()}

    def groups_csv(self) -> str:
        """Return every group and every token of the vocabulary, a line for each task."""
        import pandas

        kinds = {
            "part of speech": self.parts_of_speech,
            "frequency": self.frequencies,
            "token": self.token_groups,
        }
        rows = [
            (kind, group.name, group.tokens, task, rate, group.random[task])
            for kind, members in kinds.items()
            for group in members
            for task, rate in group.rates.items()
        ]
        heads = ["grouped_by", "group", "tokens", "task", "probability", "random"]
        return to_csv(pandas.DataFrame(rows, columns=heads))

    def shown_texts(self, coloured: bool) -> Iterator[Text]:
        """Yield the texts by task: red or blue by how often a token is masked, or in percent."""
        from rich.text import Text

        for text in self.texts:
            for task, rates in text.rates.items():
                line = Text(f"{text.example} {task}: ")
                for token, rate, times in zip(text.tokens, rates, text.times(task), strict=True):
                    shown = shorten(token, LONGEST)
                    if not coloured:
                        line.append(f"{shown}({100 * rate:.0f}) ")
                        continue
                    light = 247 - round(200 * min(1.0, abs(times - 1)))
                    ground = f"{light},{light},247" if times < 1 else f"247,{light},{light}"
                    ink = "white" if light < 130 else "black"
                    line.append(shown, style=f"{ink} on rgb({ground})").append(" ")
                yield line


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
    split = parts.data.train
    rows = list(range(len(split)))
    if examples is not None and examples < len(split):
        generator = rng.generator(config.seed, "inspected examples")
        rows = sorted(torch.randperm(len(split), generator=generator)[:examples].tolist())
        split = split.select(rows)
    tokenizer = parts.encoder.tokenizer
    notes: list[str] = []
    tasks = _masking_tasks(parts, split, notes)
    first = next(iter(tasks))
    tokens = tasks[first].texts
    if tasks[first].options.corpus is not None:
        rows = list(range(len(tokens)))
        notes.append(f"the texts are all those of the corpus of {first}, none of the data set")
    rates = {name: _mask_rates(task, name) for name, task in tasks.items()}
    apart = [
        name
        for name, task in tasks.items()
        if not torch.equal(task.texts.input_ids, tokens.input_ids)
        or not torch.equal(task.texts.offsets, tokens.offsets)
    ]
    notes += [
        f"{name} draws from other texts than {first}: it has no part in the tables"
        for name in apart
    ]
    tables = {name: token_table(tasks[name].texts, {name: rates[name]}) for name in apart}
    together = {name: values for name, values in rates.items() if name not in apart}
    table, names = token_table(tokens, together), list(together)
    tagger, tags = _tags(first, tokens, tokenizer, split, config, notes)
    by_tag = []
    if tags is not None:
        by_tag = groups(table, names, np.array(tags, dtype=object)[table["place"]])
    by_token = groups(
        table, names, table["id"], lambda token: str(tokenizer.convert_ids_to_tokens(int(token)))
    )
    return MaskReport(
        dataset=parts.data.dataset.name,
        fingerprint=parts.data.dataset.fingerprint,
        encoder=config.encoder,
        examples=len(rows),
        tokens=len(table),
        spreads={name: spread(tables.get(name, table), name) for name in tasks},
        tagger=tagger,
        parts_of_speech=ranked(by_tag, first),
        frequencies=by_frequency(table, names),
        token_groups=ranked(by_token, first),
        texts=_shown(tokens, together, tokenizer, rows, texts),
        notes=notes,
    )


def _masking_tasks(
    parts: Materials, split: Split, notes: list[str]
) -> dict[str, MaskedLanguageModelling]:
    """Return the prepared tasks that define mask probabilities; the others get a note."""
    config = parts.config
    texts = parts.perturbed(parts.tokenize(split))
    tasks = {
        name: prepare_task(choice, parts.context(name, split, texts))
        for name, choice in zip(config.objective_names()[1:], config.aux, strict=True)
    }
    masking = {n: task for n, task in tasks.items() if isinstance(task, MaskedLanguageModelling)}
    others = [name for name in tasks if name not in masking]
    if not masking:
        raise ConfigError(
            f"{', '.join(others)}: no mask probabilities: choose a task that has them, such as "
            "l3mask or random_mlm, with --aux"
        )
    notes += [f"{name} is left out: it has no mask probabilities" for name in others]
    return masking


def _mask_rates(task: MaskedLanguageModelling, name: str) -> np.ndarray:
    """Return the mask probability of each token of the texts of a task, ``(tokens,)``."""
    rates = torch.zeros(len(task.texts.input_ids), dtype=torch.float64)
    for indices in torch.arange(len(task.texts)).split(BATCH_TEXTS):
        with calling(task, "mask_probabilities", name):
            probabilities = task.checked_probabilities(collate(task.texts, indices))
        unpad_token_values(task.texts, probabilities.double().cpu(), indices, rates)
    return rates.numpy()


def _tags(
    task: str,
    texts: TokenizedTexts,
    tokenizer: Any,
    split: Split,
    config: RunConfig,
    notes: list[str],
) -> tuple[str | None, list[str | None] | None]:
    """Return the name of the tagger and the part of speech of each token, if there are any."""
    if (tagger := find_tagger()) is None:
        notes.append(f"no parts of speech: there is no tagger; {ADVICE}")
        return None, None
    tokenization = Tokenization(tokenizer, config.max_length, config.windowing)
    pieces = list(token_tags(split, texts, tokenization, tagger[0]))
    if None in pieces:
        notes.append(f"no parts of speech: the texts of {task} are not those of the data set")
        return None, None
    return tagger[1], [tag for tags in pieces for tag in tags or ()]


def _shown(
    texts: TokenizedTexts,
    rates: dict[str, np.ndarray],
    tokenizer: Any,
    rows: list[int],
    count: int,
) -> list[ShownText]:
    shown = []
    ids, words = texts.input_ids.numpy(), texts.words.numpy()
    for number in range(min(count, len(texts))):
        places = np.arange(int(texts.offsets[number]), int(texts.offsets[number + 1]))
        places = places[words[places] >= 0]
        names = [tokenizer.decode([token]).strip() or "_" for token in ids[places].tolist()]
        by_task = {task: values[places].tolist() for task, values in rates.items()}
        maskable = max(1, int(texts.maskable.numpy()[places].sum()))
        random = {task: sum(values) / maskable for task, values in by_task.items()}
        shown.append(ShownText(rows[number % len(rows)], names, by_task, random))
    return shown


def _sentence(task: str, measured: Spread) -> str:
    if not measured.mean:
        return f"{task} masks nothing: the encoder knows no token of these texts"
    mean = f"mean probability {measured.mean:.3f}"
    if measured.moved < 1e-9:
        return f"{task} masks all tokens of a text with one probability, as random masking ({mean})"
    nearly = " is nearly random masking on these texts: it" if measured.nearly_random else ""
    return (
        f"{task}{nearly} puts {measured.moved:.1%} of its masks on other tokens than random "
        f"masking would ({mean}, 90% of the tokens between {measured.percentile_5:.3f} and "
        f"{measured.percentile_95:.3f})"
    )
