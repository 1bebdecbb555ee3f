"""One decoding step of a causal Transformer, computed by functions of its modules with less overhead.

`Model.forward` is written for batches of any shape. With one new token a step, it spends most of its time on reading
weights in an unfavourable order, on masks, and in Python. Here the `forward` of blocks, norms, MLPs and heads is called
directly, without `nn.Module.__call__`. Attention is written out for one query, over keys and values in buffers of the
final length. Weights of linear layers are copied once into the order that is read fastest in a product with few rows.
The logits equal those of the modules up to rounding. If a part of the model is unknown here, `packed_decoder` returns
None, and the modules run.

b sequences · d width · h heads · g key/value heads · c channels of one head · r rotated channel pairs · m slots of the
cache · k kernel size · v vocabulary
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from seqkit.backbones.transformer import Transformer
from seqkit.interfaces import Cache
from seqkit.model import Model
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.kv_cache import LayerCache, TransformerCache
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import MLP, BaseBlock, ParallelBlock, PostNormBlock, PreNormBlock, Residual
from seqkit.nn.convolution import CausalConvolution
from seqkit.nn.embedder import Embedder
from seqkit.nn.heads import TiedHead, TokenHead
from seqkit.nn.mlp import GatedMLP
from seqkit.nn.position.base import PositionalEncoding, RelativePosition

MIN_STEPS = 8
"""Fewest remaining steps for which packing is tried; packing takes the time that about ten steps save."""

BLOCKS = (PreNormBlock, PostNormBlock, ParallelBlock)
COMPOSED = (*BLOCKS, MLP, GatedMLP, Residual)
"""Modules that only call their children, so that functions can replace these."""

Function = Callable[..., Tensor]
Slot = int | Tensor
"""Column of the new token; if static, a tensor [1]."""


@dataclass(slots=True)
class _Layer:
    """Keys and values [b g m c] of a layer; inputs: the last k [b k d] of its convolution, token i in row i % k."""

    keys: Tensor
    values: Tensor
    inputs: Tensor | None


class PackedCache(Cache):
    """Keys, values and padding of all columns so far, in buffers of the final length.

    static: True: each step has the same shapes and addresses, as a CUDA graph needs; empty slots are masked.
    """

    def __init__(self, cache: TransformerCache, max_tokens: int, dtype: torch.dtype, *, static: bool):
        past = cache.past
        assert past is not None
        self.num_tokens, self.max_tokens, self.is_static = cache.num_tokens, max_tokens, static
        self.graph: _Graph | None = None
        self.layers = [self._buffers(layer, dtype) for layer in cache.layers]
        self.attn_mask: Tensor | None = None
        if past.is_padded or static:
            may_attend = F.pad(past.valid, [0, max_tokens - self.num_tokens], value=not static)
            mask = torch.zeros(may_attend.shape, dtype=dtype, device=may_attend.device)
            self.attn_mask = rearrange(mask.masked_fill_(~may_attend, -torch.inf), "b m -> b 1 1 m")

    def _buffers(self, filled: LayerCache, dtype: torch.dtype) -> _Layer:
        """A copy of the cache that a full forward pass filled."""
        past, convolved, n = cast(Any, filled.self_attention), filled.convolution, self.num_tokens
        keys, values = (F.pad(x[:, :, :n].to(dtype), [0, 0, 0, self.max_tokens - n]) for x in (past.keys, past.values))
        if convolved is None:
            return _Layer(keys, values, None)
        k = convolved.shape[1] + 1
        inputs = convolved.new_zeros(len(convolved), k, convolved.shape[2])
        inputs[:, torch.arange(n - k + 1, n, device=inputs.device) % k] = convolved
        return _Layer(keys, values, inputs)

    def reorder(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""
        in_place = self.is_static and len(rows) == len(self.layers[0].keys)  # a graph needs the same addresses
        self.graph = self.graph if in_place else None

        def chosen(buffer: Tensor | None) -> Any:
            new = None if buffer is None else buffer.index_select(0, rows)
            return buffer.copy_(new) if in_place and buffer is not None and new is not None else new

        self.layers = [_Layer(*map(chosen, (x.keys, x.values, x.inputs))) for x in self.layers]
        self.attn_mask = chosen(self.attn_mask)


def packed_decoder(model: Model, num_sequences: int, max_tokens: int) -> PackedDecoder | None:
    """The model's step with packed weights; None if a part of it is unknown, or if gradients or autocast are on.

    num_sequences: number of sequences that weights are packed for; steps may have any number. max_tokens: columns of
    the cache.
    """
    device = next(model.parameters()).device
    if torch.is_grad_enabled() or torch.is_autocast_enabled(device.type) or not _is_plain(model):
        return None
    return PackedDecoder(model, num_sequences, max_tokens) if _is_known(model) else None


class PackedDecoder:
    """Computes the logits of a model for one new token of each sequence, from functions of tensors.

    static: as in `PackedCache`; None: True on CUDA, where the step is captured and replayed as a CUDA graph.
    """

    def __init__(self, model: Model, num_sequences: int, max_tokens: int, *, static: bool | None = None):
        parameter, embedder = next(model.parameters()), cast(Embedder, model.embedder)
        backbone, head = cast(Transformer, model.backbone), cast("TokenHead | TiedHead", model.head)
        device, dtype = parameter.device, parameter.dtype
        self.is_static = device.type == "cuda" if static is None else static
        self._max_tokens = max_tokens
        # with one query, torch's CPU kernel is seven times slower in bfloat16 than in float32 (torch 2.11)
        self._cache_dtype = torch.promote_types(dtype, torch.float32) if device.type == "cpu" else dtype
        columns = repeat(torch.arange(float(max_tokens), device=device), "m -> 1 m p", p=model.spec.num_axes)
        self._table, self._scale = cast(nn.Embedding, embedder.content).weight, embedder.scale
        vectors = embedder.position(columns)[0]
        self._vectors = vectors if len(vectors) == max_tokens else None  # else there are no positions to add
        between = (embedder.norm, embedder.projection, backbone.input_norm)
        self._after_embedding = [_function(module, num_sequences) for module in between if module is not None]
        self._rotary: dict[Any, Tensor | None] = {}  # complex [m 1 r] of each kind of layer
        for kind in dict.fromkeys(backbone.kinds):
            position = backbone.position_of(kind)
            rotary = None if position is None else position.rotary(columns, kind.head_dim)
            self._rotary[kind] = None if rotary is None else rearrange(rotary, "1 1 m r -> m 1 r")
        self._norm = _function(backbone.norm, num_sequences)
        self._blocks = [_function(block, num_sequences) for block in backbone.blocks]
        self._kinds = backbone.kinds
        output = head.linear if isinstance(head, TokenHead) else head.table
        bias = head.linear.bias if isinstance(head, TokenHead) else head.bias
        product = _product(cast(Tensor, output.weight), bias, num_sequences)
        self._head = lambda x: head._outputs(x, product)

    def take_over(self, cache: Cache) -> PackedCache:
        """Copy the cache that a full forward pass filled, for the steps that follow."""
        assert isinstance(cache, TransformerCache)
        return PackedCache(cache, self._max_tokens, self._cache_dtype, static=self.is_static)

    def step(self, ids: Tensor, positions: Tensor, cache: PackedCache) -> Tensor:
        """Logits [b v] after one more token: ids [b] int64 at positions [b] int64, which grow with the columns."""
        slot = cache.num_tokens
        cache.num_tokens += 1
        if not cache.is_static:
            return self._compute(ids, positions, slot, slot + 1, cache)
        index = torch.full((1,), slot, device=ids.device)
        if ids.device.type != "cuda":
            return self.static_step(ids, positions, index, cache)
        if cache.graph is None:
            cache.graph = _Graph(self, ids, positions, index, cache)
        return cache.graph.replay(ids, positions, index)

    def static_step(self, ids: Tensor, positions: Tensor, slot: Tensor, cache: PackedCache) -> Tensor:
        """A step whose shapes do not depend on the slot [1]; repeating it gives the same logits."""
        assert cache.attn_mask is not None
        cache.attn_mask.index_fill_(3, slot, 0.0)
        return self._compute(ids, positions, slot, cache.max_tokens, cache)

    def _compute(self, ids: Tensor, positions: Tensor, slot: Slot, num_slots: int, cache: PackedCache) -> Tensor:
        """Logits [b v]. num_slots: columns that are read."""
        mask = None if cache.attn_mask is None else cache.attn_mask[..., :num_slots]
        contexts = {kind: AttentionContext(mask, rotary=None if table is None else table.index_select(0, positions))
                    for kind, table in self._rotary.items()}  # fmt: skip
        x = self._embed(ids, positions)
        for block, kind, layer in zip(self._blocks, self._kinds, cache.layers):
            x = block(x, contexts[kind], (layer, slot, num_slots))
        return self._head(self._norm(x))

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Embeddings [b d] of ids [b] at positions [b], as `Embedder`; vectors of positions come from a table."""
        x = F.embedding(ids, self._table)
        x = x if self._scale == 1 else x * self._scale
        x = x if self._vectors is None else x + self._vectors.index_select(0, positions)
        for function in self._after_embedding:
            x = function(x)
        return x


