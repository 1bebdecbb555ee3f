"""Attention over a fixed number of mixtures of tokens.

b batch · n tokens that read · m tokens that are read · h heads · g heads of keys and values · c channels · r rank
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor, nn

from seqkit.layers.mechanism import Mechanism, grouped
from seqkit.layers.reading import Reading


class Linformer(Mechanism):
    """Keys and values mixed by learned weights of their columns into `rank` of each, then read by softmax.

    Wang et al. 2020, equation 7, the mixtures shared by all heads (their section 4). Time and memory O(n rank).
    max_tokens: columns that have weights. rank: mixtures.
    The weights belong to columns, so it knows where a token stands in its row, whatever `positions` say.
    A mixture holds early and late tokens alike, so it cannot be causal.
    Raises ValueError for sizes below 1, and for a sequence longer than max_tokens.
    """

    honours = frozenset({"both ways", "source", "rotation", "groups"})
    dense = False

    def __init__(self, num_heads: int, channels: int, *, max_tokens: int, rank: int):
        super().__init__()
        if max_tokens < 1 or rank < 1:
            raise ValueError(f"max_tokens={max_tokens}, rank={rank}; both count something, make them at least 1")
        self.max_tokens, self.rank = max_tokens, rank
        # so that mixtures of a full row are as large as what they mix
        self.mix_keys = nn.Parameter(torch.randn(max_tokens, rank) * max_tokens**-0.5)
        self.mix_values = nn.Parameter(torch.randn(max_tokens, rank) * max_tokens**-0.5)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, reading: Reading, memory: Any = None) -> Tensor:
        """[b h n c]."""
        assert memory is None
        keys = einsum(self._real(k, reading), self._columns(self.mix_keys, k), "b g m c, m r -> b g r c")
        values = einsum(self._real(v, reading), self._columns(self.mix_values, v), "b g m c, m r -> b g r c")
        return F.scaled_dot_product_attention(q, keys, values, enable_gqa=q.shape[1] != k.shape[1])

    def weights(self, q: Tensor, k: Tensor, reading: Reading) -> Tensor:
        """[b h n m]: of mixtures, spread over what they mix. They may be negative and need not sum to one."""
        mixed = einsum(self._real(k, reading), self._columns(self.mix_keys, k), "b g m c, m r -> b g r c")
        scores = einsum(q, grouped(mixed, q), "b h n c, b h r c -> b h n r") / q.shape[-1] ** 0.5
        spread = einsum(scores.softmax(dim=-1), self._columns(self.mix_values, k), "b h n r, m r -> b h n m")
        spread = F.pad(spread, [0, k.shape[2] - spread.shape[-1]])
        return spread if reading.read_valid is None else spread.masked_fill(_padded(reading.read_valid), 0.0)

    def _columns(self, mix: Tensor, k: Tensor) -> Tensor:
        return mix[: k.shape[2]]

    def _real(self, k: Tensor, reading: Reading) -> Tensor:
        """Keys or values of the first max_tokens columns, zero where there is padding."""
        m, valid = k.shape[2], reading.read_valid
        if m > self.max_tokens and (valid is None or valid.is_meta or bool(valid[:, self.max_tokens :].any())):
            longest = m if valid is None or valid.is_meta else int(valid.sum(dim=1).max())
            raise ValueError(
                f"a sequence has {longest} tokens, and Linformer weights for max_tokens={self.max_tokens}; "
                "shorten the input or build it with more"
            )
        k = k[:, :, : self.max_tokens]
        return k if valid is None else k.masked_fill(rearrange(~valid[:, : k.shape[2]], "b m -> b 1 m 1"), 0.0)


def _padded(valid: Tensor) -> Tensor:
    return rearrange(~valid, "b m -> b 1 1 m")
