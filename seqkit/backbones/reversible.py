"""Reversible transformer: stores no activations per layer, but recomputes each layer's input from its output.

b batch · n tokens · d width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqkit.backbones.transformer import Transformer
from seqkit.interfaces import Backbone, Cache, Embedded, TokenSpec
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.kv_cache import LayerCache, TransformerCache
from seqkit.nn.block import BaseBlock, PreNormBlock, Residual
from seqkit.nn.moe import AuxiliaryLoss
from seqkit.nn.position.base import RelativePosition

LEARNED = ("attn_mask", "relative", "rotary", "edge_bias")
"""Fields of an attention context that may have a gradient."""


class Reversible(Backbone):
    """Reversible residual streams: y1 = x1 + attention(norm(x2)), y2 = x2 + mlp(norm(y1)).

    Gomez et al. 2017, equations 6 to 8; Kitaev et al. 2020 (Reformer), section 3. Both streams start as the input, and
    the output is the norm of their mean.
    Training stores the last two streams [b n d] for any depth, and the backward pass computes each layer once more: a
    third more time (docs/efficient.md). Gradients are those of plain backpropagation up to the rounding of
    x = (x + f) - f, so weights should be float32 (autocast is fine), and hashing or top-k may differ at a tie.
    block: block whose components are used, `(dim, num_heads) -> PreNormBlock`. dim, depth, num_heads, causal, norm,
    position, dropout: as in `Transformer`.
    Raises ValueError for another kind of block, another residual than `Residual`, cross-attention, components with an
    auxiliary loss (its graph is not stored either), and what `Transformer` refuses.
    """

    def __init__(
        self,
        dim: int,
        depth: int = 2,
        *,
        num_heads: int = 8,
        causal: bool = False,
        block: Callable[[int, int], BaseBlock] = PreNormBlock,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        position: RelativePosition | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.stack = Transformer(
            dim, depth, num_heads=num_heads, causal=causal, block=block, norm=norm, position=position, dropout=dropout
        )
        _check_reversible(self.stack)
        self.dim, self.num_heads, self.causal = dim, num_heads, causal
        self.supports_adjacency, self.supports_segments = self.stack.supports_adjacency, self.stack.supports_segments
        self.joins_graphs, self.knows_columns = self.stack.joins_graphs, self.stack.knows_columns
        self.uses_positions = self.stack.uses_positions

    def check_supported(self, spec: TokenSpec) -> None:
        """Raise ValueError for tokens that a `Transformer` of these blocks does not support."""
        self.stack.check_supported(spec)

    def add_edge_bias(self, num_edge_types: int) -> None:
        self.stack.add_edge_bias(num_edge_types)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded."""
        if cache is not None and not isinstance(cache, TransformerCache):
            raise ValueError(f"Reversible was given a {type(cache).__name__}; make its cache with init_cache")
        context = self.stack.contexts(embedded, cache)[self.stack.kinds[0]]
        layers = [ReversibleLayer(cast(BaseBlock, block), context) for block in self.stack.blocks]
        x, y = embedded.hidden, embedded.hidden
        if cache is None:
            x, y = run_reversible(layers, x, y)
        else:
            for layer, layer_cache in zip(layers, cache.layers):
                x, y = layer(x, y, layer_cache)
            cache.append(embedded)
        return self.stack.norm((x + y) / 2).masked_fill(~rearrange(embedded.valid, "b n -> b n 1"), 0.0)

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache. Raises ValueError where a `Transformer` of these blocks has none."""
        return self.stack.init_cache(max_tokens)


@dataclass(frozen=True, slots=True)
class ReversibleLayer:
    """The two branches of a layer, made of a block's components."""

    block: BaseBlock
    context: AttentionContext

    def attend(self, y: Tensor, cache: LayerCache | None = None) -> Tensor:
        """The attention branch: what is added to the first stream, from the second [b n d]."""
        block = self.block
        return block.attention_residual(y.new_zeros(()), block.attention(block.attention_norm(y), self.context, cache))

    def feed_forward(self, x: Tensor) -> Tensor:
        """The MLP branch: what is added to the second stream, from the first [b n d]."""
        return self.block.mlp_residual(x.new_zeros(()), self.block.feed_forward(self.block.mlp_norm(x), self.context))

    def __call__(self, x: Tensor, y: Tensor, cache: LayerCache | None = None) -> tuple[Tensor, Tensor]:
        """Both streams [b n d] after this layer."""
        x = x + self.attend(y, cache)
        return x, y + self.feed_forward(x)


