"""Loading the tokenizer of an encoder: its casing, its special tokens, and what it says of itself
that does not fit its model.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

from auxlearn.core.errors import EncoderError, shorten
from auxlearn.core.settings import ENCODERS, encoder_source
from auxlearn.encoders.source import VOCABULARIES, encoder_files
from auxlearn.encoders.weights import read_settings

#: Share of a vocabulary with capitals from which on lower-casing is doubtful: a third or more in
#: those of cased encoders, none in those of uncased ones.
CAPITALS = 0.05

#: Settings of tokenizer_config.json that go before tokenizer.json, and what they are called there.
_BEFORE = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
    "add_prefix_space": "add_prefix_space",
}


def load_tokenizer(name: str, do_lower_case: bool | None = None) -> Any:
    """Load the fast tokenizer of an encoder. Special tokens that the model needs are ordinary text
    where they stand in a text; those that a user has added, such as ``[E1]``, stay one token.
    """
    with encoder_files(name) as folder:
        if do_lower_case is None and not _casing_is_said(folder):
            do_lower_case = _known_casing(name)
        options: dict[str, Any] = {
            "split_special_tokens": True,
            "padding_side": "right",
            "truncation_side": "right",
        }
        if do_lower_case is not None:
            options["do_lower_case"] = do_lower_case
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        segments = getattr(config, "type_vocab_size", None)
        if segments == 1:  # it has no second segment
            options["model_input_names"] = ["input_ids", "attention_mask"]
        _check_sentencepiece(name, folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, **options)
        _check_tokens(name, folder, tokenizer)
        tokenizer = _as_in_tokenizer_json(folder, tokenizer, options)
        has_types = any(tokenizer.backend_tokenizer.encode("a", "a").type_ids)
        if (segments or 1) > 1 and has_types and "model_input_names" not in _settings(folder):
            # The general class of transformers leaves out what tells the texts of a pair apart.
            names = ["input_ids", "token_type_ids", "attention_mask"]
            tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
        if do_lower_case not in (None, lower_cases(tokenizer.backend_tokenizer)):
            raise EncoderError(
                f"do_lower_case: the tokenizer of encoder '{name}' has its casing fixed in "
                "tokenizer.json: leave the option out"
            )
        _keep_added_tokens_whole(tokenizer)
    return tokenizer


def loading_notes(name: str, tokenizer: Any, do_lower_case: bool | None = None) -> list[str]:
    """Return what is doubtful about a tokenizer of :func:`load_tokenizer`, a sentence each."""
    notes = []
    vocabulary = tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens)
    capitals = sum(token != token.lower() for token in vocabulary) / max(1, len(vocabulary))
    with encoder_files(name) as folder:
        casing_is_said = do_lower_case is not None or _casing_is_said(folder)
        if lower_cases(tokenizer.backend_tokenizer) and not casing_is_said and capitals > CAPITALS:
            notes.append(
                f"warning: texts are lower-cased for {name}, as transformers does where the files "
                f"of an encoder do not say so, but {capitals:.0%} of its vocabulary has capitals: "
                "if it is a cased encoder, use --no-do-lower-case"
            )
        path, lower = folder / "tokenizer.json", lower_cases(tokenizer.backend_tokenizer)
        by_file = lower_cases(tokenizers.Tokenizer.from_file(str(path))) if path.exists() else lower
        files = [_settings(folder), _settings(folder, "sentence_bert_config.json")]
        said = {files[0].get("do_lower_case"), files[1].get("do_lower_case") or None}
        if do_lower_case is None and said - {None, by_file}:
            notes.append(
                f"warning: texts are {'' if lower else 'not '}lower-cased for {name}, whose files "
                "contradict each other (do_lower_case in tokenizer_config.json and "
                "sentence_bert_config.json, and tokenizer.json): set --do-lower-case or "
                "--no-do-lower-case"
            )
        if (folder / "adapter_config.json").exists():
            notes.append(
                f"warning: the adapter of {name} (adapter_config.json) is not read: merge it into "
                "the weights to use it"
            )
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    if config.pad_token_id not in (None, tokenizer.pad_token_id):
        notes.append(
            f"warning: padding is token {tokenizer.pad_token_id} in the tokenizer of {name} and "
            f"token {config.pad_token_id} in its config.json: set pad_token_id there"
        )
    if not tokenizer.num_special_tokens_to_add():
        notes.append(
            f"warning: the tokenizer of {name} puts no special tokens around a text, so that the "
            "first word stands where the model expects one: save it with its post-processor"
        )
    return notes


def lower_cases(backend: tokenizers.Tokenizer) -> bool:
    """Return whether a tokenizer lower-cases texts."""
    normalizer = backend.normalizer
    return normalizer is not None and "A" not in normalizer.normalize_str("A")


def _known_casing(name: str) -> bool | None:
    """Return whether texts are lower-cased for an encoder with a card; ``None`` if not known."""
    source = encoder_source(name)
    casing = next((card.casing for card in ENCODERS.values() if card.source == source), "unsaid")
    return None if casing == "unsaid" else casing == "uncased"


def _settings(folder: Path, name: str = "tokenizer_config.json") -> dict[str, Any]:
    path = folder / name
    return read_settings(path) if path.exists() else {}


def _casing_is_said(folder: Path) -> bool:
    """Return whether the files of a tokenizer say whether texts are lower-cased."""
    return (folder / "tokenizer.json").exists() or "do_lower_case" in _settings(folder)


def _as_in_tokenizer_json(folder: Path, tokenizer: Any, options: dict[str, Any]) -> Any:
    """Return a tokenizer that reads texts as tokenizer.json says, not as its class would."""
    path = folder / "tokenizer.json"
    if not path.exists() or type(tokenizer) is PreTrainedTokenizerFast:
        return tokenizer
    rebuilt, shipped = tokenizer.backend_tokenizer, tokenizers.Tokenizer.from_file(str(path))
    parts, settings = (shipped.normalizer, shipped.pre_tokenizer), _settings(folder) | options
    for part in parts:
        for key, attribute in _BEFORE.items():
            if settings.get(key) is not None and hasattr(part, attribute):
                setattr(part, attribute, settings[key])
    if repr(parts) == repr((rebuilt.normalizer, rebuilt.pre_tokenizer)):
        return tokenizer
    options = {"model_input_names": tokenizer.model_input_names, **options}
    options = {**tokenizer.special_tokens_map, **options}
    as_shipped = PreTrainedTokenizerFast.from_pretrained(folder, trust_remote_code=False, **options)
    as_shipped.backend_tokenizer.normalizer, as_shipped.backend_tokenizer.pre_tokenizer = parts
    if not shipped.num_special_tokens_to_add(is_pair=True):
        as_shipped.backend_tokenizer.post_processor = rebuilt.post_processor
    return as_shipped


def _check_sentencepiece(name: str, folder: Path) -> None:
    """Check that a vocabulary of SentencePiece alone can be read."""
    vocabularies = {path.name for path in folder.iterdir()} & VOCABULARIES
    if not all(vocabulary.endswith(".model") for vocabulary in vocabularies):
        return
    if find_spec("sentencepiece") is None or find_spec("google.protobuf") is None:
        raise EncoderError(
            f"the vocabulary of encoder '{name}' is one of SentencePiece "
            f"({', '.join(sorted(vocabularies))}), which needs a package: "
            "pip install 'auxlearn[sentencepiece]'"
        )


def _check_tokens(name: str, folder: Path, tokenizer: Any) -> None:
    if not tokenizer.is_fast:
        raise EncoderError(
            f"encoder '{name}' has no fast tokenizer: convert it to a tokenizer.json first"
        )
    named = _settings(folder).get("tokenizer_class")
    for kind, token in (("mask", tokenizer.mask_token_id), ("padding", tokenizer.pad_token_id)):
        if token is not None:
            continue
        cause = ": masked language modelling needs one" if kind == "mask" else ""
        if isinstance(named, str) and not hasattr(transformers, named):
            cause = f": tokenizer_config.json names the class {shorten(named)}, which transformers "
            cause += "does not have; take that line out"
        raise EncoderError(f"the tokenizer of encoder '{name}' has no {kind} token{cause}")
    tokenizer("a \N{SNOWMAN}")  # a vocabulary without its unknown token fails at such words


def _keep_added_tokens_whole(tokenizer: Any) -> None:
    """Let added special tokens that the model does not need be found in texts."""
    needed = {getattr(tokenizer, name) for name in tokenizer.SPECIAL_TOKENS_ATTRIBUTES}
    backend = tokenizer.backend_tokenizer
    settings = json.loads(backend.to_str())
    added = [
        token
        for token in settings["added_tokens"]
        if token["special"] and token["content"] not in needed
    ]
    if added:
        for token in added:
            token["special"] = False
        backend.__setstate__(json.dumps(settings).encode())
        backend.encode_special_tokens = True
