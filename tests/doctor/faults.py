"""Components with a planted fault each, as a plug-in: what `seqkit doctor` should find.

b batch · n tokens · d width
"""

from functools import partial

import torch
from einops import rearrange, reduce
from torch import nn

from seqkit import Backbone, Tokenizer, Tokens, register
from seqkit.backbones.transformer import Transformer
from seqkit.data import DataSource, Sample, Splits
from seqkit.interfaces import TokenSpec
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.base import PositionalEncoding
from seqkit.objectives.next_token import NextToken
from seqkit.recipes.image.digits import Digits
from seqkit.tokenizers.image import Patches
from seqkit.tokenizers.text import Characters
from seqkit.training.optim import AdamW, OptimizerFactory


class _Wrapped(Backbone):
    """A Transformer in which something is wrong."""

    def __init__(self, dim: int, depth: int, *, num_heads: int = 2, causal: bool = False):
        super().__init__()
        self.dim, self.num_heads, self.causal = dim, num_heads, causal
        self.inner = self.build(dim, depth, num_heads, causal)

    def build(self, dim, depth, num_heads, causal):
        return Transformer(dim, depth, num_heads=num_heads, causal=causal)

    def forward(self, embedded, cache=None):
        return self.inner(embedded)


@register("backbone")
class SeesTheFuture(_Wrapped):
    """It says that it is causal, and its mask is not; as its branches start at zero, untrained weights do not tell."""

    def build(self, dim, depth, num_heads, causal):
        return Transformer(
            dim, depth, num_heads=num_heads, block=partial(PreNormBlock, zero_init=True)
        )


@register("backbone")
class FreezesALayer(_Wrapped):
    """Its second block is not trained."""

    def build(self, dim, depth, num_heads, causal):
        inner = super().build(dim, depth, num_heads, causal)
        inner.blocks[1].requires_grad_(False)
        return inner


@register("backbone")
class DetachesALayer(_Wrapped):
    """No gradient gets through to what comes before its last norm."""

    def forward(self, embedded, cache=None):
        return self.inner.norm(self.inner(embedded).detach())


@register("backbone")
class SeesPadding(_Wrapped):
    """It adds the mean over all columns, padding among them."""

    def forward(self, embedded, cache=None):
        hidden = self.inner(embedded)
        mean = reduce(hidden, "b n d -> b 1 d", "mean")
        return (hidden + mean).masked_fill(~rearrange(embedded.valid, "b n -> b n 1"), 0.0)


@register("backbone")
class Vanishes(Backbone):
    """Sigmoids without residual connections: each has a slope of 1/4 at most."""

    def __init__(self, dim: int, depth: int, *, causal: bool = False):
        super().__init__()
        self.dim, self.causal, self.ignores_order = dim, causal, True
        self.layers = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, embedded, cache=None):
        hidden = embedded.hidden
        for layer in self.layers:
            hidden = torch.sigmoid(layer(hidden))
        return self.norm(hidden).masked_fill(~rearrange(embedded.valid, "b n -> b n 1"), 0.0)


@register("backbone")
class Explodes(_Wrapped):
    """Its output is a million times too large."""

    def forward(self, embedded, cache=None):
        return 1e6 * self.inner(embedded)


@register("backbone")
class GivesNaN(_Wrapped):
    """One of its hidden states is not a number."""

    def forward(self, embedded, cache=None):
        hidden = self.inner(embedded)
        return hidden.masked_fill(torch.arange(hidden.shape[-1]) == 3, torch.nan)


@register("position")
class Forgotten(PositionalEncoding):
    """It knows of positions, and adds nothing."""

    def forward(self, positions):
        return positions.new_zeros(1, 1, self.dim, dtype=self.dtype)


@register("optimizer")
class ForgetsALayer(OptimizerFactory):
    """AdamW without the parameters of the head."""

    def __init__(self, lr: float = 1e-3):
        self.lr = lr

    def build(self, model):
        return AdamW(self.lr).build_for(
            [p for name, p in model.named_parameters() if not name.startswith("head")]
        )


@register("objective")
class NextTokenOfAnything(NextToken):
    """It takes bidirectional backbones, too."""

    causal = None


@register("objective")
class SameToken(NextToken):
    """It forgets to shift its target."""

    def prepare(self, batch, label):
        inputs = super().prepare(batch, label)
        return type(inputs)(
            inputs.batch, None, inputs.batch.content.masked_fill(~inputs.batch.valid, -100)
        )


@register("tokenizer")
class SameTokens(Tokenizer):
    """Five ids, whatever the input."""

    spec = TokenSpec(vocab_size=7)

    def encode(self, raw):
        return Tokens(torch.tensor([3, 1, 4, 2, 5]), rearrange(torch.arange(5.0), "n -> n 1"))


@register("tokenizer")
class DropsTheSecondHalf(Characters):
    """It reads the first half of a text."""

    def encode(self, text):
        return super().encode(text[: -(-len(text) // 2)])


@register("tokenizer")
class Amplified(Patches):
    """Patches whose pixels are a thousand times too bright."""

    def encode(self, image):
        tokens = super().encode(image)
        return Tokens(1000 * tokens.content, tokens.positions)


@register("tokenizer")
class Constant(Patches):
    """Patches of one grey."""

    def encode(self, image):
        tokens = super().encode(image)
        return Tokens(torch.full_like(tokens.content, 0.5), tokens.positions)


@register("tokenizer")
class WithoutPlaces(Patches):
    """Patches that are all in one place."""

    def encode(self, image):
        tokens = super().encode(image)
        return Tokens(tokens.content, torch.zeros_like(tokens.positions))


def _shuffled(samples, seed):
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed)).tolist()
    return [Sample(samples[i].raw, samples[j].label) for i, j in enumerate(order)]


@register("data_source")
class ShuffledDigits(DataSource):
    """`digits` with the labels of other pictures."""

    def splits(self):
        given = Digits().splits()
        order = torch.randperm(
            len(given.train), generator=torch.Generator().manual_seed(0)
        ).tolist()
        shuffled = [Sample(given.train[i].raw, given.train[j].label) for i, j in enumerate(order)]
        return Splits(shuffled, given.test, given.valid, given.names)
