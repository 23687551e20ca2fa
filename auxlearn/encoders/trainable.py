"""How the encoder is trained: frozen layers, low-rank adapters, and compilation."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from auxlearn.core import rng
from auxlearn.core.errors import ConfigError
from auxlearn.core.lazy import library
from auxlearn.core.settings import encoder_source
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder

#: Modules of the embeddings in the supported architectures.
EMBEDDINGS = re.compile(
    r"(^|\.)(embeddings|shared|embed_tokens|embed_positions|layernorm_embedding)\."
)


def freeze(encoder: SharedEncoder, part: str) -> None:
    """Exclude parameters of the body from training; dropout stays active."""
    if part == "none":
        return
    if part == "body":
        frozen = encoder.body_parameters()
    else:
        frozen = [p for name, p in encoder.body.named_parameters() if EMBEDDINGS.search(name)]
        if part != "embeddings":
            layers = lowest_layers(encoder.body, int(part))
            frozen += [p for layer in layers for p in layer.parameters()]
    for parameter in frozen:
        parameter.requires_grad_(False)


def describe_trained(encoder: SharedEncoder) -> str:
    """Return in one sentence how many parameters are trained; an unused head has no gradients."""
    parameters = list(encoder.parameters())
    unused = set()
    if not encoder.language_model_used:
        body = set(map(id, encoder.body.parameters()))
        unused = set(map(id, encoder.language_model.parameters())) - body
    trained = sum(p.numel() for p in parameters if p.requires_grad and id(p) not in unused)
    return f"{trained:,} of {sum(p.numel() for p in parameters):,} parameters are trained"


def lowest_layers(body: nn.Module, number: int) -> list[nn.Module]:
    layers = layers_of(body)
    if number > len(layers):
        raise ConfigError(
            f"freeze: {number} layers are more than the {len(layers)} of this encoder: give a "
            "smaller number, or body"
        )
    return layers[:number]


def layers_of(body: nn.Module) -> list[nn.Module]:
    """Return the layers of a body, a decoder's after an encoder's."""
    layers: list[nn.Module] = []
    inner: set[int] = set()
    for module in body.modules():
        if isinstance(module, nn.ModuleList) and id(module) not in inner:
            layers += list(module)
            inner |= {id(submodule) for member in module for submodule in member.modules()}
    return layers


class LowRankAdapters:
    """`LoRA <https://arxiv.org/abs/2106.09685>`_ by peft, on all linear layers of the body but a
    pooler, as in `QLoRA <https://arxiv.org/abs/2305.14314>`_.
    """

    def __init__(
        self, encoder: SharedEncoder, rank: int, alpha: float, dropout: float, seed: int
    ) -> None:
        peft = library("peft", "lora_rank", "lora")
        poolers = encoder.family.pooler_prefixes
        targets = [
            name
            for name, module in encoder.body.named_modules()
            if isinstance(module, nn.Linear) and not f"{name}.".startswith(poolers)
        ]
        self._config: Any = peft.LoraConfig(
            r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets
        )
        self._targets = targets
        self._encoder = encoder
        body_parameters = encoder.body_parameters()
        poolers_and_heads = encoder.classification_parameters()
        with rng.seeded(seed, "lora"):
            self._tuner: Any = peft.LoraModel(encoder.body, self._config, "default")
        for parameter in body_parameters:
            parameter.requires_grad_(False)
        for parameter in poolers_and_heads:  # the library freezes all that it has not added
            parameter.requires_grad_(True)

    def save(self, folder: Path, base: str) -> None:
        """Save adapters and classification head as ``PeftModel.from_pretrained`` reads them."""
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        encoder, classifier = self._encoder, self._encoder.classifier
        body = next(name for name, module in classifier.named_modules() if module is encoder.body)
        # Without embeddings, for which the library would ask the hub for the base model.
        adapters = get_peft_model_state_dict(
            self._tuner, adapter_name="default", save_embedding_layers=False
        )
        head_ids = {id(parameter) for parameter in encoder.classification_parameters()}
        head = {name: p for name, p in classifier.named_parameters() if id(p) in head_ids}
        tensors = {f"model.{name}": parameter.detach() for name, parameter in head.items()}
        for name, tensor in adapters.items():
            tensors[name.replace("model.", f"model.{body}.", 1)] = tensor
        depths = {name: 2 if name.startswith(f"{body}.") else 1 for name in head}  # of a pooler
        modules = {".".join(name.split(".")[:depth]) for name, depth in depths.items()}
        self._config.modules_to_save = sorted(modules)
        self._config.target_modules = self._targets  # a set by now, whose order is by chance
        self._config.base_model_name_or_path = encoder_source(base)
        self._config.save_pretrained(str(folder))
        save_file(
            {f"base_model.{name}": tensor.contiguous() for name, tensor in tensors.items()},
            str(folder / "adapter_model.safetensors"),
        )

    def merge(self) -> None:
        """Add the adapters to the weights of their layers, and remove them."""
        self._tuner.merge_and_unload()


def checkpoint_layers(encoder: SharedEncoder) -> None:
    """Keep no activations within the layers in training: the backward pass computes them again."""
    body = encoder.body
    if not body.supports_gradient_checkpointing:
        raise ConfigError(
            f"gradient_checkpointing: transformers has none for {encoder.config.model_type}: leave "
            "it out"
        )
    # Its name in newer versions of transformers, and in older ones.
    enable = getattr(body, "activation_checkpointing_enable", body.gradient_checkpointing_enable)
    enable({"use_reentrant": False})


def compile_body(
    encoder: SharedEncoder, autocast: Callable[[], AbstractContextManager[None]]
) -> None:
    """Compile the body in place, so that names of parameters, checkpoints and exports do not
    change, for batches of any shape; evaluations run eagerly (:meth:`SharedEncoder.evaluating`).
    """
    torch.compiler.reset()  # forget what an earlier run of this process has compiled
    encoder.body.compile(dynamic=True)
    # The compiler specialises code for the shapes of the first batch, which is another one in a
    # resumed run. A fixed artificial one is the same in every process.
    pad = encoder.tokenizer.pad_token_id
    mask = torch.ones(8, 32, dtype=torch.long)
    padded = mask.clone()
    padded[0, 16:] = 0
    has_segments = "token_type_ids" in encoder.tokenizer.model_input_names
    was = encoder.training
    encoder.train()
    parameters = [p for p in encoder.body_parameters() if p.requires_grad]
    for attention in (mask, padded):
        ids = torch.full_like(mask, encoder.tokenizer.mask_token_id).where(attention.bool(), pad)
        batch = Batch(
            input_ids=ids,
            attention_mask=attention,
            maskable=attention.bool(),
            words=torch.zeros_like(mask),
            indices=torch.arange(len(mask)),
            token_type_ids=torch.zeros_like(mask) if has_segments else None,
        )
        with rng.seeded(0, "compile", device=encoder.device), autocast():
            hidden = encoder.encode(batch).last_hidden_state
        torch.autograd.grad(hidden.float().sum(), parameters, allow_unused=True)
    encoder.train(was)
