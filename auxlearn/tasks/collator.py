"""The masks of a strategy as a collator, for training loops of other libraries."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from numbers import Integral
from typing import Any, Self

import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.utils.data import get_worker_info

from auxlearn.core import rng
from auxlearn.core.cache import TensorCache, content_key
from auxlearn.core.errors import ConfigError, DataError, UserError, shorten
from auxlearn.core.files import regular, unusable, user_path, write_bytes
from auxlearn.core.processes import process_number
from auxlearn.core.registry import TASKS
from auxlearn.core.validation import Settings, validate
from auxlearn.data.batches import collate
from auxlearn.data.dataset import Split
from auxlearn.data.memory import as_list, is_table
from auxlearn.data.tokens import Tokenization, TokenizedTexts, tokenizer_settings
from auxlearn.encoders.load import around_language_model
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import CORRUPTIONS, corrupt
from auxlearn.tasks.base import MaskedLanguageModelling


class _CollatorSettings(Settings):
    strategy: str
    max_length: int = Field(ge=4)
    seed: int = Field(ge=0)


class MaskingCollator:
    """Masks batches by a strategy, in place of transformers' ``DataCollatorForLanguageModeling``:
    ``data_collator=`` of its ``Trainer``, or ``collate_fn=`` of a ``DataLoader``.

    :meth:`prepare` computes once what the strategy needs (scores, frequencies, collocations, ...)
    of all texts that are to be masked, those for evaluation included; a text is recognised by its
    token ids. Masks are drawn as those of the auxiliary task of that name. Each batch has a
    generator of its own, from ``seed``, the process, the seed that a ``DataLoader`` gives its
    worker in an epoch, and the number of the batch; torch's global generators are left alone.

    Args:
        tokenizer: The fast tokenizer of the model, with which the texts are tokenised.
        strategy: Name of a masking strategy, built in or registered.
        max_length: Number of tokens that the texts are truncated to, special tokens included.
        seed: Seed of everything random.
        options: Options of the strategy, such as ``probability``; ``corpus``, ``schedule`` and
            ``corruption: sample`` need a run of auxlearn.

    Raises:
        ConfigError: There is no such strategy or option, or it needs a run.

    Examples:
        ::

            collator = auxlearn.MaskingCollator(tokenizer, "l3mask", max_length=128)
            collator.prepare(texts, model)
            dataset = [tokenizer(text, truncation=True, max_length=128) for text in texts]
            Trainer(model, arguments, data_collator=collator, train_dataset=dataset).train()
    """

    def __init__(
        self,
        tokenizer: Any,
        strategy: str = "l3mask",
        *,
        max_length: int = 128,
        seed: int = 0,
        **options: Any,
    ) -> None:
        values = {"strategy": strategy, "max_length": max_length, "seed": seed}
        settings = validate(_CollatorSettings, values, "MaskingCollator")
        _check_tokenizer(tokenizer)
        cls = TASKS.get(strategy)
        if not issubclass(cls, MaskedLanguageModelling):
            raise ConfigError(f"'{strategy}' is no masking strategy: choose another auxiliary task")
        self.task: MaskedLanguageModelling = cls(validate(cls.Options, options, strategy))
        chosen = self.task.options
        if chosen.corpus or chosen.schedule != "constant" or chosen.corruption == "sample":
            raise ConfigError(
                f"{strategy}: corpus, schedule and corruption sample need a run of auxlearn"
            )
        self.tokenizer = tokenizer
        self.max_length = settings.max_length
        self.seed = settings.seed
        self._batches = 0
        self._places: dict[bytes, int] = {}

    def prepare(
        self,
        texts: Iterable[str],
        model: Any,
        *,
        text_pairs: Sequence[str] | None = None,
        labels: Sequence[Any] | None = None,
    ) -> Self:
        """Compute what the strategy needs of all texts, and return the collator.

        Args:
            texts: All texts that will be masked.
            model: The pretrained ``AutoModelForMaskedLM`` to score them with, which is left as it
                is. Scores are cached on disk.
            text_pairs: Second texts of pairs.
            labels: Labels of the texts, which ``selective`` needs.

        Raises:
            UserError: A text cannot be tokenised, or the strategy cannot use the model or follows
                the loss of a training, as ``typhoon`` does.
        """
        usable = isinstance(texts, Iterable) and not isinstance(texts, str) and not is_table(texts)
        if not usable or not (texts := list(texts)):
            raise DataError("the collator is prepared with a list of all texts that it will mask")
        text_pairs, labels = as_list(text_pairs), as_list(labels)
        for name, values in {"text_pairs": text_pairs, "labels": labels}.items():
            listed = isinstance(values, list | tuple) and len(values) == len(texts)
            if values is not None and not listed:
                raise DataError(f"{name}: give a list with one for each text")
        if not all(isinstance(text, str) for text in (*texts, *(text_pairs or ()))):
            raise DataError("the collator is prepared with texts alone: leave out other values")
        named = all(isinstance(label, str) for label in labels or ())
        if not named and not all(isinstance(label, Integral) for label in labels or ()):
            raise DataError("labels: give each text a name, or each text a whole number")
        names = sorted(set(labels or ()))
        classes = None if labels is None else tuple(names.index(label) for label in labels)
        pairs = None if text_pairs is None else tuple(text_pairs)
        split = Split("texts", tuple(texts), classes, tuple(map(str, names)), pairs)
        encoder, cache = around_language_model(model, self.tokenizer), TensorCache()
        context = ObjectiveContext(
            self.task.name,
            encoder,
            split,
            Tokenization(self.tokenizer, self.max_length).tokenize_split(split, cache),
            max_length=self.max_length,
            cache=cache,
            seed=self.seed,
        )
        with encoder.evaluating():
            self.task.prepare(context)
        if self.task.watches_primary:
            raise ConfigError(
                f"{self.task.name} follows the loss of a primary task, which a collator does not "
                "see: choose another strategy"
            )
        self._take(self.task.texts)
        return self

    def _take(self, texts: TokenizedTexts) -> None:
        self.task.texts = texts
        rows = texts.input_ids.split(texts.lengths.tolist())
        self._places = {row.numpy().tobytes(): place for place, row in enumerate(rows)}

    def __call__(self, features: Iterable[Any]) -> dict[str, Tensor]:
        """Return a masked batch.

        Args:
            features: What the tokenizer returned for each text: ``input_ids``, and
                ``attention_mask`` if they are padded. Other entries are left out.

        Returns:
            ``input_ids``, ``attention_mask``, ``token_type_ids`` if the tokenizer makes them, and
            ``labels``, the original tokens at the masked positions and -100 elsewhere; all of
            ``(batch, length)``, int64, padded on the right.

        Raises:
            DataError: :meth:`prepare` has not seen a text, or was not called; or the features are
                none of a tokenizer.
        """
        if not self._places:
            raise DataError("the collator is not prepared: call prepare() with all texts first")
        features = list(features) if isinstance(features, Iterable) else []
        if not features or not all(isinstance(f, Mapping) and "input_ids" in f for f in features):
            raise DataError(
                "the collator takes a list of what the tokenizer returned for each text: input_ids"
            )
        batch = collate(self.task.texts, torch.tensor([self._place_of(text) for text in features]))
        generator = self._next_generator()
        chosen = self.task.checked_choice(batch, generator)
        masked = corrupt(
            batch.input_ids,
            chosen,
            self.tokenizer.mask_token_id,
            self.task.random_ids,
            generator,
            *CORRUPTIONS[self.task.options.corruption],
        )
        inputs = {"input_ids": masked, "attention_mask": batch.attention_mask}
        if batch.token_type_ids is not None:
            inputs["token_type_ids"] = batch.token_type_ids
        return {**inputs, "labels": batch.input_ids.masked_fill(~chosen, -100)}

    def _place_of(self, feature: Any) -> int:
        try:
            ids = torch.as_tensor(feature["input_ids"], dtype=torch.int32).flatten()
            if (mask := feature.get("attention_mask")) is not None:
                ids = ids[torch.as_tensor(mask).bool().flatten()]
            place = self._places.get(ids.numpy().tobytes())
            shown = shorten(self.tokenizer.decode(ids)) if place is None else ""
        except (TypeError, ValueError, RuntimeError, IndexError, OverflowError):
            raise DataError(
                "input_ids and attention_mask have to be those of one text, as the tokenizer "
                "returned them"
            ) from None
        if place is None:
            raise DataError(
                f"the collator was not prepared for {shown}: prepare all texts, and tokenise with "
                f"truncation=True, max_length={self.max_length}"
            )
        return place

    def _next_generator(self) -> torch.Generator:
        worker = get_worker_info()
        loader = "no worker" if worker is None else worker.seed
        self._batches += 1
        return rng.generator(self.seed, self.task.name, process_number(), loader, self._batches)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was prepared to a safetensors file, atomically.

        Raises:
            UserError: Nothing was prepared, the strategy keeps what is neither tensor nor number,
                or the file cannot be written.
        """
        if not self._places:
            raise UserError("nothing is prepared that could be saved: call prepare() first")
        kept = dict(_kept(self.task))
        for name in (field.name for field in fields(TokenizedTexts)):
            kept[f"texts/{name}"] = getattr(self.task.texts, name)
        tensors = {key: value for key, value in kept.items() if isinstance(value, Tensor)}
        values = {key: value for key, value in kept.items() if key not in tensors}
        for key, value in values.items():
            if value is not None and not isinstance(value, int | float | str):
                kind = f"{self.task.name} keeps {key} of type {type(value).__name__}"
                raise UserError(f"{kind}, which cannot be saved: keep tensors, numbers and texts")
        content = {
            "strategy": self.task.name,
            "options": self.task.options.model_dump(mode="json"),
            "settings": {"max_length": self.max_length, "seed": self.seed},
            "tokenizer": content_key(tokenizer_settings(self.tokenizer)),
            "values": values,
        }
        tensors = {key: value.clone().contiguous() for key, value in tensors.items()}
        header = {"content": content, "sha256": _checksum(content, tensors)}
        write_bytes(user_path(path), save(tensors, {"collator": json.dumps(header)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str], tokenizer: Any) -> Self:
        """Return the collator that :meth:`save` has written; its strategy must be registered.

        Raises:
            UserError: The file is missing, damaged, or of another tokenizer.
        """
        place = user_path(path)
        if not place.exists():
            raise UserError(f"there is no file {place}: check the path")
        try:
            os.close(regular(str(place), os.O_RDONLY))  # opening a pipe would wait for ever
            with safe_open(place, framework="pt") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                header = json.loads((file.metadata() or {}).get("collator", "{}"))
            content = header.get("content")
            if header and header.get("sha256") != _checksum(content, tensors):
                raise ValueError("its checksum is not that of its values")
        except (OSError, ValueError, SafetensorError) as fault:
            raise UserError(unusable(place, fault, "prepare and save it again")) from None
        if not header:
            raise UserError(f"{place} is no file that MaskingCollator.save has written")
        _check_tokenizer(tokenizer)
        if content["tokenizer"] != content_key(tokenizer_settings(tokenizer)):
            raise UserError(f"{place} belongs to another tokenizer: load it with that one")
        collator = cls(tokenizer, content["strategy"], **content["settings"], **content["options"])
        kept = {**tensors, **content["values"]}
        names = [field.name for field in fields(TokenizedTexts)]
        collator._take(TokenizedTexts(**{name: kept.pop(f"texts/{name}") for name in names}))
        for key, value in kept.items():
            owner = collator.task
            *numbers, name = key.split("/")
            for number in numbers:
                owner = owner.parts[int(number)]
            owner.texts = collator.task.texts
            setattr(owner, name, value)
        return collator


def _check_tokenizer(tokenizer: Any) -> None:
    # Of a class in place of an object, is_fast is a property.
    if getattr(tokenizer, "is_fast", None) is not True or tokenizer.mask_token_id is None:
        raise ConfigError("MaskingCollator needs a fast tokenizer with a mask token")


def _kept(task: MaskedLanguageModelling, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a prepared strategy keeps, and what its parts do, by the way to it."""
    for name, value in vars(task).items():
        again = isinstance(getattr(type(task), name, None), cached_property)
        if not again and name not in ("options", "texts", "parts"):
            yield f"{prefix}{name}", value
    for number, part in enumerate(task.parts):
        yield from _kept(part, f"{prefix}{number}/")


def _checksum(content: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    names = sorted(tensors)
    return content_key(content, names, *(tensors[name] for name in names))
