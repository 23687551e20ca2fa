"""The shared encoder: one body with a classification and a masked-language-model head."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file, save_model
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.utils import logging as transformers_logging

from auxlearn.core import rng
from auxlearn.core.cache import content_key
from auxlearn.core.errors import EncoderError
from auxlearn.core.settings import Windowing, WindowPooling
from auxlearn.data.batches import Batch
from auxlearn.data.tokens import HEAD
from auxlearn.encoders.device import FUSED, full_precision, unfused_attention, upcast, upload
from auxlearn.encoders.families import (
    attention_mask,
    family_of,
    last_states,
    pairwise_mask,
    states_at,
)
from auxlearn.kinds.base import Kind
from auxlearn.kinds.choose import CLASSIFICATION


def pool_windows(values: Tensor, batch: Batch, pooling: WindowPooling) -> Tensor:
    """Pool values of rows, ``(batch, ...)``, over the windows of each text: ``(texts, ...)``."""
    if batch.windows is None:
        return values
    pool = torch.amax if pooling == "max" else torch.mean
    return torch.stack([pool(rows, 0) for rows in values.split(batch.windows.tolist())])


def copy_tensors(targets: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy values into parameters and buffers in place, by name."""
    with torch.no_grad():
        for name, tensor in targets.items():
            tensor.copy_(values[name])


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' messages and bars; one thread loads at a time, by global defaults."""
    with rng.ONE_THREAD:
        verbosity = transformers_logging.get_verbosity()
        bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        try:
            yield
        finally:
            transformers_logging.set_verbosity(verbosity)
            if bars:
                transformers_logging.enable_progress_bar()


#: Name of the file of the masked-language-model head beside the heads of objectives.
LANGUAGE_MODEL_HEAD = "language_model"


