"""The perturbed texts that Mask-tuning trained on: statistics by epoch, and examples.

The tables follow Mask-tuning (Ghanbarzadeh et al. 2023): masked and substituted tokens of a text
by epoch, as in Table II, and what became of tokens and of whole examples, as in section V. There,
two people rated whether the substitutes are plausible; part-of-speech agreement is the nearest
automatic measure.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.arguments import UserPath, checked
from auxlearn.core.errors import EncoderError, shorten
from auxlearn.core.files import expand, write_json, write_text
from auxlearn.data.batches import Batch, collate
from auxlearn.data.pos_tags import ADVICE, Tagger, find_tagger
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import usual_torch
from auxlearn.encoders.load import load_classifier
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.encoders.tokenizer import load_tokenizer
from auxlearn.kinds.base import kind_of
from auxlearn.objectives.masking import ordinary_ids
from auxlearn.objectives.perturbation import choose_replacements
from auxlearn.results.folder import RunFolder, finished_folder
from auxlearn.results.outputs import check_output_folder
from auxlearn.results.perturbation_log import PerturbationRecord, read_perturbations
from auxlearn.results.record import RunResults
from auxlearn.results.tables import to_csv
from auxlearn.training.setup import load_initial_encoder

if TYPE_CHECKING:
    from pandas import DataFrame


#: Texts per forward pass.
BATCH_SIZE = 64

#: Columns of the substituted tokens in ``substitutions.csv``.
SUBSTITUTION = ["example", "epoch", "step", "task", "position", "masked", "substituted"]


def token_table(
    records: Sequence[PerturbationRecord], tokenizer: Any, tagger: Tagger | None = None
) -> DataFrame:
    """Return the masked tokens, one row each; ``kept_pos``: the tag of the word is alike."""
    import pandas

    rows = []
    for number, record in enumerate(records):
        pairs = list(zip(record.positions, record.predicted, strict=True))
        old: list[str] = []
        new: list[str] = []
        if tagger is not None and any(record.input_ids[place] != token for place, token in pairs):
            old, new = map(tagger, _words(record, tokenizer))
        for position, token in pairs:
            before, word = record.input_ids[position], record.words[position]
            rows.append(
                (
                    number,
                    record.example,
                    record.epoch,
                    record.step,
                    record.task,
                    position,
                    tokenizer.decode([before]).strip(),
                    tokenizer.decode([token]).strip(),
                    token == before,
                    token == tokenizer.unk_token_id,
                    old[word][:2] == new[word][:2] if old and token != before else None,
                )
            )
    return pandas.DataFrame(rows, columns=["record", *SUBSTITUTION, "same", "unknown", "kept_pos"])


def token_statistics(records: Sequence[PerturbationRecord], tokens: DataFrame) -> dict[str, Any]:
    """Return what became of the masked tokens of some records: how many ``texts`` and ``masked``
    tokens, and shares: of tokens predicted as they were (``same``), replaced by another (``other``)
    and by the unknown one (``unknown``); of ``changed_texts``; and of changed tokens whose word has
    kept its part of speech (``pos_agreement``; ``None`` without a tagger or a change).
    """
    changed = tokens[~tokens["same"].astype(bool)]
    masked = max(1, len(tokens))
    kept = changed["kept_pos"].dropna()
    return {
        "texts": len(records),
        "masked": len(tokens),
        "same": (len(tokens) - len(changed)) / masked,
        "other": int((~changed["unknown"].astype(bool)).sum()) / masked,
        "unknown": int(tokens["unknown"].sum()) / masked,
        "changed_texts": changed["record"].nunique() / max(1, len(records)),
        "pos_agreement": float(kept.astype(float).mean()) if len(kept) else None,
    }


def example_statistics(
    records: Sequence[PerturbationRecord], tokens: DataFrame, tagged: bool
) -> dict[str, Any]:
    """Return what became of whole examples over all epochs, as section V of the paper counts them:
    the shares, which sum to 1, in which every masked token was predicted as it was in all epochs
    (``same``), another was substituted in some epoch (``other``), or the unknown one alone
    (``unknown``). ``plausible`` is taken out of ``other``: in at least one epoch with other tokens,
    all changed words kept their part of speech; it stands in for the paper's two annotators and is
    ``None`` without a tagger.
    """
    examples = {record.example for record in records}
    changed = tokens[~tokens["same"].astype(bool)]
    known = changed[~changed["unknown"].astype(bool)]
    plausible: set[int] = set()
    if tagged:
        kept = changed.groupby("record")["kept_pos"].agg(lambda column: all(column))
        with_known = known.drop_duplicates("record").set_index("record")["example"]
        plausible = set(with_known[kept.reindex(with_known.index).astype(bool)])
    other = set(known["example"]) - plausible
    unknown = set(changed["example"]) - set(known["example"])
    total = max(1, len(examples))
    return {
        "examples": len(examples),
        "same": (len(examples) - changed["example"].nunique()) / total,
        "plausible": len(plausible) / total if tagged else None,
        "other": len(other) / total,
        "unknown": len(unknown) / total,
    }


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


def marked(record: PerturbationRecord, tokens: Sequence[int], tokenizer: Any) -> str:
    """Return the text of a record with some tokens, one for each masked position, in brackets."""
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    shown = dict(zip(record.positions, tokens, strict=True))
    parts: list[str] = []
    plain: list[int] = []
    for place, token in enumerate(record.input_ids):
        if place in shown:
            parts += [tokenizer.decode(plain), f"[{tokenizer.decode([shown[place]]).strip()}]"]
            plain = []
        elif token not in special:
            plain.append(token)
    parts.append(tokenizer.decode(plain))
    return " ".join(part.strip() for part in parts if part.strip())


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


def _masked_batch(
    records: Sequence[PerturbationRecord], encoder: SharedEncoder
) -> tuple[Batch, Tensor]:
    """Return a batch of the original texts, masked as recorded, and the masked positions."""

    def flat(name: str) -> Tensor:
        return torch.tensor([number for record in records for number in getattr(record, name)])

    masked = [place in record.positions for record in records for place in range(len(record.words))]
    ends = torch.tensor([len(record.words) for record in records]).cumsum(0)
    texts = TokenizedTexts(
        input_ids=flat("input_ids"),
        words=flat("words"),
        maskable=torch.tensor(masked),
        offsets=torch.cat([torch.zeros(1, dtype=torch.int64), ends]),
        pad_id=encoder.tokenizer.pad_token_id,
        token_type_ids=None if records[0].token_type_ids is None else flat("token_type_ids"),
    )
    batch = collate(texts, torch.arange(len(records)))
    ids = batch.input_ids.masked_fill(batch.maskable, encoder.tokenizer.mask_token_id)
    return replace(batch, input_ids=ids), batch.maskable


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
    kind_of(config.kind).require("perturbations")
    records = read_perturbations(folder.path)
    records.sort(key=lambda record: (record.example, record.step))
    tokenizer = (
        load_classifier(folder.model_path)[1]
        if folder.model_path.is_dir()
        else load_tokenizer(config.initial_encoder, config.do_lower_case)
    )
    tagger = find_tagger()
    notes = [
        f"parts of speech by {tagger[1]}"
        if tagger
        else f"no part-of-speech agreement: there is no tagger; {ADVICE}"
    ]
    encoders = {"this run": records}
    try:
        labels = RunResults.load(folder.path).dataset.label_names
        pretrained = load_initial_encoder(config, labels)
        encoders["pretrained"] = predict_replacements(pretrained, records)
    except EncoderError as error:
        notes.append(f"no statistics of the pretrained encoder: {error}")
    tables = {
        encoder: token_table(substituted, tokenizer, tagger[0] if tagger else None)
        for encoder, substituted in encoders.items()
    }
    report = PerturbationReport(
        folder=folder.path,
        statistics=[
            {"epoch": epoch, "encoder": encoder}
            | token_statistics(
                [record for record in records if record.epoch == epoch],
                table[table["epoch"] == epoch],
            )
            for epoch in sorted({record.epoch for record in records})
            for encoder, table in tables.items()
        ],
        examples=[
            {"encoder": encoder, **example_statistics(records, table, tagger is not None)}
            for encoder, table in tables.items()
        ],
        texts=_texts(records, tables["this run"], tokenizer, texts),
        notes=notes,
        substitutions=tables["this run"][SUBSTITUTION],
    )
    if target is not None:
        report.save(target)
    return report


def _texts(
    records: Sequence[PerturbationRecord], tokens: DataFrame, tokenizer: Any, count: int
) -> list[dict[str, Any]]:
    """Return every perturbation of the first texts of the sample, with what was substituted."""
    chosen = sorted({record.example for record in records})[:count]
    pairs = tokens.groupby("record")[["masked", "substituted"]]
    substituted = {number: rows.to_numpy().tolist() for number, rows in pairs}
    return [
        {
            "example": record.example,
            "epoch": record.epoch,
            "text": tokenizer.decode(record.input_ids, skip_special_tokens=True),
            "original": marked(
                record, [record.input_ids[place] for place in record.positions], tokenizer
            ),
            "perturbed": marked(record, record.predicted, tokenizer),
            "substitutions": substituted.get(number, []),
        }
        for number, record in enumerate(records)
        if record.example in chosen
    ]


@dataclass(frozen=True, repr=False)
class PerturbationReport:
    """Statistics of the perturbed texts of a run, and some of the texts.

    Attributes:
        folder: The run folder.
        statistics: What became of tokens by ``epoch`` and ``encoder`` ("this run" or "pretrained").
        examples: What became of whole examples over all epochs, by encoder.
        texts: Some texts as they were perturbed in each epoch: ``example``, ``epoch``, ``text``,
            ``original`` and ``perturbed`` with the tokens in brackets, and ``substitutions``.
        notes: What could not be computed, and which tagger was used.
        substitutions: One row for each masked token.
    """

    folder: Path
    statistics: list[dict[str, Any]]
    examples: list[dict[str, Any]]
    texts: list[dict[str, Any]]
    notes: list[str]
    substitutions: DataFrame

    def __repr__(self) -> str:
        rows = [row for row in self.statistics if row["encoder"] == "this run"]
        masked = sum(row["masked"] for row in rows)
        other = sum(row["other"] * row["masked"] for row in rows) / max(1, masked)
        return (
            f"<PerturbationReport of {shorten(str(self.folder), 200)}: {len(rows)} epochs, "
            f"{masked:,} masked tokens, {other:.1%} of them replaced by another token>"
        )

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.to_frame().to_html()}"

    def to_frame(self) -> DataFrame:
        """Return the statistics of tokens, one row for each epoch and encoder; see
        :func:`~auxlearn.mask_analysis.perturbations.token_statistics` for the columns.
        """
        import pandas

        return pandas.DataFrame(self.statistics)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``perturbations.json`` holds."""
        names = ("statistics", "examples", "texts", "notes")
        return {name: getattr(self, name) for name in names}

    @checked
    def save(self, folder: UserPath) -> None:
        """Write ``perturbations.json`` and ``substitutions.csv``."""
        folder = expand(folder)
        check_output_folder(folder)
        write_json(folder / "perturbations.json", self.to_dict())
        write_text(folder / "substitutions.csv", to_csv(self.substitutions))
