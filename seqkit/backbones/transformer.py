"""Transformer: a stack of attention blocks, one backbone for all modalities.

b batch · n tokens · m tokens of the memory · p axes · d width · h heads
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

from torch import Tensor, nn

from seqkit.interfaces import Backbone, Cache, Embedded, TokenSpec
from seqkit.nn.attention.context import AttentionContext, attention_context, cross_attention_context
from seqkit.nn.attention.features import ALL_FEATURES, AttentionFeature
from seqkit.nn.attention.kv_cache import TransformerCache, encoder_output
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import MLP, BaseBlock, ParallelBlock, PostNormBlock, PreNormBlock, Residual
from seqkit.nn.checks import check_at_least, check_probability
from seqkit.nn.dropout import InheritedDropout
from seqkit.nn.initialization import init_weights
from seqkit.nn.mixers.base import BothDirections, Mixer, StateMixer
from seqkit.nn.mixers.parallel import ParallelMixer
from seqkit.nn.mlp import GatedMLP, QuickGELU, ReLUSquared
from seqkit.nn.moe import AuxiliaryLoss, MixtureOfExperts
from seqkit.nn.norm import ZeroCenteredRMSNorm
from seqkit.nn.packing import Packing, is_worth_packing, packing_of
from seqkit.nn.padding import zero_padded
from seqkit.nn.position.base import RelativePosition
from seqkit.nn.position.bias import EdgeBias
from seqkit.nn.segments import SegmentRows


@dataclass(frozen=True)
class ContextKind:
    """Properties of a layer that its attention context depends on; layers of one kind share a context.

    position: index into the backbone's positions; None: the layer has none. needs_mask, needs_rows, num_heads,
    head_dim: as in its mixer. cross_needs_mask: needs_mask of its cross-attention, whose mechanism may be another;
    None: it has none.
    """

    position: int | None
    needs_mask: bool
    needs_rows: bool
    num_heads: int
    head_dim: int
    cross_needs_mask: bool | None


TOKENWISE = {
    MLP, GatedMLP, MixtureOfExperts, PreNormBlock, PostNormBlock, ParallelBlock, QuickGELU, ReLUSquared, Residual,
    ZeroCenteredRMSNorm, nn.Dropout, nn.GELU, nn.Identity, nn.LayerNorm, nn.Linear, nn.ModuleDict, nn.ModuleList,
    nn.ParameterDict, nn.RMSNorm, nn.ReLU, nn.SiLU, nn.Sigmoid, nn.Tanh,
}  # fmt: skip
"""Types of modules that work on each token by itself. Others, also subclasses of these, are taken to mix tokens."""

BlockFactory = Callable[[int, int], BaseBlock]
MixerFactory = Callable[[int, int], Mixer]


class Transformer(Backbone):
    """Transformer (Vaswani et al. 2017): an encoder, with causal=True a decoder.

    With cross-attention in its blocks it is the decoder of an encoder–decoder.

    dim: width. depth: number of blocks. num_heads: number of attention heads. causal: True: a token attends to itself
    and earlier ones only. None: as the batch says (`Backbone.causal`).
    block: `(dim, num_heads) -> BaseBlock`; a variant is another block passed in. mixer: what stands where the block's
    attention does, `(dim, num_heads) -> Mixer`, such as a recurrent network; None: the block's own attention. position:
    positions inside attention (`Rotary()`), of the layers that have it; None: positions are added to the embeddings,
    unless a mixer carries a state from token to token, which then knows their order. Each may be a list: an entry for
    each layer, or a pattern to repeat ([local, local, full] for 12 layers; [Mamba, Mamba, Mamba, None], a hybrid). The
    stack supports a feature if every block supports it.
    repeats: how many blocks in a row are one, with one set of weights (ALBERT; Lan et al. 2020, section 3.1); lists of
    blocks and mixers are then of depth / repeats blocks.
    norm: norm of the last output. input_norm: norm of the embeddings (BERT); None: none. dropout: dropout probability
    of residual branches and attention weights, unless a component has its own.
    With causal=False a mixer that goes from left to right is two, and their sum (`BothDirections`).
    Weights are initialised as GPT-2's: normal with std 0.02, output projections divided by sqrt(2 depth) (Radford et
    al. 2019, section 2.3). Mixers that carry a state keep their own.
    Raises ValueError if the length of a list or repeats does not divide depth, if heads do not fit, if an attention or
    mixer does not support what causal, position or blocks require, or if blocks that repeat have an auxiliary loss.
    """

    needs_unit_inputs = False

    def __init__(
        self,
        dim: int,
        depth: int = 2,
        *,
        num_heads: int = 8,
        causal: bool | None = False,
        block: BlockFactory | Sequence[BlockFactory] = PreNormBlock,
        mixer: MixerFactory | Sequence[MixerFactory | None] | None = None,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        input_norm: Callable[[int], nn.Module] | None = None,
        position: RelativePosition | Sequence[RelativePosition | None] | None = None,
        dropout: float = 0.0,
        repeats: int = 1,
    ):
        super().__init__()
        check_at_least(1, dim=dim, num_heads=num_heads, depth=depth, repeats=repeats)
        if depth % repeats:
            raise ValueError(f"repeats={repeats} does not divide depth={depth}; make it a divisor")
        check_probability("dropout", dropout)
        self.dim = dim
        self.num_heads = num_heads
        self.causal = causal
        self.blocks = nn.ModuleList()
        blocks = _per_layer("block", block, depth // repeats)
        mixers = _per_layer("mixer", mixer, depth // repeats)
        _check_attention_is_used(blocks, mixers)
        for make, of_layer in zip(blocks, mixers):
            if of_layer is None:
                made = make(dim, num_heads)
            else:
                attention = partial(_directed, of_layer, causal is False)
                with_mixer = cast(Callable[..., BaseBlock], make)
                made = with_mixer(dim, num_heads, attention=attention)
            self.blocks.extend([made] * repeats)
        if repeats > 1 and any(isinstance(x, AuxiliaryLoss) for x in self.blocks.modules()):
            raise ValueError("an auxiliary loss is of one block; give repeats=1, or another MLP")
        self.norm = norm(dim)
        self.input_norm = input_norm(dim) if input_norm is not None else None
        positions = _used_positions(self._blocks, _per_layer("position", position, depth))
        unlike: list[RelativePosition] = []
        for one in positions:
            if one is not None and _index_of(one, unlike) is None:
                one.check_complete()
                unlike.append(one)
        self.positions = nn.ModuleList(unlike)
        self.edge_biases = nn.ModuleDict()  # key: number of heads; `add_edge_bias` fills it
        self.kinds = [
            _kind(block, position, unlike) for block, position in zip(self._blocks, positions)
        ]
        self._looks_back = not all(block.attention.carries_state for block in self._blocks)
        self._declare_support()
        init_weights(self.blocks)
        for module in self.blocks.modules():
            if isinstance(module, InheritedDropout):
                module.inherit_dropout(dropout)

    @property
    def _blocks(self) -> list[BaseBlock]:
        return cast("list[BaseBlock]", list(self.blocks))

    def position_of(self, kind: ContextKind) -> RelativePosition | None:
        """Position inside attention of the layers of a kind; None: they have none."""
        if kind.position is None:
            return None
        return cast(RelativePosition, self.positions[kind.position])

    def _required(self, block: BaseBlock, kind: ContextKind) -> AttentionFeature:
        """The features that a block's attention must support. Raises ValueError if a state had to turn round."""
        if self.causal is None and block.attention.carries_state:
            raise ValueError(
                f"{type(block.attention).__name__} cannot go in the direction that a batch says (causal=None); set "
                "causal to true or false"
            )
        if self.causal:
            required = AttentionFeature.CAUSAL
        else:
            required = AttentionFeature.BIDIRECTIONAL
        if self.causal is None:
            required |= AttentionFeature.CAUSAL | AttentionFeature.REACH
        position = self.position_of(kind)
        if position is not None:
            required |= position.requires
        if block.has_cross_attention:
            return required | AttentionFeature.CROSS_ATTENTION
        return required

    def _declare_support(self) -> None:
        """Declare what all blocks support. Raises ValueError if a block does not support a required feature."""
        supports = ALL_FEATURES
        for block, kind in zip(self._blocks, self.kinds):
            position = self.position_of(kind)
            if position is not None:
                position.check_heads(kind.num_heads, kind.head_dim)
            block.attention.check_supported(self._required(block, kind))
            supports &= block.attention.supports
        self.supports_adjacency = AttentionFeature.ADJACENCY in supports
        self.joins_graphs = self.supports_adjacency and all(kind.needs_mask for kind in self.kinds)
        self.supports_segments = AttentionFeature.SEGMENTS in supports
        self.supports_cache = AttentionFeature.CACHE in supports and all(
            cast(RelativePosition, position).supports_cache for position in self.positions
        )
        self.is_encoder_decoder = any(block.has_cross_attention for block in self._blocks)
        self.uses_positions = bool(self.positions)
        self.takes_causality = AttentionFeature.REACH in supports
        self.knows_columns = AttentionFeature.UNORDERED not in supports
        self.is_recurrent = any(isinstance(one, StateMixer) for one in self.blocks.modules())

    def check_supported(self, spec: TokenSpec) -> None:
        """Raise ValueError if a position does not fit the tokens' axes, or an adjacency is unsupported or missing."""
        for block, kind in zip(self._blocks, self.kinds):
            position = self.position_of(kind)
            if position is not None:
                position.check_axes(spec.num_axes, kind.head_dim)
                if (
                    not position.takes_unlike_axes
                    and len({part.num_axes for _, part in spec.parts} - {0}) > 1
                ):
                    axes = ", ".join(f"{name} {part.num_axes}" for name, part in spec.parts)
                    raise ValueError(
                        f"{type(position).__name__} needs parts with the same number of position axes, and these have "
                        f"{axes}; use Rotary with interleaved=true, or no position inside attention"
                    )
            if spec.num_edge_types:
                block.attention.check_supported(
                    self._required(block, kind) | AttentionFeature.ADJACENCY
                )
            elif block.attention.needs_adjacency:
                raise ValueError(
                    "this attention attends along edges, and these tokens have no adjacency; "
                    "use the mechanism ScaledDotProductAttention"
                )

    def add_edge_bias(self, num_edge_types: int) -> None:
        """Add a learned bias per edge type and head. Raises ValueError if there is one for another number of types."""
        for num_heads in dict.fromkeys(kind.num_heads for kind in self.kinds):
            bias = EdgeBias(num_edge_types, num_heads)
            name = str(num_heads)
            if (
                name in self.edge_biases
                and cast(EdgeBias, self.edge_biases[name]).weight.shape != bias.weight.shape
            ):
                raise ValueError(
                    "this Transformer has a bias for other edge types; build a Transformer for each model"
                )
            if name not in self.edge_biases:
                self.edge_biases[name] = bias
        for block in self._blocks:
            block.add_edge_types(num_edge_types)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded. Raises ValueError as `contexts`, or for a foreign cache."""
        if cache is not None and not isinstance(cache, TransformerCache):
            raise ValueError(
                f"a Transformer was given a {type(cache).__name__}; make its cache with init_cache"
            )
        packing = None
        if cache is None and embedded.is_padded:
            packing = self._packing(embedded)
        contexts = self.contexts(embedded, cache, packing)
        x = embedded.hidden if packing is None else packing.pack(embedded.hidden)
        if self.input_norm is not None:
            x = self.input_norm(x)
        for i, (block, kind) in enumerate(zip(self.blocks, self.kinds)):
            layer_cache = None if cache is None else cache.layers[i]
            x = block(x, contexts[kind], layer_cache)
        if cache is not None:
            cache.append(embedded, keep=self._looks_back)
        x = self.norm(x)
        if packing is not None:
            x = packing.pad(x)
        return zero_padded(x, embedded.valid)

    def _packing(self, embedded: Embedded) -> Packing | None:
        """The row of real tokens that the layers get, where that is worth it and all of them work on each token."""
        if not is_worth_packing(embedded):
            return None
        layers = [
            *self._blocks,
            *(norm for norm in (self.norm, self.input_norm) if norm is not None),
        ]
        if all(_is_tokenwise(layer) for layer in layers):
            return packing_of(embedded)
        return None

    def contexts(
        self,
        embedded: Embedded,
        cache: TransformerCache | None = None,
        packing: Packing | None = None,
    ) -> dict[ContextKind, AttentionContext]:
        """The attention context of each kind of layer. packing: of their inputs; None: they are padded.

        Raises ValueError for segments, an adjacency or a memory that attention would ignore, for segments with a cache,
        and for a missing memory.
        """
        if embedded.segments is not None and not self.supports_segments:
            raise ValueError(
                "this attention does not support segments; give each packed sequence its own row"
            )
        if embedded.segments is not None and cache is not None:
            raise ValueError(
                "a Transformer has no cache of packed sequences; give each a row of its own"
            )
        if embedded.adjacency is not None and not self.supports_adjacency:
            raise ValueError(
                "this attention does not support adjacency; use the mechanism ScaledDotProductAttention"
            )
        memory = self._memory(embedded, cache)
        causal = embedded.causal if self.causal is None else self.causal
        past = None if cache is None else cache.past
        found = {}
        for kind in dict.fromkeys(self.kinds):
            context = attention_context(
                embedded,
                causal=causal,
                num_heads=kind.num_heads,
                head_dim=kind.head_dim,
                position=self.position_of(kind),
                edge_bias=self._edge_bias(kind, embedded),
                past=past,
                needs_mask=kind.needs_mask,
            )
            cross = None
            if memory is not None and kind.cross_needs_mask is not None:
                cross = cross_attention_context(
                    embedded.valid, memory, needs_mask=kind.cross_needs_mask
                )
                cross = replace(cross, packing=packing)
            found[kind] = replace(context, cross=cross, packing=packing)
            if kind.needs_rows and embedded.segments is not None:
                rows = SegmentRows.of(embedded.segments, embedded.valid)
                found[kind] = replace(found[kind], segments=rows)
        return found

    def _edge_bias(self, kind: ContextKind, embedded: Embedded) -> Tensor | None:
        name = str(kind.num_heads)
        if embedded.adjacency is None or name not in self.edge_biases:
            return None
        return cast(EdgeBias, self.edge_biases[name]).weight

    def _memory(self, embedded: Embedded, cache: TransformerCache | None) -> Embedded | None:
        """Memory of cross-attention: the encoder's output, or the embedded source if there is no encoder.

        A cache keeps the memory of the first step for all later ones.
        """
        memory = encoder_output(embedded, cache)
        if (memory is not None) != self.is_encoder_decoder:
            if memory is None:
                wants = "has cross-attention, and was given no source"
            else:
                wants = "has no cross-attention"
            raise ValueError(
                f"this Transformer {wants}; blocks with cross_attention=True go with a batch's `source`"
            )
        return memory

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache. Raises ValueError if bidirectional (later tokens change earlier ones), or if unsupported."""
        if self.causal is False:
            raise ValueError(
                "this Transformer is not causal, so it has no cache; build it with causal=True"
            )
        if not self.supports_cache:
            raise ValueError("this attention has no cache; generate with use_cache=False")
        return TransformerCache([block.attention.init_cache(max_tokens) for block in self._blocks])


