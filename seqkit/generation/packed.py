"""One decoding step of a causal Transformer as functions of tensors, over weights packed when generation starts.

`Model.forward` is written for batches of any shape; with one new token a step, most of its time goes into reading
weights in an unfavourable order and into Python. Here weights are copied once into the order that the product with few
rows reads fastest, and a step is a list of functions without modules, masks or checks. It gives what the modules give,
up to rounding. Where a model has a part that is not known here, `packed_decoder` returns None, and the modules run.

b sequences · d width · h heads · g key/value heads · c channels of one head · r rotated channel pairs · m slots of the
cache · t new tokens · k kernel size · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from seqkit.backbones.transformer import Transformer, TransformerCache
from seqkit.interfaces import Cache
from seqkit.model import Model
from seqkit.nn.attention.kv_cache import KVCache
from seqkit.nn.attention.mechanism import capped
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.attention.scaled_dot_product import ScaledDotProductAttention
from seqkit.nn.block import BaseBlock, ParallelBlock, PostNormBlock, PreNormBlock
from seqkit.nn.convolution import CausalConvolution
from seqkit.nn.embedder import Embedder
from seqkit.nn.heads import TiedHead, TokenHead
from seqkit.nn.mlp import MLP, GatedMLP, QuickGELU, ReLUSquared
from seqkit.nn.norm import ZeroCenteredRMSNorm
from seqkit.nn.position.absolute import Learned, NoPosition, Sinusoidal, SinusoidalConcat
from seqkit.nn.position.rotary import Rotary
from seqkit.nn.residual import Residual

MIN_STEPS = 8
"""Cached steps from which on packing is tried: it costs as much time as about ten steps save."""

ONEDNN_MIN_WEIGHTS = 2**17
"""Weights of a matrix from which on oneDNN's product is the faster one: a call of it takes 10 µs more than `addmm`."""

ONEDNN_MIN_ROWS = 8
"""Rows of x for which oneDNN orders weights at least: the order for one row is slower, even for one row."""

ACTIVATIONS = (nn.GELU, nn.ReLU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Identity, ReLUSquared, QuickGELU)

Function = Callable[[Tensor], Tensor]
Module = TypeVar("Module", bound=nn.Module)


class _NotKnownError(Exception):
    """A part of the model is none of those that can be packed."""


@dataclass(slots=True)
class _LayerCache:
    """Keys and values [b g m c] of a layer; of a convolution its last k inputs [b k d], token i in row i % k."""

    keys: Tensor
    values: Tensor
    inputs: Tensor | None


@dataclass(slots=True)
class _Step:
    """Values that the layers of one step share.

    slot: the column of the new token, an int, or with static shapes a tensor [1]. num_slots: columns that are read.
    attn_mask: [b 1 1 m], 0 or -inf; None: all may be attended to. rotary: complex [b 1 r] by index of the position.
    """

    slot: int | Tensor
    num_slots: int
    attn_mask: Tensor | None
    rotary: list[Tensor | None]


