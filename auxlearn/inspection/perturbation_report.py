"""What Mask-tuning substituted in the training texts of a finished run: statistics and texts."""

from __future__ import annotations

import csv
import html
import io
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auxlearn.encoders.load import load_classifier, load_tokenizer
from auxlearn.errors import ConfigError, EncoderError
from auxlearn.evaluation.perturbations import (
    Diversity,
    Outcomes,
    by_epoch,
    diversity,
    marked,
    outcomes,
    predict_replacements,
    substitutions,
)
from auxlearn.evaluation.taggers import ADVICE, find_tagger
from auxlearn.files import write_json, write_text
from auxlearn.local_files import expand
from auxlearn.results.folder import RunFolder, finished_folder
from auxlearn.results.outputs import check_output_folder
from auxlearn.results.perturbation_log import (
    PerturbationRecord,
    check_tokens,
    read_perturbations,
)
from auxlearn.results.record import RunResults
from auxlearn.training.continuation import load_initial_encoder
from auxlearn.wording import shorten

if TYPE_CHECKING:
    import pandas


def perturbations(
    run: str | os.PathLike[str] | RunResults,
    *,
    texts: int = 5,
    output: str | os.PathLike[str] | None = None,
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
    if texts < 0:
        raise ConfigError(f"texts: 0 or more are needed, got {texts}")
    target = None if output is None else expand(output)
    if target is not None:
        check_output_folder(target)
    folder = RunFolder(finished_folder(run))
    records = read_perturbations(folder.path)
    config = folder.read_config()
    kept = folder.model_path.is_dir()
    tokenizer = (
        load_classifier(folder.model_path)[1] if kept else load_tokenizer(config.initial_encoder)
    )
    check_tokens(folder.path, records, len(tokenizer))
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
        :class:`~auxlearn.evaluation.perturbations.Diversity`; shares are from 0 to 1.
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

    def save(self, folder: Path) -> None:
        """Write ``perturbations.json`` and ``substitutions.csv``.

        Raises:
            UserError: They cannot be written, or the folder belongs to a run or sweep.
        """
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
    """Return one line for each masked token."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["example", "epoch", "step", "task", "position", "masked", "substituted"])
    for record in sorted(records, key=lambda record: (record.example, record.step)):
        pairs = zip(record.positions, substitutions(record, tokenizer), strict=True)
        for position, (old, new) in pairs:
            place = [record.example, record.epoch, record.step, record.task, position]
            writer.writerow([*place, old, new])
    return text.getvalue()
