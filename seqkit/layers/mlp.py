"""What a block does to each token alone: widen, bend, narrow. The last layer is called `out` in all.

d width · w inner width
"""

from __future__ import annotations

from collections.abc import Callable

from einops import rearrange
from torch import Tensor, nn

Activation = Callable[[], nn.Module]
"""A class without arguments: nn.GELU, or partial(nn.GELU, approximate="tanh") as in GPT-2."""


class ReLUSquared(nn.Module):
    """max(x, 0) squared (So et al. 2021, Primer, section 4)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu().square()


class MLP(nn.Module):
    """Two linear layers with an activation between (Vaswani et al. 2017, equation 2, with ReLU).

    ratio: inner width / dim. dropout: of the inner width.
    Raises ValueError if there is no inner width.
    """

    def __init__(
        self,
        dim: int,
        *,
        ratio: float = 4.0,
        activation: Activation = nn.GELU,
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        inner = _inner(dim, ratio)
        self.widen = nn.Linear(dim, inner, bias=bias)
        self.activation = activation()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(inner, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: [... d]."""
        return self.out(self.dropout(self.activation(self.widen(x))))


class GatedMLP(nn.Module):
    """(activation(x W) * x V) W2 (Shazeer 2020, equation 6): with nn.SiLU SwiGLU, with nn.GELU GEGLU, with nn.ReLU
    ReGLU, with nn.Sigmoid GLU.

    width: inner width w; None: 8/3 dim, so that three matrices hold what the two of `MLP` hold with ratio 4 (ibid.,
    section 2). multiple_of: the width is rounded up to it (LLaMA: 256). dropout: of the inner width.
    Raises ValueError for a width or multiple below 1.
    """

    def __init__(
        self,
        dim: int,
        *,
        activation: Activation = nn.SiLU,
        width: int | None = None,
        multiple_of: int = 1,
        bias: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        width = 8 * dim // 3 if width is None else width  # LLaMA's rounding: down to an integer, then up
        if width < 1 or multiple_of < 1:
            raise ValueError(f"width={width} and multiple_of={multiple_of} make no inner width; both are at least 1")
        width = -(-width // multiple_of) * multiple_of
        self.widen = nn.Linear(dim, 2 * width, bias=bias)  # W above V: one product is faster than two
        self.activation = activation()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: [... d]."""
        gate, value = self.widen(x).chunk(2, dim=-1)
        return self.out(self.dropout(self.activation(gate) * value))


class ConvMLP(nn.Module):
    """`MLP` as two convolutions with kernel size 1, which is the same (Vaswani et al. 2017, section 3.3).

    ratio: inner width / dim. dropout: of the inner width.
    Raises ValueError if there is no inner width.
    """

    def __init__(
        self,
        dim: int,
        *,
        ratio: float = 4.0,
        activation: Activation = nn.GELU,
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        inner = _inner(dim, ratio)
        self.widen = nn.Conv1d(dim, inner, kernel_size=1, bias=bias)
        self.activation = activation()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Conv1d(inner, dim, kernel_size=1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: [... n d]."""
        inner = self.dropout(self.activation(self.widen(rearrange(x, "... n d -> ... d n"))))
        return rearrange(self.out(inner), "... d n -> ... n d")


def _inner(dim: int, ratio: float) -> int:
    inner = round(dim * ratio)
    if inner < 1:
        raise ValueError(f"ratio={ratio} makes an inner width of {inner} out of dim={dim}; it should be at least 1")
    return inner