class PackedCache(Cache):
    """Keys, values and padding of all columns so far, in buffers that are as long as they will ever be.

    static: True: each step has the same shapes and addresses, as a CUDA graph needs; unfilled slots are masked.
    """

    def __init__(self, cache: TransformerCache, max_tokens: int, dtype: torch.dtype, *, static: bool):
        past = cache.past
        assert past is not None
        self.num_tokens, self.max_tokens = cache.num_tokens, max_tokens
        self.is_static = static
        self.graph: _Graph | None = None
        self.layers = [_taken_over(layer.self_attention, layer.convolution, max_tokens, dtype)
                       for layer in cache.layers]  # fmt: skip
        self.attn_mask: Tensor | None = None
        if past.is_padded or static:
            later = past.valid.new_full((len(past.valid), max_tokens - self.num_tokens), not static)
            may_attend = rearrange(torch.cat([past.valid, later], dim=1), "b m -> b 1 1 m")
            self.attn_mask = torch.zeros(may_attend.shape, dtype=dtype, device=later.device)
            self.attn_mask.masked_fill_(~may_attend, -torch.inf)

    def reorder(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""
        in_place = self.is_static and len(rows) == len(self.layers[0].keys)  # a graph goes on with the same addresses
        self.graph = self.graph if in_place else None

        def chosen(buffer: Tensor) -> Tensor:
            new = buffer.index_select(0, rows)
            return buffer.copy_(new) if in_place else new

        for layer in self.layers:
            layer.keys, layer.values = chosen(layer.keys), chosen(layer.values)
            layer.inputs = None if layer.inputs is None else chosen(layer.inputs)
        self.attn_mask = None if self.attn_mask is None else chosen(self.attn_mask)


def _taken_over(filled: object, convolved: Tensor | None, max_tokens: int, dtype: torch.dtype) -> _LayerCache:
    """The cache of a layer after a full pass, copied into buffers of the final length."""
    assert isinstance(filled, KVCache)
    assert filled.keys is not None
    assert filled.values is not None
    n = filled.num_tokens
    b, g, _, c = filled.keys.shape
    keys, values = (torch.zeros(b, g, max_tokens, c, dtype=dtype, device=filled.keys.device) for _ in range(2))
    keys[:, :, :n], values[:, :, :n] = filled.keys[:, :, :n], filled.values[:, :, :n]
    if convolved is None:
        return _LayerCache(keys, values, None)
    k = convolved.shape[1] + 1
    inputs = convolved.new_zeros(b, k, convolved.shape[2])
    inputs[:, torch.arange(n - k + 1, n, device=inputs.device) % k] = convolved
    return _LayerCache(keys, values, inputs)


def packed_decoder(model: Model, num_sequences: int, max_tokens: int) -> PackedDecoder | None:
    """The model's step with packed weights; None where a part of it is not known, or gradients or autocast are on.

    num_sequences: number of sequences that weights are packed for; any number may follow. max_tokens: columns of the
    cache.
    """
    device = next(model.parameters()).device
    if torch.is_grad_enabled() or torch.is_autocast_enabled(device.type) or not _is_plain(model):
        return None
    try:
        return PackedDecoder(model, num_sequences, max_tokens)
    except _NotKnownError:
        return None


class PackedDecoder:
    """Functions of tensors that compute what a model computes for one new token of each sequence.

    static: None: on CUDA, where a step is then captured and replayed as a CUDA graph.
    """

    def __init__(self, model: Model, num_sequences: int, max_tokens: int, *, static: bool | None = None):
        parameter = next(model.parameters())
        device, dtype = parameter.device, parameter.dtype
        self.is_static = device.type == "cuda" if static is None else static
        self._max_tokens = max_tokens
        # for one query, torch's CPU kernel takes seven times as long in bfloat16 as in float32 (torch 2.11)
        self._cache_dtype = torch.promote_types(dtype, torch.float32) if device.type == "cpu" else dtype
        pack = _Packer(num_sequences)
        backbone = _known(model.backbone, Transformer)
        if type(model) is not Model or model.source_embedder is not None:
            raise _NotKnownError
        self._embed = _Embedding(model.embedder.part(None), max_tokens, pack)
        self._input_norm = None if backbone.input_norm is None else _norm(backbone.input_norm)
        positions = [_known(position, Rotary) for position in backbone.positions]
        self._rotary = [self._rotary_table(position, backbone, i) for i, position in enumerate(positions)]
        self._layers = [_block(block, kind.position, pack) for block, kind in zip(backbone.blocks, backbone.kinds)]
        self._norm = _norm(backbone.norm)
        self._head = _head(model.head, pack)

    def _rotary_table(self, position: Rotary, backbone: Transformer, index: int) -> Tensor | None:
        """Complex numbers [m 1 r] for positions 0 to m - 1; None for tokens without positions."""
        head_dims = {kind.head_dim for kind in backbone.kinds if kind.position == index}
        if len(head_dims) != 1:
            raise _NotKnownError
        device = next(backbone.parameters()).device
        columns = rearrange(torch.arange(float(self._max_tokens), device=device), "m -> 1 m 1")
        if self._embed.num_axes == 0:
            return None
        rotary = position.rotary(columns, head_dims.pop())
        return None if rotary is None else rearrange(rotary, "1 1 m r -> m 1 r")

    def take_over(self, cache: Cache) -> PackedCache:
        """The cache that a full pass of the model filled, for the steps that follow."""
        assert isinstance(cache, TransformerCache)
        return PackedCache(cache, self._max_tokens, self._cache_dtype, static=self.is_static)

    def step(self, ids: Tensor, positions: Tensor, cache: PackedCache) -> Tensor:
        """Logits [b v] after one more token: ids [b] int64 at positions [b] int64, which increase with the columns."""
        slot = cache.num_tokens
        cache.num_tokens += 1
        if not cache.is_static:
            mask = None if cache.attn_mask is None else cache.attn_mask[..., : slot + 1]
            return self._compute(ids, positions, slot, slot + 1, mask, cache)
        index = torch.full((1,), slot, device=ids.device)
        if ids.device.type != "cuda":
            return self.static_step(ids, positions, index, cache)
        if cache.graph is None:
            cache.graph = _Graph(self, ids, positions, index, cache)
        return cache.graph.replay(ids, positions, index)

    def static_step(self, ids: Tensor, positions: Tensor, slot: Tensor, cache: PackedCache) -> Tensor:
        """The step with the same shapes whatever the slot [1] is; it may be repeated, and then gives the same."""
        assert cache.attn_mask is not None
        cache.attn_mask.index_fill_(3, slot, 0.0)
        return self._compute(ids, positions, slot, cache.max_tokens, cache.attn_mask, cache)

    def _compute(
        self,
        ids: Tensor,
        positions: Tensor,
        slot: int | Tensor,
        num_slots: int,
        mask: Tensor | None,
        cache: PackedCache,
    ) -> Tensor:
        rotary = [None if table is None else table.index_select(0, positions) for table in self._rotary]
        step = _Step(slot, num_slots, mask, rotary)
        x = self._embed(ids, positions)
        if self._input_norm is not None:
            x = self._input_norm(x)
        for layer, layer_cache in zip(self._layers, cache.layers):
            x = layer(x, step, layer_cache)
        return self._head(self._norm(x))


class _Graph:
    """A step captured as a CUDA graph: replaying it launches all kernels at once."""

    def __init__(self, decoder: PackedDecoder, ids: Tensor, positions: Tensor, slot: Tensor, cache: PackedCache):
        self._inputs = (ids.clone(), positions.clone(), slot.clone())
        side = torch.cuda.Stream(ids.device)
        side.wait_stream(torch.cuda.current_stream(ids.device))
        with torch.cuda.stream(side):  # libraries allocate their workspaces in the first calls, outside of the graph
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


class _Packer:
    """Makes `x @ weight.T + bias` for x [b i], with weight [o i], a function that reads the weights in a good order.

    On a CPU from a copy: `nn.Linear` stores rows, and a row-major matrix times one vector runs at half the memory's
    speed. Which order is best was measured (docs/decisions.md). Elsewhere, and where oneDNN does not have the dtype,
    from the weights as they are.
    """

    def __init__(self, num_sequences: int):
        self._num_sequences = num_sequences

    def __call__(self, module: nn.Module) -> Function:
        linear = _known(module, nn.Linear)
        return self.product(linear.weight, linear.bias)

    def product(self, weight: Tensor, bias: Tensor | None) -> Function:
        """The function for a weight [o i] and a bias [o]."""
        if weight.device.type == "cpu" and weight.dtype == torch.float32:
            widens = weight.shape[0] >= weight.shape[1]
            if (self._num_sequences == 1 and widens) or weight.numel() < ONEDNN_MIN_WEIGHTS or not _has_onednn():
                return _transposed(weight, bias)
            return self._by_onednn(weight, bias)
        if weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and _has_onednn_bfloat16():
            return self._by_onednn(weight, bias)
        return lambda x: F.linear(x, weight, bias)

    def _by_onednn(self, weight: Tensor, bias: Tensor | None) -> Function:
        rows = max(self._num_sequences, ONEDNN_MIN_ROWS)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)
        return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def _transposed(weight: Tensor, bias: Tensor | None) -> Function:
    columns = rearrange(weight, "o i -> i o").contiguous()
    return (lambda x: torch.mm(x, columns)) if bias is None else (lambda x: torch.addmm(bias, x, columns))


