"""One block: read others, then think alone, each added to what was there (pre-norm; Xiong et al. 2020, figure 1b)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from seqkit.layers.attention import Attention, KeysValues, Reading
from seqkit.layers.mlp import MLP


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)).

    attention: `(dim, num_heads) -> nn.Module`. mlp, norm: `dim -> nn.Module`; a variant is another part passed in.
    dropout: of both branches, while training.
    zero_init: both branches start at zero, so that the block starts as the identity (Goyal et al. 2017, section 5.1).
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        attention: Callable[[int, int], nn.Module] = Attention,
        mlp: Callable[[int], nn.Module] = MLP,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        dropout: float = 0.0,
        zero_init: bool = False,
    ):
        super().__init__()
        self.attention_norm, self.attention = norm(dim), attention(dim, num_heads)
        self.mlp_norm, self.mlp = norm(dim), mlp(dim)
        self.dropout = nn.Dropout(dropout)
        self.zero_init = zero_init

    def forward(self, x: Tensor, reading: Reading, memory: tuple[KeysValues, int] | None = None) -> Tensor:
        """x: [b n d]."""
        x = x + self.dropout(self.attention(self.attention_norm(x), reading, memory))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))
