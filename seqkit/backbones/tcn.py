"""Temporal convolutional network: residual blocks of dilated convolutions over time.

b batch · n tokens · d width · k kernel size · l earlier inputs that a convolution looks back to
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.backbones.sequence import LayerStack, StateCache
from seqkit.nn.checks import check_at_least, check_probability
from seqkit.nn.convolution import inputs_before_next
from seqkit.nn.padding import zero_padded


class DilatedConvolution(nn.Module):
    """y_t = bias + sum over i < k of W_i x_(t - i * dilation); with causal=False centred on t.

    Outside of the sequence x is zero, in padding too.
    """

    def __init__(self, dim: int, kernel_size: int, dilation: int, *, causal: bool):
        super().__init__()
        # one matrix [d (d k)], initialised as torch's own convolution; in this form Muon orthogonalises it. It is no
        # nn.Linear, since it is not called: what replaces or hooks linear layers would have no effect
        initial = nn.Linear(dim * kernel_size, dim)
        self.kernel = nn.ParameterDict({"weight": initial.weight, "bias": initial.bias})
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.causal = causal
        self.num_past = (kernel_size - 1) * dilation

    def forward(
        self,
        x: Tensor,
        valid: Tensor | None = None,
        cache: StateCache | None = None,
        index: int = 0,
    ) -> Tensor:
        """[b n d] from x [b n d]. valid: [b n] bool, True = real; None: all real. index: of its state in `cache`.

        The state is the last l = (kernel_size - 1) * dilation real inputs [b l d], zero before the first token.
        """
        if valid is not None:
            x = zero_padded(x, valid)
        if cache is not None:
            x, cache.states[index] = self._continued(x, valid, cache.states[index])
        else:
            before = self.num_past if self.causal else self.num_past // 2
            x = F.pad(x, [0, 0, before, self.num_past - before])
        weight = rearrange(self.kernel["weight"], "out (d k) -> out d k", k=self.kernel_size)
        y = F.conv1d(
            rearrange(x, "b n d -> b d n"), weight, self.kernel["bias"], dilation=self.dilation
        )
        return rearrange(y, "b d n -> b n d")

    def _continued(
        self, x: Tensor, valid: Tensor | None, tail: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """x after the tail [b l d], as [b l+n d], and the tail that follows on."""
        both = torch.cat(
            [x.new_zeros(x.shape[0], self.num_past, x.shape[2]) if tail is None else tail, x], dim=1
        )
        return both, inputs_before_next(both, self.num_past, valid)


class TCNBlock(nn.Module):
    """ReLU(x + branch), the branch being twice: convolution, norm, ReLU, dropout (Bai et al. 2018, figure 1b)."""

    def __init__(
        self,
        dim: int,
        kernel_size: int,
        dilation: int,
        *,
        causal: bool,
        norm: Callable[[int], nn.Module],
        dropout: float,
    ):
        super().__init__()
        self.convolutions = nn.ModuleList(
            DilatedConvolution(dim, kernel_size, dilation, causal=causal) for _ in range(2)
        )
        self.norms = nn.ModuleList(norm(dim) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, valid: Tensor | None, cache: StateCache | None, index: int
    ) -> Tensor:
        """[b n d] from x [b n d]. index: index of the block, whose two convolutions have a state each."""
        branch = x
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms)):
            branch = self.dropout(norm(convolution(branch, valid, cache, 2 * index + i)).relu())
        return (x + branch).relu()


class TCN(LayerStack):
    """Temporal convolutional network (Bai, Kolter and Koltun 2018): blocks with dilations 1, 2, 4, ….

    depth: number of blocks. kernel_size: tokens that a convolution covers. A block is two convolutions with the
    dilation of WaveNet (van den Oord et al. 2016, section 2.1), so that a token sees `receptive_field` = 1 + 2
    (kernel_size - 1) (2^depth - 1) tokens.
    causal: True: they are the token itself and those before it; False: half of the others are on each side.
    norm: norm of the channels of each token, where the paper normalises weights; it looks neither at other tokens nor
    at padding. dropout: probability of dropping a single entry of a branch, where the paper drops whole channels.
    Time O(n k d^2) for each layer, in parallel over tokens; memory O(n d). A step with a cache costs O(k d^2), and the
    cache holds about `receptive_field` inputs of each token's width, however long the past.
    Use it as the baseline of long sequences with local structure (sound, sensors, characters).
    It refuses adjacency, as the RNNs do (graphs need model.adjacency=ignore). It knows the order of tokens by their
    columns (`is_recurrent`), so no positions are added to a sequence.
    Raises ValueError for sizes below 1, a kernel size below 2, or an even one with causal=False.

    >>> from seqkit.interfaces import Embedded
    >>> x = Embedded(torch.randn(2, 7, 8), torch.zeros(2, 7, 1), torch.ones(2, 7, dtype=torch.bool))
    >>> TCN(8, depth=4)(x).shape, TCN(8, depth=4).receptive_field
    (torch.Size([2, 7, 8]), 61)
    """

    states_per_block = 2

    def __init__(
        self,
        dim: int,
        depth: int = 4,
        *,
        kernel_size: int = 3,
        causal: bool = False,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_at_least(1, dim=dim, depth=depth)
        check_at_least(2, kernel_size=kernel_size)
        if not causal and kernel_size % 2 == 0:
            raise ValueError(
                f"kernel_size={kernel_size} has no centre; make it odd, or the TCN causal"
            )
        check_probability("dropout", dropout)
        self.dim = dim
        self.causal = causal
        self.kernel_size = kernel_size
        self.blocks = nn.ModuleList(
            TCNBlock(dim, kernel_size, 2**layer, causal=causal, norm=norm, dropout=dropout)
            for layer in range(depth)
        )
        self.norm = nn.Identity()

    @property
    def receptive_field(self) -> int:
        """How many tokens an output depends on, itself included, far from both ends of a sequence."""
        return 1 + 2 * (self.kernel_size - 1) * (2 ** len(self.blocks) - 1)