def _has_onednn() -> bool:
    return bool(torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled)


def _has_onednn_bfloat16() -> bool:
    """Whether oneDNN computes in bfloat16 on this CPU."""
    return _has_onednn() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class _Embedding:
    """Embeds ids at positions: vectors of the positions 0 to m - 1 are computed once."""

    def __init__(self, embedder: Embedder, max_tokens: int, pack: _Packer):
        embedder = _known(embedder, Embedder)
        content = _known(embedder.content, nn.Embedding)
        self._position = _known(embedder.position, NoPosition, Sinusoidal, SinusoidalConcat, Learned)
        self.num_axes = embedder.spec.num_axes
        if content.max_norm is not None:  # looking up would change the table
            raise _NotKnownError
        self._content, self._scale = content.weight, embedder.scale
        self._num_position_channels = self._position.num_position_channels
        self._vectors = self._table(max_tokens)
        self._norm = None if embedder.norm is None else _norm(embedder.norm)
        self._projection = None if embedder.projection is None else pack(embedder.projection)

    def _table(self, max_tokens: int) -> Tensor | None:
        """[n d], or None where no vectors are added."""
        if isinstance(self._position, NoPosition) or self.num_axes == 0:
            return None
        columns = torch.arange(float(max_tokens), device=self._content.device)
        return rearrange(self._position(repeat(columns, "n -> 1 n p", p=self.num_axes)), "1 n d -> n d")

    def __call__(self, ids: Tensor, positions: Tensor) -> Tensor:
        """[b d] for ids [b] at positions [b]."""
        x = F.embedding(ids, self._content)
        if self._scale != 1:
            x = x * self._scale
        if self._num_position_channels:
            x = F.pad(x, [0, self._num_position_channels])
        if self._vectors is not None:
            x = x + self._vectors.index_select(0, positions)
        if self._norm is not None:
            x = self._norm(x)
        return x if self._projection is None else self._projection(x)