def run_reversible(layers: Sequence[ReversibleLayer], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both streams [b n d] through all layers; only the last ones are stored for the backward pass."""
    given = {name: getattr(layers[0].context, name) for name in LEARNED}
    learned = {name: tensor for name, tensor in given.items() if tensor is not None and tensor.requires_grad}
    x, y = _ReversibleFunction.apply(layers, [*learned], x, y, *_trainable(layers), *learned.values())
    return x, y


class _ReversibleFunction(torch.autograd.Function):
    """Forward without a graph; backward from the last layer to the first, each from its recomputed input.

    All that has a gradient is an input, so that `torch.autograd.grad` sees it: the streams, the parameters, and what
    positions or edges add to the scores, the fields `learned` of the context.
    """

    @staticmethod
    def forward(
        ctx: Any, layers: Sequence[ReversibleLayer], learned: list[str], x: Tensor, y: Tensor, *inputs: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.layers, ctx.learned, ctx.settings = layers, learned, []
        for layer in layers:
            for branch in (layer.attend, layer.feed_forward):
                ctx.settings.append(_Settings.now(x, training=layer.block.training))
                with ctx.settings[-1].autocast:
                    x, y = y, x + branch(y)
        ctx.save_for_backward(x, y, *inputs)
        return x, y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_x: Tensor, grad_y: Tensor) -> tuple[Any, ...]:
        x, y, *inputs = ctx.saved_tensors
        # parameters are taken from the modules (unchanged, or torch had raised), since graphs are built from those
        from_context = [tensor.detach().requires_grad_() for tensor in inputs[len(inputs) - len(ctx.learned) :]]
        gradients: dict[Tensor, Tensor] = {}
        settings = list(ctx.settings)
        for layer in reversed(ctx.layers):
            layer = ReversibleLayer(layer.block, replace(layer.context, **dict(zip(ctx.learned, from_context))))
            others = [*_trainable([layer]), *from_context]
            for branch in (layer.feed_forward, layer.attend):
                inner = x.detach().requires_grad_()
                with torch.enable_grad(), settings.pop().restored(inner):
                    output = branch(inner)
                found = torch.autograd.grad(output, [inner, *others], grad_y.to(output.dtype), allow_unused=True)
                for tensor, grad in zip(others, found[1:]):
                    if grad is not None:
                        gradients[tensor] = gradients[tensor] + grad if tensor in gradients else grad
                x, y, grad_x, grad_y = y - output.detach(), x, grad_y, grad_x + found[0]
        return None, None, grad_x, grad_y, *map(gradients.get, [*_trainable(ctx.layers), *from_context])


@dataclass(frozen=True, slots=True)
class _Settings:
    """Autocast of a branch and, while training, the states of the generators when it ran."""

    autocast: torch.autocast
    rng_states: tuple[Tensor, Tensor | None] | None

    @classmethod
    def now(cls, x: Tensor, *, training: bool) -> _Settings:
        """Settings of this moment."""
        device = x.device.type
        autocast = torch.autocast(device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        if not training:
            return cls(autocast, None)
        return cls(autocast, (torch.get_rng_state(), torch.cuda.get_rng_state(x.device) if x.is_cuda else None))

    @contextmanager
    def restored(self, x: Tensor) -> Iterator[None]:
        """Context with these settings; after it the generators are as before."""
        with self.autocast, ExitStack() as stack:
            if self.rng_states is not None:
                stack.enter_context(torch.random.fork_rng([x.device] if x.is_cuda else []))
                torch.set_rng_state(self.rng_states[0])
                if self.rng_states[1] is not None:
                    torch.cuda.set_rng_state(self.rng_states[1], x.device)
            yield


def _trainable(layers: Sequence[ReversibleLayer]) -> list[Tensor]:
    """The trainable parameters of all layers, each once."""
    return list(dict.fromkeys(p for layer in layers for p in layer.block.parameters() if p.requires_grad))


def _check_reversible(stack: Transformer) -> None:
    """Raise ValueError for blocks that `Reversible` does not support."""
    if len(set(stack.kinds)) > 1:
        raise ValueError("Reversible takes blocks of one kind; use a Transformer for blocks or positions that differ")
    block = cast(BaseBlock, stack.blocks[0])
    if type(block).forward is not PreNormBlock.forward:
        raise ValueError(
            f"Reversible orders the components of a block itself, and was given {type(block).__name__}; "
            "pass PreNormBlock with the components that you want"
        )
    if block.has_cross_attention:
        raise ValueError("Reversible does not support cross-attention; use a Transformer")
    for residual in (block.attention_residual, block.mlp_residual):
        if type(residual) is not Residual:
            raise ValueError(f"{type(residual).__name__} is not reversible; use the residual Residual")
    for module in block.modules():
        if isinstance(module, AuxiliaryLoss):
            name = type(module).__name__
            raise ValueError(f"Reversible does not support the auxiliary loss of {name}; use a Transformer")
