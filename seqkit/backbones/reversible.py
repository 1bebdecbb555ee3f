"""Reversible transformer: stores no activations per layer, but recomputes each layer's input from its output.

b batch · n tokens · d width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqkit.backbones.transformer import Transformer
from seqkit.interfaces import Backbone, Cache, Embedded, TokenSpec
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.block import BaseBlock, PreNormBlock, Residual
from seqkit.nn.moe import AuxiliaryLoss
from seqkit.nn.padding import zero_padded
from seqkit.nn.position.base import RelativePosition

Branch = Callable[[Tensor], Tensor]
"""Function from one stream to what is added to the other, [b n d] each."""


class Reversible(Backbone):
    """Reversible residual streams: y1 = x1 + attention(norm(x2)), y2 = x2 + mlp(norm(y1)).

    Gomez et al. 2017, equations 6 to 8; Kitaev et al. 2020 (Reformer), section 3. Both streams start as the input, and
    the output is the norm of their mean.
    Training stores the last two streams [b n d] for any depth, and the backward pass computes each layer once more: a
    third more time (docs/efficient.md). Gradients are those of plain backpropagation up to the rounding of
    x = (x + f) - f, so weights should be float32 (autocast is fine), and hashing or top-k may differ at a tie.
    block: block whose components are used, `(dim, num_heads) -> PreNormBlock`. dim, depth, num_heads, causal, norm,
    position, dropout: as in `Transformer`. It has no cache, and supports no adjacency.
    Raises ValueError for another kind of block, another residual than `Residual`, cross-attention, components with an
    auxiliary loss or a position with parameters (their graphs are not stored either), and what `Transformer` refuses.
    """

    needs_unit_inputs = False

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
            dim,
            depth,
            num_heads=num_heads,
            causal=causal,
            block=block,
            norm=norm,
            position=position,
            dropout=dropout,
        )
        _check_reversible(self.stack)
        self.dim = dim
        self.num_heads = num_heads
        self.causal = causal
        self.supports_segments = self.stack.supports_segments
        self.knows_columns = self.stack.knows_columns
        self.uses_positions = self.stack.uses_positions

    def check_supported(self, spec: TokenSpec) -> None:
        """Raise ValueError for an adjacency, and for tokens that a `Transformer` of these blocks does not support."""
        super().check_supported(spec)
        self.stack.check_supported(spec)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded. Raises ValueError for a cache or an adjacency."""
        if cache is not None:
            raise ValueError("Reversible has no cache; generate with use_cache=False")
        if embedded.adjacency is not None:
            raise ValueError("Reversible does not support adjacency; use a Transformer")
        context = self.stack.contexts(embedded)[self.stack.kinds[0]]
        branches = [
            branch
            for block in self.stack.blocks
            for branch in branches_of(cast(BaseBlock, block), context)
        ]
        parameters = [p for p in self.stack.blocks.parameters() if p.requires_grad]
        x, y = run_reversible(branches, parameters, embedded.hidden, embedded.hidden)
        return zero_padded(self.stack.norm((x + y) / 2), embedded.valid)


def branches_of(block: BaseBlock, context: AttentionContext) -> tuple[Branch, Branch]:
    """The two branches of a layer, attention and MLP, made of a block's components."""

    def attend(y: Tensor) -> Tensor:
        return block.attention_residual(
            y.new_zeros(()), block.attention(block.attention_norm(y), context)
        )

    def feed_forward(x: Tensor) -> Tensor:
        return block.mlp_residual(x.new_zeros(()), block.feed_forward(block.mlp_norm(x), context))

    return attend, feed_forward


def run_reversible(
    branches: Sequence[Branch], parameters: Sequence[Tensor], x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Both streams [b n d] through all branches; only the last ones are stored for the backward pass."""
    x, y = _ReversibleFunction.apply(branches, x, y, *parameters)
    return x, y


class _ReversibleFunction(torch.autograd.Function):
    """Forward without a graph; backward from the last branch to the first, each from its recomputed input.

    The parameters are inputs, so that `torch.autograd.grad` sees them.
    """

    @staticmethod
    def forward(
        ctx: Any, branches: Sequence[Branch], x: Tensor, y: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        device = x.device.type
        cuda = [x.device] if x.is_cuda else []
        enabled = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device)
        # a weight that was cast without a graph must not serve the backward pass
        ctx.autocast = partial(torch.autocast, device, dtype, enabled, cache_enabled=False)
        ctx.branches = branches
        ctx.parameters = parameters
        ctx.cuda = cuda
        ctx.rng_states = []
        with ctx.autocast():
            for branch in branches:
                ctx.rng_states.append([torch.get_rng_state(), *map(torch.cuda.get_rng_state, cuda)])
                mixed = x + branch(y)
                x = y
                y = mixed
        # torch raises where a parameter changed in the meantime
        ctx.save_for_backward(x, y, *parameters)
        return x, y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_x: Tensor, grad_y: Tensor) -> tuple[Any, ...]:
        x, y, *_ = ctx.saved_tensors
        gradients: list[Tensor | None] = [None] * len(ctx.parameters)
        for branch, states in zip(reversed(ctx.branches), reversed(ctx.rng_states)):
            inner = x.detach().requires_grad_()
            with torch.enable_grad(), ctx.autocast(), torch.random.fork_rng(ctx.cuda):
                torch.set_rng_state(states[0])
                for device, state in zip(ctx.cuda, states[1:]):
                    torch.cuda.set_rng_state(state, device)
                output = branch(inner)
            inputs = [inner, *ctx.parameters]
            grad_inner, *found = torch.autograd.grad(
                output, inputs, grad_y.to(output.dtype), allow_unused=True
            )
            for at, new in enumerate(found):
                if new is not None:
                    old = gradients[at]
                    gradients[at] = new if old is None else old + new
            # the branch turned (x, y) into (y, x + branch(y))
            before = y - output.detach()
            grad_before = grad_x + grad_inner
            y = x
            x = before
            grad_x = grad_y
            grad_y = grad_before
        return None, grad_x, grad_y, *gradients


def _check_reversible(stack: Transformer) -> None:
    """Raise ValueError for blocks that `Reversible` does not support."""
    block = cast(BaseBlock, stack.blocks[0])
    if not block.has_mlp:
        raise ValueError("Reversible does not support blocks without an MLP; or use a Transformer")
    unlike = [
        type(x).__name__
        for x in (block.attention_residual, block.mlp_residual)
        if type(x) is not Residual
    ]
    with_loss = [type(x).__name__ for x in block.modules() if isinstance(x, AuxiliaryLoss)]
    faults = {
        "blocks that differ": len(set(stack.kinds)) > 1,
        f"{type(block).__name__}; pass a PreNormBlock": type(block).forward
        is not PreNormBlock.forward,
        "cross-attention": block.has_cross_attention,
        f"the residual {', '.join(unlike)}": bool(unlike),
        f"the auxiliary loss of {', '.join(with_loss)}": bool(with_loss),
        "a position with parameters": any(True for _ in stack.positions.parameters()),
    }
    for what, is_given in faults.items():
        if is_given:
            raise ValueError(f"Reversible does not support {what}; or use a Transformer")
