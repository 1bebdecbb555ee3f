"""A stack whose activations need not be kept: each layer's input is worked out again from its output.

b batch · n tokens · d width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqkit.backbones.transformer import LayersCache, Transformer
from seqkit.contract import Backbone, Cache, Embedded, TokenSpec
from seqkit.layers.block import Block, Blocks
from seqkit.layers.memory import LayerMemory
from seqkit.layers.position import AttentionPosition
from seqkit.layers.reading import Reading
from seqkit.layers.residual import Residual
from seqkit.mask import who_reads_whom


class Reversible(Backbone):
    """Two streams, each changed by what the other says: y1 = x1 + attention(norm(x2)), y2 = x2 + mlp(norm(y1)).

    Gomez et al. 2017, equations 6 to 8; Kitaev et al. 2020 (Reformer), section 3. Both streams start as the input, and
    their mean is normalised, as they are equally good witnesses.
    Training keeps the last two streams [b n d] for any depth and computes each layer once more on the way back: a third
    more time (docs/efficient.md). Gradients are those of plain backpropagation up to the rounding of x = (x + f) - f,
    so weights should be float32 (autocast is fine), and a hash or a choice at a tie may fall differently.
    block: `(dim, num_heads) -> Block`, whose parts are taken. norm, position: as in `Transformer`.
    Raises ValueError for another order of the parts, another residual than `Residual`, blocks that cross, parts with a
    loss of their own (its graph is not kept either), and what `Transformer` refuses.
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        *,
        num_heads: int = 8,
        causal: bool = False,
        block: Callable[[int, int], Blocks] = Block,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        position: AttentionPosition | None = None,
    ):
        super().__init__()
        self.stack = Transformer(
            dim, depth, num_heads=num_heads, causal=causal, block=block, norm=norm, position=position
        )
        for layer in self.stack.blocks:
            _refuse_unless_reversible(layer)
        self.dim, self.num_heads, self.causal = dim, num_heads, causal
        self.reads_links, self.reads_segments = self.stack.reads_links, self.stack.reads_segments
        self.reads_positions = self.stack.reads_positions

    def check(self, spec: TokenSpec) -> None:
        """Raise ValueError for tokens that a `Transformer` of these blocks refuses."""
        self.stack.check(spec)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden vectors [b n d], zero where padded."""
        if cache is not None and not isinstance(cache, LayersCache):
            raise ValueError(f"Reversible was given a {type(cache).__name__}; make its cache with init_cache")
        self.stack.refuse_unread(embedded)
        if embedded.memory is not None:
            raise ValueError("Reversible reads no other sequence; use a Transformer whose blocks cross")
        reading = who_reads_whom(
            embedded,
            causal=self.causal,
            num_heads=self.num_heads,
            channels=self.dim // self.num_heads,
            position=self.stack.position,
            past=None if cache is None else cache.past,
            dense=self.stack.dense,
        )
        layers = [Layer(cast(Blocks, block), reading) for block in self.stack.blocks]
        x, y = embedded.hidden, embedded.hidden
        if cache is None:
            x, y = run(layers, x, y)
        else:
            for layer, memory in zip(layers, cache.layers):
                x, y = layer(x, y, memory)
            cache.append(embedded.valid, embedded.positions)
        return self.stack.norm((x + y) / 2).masked_fill(~rearrange(embedded.valid, "b n -> b n 1"), 0.0)

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache. Raises ValueError where a `Transformer` of these blocks keeps none."""
        return self.stack.init_cache(max_tokens)


@dataclass(frozen=True, slots=True)
class Layer:
    """The two maps that a layer adds, of parts of a block."""

    block: Blocks
    reading: Reading

    def attend(self, y: Tensor, memory: LayerMemory | None = None) -> Tensor:
        """What attention adds to the first stream, from the second [b n d]."""
        block = self.block
        return block.attention_added(y.new_zeros(()), block.attention(block.attention_norm(y), self.reading, memory))

    def think(self, x: Tensor) -> Tensor:
        """What the mlp adds to the second stream, from the first [b n d]."""
        return self.block.mlp_added(x.new_zeros(()), self.block.think(self.block.mlp_norm(x), self.reading))

    def __call__(self, x: Tensor, y: Tensor, memory: LayerMemory | None = None) -> tuple[Tensor, Tensor]:
        """Both streams [b n d] one layer on."""
        x = x + self.attend(y, memory)
        return x, y + self.think(x)