Layer = Callable[[Tensor, _Step, _LayerCache], Tensor]


def _block(block: nn.Module, position: int | None, pack: _Packer) -> Layer:
    """x [b d] → [b d]: a block without cross-attention. position: index of the rotary position; None: it has none."""
    known: BaseBlock = _known(block, PreNormBlock, PostNormBlock, ParallelBlock)
    if known.has_cross_attention:
        raise _NotKnownError
    attention_norm, mlp_norm = _norm(known.attention_norm), _norm(known.mlp_norm)
    attention, mlp = _attention(known.attention, position, pack), _mlp(known.mlp, pack)
    add_attention, add_mlp = _residual(known.attention_residual), _residual(known.mlp_residual)

    def pre_norm(x: Tensor, step: _Step, cache: _LayerCache) -> Tensor:
        x = add_attention(x, attention(attention_norm(x), step, cache))
        return add_mlp(x, mlp(mlp_norm(x)))

    def post_norm(x: Tensor, step: _Step, cache: _LayerCache) -> Tensor:
        x = attention_norm(add_attention(x, attention(x, step, cache)))
        return mlp_norm(add_mlp(x, mlp(x)))

    def parallel(x: Tensor, step: _Step, cache: _LayerCache) -> Tensor:
        y = add_attention(x, attention(attention_norm(x), step, cache))
        return add_mlp(y, mlp(mlp_norm(x)))

    return {PreNormBlock: pre_norm, PostNormBlock: post_norm, ParallelBlock: parallel}[type(known)]


