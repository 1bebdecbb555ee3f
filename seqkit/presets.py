"""Backbones of known sizes, each built by a function of its name; what was published beside them is in `PUBLISHED`.

Where a preset is not what its source built, its docstring says so. What each is and when to use it: `seqkit list
presets`, docs/presets.md. Weights start at random: nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from seqkit.backbones.seq2seq import Seq2Seq
from seqkit.backbones.transformer import Transformer
from seqkit.contract import TokenSpec
from seqkit.embed import Embedder
from seqkit.heads import PerSequence, PerToken, Tied
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block, ParallelBlock, PostNormBlock
from seqkit.layers.distance import T5Bias
from seqkit.layers.experts import MixtureOfExperts
from seqkit.layers.mechanism import ScaledDotProduct
from seqkit.layers.mlp import MLP, GatedMLP
from seqkit.layers.position import AddedPosition, Learned, NoPosition, Rotary, Sinusoidal
from seqkit.layers.residual import Residual

# ── encoder and decoder ──────────────────────────────────────────────────────────────────────────────────────────────


def vaswani_base(*, dropout: float = 0.1) -> Seq2Seq:
    """The first Transformer: 6 + 6 layers of width 512 (Vaswani et al. 2017, table 3, base).

    To compare with the original; without its warm-up take pre-norm (Xiong et al. 2020). Sinusoids are added by the
    Embedder, whose `dropout` the paper sets to this too. Its table says 65 million parameters; 37,000 tokens give 63.
    """
    return _vaswani(512, 8, dropout)


def vaswani_big(*, dropout: float = 0.3) -> Seq2Seq:
    """The same at width 1024 with 16 heads (Vaswani et al. 2017, table 3, big: 213 million parameters)."""
    return _vaswani(1024, 16, dropout)


def t5_mini(*, dropout: float = 0.1) -> Seq2Seq:
    """T5 with 4 + 4 layers of width 384, inner width 1536 (T5-Efficient-Mini; Tay et al. 2021).

    For text from text, of any length: it knows distances, not places. The source has 8 heads of 32 channels, narrower
    together than its width; ours fill the width, so here they are 12.
    """
    norm = partial(nn.RMSNorm, eps=1e-6)

    def stack(causal: bool) -> Transformer:
        block = partial(
            Block,
            attention=_attention(mechanism=partial(ScaledDotProduct, temperature=1.0, dropout=dropout), bias=False),
            mlp=partial(MLP, activation=nn.ReLU, bias=False, dropout=dropout),
            norm=norm,
            residual=partial(Residual, dropout=dropout),
            cross=causal,
        )
        position = T5Bias(12, causal=causal)
        return Transformer(384, 4, num_heads=12, causal=causal, block=block, norm=norm, position=position)

    return Seq2Seq(stack(causal=False), stack(causal=True))


# ── encoders ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def bert_mini(*, dropout: float = 0.1) -> Transformer:
    """BERT with 4 layers of width 256 (Turc et al. 2019, "Well-read students learn better", table 1).

    For labels of texts, after pretraining with `Masked`. Its positions are tables that the Embedder adds (`Learned`).
    """
    return _bert(256, 4, 4, dropout)


def bert_base(*, dropout: float = 0.1) -> Transformer:
    """BERT with 12 layers of width 768 (Devlin et al. 2019, section 3: 110 million parameters)."""
    return _bert(768, 12, 12, dropout)


def vit_tiny(*, drop_path: float = 0.1) -> Transformer:
    """A vision transformer with 12 layers of width 192 (Touvron et al. 2021, DeiT-Ti, table 1: 5 million parameters).

    For labels of images. drop_path: stochastic depth, as DeiT trains (ibid., table 9).
    """
    return _vit(192, 3, drop_path)


def vit_base(*, drop_path: float = 0.1) -> Transformer:
    """The same with width 768 and 12 heads (Dosovitskiy et al. 2021, table 1, ViT-Base: 86 million parameters)."""
    return _vit(768, 12, drop_path)


# ── decoders ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def gpt_nano(*, dropout: float = 0.1) -> Transformer:
    """GPT-2 with 3 layers of width 48 (minGPT by Karpathy, `gpt-nano`).

    For first steps and tests. Its positions are a table that the Embedder adds (`Learned`).
    """
    return _gpt(48, 3, 3, dropout)


def gpt2(*, dropout: float = 0.1) -> Transformer:
    """GPT-2 with 12 layers of width 768 (Radford et al. 2019, table 2): 124 million parameters, there 117."""
    return _gpt(768, 12, 12, dropout)


def gpt3_175b(*, dropout: float = 0.0) -> Transformer:
    """GPT-3 with 96 layers of width 12288 (Brown et al. 2020, table 2.1).

    To be described, not built. Every second layer of the source attends in a sparse band; here all attend to all.
    """
    return _gpt(12_288, 96, 96, dropout)


def llama_nano() -> Transformer:
    """LLaMA with 5 layers of width 64, 8 heads on 4 keys (llama2.c by Karpathy, stories260K: 260 thousand parameters).

    The composition of later language models at the smallest size; positions need nothing added.
    """
    return _llama(64, 5, num_heads=8, num_kv_heads=4, multiple_of=4)


def llama_7b() -> Transformer:
    """LLaMA with 32 layers of width 4096 (Touvron et al. 2023, table 2: 6.7 billion parameters)."""
    return _llama(4096, 32, num_heads=32, num_kv_heads=32, multiple_of=256)


def palm_mini() -> Transformer:
    """PaLM's composition (Chowdhery et al. 2022, section 2) with 6 layers of width 256, a size of our own.

    For long generation: all heads share one of keys and values, so the cache is a quarter as large. Attention and MLP
    stand side by side; the source has one norm a layer for both, here each has its own.
    """
    norm = partial(nn.LayerNorm, bias=False)
    attention = _attention(num_kv_heads=1, bias=False)
    block = partial(ParallelBlock, attention=attention, mlp=partial(GatedMLP, width=4 * 256), norm=norm)
    return Transformer(256, 6, num_heads=4, causal=True, block=block, norm=norm, position=Rotary())


def moe_mini() -> Transformer:
    """Mixtral's composition (Jiang et al. 2024, table 1) with 4 layers of width 128, a size of our own.

    Where memory is not what is short: 8 experts, of which each token costs 2. As there, 4 heads share one of keys and
    values, and experts are 3.5 times as wide as the model.
    """
    norm = partial(nn.RMSNorm, eps=1e-5)
    expert = partial(GatedMLP, width=448)
    block = partial(
        Block,
        attention=_attention(num_kv_heads=1, bias=False),
        mlp=partial(MixtureOfExperts, num_experts=8, num_active=2, expert=expert),
        norm=norm,
    )
    return Transformer(128, 4, num_heads=4, causal=True, block=block, norm=norm, position=Rotary())


# ── families ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _attention(**settings: object) -> Callable[[int, int], nn.Module]:
    return partial(Attention, **settings)  # type: ignore[arg-type]


def _vaswani(dim: int, num_heads: int, dropout: float) -> Seq2Seq:
    """Post-norm, ReLU; projections without bias (section 3.2.2 has matrices only)."""

    def stack(causal: bool) -> Transformer:
        block = partial(
            PostNormBlock,
            attention=_attention(bias=False),
            mlp=partial(MLP, activation=nn.ReLU),
            residual=partial(Residual, dropout=dropout),
            cross=causal,
        )
        return Transformer(dim, 6, num_heads=num_heads, causal=causal, block=block, norm=nn.Identity)

    return Seq2Seq(stack(causal=False), stack(causal=True))


def _bert(dim: int, depth: int, num_heads: int, dropout: float) -> Transformer:
    norm = partial(nn.LayerNorm, eps=1e-12)
    attention = _attention(mechanism=partial(ScaledDotProduct, dropout=dropout))
    block = partial(PostNormBlock, attention=attention, norm=norm, residual=partial(Residual, dropout=dropout))
    return Transformer(dim, depth, num_heads=num_heads, block=block, norm=nn.Identity, input_norm=norm)


def _vit(dim: int, num_heads: int, drop_path: float) -> Transformer:
    norm = partial(nn.LayerNorm, eps=1e-6)
    block = partial(Block, norm=norm, residual=partial(Residual, drop_path=drop_path))
    return Transformer(dim, 12, num_heads=num_heads, block=block, norm=norm)


def _gpt(dim: int, depth: int, num_heads: int, dropout: float) -> Transformer:
    block = partial(
        Block,
        attention=_attention(mechanism=partial(ScaledDotProduct, dropout=dropout)),
        mlp=partial(MLP, activation=partial(nn.GELU, approximate="tanh")),
        residual=partial(Residual, dropout=dropout),
    )
    return Transformer(dim, depth, num_heads=num_heads, causal=True, block=block)


def _llama(dim: int, depth: int, *, num_heads: int, num_kv_heads: int, multiple_of: int) -> Transformer:
    norm = partial(nn.RMSNorm, eps=1e-6)
    attention = _attention(num_kv_heads=num_kv_heads, bias=False)
    block = partial(Block, attention=attention, mlp=partial(GatedMLP, multiple_of=multiple_of), norm=norm)
    return Transformer(dim, depth, num_heads=num_heads, causal=True, block=block, norm=norm, position=Rotary())


# ── what stood around them ───────────────────────────────────────────────────────────────────────────────────────────

Head = Callable[[Embedder], nn.Module]


@dataclass(frozen=True, slots=True)
class Published:
    """Tokens, positions and head that a preset was published with, and a number of tokens to describe it at.

    position: `(dim, num_axes) -> AddedPosition`. head: `embedder -> nn.Module`; None: it gives hidden vectors.
    """

    build: Callable[[], Transformer | Seq2Seq]
    spec: TokenSpec
    context: int
    position: Callable[[int, int], AddedPosition] = NoPosition
    head: Head | None = None


def _tied(embedder: Embedder) -> nn.Module:
    assert isinstance(embedder.content, nn.Embedding)
    return Tied(embedder.content, embedder.position.std)


def _own_table(embedder: Embedder) -> nn.Module:
    return PerToken(embedder.dim, embedder.spec.vocab_size, bias=False)


def _thousand_classes(embedder: Embedder) -> nn.Module:
    return PerSequence(embedder.dim, 1000)


def _text(build: Callable[[], Transformer | Seq2Seq], vocab_size: int, context: int, head: Head = _tied,
          position: Callable[[int, int], AddedPosition] = NoPosition) -> Published:  # fmt: skip
    return Published(build, TokenSpec(vocab_size=vocab_size), context, position, head)


def _bert_text(build: Callable[[], Transformer]) -> Published:
    return Published(build, TokenSpec(vocab_size=30_522, num_axes=2), 512, partial(Learned, sizes=[512, 2]))


def _photographs(build: Callable[[], Transformer]) -> Published:
    """224 x 224 pixels in 16 x 16 patches, and a row for the class token, known by a flag beside the pixels."""
    spec = TokenSpec(num_features=3 * 16 * 16 + 1)
    return Published(build, spec, 197, partial(Learned, sizes=[197]), _thousand_classes)


PUBLISHED = {
    "vaswani_base": _text(vaswani_base, 37_000, 128, position=Sinusoidal),
    "vaswani_big": _text(vaswani_big, 37_000, 128, position=Sinusoidal),
    "t5_mini": _text(t5_mini, 32_128, 512),
    "bert_mini": _bert_text(bert_mini),
    "bert_base": _bert_text(bert_base),
    "vit_tiny": _photographs(vit_tiny),
    "vit_base": _photographs(vit_base),
    "gpt_nano": _text(gpt_nano, 65, 128, position=partial(Learned, sizes=[128])),
    "gpt2": _text(gpt2, 50_257, 1024, position=partial(Learned, sizes=[1024])),
    "gpt3_175b": _text(gpt3_175b, 50_257, 2048, position=partial(Learned, sizes=[2048])),
    "llama_nano": _text(llama_nano, 512, 512),
    "llama_7b": _text(llama_7b, 32_000, 2048, head=_own_table),
    "palm_mini": _text(palm_mini, 256, 256),
    "moe_mini": _text(moe_mini, 256, 256, head=_own_table),
}
"""By name. Contexts of models that have no limit (Vaswani's, PaLM's and Mixtral's compositions) are ours."""
