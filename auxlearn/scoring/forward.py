"""Token probabilities at chosen positions, computed with no more work than they need.

An encoder's forward pass serves every position; scoring reads a few. Of the last layer, keys and
values are needed everywhere, but queries, feed-forward and norms at the read positions alone, and
the output layer too. In the first layer a token's projections depend on the token and its place
only, so masked copies of one text share nearly all of them. Blocks of different lengths are laid
end to end, so that nothing is padding: all but attention works token by token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from auxlearn.data.batches import Batch
from auxlearn.devices import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.scoring.packed_linear import Linear, inference_linear, packing_works


@dataclass(frozen=True)
class Block:
    """Inputs of one length.

    Attributes:
        input_ids: Token ids, ``(rows, length)``, int64; none is padding.
        targets: Positions to be read, ``(rows, length)``, bool.
        token_type_ids: Segments, ``(rows, length)``, int64, or ``None``.
    """

    input_ids: Tensor
    targets: Tensor
    token_type_ids: Tensor | None = None


class ScoringPass(Protocol):
    """An encoder made ready for scoring; to be used in inference mode, dropout off."""

    def states(self, blocks: Sequence[Block]) -> Tensor:
        """Return the last hidden states at the targets of all blocks, in row-major order."""

    def logprobs(self, states: Tensor, token_ids: Tensor) -> Tensor:
        """Return the log-probability of one token at each state, ``(states,)``, float32.

        They are on the encoder's device, so that it need not be waited for here.
        """


def scoring_pass(encoder: SharedEncoder, dtype: torch.dtype = torch.float32) -> ScoringPass:
    """Make an encoder ready for scoring.

    Args:
        encoder: The encoder, whose weights are read now: they must not change before the last use.
        dtype: What the layers compute in. The output layer and the sum over the vocabulary are in
            float32, because a logit in bfloat16 is off by more than the layers make it.
    """
    parts = STACKS.get(encoder.config.model_type)
    if parts is None:
        return WholePass(encoder, dtype)
    return TargetPass(encoder, parts(encoder), dtype)


def numerical_variant(encoder: SharedEncoder, dtype: torch.dtype) -> tuple[str, ...]:
    """Return what the last digits of scores depend on beside weights and texts.

    In bfloat16, log-probabilities from a GPU, from packed and from plain linear layers differ by
    up to 0.1 nats. Scores that are kept must be kept apart by this.

    Args:
        encoder: The encoder, on the device that it will score on.
        dtype: As for :func:`scoring_pass`.

    Returns:
        Kind of device, dtype, and which pass and linear layers :func:`scoring_pass` will use.
    """
    device = encoder.device.type
    if encoder.config.model_type not in STACKS:
        return device, str(dtype), "whole pass"
    packed = device == "cpu" and packing_works(dtype)
    return device, str(dtype), "packed" if packed else "plain"


class WholePass:
    """The ordinary pass, for architectures whose layers are not known here."""

    def __init__(self, encoder: SharedEncoder, dtype: torch.dtype) -> None:
        self._encoder = encoder
        self._dtype = dtype

    def states(self, blocks: Sequence[Block]) -> Tensor:
        """See :class:`ScoringPass`."""
        return torch.cat([self._block(block) for block in blocks])

    def _block(self, block: Block) -> Tensor:
        device = self._encoder.device
        batch = Batch(
            input_ids=block.input_ids,
            attention_mask=torch.ones_like(block.input_ids),
            maskable=torch.ones_like(block.input_ids, dtype=torch.bool),
            words=torch.zeros_like(block.input_ids),
            indices=torch.arange(len(block.input_ids)),
            token_type_ids=block.token_type_ids,
        )
        with torch.autocast(
            device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16, cache_enabled=False
        ):
            hidden = self._encoder.encode(batch).last_hidden_state
        row, column = block.targets.nonzero(as_tuple=True)
        return hidden[upload(row, device), upload(column, device)].float()

    def logprobs(self, states: Tensor, token_ids: Tensor) -> Tensor:
        """See :class:`ScoringPass`."""
        encoder = self._encoder
        return _pick(encoder.family.token_logits(encoder.language_model, states), token_ids)


def _pick(logits: Tensor, token_ids: Tensor) -> Tensor:
    picked = logits.gather(1, upload(token_ids, logits.device)[:, None]).squeeze(1)
    return (picked - logits.logsumexp(-1)).float()


@dataclass(frozen=True)
class Layer:
    """The modules of one transformer layer whose norms come after the sums."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    attention_output: nn.Linear
    attention_norm: nn.LayerNorm
    up: nn.Linear
    activation: Callable[[Tensor], Tensor]
    down: nn.Linear
    output_norm: nn.LayerNorm


