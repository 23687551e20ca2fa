"""Loading encoders by short name, folder or hub id, or building them untrained."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)
from transformers.utils.hub import cached_file

from auxlearn.core import rng
from auxlearn.core.errors import EncoderError, did_you_mean, named_fault, shorten
from auxlearn.core.files import content_digest, user_path, verify_export
from auxlearn.core.settings import ENCODERS, encoder_source
from auxlearn.encoders import checks
from auxlearn.encoders.families import FAMILIES, family_of
from auxlearn.encoders.shared import SharedEncoder, quiet_transformers
from auxlearn.encoders.trainable import lowest_layers
from auxlearn.kinds.base import Kind
from auxlearn.kinds.choose import CLASSIFICATION


def keep_classes(
    classifier: Any, names: Mapping[int, str], label_names: Sequence[str], info: Mapping[str, Any]
) -> bool | None:
    """Keep the output layer of a classifier if it is for the same labels; else re-initialise it."""
    body = f"{classifier.base_model_prefix}."
    *_, (name, layer) = (
        (name, module)
        for name, module in classifier.named_modules()
        if isinstance(module, nn.Linear) and not name.startswith(body)
    )
    if f"{name}.weight" in info["missing_keys"]:
        return None
    if f"{name}.weight" in {key for key, *_ in info["mismatched_keys"]}:
        return False  # another number of labels: transformers has re-initialised it
    own = [names.get(number) for number in range(len(names))]
    if sorted(map(str, own)) == sorted(label_names):
        order = [own.index(label) for label in label_names]
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(parameter[order].clone())
        return True
    for parameter in layer.parameters():
        vars(parameter).pop("_is_hf_initialized", None)  # else transformers leaves it as it is
    classifier._init_weights(layer)
    return False


def load_encoder(
    name: str,
    label_names: Sequence[str],
    seed: int = 0,
    attention_dropout: float | None = None,
    kind: Kind = CLASSIFICATION,
) -> SharedEncoder:
    """Load a pretrained encoder with both heads, in evaluation mode; a head that the checkpoint
    does not have, or that was trained for other labels, is newly initialised from the seed.
    """
    with _loading(name) as source:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        if getattr(config, "auto_map", None):
            raise checks.code_of_its_own(f"'{name}'")
        family = family_of(config.model_type)
        if kind.per_token and family.tag_logits is None:
            raise EncoderError(
                f"encoder '{name}' ({config.model_type}) has no head for {kind.name} in "
                "transformers: choose another one"
            )
        tokenizer = load_tokenizer(name)
        if Path(source).is_dir():
            checks.check_size(Path(source), config)
        changes: dict[str, Any] = {
            key: attention_dropout
            for key in ("attention_probs_dropout_prob", "attention_dropout")
            if attention_dropout is not None and key in config.to_dict()
        }
        trained_for = getattr(config, "problem_type", None)
        if kind.problem_type or trained_for in ("multi_label_classification", "regression"):
            changes["problem_type"] = kind.problem_type
        with rng.seeded(seed, "fresh heads"):
            classifier, info = _model_of(kind, config).from_pretrained(
                source,
                trust_remote_code=False,
                output_loading_info=True,
                num_labels=len(label_names),
                id2label=dict(enumerate(label_names)),
                label2id={label: number for number, label in enumerate(label_names)},
                ignore_mismatched_sizes=True,
                use_safetensors=True,
                dtype=torch.float32,
                **changes,
            )
            checks.check_body(name, classifier, info, family)
            kept = keep_classes(classifier, config.id2label, label_names, info)
            language_model, info = AutoModelForMaskedLM.from_pretrained(
                source,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
            checks.check_body(name, language_model, info, family)
        checks.check_vocabulary(name, tokenizer, classifier)
        encoder = SharedEncoder(classifier, language_model, tokenizer, kind).eval()
        encoder.kept_classifier = kept
        encoder.new_language_model_head = any(
            key.startswith(family.head_prefixes) for key in info["missing_keys"]
        )
        checks.check_weights(name, encoder)
        checks.try_out(encoder)
    return encoder


def _model_of(kind: Kind, config: Any) -> Any:
    """Return the class of transformers that has the head of a kind, or one with that head added."""
    if not kind.per_token:
        return AutoModelForSequenceClassification
    if kind.pipeline:
        return AutoModelForTokenClassification
    parent: Any = MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING[type(config)]

    def __init__(self: Any, config: Any) -> None:
        parent.__init__(self, config)
        size = config.hidden_size
        usual = nn.Sequential(nn.Linear(size, size), nn.Linear(size, config.num_labels))
        self.classifier = kind.head(usual)
        self.post_init()

    name = parent.__name__.replace("TokenClassification", kind.name.capitalize())
    return type(name, (parent,), {"__init__": __init__, "__module__": __name__})


def load_tokenizer(name: str, max_length: int = 0) -> Any:
    """Load the tokenizer of an encoder that has positions for texts of ``max_length`` tokens."""
    with _loading(name) as source:
        tokenizer = AutoTokenizer.from_pretrained(
            source, split_special_tokens=True, trust_remote_code=False
        )
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
        tokenizer("a \N{SNOWMAN}")  # a vocabulary without its unknown token fails at such words
        if max_length:
            check_length(AutoConfig.from_pretrained(source, trust_remote_code=False), max_length)
    return tokenizer


def load_classifier(folder: Path, kind: Kind = CLASSIFICATION) -> tuple[Any, Any]:
    """Load the classifier and tokenizer that a run has exported."""
    folder = folder.absolute()  # "run/model" could be the name of an encoder on the hub
    with _loading(str(folder)):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        family_of(config.model_type)
        checks.check_size(folder, config)
        model, info = _model_of(kind, config).from_pretrained(
            folder, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
        checks.check_classifier(folder, model, info)
        checks.check_weights(str(folder), model)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if tokenizer.pad_token_id is None:
            raise EncoderError(f"the tokenizer in {folder} has no padding token: it is damaged")
        checks.check_vocabulary(str(folder), tokenizer, model)
    limit, length = max_positions(config), tokenizer.model_max_length
    most = 1_000_000 if limit is None else limit  # one without model_max_length has 10^30
    if not isinstance(length, int) or length > most:
        raise EncoderError(
            f"{folder / 'tokenizer_config.json'} is damaged: it has no model_max_length that the "
            "model has positions for; train again or copy the folder again"
        )
    return model.eval(), tokenizer


def check_length(config: Any, max_length: int) -> None:
    limit = max_positions(config)
    if limit is not None and max_length > limit:
        raise EncoderError(
            f"max_length {max_length} is more than the {limit} positions of this encoder: "
            f"use --max-length {limit} or less"
        )


def check_capacity(name: str, max_length: int, frozen_layers: int) -> None:
    """Check by its config alone that an encoder has the positions and layers of a run."""
    with _loading(name) as source:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        check_length(config, max_length)
        with torch.device("meta"):
            body = checks.untrained(config).base_model if frozen_layers else nn.Module()
    lowest_layers(body, frozen_layers)


def max_positions(config: Any) -> int | None:
    """Return the greatest number of tokens of a text; ``None`` without such a limit."""
    limit: int | None = getattr(config, "max_position_embeddings", None)
    family = FAMILIES.get(config.model_type)
    if limit is not None and family is not None and family.counts_from_padding:
        limit -= (config.pad_token_id or 0) + 1
    return limit


def _check_source(name: str, source: str) -> None:
    folder = user_path(source, EncoderError)
    name = shorten(name, 200)
    if folder.is_dir():
        try:
            files = {path.name for path in folder.iterdir()}
        except OSError as error:
            raise EncoderError(f"{folder} cannot be read ({error.strerror})") from None
        if "config.json" not in files:
            model = folder / "model"  # of a run folder
            meant = model if model.is_dir() else "a folder written by save_pretrained"
            raise EncoderError(f"{folder} holds no config.json: name {meant}")
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
        checks.check_files(folder)
    elif folder.is_file():
        raise EncoderError(f"{folder} is a file: name the folder that holds the encoder")
    elif source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise EncoderError(f"encoder folder {shorten(source, 200)} does not exist")
    elif name not in ENCODERS and "/" not in source:
        cards = ENCODERS.items()
        short = [known for known, card in cards if card.source.endswith(f"/{name}")]
        hint = f"did you mean '{short[0]}'?" if short else did_you_mean(name, ENCODERS)
        raise EncoderError(
            f"unknown encoder '{name}': {hint} "
            "(a folder or a hub id such as FacebookAI/roberta-base works too)"
        )


@contextmanager
def _loading(name: str) -> Iterator[str]:
    """Check an encoder and yield its folder or hub id, and turn the exceptions of transformers for
    an unusable one into an EncoderError.
    """
    source = encoder_source(name)
    _check_source(name, source)
    try:
        with quiet_transformers():
            yield source
    except EncoderError:
        raise
    except BaseException as error:
        # A configuration can hold anything, and transformers raises whatever comes of it; the
        # tokenizers of Rust raise a PanicException, which is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = named_fault(error)
        if Path(source).is_dir():
            raise EncoderError(f"encoder folder {source} cannot be loaded: {reason}") from error
        raise EncoderError(
            f"encoder '{name}' ({source}) cannot be fetched from the hub or lacks safetensors "
            "weights: download it where there is a network, then name its folder with "
            f"--encoder ({reason})"
        ) from error


#: Suffixes of the files that transformers loads an encoder and its tokenizer from.
_SUFFIXES = (".json", ".safetensors", ".txt", ".model")
#: Files of this package beside them, which transformers does not read.
_RECORDS = ("manifest.json", "pretraining.json")


def encoder_content(name: str) -> dict[str, str]:
    """Return digests that identify the content of an encoder."""
    folder = user_path(encoder_source(name), EncoderError)
    if not folder.is_dir() or not os.path.isfile(folder / "config.json"):
        with _loading(name) as source:  # the copy of the hub's cache that it would be loaded from
            folder = Path(str(cached_file(source, "config.json"))).parent
        if folder.parent.name == "snapshots":  # named after its commit
            return {"commit": folder.name}
    try:
        return {
            path.name: content_digest(path)
            for path in sorted(folder.iterdir())
            if path.suffix in _SUFFIXES and path.name not in _RECORDS and path.is_file()
        }
    except OSError as error:
        raise EncoderError(
            f"{error.filename or folder} cannot be read ({error.strerror})"
        ) from None


def save_untrained(folder: Path) -> Path:
    """Write a BERT with random weights and the tokenizer of ``tiny`` as a transformers folder."""
    source = encoder_source("tiny")
    with quiet_transformers(), rng.seeded(0, "untrained"):
        config = AutoConfig.from_pretrained(
            source,
            num_hidden_layers=1,
            hidden_size=32,
            intermediate_size=64,
            num_attention_heads=2,
            trust_remote_code=False,
        )
        checks.untrained(config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(source, trust_remote_code=False).save_pretrained(folder)
    return folder
