"""Causal depthwise convolution over the projected queries, keys and values.

b batch · n tokens · d width · k kernel size
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.kv_cache import LayerCache
from seqkit.nn.checks import check_at_least
from seqkit.nn.precision import float32_or_more

BLOCK = 2**18
"""Numbers of x of which a CPU takes the gradients at once: what is computed of them stays in its cache."""


class CausalConvolution(nn.Module):
    """Depthwise causal convolution: y_t = sum over i < kernel_size of w_i * x_(t - i) (So et al. 2021, section 4.2).

    kernel_size: tokens that it covers, the token itself included. It starts as the identity: the weight of the token
    itself is 1, the others 0.
    Raises ValueError for a kernel size below 2.

    >>> convolution, x = CausalConvolution(3), torch.randn(2, 7, 3)
    >>> bool((convolution(x) == x).all())
    True
    """

    UNSUPPORTED = (
        AttentionFeature.BIDIRECTIONAL
        | AttentionFeature.UNORDERED
        | AttentionFeature.ADJACENCY
        | AttentionFeature.CROSS_ATTENTION
    )
    """Features that an attention layer with such a convolution does not support, whatever its mechanism does."""

    def __init__(self, dim: int, *, kernel_size: int = 4):
        super().__init__()
        check_at_least(2, kernel_size=kernel_size)
        self.kernel_size = kernel_size
        self.weight = nn.Parameter(torch.zeros(kernel_size, 1, dim))
        with torch.no_grad():
            self.weight[0] = 1.0

    def forward(
        self, x: Tensor, valid: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """[b n d] from x [b n d]. valid: [b n] bool, True = real. cache: keeps the last real inputs for the next
        step."""
        if cache is None:
            return convolve(x, self.weight)
        y, cache.convolution = self.step(x, valid, cache.convolution)
        return y

    def step(self, x: Tensor, valid: Tensor | None, tail: Tensor | None) -> tuple[Tensor, Tensor]:
        """Outputs for the tokens x [b n d] after the inputs `tail` [b k-1 d], and the inputs before the next token.

        valid: [b n] bool, True = real, padding being on the right; None: all are. tail: None: zeros.
        """
        past = self.kernel_size - 1
        if tail is None:
            tail = x.new_zeros(x.shape[0], past, x.shape[2])
        both = torch.cat([tail, x], dim=1)
        return convolve(both, self.weight)[:, past:], inputs_before_next(both, past, valid)


def init_as_conv1d(kernel_size: int, *parameters: Tensor) -> None:
    """Draw weight and bias uniformly within kernel_size^-1/2, as `nn.Conv1d` with one input for each output."""
    for parameter in parameters:
        nn.init.uniform_(parameter, -(kernel_size**-0.5), kernel_size**-0.5)


def inputs_before_next(both: Tensor, past: int, valid: Tensor | None) -> Tensor:
    """The last `past` inputs before the next token, of [b past+n d]; valid: [b n], of the last n; None: all real."""
    if valid is None:
        return both[:, both.shape[1] - past :]
    # sequences are padded on the right: the next tokens of an example follow its last real one
    index = rearrange(valid.sum(dim=1), "b -> b 1") + torch.arange(past, device=both.device)
    return both.gather(1, repeat(index, "b k -> b k d", d=both.shape[2]))


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """The sum above, [b n d]. weight: [k 1 d]."""
    if not torch.compiler.is_compiling():
        return cast(Tensor, _Convolve.apply(x, weight))
    # torch.compile 2.11 gives a function by hand that writes into its output no gradient, and says nothing
    past = len(weight) - 1
    n = x.shape[1]
    padded = F.pad(x, [0, 0, past, 0])
    y = x * weight[0]
    for i in range(1, past + 1):
        y = torch.addcmul(y, padded[:, past - i : past - i + n], weight[i])
    return y


class _Convolve(torch.autograd.Function):
    """The sum above. By hand: on a CPU three times as fast, forward and backward, as `conv1d` with groups."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        y = x * weight[0]
        past = len(weight) - 1
        n = x.shape[1]
        # slices that are there at every length, for `torch.export`
        padded = F.pad(x, [0, 0, past, 0])
        for i in range(1, past + 1):
            y.addcmul_(padded[:, past - i : past - i + n], weight[i])
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        (g,) = gradients
        size = len(x)
        if x.device.type == "cpu":
            size = max(BLOCK // (x.shape[1] * x.shape[2]), 1)
        to_x = []
        to_weight = torch.zeros_like(weight, dtype=float32_or_more(weight.dtype))
        for g_, x_ in zip(g.split(size), x.split(size)):
            gradient = g_ * weight[0]
            to_weight[0] += (g_ * x_).sum(dim=(0, 1))
            for i in range(1, min(len(weight), x.shape[1])):
                gradient[:, :-i].addcmul_(g_[:, i:], weight[i])
                to_weight[i] += (g_[:, i:] * x_[:, :-i]).sum(dim=(0, 1))
            to_x.append(gradient)
        return torch.cat(to_x), to_weight.to(weight.dtype)
