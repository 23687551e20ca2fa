"""Forward passes that compute token probabilities at target positions only.

The last layer computes keys and values at all positions, everything else at the targets only. In
the first layer the projections depend on token and position alone, so that masked copies of a text
share most of them. Batches of different lengths are packed without padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from auxlearn.data.batches import Batch
from auxlearn.encoders.device import upload
from auxlearn.encoders.families import Layer, Stack
from auxlearn.encoders.shared import SharedEncoder

#: ``linear(x)`` or ``linear(x, residual)``: ``x @ weight.T + bias``, plus a residual.
Linear = Callable[..., Tensor]


def inference_linear(
    weight: Tensor, bias: Tensor | None, dtype: torch.dtype, gelu: bool = False
) -> Linear:
    """Return a layer of inputs ``(n, in)``, with a residual ``(n, out)`` or the exact GELU."""
    weight = weight.detach().to(dtype)
    bias = None if bias is None else bias.detach().to(dtype)
    if weight.device.type == "cpu" and packing_works(dtype):
        return _packed(weight, bias, gelu)
    return _plain(weight, bias, gelu)


@lru_cache
def packing_works(dtype: torch.dtype) -> bool:
    """Whether torch has packed linear layers on this machine and they compute correct results."""
    generator = torch.Generator().manual_seed(0)
    x, weight, bias, residual = (
        torch.randn(shape, generator=generator).to(dtype)
        for shape in ((5, 48), (64, 48), (64,), (5, 64))
    )
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    try:
        with torch.inference_mode():
            for gelu, extra in ((False, ()), (False, (residual,)), (True, ())):
                computed = _packed(weight, bias, gelu)(x, *extra)
                wanted = _plain(weight.float(), bias.float(), gelu)(
                    x.float(), *(argument.float() for argument in extra)
                )
                if computed.dtype != dtype or not torch.allclose(
                    computed.float(), wanted, atol=tolerance, rtol=tolerance
                ):
                    return False
    except (AttributeError, RuntimeError, TypeError):  # no such operator, or another signature
        return False
    return True


def _packed(weight: Tensor, bias: Tensor | None, gelu: bool) -> Linear:
    operators: Any = torch.ops.mkldnn
    packed = operators._reorder_linear_weight(weight)
    attribute, algorithm = ("gelu", "none") if gelu else ("none", "")

    def linear(x: Tensor, residual: Tensor | None = None) -> Tensor:
        if residual is not None:
            return operators._linear_pointwise.binary(x, residual, packed, bias, "add")
        return operators._linear_pointwise(x, packed, bias, attribute, [], algorithm)

    return linear


def _plain(weight: Tensor, bias: Tensor | None, gelu: bool) -> Linear:
    def linear(x: Tensor, residual: Tensor | None = None) -> Tensor:
        y = nn.functional.linear(x, weight, bias)
        if residual is not None:
            return y.add_(residual)
        return nn.functional.gelu(y) if gelu else y

    return linear


@dataclass(frozen=True)
class UnpaddedBatch:
    """Inputs of equal length, without padding, ``(batch, length)``."""

    input_ids: Tensor
    targets: Tensor  # target positions, bool
    token_type_ids: Tensor | None = None  # segments


def scoring_pass(encoder: SharedEncoder, dtype: torch.dtype = torch.float32) -> ScoringPass:
    """Return the fastest scoring pass; output layer and sums over the vocabulary are in float32."""
    if encoder.family.stack is None:
        return WholePass(encoder, dtype)
    return TargetPass(encoder, encoder.family.stack(encoder.body), dtype)


def numerical_variant(encoder: SharedEncoder, dtype: torch.dtype) -> tuple[str, ...]:
    """Return what rounding depends on; in bfloat16 it moves scores by up to 0.1 nats."""
    device = encoder.device.type
    if encoder.family.stack is None:
        return device, str(dtype), "whole pass"
    packed = device == "cpu" and packing_works(dtype)
    return device, str(dtype), "packed" if packed else "plain"


class WholePass:
    """Standard forward pass, for architectures that are not scored layer by layer."""

    def __init__(self, encoder: SharedEncoder, dtype: torch.dtype) -> None:
        self._encoder = encoder
        self._dtype = dtype

    def states(self, batches: Sequence[UnpaddedBatch]) -> Tensor:
        """Return the last hidden states at the targets of batches of any lengths, in row-major
        order, ``(targets, width)``, float32, on the encoder's device.
        """
        return torch.cat([self._states(batch) for batch in batches])

    def _states(self, inputs: UnpaddedBatch) -> Tensor:
        device = self._encoder.device
        batch = Batch(
            input_ids=inputs.input_ids,
            attention_mask=torch.ones_like(inputs.input_ids),
            maskable=torch.ones_like(inputs.input_ids, dtype=torch.bool),
            words=torch.zeros_like(inputs.input_ids),
            indices=torch.arange(len(inputs.input_ids)),
            token_type_ids=inputs.token_type_ids,
        )
        with torch.autocast(
            device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16, cache_enabled=False
        ):
            hidden = self._encoder.encode(batch).last_hidden_state
        row, position = inputs.targets.nonzero(as_tuple=True)
        return hidden[upload(row, device), upload(position, device)].float()

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of all tokens of the vocabulary at states ``(n, width)``, float32."""
        encoder = self._encoder
        return encoder.family.token_logits(encoder.language_model, states)


