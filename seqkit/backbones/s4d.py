"""S4D: a stack of diagonal state space layers.

b batch · n tokens · d width
"""

from __future__ import annotations

from torch import nn

from seqkit.backbones.sequence import LayerStack, StateLayer
from seqkit.nn.checks import check_at_least, check_probability
from seqkit.nn.mixers.s4d import S4DMixer, Spectrum


class S4D(LayerStack):
    """State space backbone with diagonal matrices (Gu, Gupta, Goel and Ré 2022); `nn.mixers.s4d` has the formulas.

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
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            mixer = S4DMixer(
                dim, num_states=num_states, spectrum=spectrum, bidirectional=not causal
            )
            self.blocks.append(StateLayer(nn.LayerNorm(dim), mixer, dropout))
        self.norm = nn.LayerNorm(dim)
