"""The real tokens of a padded batch in one row, so that layers that work on each token spend nothing on padding.

b batch · n tokens · t tokens of the row · d width · h heads · c channels of one head
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from seqkit.interfaces import Embedded

SAVED = 2**22
"""Padding, tokens times width, from which on it is left out. With 12 million (12 blocks of width 768) a step
takes 0.6 to 0.66 of the time on an H200; from which number on it pays is not measured.
"""


@dataclass(frozen=True, slots=True)
class Packing:
    """order: [t] places in the flattened batch of the tokens in the row: all real ones, then some padding.

    valid: [b n] bool, True = real. ends: [1 + 2 b] int32, where runs of the row begin and end: first the examples, then
    the padding of each example, as far as it is in the row.
    """

    order: Tensor
    valid: Tensor
    ends: Tensor

    def pack(self, x: Tensor) -> Tensor:
        """[1 t …] from x [b n …]."""
        return x.flatten(0, 1).index_select(0, self.order)[None]

    def pad(self, x: Tensor) -> Tensor:
        """[b n …] from x [1 t …], zero where a token is not in the row."""
        flat = x.new_zeros(self.valid.numel(), *x.shape[2:]).index_copy(0, self.order, x[0])
        return flat.unflatten(0, self.valid.shape)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, dropout: float, scale: float
    ) -> Tensor:
        """Softmax attention within each example, [1 h t c] from q, k, v [1 h t c], by torch's FlashAttention (CUDA)."""
        q, k, v = (rearrange(x, "1 h t c -> t h c") for x in (q, k, v))
        n = self.valid.shape[1]
        found = torch.ops.aten._flash_attention_forward(
            q,
            k,
            v,
            self.ends,
            self.ends,
            n,
            n,
            dropout,
            causal,
            return_debug_mask=False,
            scale=scale,
        )
        return rearrange(found[0], "t h c -> 1 h t c")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def has_flash_attention() -> bool:
    """Whether `Packing.attend` can run here (from Ampere on), and is not switched off (`enable_flash_sdp`)."""
    return torch.backends.cuda.flash_sdp_enabled() and torch.cuda.get_device_capability()[0] >= 8


def is_worth_packing(embedded: Embedded) -> bool:
    """Whether the batch has enough padding on a device where leaving it out is faster, as far as the host knows."""
    padding = embedded.valid.numel() - embedded.padding.most_real
    return embedded.hidden.is_cuda and padding * embedded.hidden.shape[2] >= SAVED


def packing_of(embedded: Embedded) -> Packing:
    """The packing of a batch, made without waiting for its device."""
    real_first = (
        rearrange(embedded.valid, "b n -> (b n)").byte().argsort(descending=True, stable=True)
    )
    lengths = embedded.valid.sum(dim=1)
    t = embedded.padding.most_real
    ends = torch.cat([lengths, embedded.valid.shape[1] - lengths]).cumsum(0).clamp(max=t)
    return Packing(real_first[:t], embedded.valid, F.pad(ends, [1, 0]).to(torch.int32))