def run(layers: Sequence[Layer], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both streams [b n d] through all layers, of which only the end is kept for the way back."""
    weights = _trained(layers)
    reading = layers[0].reading
    learned = [name for name in ("attend", "relative", "rotation", "link_bias")
               if getattr(reading, name) is not None and getattr(reading, name).requires_grad]  # fmt: skip
    told = [getattr(reading, name) for name in learned]
    x, y = _ThereAndBack.apply(layers, learned, len(weights), x, y, *weights, *told)
    return x, y


class _ThereAndBack(torch.autograd.Function):
    """Forward without a graph; backward from the last layer to the first, each from its own end.

    All that has a gradient is an input, so that `torch.autograd.grad` sees it: the streams, weights, and what
    positions or links add to the scores. Dropout falls again as it fell: the generator's states are kept.
    """

    @staticmethod
    def forward(
        ctx: Any, layers: Sequence[Layer], learned: list[str], num_weights: int, x: Tensor, y: Tensor, *told: Tensor
    ) -> tuple[Tensor, Tensor]:
        device = x.device.type
        ctx.autocast = torch.amp.is_autocast_available(device) and (
            torch.is_autocast_enabled(device),
            torch.get_autocast_dtype(device),
        )
        ctx.layers, ctx.learned, ctx.num_weights, ctx.random = layers, learned, num_weights, []
        with _autocast(x, ctx.autocast):
            for layer in layers:
                ctx.random.append(_random(x, layer))
                x = x + layer.attend(y)
                ctx.random.append(_random(x, layer))
                y = y + layer.think(x)
        ctx.save_for_backward(x, y, *told)
        return x, y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_x: Tensor, to_y: Tensor) -> tuple[Any, ...]:
        x, y, *inputs = ctx.saved_tensors
        # weights are taken from the modules themselves (the same, or torch had raised): graphs are built from those
        told = [tensor.detach().requires_grad_() for tensor in inputs[ctx.num_weights :]]
        gradients: dict[Tensor, Tensor] = {}
        states = list(ctx.random)

        def back(branch: Callable[[Tensor], Tensor], at: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
            """What the branch adds at `at`, and its gradient there; those of all else are added up."""
            wanted = [*_trained([layer]), *told]
            at = at.detach().requires_grad_()
            with torch.enable_grad(), _autocast(at, ctx.autocast), _replayed(at, states.pop()):
                added = branch(at)
            found = torch.autograd.grad(added, [at, *wanted], gradient.to(added.dtype), allow_unused=True)
            for tensor, one in zip(wanted, found[1:]):
                if one is not None:
                    gradients[tensor] = gradients[tensor] + one if tensor in gradients else one
            return added.detach(), found[0]

        for layer in reversed(ctx.layers):
            layer = Layer(layer.block, replace(layer.reading, **dict(zip(ctx.learned, told))))
            added, more = back(layer.think, x, to_y)
            y, to_x = y - added, to_x + more
            added, more = back(layer.attend, y, to_x)
            x, to_y = x - added, to_y + more
        return None, None, None, to_x, to_y, *map(gradients.get, [*_trained(ctx.layers), *told])


def _trained(layers: Sequence[Layer]) -> list[Tensor]:
    """The weights of all layers that are to be trained, each once."""
    return list(dict.fromkeys(w for layer in layers for w in layer.block.parameters() if w.requires_grad))


def _refuse_unless_reversible(block: nn.Module) -> None:
    assert isinstance(block, Blocks)
    if type(block).forward is not Block.forward:
        raise ValueError(
            f"Reversible orders the parts of a block itself, and was given {type(block).__name__}; "
            "pass Block with the parts that you want"
        )
    if block.crosses:
        raise ValueError("Reversible reads no other sequence; use a Transformer for blocks with cross=True")
    for added in (block.attention_added, block.mlp_added):
        if type(added) is not Residual:
            raise ValueError(f"{type(added).__name__} cannot be undone; Reversible takes the residual Residual")
    for module in block.modules():
        if hasattr(module, "extra_loss"):
            raise ValueError(
                f"{type(module).__name__} has a loss of its own, whose graph Reversible does not keep; "
                "use a Transformer"
            )


Random = tuple[Tensor, Tensor | None] | None


def _random(x: Tensor, layer: Layer) -> Random:
    """The generators' states, where something may be drawn."""
    if not layer.block.training:
        return None
    return torch.get_rng_state(), torch.cuda.get_rng_state(x.device) if x.is_cuda else None


@contextmanager
def _replayed(x: Tensor, random: Random) -> Iterator[None]:
    """Draws as from those states; afterwards it is as if nothing had been drawn."""
    if random is None:
        yield
        return
    with torch.random.fork_rng([x.device] if x.is_cuda else []):
        torch.set_rng_state(random[0])
        if random[1] is not None:
            torch.cuda.set_rng_state(random[1], x.device)
        yield


def _autocast(x: Tensor, state: tuple[bool, torch.dtype] | None) -> torch.autocast | nullcontext[None]:
    """Precision as it was on the way there."""
    if not state:
        return nullcontext()
    enabled, dtype = state
    return torch.autocast(x.device.type, dtype, enabled=enabled)
