"""S4D: a stack of diagonal state space layers.

b batch · n tokens · d width
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.backbones.sequence import LayerStack, StateCache
from seqkit.nn.block import Residual
from seqkit.nn.checks import check_at_least, check_probability
from seqkit.nn.padding import zero_padded
from seqkit.nn.s4d import S4DLayer, Spectrum


class S4DBlock(nn.Module):
    """x + GLU(W GELU(S4D(norm(x)))): pre-norm, and the gated output layer of the paper's code (its `s4d.py`)."""

    def __init__(self, dim: int, layer: S4DLayer, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ssm = layer
        self.out_proj = nn.Linear(dim, 2 * dim)
        self.residual = Residual(dim, dropout=dropout)

    def forward(
        self, x: Tensor, valid: Tensor | None, cache: StateCache | None, index: int
    ) -> Tensor:
        """x: [b n d]. valid: [b n] bool, True = real; None: all are real. index: index of the layer in the cache."""
        normed = self.norm(x)
        if valid is not None:  # the norm's bias would make padding an input
            normed = zero_padded(normed, valid)
        if cache is None:
            y = self.ssm(normed)
        else:
            y, cache.states[index] = self.ssm.step(normed, valid, cache.states[index])
        mixed: Tensor = self.residual(x, F.glu(self.out_proj(F.gelu(y)), dim=-1))
        return mixed


class S4D(LayerStack):
    """State space backbone with diagonal matrices (Gu, Gupta, Goel and Ré 2022); `nn.s4d.S4DLayer` has the formulas.

    A layer is a linear, time-invariant recurrence: all tokens at once are a convolution by FFT, one more token is one
    step. So training takes O(n log n) time a layer and O(n) memory, generation O(1) for each token, and neither has a
    longest sequence. Use it for signals and long sequences where the pattern counts more than the content;
    what to keep cannot depend on the token, which is what `Mamba` adds.
    depth: number of layers. causal: True: each token from those up to it; False: each layer has a second kernel over
    later tokens, which begins at the last real one.
    num_states: real states of a channel, in conjugate pairs. spectrum: "lin" (S4D-Lin) or "inv" (S4D-Inv).
    dropout: probability of dropping an entry of a layer's branch.
    Adjacency is refused: the state is carried along all tokens in order, and begins anew in each packed sequence.
    The paper trains A and dt with a learning rate of at most 0.001 and without decay. They do not decay here either.
    Raises ValueError for sizes below 1 or an odd num_states.

    >>> import torch
    >>> from seqkit.interfaces import Embedded
    >>> x = Embedded(torch.randn(2, 7, 8), torch.zeros(2, 7, 1), torch.ones(2, 7, dtype=torch.bool))
    >>> S4D(8, spectrum="inv")(x).shape
    torch.Size([2, 7, 8])
    """

    def __init__(
        self,
        dim: int,
        depth: int = 2,
        *,
        num_states: int = 64,
        spectrum: Spectrum = "lin",
        causal: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_at_least(1, dim=dim, depth=depth)
        check_probability("dropout", dropout)
        self.dim = dim
        self.causal = causal
        self.blocks = nn.ModuleList(
            S4DBlock(
                dim,
                S4DLayer(dim, num_states=num_states, spectrum=spectrum, bidirectional=not causal),
                dropout,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
