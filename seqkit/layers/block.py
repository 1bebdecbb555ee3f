"""One block: read others, then think alone, each added to what was there. One set of parts, three orders.

b batch · n tokens · m tokens of another sequence · d width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from torch import Tensor, nn

from seqkit.layers.attention import Attention
from seqkit.layers.memory import LayerMemory
from seqkit.layers.mlp import MLP
from seqkit.layers.reading import Reading, Source, refuse_unless_honoured
from seqkit.layers.residual import Residual


class Blocks(nn.Module, ABC):
    """The parts that all orders share.

    attention: `(dim, num_heads) -> nn.Module`. mlp, norm, residual: `dim -> nn.Module`; a variant is another part
    passed in. cross: True: between the two it reads another sequence (a decoder that has an encoder).
    zero_init: branches start at zero, so that the block starts as the identity (Goyal et al. 2017, section 5.1).
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        attention: Callable[[int, int], nn.Module] = Attention,
        mlp: Callable[[int], nn.Module] = MLP,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        residual: Callable[[int], nn.Module] = Residual,
        cross: bool = False,
        zero_init: bool = False,
    ):
        super().__init__()
        self.attention_norm, self.attention, self.attention_added = norm(dim), attention(dim, num_heads), residual(dim)
        if cross:
            self.cross_norm, self.cross, self.cross_added = norm(dim), attention(dim, num_heads), residual(dim)
        self.mlp_norm, self.mlp, self.mlp_added = norm(dim), mlp(dim), residual(dim)
        self.crosses, self.zero_init = cross, zero_init

    def refuse_unless_honoured(self, needed: Iterable[str]) -> None:
        """Raise ValueError where its attention cannot do all that is needed (of `reading.FEATURES`)."""
        mechanism = getattr(self.attention, "mechanism", self.attention)
        name, needed = type(mechanism).__name__, set(needed)
        refuse_unless_honoured(name, getattr(mechanism, "honours", frozenset()), needed)
        refuse_unless_honoured(f"{name} with a convolution", self.honours, needed, "leave the convolution out")

    @property
    def honours(self) -> frozenset[str]:
        """What of `reading.FEATURES` its attention keeps to; an attention that declares nothing, nothing."""
        honours: object = getattr(self.attention, "honours", frozenset())
        assert isinstance(honours, frozenset)
        return honours

    @property
    def dense(self) -> bool:
        """True: its attention takes `reading.attend`."""
        return bool(getattr(getattr(self.attention, "mechanism", self.attention), "dense", True))

    @property
    def needs_links(self) -> bool:
        """True: its attention goes along links, and cannot read tokens without."""
        return bool(getattr(getattr(self.attention, "mechanism", self.attention), "needs_links", False))

    def init_memory(self, max_tokens: int) -> LayerMemory:
        """What it keeps between steps, empty."""
        memory = self.attention.init_memory(max_tokens)  # type: ignore[operator]
        assert isinstance(memory, LayerMemory)
        return memory

    @abstractmethod
    def forward(
        self, x: Tensor, reading: Reading, memory: LayerMemory | None = None, source: Source | None = None
    ) -> Tensor:
        """x: [b n d]. memory: what this layer keeps between steps. source: the other sequence, if the block crosses."""

    def think(self, x: Tensor, reading: Reading) -> Tensor:
        """The mlp, told who is padding where it wants to know (experts, who must not be kept busy by it)."""
        return self.mlp(x, reading.valid) if getattr(self.mlp, "reads_valid", False) else self.mlp(x)


class Block(Blocks):
    """Pre-norm: x + attention(norm(x)), then x + mlp(norm(x)) (Xiong et al. 2020, figure 1b)."""

    def forward(
        self, x: Tensor, reading: Reading, memory: LayerMemory | None = None, source: Source | None = None
    ) -> Tensor:
        """x: [b n d]."""
        x = self.attention_added(x, self.attention(self.attention_norm(x), reading, memory))
        if source is not None:
            x = self.cross_added(x, self.cross(self.cross_norm(x), source.reading, memory, source.hidden))
        return self.mlp_added(x, self.think(self.mlp_norm(x), reading))


class PostNormBlock(Blocks):
    """Post-norm: norm(x + attention(x)), then norm(x + mlp(x)) (Vaswani et al. 2017, section 3.1; BERT)."""

    def forward(
        self, x: Tensor, reading: Reading, memory: LayerMemory | None = None, source: Source | None = None
    ) -> Tensor:
        """x: [b n d]."""
        x = self.attention_norm(self.attention_added(x, self.attention(x, reading, memory)))
        if source is not None:
            x = self.cross_norm(self.cross_added(x, self.cross(x, source.reading, memory, source.hidden)))
        return self.mlp_norm(self.mlp_added(x, self.think(x, reading)))


class ParallelBlock(Blocks):
    """x + attention(norm(x)) + mlp(norm(x)), at once (Wang and Komatsuzaki 2021, GPT-J; PaLM, Chowdhery et al. 2022,
    section 2), with a norm for each branch."""

    def forward(
        self, x: Tensor, reading: Reading, memory: LayerMemory | None = None, source: Source | None = None
    ) -> Tensor:
        """x: [b n d]."""
        y = self.attention_added(x, self.attention(self.attention_norm(x), reading, memory))
        if source is not None:
            y = self.cross_added(y, self.cross(self.cross_norm(x), source.reading, memory, source.hidden))
        return self.mlp_added(y, self.think(self.mlp_norm(x), reading))
