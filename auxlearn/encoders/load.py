"""Loading encoders by short name, folder or hub id, or building them untrained."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoTokenizer,
)

from auxlearn.core import rng
from auxlearn.core.errors import EncoderError
from auxlearn.core.settings import ENCODERS, encoder_source
from auxlearn.encoders import checks
from auxlearn.encoders.families import FAMILIES, family_of
from auxlearn.encoders.shared import SharedEncoder, quiet_transformers
from auxlearn.encoders.source import encoder_files
from auxlearn.encoders.tokenizer import load_tokenizer, loading_notes
from auxlearn.encoders.trainable import lowest_layers
from auxlearn.encoders.weights import read_weights, weight_files
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
    current = [names.get(number) for number in range(len(names))]
    if sorted(map(str, current)) == sorted(label_names):
        order = [current.index(label) for label in label_names]
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
    do_lower_case: bool | None = None,
) -> SharedEncoder:
    """Load a pretrained encoder with both heads, in evaluation mode; a head that the checkpoint
    does not have, or that was trained for other labels, is newly initialised from the seed.
    """
    with encoder_files(name) as folder:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        family = family_of(config.model_type)
        if kind.per_token and family.tag_logits is None:
            raise EncoderError(
                f"encoder '{name}' ({config.model_type}) has no head for {kind.name} in "
                "transformers: choose another one"
            )
        tokenizer = load_tokenizer(name, do_lower_case=do_lower_case)
        if kind.per_token and not kind.pipeline and not tokenizer.num_special_tokens_to_add():
            raise EncoderError(
                f"the tokenizer of encoder '{name}' puts no token before the first word, which "
                f"stands for the root of {kind.name}: save it with its post-processor"
            )
        weights = read_weights(folder)
        checks.check_size(folder, config, weights)
        changes: dict[str, Any] = {
            key: attention_dropout
            for key in ("attention_probs_dropout_prob", "attention_dropout")
            if attention_dropout is not None and key in config.to_dict()
        }
        trained_for = getattr(config, "problem_type", None)
        if kind.problem_type or trained_for in ("multi_label_classification", "regression"):
            changes["problem_type"] = kind.problem_type
        vars(config).pop("auto_map", None)  # what is exported is of transformers' own class
        former_names = config.id2label
        config.update(changes)
        labelled = copy.deepcopy(config)
        labelled.num_labels = len(label_names)
        labelled.id2label = dict(enumerate(label_names))
        labelled.label2id = {label: number for number, label in enumerate(label_names)}
        with rng.seeded(seed, "fresh heads"):
            classifier, info = _with_weights(_model_of(kind, config), labelled, weights, name)
            checks.check_body(name, classifier, info, family)
            kept = keep_classes(classifier, former_names, label_names, info)
            prefix = f"{classifier.base_model_prefix}."
            missing = [key.removeprefix(prefix) for key in info["missing_keys"]]
            new_pooler = any(key.startswith(family.pooler_prefixes) for key in missing)
            language_model = MODEL_FOR_MASKED_LM_MAPPING[type(config)]
            language_model, info = _with_weights(language_model, config, weights, name)
            checks.check_body(name, language_model, info, family)
        checks.check_vocabulary(name, tokenizer, classifier)
        encoder = SharedEncoder(classifier, language_model, tokenizer, kind).eval()
        encoder.kept_classifier = kept
        encoder.new_language_model_head = any(
            key.startswith(family.head_prefixes) for key in info["missing_keys"]
        )
        encoder.notes = loading_notes(name, tokenizer, do_lower_case)
        pickled = [path.name for path in weight_files(folder) if path.suffix == ".bin"]
        if pickled:
            encoder.notes.append(
                f"the weights of {name} are read from {' and '.join(pickled)}, by torch's "
                "restricted reader"
            )
        if new_pooler and name not in ENCODERS:
            encoder.notes.append(f"the pooler of {name} is newly initialised: its files have none")
        checks.check_weights(name, encoder)
        checks.try_out(encoder)
    return encoder


def around_language_model(model: Any, tokenizer: Any) -> SharedEncoder:
    """Return an encoder around a masked language model, which is left as it is, or a copy of it in
    float32; its classification head has no weights.
    """
    config: Any = getattr(model, "config", None)
    expected: Any = MODEL_FOR_MASKED_LM_MAPPING.get(type(config), None)
    if expected is None or not isinstance(model, expected):
        raise EncoderError(f"a {type(model).__name__} is no AutoModelForMaskedLM of transformers")
    family_of(config.model_type)
    if getattr(config, "is_decoder", False):
        raise EncoderError("the model is a decoder (is_decoder): no token sees those after it")
    checks.check_vocabulary(config.name_or_path, tokenizer, model)
    build: Any = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]
    if any(
        tensor.is_floating_point() and tensor.dtype != torch.float32
        for tensor in model.parameters()
    ):
        model = copy.deepcopy(model).float()
    with quiet_transformers(), torch.device("meta"):
        classifier = build(copy.deepcopy(config))
    setattr(classifier, classifier.base_model_prefix, model.base_model)
    return SharedEncoder(classifier, model, tokenizer)


def _with_weights(
    model_class: Any, config: Any, weights: Mapping[str, Tensor], name: str
) -> tuple[Any, Mapping[str, Any]]:
    """Build a model, give it weights of a checkpoint, and return what transformers says of that."""
    model, info = model_class.from_pretrained(
        None,
        config=config,
        state_dict=dict(weights),
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        trust_remote_code=False,
        dtype=torch.float32,
    )
    # Adapters are saved with the name of the encoder that they are for.
    model.name_or_path = model.config.name_or_path = encoder_source(name)
    return model, info


def _model_of(kind: Kind, config: Any) -> Any:
    """Return the class of transformers that has the head of a kind, or one with that head added."""
    if not kind.per_token:
        return MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]
    parent: Any = MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING[type(config)]
    if kind.pipeline:
        return parent

    def __init__(self: Any, config: Any) -> None:
        parent.__init__(self, config)
        size = config.hidden_size
        usual = nn.Sequential(nn.Linear(size, size), nn.Linear(size, config.num_labels))
        self.classifier = kind.head(usual)
        self.post_init()

    name = parent.__name__.replace("TokenClassification", kind.name.capitalize())
    return type(name, (parent,), {"__init__": __init__, "__module__": __name__})


def load_classifier(folder: Path, kind: Kind = CLASSIFICATION) -> tuple[Any, Any]:
    """Load the classifier and tokenizer that a run has exported."""
    folder = folder.absolute()  # "run/model" could be the name of an encoder on the hub
    with encoder_files(str(folder)):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        weights = read_weights(folder)
        checks.check_size(folder, config, weights)
        model, info = _with_weights(_model_of(kind, config), config, weights, str(folder))
        checks.check_classifier(folder, model, info)
        checks.check_weights(str(folder), model)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
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
    with encoder_files(name) as folder:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
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