class _Graph:
    """A step captured as a CUDA graph: replaying it launches all kernels at once."""

    def __init__(self, decoder: PackedDecoder, ids: Tensor, positions: Tensor, slot: Tensor, cache: PackedCache):
        self._inputs = (ids.clone(), positions.clone(), slot.clone())
        side = torch.cuda.Stream(ids.device)
        side.wait_stream(torch.cuda.current_stream(ids.device))
        with torch.cuda.stream(side):  # the first calls allocate workspaces, which a graph must not
            for _ in range(3):
                decoder.static_step(*self._inputs, cache)
        torch.cuda.current_stream(ids.device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._logits = decoder.static_step(*self._inputs, cache)

    def replay(self, *inputs: Tensor) -> Tensor:
        """Logits [b v] for ids [b], positions [b], slot [1]."""
        for buffer, new in zip(self._inputs, inputs):
            buffer.copy_(new)
        self._graph.replay()
        return self._logits.clone()


def _function(module: nn.Module, num_sequences: int) -> Function:
    """The module's `forward` on [b d]; in composed modules, functions replace the children."""
    if type(module) is nn.Linear:
        return _product(module.weight, module.bias, num_sequences)
    if type(module) is MultiHeadAttention:
        return _attention(module, num_sequences)
    if type(module) is nn.LayerNorm:  # its `forward` takes 4 µs longer
        shape, weight, bias, eps = list(module.normalized_shape), module.weight, module.bias, module.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    if type(module) is nn.Dropout:
        return lambda x: x
    if type(module) is Residual and module.norm is module.scale is module.drop_path is None and module.fixed_scale == 1:
        return torch.add
    if type(module) in COMPOSED:
        module = copy.copy(module)
        children = {name: child and _function(child, num_sequences) for name, child in module._modules.items()}
        if isinstance(module, BaseBlock) and type(module.mlp) not in COMPOSED:  # it may need the token axis
            mlp = module.mlp
            children["mlp"] = lambda x: mlp(x[:, None])[:, 0]
        vars(module).update(module._parameters | children)
    return module.forward


def _product(weight: Tensor, bias: Tensor | None, num_sequences: int) -> Function:
    """x @ weight.T + bias for x [b i] and weight [o i].

    `nn.Linear` stores weights row by row, and then a product with one vector reads at half the memory's bandwidth: for
    one sequence on a CPU, in float32, the weight is copied in the other order (docs/decisions.md).
    """
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or num_sequences > 1:
        return lambda x: F.linear(x, weight, bias)
    columns = rearrange(weight, "o i -> i o").contiguous()
    return (lambda x: torch.mm(x, columns)) if bias is None else (lambda x: torch.addmm(bias, x, columns))


def _write(buffer: Tensor, axis: int, slot: Slot, new: Tensor) -> None:
    """Write a row of a buffer: new has its shape without the axis."""
    if isinstance(slot, int):
        buffer.select(axis, slot).copy_(new)
    else:
        buffer.index_copy_(axis, slot, new.unsqueeze(axis))


def _attention(layer: MultiHeadAttention, num_sequences: int) -> Function:
    """Self-attention of one new token per sequence; query heads that share a key head are queries of that head."""
    assert layer.qkv_proj is not None
    h, g, c = layer.num_heads, layer.num_kv_heads, layer.head_dim
    qkv_proj, out_proj = _function(layer.qkv_proj, num_sequences), _function(layer.out_proj, num_sequences)
    convolve = None if layer.convolution is None else _convolution(layer.convolution)
    ranges = ((layer.query_norm, 0, h), (layer.key_norm, h, g))
    norms = [(_function(norm, num_sequences), first, num) for norm, first, num in ranges if norm is not None]
    norms_heads = layer.norms_heads
    scale = 1 / cast(ScaledDotProductAttention, layer.mechanism).temperature

    def attend(x: Tensor, context: AttentionContext, cache: tuple[_Layer, Slot, int]) -> Tensor:
        buffers, slot, num_slots = cache
        qkv = qkv_proj(x)
        if convolve is not None:
            qkv = convolve(qkv, slot, buffers.inputs)
        heads = qkv.unflatten(-1, (h + 2 * g, c))
        for norm, first, num in norms:
            part = heads.narrow(1, first, num)
            part.copy_(norm(part) if norms_heads else norm(part.flatten(1)).unflatten(-1, (num, c)))
        if context.rotary is not None:
            heads = _rotated(heads, h + g, context.rotary)
        heads = heads.to(buffers.keys.dtype)
        _write(buffers.keys, 2, slot, heads.narrow(1, h, g))
        _write(buffers.values, 2, slot, heads.narrow(1, h + g, g))
        attended = F.scaled_dot_product_attention(
            heads.narrow(1, 0, h).unflatten(1, (g, h // g)),
            buffers.keys.narrow(2, 0, num_slots),
            buffers.values.narrow(2, 0, num_slots),
            context.attn_mask,
            scale=scale,
        )
        return out_proj(attended.flatten(1).to(x.dtype))

    return attend


def _rotated(heads: Tensor, num: int, rotary: Tensor) -> Tensor:
    """Heads [b h+2g c] with the first `num` rotated by complex numbers [b 1 r], as in `apply_rotary`."""
    r = rotary.shape[-1]
    wide = heads if heads.dtype == torch.float64 else heads.float()  # itself, or a copy in float32
    pairs = wide.narrow(1, 0, num).narrow(2, 0, 2 * r).unflatten(-1, (r, 2))
    torch.view_as_complex(pairs).mul_(rotary)
    return wide.to(heads.dtype)


def _convolution(module: CausalConvolution) -> Function:
    """y_t = sum over i < k of w_i * x_(t - i), from the last k inputs in a ring buffer."""
    weight = rearrange(module.weight, "k 1 d -> k d")
    k = len(weight)
    lags = torch.arange(k, device=weight.device)
    # row j of the ring holds token j, then j + k, …; at token t, its lag is (t - j) % k
    by_slot = weight[(rearrange(lags, "t -> t 1") - lags) % k]  # [t j d]

    def convolve(x: Tensor, slot: Slot, ring: Tensor) -> Tensor:
        row = slot % k
        _write(ring, 1, row, x)
        return (ring * by_slot[row]).sum(dim=1)

    return convolve


def _is_known(model: Model) -> bool:
    """Whether embedder, attention and head are exactly of the classes that a step writes out, since a subclass may
    compute something else, and whether the blocks only call their parts."""
    embedder, backbone = model.embedder, model.backbone
    if type(model) is not Model or type(embedder) is not Embedder or type(backbone) is not Transformer:
        return False
    content, position = embedder.content, embedder.position
    return (
        model.source_embedder is None
        and type(model.head) in (TokenHead, TiedHead)
        and type(content) is nn.Embedding
        and content.max_norm is None  # else lookups change the table
        and type(position).add is PositionalEncoding.add
        and all(cast(RelativePosition, x).requires == AttentionFeature.ROTARY for x in backbone.positions)
        and all(map(_is_known_block, cast("list[BaseBlock]", backbone.blocks)))
    )


def _is_known_block(block: BaseBlock) -> bool:
    layer = block.attention
    if type(block) not in BLOCKS or block.has_cross_attention or type(layer) is not MultiHeadAttention:
        return False
    is_dot_product = type(layer.mechanism) is ScaledDotProductAttention and layer.mechanism.softcap is None
    # complex pairs need even strides
    return is_dot_product and type(layer.convolution) in (type(None), CausalConvolution) and layer.head_dim % 2 == 0


def _is_plain(model: nn.Module) -> bool:
    """Whether modules compute what their classes define: no hooks, no own `forward`, no dropout, plain parameters."""
    first = next(model.parameters())
    usual = all(type(p) is nn.Parameter and p.dtype == first.dtype and p.device == first.device
                for p in model.parameters())  # fmt: skip
    on_all = nn.modules.module
    return usual and not (on_all._global_forward_hooks or on_all._global_forward_pre_hooks) and not any(
        module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
        or module._compiled_call_impl is not None or module.training for module in model.modules()
    )  # fmt: skip