class TargetPass:
    """As :class:`WholePass`, but computes only what the target positions need."""

    def __init__(self, encoder: SharedEncoder, stack: Stack, dtype: torch.dtype) -> None:
        self._stack = stack
        self._dtype = dtype
        self._device = encoder.device
        self._vocabulary = encoder.body.get_input_embeddings().num_embeddings
        *lower, last = stack.layers
        self._lower = [_LowerLayer(layer, stack.heads, dtype) for layer in lower]
        self._last = _LastLayer(last, stack.heads, dtype)
        output = encoder.language_model.get_output_embeddings()
        self._output = inference_linear(output.weight, output.bias, torch.float32)
        assert encoder.family.transform is not None
        self._transform = encoder.family.transform(encoder.language_model)

    def states(self, batches: Sequence[UnpaddedBatch]) -> Tensor:
        shapes = [(batch.input_ids.shape[0], batch.input_ids.shape[1]) for batch in batches]
        distinct, index = self._distinct(batches)
        hidden = distinct.index_select(0, index)
        for number, layer in enumerate(self._lower):
            # The context of a token enters from the second layer on.
            projected = (
                layer.project(distinct).index_select(0, index)
                if number == 0
                else layer.project(hidden)
            )
            hidden = layer.finish(projected, hidden, shapes)
        return self._last(hidden, batches, shapes).float()

    def logits(self, states: Tensor) -> Tensor:
        return self._output(self._transform(states))

    def _distinct(self, batches: Sequence[UnpaddedBatch]) -> tuple[Tensor, Tensor]:
        """Return the embeddings of distinct (token, position, segment), and each token's index."""
        keys = []
        for batch in batches:
            position = torch.arange(batch.input_ids.shape[1])
            segment = 0 if batch.token_type_ids is None else batch.token_type_ids
            keys.append(
                ((segment * _LONGEST + position) * self._vocabulary + batch.input_ids).flatten()
            )
        distinct, index = torch.cat(keys).unique(return_inverse=True)
        token_ids, rest = distinct % self._vocabulary, distinct // self._vocabulary
        segments = None if batches[0].token_type_ids is None else (rest // _LONGEST)
        embedded = self._stack.embed(
            upload(token_ids, self._device),
            upload(rest % _LONGEST, self._device),
            None if segments is None else upload(segments, self._device),
        )
        return embedded.to(self._dtype), upload(index, self._device)


ScoringPass = WholePass | TargetPass

#: Exceeds the length of every text; combines position and segment in one integer.
_LONGEST = 1 << 20


class _LayerEnd:
    """The part of a layer after attention: output projection, norms, feed-forward."""

    def __init__(self, layer: Layer, heads: int, dtype: torch.dtype) -> None:
        gelu = _is_exact_gelu(layer.activation)
        self._heads = heads
        self._attention_output = _linear(layer.attention_output, dtype)
        self._up = inference_linear(layer.up.weight, layer.up.bias, dtype, gelu=gelu)
        self._activation = None if gelu else layer.activation
        self._down = _linear(layer.down, dtype)
        self._attention_norm = _norm(layer.attention_norm, dtype)
        self._output_norm = _norm(layer.output_norm, dtype)

    def _end(self, context: Tensor, hidden: Tensor) -> Tensor:
        attended = self._attention_norm(self._attention_output(context, hidden))
        inner = self._up(attended)
        if self._activation is not None:
            inner = self._activation(inner)
        return self._output_norm(self._down(inner, attended))

    def _split_heads(self, flat: Tensor, rows: int) -> Tensor:
        """Return ``(rows * n, width)`` as a view ``(rows, heads, n, head width)``."""
        return flat.unflatten(0, (rows, -1)).unflatten(-1, (self._heads, -1)).transpose(1, 2)


class _LowerLayer(_LayerEnd):
    """A layer before the last, computed at every position."""

    def __init__(self, layer: Layer, heads: int, dtype: torch.dtype) -> None:
        super().__init__(layer, heads, dtype)
        self._projections = _concatenated((layer.query, layer.key, layer.value), dtype)

    def project(self, hidden: Tensor) -> Tensor:
        return self._projections(hidden)

    def finish(self, projected: Tensor, hidden: Tensor, shapes: list[tuple[int, int]]) -> Tensor:
        """Return the layer's output ``(tokens, width)`` from its projections and its input."""
        contexts = []
        for (rows, length), packed in zip(
            shapes, projected.split([rows * length for rows, length in shapes]), strict=True
        ):
            query, key, value = (self._split_heads(p, rows) for p in packed.chunk(3, -1))
            context = scaled_dot_product_attention(query, key, value)
            contexts.append(context.transpose(1, 2).reshape(rows * length, -1))
        return self._end(contexts[0] if len(contexts) == 1 else torch.cat(contexts), hidden)


class _LastLayer(_LayerEnd):
    """The last layer: keys and values at all positions, everything else at the targets only."""

    def __init__(self, layer: Layer, heads: int, dtype: torch.dtype) -> None:
        super().__init__(layer, heads, dtype)
        self._query = _linear(layer.query, dtype)
        self._keys_values = _concatenated((layer.key, layer.value), dtype)

    def __call__(
        self, hidden: Tensor, batches: Sequence[UnpaddedBatch], shapes: list[tuple[int, int]]
    ) -> Tensor:
        """Return the layer's output at the targets of all batches, ``(targets, width)``."""
        device = hidden.device
        sizes = [rows * length for rows, length in shapes]
        places = torch.cat([batch.targets.flatten() for batch in batches]).nonzero().squeeze(1)
        at_targets = hidden.index_select(0, upload(places, device))
        queries = self._query(at_targets).split([int(batch.targets.sum()) for batch in batches])
        contexts = []
        for batch, packed, query in zip(
            batches, self._keys_values(hidden).split(sizes), queries, strict=True
        ):
            rows = len(batch.targets)
            key, value = (self._split_heads(p, rows) for p in packed.chunk(2, -1))
            # Texts with fewer targets than others get unused query slots.
            slot = batch.targets.cumsum(1) - 1
            most = int(slot[:, -1].max()) + 1
            slots = upload((torch.arange(rows)[:, None] * most + slot)[batch.targets], device)
            padded = query.new_zeros(rows * most, query.shape[1]).index_copy_(0, slots, query)
            context = scaled_dot_product_attention(self._split_heads(padded, rows), key, value)
            flat = context.transpose(1, 2).reshape(rows * most, -1)
            contexts.append(flat.index_select(0, slots))
        return self._end(torch.cat(contexts), at_targets)


def _linear(module: nn.Linear, dtype: torch.dtype) -> Linear:
    return inference_linear(module.weight, module.bias, dtype)


def _concatenated(modules: Sequence[nn.Linear], dtype: torch.dtype) -> Linear:
    return inference_linear(
        torch.cat([module.weight for module in modules]),
        torch.cat([module.bias for module in modules]),
        dtype,
    )


def _norm(module: nn.LayerNorm, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    weight, bias = module.weight.to(dtype), module.bias.to(dtype)
    return lambda x: layer_norm(x, module.normalized_shape, weight, bias, module.eps)


def _is_exact_gelu(activation: Any) -> bool:
    """Whether an activation is the exact (erf) GELU, tested by its values."""
    x = torch.linspace(-4, 4, 33)
    return torch.equal(activation(x), nn.functional.gelu(x))