@dataclass(frozen=True)
class Stack:
    """Where an architecture keeps what a pass needs.

    Attributes:
        layers: The layers from first to last.
        heads: Attention heads of each.
        embed: ``(token ids, positions, segments)``, each ``(tokens,)``, to ``(tokens, width)``.
        transform: The part of the token head before its output layer.
    """

    layers: list[Layer]
    heads: int
    embed: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    transform: Callable[[Tensor], Tensor]


class TargetPass:
    """A pass that computes what the targets need and nothing else.

    Args:
        encoder: The encoder.
        stack: Its parts.
        dtype: What the layers compute in.
    """

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

    def states(self, blocks: Sequence[Block]) -> Tensor:
        """See :class:`ScoringPass`."""
        shapes = [(block.input_ids.shape[0], block.input_ids.shape[1]) for block in blocks]
        distinct, places = self._distinct(blocks)
        hidden = distinct.index_select(0, places)
        for number, layer in enumerate(self._lower):
            # Where a token stands among others shows from the second layer on.
            projected = (
                layer.project(distinct).index_select(0, places)
                if number == 0
                else layer.project(hidden)
            )
            hidden = layer.finish(projected, hidden, shapes)
        return self._last(hidden, blocks, shapes).float()

    def logprobs(self, states: Tensor, token_ids: Tensor) -> Tensor:
        """See :class:`ScoringPass`."""
        return _pick(self._output(self._stack.transform(states)), token_ids)

    def _distinct(self, blocks: Sequence[Block]) -> tuple[Tensor, Tensor]:
        """Embed each (token, position, segment) once; return them, and which is where."""
        parts = []
        for block in blocks:
            position = torch.arange(block.input_ids.shape[1])
            segment = 0 if block.token_type_ids is None else block.token_type_ids
            parts.append(
                ((segment * _LONGEST + position) * self._vocabulary + block.input_ids).flatten()
            )
        keys, places = torch.cat(parts).unique(return_inverse=True)
        token_ids, rest = keys % self._vocabulary, keys // self._vocabulary
        segments = None if blocks[0].token_type_ids is None else (rest // _LONGEST)
        embedded = self._stack.embed(
            upload(token_ids, self._device),
            upload(rest % _LONGEST, self._device),
            None if segments is None else upload(segments, self._device),
        )
        return embedded.to(self._dtype), upload(places, self._device)


#: More than any text has tokens; keeps position and segment apart in one number.
_LONGEST = 1 << 20


class _LayerEnd:
    """What follows attention: output projection, norms, feed-forward."""

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
        """``(rows * n, width)`` to ``(rows, heads, n, width of a head)``, without a copy."""
        return flat.unflatten(0, (rows, -1)).unflatten(-1, (self._heads, -1)).transpose(1, 2)


class _LowerLayer(_LayerEnd):
    """A layer below the last: computed at every position."""

    def __init__(self, layer: Layer, heads: int, dtype: torch.dtype) -> None:
        super().__init__(layer, heads, dtype)
        self._projections = _joined((layer.query, layer.key, layer.value), dtype)

    def project(self, hidden: Tensor) -> Tensor:
        """Queries, keys and values side by side, ``(tokens, 3 * width)``."""
        return self._projections(hidden)

    def finish(self, projected: Tensor, hidden: Tensor, shapes: list[tuple[int, int]]) -> Tensor:
        """The layer's output from its projections and its input, ``(tokens, width)``."""
        contexts = []
        for (rows, length), part in zip(
            shapes, projected.split([rows * length for rows, length in shapes]), strict=True
        ):
            query, key, value = (self._split_heads(p, rows) for p in part.chunk(3, -1))
            context = scaled_dot_product_attention(query, key, value)
            contexts.append(context.transpose(1, 2).reshape(rows * length, -1))
        return self._end(contexts[0] if len(contexts) == 1 else torch.cat(contexts), hidden)


class _LastLayer(_LayerEnd):
    """The last layer: keys and values everywhere, all else at the targets."""

    def __init__(self, layer: Layer, heads: int, dtype: torch.dtype) -> None:
        super().__init__(layer, heads, dtype)
        self._query = _linear(layer.query, dtype)
        self._keys_values = _joined((layer.key, layer.value), dtype)

    def __call__(
        self, hidden: Tensor, blocks: Sequence[Block], shapes: list[tuple[int, int]]
    ) -> Tensor:
        """The layer's output at the targets of all blocks, ``(targets, width)``."""
        device = hidden.device
        sizes = [rows * length for rows, length in shapes]
        read = torch.cat([block.targets.flatten() for block in blocks]).nonzero().squeeze(1)
        at_targets = hidden.index_select(0, upload(read, device))
        queries = self._query(at_targets).split([int(block.targets.sum()) for block in blocks])
        contexts = []
        for block, part, query in zip(
            blocks, self._keys_values(hidden).split(sizes), queries, strict=True
        ):
            rows = len(block.targets)
            key, value = (self._split_heads(p, rows) for p in part.chunk(2, -1))
            # Rows that are read at fewer positions than others get slots that nobody looks at.
            slot = block.targets.cumsum(1) - 1
            most = int(slot[:, -1].max()) + 1
            slots = upload((torch.arange(rows)[:, None] * most + slot)[block.targets], device)
            padded = query.new_zeros(rows * most, query.shape[1]).index_copy_(0, slots, query)
            context = scaled_dot_product_attention(self._split_heads(padded, rows), key, value)
            flat = context.transpose(1, 2).reshape(rows * most, -1)
            contexts.append(flat.index_select(0, slots))
        return self._end(torch.cat(contexts), at_targets)


def _linear(module: nn.Linear, dtype: torch.dtype) -> Linear:
    return inference_linear(module.weight, module.bias, dtype)


def _joined(modules: Sequence[nn.Linear], dtype: torch.dtype) -> Linear:
    """Several linear layers of one input as one."""
    return inference_linear(
        torch.cat([module.weight for module in modules]),
        torch.cat([module.bias for module in modules]),
        dtype,
    )


def _norm(module: nn.LayerNorm, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    weight, bias = module.weight.to(dtype), module.bias.to(dtype)
    return lambda x: layer_norm(x, module.normalized_shape, weight, bias, module.eps)


def _is_exact_gelu(activation: Any) -> bool:
    """Whether an activation is the GELU by the error function, judged by what it computes."""
    x = torch.linspace(-4, 4, 33)
    return torch.equal(activation(x), nn.functional.gelu(x))


def _bert_stack(encoder: SharedEncoder) -> Stack:
    """BERT, RoBERTa and ELECTRA name the parts of their bodies alike."""
    body = encoder.body
    layers = [
        Layer(
            query=layer.attention.self.query,
            key=layer.attention.self.key,
            value=layer.attention.self.value,
            attention_output=layer.attention.output.dense,
            attention_norm=layer.attention.output.LayerNorm,
            up=layer.intermediate.dense,
            activation=layer.intermediate.intermediate_act_fn,
            down=layer.output.dense,
            output_norm=layer.output.LayerNorm,
        )
        for layer in body.encoder.layer
    ]
    # RoBERTa's positions start behind the padding index.
    first = getattr(body.embeddings, "padding_idx", -1) + 1
    widen = getattr(body, "embeddings_project", nn.Identity())

    def embed(token_ids: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        embedded = body.embeddings(
            input_ids=token_ids[None],
            position_ids=positions[None] + first,
            token_type_ids=torch.zeros_like(token_ids)[None]
            if segments is None
            else segments[None],
        )
        return widen(embedded[0])

    return Stack(layers, body.config.num_attention_heads, embed, _transform(encoder))


def _distilbert_stack(encoder: SharedEncoder) -> Stack:
    body = encoder.body
    layers = [
        Layer(
            query=layer.attention.q_lin,
            key=layer.attention.k_lin,
            value=layer.attention.v_lin,
            attention_output=layer.attention.out_lin,
            attention_norm=layer.sa_layer_norm,
            up=layer.ffn.lin1,
            activation=layer.ffn.activation,
            down=layer.ffn.lin2,
            output_norm=layer.output_layer_norm,
        )
        for layer in body.transformer.layer
    ]

    def embed(token_ids: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        return body.embeddings(input_ids=token_ids[None], position_ids=positions[None])[0]

    return Stack(layers, body.config.n_heads, embed, _transform(encoder))


def _transform(encoder: SharedEncoder) -> Callable[[Tensor], Tensor]:
    model = encoder.language_model
    match encoder.config.model_type:
        case "bert":
            return model.cls.predictions.transform
        case "electra":
            return model.generator_predictions
        case "distilbert":
            return lambda x: model.vocab_layer_norm(model.activation(model.vocab_transform(x)))
        case _:
            head = model.lm_head
            return lambda x: head.layer_norm(nn.functional.gelu(head.dense(x)))


STACKS: dict[str, Callable[[SharedEncoder], Stack]] = {
    "bert": _bert_stack,
    "roberta": _bert_stack,
    "xlm-roberta": _bert_stack,
    "camembert": _bert_stack,
    "electra": _bert_stack,
    "distilbert": _distilbert_stack,
}
