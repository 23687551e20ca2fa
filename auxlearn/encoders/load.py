"""Loading encoders by short name, folder or hub id."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)
from transformers.utils.hub import cached_file

from auxlearn import rng
from auxlearn.encoder_names import ENCODERS, encoder_source
from auxlearn.encoders.families import family_of
from auxlearn.encoders.quiet import quiet_transformers
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.errors import EncoderError, did_you_mean
from auxlearn.manifest import verify_export

logger = logging.getLogger(__name__)


def load_encoder(
    name: str,
    label_names: Sequence[str],
    seed: int = 0,
    attention_dropout: float | None = None,
) -> SharedEncoder:
    """Load a pretrained encoder with both heads, in evaluation mode.

    A head that the checkpoint does not have is newly initialised from the seed. If that is the
    masked-language-model head, a warning says so.

    Args:
        name: Short name, local folder, or hub id.
        label_names: The classes, in the order of the model's outputs.
        seed: Seed of newly initialised heads.
        attention_dropout: Dropout probability of attention weights; by default the checkpoint's.

    Raises:
        EncoderError: The encoder does not exist, the hub cannot be reached, the folder has no
            weights or tokenizer, or the architecture or tokenizer is not supported.
    """
    source = encoder_source(name)
    _check_source(name, source)
    with quiet_transformers(), _loading(name, source):
        config = AutoConfig.from_pretrained(source)
        family = family_of(config.model_type)
        tokenizer = AutoTokenizer.from_pretrained(source, split_special_tokens=True)
        _check_tokenizer(name, tokenizer)
        changes = {
            key: attention_dropout
            for key in ("attention_probs_dropout_prob", "attention_dropout")
            if attention_dropout is not None and key in config.to_dict()
        }
        with rng.seeded(seed, "fresh heads"):
            classifier = AutoModelForSequenceClassification.from_pretrained(
                source,
                num_labels=len(label_names),
                id2label=dict(enumerate(label_names)),
                label2id={label: number for number, label in enumerate(label_names)},
                ignore_mismatched_sizes=True,
                use_safetensors=True,
                dtype=torch.float32,
                **changes,
            )
            language_model, info = AutoModelForMaskedLM.from_pretrained(
                source, use_safetensors=True, dtype=torch.float32, output_loading_info=True
            )
    missing = [key for key in info["missing_keys"] if key.startswith(family.head_prefixes)]
    if missing and config.model_type != "bart":
        logger.warning(
            "encoder '%s' has no pretrained masked-language-model head: a newly initialised one is "
            "used, which predicts at chance; train one first with `auxlearn pretrain`",
            name,
        )
    return SharedEncoder(classifier, language_model, tokenizer).eval()


def find_snapshot(name: str) -> Path:
    """Return the folder of the local cache from which an encoder of the hub would be loaded now.

    Raises:
        EncoderError: As for :func:`load_encoder`.
    """
    source = encoder_source(name)
    _check_source(name, source)
    with quiet_transformers(), _loading(name, source):
        return Path(str(cached_file(source, "config.json"))).parent


def load_classifier(folder: Path) -> tuple[Any, Any]:
    """Load the classifier and tokenizer that a run has exported.

    Raises:
        EncoderError: The folder is not a transformers classifier.
    """
    _check_source(str(folder), str(folder))
    with quiet_transformers(), _loading(str(folder), str(folder)):
        model = AutoModelForSequenceClassification.from_pretrained(folder, use_safetensors=True)
        return model.eval(), AutoTokenizer.from_pretrained(folder)


def check_length(encoder: SharedEncoder, max_length: int) -> None:
    """Check that the encoder has enough positions for texts of ``max_length`` tokens.

    Raises:
        EncoderError: It does not.
    """
    config = encoder.config
    limit = getattr(config, "max_position_embeddings", None)
    if limit is not None and config.model_type in ("roberta", "xlm-roberta", "camembert"):
        limit -= config.pad_token_id + 1  # their positions start after the padding index
    if limit is not None and max_length > limit:
        raise EncoderError(
            f"max_length {max_length} is more than the {limit} positions of this encoder: "
            f"use --max-length {limit} or less"
        )


def _check_source(name: str, source: str) -> None:
    folder = Path(source)
    if folder.is_dir():
        files = {path.name for path in folder.iterdir()}
        if "config.json" not in files:
            raise EncoderError(
                f"{folder} holds no config.json: name a folder written by save_pretrained"
            )
        if not files & {"model.safetensors", "model.safetensors.index.json"}:
            raise EncoderError(
                f"{folder} holds no model.safetensors: weights in other formats are not read, "
                "save them with save_pretrained(safe_serialization=True)"
            )
        if not files & {"tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model"}:
            raise EncoderError(
                f"{folder} holds no tokenizer: save it there with tokenizer.save_pretrained"
            )
        verify_export(folder)
    elif folder.is_file():
        raise EncoderError(f"{folder} is a file: name the folder that holds the encoder")
    elif source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise EncoderError(f"encoder folder {source} does not exist")
    elif name not in ENCODERS and "/" not in source:
        raise EncoderError(
            f"unknown encoder '{name}': {did_you_mean(name, ENCODERS)} "
            "(a folder or a hub id such as FacebookAI/roberta-base works too)"
        )


def _check_tokenizer(name: str, tokenizer: Any) -> None:
    if not tokenizer.is_fast:
        raise EncoderError(
            f"encoder '{name}' has no fast tokenizer: convert it to a tokenizer.json first"
        )
    if tokenizer.mask_token_id is None:
        raise EncoderError(
            f"the tokenizer of encoder '{name}' has no mask token: "
            "masked language modelling needs one"
        )
    if tokenizer.pad_token_id is None:
        raise EncoderError(f"the tokenizer of encoder '{name}' has no padding token")


@contextmanager
def _loading(name: str, source: str) -> Iterator[None]:
    """Convert the exceptions of transformers for an unusable source into an EncoderError."""
    try:
        yield
    except EncoderError:
        raise
    except (OSError, ValueError, ImportError, KeyError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:300]
        if Path(source).is_dir():
            raise EncoderError(f"encoder folder {source} cannot be loaded: {reason}") from error
        raise EncoderError(
            f"encoder '{name}' ({source}) cannot be fetched from the hub or lacks safetensors "
            "weights: download it where there is a network, then name its folder with "
            f"--encoder ({reason})"
        ) from error