def _directed(make: MixerFactory, both: bool, dim: int, num_heads: int) -> Mixer:
    """A mixer that goes in both directions, if it should and does not yet."""
    mixer = make(dim, num_heads)
    if both and isinstance(mixer, ParallelMixer):
        mixer.go_both_ways(cast(ParallelMixer, make(dim, num_heads)).beside)
    if both and isinstance(mixer, StateMixer) and AttentionFeature.CAUSAL in mixer.supports:
        return BothDirections(mixer, cast(StateMixer, make(dim, num_heads)))
    return mixer


def _check_attention_is_used(
    blocks: Sequence[BlockFactory], mixers: Sequence[MixerFactory | None]
) -> None:
    """Raise ValueError for a block with an attention of its own whose layers all have a mixer in its place."""
    for own in blocks:
        if isinstance(own, partial) and "attention" in own.keywords:
            others = [mixer for block, mixer in zip(blocks, mixers) if block is own]
            if None not in others:
                raise ValueError(
                    "a mixer takes the place of block.attention in every layer; leave one of the two out, or write "
                    "null in mixer where a layer has the block's attention"
                )


def _used_positions(
    blocks: Sequence[BaseBlock], given: Sequence[RelativePosition | None]
) -> list[RelativePosition | None]:
    """The position inside attention of each layer. Raises ValueError for one whose layers all carry a state instead."""
    used = [None if block.attention.carries_state else one for block, one in zip(blocks, given)]
    for one in given:
        if one is not None and not any(one is other for other in used):
            raise ValueError(
                f"position has {type(one).__name__} where no layer has attention; write null there: "
                "mixers that carry a state know the order"
            )
    return used


