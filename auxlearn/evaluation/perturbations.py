"""Statistics of the perturbed texts that Mask-tuning trained on, by epoch.

The tables follow Mask-tuning (Ghanbarzadeh et al. 2023): texts with the changed words marked, as in
Table II, and those metrics of section V that need no human raters. There, two people rated whether
the substitutes are plausible; part-of-speech agreement is the nearest automatic measure.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.masking.perturbation import allowed_replacement_ids, choose_replacements
from auxlearn.results.perturbation_log import PerturbationRecord

#: Texts per forward pass.
BATCH_SIZE = 64

#: Returns the part of speech of each word of a text.
Tagger = Callable[[list[str]], list[str]]


@dataclass(frozen=True)
class Diversity:
    """How much perturbed texts differ from the originals.

    Attributes:
        texts: Number of perturbed texts.
        masked: Number of masked tokens.
        same: Share of the masked tokens that were predicted correctly.
        other: Share that was replaced by another token.
        unknown: Share that was replaced by the unknown token.
        changed_texts: Share of the texts in which at least one token changed.
        pos_agreement: Share of the changed tokens whose word has the same part of speech as
            before; ``None`` without a tagger, or if no token changed.
    """

    texts: int
    masked: int
    same: float
    other: float
    unknown: float
    changed_texts: float
    pos_agreement: float | None


def diversity(
    records: Sequence[PerturbationRecord], tokenizer: Any, tagger: Tagger | None = None
) -> Diversity:
    """Return statistics of perturbed texts.

    Args:
        records: The perturbed texts.
        tokenizer: The tokenizer of the run.
        tagger: Part-of-speech tagger.
    """
    same = other = unknown = changed = agree = compared = 0
    for record in records:
        different = _changed(record)
        for place, new in zip(record.positions, record.predicted, strict=True):
            same += new == record.input_ids[place]
            unknown += new == tokenizer.unk_token_id
        other += sum(new != tokenizer.unk_token_id for new in different.values())
        changed += bool(different)
        if tagger is not None and different:
            before, after = _words(record, tokenizer)
            old_tags, new_tags = tagger(before), tagger(after)
            for place in different:
                word = record.words[place]
                agree += old_tags[word] == new_tags[word]
                compared += 1
    masked = max(1, sum(len(record.positions) for record in records))
    return Diversity(
        texts=len(records),
        masked=sum(len(record.positions) for record in records),
        same=same / masked,
        other=other / masked,
        unknown=unknown / masked,
        changed_texts=changed / max(1, len(records)),
        pos_agreement=agree / compared if compared else None,
    )


def by_epoch(records: Sequence[PerturbationRecord]) -> dict[int, list[PerturbationRecord]]:
    """Return the records by epoch, sorted by example."""
    epochs: dict[int, list[PerturbationRecord]] = {}
    for record in sorted(records, key=lambda record: (record.epoch, record.example, record.step)):
        epochs.setdefault(record.epoch, []).append(record)
    return epochs


def predict_replacements(
    encoder: SharedEncoder, records: Sequence[PerturbationRecord]
) -> list[PerturbationRecord]:
    """Return the records with the tokens that an encoder predicts for the masks, without dropout.

    With the pretrained encoder, this is how masked language modelling alone would have perturbed
    the same texts.

    Args:
        encoder: Encoder with a language-modelling head.
        records: The perturbed texts.
    """
    allowed = allowed_replacement_ids(encoder.tokenizer)
    unused = torch.Generator()  # the most likely tokens are taken
    replaced = []
    with encoder.evaluating(), torch.inference_mode():
        for start in range(0, len(records), BATCH_SIZE):
            chunk = records[start : start + BATCH_SIZE]
            batch, chosen = _masked_batch(chunk, encoder)
            logits = encoder.predict_tokens(batch, chosen)
            predicted = choose_replacements(logits, allowed, None, unused).split(
                [len(record.positions) for record in chunk]
            )
            replaced += [
                replace(record, predicted=tokens.tolist())
                for record, tokens in zip(chunk, predicted, strict=True)
            ]
    return replaced


def marked(record: PerturbationRecord, tokenizer: Any) -> tuple[str, str]:
    """Return a text before and after its perturbation, with the masked tokens in brackets."""
    old = dict.fromkeys(record.positions)
    new = dict(zip(record.positions, record.predicted, strict=True))
    return (
        _decode(record, {place: record.input_ids[place] for place in old}, tokenizer),
        _decode(record, new, tokenizer),
    )


def find_tagger() -> tuple[Tagger, str] | None:
    """Return a part-of-speech tagger and its name, if spaCy or NLTK is installed with its model."""
    for find in (_spacy_tagger, _nltk_tagger):
        found = find()
        if found is not None:
            return found
    return None


def _spacy_tagger() -> tuple[Tagger, str] | None:
    try:
        spacy = importlib.import_module("spacy")
        pipeline = spacy.load("en_core_web_sm")
    except (ImportError, OSError):
        return None

    def tag(words: list[str]) -> list[str]:
        return [token.pos_ for token in pipeline(spacy.tokens.Doc(pipeline.vocab, words=words))]

    return tag, "spaCy en_core_web_sm"


def _nltk_tagger() -> tuple[Tagger, str] | None:
    try:
        nltk = importlib.import_module("nltk")
        nltk.pos_tag(["word"])
    except (ImportError, LookupError):
        return None

    def tag(words: list[str]) -> list[str]:
        # The first two letters are the class: NN and NNS are nouns, VBD and VBZ verbs.
        return [found[:2] for _, found in nltk.pos_tag(words)]

    return tag, "NLTK"


def _changed(record: PerturbationRecord) -> dict[int, int]:
    """Return the replacement tokens that differ from the original, by position."""
    return {
        place: new
        for place, new in zip(record.positions, record.predicted, strict=True)
        if new != record.input_ids[place]
    }


def _words(record: PerturbationRecord, tokenizer: Any) -> tuple[list[str], list[str]]:
    """Return the words of a text before and after its perturbation."""
    after = list(record.input_ids)
    for place, new in zip(record.positions, record.predicted, strict=True):
        after[place] = new
    count = max(record.words) + 1
    pieces: list[tuple[list[int], list[int]]] = [([], []) for _ in range(count)]
    for place, word in enumerate(record.words):
        if word >= 0:
            pieces[word][0].append(record.input_ids[place])
            pieces[word][1].append(after[place])
    # A tagger needs a word at every position, also where a tokenizer has dropped one.
    return (
        [tokenizer.decode(old).strip() or "_" for old, _ in pieces],
        [tokenizer.decode(new).strip() or "_" for _, new in pieces],
    )


def _decode(record: PerturbationRecord, at: dict[int, int], tokenizer: Any) -> str:
    """Return the text of a record with some tokens, by position, in brackets."""
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    parts: list[str] = []
    run: list[int] = []
    for place, token in enumerate(record.input_ids):
        if place in at:
            parts += [tokenizer.decode(run), f"[{tokenizer.decode([at[place]]).strip()}]"]
            run = []
        elif token not in special:
            run.append(token)
    parts.append(tokenizer.decode(run))
    return " ".join(part.strip() for part in parts if part.strip())


def _masked_batch(
    records: Sequence[PerturbationRecord], encoder: SharedEncoder
) -> tuple[Batch, Tensor]:
    """Return a batch of the original texts, masked as recorded, and the masked positions."""
    width = max(len(record.input_ids) for record in records)

    def padded(name: str, fill: int) -> Tensor:
        rows = [getattr(record, name) for record in records]
        return torch.tensor([row + [fill] * (width - len(row)) for row in rows])

    ids = padded("input_ids", encoder.tokenizer.pad_token_id)
    lengths = torch.tensor([len(record.input_ids) for record in records])
    chosen = torch.zeros(ids.shape, dtype=torch.bool)
    for number, record in enumerate(records):
        chosen[number, record.positions] = True
    has_types = records[0].token_type_ids is not None
    batch = Batch(
        input_ids=ids.masked_fill(chosen, encoder.tokenizer.mask_token_id),
        attention_mask=(torch.arange(width) < lengths[:, None]).long(),
        maskable=chosen,
        words=padded("words", -1),
        indices=torch.tensor([record.example for record in records]),
        token_type_ids=padded("token_type_ids", 0) if has_types else None,
    )
    return batch, chosen
