"""How queries weigh what they read: the part of attention that differs between its kinds.

b batch · n tokens that read · m tokens that are read · h heads · g heads of keys and values · c channels of one head
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, repeat
from torch import Tensor, nn

from seqkit.layers.memory import KeysValues
from seqkit.layers.reading import EVERYTHING, Reading


class Mechanism(nn.Module, ABC):
    """From queries, keys and values to what is read. Built as `(num_heads, channels) -> Mechanism`.

    honours: what of `reading.FEATURES` it keeps to; anything else is refused when the backbone is built.
    dense: True: it takes `reading.attend`, which scores every pair; False: it works from the rest of `reading`, and no
    [n m] mask is made for it. needs_links: True: it goes along links, so tokens without are refused.
    """

    honours: ClassVar[frozenset[str]]
    dense: ClassVar[bool] = True
    needs_links: ClassVar[bool] = False

    @abstractmethod
    def forward(self, q: Tensor, k: Tensor, v: Tensor, reading: Reading, memory: Any = None) -> Tensor:
        """What is read, [b h n c], from q [b h n c] and k, v [b g m c].

        memory: from `init_memory`; k and v continue what it holds.
        """

    @abstractmethod
    def weights(self, q: Tensor, k: Tensor, reading: Reading) -> Tensor:
        """How much each token reads of each, [b h n m]; with them, weights @ values is what `forward` gives.

        Raises ValueError where it has no such weights.
        """

    def init_memory(self, max_tokens: int) -> Any:
        """What it keeps between steps, empty."""
        return KeysValues(max_tokens)


class ScaledDotProduct(Mechanism):
    """softmax(q k / temperature) v (Vaswani et al. 2017, equation 1), by torch's `scaled_dot_product_attention`.

    temperature: None: the square root of the channels; towards 0 each query looks up the value of its best key.
    dropout: of weights, while training.
    Raises ValueError for a temperature that is not above 0 or a dropout outside [0, 1).
    """

    honours = EVERYTHING

    def __init__(self, num_heads: int, channels: int, *, temperature: float | None = None, dropout: float = 0.0):
        super().__init__()
        if temperature is not None and not temperature > 0:
            raise ValueError(f"temperature={temperature} divides the scores; make it larger than 0")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout} is a share of weights; make it at least 0 and below 1")
        self.temperature = channels**0.5 if temperature is None else temperature
        self.dropout = dropout

    def forward(self, q: Tensor, k: Tensor, v: Tensor, reading: Reading, memory: Any = None) -> Tensor:
        """[b h n c]."""
        if memory is not None:
            k, v = memory.extend(k, v)
        attend, causal = reading.attend, reading.causal
        if reading.relative is not None:
            attend, causal = self._with_relative(q, k, reading), False
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            attend,
            self.dropout if self.training else 0.0,
            is_causal=causal,
            scale=1 / self.temperature,
            enable_gqa=q.shape[1] != k.shape[1],
        )

    def weights(self, q: Tensor, k: Tensor, reading: Reading) -> Tensor:
        """[b h n m], without dropout."""
        bias = self._with_relative(q, k, reading) if reading.relative is not None else as_bias(q, k, reading)
        scores = einsum(q, grouped(k, q), "b h n c, b h m c -> b h n m") / self.temperature
        return softmax(scores + bias)

    def _with_relative(self, q: Tensor, k: Tensor, reading: Reading) -> Tensor:
        """The scores of embedded distances (Shaw et al. 2018, equation 4) beside what may be read, [b h n m]."""
        assert reading.relative is not None
        relative = einsum(q, reading.relative.to(q.dtype), "b h n c, b n m c -> b h n m") / self.temperature
        return relative + as_bias(q, k, reading)


def as_bias(q: Tensor, k: Tensor, reading: Reading) -> Tensor:
    """Who may read whom as what is added to scores, [b|1 h|1 n|1 m]: 0 or a bias where one may, -inf elsewhere."""
    n, m = q.shape[2], k.shape[2]
    attend = reading.attend
    if attend is None:
        if not reading.causal:
            return q.new_zeros(1, 1, 1, 1)
        attend = rearrange(torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n), "n m -> 1 1 n m")
    if attend.dtype == torch.bool:
        return q.new_zeros(attend.shape).masked_fill(~attend, -torch.inf)
    return attend.to(q.dtype)


def softmax(scores: Tensor) -> Tensor:
    """Over the last axis; zeros where nothing may be read at all, as torch's attention gives, gradients too."""
    nothing = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return scores.masked_fill(nothing, 0.0).softmax(dim=-1).masked_fill(nothing, 0.0)


def grouped(k: Tensor, q: Tensor) -> Tensor:
    """Keys (or values) [b g m c] repeated for all heads of q, [b h m c]: head i reads group i // (h / g)."""
    times = q.shape[1] // k.shape[1]
    return k if times == 1 else repeat(k, "b g m c -> b (g times) m c", times=times)
