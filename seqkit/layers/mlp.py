"""What a block does to each token alone: widen, bend, narrow (Vaswani et al. 2017, section 3.3).

d width · w inner width
"""

from __future__ import annotations

from torch import Tensor, nn


class ReLUSquared(nn.Module):
    """max(x, 0) squared (So et al. 2021, Primer, section 4)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu().square()


class MLP(nn.Module):
    """Two linear layers with an activation between. ratio: inner width / dim."""

    def __init__(
        self,
        dim: int,
        *,
        ratio: float = 4.0,
        activation: type[nn.Module] = nn.GELU,
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        inner = round(dim * ratio)
        if inner < 1:
            raise ValueError(f"ratio={ratio} makes an inner width of {inner} out of dim={dim}; it should be at least 1")
        self.widen = nn.Linear(dim, inner, bias=bias)
        self.activation = activation()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(inner, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.dropout(self.activation(self.widen(x))))
