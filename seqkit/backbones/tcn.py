"""Temporal convolutional network: residual blocks of dilated convolutions over time.

b batch · n tokens · d width · k kernel size · l earlier inputs that a convolution looks back to
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from seqkit.interfaces import Backbone, Cache, Embedded
from seqkit.nn.dropout import check_probability


class ConvolutionTail:
    """The last l = (kernel_size - 1) * dilation real inputs of one convolution, [b l d], zero before the first token;
    None: there was no token yet."""

    def __init__(self) -> None:
        self.inputs: Tensor | None = None


class TCNCache(Cache):
    """A tail for each convolution. It never grows: 2 (kernel_size - 1) (2^depth - 1) inputs of width d in all."""

    def __init__(self, num_convolutions: int):
        self.num_tokens = 0
        self.tails = [ConvolutionTail() for _ in range(num_convolutions)]

    def reorder(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""
        for tail in self.tails:
            if tail.inputs is not None:
                tail.inputs = tail.inputs.index_select(0, rows)


class DilatedConvolution(nn.Module):
    """y_t = bias + sum over i < k of W_i x_(t - i * dilation); with causal=False centred on t.

    Outside of the sequence x is zero, in padding too.
    """

    def __init__(self, dim: int, kernel_size: int, dilation: int, *, causal: bool):
        super().__init__()
        # one matrix [d (d k)], initialised as torch's own convolution; in this form Muon orthogonalises it
        self.kernel = nn.Linear(dim * kernel_size, dim)
        self.kernel_size, self.dilation, self.causal = kernel_size, dilation, causal
        self.num_past = (kernel_size - 1) * dilation

    def forward(self, x: Tensor, valid: Tensor | None = None, tail: ConvolutionTail | None = None) -> Tensor:
        """[b n d] from x [b n d]. valid: [b n] bool, True = real; None: all real. tail: where a cache has it."""
        if valid is not None:
            x = x.masked_fill(~rearrange(valid, "b n -> b n 1"), 0.0)
        if tail is not None:
            x = self._continued(x, valid, tail)
        else:
            before = self.num_past if self.causal else self.num_past // 2
            x = F.pad(x, [0, 0, before, self.num_past - before])
        weight = rearrange(self.kernel.weight, "out (d k) -> out d k", k=self.kernel_size)
        y = F.conv1d(rearrange(x, "b n d -> b d n"), weight, self.kernel.bias, dilation=self.dilation)
        return rearrange(y, "b d n -> b n d")

    def _continued(self, x: Tensor, valid: Tensor | None, tail: ConvolutionTail) -> Tensor:
        """x after the tail, [b l+n d]; the tail then holds what follows on."""
        n, past = x.shape[1], self.num_past
        before = x.new_zeros(x.shape[0], past, x.shape[2]) if tail.inputs is None else tail.inputs
        both = torch.cat([before, x], dim=1)
        if valid is None:
            tail.inputs = both[:, n:]
        else:  # sequences are padded on the right: the next tokens of an example follow its last real one
            index = rearrange(valid.sum(dim=1), "b -> b 1") + torch.arange(past, device=x.device)
            tail.inputs = both.gather(1, repeat(index, "b l -> b l d", d=x.shape[2]))
        return both


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

    def forward(self, x: Tensor, valid: Tensor | None, tails: list[ConvolutionTail | None]) -> Tensor:
        """[b n d] from x [b n d]. tails: one for each of the two convolutions, or None."""
        branch = x
        for convolution, norm, tail in zip(self.convolutions, self.norms, tails):
            branch = self.dropout(norm(convolution(branch, valid, tail)).relu())
        return (x + branch).relu()


class TCN(Backbone):
    """Temporal convolutional network (Bai, Kolter and Koltun 2018): `depth` blocks with dilations 1, 2, 4, ….

    A block is two convolutions of `kernel_size` tokens with the dilation of WaveNet (van den Oord et al. 2016, section
    2.1), so that a token sees `receptive_field` = 1 + 2 (kernel_size - 1) (2^depth - 1) tokens: with causal=True itself
    and those before it, with causal=False half of the others on each side.
    The paper normalises weights. Here `norm` acts on the channels of each token, so it looks neither at other tokens
    nor at padding. dropout: of single entries of a branch, where the paper drops whole channels.
    Time O(n k d^2) for each layer, in parallel over tokens; memory O(n d). A step with a cache costs O(k d^2), and the
    cache holds about `receptive_field` inputs of each token's width, however long the past.
    Use it as the baseline of long sequences with local structure (sound, sensors, characters).
    It refuses adjacency, as the RNNs do (graphs need model.adjacency=ignore), and segments. It knows the order of
    tokens by their columns (`is_recurrent`), so no positions are added to a sequence.
    Raises ValueError for sizes below 1, a kernel size below 2, or an even one with causal=False.
    """

    is_recurrent = True

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
        if dim < 1 or depth < 1:
            raise ValueError(f"dim={dim}, depth={depth}; a TCN needs at least one channel and one block")
        if kernel_size < 2:
            raise ValueError(f"kernel_size={kernel_size} covers no other token; give 2 or more")
        if not causal and kernel_size % 2 == 0:
            raise ValueError(f"kernel_size={kernel_size} has no centre; make it odd, or the TCN causal")
        check_probability("dropout", dropout)
        self.dim, self.causal, self.kernel_size = dim, causal, kernel_size
        self.blocks = nn.ModuleList(
            TCNBlock(dim, kernel_size, 2**layer, causal=causal, norm=norm, dropout=dropout) for layer in range(depth)
        )

    @property
    def receptive_field(self) -> int:
        """How many tokens an output depends on, itself included, far from both ends of a sequence."""
        return 1 + 2 * (self.kernel_size - 1) * (2 ** len(self.blocks) - 1)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded. Raises ValueError for adjacency or segments."""
        if embedded.adjacency is not None or embedded.segments is not None:
            raise ValueError("TCN does not support adjacency or segments; it runs over the tokens in order")
        if cache is not None and not isinstance(cache, TCNCache):
            raise ValueError(f"TCN was given a {type(cache).__name__}; make its cache with init_cache")
        tails = [None] * 2 * len(self.blocks) if cache is None else cache.tails
        valid = embedded.valid if embedded.is_padded else None
        x = embedded.hidden
        for layer, block in enumerate(self.blocks):
            x = block(x, valid, tails[2 * layer : 2 * layer + 2])
        if cache is not None:
            cache.num_tokens += x.shape[1]
        return x.masked_fill(~rearrange(embedded.valid, "b n -> b n 1"), 0.0)

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache. Raises ValueError if not causal: later tokens would change earlier ones."""
        if not self.causal:
            raise ValueError("this TCN is not causal, so it has no cache; build it with causal=True")
        return TCNCache(2 * len(self.blocks))
