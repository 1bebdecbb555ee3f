"""One decoding step of a causal Transformer, computed by functions of its modules with less overhead.

`Model.forward` is written for batches of any shape. With one new token a step, it spends most of its time on reading
weights in an unfavourable order, on masks, and in Python. Here the `forward` of blocks, norms, MLPs and heads is called
directly, without `nn.Module.__call__`. Attention is written out for one query, over keys and values in buffers of the
final length. Weights of linear layers are copied once into the order that is read fastest in a product with few rows.
The logits equal those of the modules up to rounding. Models with a part that
is unknown here (`is_known`) run as modules.

b sequences · d width · h heads · g key/value heads · c channels of one head · r rotated channel pairs · m slots of the
cache · k kernel size · v vocabulary
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from seqkit.backbones.transformer import Transformer
from seqkit.generation.step_graph import triton_kernels
from seqkit.interfaces import Cache
from seqkit.model import Model
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.kv_cache import LayerCache, TransformerCache
from seqkit.nn.attention.multi_head import (
    MultiHeadAttention,
    ScaledDotProductAttention,
    gated,
)
from seqkit.nn.block import MLP, BaseBlock, ParallelBlock, PostNormBlock, PreNormBlock, Residual
from seqkit.nn.convolution import CausalConvolution
from seqkit.nn.embedder import Embedder
from seqkit.nn.heads import TiedHead, TokenHead
from seqkit.nn.mlp import GatedMLP
from seqkit.nn.position.base import PositionalEncoding, RelativePosition

BLOCKS = (PreNormBlock, PostNormBlock, ParallelBlock)
COMPOSED = (*BLOCKS, MLP, GatedMLP, Residual)
"""Modules that only call their children, so that functions can replace these."""

Function = Callable[..., Tensor]
FEW = 2
"""Sequences up to which a product on CUDA has a kernel of its own: 0.46 ms a token of GPT-2, 0.56 without; for four
and more it is not faster (H200)."""

Slot = int | Tensor
"""Slot of the new tokens; if static, each sequence has its own, [b]."""


@dataclass
class _Layer:
    """Keys, then values [b 2g m c] of a layer; inputs: the last k [b k d] of its convolution, the newest first."""

    past: Tensor
    inputs: Tensor | None


@dataclass(eq=False)
class PackedState(Cache):
    """Keys and values of all tokens so far, in buffers of the final length.

    If static, those of position p are in slot p; else in the slot of their column, and shorter prompts leave slots that
    the mask [b 1 1 m] keeps out; None: there are none.
    tables: vectors [m d] of positions to add, then complex rotations [m 1 r] of each kind of layer; None: there are
    none. positions: [b] int64, of the next tokens.
    """

    layers: list[_Layer]
    tables: list[Tensor | None]
    positions: Tensor
    num_tokens: int
    mask: Tensor | None

    def reorder(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""
        self.positions = self.positions.index_select(0, rows)
        self.mask = _rows_of(self.mask, rows)
        for layer in self.layers:
            layer.past = layer.past.index_select(0, rows)
            layer.inputs = _rows_of(layer.inputs, rows)


def _rows_of(x: Tensor | None, rows: Tensor) -> Tensor | None:
    if x is None:
        return None
    return x.index_select(0, rows)


class PackedStep:
    """Computes the logits of a model for one new token of each sequence, from functions of tensors.

    num_sequences: number of sequences that weights are packed for; steps may have any number. max_tokens: slots.
    static: True: shapes and addresses depend on no value, as a CUDA graph needs; None: on CUDA.
    """

    is_proven = True

    def __init__(
        self, model: Model, num_sequences: int, max_tokens: int, *, static: bool | None = None
    ):
        embedder = cast(Embedder, model.embedder)
        backbone = cast(Transformer, model.backbone)
        self._table = cast(nn.Embedding, embedder.content).weight
        device = self._table.device
        dtype = self._table.dtype
        self.is_static = device.type == "cuda" if static is None else static
        kernels = None if dtype == torch.float64 else triton_kernels(device)
        self._kernels = kernels
        # with one query, torch's CPU kernel is seven times slower in bfloat16 than in float32 (torch 2.11)
        self._dtype = torch.promote_types(dtype, torch.float32) if device.type == "cpu" else dtype
        self._scale = embedder.scale
        self._backbone = backbone
        self._position = embedder.position
        self._max_tokens = max_tokens
        self._kinds = list(dict.fromkeys(backbone.kinds))
        self._columns = repeat(
            torch.arange(float(max_tokens), device=device), "m -> 1 m p", p=model.spec.num_axes
        )
        between = (embedder.norm, embedder.projection, backbone.input_norm)
        self._after_embedding = [
            function_of(module, num_sequences) for module in between if module is not None
        ]
        fused = None
        if kernels is not None and _adds_and_normalises(backbone):
            fused = kernels
        self._blocks = [
            function_of(block, num_sequences, kernels, fused) for block in backbone.blocks
        ]
        if fused is None:
            self._norm = function_of(backbone.norm, num_sequences)
        else:
            self._norm = _norm_of_sum(backbone.norm, fused)
        self._head = head_function(model, num_sequences, kernels)

    def state(self, cache: Cache, positions: Tensor) -> PackedState:
        """A copy of the cache that a full forward pass filled, for the steps that follow, first at positions [b]."""
        assert isinstance(cache, TransformerCache)
        vectors: Tensor = self._position(self._columns)[0]
        tables = [vectors if len(vectors) == self._max_tokens else None]
        for kind in self._kinds:
            position = self._backbone.position_of(kind)
            rotary = None
            if position is not None:
                rotary = position.rotary(self._columns, kind.head_dim)
            if rotary is not None:
                rotary = rearrange(rotary, "1 1 m r -> m 1 r")
            tables.append(rotary)
        layers = [self._layer(layer, cache.num_tokens) for layer in cache.layers]
        # a graph's user counts
        num_tokens = 0 if self.is_static else cache.num_tokens
        past = cache.past
        if self.is_static or past is None or not past.is_padded:
            return PackedState(layers, tables, positions, num_tokens, None)
        may_attend = F.pad(past.valid, [0, self._max_tokens - num_tokens], value=True)
        return PackedState(layers, tables, positions, num_tokens, self._mask(may_attend))

    def _mask(self, may_attend: Tensor) -> Tensor:
        """Mask [b 1 1 m] to add to scores, from [b m] bool."""
        mask = torch.zeros(may_attend.shape, dtype=self._dtype, device=may_attend.device)
        return rearrange(mask.masked_fill_(~may_attend, -torch.inf), "b m -> b 1 1 m")

    def _layer(self, filled: LayerCache, n: int) -> _Layer:
        cache = cast(Any, filled.self_attention)
        inputs = filled.convolution
        both = torch.cat([cache.keys[:, :, :n], cache.values[:, :, :n]], dim=1).to(self._dtype)
        past = F.pad(both, [0, 0, 0, self._max_tokens - n])
        if inputs is not None:
            inputs = F.pad(inputs.flip(1), [0, 0, 0, 1])
        return _Layer(past, inputs)

    def __call__(self, ids: Tensor, state: PackedState) -> Tensor:
        """Logits [b v] after one more token: ids [b] int64."""
        positions = state.positions
        state.positions = state.positions + 1
        slot: Slot = state.num_tokens
        num_slots = state.num_tokens + 1
        mask = None if state.mask is None else state.mask[..., :num_slots]
        if self.is_static:
            slot = positions
            num_slots = self._max_tokens
            if self._kernels is None:
                mask = self._mask(
                    torch.arange(num_slots, device=ids.device) <= rearrange(positions, "b -> b 1")
                )
        vectors, *rotations = state.tables
        contexts = {}
        for kind, table in zip(self._kinds, rotations):
            rotary = None if table is None else table.index_select(0, positions)
            contexts[kind] = AttentionContext(mask, rotary=rotary)
        x = F.embedding(ids, self._table)
        if self._scale != 1:
            x = x * self._scale
        if vectors is not None:
            x = x + vectors.index_select(0, positions)
        for function in self._after_embedding:
            x = function(x)
        for block, kind, layer in zip(self._blocks, self._backbone.kinds, state.layers):
            x = block(x, contexts[kind], (layer, slot, num_slots))
        if not self.is_static:
            state.num_tokens = num_slots
        return self._head(self._norm(x))


def function_of(
    module: nn.Module, num_sequences: int, kernels: Any = None, fused: Any = None
) -> Function:
    """The module's `forward` on [b d]; in composed modules, functions replace the children.

    kernels: as from `triton_kernels`. fused: the same, if a block's sums are added where they are normalised.
    """
    if type(module) is nn.Linear:
        return _product(module.weight, module.bias, num_sequences, kernels)
    if type(module) is MultiHeadAttention:
        return _attention(module, num_sequences, kernels)
    if type(module) is nn.LayerNorm:  # its `forward` takes 4 µs longer
        return partial(
            torch.layer_norm,
            normalized_shape=module.normalized_shape,
            weight=module.weight,
            bias=module.bias,
            eps=module.eps,
        )
    if type(module) is nn.Dropout:
        return lambda x: x
    if _is_sum(module):
        return torch.add
    if type(module) not in COMPOSED:
        return module.forward
    composed = copy.copy(module)
    parts: dict[str, Any] = dict(module._parameters)
    for name, child in module._modules.items():
        parts[name] = None
        if child is not None:
            parts[name] = function_of(child, num_sequences, kernels)
        if fused is not None and child is not None and name not in ("attention", "mlp"):
            is_residual = type(child) is Residual
            if is_residual:
                parts[name] = _Sum
            else:
                parts[name] = _norm_of_sum(child, fused)
    # it may need the token axis
    if isinstance(module, BaseBlock) and module.has_mlp and type(module.mlp) not in COMPOSED:
        mlp = module.mlp
        parts["mlp"] = lambda x: mlp(x[:, None])[:, 0]
    vars(composed).update(parts)
    return composed.forward


def head_function(model: Model, num_sequences: int, kernels: Any = None) -> Function:
    """Logits [b v] of hidden states [b d]."""
    head = cast("TokenHead | TiedHead", model.head)
    if isinstance(head, TokenHead):
        product = _product(head.linear.weight, head.linear.bias, num_sequences, kernels)
    else:
        product = _product(head.table.weight, head.bias, num_sequences, kernels)
    if head.transform is None and head.scale == 1 and head.softcap is None:
        return product
    return partial(head._outputs, output=product)


class _Sum:
    """x + branch [b d]. A norm adds them in its kernel, and leaves the `total` for the next residual connection."""

    def __init__(self, x: Tensor | _Sum, branch: Tensor):
        if not isinstance(x, Tensor):
            x = x.x + x.branch if x.total is None else x.total
        self.x: Tensor = x
        self.branch: Tensor = branch
        self.total: Tensor | None = None


def _norm_of_sum(norm: nn.Module, kernels: Any) -> Function:
    def normed(x: Tensor | _Sum) -> Tensor:
        if isinstance(x, Tensor):
            return kernels.add_norm(x, None, norm)[1]
        x.total, found = kernels.add_norm(x.x, x.branch, norm)
        return found

    return normed


def _adds_and_normalises(backbone: Transformer) -> bool:
    """Whether residual connections only add, and all norms are of those that `kernels.add_norm` computes."""
    of_blocks = [x for block in backbone.blocks for x in block.named_children()]
    parts = [backbone.norm, *(x for name, x in of_blocks if name not in ("attention", "mlp"))]
    return all(
        _is_sum(x) or (type(x) in (nn.LayerNorm, nn.RMSNorm) and x.weight is not None)
        for x in parts
    )


def _is_sum(module: nn.Module) -> bool:
    """Whether it is a residual connection that only adds."""
    if type(module) is not Residual:
        return False
    return module.norm is module.scale is module.drop_path is None and module.fixed_scale == 1


def _product(weight: Tensor, bias: Tensor | None, num_sequences: int, kernels: Any) -> Function:
    """x @ weight.T + bias for x [b i] and weight [o i].

    `nn.Linear` stores weights row by row, and then a product with one vector reads at half the memory's bandwidth: for
    one sequence on a CPU, in float32, the weight is copied in the other order (docs/decisions.md).
    """
    if kernels is not None and num_sequences <= FEW and weight.shape[1] <= kernels.TILE:
        return partial(kernels.linear, weight=weight, bias=bias)
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or num_sequences > 1:
        return partial(F.linear, weight=weight, bias=bias)
    columns = rearrange(weight, "o i -> i o").contiguous()
    if bias is None:
        return partial(torch.mm, mat2=columns)
    return partial(torch.addmm, bias, mat2=columns)


def _attention(layer: MultiHeadAttention, num_sequences: int, kernels: Any) -> Function:
    """Self-attention of one new token per sequence; query heads that share a key head are queries of that head."""
    assert layer.qkv_proj is not None
    h = layer.num_heads
    g = layer.num_kv_heads
    c = layer.head_dim
    qkv_proj = function_of(layer.qkv_proj, num_sequences, kernels)
    out_proj = function_of(layer.out_proj, num_sequences, kernels)
    gate_proj = None
    if layer.gate_proj is not None:
        gate_proj = function_of(layer.gate_proj, num_sequences, kernels)
    # [k d], the weight of the newest input first
    kernel = None
    if layer.convolution is not None:
        kernel = rearrange(layer.convolution.weight, "k 1 d -> k d")
    norms = []
    for norm, first, num in ((layer.query_norm, 0, h), (layer.key_norm, h, g)):
        if norm is not None:
            norms.append((function_of(norm, num_sequences), first, num))
    norms_heads = layer.norms_heads
    scale = 1 / cast(ScaledDotProductAttention, layer.mechanism).temperature

    def attend(x: Tensor, context: AttentionContext, cache: tuple[_Layer, Slot, int]) -> Tensor:
        buffers, slot, num_slots = cache
        qkv = qkv_proj(x)
        if kernel is not None and buffers.inputs is not None:
            buffers.inputs = torch.cat([qkv.unsqueeze(1), buffers.inputs[:, :-1]], dim=1)
            qkv = (buffers.inputs * kernel).sum(dim=1)
        heads = qkv.unflatten(-1, (h + 2 * g, c))
        for norm, first, num in norms:
            part = heads.narrow(1, first, num)
            if norms_heads:
                part.copy_(norm(part))
            else:
                part.copy_(norm(part.flatten(1)).unflatten(-1, (num, c)))
        if context.rotary is not None:
            # as in `apply_rotary`; itself, or a copy in float32
            wide = heads if heads.dtype == torch.float64 else heads.float()
            r = context.rotary.shape[-1]
            pairs = wide.narrow(1, 0, h + g).narrow(2, 0, 2 * r).unflatten(-1, (r, 2))
            torch.view_as_complex(pairs).mul_(context.rotary)
            heads = wide.to(heads.dtype)
        past = buffers.past
        heads = heads.to(past.dtype)
        if kernels is not None:
            attended = kernels.attend(heads, past, slot, scale).flatten(1)
        else:
            new = heads.narrow(1, h, 2 * g)
            if isinstance(slot, int):
                past.select(2, slot).copy_(new)
            else:
                past.transpose(1, 2)[torch.arange(len(slot), device=slot.device), slot] = new
            keys, values = past.narrow(2, 0, num_slots).split(g, dim=1)
            queries = heads.narrow(1, 0, h).unflatten(1, (g, h // g))
            attended = F.scaled_dot_product_attention(
                queries, keys, values, context.attn_mask, scale=scale
            )
            attended = attended.flatten(1).to(x.dtype)
        if gate_proj is not None:
            attended = gated(attended, gate_proj(x))
        return out_proj(attended)

    return attend


def has_known_ends(model: Model) -> bool:
    """Whether embedder and head are exactly of the classes that a step writes out: a subclass may compute something
    else."""
    embedder = model.embedder
    head = model.head
    return (
        type(model) is Model
        and model.source_embedder is None
        and type(embedder) is Embedder
        and type(embedder.content) is nn.Embedding
        and embedder.content.max_norm is None  # else lookups change the table
        and type(embedder.position).add is PositionalEncoding.add
        and (type(head) is TiedHead or (type(head) is TokenHead and type(head.linear) is nn.Linear))
    )


def is_known(model: Model) -> bool:
    """Whether a `PackedStep` writes out all of the model, and the blocks only call their parts."""
    backbone = model.backbone
    return (
        has_known_ends(model)
        and type(backbone) is Transformer
        and all(
            cast(RelativePosition, x).requires == AttentionFeature.ROTARY
            for x in backbone.positions
        )
        and all(map(_is_known_block, cast("list[BaseBlock]", backbone.blocks)))
    )


def _is_known_block(block: BaseBlock) -> bool:
    layer = block.attention
    if (
        type(block) not in BLOCKS
        or block.has_cross_attention
        or type(layer) is not MultiHeadAttention
    ):
        return False
    is_dot_product = type(layer.mechanism) is ScaledDotProductAttention and layer.mechanism.is_plain
    # complex pairs need even strides
    return (
        is_dot_product
        and type(layer.convolution) in (type(None), CausalConvolution)
        and layer.head_dim % 2 == 0
    )
