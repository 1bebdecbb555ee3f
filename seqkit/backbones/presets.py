"""Preset backbones: published architectures as functions; `PUBLISHED` has their vocabulary, positions and head.

Where a preset differs from its source, its docstring says so. What each is and when to use it: `seqkit list presets`,
docs/presets.md. Weights are initialised at random: nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from seqkit.backbones.encoder_decoder import EncoderDecoder
from seqkit.backbones.transformer import Transformer
from seqkit.interfaces import TokenSpec
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import MLP, PostNormBlock, PreNormBlock, Residual
from seqkit.nn.embedder import Embedder
from seqkit.nn.heads import TiedHead, TokenHead
from seqkit.nn.mlp import GatedMLP
from seqkit.nn.pooling import SequenceHead
from seqkit.nn.position.absolute import Learned, NoPosition
from seqkit.nn.position.base import PositionalEncoding
from seqkit.nn.position.bias import T5Bias
from seqkit.nn.position.rotary import Rotary

# ── encoder and decoder ──────────────────────────────────────────────────────────────────────────────────────────────


def t5_mini(*, dropout: float = 0.1) -> EncoderDecoder:
    """T5 with 4 + 4 layers of width 384, inner width 1536 (T5-Efficient-Mini; Tay et al. 2021).

    For text from text of any length: its positions are relative. The source has 8 heads with a head_dim of 32, together
    narrower than the model; here num_heads * head_dim is the width, so there are 12.
    dropout: dropout of residual branches, attention weights and MLPs.
    """
    norm = partial(nn.RMSNorm, eps=1e-6)

    def stack(causal: bool) -> Transformer:
        block = partial(
            PreNormBlock,
            attention=partial(
                MultiHeadAttention,
                mechanism=partial(ScaledDotProductAttention, temperature=1.0),
                bias=False,
            ),
            mlp=partial(MLP, activation=nn.ReLU, bias=False, dropout=dropout),
            norm=norm,
            cross_attention=causal,
        )
        position = T5Bias(12, causal=causal)
        return Transformer(
            384,
            4,
            num_heads=12,
            causal=causal,
            block=block,
            norm=norm,
            position=position,
            dropout=dropout,
        )

    return EncoderDecoder(stack(causal=False), stack(causal=True))


# ── encoders ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def bert_mini(*, dropout: float = 0.1) -> Transformer:
    """BERT with 4 layers of width 256 (Turc et al. 2019, "Well-read students learn better", table 1).

    For labels of texts, after pretraining with `Masked`. The Embedder adds its learned positions (`Learned`).
    dropout: dropout of residual branches and attention weights.
    """
    return _bert(256, 4, 4, dropout)


def vit_tiny(*, drop_path: float = 0.1) -> Transformer:
    """Vision transformer with 12 layers of width 192 (Touvron et al. 2021, DeiT-Ti, table 1: 5 million parameters).

    For labels of images. drop_path: stochastic depth, the probability that an example skips the last layer, as DeiT
    trains (ibid., table 9).
    """
    return _vit(192, 3, drop_path)


# ── decoders ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def gpt_nano(*, dropout: float = 0.1) -> Transformer:
    """GPT-2 with 3 layers of width 48 (minGPT by Karpathy, `gpt-nano`).

    For first steps and tests. The Embedder adds its learned positions (`Learned`).
    dropout: dropout of residual branches and attention weights.
    """
    return _gpt(48, 3, 3, dropout)


def gpt2(*, dropout: float = 0.1) -> Transformer:
    """GPT-2 with 12 layers of width 768 (Radford et al. 2019, table 2): 124 million parameters; the table says 117.

    dropout: dropout of residual branches and attention weights.
    """
    return _gpt(768, 12, 12, dropout)


def llama_nano() -> Transformer:
    """LLaMA with 5 layers of width 64, 8 heads, 4 key/value heads (llama2.c by Karpathy, stories260K: 260 thousand
    parameters).

    The composition of later language models at the smallest size; its positions are rotary, so none are added.
    """
    return _llama(64, 5, num_heads=8, num_kv_heads=4, multiple_of=4)


def llama_7b() -> Transformer:
    """LLaMA with 32 layers of width 4096 (Touvron et al. 2023, table 2: 6.7 billion parameters)."""
    return _llama(4096, 32, num_heads=32, num_kv_heads=32, multiple_of=256)


# ── families ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _bert(dim: int, depth: int, num_heads: int, dropout: float) -> Transformer:
    norm = partial(nn.LayerNorm, eps=1e-12)
    block = partial(PostNormBlock, norm=norm)
    return Transformer(
        dim,
        depth,
        num_heads=num_heads,
        block=block,
        norm=nn.Identity,
        input_norm=norm,
        dropout=dropout,
    )


def _vit(dim: int, num_heads: int, drop_path: float) -> Transformer:
    norm = partial(nn.LayerNorm, eps=1e-6)
    block = partial(PreNormBlock, norm=norm, residual=partial(Residual, drop_path=drop_path))
    return Transformer(dim, 12, num_heads=num_heads, block=block, norm=norm)


def _gpt(dim: int, depth: int, num_heads: int, dropout: float) -> Transformer:
    block = partial(PreNormBlock, mlp=partial(MLP, activation=partial(nn.GELU, approximate="tanh")))
    return Transformer(dim, depth, num_heads=num_heads, causal=True, block=block, dropout=dropout)


def _llama(
    dim: int, depth: int, *, num_heads: int, num_kv_heads: int, multiple_of: int
) -> Transformer:
    norm = partial(nn.RMSNorm, eps=1e-6)
    attention = partial(MultiHeadAttention, num_kv_heads=num_kv_heads, bias=False)
    block = partial(
        PreNormBlock, attention=attention, mlp=partial(GatedMLP, multiple_of=multiple_of), norm=norm
    )
    return Transformer(
        dim, depth, num_heads=num_heads, causal=True, block=block, norm=norm, position=Rotary()
    )


# ── as published ─────────────────────────────────────────────────────────────────────────────────────────────────────

Head = Callable[[Embedder], nn.Module]


@dataclass(frozen=True, slots=True)
class Published:
    """Tokens, positional encoding, head and context length that a preset was published with.

    position: `(dim, num_axes) -> PositionalEncoding`. head: `embedder -> nn.Module`; None: its output is hidden states.
    """

    build: Callable[[], Transformer | EncoderDecoder]
    spec: TokenSpec
    context_length: int
    position: Callable[[int, int], PositionalEncoding] = NoPosition
    head: Head | None = None


def _tied(embedder: Embedder) -> nn.Module:
    return TiedHead(embedder.table)


def _untied(embedder: Embedder) -> nn.Module:
    return TokenHead(embedder.dim, embedder.spec.vocab_size, bias=False)


def _thousand_classes(embedder: Embedder) -> nn.Module:
    return SequenceHead(embedder.dim, 1000)


def _text(build: Callable[[], Transformer | EncoderDecoder], vocab_size: int, context_length: int, head: Head = _tied,
          position: Callable[[int, int], PositionalEncoding] = NoPosition) -> Published:  # fmt: skip
    return Published(build, TokenSpec(vocab_size=vocab_size), context_length, position, head)


def _bert_text(build: Callable[[], Transformer]) -> Published:
    return Published(
        build, TokenSpec(vocab_size=30_522, num_axes=2), 512, partial(Learned, sizes=[512, 2])
    )


def _images(build: Callable[[], Transformer]) -> Published:
    """224 × 224 pixels in 16 × 16 patches, and a class token, marked by a flag beside the pixels."""
    spec = TokenSpec(num_features=3 * 16 * 16 + 1)
    return Published(build, spec, 197, partial(Learned, sizes=[197]), _thousand_classes)


PUBLISHED = {
    "t5_mini": _text(t5_mini, 32_128, 512),
    "bert_mini": _bert_text(bert_mini),
    "vit_tiny": _images(vit_tiny),
    "gpt_nano": _text(gpt_nano, 65, 128, position=partial(Learned, sizes=[128])),
    "gpt2": _text(gpt2, 50_257, 1024, position=partial(Learned, sizes=[1024])),
    "llama_nano": _text(llama_nano, 512, 512),
    "llama_7b": _text(llama_7b, 32_000, 2048, head=_untied),
}
"""Presets by name."""
