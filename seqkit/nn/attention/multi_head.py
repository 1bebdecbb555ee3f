"""Multi-head attention: projections around an attention mechanism, scaled dot products unless another is given.

b batch · n queries · m keys · d width · h heads · g key/value heads · c channels of one head · r channel pairs
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, repeat
from torch import Tensor, nn

from seqkit.interfaces import Cache
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import ALL_FEATURES, AttentionFeature, check_supported
from seqkit.nn.attention.kv_cache import LayerCache
from seqkit.nn.attention.mechanism import (
    AttentionMechanism,
    as_bias,
    bounded,
    repeat_kv,
    softmax,
)
from seqkit.nn.attention.sinks import (
    Sinks,
    mask_with_sink,
    softmax_with_sinks,
    with_logits,
    with_sink,
)
from seqkit.nn.checks import check_above_0, check_at_least
from seqkit.nn.convolution import CausalConvolution
from seqkit.nn.dropout import InheritedDropout
from seqkit.nn.mixers.base import Mixer
from seqkit.nn.packing import Packing, has_flash_attention
from seqkit.nn.position.disentangled import Distances


class ScaledDotProductAttention(AttentionMechanism, InheritedDropout):
    """softmax(q k / temperature) v (Vaswani et al. 2017, equation 1), by torch's `scaled_dot_product_attention`.

    temperature: None: sqrt(head_dim); towards 0 each query gets the value of its best key. dropout: dropout of
    attention weights; None: the backbone's.
    softcap: scores are bounded by it, softcap * tanh(scores / softcap), before mask and bias are added (Gemma 2; Gemma
    team 2024, section 2); None: they are not. Torch's kernel has no bound, so it costs O(n m) memory for a head.
    sinks: a logit of each head that joins the softmax and has no value, so that weights sum to less than 1: "learned",
    0 at first (gpt-oss; OpenAI 2025), or "zero" (softmax plus one; Miller 2023); None: none.
    Raises ValueError for a temperature or a softcap that is not above 0, a dropout outside [0, 1), or other sinks.
    """

    supports = ALL_FEATURES

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        temperature: float | None = None,
        dropout: float | None = None,
        softcap: float | None = None,
        sinks: Sinks | None = None,
    ):
        super().__init__(dropout)
        check_above_0(temperature=temperature, softcap=softcap)
        self.temperature = head_dim**0.5 if temperature is None else temperature
        self.softcap = softcap
        if sinks not in ("learned", "zero", None):
            raise ValueError(f"sinks={sinks!r}; it is one of 'learned', 'zero', or None")
        self.has_sinks = sinks is not None
        self.sinks = nn.Parameter(torch.zeros(num_heads)) if sinks == "learned" else None

    @property
    def is_plain(self) -> bool:
        """Whether kernels without a bound on scores and without sinks compute it."""
        return self.softcap is None and not self.has_sinks

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, cache: Any = None
    ) -> Tensor:
        has_sink_key = self.has_sinks and self.softcap is None
        attn_mask = context.attn_mask
        if has_sink_key:
            k, v = with_sink(k, v, is_first=cache is None or cache.num_tokens == 0)
        if cache is not None:
            k, v = cache.update(k, v)
        if self.softcap is not None:
            weights = F.dropout(self.attention_weights(q, k, context), self.dropout, self.training)
            return einsum(weights, repeat_kv(v, q), "b h n m, b h m c -> b h n c")
        if has_sink_key:
            logits = self._sink_logits(q) * self.temperature
            q = with_logits(q, logits, is_causal=context.is_causal)
            attn_mask = mask_with_sink(attn_mask)
        output = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask,
            self.dropout if self.training else 0.0,
            is_causal=context.is_causal,
            scale=1 / self.temperature,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        if has_sink_key:
            return output[:, :, int(context.is_causal) :, :-1]
        return output

    def attention_weights(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        scores = einsum(q, repeat_kv(k, q), "b h n c, b h m c -> b h n m") / self.temperature
        scores = bounded(scores, self.softcap) + as_bias(q, k, context)
        if not self.has_sinks:
            return softmax(scores).to(q.dtype)
        return softmax_with_sinks(scores, self._sink_logits(q)).to(q.dtype)

    def init_cache(self, max_tokens: int) -> Cache:
        """A cache with one more slot, for a sink."""
        return super().init_cache(max_tokens + self.has_sinks)

    def _sink_logits(self, q: Tensor) -> Tensor:
        """[h]; zeros are made anew, since a buffer would be lost by `to_empty`."""
        return q.new_zeros(q.shape[1]) if self.sinks is None else self.sinks


class BiasGate(nn.Module):
    """Factors of a position's bias on scores, one for each query and head (Chi et al. 2022, XLM-E, section 3.1; WavLM).

    A factor is 2 + a (b s - 1), where a and b are sigmoids of sums of four linear maps of the query's input in the
    channels of its head, and s is learned. Equals Hugging Face's `WavLMAttention` (transformers 5.23).
    """

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.linear = nn.Linear(dim // num_heads, 8)
        self.scale = nn.Parameter(torch.ones(num_heads))

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """The scaled bias [b h n m] of x [b n d]; -inf stays. Raises ValueError where there is no bias."""
        if bias is None or not bias.is_floating_point():
            raise ValueError(
                "gated_bias=True scales a position's bias, and there is none; give the backbone position T5Bias"
            )
        heads = rearrange(x, "b n (h c) -> b h n c", h=len(self.scale))
        sums = rearrange(self.linear(heads), "b h n (two four) -> two b h n four", two=2).sum(-1)
        a, b = sums.sigmoid()
        scale = rearrange(self.scale, "h -> h 1")
        factor = rearrange(2 + a * (b * scale - 1), "b h n -> b h n 1")
        # not through -inf, which would make the gradient of the factor NaN
        masked = bias == -torch.inf
        return (bias.masked_fill(masked, 0.0) * factor).masked_fill(masked, -torch.inf)


class MultiHeadAttention(Mixer):
    """Multi-head attention, self or cross (Vaswani et al. 2017, section 3.2.2).

    mechanism: `(num_heads, head_dim) -> AttentionMechanism`.
    num_kv_heads: key/value heads, each shared by num_heads / num_kv_heads query heads (grouped-query attention; Ainslie
    et al. 2023; 1: multi-query, Shazeer 2019); None: `num_heads`.
    head_dim: channels of one head; None: dim / num_heads. All heads together may be wider or narrower than `dim`.
    qk_norm: `width -> nn.Module`, norm of queries and keys, so that scores stay bounded (Dehghani et al. 2023, section
    2, with LayerNorm); None: none. qk_norm_level: "head": each head is normalised by itself; "all": all heads together
    (OLMo 2; OLMo team 2025, section 2.1).
    bias: whether the projections have a bias. out_bias: whether the output projection has one; None: as `bias`.
    convolution: `width -> CausalConvolution` over the projected queries, keys and values (So et al. 2021, section 4.2);
    for causal sequences only, since it supports no edges; None: none.
    output_gate: factors sigmoid(W x) on the attention output before its projection, x the layer's input (Qiu et al.
    2025, section 2.2, G1): "elementwise", one for each channel of each head (Qwen3-Next), or "headwise", one for each
    head; they start near 1/2; None: none.
    gated_bias: True: the bias of the backbone's position, such as `T5Bias`, is scaled by a `BiasGate`.
    Raises ValueError if `dim` is not a multiple of `num_heads` and no `head_dim` is given, if `num_heads` is not a
    multiple of `num_kv_heads`, or for another `qk_norm_level` or `output_gate`.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        mechanism: Callable[[int, int], AttentionMechanism] = ScaledDotProductAttention,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        qk_norm: Callable[[int], nn.Module] | None = None,
        qk_norm_level: Literal["head", "all"] = "head",
        bias: bool = True,
        out_bias: bool | None = None,
        convolution: Callable[[int], CausalConvolution] | None = None,
        output_gate: Literal["elementwise", "headwise"] | None = None,
        gated_bias: bool = False,
    ):
        super().__init__()
        check_at_least(
            1, dim=dim, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim
        )
        if head_dim is None and dim % num_heads:
            raise ValueError(
                f"dim={dim} does not split into num_heads={num_heads} equal heads; make it a multiple, or give head_dim"
            )
        head_dim = dim // num_heads if head_dim is None else head_dim
        if qk_norm_level not in ("head", "all"):
            raise ValueError(f"qk_norm_level={qk_norm_level!r}; it is one of 'head', 'all'")
        if output_gate not in ("elementwise", "headwise", None):
            raise ValueError(
                f"output_gate={output_gate!r}; it is one of 'elementwise', 'headwise', or None"
            )
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads % num_kv_heads:
            raise ValueError(
                f"num_heads={num_heads} is not a multiple of num_kv_heads={num_kv_heads}; make num_kv_heads a divisor"
            )
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.qkv_proj: nn.Linear | None = nn.Linear(
            dim, (num_heads + 2 * num_kv_heads) * head_dim, bias=bias
        )
        self.q_proj: nn.Linear | None
        self.kv_proj: nn.Linear | None
        # cross-attention has these two instead: see `for_cross_attention`
        self.register_module("q_proj", None)
        self.register_module("kv_proj", None)
        self.convolution = None
        if convolution is not None:
            self.convolution = convolution(self.qkv_proj.out_features)
        self.mechanism = mechanism(num_heads, head_dim)
        self.out_proj = nn.Linear(
            num_heads * head_dim, dim, bias=bias if out_bias is None else out_bias
        )
        self.gate_proj = None
        if output_gate is not None:
            num_gates = num_heads if output_gate == "headwise" else num_heads * head_dim
            self.gate_proj = nn.Linear(dim, num_gates, bias=bias)
        self.bias_gate = BiasGate(dim, num_heads) if gated_bias else None
        self.norms_heads = qk_norm_level == "head"  # True: each head by itself; False: all together
        self.query_norm = None
        self.key_norm = None
        if qk_norm is not None:
            self.query_norm = qk_norm(head_dim if self.norms_heads else num_heads * head_dim)
            self.key_norm = qk_norm(head_dim if self.norms_heads else num_kv_heads * head_dim)
        self.supports = self.mechanism.supports
        if self.convolution is not None:
            self.supports &= ~CausalConvolution.UNSUPPORTED
        self.needs_mask = self.mechanism.needs_mask
        # a mask keeps packed sequences apart in scores, not in a convolution
        self.needs_rows = self.convolution is not None
        self.needs_adjacency = self.mechanism.needs_adjacency
        if num_kv_heads != num_heads:
            self.check_supported(AttentionFeature.GROUPED_QUERY)

    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        if context.packing is not None and self._attends_in_row(x, context):
            return self._forward_in_row(x, context, context.packing)
        if context.memory is None:
            q, k, v = self._self_qkv(x, context, cache)
        else:
            q, k, v = self._cross_qkv(x, context, context.memory, cache)
        if context.rotary is not None:
            q = apply_rotary(q, context.rotary)
            k = apply_rotary(k, context.rotary)
        if context.distances is not None:
            context = self._with_distances(q, k, context, context.distances)
        if self.bias_gate is not None and context.memory is None:
            padded = x if context.packing is None else context.packing.pad(x)
            context = replace(context, attn_mask=self.bias_gate(padded, context.attn_mask))
        if cache is None or context.memory is not None:
            continued = None
        else:
            continued = cache.self_attention
        output = rearrange(self.mechanism(q, k, v, context, continued), "b h n c -> b n (h c)")
        if context.packing is not None:
            output = context.packing.pack(output)
        return self.out_proj(self._gated(output, x))

    def _with_distances(
        self, q: Tensor, k: Tensor, context: AttentionContext, distances: Distances
    ) -> AttentionContext:
        """The context with the scores of distances in its mask."""
        assert self.qkv_proj is not None
        assert context.attn_mask is not None
        vector_q, vector_k, _ = self._split(self.qkv_proj(distances.vectors))
        scores = distances.scores(q, repeat_kv(k, q), vector_q, repeat_kv(vector_k, q))
        return replace(context, attn_mask=scores + context.attn_mask)

    def _attends_in_row(self, x: Tensor, context: AttentionContext) -> bool:
        """Whether torch's FlashAttention can take the place of the mechanism, without padding."""
        own = self.mechanism
        if not (
            x.is_cuda
            and context.is_plain
            and type(own) is ScaledDotProductAttention
            and own.is_plain
        ):
            return False
        # hooks get queries and keys of the padded batch
        if self.convolution is not None or own._forward_hooks:
            return False
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
        else:
            dtype = x.dtype
        fits = (
            dtype in (torch.float16, torch.bfloat16)
            and self.head_dim % 8 == 0
            and self.head_dim <= 256
        )
        return fits and has_flash_attention()

    def _forward_in_row(self, x: Tensor, context: AttentionContext, packing: Packing) -> Tensor:
        assert isinstance(self.mechanism, ScaledDotProductAttention)
        assert self.qkv_proj is not None
        q, k, v = self._split(self.qkv_proj(x))
        if context.rotary is not None:
            rotary = rearrange(
                packing.pack(rearrange(context.rotary, "b 1 n r -> b n r")), "1 t r -> 1 1 t r"
            )
            q = apply_rotary(q, rotary)
            k = apply_rotary(k, rotary)
        dropout = self.mechanism.dropout if self.training else 0.0
        q = q.to(v.dtype)
        k = repeat_kv(k, q).to(v.dtype)
        v = repeat_kv(v, q)
        output = packing.attend(
            q, k, v, causal=context.is_causal, dropout=dropout, scale=1 / self.mechanism.temperature
        )
        return self.out_proj(self._gated(rearrange(output, "1 h t c -> 1 t (h c)"), x))

    def _gated(self, output: Tensor, x: Tensor) -> Tensor:
        """The attention output [b n (h c)], times the gate of the layer's input, if there is one."""
        return output if self.gate_proj is None else gated(output, self.gate_proj(x))

    def _self_qkv(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x."""
        if self.qkv_proj is None:
            raise ValueError("this attention was built for cross-attention and got no memory")
        qkv = self.qkv_proj(x)
        if context.packing is not None:
            qkv = context.packing.pad(qkv)
        if self.convolution is not None:
            qkv = self._convolved(self.convolution, qkv, context, cache)
        return self._split(qkv)

    def _convolved(
        self,
        convolution: CausalConvolution,
        qkv: Tensor,
        context: AttentionContext,
        cache: LayerCache | None,
    ) -> Tensor:
        """The convolution of queries, keys and values, which begins anew in each packed sequence."""
        if context.segments is None:
            return convolution(qkv, context.query_valid, cache)
        return context.segments.map(lambda own: convolution(own.split(qkv)))

    def _split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Heads of queries, keys and values."""
        sizes = [
            heads * self.head_dim
            for heads in (self.num_heads, self.num_kv_heads, self.num_kv_heads)
        ]
        # split before rearrange: the gradient then is copied once, in the other order twice
        query, key, value = qkv.split(sizes, dim=-1)
        return (
            self._heads(query, self.query_norm),
            self._heads(key, self.key_norm),
            self._heads(value),
        )

    def _cross_qkv(
        self, x: Tensor, context: AttentionContext, memory: Tensor, cache: LayerCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x, and keys and values of the memory; a cache keeps these for all decoding steps."""
        if self.q_proj is None or self.kv_proj is None:
            raise ValueError(
                "this attention was built for one sequence and got a memory; call its for_cross_attention"
            )
        query = self.q_proj(x)
        if context.packing is not None:
            query = context.packing.pad(query)
        q = self._heads(query, self.query_norm)
        if cache is not None and cache.cross_attention is not None:
            return q, *cache.cross_attention
        key, value = self.kv_proj(memory).chunk(2, dim=-1)
        k = self._heads(key, self.key_norm)
        v = self._heads(value)
        if cache is not None:
            cache.cross_attention = (k, v)
        return q, k, v

    def _heads(self, x: Tensor, norm: nn.Module | None = None) -> Tensor:
        """Projected queries, keys or values [b n (h c)] as heads [b h n c], normalised by the norm, if any."""
        if norm is not None and not self.norms_heads:
            x = norm(x)
        x = rearrange(x, "b n (h c) -> b h n c", c=self.head_dim)
        return norm(x) if norm is not None and self.norms_heads else x

    def for_cross_attention(self) -> Self:
        """Split the joint projection in two, one of the tokens and one of the memory, and return the layer.

        The two have the initial weights of `qkv_proj`.
        """
        joint = self.qkv_proj
        assert joint is not None
        sizes = self.num_heads * self.head_dim, 2 * self.num_kv_heads * self.head_dim
        parts = zip(*(p.detach().split(sizes) for p in joint.parameters()))
        self.qkv_proj = None
        self.q_proj, self.kv_proj = (_linear_of(*part) for part in parts)
        return self

    def init_cache(self, max_tokens: int) -> LayerCache:
        return LayerCache(self.mechanism.init_cache(max_tokens))

    def check_supported(self, required: AttentionFeature) -> None:
        """Raise ValueError if its mechanism or its convolution does not support a required feature."""
        name = type(self.mechanism).__name__
        check_supported(name, self.mechanism.supports, required)
        check_supported(
            f"{name} with a convolution", self.supports, required, "leave the convolution out"
        )


def _linear_of(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A linear layer with copies of these weights; no random numbers are drawn."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    given = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    layer.load_state_dict({name: x.clone() for name, x in given.items()}, assign=True)
    return layer.requires_grad_()


def gated(output: Tensor, gate: Tensor) -> Tensor:
    """Attention output [... (h c)] times sigmoid(gate), one for each channel [... (h c)] or for each head [... h]."""
    channels = output.shape[-1] // gate.shape[-1]
    return output * repeat(gate.sigmoid(), "... g -> ... (g channels)", channels=channels)


def apply_rotary(x: Tensor, rotary: Tensor) -> Tensor:
    """Rotate channel pairs (2 i, 2 i + 1) of x [b h n c] by complex `rotary` [b 1 n r]; channels from 2 r on stay.

    Complex products are five times as fast on a CPU, forward and backward, as sines and cosines on halves
    (docs/decisions.md).
    """
    r = rotary.shape[-1]
    paired = x[..., : 2 * r] if x.dtype == torch.float64 else x[..., : 2 * r].float()
    if x.shape[-1] % 2:
        paired = paired.contiguous()  # view_as_complex needs even strides
    pairs = torch.view_as_complex(rearrange(paired, "b h n (r two) -> b h n r two", two=2))
    rotated = rearrange(torch.view_as_real(pairs * rotary), "b h n r two -> b h n (r two)").to(
        x.dtype
    )
    if x.shape[-1] == 2 * r:
        return rotated
    return torch.cat([rotated, x[..., 2 * r :]], dim=-1)
