"""MLPs (feed-forward networks) of a block; the last layer is called `down_proj` in all.

b batch · n tokens · d width · w inner width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from einops import rearrange
from torch import Tensor, nn

Activation = Callable[[], nn.Module]
"""Builds an activation: nn.GELU, or partial(nn.GELU, approximate="tanh") as in GPT-2."""


class PaddingAwareMLP(nn.Module, ABC):
    """Base class of MLPs that get the padding mask, since padding must not be processed (mixture of experts)."""

    @abstractmethod
    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """[b n d] from x [b n d]. valid: [b n] bool, True = real; None: all real."""


class ReLUSquared(nn.Module):
    """max(x, 0) squared (So et al. 2021, Primer, section 4)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu().square()


class QuickGELU(nn.Module):
    """x sigmoid(1.702 x), near GELU (Hendrycks and Gimpel 2016, section 2); CLIP's."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (1.702 * x).sigmoid()


class _TwoLayers(nn.Module):
    """Two layers with an activation between.

    ratio: inner width / dim. activation: activation between the layers. bias: whether the layers have one.
    dropout: dropout of the inner width. Raises ValueError if there is no inner width.
    """

    layer: Callable[..., nn.Module]

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
        inner = round(dim * ratio)
        if inner < 1:
            raise ValueError(f"ratio={ratio} makes an inner width of {inner} out of dim={dim}; it should be at least 1")
        self.up_proj = self.layer(dim, inner, bias=bias)
        self.activation = activation()
        self.dropout = nn.Dropout(dropout)
        self.down_proj = self.layer(inner, dim, bias=bias)


class MLP(_TwoLayers):
    """Two linear layers with an activation between (Vaswani et al. 2017, equation 2, with ReLU).

    >>> MLP(8, ratio=4)
    MLP(
      (up_proj): Linear(in_features=8, out_features=32, bias=True)
      (activation): GELU(approximate='none')
      (dropout): Dropout(p=0.0, inplace=False)
      (down_proj): Linear(in_features=32, out_features=8, bias=True)
    )
    """

    layer = nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        """x: [... d]."""
        return self.down_proj(self.dropout(self.activation(self.up_proj(x))))


class GatedMLP(nn.Module):
    """(activation(x W) * x V) W2 (Shazeer 2020, equation 6): with nn.SiLU SwiGLU, with nn.GELU GEGLU, with nn.ReLU
    ReGLU, with nn.Sigmoid GLU.

    activation: activation of the gate. bias: whether the layers have one. width: inner width w; None: 8/3 dim, so that
    three matrices hold what the two of `MLP` hold with ratio 4 (ibid., section 2). multiple_of: the width is rounded up
    to it (LLaMA: 256). dropout: dropout of the inner width.
    Raises ValueError for a width or multiple below 1.

    >>> GatedMLP(96).down_proj.in_features, GatedMLP(96, multiple_of=100).down_proj.in_features
    (256, 300)
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
        self.gate_up_proj = nn.Linear(dim, 2 * width, bias=bias)  # gate above up: one product is faster than two
        self.activation = activation()
        self.dropout = nn.Dropout(dropout)
        self.down_proj = nn.Linear(width, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: [... d]."""
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(self.dropout(self.activation(gate) * up))


class ConvMLP(_TwoLayers):
    """`MLP` as two convolutions with kernel size 1, which is the same (Vaswani et al. 2017, section 3.3)."""

    layer = partial(nn.Conv1d, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """x: [... n d]."""
        inner = self.dropout(self.activation(self.up_proj(rearrange(x, "... n d -> ... d n"))))
        return rearrange(self.down_proj(inner), "... d n -> ... n d")