Each = TypeVar("Each")


def _per_layer(name: str, given: Each | Sequence[Each], depth: int) -> list[Each]:
    """Entries of all layers, from one entry or a pattern to repeat. Raises ValueError if its length does not fit."""
    if not isinstance(given, Sequence):
        return [given] * depth
    if not given or depth % len(given):
        raise ValueError(
            f"{name} is a list of {len(given)}, which does not divide depth={depth}; make depth a multiple of that, or "
            "give one for each layer"
        )
    return list(given) * (depth // len(given))


def _is_tokenwise(layer: nn.Module) -> bool:
    """Whether a layer and all in it work on each token by itself, or are an attention that takes a packed row."""
    if type(layer) is MultiHeadAttention:
        own = (layer.qkv_proj, layer.q_proj, layer.gate_proj, layer.out_proj)
        return all(_is_tokenwise(projection) for projection in own if projection is not None)
    is_known = type(layer) in TOKENWISE or _is_sharded(layer) or _is_low_rank_change(layer)
    return is_known and all(_is_tokenwise(child) for child in layer.children())


def _is_sharded(layer: nn.Module) -> bool:
    """Whether `fully_shard` made the layer, of a known class, one of a subclass (FSDPModule takes 1 s to import)."""
    first, *others = type(layer).__bases__
    return first.__name__ == "FSDPModule" and others[0] in TOKENWISE


def _is_low_rank_change(layer: nn.Module) -> bool:
    """Whether it is peft's module around a linear layer, for LoRA."""
    return type(getattr(layer, "base_layer", None)) is nn.Linear


def _kind(
    block: BaseBlock, position: RelativePosition | None, known: Sequence[RelativePosition]
) -> ContextKind:
    attention = block.attention
    index = None if position is None else _index_of(position, known)
    return ContextKind(
        index,
        attention.needs_mask,
        attention.needs_rows,
        attention.num_heads,
        attention.head_dim,
        block.cross_attention.needs_mask if block.has_cross_attention else None,
    )


def _index_of(position: RelativePosition, known: Sequence[nn.Module]) -> int | None:
    """Index among the known positions of `position` itself or one equal to it (`_settings`); None: there is none."""
    mine = _settings(position)
    for i, other in enumerate(known):
        is_equal = type(other) is type(position) and mine is not None and _settings(other) == mine
        if other is position or is_equal:
            return i
    return None


def _settings(position: nn.Module) -> dict[str, Any] | None:
    """Attributes of a position; None: it has parameters, buffers or submodules, so no other counts as equal."""
    if [*position.parameters(), *position.buffers(), *position.children()]:
        return None
    return {name: value for name, value in vars(position).items() if name not in vars(nn.Module())}