class SharedEncoder(nn.Module):
    """A text encoder with a classification head and a masked-language-model head.

    Both heads belong to native models of transformers, which share the same body object, so that
    both are ordinary transformers models at any time.

    Args:
        classifier: An ``AutoModelForSequenceClassification``, or for tags of words an
            ``AutoModelForTokenClassification``.
        language_model: An ``AutoModelForMaskedLM`` of the same architecture. Its body is replaced
            by the classifier's, and its output layer is tied to that body's embeddings if its
            configuration says so.
        tokenizer: The fast tokenizer of both.
        kind: Kind of the labels that the classifier is for.

    Attributes:
        heads: Heads of objectives by key, empty until an objective adds one; see
            :meth:`~auxlearn.objectives.context.ObjectiveContext.add_head`.
        new_language_model_head: Whether the masked-language-model head is newly initialised, so
            that it predicts at chance.
        random_head: Whether such a head may be used all the same, to be trained.
        language_model_used: Whether anything has required the masked-language-model head.
        kept_classifier: Whether the classification head is that of the checkpoint, as it was
            trained for the same labels; ``None`` if the checkpoint has none.
        window_pooling: How logits and features of the windows of a text become those of the text.
        notes: What a user is to know of how its files were read, a sentence each.
    """

    def __init__(
        self, classifier: Any, language_model: Any, tokenizer: Any, kind: Kind = CLASSIFICATION
    ) -> None:
        super().__init__()
        self.kind = kind
        self.classifier = classifier
        self.language_model = language_model
        self.tokenizer = tokenizer
        self.heads = nn.ModuleDict()
        self.new_language_model_head = False
        self.random_head = False
        self.language_model_used = False
        self.kept_classifier: bool | None = None
        self.window_pooling: WindowPooling = "mean"
        self.notes: list[str] = []
        self.family = family_of(classifier.config.model_type)
        self._prefix = classifier.base_model_prefix
        setattr(language_model, self._prefix, self.body)
        language_model.tie_weights()

    def require_language_model(self, name: str, *, trained: bool = True) -> None:
        """Check, for who needs it, that the masked-language-model head was pretrained; a new one
        can do where it is ``trained``.
        """
        self.language_model_used = True
        if self.lacks_language_model:
            new = ", or train with a newly initialised one by --random-head" if trained else ""
            raise EncoderError(
                f"'{name}' needs a pretrained masked-language-model head, which this encoder does "
                f"not have: fit one with `auxlearn pretrain --trainable head`{new}"
            )

    @property
    def lacks_language_model(self) -> bool:
        """Whether the masked-language-model head is newly initialised, and stays so."""
        return self.new_language_model_head and not self.random_head

    @property
    def body(self) -> Any:
        """The transformers model without a head."""
        return getattr(self.classifier, self._prefix)

    @property
    def config(self) -> Any:
        """The transformers configuration of the classifier."""
        return self.classifier.config

    @property
    def hidden_size(self) -> int:
        """Size of a hidden state."""
        return int(self.config.hidden_size)

    @property
    def compiled(self) -> bool:
        """Whether the body runs through ``torch.compile``."""
        return self.body._compiled_call_impl is not None

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    def encode(
        self, batch: Batch, attends: Tensor | None = None, positions: Tensor | None = None
    ) -> Any:
        """Run the body.

        Args:
            batch: The texts, on the CPU; inputs are copied to the encoder's device.
            attends: Which tokens each token attends to, ``(batch, length, length)``, bool, at least
                one for each; by default all that are not padding. Some architectures take none:
                see :func:`~auxlearn.encoders.families.require_pairwise_attention`.
            positions: Position of each token in its text, from 0, ``(batch, length)``, with
                ``attends``; by default its place.

        Returns:
            The body's output with ``last_hidden_state`` of ``(batch, length, hidden size)``.
        """
        device = self.device
        inputs: dict[str, Any] = {"input_ids": upload(batch.input_ids, device)}
        if attends is None:
            inputs["attention_mask"] = attention_mask(self.config, batch.attention_mask, device)
        else:
            inputs["attention_mask"] = pairwise_mask(self.config, attends, positions, device)
        if positions is not None:
            first = self.config.pad_token_id + 1 if self.family.counts_from_padding else 0
            inputs["position_ids"] = upload(positions + first, device)
        if batch.token_type_ids is not None:
            inputs["token_type_ids"] = upload(batch.token_type_ids, device)
        if self.config.is_encoder_decoder:
            inputs["use_cache"] = False
        return self.body(**inputs, return_dict=True)

    def classify(self, batch: Batch) -> Tensor:
        """Return class logits, ``(texts, classes)``, in single precision or better.

        Of tags of words they are ``(batch, length, tags)``, and of numbers ``(texts, 1)``. Those of
        a text in windows are pooled over its windows.

        The head, a pooler included, is computed without autocast.
        """
        return self._class_logits(self.encode(batch).last_hidden_state, batch)

    def classify_with_features(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return :meth:`classify` and :meth:`features` of one pass through the body."""
        hidden = self.encode(batch).last_hidden_state
        return self._class_logits(hidden, batch), self.features_of(hidden, batch)

    def _class_logits(self, hidden: Tensor, batch: Batch) -> Tensor:
        with full_precision(hidden.device):
            if self.kind.per_token:
                assert self.family.tag_logits is not None
                return self.family.tag_logits(self.classifier, upcast(hidden))
            logits = self.family.class_logits(self.classifier, upcast(hidden), batch)
            return pool_windows(logits, batch, self.window_pooling)

    def features(self, batch: Batch) -> Tensor:
        """Return one vector per text, ``(texts, hidden size)``, in single precision or better.

        It is the last hidden state at the token that the classification head uses: the first token,
        or the last one of an encoder-decoder; of a text in windows, pooled over its windows.
        """
        return self.features_of(self.encode(batch).last_hidden_state, batch)

    def features_of(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return :meth:`features` from the last hidden states of a batch."""
        first_or_last = hidden[:, 0]
        if self.config.is_encoder_decoder:
            first_or_last = last_states(hidden, batch)
        return pool_windows(upcast(first_or_last), batch, self.window_pooling)

    def predict_tokens(self, batch: Batch, positions: Tensor) -> Tensor:
        """Return vocabulary logits at the given positions only.

        The output layer is the most expensive operation of a small encoder; at 15% masking,
        applying it to all positions would be six times the necessary work.

        Args:
            batch: The (corrupted) texts.
            positions: Positions to predict, ``(batch, length)``, bool; preferably on the CPU, where
                counting them does not synchronise with a GPU.

        Returns:
            Logits ``(positions.sum(), vocabulary)`` in row-major order of the positions, in single
            precision or better. Under autocast the head and the product with the vocabulary are
            computed in half precision, as in transformers, which rounds the logits; a softmax over
            them is computed in single precision.
        """
        return self.token_logits(states_at(self.encode(batch).last_hidden_state, positions))

    def token_logits(self, states: Tensor) -> Tensor:
        """Return vocabulary logits from some last hidden states; see :meth:`predict_tokens`.

        Args:
            states: ``(n, hidden size)``; :func:`states_at` returns those of some positions.
        """
        return upcast(self.family.token_logits(self.language_model, states))

    @contextmanager
    def watching_embeddings(self, report: Callable[[Tensor, Tensor], None]) -> Iterator[None]:
        """Report gradients of what is computed within the context at the input embeddings, by
        token ids and gradients on the CPU.
        """
        if self.compiled:
            raise EncoderError("gradients at the tokens cannot be watched: leave --compile out")

        def watch(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
            if not torch.is_grad_enabled():
                return
            if not output.requires_grad:
                raise EncoderError(
                    "gradients at the tokens cannot be watched, because the embeddings are frozen: "
                    "leave --freeze and --lora-rank out"
                )
            ids = inputs[0].cpu()
            output.register_hook(lambda gradient: report(ids, gradient.cpu()))

        with self.body.get_input_embeddings().register_forward_hook(watch):
            yield

    def apply_head(self, key: str, *inputs: Tensor) -> Any:
        """Apply a head of an objective, in single precision or better.

        Args:
            key: What :meth:`~auxlearn.objectives.context.ObjectiveContext.add_head` returned.
            inputs: Inputs of the head, on the encoder's device.

        Returns:
            What the head returns.
        """
        with full_precision(self.device):
            floats = (upcast(tensor) if tensor.is_floating_point() else tensor for tensor in inputs)
            return self.heads[key](*floats)

    def forward(self, compute: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function whose first argument is the encoder, such as one of its methods.

        Functional copies of a module (as made by ``higher``) can only be used through ``forward``.
        """
        return compute(self, *arguments)

    @contextmanager
    def twice_differentiable(self) -> Iterator[bool]:
        """Use attention with a second derivative, which fused attention lacks, within the context;
        yield whether it differs from the usual one.
        """
        if self.compiled:
            raise EncoderError("a compiled encoder has no second derivative: leave --compile out")
        usual = self.config._attn_implementation
        if usual == "eager":
            yield False
            return
        with sdpa_kernel(SDPBackend.MATH) if usual in FUSED else unfused_attention(self.body):
            yield True

    @property
    def has_dropout(self) -> bool:
        """Whether any dropout probability, of the classification head or the body, is above zero:
        some are those of modules, others plain numbers of layers that call the function.
        """
        return any(
            (isinstance(module, nn.Dropout) and module.p > 0)
            or any(
                "drop" in name and isinstance(p, float) and p > 0
                for name, p in vars(module).items()
            )
            for module in self.classifier.modules()
        )

    def body_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that all objectives share, a tied output layer included; a pooler,
        which only classification uses, counts as part of its head.
        """
        poolers = self.family.pooler_prefixes
        return [p for name, p in self.body.named_parameters() if not name.startswith(poolers)]

    def classification_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that only classification uses: its head and a pooler."""
        body = {id(parameter) for parameter in self.body_parameters()}
        return [p for p in self.classifier.parameters() if id(p) not in body]

    def head_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the classification head and of the heads of objectives."""
        return [*self.classification_parameters(), *self.heads.parameters()]

    def tensors(self) -> dict[str, Tensor]:
        """Return all parameters and persistent buffers by name; tied ones once, by first name."""
        every = self.state_dict(keep_vars=True)
        first = {id(tensor): name for name, tensor in reversed(every.items())}
        return {name: tensor for name, tensor in every.items() if first[id(tensor)] == name}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Copy values, as returned by :meth:`tensors`, into the parameters and buffers."""
        current = self.tensors()
        if differing := current.keys() ^ tensors.keys():
            raise ValueError(f"other tensors than this encoder's: {differing}")
        copy_tensors(current, tensors)

    def language_model_fingerprint(self) -> str:
        """Return a hash of everything that token predictions depend on, without pooler and classes:
        runs that differ only in these share cached token scores.
        """
        # JSON converts the other values of a configuration, such as a dtype, to text.
        settings = json.loads(self.config.to_json_string(use_diff=False))
        architecture = {
            key: value
            for key, value in settings.items()
            if not key.startswith("_") and "dropout" not in key and key not in _CLASSIFIER_KEYS
        }
        weights = {
            name: tensor
            for name, tensor in self.language_model.state_dict().items()
            if ".pooler." not in name
        }
        return content_key("language model", architecture, list(weights), *weights.values())

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Disable dropout within the context, in which a compiled body runs eagerly."""
        modes = [(module, module.training) for module in self.modules()]
        self.eval()
        try:
            with torch.compiler.set_stance("force_eager") if self.compiled else nullcontext():
                yield
        finally:
            for module, training in modes:
                module.training = training

    def save(
        self,
        folder: Path,
        max_length: int,
        windowing: Windowing = HEAD,
        further: dict[str, Any] | None = None,
    ) -> None:
        """Save the classifier and its tokenizer, with ``max_length``, as a standard transformers
        folder; how longer texts are read, if not as usual, becomes entries of ``config.json``,
        beside ``further`` ones.
        """
        config = self.classifier.config
        entries = windowing.model_dump(exclude_defaults=not windowing.in_windows) | (further or {})
        for name in (*Windowing.model_fields, *_LABEL_ENTRIES):
            if name in entries:
                setattr(config, name, entries[name])
            elif hasattr(config, name):  # of a model that was trained further
                delattr(config, name)
        with quiet_transformers():
            self.classifier.save_pretrained(folder)
        previous = self.tokenizer.model_max_length
        self.tokenizer.model_max_length = max_length
        try:
            self._save_tokenizer(folder)
        finally:
            self.tokenizer.model_max_length = previous

    def language_model_head(self) -> dict[str, Tensor]:
        """Return the tensors of the masked-language-model head that the body does not share."""
        prefix = "language_model."
        return {
            name.removeprefix(prefix): tensor
            for name, tensor in self.tensors().items()
            if name.startswith(prefix)
        }

    def load_language_model_head(self, tensors: dict[str, Tensor]) -> None:
        """Copy what :meth:`language_model_head` returned in an equal encoder."""
        current = self.language_model_head()
        if {n: t.shape for n, t in current.items()} != {n: t.shape for n, t in tensors.items()}:
            raise EncoderError("the masked-language-model head is of another encoder: train again")
        copy_tensors(current, tensors)
        self.new_language_model_head = False

    def save_heads(self, folder: Path) -> None:
        """Save the heads of objectives, each as ``OBJECTIVE/NAME.safetensors``, and a trained
        masked-language-model head into a folder, for ``load_state_dict(load_file(path))``.
        """
        for key, head in self.heads.items():
            path = folder / f"{key}.safetensors"
            path.parent.mkdir(exist_ok=True)
            save_model(head, str(path))
        if not self.lacks_language_model:
            tensors = self.language_model_head().items()
            saved = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors}
            save_file(saved, str(folder / f"{LANGUAGE_MODEL_HEAD}.safetensors"))

    def save_language_model(self, folder: Path) -> None:
        """Save the masked language model and its tokenizer as a standard transformers folder."""
        with quiet_transformers():
            self.language_model.save_pretrained(folder)
        self._save_tokenizer(folder)

    def _save_tokenizer(self, folder: Path) -> None:
        """Save the tokenizer without truncation and padding of its last call, which it keeps."""
        self.tokenizer.backend_tokenizer.no_truncation()
        self.tokenizer.backend_tokenizer.no_padding()
        self.tokenizer.save_pretrained(folder)


#: Entries of an exported configuration that are of the kind of the labels.
_LABEL_ENTRIES = ("constant_prediction", "thresholds")

#: Keys of a configuration that do not affect the language model.
_CLASSIFIER_KEYS = (
    "architectures",
    "id2label",
    "label2id",
    "problem_type",
    *_LABEL_ENTRIES,
    *Windowing.model_fields,
)
