"""Mamba: a stack of selective state space layers.

b batch · n tokens · d width
"""

from __future__ import annotations

import torch
from torch import nn

from seqkit.backbones.sequence import LayerStack, StateLayer
from seqkit.nn.checks import check_at_least, check_probability
from seqkit.nn.mixers.mamba import MambaMixer


class Mamba(LayerStack):
    """Selective state space backbone (Gu and Dao 2023); `nn.selective_scan` has the recurrence.

    A recurrence whose step, input and output maps depend on the token, so that it can keep or skip what it reads, which
    neither `S4D` nor a fixed convolution can. Training takes O(n) time a layer and generation O(1) for each token, with
    no longest sequence. Use it for long texts and other discrete sequences. Kernels take the place of the scan: on a
    CPU one that numba compiles (the extra `numba`; training is four times as fast), on CUDA one in Triton.
    depth: number of layers. causal: True: left to right. False: each layer runs over the tokens in both directions,
    with other convolutions and SSMs and shared projections (Zhu et al. 2024, Vision Mamba); the second direction begins
    at the last real token.
    num_states: states of a channel. expand: inner width / dim. kernel_size: tokens of the convolution. The rank of dt
    is dim / 16. dropout: probability of dropping an entry of a layer's branch (the paper has none).
    Layers are initialised as in the paper's code: torch's defaults, the last projections divided by sqrt(depth).
    Adjacency is refused: the state is carried along all tokens in order, and begins anew in each packed sequence.
    Raises ValueError for sizes below 1 or kernel_size below 2.

    >>> from seqkit.interfaces import Embedded
    >>> x = Embedded(torch.randn(2, 7, 8), torch.zeros(2, 7, 1), torch.ones(2, 7, dtype=torch.bool))
    >>> backbone = Mamba(8, causal=True)
    >>> cache = backbone.init_cache(max_tokens=7)
    >>> backbone(x, cache).shape, [tuple(part.shape) for part in cache.states[0]]
    (torch.Size([2, 7, 8]), [(2, 3, 16), (2, 16, 16)])
    """

    def __init__(
        self,
        dim: int,
        depth: int = 2,
        *,
        num_states: int = 16,
        expand: int = 2,
        kernel_size: int = 4,
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
            norm = nn.RMSNorm(dim, eps=1e-5)
            mixer = MambaMixer(
                dim,
                num_states=num_states,
                expand=expand,
                kernel_size=kernel_size,
                bidirectional=not causal,
            )
            with torch.no_grad():
                mixer.out_proj.weight.div_(depth**0.5)
            self.blocks.append(StateLayer(norm, mixer, dropout))
        self.norm = nn.RMSNorm(dim, eps=1e-5)
