"""Short names of encoders, with their sources and recommended learning rates."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class EncoderCard:
    """Encoder of a short name."""

    source: str  # hub id or folder
    title: str  # one line for lists
    learning_rate: float  # recommended peak learning rate under AdamW


#: L3Masking (Table 2) trains all its base-sized encoders at this rate.
BASE_LEARNING_RATE = 1e-4

#: The middle of the grid of Mask-tuning (2023, section IV), the one paper here that trains BART.
MASK_TUNING_LEARNING_RATE = 3e-5

ENCODERS = {
    "tiny": EncoderCard(
        str(Path(__file__).parents[1] / "encoders" / "tiny"),
        "1.5 M parameter BERT shipped with auxlearn, for demos and tests",
        1e-3,
    ),
    "bert": EncoderCard("google-bert/bert-base-uncased", "BERT base", BASE_LEARNING_RATE),
    "roberta": EncoderCard("FacebookAI/roberta-base", "RoBERTa base", BASE_LEARNING_RATE),
    "scibert": EncoderCard(
        "allenai/scibert_scivocab_uncased", "BERT base of scientific papers", BASE_LEARNING_RATE
    ),
    "clinicalbert": EncoderCard(
        "medicalai/ClinicalBERT", "DistilBERT of clinical text", BASE_LEARNING_RATE
    ),
    "bio-clinicalbert": EncoderCard(
        "emilyalsentzer/Bio_ClinicalBERT", "BERT base of clinical notes", BASE_LEARNING_RATE
    ),
    "bart": EncoderCard(
        "facebook/bart-base", "BART base (encoder-decoder)", MASK_TUNING_LEARNING_RATE
    ),
}


def encoder_source(name: str) -> str:
    """Return the folder or hub id of an encoder."""
    card = ENCODERS.get(name)
    if card is None and name.startswith("~"):
        with suppress(RuntimeError):  # there is no such user
            return str(Path(name).expanduser())
    return card.source if card else name


def recommended_learning_rate(name: str) -> float:
    """Return the peak learning rate that is the default for an encoder."""
    card = ENCODERS.get(name)
    return card.learning_rate if card else BASE_LEARNING_RATE