def _attention(module: nn.Module, position: int | None, pack: _Packer) -> Layer:
    """Self-attention of one new token a sequence; the heads that share a key head are its queries."""
    layer = _known(module, MultiHeadAttention)
    mechanism = _known(layer.mechanism, ScaledDotProductAttention)
    h, g, c = layer.num_heads, layer.num_kv_heads, layer.head_dim
    if mechanism.softcap is not None or (position is not None and c % 2):  # complex pairs need even strides
        raise _NotKnownError
    assert layer.qkv_proj is not None
    qkv_proj, out_proj, scale = pack(layer.qkv_proj), pack(layer.out_proj), 1 / mechanism.temperature
    convolve = None if layer.convolution is None else _convolution(layer.convolution)
    query_norm = None if layer.query_norm is None else _norm(layer.query_norm)
    key_norm = None if layer.key_norm is None else _norm(layer.key_norm)
    norms_heads = layer.norms_heads

    def attend(x: Tensor, step: _Step, cache: _LayerCache) -> Tensor:
        qkv = qkv_proj(x)
        if convolve is not None:
            qkv = convolve(qkv, step, cache)
        heads = qkv.unflatten(-1, (h + 2 * g, c))
        for norm, first, num in ((query_norm, 0, h), (key_norm, h, g)):
            if norm is not None:
                part = heads.narrow(1, first, num)
                part.copy_(norm(part) if norms_heads else norm(part.flatten(1)).unflatten(-1, (num, c)))
        rotary = None if position is None else step.rotary[position]
        if rotary is not None:
            heads = _rotated(heads, h + g, rotary)
        heads = heads.to(cache.keys.dtype)
        keys, values = heads.narrow(1, h, g), heads.narrow(1, h + g, g)
        if isinstance(step.slot, int):
            cache.keys.select(2, step.slot).copy_(keys)
            cache.values.select(2, step.slot).copy_(values)
        else:
            cache.keys.index_copy_(2, step.slot, rearrange(keys, "b g c -> b g 1 c"))
            cache.values.index_copy_(2, step.slot, rearrange(values, "b g c -> b g 1 c"))
        attended = F.scaled_dot_product_attention(
            heads.narrow(1, 0, h).unflatten(1, (g, h // g)),
            cache.keys.narrow(2, 0, step.num_slots),
            cache.values.narrow(2, 0, step.num_slots),
            step.attn_mask,
            scale=scale,
        )
        return out_proj(attended.flatten(1).to(x.dtype))

    return attend


def _rotated(heads: Tensor, num: int, rotary: Tensor) -> Tensor:
    """Heads [b h+2g c], the first `num` of them rotated by complex numbers [b 1 r]; as `apply_rotary`."""
    r = rotary.shape[-1]
    wide = heads if heads.dtype == torch.float64 else heads.float()  # itself, or a copy in float32
    pairs = wide.narrow(1, 0, num).narrow(2, 0, 2 * r).unflatten(-1, (r, 2))
    torch.view_as_complex(pairs).mul_(rotary)
    return wide.to(heads.dtype)


def _convolution(module: nn.Module) -> Layer:
    """y_t = sum over i < k of w_i * x_(t - i), from the last k inputs in a ring."""
    weight = rearrange(_known(module, CausalConvolution).weight, "k 1 d -> k d")
    k = len(weight)
    lags = torch.arange(k, device=weight.device)
    # row j of the ring holds token j, j + k, … : at token t it is the input of (t - j) % k tokens ago
    by_slot = weight[(rearrange(lags, "t -> t 1") - lags) % k]  # [t j d]

    def convolve(x: Tensor, step: _Step, cache: _LayerCache) -> Tensor:
        ring = cache.inputs
        assert ring is not None
        if isinstance(step.slot, int):
            ring.select(1, step.slot % k).copy_(x)
            return (ring * by_slot[step.slot % k]).sum(dim=1)
        row = step.slot % k
        ring.index_copy_(1, row, rearrange(x, "b d -> b 1 d"))
        return (ring * by_slot.index_select(0, row)).sum(dim=1)

    return convolve


def _residual(module: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    residual = _known(module, Residual)
    if residual.drop_path is not None:
        raise _NotKnownError
    norm = None if residual.norm is None else _norm(residual.norm)
    fixed, learned = residual.fixed_scale, residual.scale
    scale = fixed if learned is None else learned * fixed
    has_scale = learned is not None or fixed != 1

    def add(x: Tensor, branch: Tensor) -> Tensor:
        if norm is not None:
            branch = norm(branch)
        return x + branch * scale if has_scale else x + branch

    return add if norm is not None or has_scale else torch.add


def _mlp(module: nn.Module, pack: _Packer) -> Function:
    mlp = _known(module, MLP, GatedMLP)
    if isinstance(mlp, MLP):
        up, activation, down = pack(mlp.up_proj), _activation(mlp.activation), pack(mlp.down_proj)
        return lambda x: down(activation(up(x)))
    assert isinstance(mlp, GatedMLP)
    gate_up, activation, down = pack(mlp.gate_up_proj), _activation(mlp.activation), pack(mlp.down_proj)

    def gated(x: Tensor) -> Tensor:
        gate, up = gate_up(x).chunk(2, dim=-1)
        return down(activation(gate) * up)

    return gated


def _activation(module: nn.Module) -> Function:
    return _known(module, *ACTIVATIONS).forward


def _norm(module: nn.Module) -> Function:
    if type(module) is nn.LayerNorm:  # not its `forward`, which takes 4 µs longer
        shape, weight, bias, eps = list(module.normalized_shape), module.weight, module.bias, module.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    return _known(module, nn.RMSNorm, ZeroCenteredRMSNorm, nn.Identity).forward


def _head(module: nn.Module, pack: _Packer) -> Function:
    head = _known(module, TokenHead, TiedHead)
    if head.transform is not None:
        raise _NotKnownError
    if isinstance(head, TokenHead):
        product = pack(head.linear)
    else:
        assert isinstance(head, TiedHead)
        product = pack.product(_known(head.table, nn.Embedding).weight, head.bias)
    scale, softcap = head.scale, head.softcap
    scaled = product if scale == 1 else lambda x: product(x * scale)
    return scaled if softcap is None else lambda x: capped(scaled(x), softcap)


def _known(module: object, *types: type[Module]) -> Module:
    """The module, if it is of one of these classes itself: a subclass may compute something else."""
    for known in types:
        if type(module) is known:
            return module
    raise _NotKnownError


def _is_plain(model: nn.Module) -> bool:
    """Whether modules compute what their classes say: no hooks, no other `forward`, no dropout, usual parameters."""
    first = next(model.parameters())
    usual = all(type(p) is nn.Parameter and p.dtype == first.dtype and p.device == first.device
                for p in model.parameters())  # fmt: skip
    return usual and not _has_global_hooks() and not any(_is_altered(module) for module in model.modules())


def _is_altered(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    return any(hooks) or "forward" in vars(module) or module._compiled_call_impl is not None or module.training


def _has_global_hooks() -> bool:
    """Hooks that `torch.nn.modules.module.register_module_forward_hook` set for all modules."""
    hooks = torch.nn.modules.module
    return bool(hooks._global_forward_hooks or hooks._global_forward_pre_hooks)
