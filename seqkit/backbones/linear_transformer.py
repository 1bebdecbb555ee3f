"""Linear transformer: a transformer whose attention is a recurrence over sums.

b batch · n tokens · d width · c channels of one head
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from seqkit.backbones.transformer import Transformer
from seqkit.interfaces import Backbone, Cache, Embedded
from seqkit.nn.attention.linear import LinearAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock


class LinearTransformer(Backbone):
    """A `Transformer` with the mechanism `LinearAttention` (Katharopoulos et al. 2020, "Transformers are RNNs").

    With features phi(x) = elu(x) + 1 of queries and keys, a causal layer is a recurrence over a matrix and a vector for
    each head (equations 16 to 20), which start at zero:

        s_t = s_(t-1) + phi(k_t) v_t^T        z_t = z_(t-1) + phi(k_t)
        y_t = phi(q_t)^T s_t / phi(q_t)^T z_t

    All tokens of a sequence are computed at once, in chunks, with the same result. Blocks are pre-norm, where the
    paper's are post-norm.
    With heads of c channels, time is O(n d (c + d)) for each layer and memory O(n d). A step with a cache costs
    O(d (c + d)), and the cache holds O(d c) numbers for each layer, however long the past.
    Use it for long sequences, and to generate at a constant cost for each token. Positions are added to the embeddings,
    since features may not be rotated. It refuses adjacency (graphs need model.adjacency=ignore) and segments. For
    another block, feature map or position pass `LinearAttention` to a `Transformer`.
    dim: width. depth: number of blocks. num_heads: number of attention heads. causal: True: tokens attend to earlier
    ones only. dropout: probability of dropping an entry of a residual branch.
    Raises ValueError for sizes below 1, heads that do not fit, or a dropout outside [0, 1).
    """

    def __init__(self, dim: int, depth: int = 2, *, num_heads: int = 8, causal: bool = False, dropout: float = 0.0):
        super().__init__()
        block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=LinearAttention))
        self.stack = Transformer(dim, depth, num_heads=num_heads, causal=causal, block=block, dropout=dropout)
        self.dim, self.num_heads, self.causal = dim, num_heads, causal

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded. Raises ValueError for adjacency, segments or a source."""
        return self.stack(embedded, cache)

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache, for any number of tokens. Raises ValueError if not causal."""
        return self.stack.init_cache(max_tokens)
