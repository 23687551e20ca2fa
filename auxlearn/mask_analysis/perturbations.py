"""The perturbed texts that Mask-tuning trained on: statistics by epoch, examples, a page.

The tables follow Mask-tuning (Ghanbarzadeh et al. 2023): masked and substituted tokens of a text
by epoch, as in Table II, and what became of tokens and of whole examples, as in section V. There,
two people rated whether the substitutes are plausible; part-of-speech agreement is the nearest
automatic measure.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.arguments import UserPath, checked
from auxlearn.core.errors import EncoderError, shorten
from auxlearn.core.files import expand, write_json, write_text
from auxlearn.data.batches import Batch
from auxlearn.data.pos_tags import ADVICE, Tagger, find_tagger
from auxlearn.encoders.device import usual_torch
from auxlearn.encoders.load import load_classifier
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.encoders.tokenizer import load_tokenizer
from auxlearn.kinds.choose import kind_of, require
from auxlearn.objectives.masking import ordinary_ids
from auxlearn.objectives.perturbation import choose_replacements
from auxlearn.results.folder import RunFolder, finished_folder
from auxlearn.results.outputs import check_output_folder
from auxlearn.results.perturbation_log import PerturbationRecord, read_perturbations
from auxlearn.results.record import RunResults
from auxlearn.results.tables import csv_text
from auxlearn.training.setup import load_initial_encoder

if TYPE_CHECKING:
    import pandas


#: Texts per forward pass.
BATCH_SIZE = 64


@dataclass(frozen=True)
class Diversity:
    """How much perturbed texts differ from the originals."""

    texts: int
    masked: int
    same: float  # share of the masked tokens that were predicted correctly
    other: float  # share that was replaced by another token
    unknown: float  # share that was replaced by the unknown token
    changed_texts: float  # share of the texts in which at least one token changed
    # share of the changed tokens whose word has the same part of speech as before (the first two
    # letters of its tag: all nouns are one class, all verbs another); None without a tagger, or if
    # no token changed
    pos_agreement: float | None


def diversity(
    records: Sequence[PerturbationRecord], tokenizer: Any, tagger: Tagger | None = None
) -> Diversity:
    changes = [_changed(record) for record in records]
    unknown = sum(record.predicted.count(tokenizer.unk_token_id) for record in records)
    known = [new for one in changes for new in one.values() if new != tokenizer.unk_token_id]
    masked = sum(len(record.positions) for record in records)
    kept = []
    if tagger is not None:
        kept = [agrees for record in records for agrees in _tags_kept(record, tokenizer, tagger)]
    return Diversity(
        texts=len(records),
        masked=masked,
        same=(masked - sum(map(len, changes))) / max(1, masked),
        other=len(known) / max(1, masked),
        unknown=unknown / max(1, masked),
        changed_texts=sum(map(bool, changes)) / max(1, len(records)),
        pos_agreement=sum(kept) / len(kept) if kept else None,
    )


@dataclass(frozen=True)
class Outcomes:
    """What became of whole examples over all epochs, as section V of the paper counts them; the
    four shares sum to 1.
    """

    examples: int
    same: float  # share in which every masked token was predicted correctly in all epochs
    # share with other tokens in at least one epoch in which all changed words kept their part of
    # speech; it stands in for the paper's two annotators; None without a tagger
    plausible: float | None
    other: float  # share of the rest with other tokens in some epoch
    unknown: float  # share in which the unknown token alone was substituted


def outcomes(
    records: Sequence[PerturbationRecord], tokenizer: Any, tagger: Tagger | None = None
) -> Outcomes:
    """Return what became of each example over all epochs."""
    by_example: dict[int, list[PerturbationRecord]] = defaultdict(list)
    for record in records:
        by_example[record.example].append(record)
    counts = dict.fromkeys(("same", "plausible", "other", "unknown"), 0)
    for own in by_example.values():
        changed = [record for record in own if _changed(record)]
        known = [one for one in changed if {*_changed(one).values()} - {tokenizer.unk_token_id}]
        if not changed:
            counts["same"] += 1
        elif not known:
            counts["unknown"] += 1
        elif tagger is not None and any(all(_tags_kept(one, tokenizer, tagger)) for one in known):
            counts["plausible"] += 1
        else:
            counts["other"] += 1
    total = max(1, len(by_example))
    return Outcomes(
        examples=len(by_example),
        same=counts["same"] / total,
        plausible=None if tagger is None else counts["plausible"] / total,
        other=counts["other"] / total,
        unknown=counts["unknown"] / total,
    )


def substitutions(record: PerturbationRecord, tokenizer: Any) -> list[tuple[str, str]]:
    """Return each masked token of a text with what was substituted, as in Table II."""
    return [
        (tokenizer.decode([record.input_ids[place]]).strip(), tokenizer.decode([new]).strip())
        for place, new in zip(record.positions, record.predicted, strict=True)
    ]


def _tags_kept(record: PerturbationRecord, tokenizer: Any, tagger: Tagger) -> list[bool]:
    """Return for each changed token of a text whether its word has kept its part of speech."""
    words = [record.words[place] for place in _changed(record)]
    if not words:
        return []
    old, new = map(tagger, _words(record, tokenizer))
    return [old[word][:2] == new[word][:2] for word in words]


def by_epoch(records: Sequence[PerturbationRecord]) -> dict[int, list[PerturbationRecord]]:
    """Return the records by epoch, sorted by example."""
    epochs: dict[int, list[PerturbationRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: (record.epoch, record.example, record.step)):
        epochs[record.epoch].append(record)
    return epochs


def predict_replacements(
    encoder: SharedEncoder, records: Sequence[PerturbationRecord]
) -> list[PerturbationRecord]:
    """Return the records with the tokens that an encoder predicts for the masks."""
    allowed = ordinary_ids(encoder.tokenizer, unknown=True)
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
    old = {place: record.input_ids[place] for place in record.positions}
    new = dict(zip(record.positions, record.predicted, strict=True))
    return _decode(record, old, tokenizer), _decode(record, new, tokenizer)


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

    def words(ids: list[int]) -> list[str]:
        pieces: list[list[int]] = [[] for _ in range(max(record.words) + 1)]
        for token, word in zip(ids, record.words, strict=True):
            if word >= 0:
                pieces[word].append(token)
        # A tagger needs a word at every position, also where a tokenizer has dropped one.
        return [tokenizer.decode(piece).strip() or "_" for piece in pieces]

    return words(record.input_ids), words(after)


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


@checked
@usual_torch()
def perturbations(
    run: UserPath, *, texts: Annotated[int, Field(ge=0)] = 5, output: UserPath | None = None
) -> PerturbationReport:
    """Return the tokens that Mask-tuning substituted in the training texts of a finished run.

    Statistics are given beside those of the pretrained encoder for the same masked tokens, if it
    has a masked-language-model head.

    Args:
        run: The run folder, or the results that :func:`auxlearn.train` returned.
        texts: Number of texts to show.
        output: Folder for statistics and texts as JSON, and all substituted tokens as CSV.

    Raises:
        UserError: The run is not finished or has recorded no perturbed texts, or the folder cannot
            be written.

    Examples:
        ``auxlearn.perturbations("runs/mask_tuning").to_frame()``
    """
    target = None if output is None else expand(output)
    if target is not None:
        check_output_folder(target)
    folder = RunFolder(finished_folder(run))
    config = folder.read_config()
    require(kind_of(config.kind), "perturbations")
    records = read_perturbations(folder.path)
    kept = folder.model_path.is_dir()
    tokenizer = (
        load_classifier(folder.model_path)[1]
        if kept
        else load_tokenizer(config.initial_encoder, config.do_lower_case)
    )
    tagger = find_tagger()
    notes = [
        f"parts of speech by {tagger[1]}"
        if tagger
        else f"no part-of-speech agreement: there is no tagger; {ADVICE}"
    ]
    try:
        labels = RunResults.load(folder.path).dataset.label_names
        plain = predict_replacements(load_initial_encoder(config, labels), records)
    except EncoderError as error:
        plain = []
        notes.append(f"no statistics of the pretrained encoder: {error}")
    tag = tagger[0] if tagger else None
    found = {"this run": records, **({"pretrained": plain} if plain else {})}
    epochs = {encoder: by_epoch(own) for encoder, own in found.items()}
    report = PerturbationReport(
        folder=folder.path,
        statistics=tuple(
            (epoch, encoder, diversity(epochs[encoder][epoch], tokenizer, tag))
            for epoch in epochs["this run"]
            for encoder in found
        ),
        examples={encoder: outcomes(own, tokenizer, tag) for encoder, own in found.items()},
        texts=tuple(_text(one, tokenizer) for one in _choose(records, texts)),
        notes=tuple(notes),
        substitutions=_csv(records, tokenizer),
    )
    if target is not None:
        report.save(target)
    return report


@dataclass(frozen=True, repr=False)
class PerturbationReport:
    """Statistics of the perturbed texts of a run, and some of the texts.

    Attributes:
        folder: The run folder.
        statistics: Epoch, encoder ("this run" or "pretrained") and what became of tokens.
        examples: What became of whole examples over all epochs, by encoder.
        texts: Some texts as they were perturbed in each epoch: ``example``, ``epoch``, ``text``,
            ``original`` and ``perturbed`` with the tokens in brackets, and ``substitutions``.
        notes: What could not be computed, and which tagger was used.
        substitutions: One line of CSV for each masked token.
    """

    folder: Path
    statistics: tuple[tuple[int, str, Diversity], ...]
    examples: dict[str, Outcomes]
    texts: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    substitutions: str

    def __repr__(self) -> str:
        own = [one for _, encoder, one in self.statistics if encoder == "this run"]
        masked = sum(one.masked for one in own)
        other = sum(one.other * one.masked for one in own) / max(1, masked)
        return (
            f"<PerturbationReport of {shorten(str(self.folder), 200)}: {len(own)} epochs, "
            f"{masked:,} masked tokens, {other:.1%} of them replaced by another token>"
        )

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.to_frame().to_html()}"

    def to_frame(self) -> pandas.DataFrame:
        """Return the statistics of tokens, one row for each epoch and encoder.

        The columns after ``epoch`` and ``encoder`` are the attributes of
        :class:`~auxlearn.mask_analysis.perturbations.Diversity`; shares are from 0 to 1.
        """
        import pandas

        return pandas.DataFrame(self.to_dict()["statistics"])

    def to_dict(self) -> dict[str, Any]:
        """Return what ``perturbations.json`` holds."""
        return {
            "statistics": [
                {"epoch": epoch, "encoder": encoder, **asdict(one)}
                for epoch, encoder, one in self.statistics
            ],
            "examples": [
                {"encoder": encoder, **asdict(one)} for encoder, one in self.examples.items()
            ],
            "texts": list(self.texts),
            "notes": list(self.notes),
        }

    def save(self, folder: str | Path) -> None:
        """Write ``perturbations.json`` and ``substitutions.csv``."""
        folder = expand(folder)
        check_output_folder(folder)
        write_json(folder / "perturbations.json", self.to_dict())
        write_text(folder / "substitutions.csv", self.substitutions)


def _choose(records: list[PerturbationRecord], texts: int) -> list[PerturbationRecord]:
    """Return every perturbation of the first texts of the sample."""
    rows = sorted({record.example for record in records})[:texts]
    chosen = [record for record in records if record.example in rows]
    return sorted(chosen, key=lambda record: (record.example, record.step))


def _text(record: PerturbationRecord, tokenizer: Any) -> dict[str, Any]:
    """Return a perturbed text with what was substituted."""
    before, after = marked(record, tokenizer)
    return {
        "example": record.example,
        "epoch": record.epoch,
        "text": tokenizer.decode(record.input_ids, skip_special_tokens=True),
        "original": before,
        "perturbed": after,
        "substitutions": substitutions(record, tokenizer),
    }


def _csv(records: list[PerturbationRecord], tokenizer: Any) -> str:
    heads = ["example", "epoch", "step", "task", "position", "masked", "substituted"]
    lines = (
        [one.example, one.epoch, one.step, one.task, position, *pair]
        for one in sorted(records, key=lambda record: (record.example, record.step))
        for position, pair in zip(one.positions, substitutions(one, tokenizer), strict=True)
    )
    return csv_text([heads, *lines])
