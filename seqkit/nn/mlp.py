"""Other MLPs than `MLP`, activations, and the transform of a head.

b batch · n tokens · d width · w inner width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from einops import rearrange
from torch import Tensor, nn

from seqkit.nn.block import MLP, Activation
from seqkit.nn.checks import check_above_0, check_at_least


class ReLUSquared(nn.Module):
    """max(x, 0) squared (So et al. 2021, Primer, section 4)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu().square()


class QuickGELU(nn.Module):
    """x sigmoid(1.702 x), near GELU (Hendrycks and Gimpel 2016, section 2); CLIP's."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (1.702 * x).sigmoid()


class GatedMLP(nn.Module):
    """(activation(x W) * x V) W2 (Shazeer 2020, equation 6): with nn.SiLU SwiGLU, with nn.GELU GEGLU, with nn.ReLU
    ReGLU, with nn.Sigmoid GLU.

    activation: activation of the gate. bias: whether the layers have one. width: inner width w; None: 8/3 dim, so that
    three matrices hold what the two of `MLP` hold with ratio 4 (ibid., section 2). multiple_of: the width is rounded up
    to it (LLaMA: 256). dropout: dropout of the inner width. scales: factors of the gate before its activation, and of
    the output (multipliers of Falcon-H1). limit: the gate is at most that, and x V in its place is within it on both
    sides, plus 1 (gpt-oss; OpenAI 2025, whose activation is `QuickGELU`); None: as they are.
    Raises ValueError for a width or multiple below 1, other than two scales, or a limit that is not above 0.

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
        scales: Sequence[float] = (1.0, 1.0),
        limit: float | None = None,
    ):
        super().__init__()
        if len(scales) != 2:
            raise ValueError(f"scales={scales} are {len(scales)}; give those of gate and output")
        check_above_0(limit=limit)
        self.gate_scale, self.output_scale = scales
        self.limit = limit
        # LLaMA's rounding: down to an integer, then up
        if width is None:
            width = 8 * dim // 3
        check_at_least(1, width=width, multiple_of=multiple_of)
        width = -(-width // multiple_of) * multiple_of
        # gate above up: one product is faster than two
        self.gate_up_proj = nn.Linear(dim, 2 * width, bias=bias)
        self.activation = activation()
        self.dropout = nn.Dropout(dropout)
        self.down_proj = nn.Linear(width, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: [... d]."""
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        if self.gate_scale != 1:
            gate = gate * self.gate_scale
        if self.limit is not None:
            gate = gate.clamp(max=self.limit)
            up = up.clamp(-self.limit, self.limit) + 1
        y = self.down_proj(self.dropout(self.activation(gate) * up))
        return y if self.output_scale == 1 else y * self.output_scale


class ConvMLP(MLP):
    """`MLP` as two convolutions with kernel size 1, which is the same (Vaswani et al. 2017, section 3.3)."""

    layer = partial(nn.Conv1d, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """x: [... n d]."""
        return rearrange(super().forward(rearrange(x, "... n d -> ... d n")), "... d n -> ... n d")


class Transform(nn.Module):
    """Layers of published models between hidden states and a head's output layer: [... d] → [... w].

    A linear layer, an activation, a norm. With GELU and LayerNorm it is the one of BERT's masked language model (Devlin
    et al. 2019), with Tanh and no norm BERT's pooler and RoBERTa's classifier, with ReLU DistilBERT's.
    width: w; None: d. activation: activation behind the linear layer. norm: norm behind that. bias: whether the linear
    layer has one (not in ModernBERT).
    Raises ValueError for a width below 1.
    """

    def __init__(
        self,
        dim: int,
        *,
        width: int | None = None,
        activation: Activation = nn.GELU,
        norm: Callable[[int], nn.Module] = nn.Identity,
        bias: bool = True,
    ):
        super().__init__()
        self.width = dim if width is None else width
        check_at_least(1, width=self.width)
        self.linear = nn.Linear(dim, self.width, bias=bias)
        self.activation = activation()
        self.norm = norm(self.width)

    def forward(self, hidden: Tensor) -> Tensor:
        """[... w] from hidden [... d]."""
        return self.norm(self.activation(self.linear(hidden)))
