"""sLSTM of xLSTM: an LSTM with exponential gates whose recurrent weights mix the memories of a head, token by token.

b batch · h heads · n tokens · d width · c channels of one head · g channels of its four gates
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.nn.checks import check_heads
from seqkit.nn.convolution import CausalConvolution, init_as_conv1d
from seqkit.nn.mixers.base import StateMixer
from seqkit.nn.mixers.mlstm import HeadNorm
from seqkit.nn.precision import float32_or_more, no_autocast
from seqkit.nn.recurrence import is_exporting, scan_tokens

Memory = tuple[Tensor, Tensor, Tensor]
"""Hidden state [h b c], cell and normaliser [2 h b c], both times exp(-m), and the stabiliser m [h b c]."""

EMPTY = -1e30
"""Stabiliser of an empty memory: whatever is kept times exp of it is 0."""


class SLSTM(StateMixer):
    """norm(sLSTM(x)), the layer of Beck et al. 2024, figure 10, without the MLP after it, which the block has.

    Input and forget gate see SiLU(causal depthwise convolution of x), cell input and output gate see x, each head its
    own channels, and all four the head's last output (`slstm`). The norm is LayerNorm of each head.
    kernel_size: tokens of the convolution.
    No form for all tokens at once exists: an output waits for the one before it, so a GPU gains little.
    Initial weights are those of the published code with its bias_init "small_init": input weights normal with variance
    2 / (5 dim), recurrent weights 0, biases 0, but those of the forget gate 3 to 6 over the channels of a head.
    Raises ValueError if num_heads does not divide dim.
    """

    def __init__(self, dim: int, num_heads: int = 4, *, kernel_size: int = 4):
        super().__init__(dim, num_heads)
        check_heads(num_heads, dim=dim)
        c = self.head_dim
        self.convolution = CausalConvolution(dim, kernel_size=kernel_size)
        self.convolution_bias = nn.Parameter(torch.empty(dim))
        init_as_conv1d(kernel_size, self.convolution.weight, self.convolution_bias)
        # gates of a head in the order i, f, z, o
        self.input_weight = nn.Parameter(torch.empty(num_heads, c, 4 * c))
        nn.init.normal_(self.input_weight, std=(2 / (5 * dim)) ** 0.5)
        self.recurrent_weight = nn.Parameter(torch.zeros(num_heads, c, 4 * c))
        bias = torch.zeros(num_heads, 4, c)
        bias[:, 1] = torch.linspace(3.0, 6.0, c)
        self.bias = nn.Parameter(bias.flatten())  # optimizers decay matrices
        self.norm = HeadNorm(dim, num_heads, eps=1e-5)

    def step(
        self, x: Tensor, valid: Tensor | None, state: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        tail = memory = None
        if state is not None:
            tail = state[0]
            hidden, cell, m = (rearrange(t, "b ... h c -> ... h b c") for t in state[1:])
            memory = (hidden, cell, m)
        convolved, tail = self.convolution.step(x, valid, tail)
        convolved = F.silu(convolved + self.convolution_bias)
        gates = self._gates(convolved, x, valid)
        hiddens, cell, m = slstm(gates, self.recurrent_weight, memory)
        y = self.norm(rearrange(hiddens[:, 1:], "h n b c -> b n (h c)").to(x.dtype))
        if valid is None:
            hidden = hiddens[:, -1]
        else:
            hidden = hiddens[:, valid.sum(dim=1), torch.arange(x.shape[0], device=x.device)]
        after = (rearrange(t, "... h b c -> b ... h c") for t in (hidden, cell, m))
        return y, (tail, *after)

    def _gates(self, convolved: Tensor, x: Tensor, valid: Tensor | None) -> Tensor:
        """Inputs of the gates from the tokens alone, before their activations [h n b g]."""
        b = x.shape[0]  # len(x) would be a constant of an exported graph
        of_i_f, of_z_o = self.input_weight.chunk(2, dim=-1)
        heads = "b n (h c) -> h (n b) c"
        h = self.num_heads
        products = [rearrange(convolved, heads, h=h) @ of_i_f, rearrange(x, heads, h=h) @ of_z_o]
        gates = torch.cat(products, dim=-1) + rearrange(self.bias, "(h g) -> h 1 g", h=h)
        gates = rearrange(gates, "h (n b) g -> h n b g", b=b)
        if valid is None:
            return gates
        # nothing comes in and nothing is forgotten, whatever the recurrent weights add
        padded = rearrange(~valid, "b n -> n b 1")
        i, f, rest = gates.split([self.head_dim, self.head_dim, 2 * self.head_dim], dim=-1)
        masked = [i.masked_fill(padded, -math.inf), f.masked_fill(padded, math.inf), rest]
        return torch.cat(masked, dim=-1)

    def uncounted_flops(self, x: Tensor) -> int:
        """FLOPs of one call that torch's counter does not see: b n d (2 k + 1) of the convolution with its bias, and
        16 b n d of the gates, cell, normaliser and hidden state."""
        return x.numel() * (2 * self.convolution.kernel_size + 17)


def slstm(
    gates: Tensor, recurrent_weight: Tensor, memory: Memory | None
) -> tuple[Tensor, Tensor, Tensor]:
    """h_t = sigmoid(o_t) c_t / n_t of c_t = f_t c_(t-1) + i_t tanh(z_t) and n_t = f_t n_(t-1) + i_t.

    That is the sLSTM of Beck et al. 2024, equations 8 to 17, with i_t = exp of what its gate gets and f_t = sigmoid of
    it, the published code's choice of two; each gets R h_(t-1) beside `gates`.
    gates: i, f, z and o side by side, before their activations [h n b g]. recurrent_weight: R [h c g]. memory: None:
    h_0 = c_0 = n_0 = 0. Returns the hidden states from the first one, h_0, on [h n+1 b c], and the last cell and
    normaliser, and stabiliser, as in `Memory`, in float32, or float64 where `gates` are.

    c and n are kept times exp(-m), with m_t = max(log f_t + m_(t-1), log i_t), so no gate overflows, and n is 1 at
    least. h does not depend on m, which therefore has no gradient.
    """
    return _run(gates, recurrent_weight, memory)


@torch.compiler.disable
def _run(
    gates: Tensor, recurrent_weight: Tensor, memory: Memory | None
) -> tuple[Tensor, Tensor, Tensor]:
    exact = float32_or_more(gates.dtype)
    given = gates.to(exact)
    weight = recurrent_weight.to(exact)
    if memory is None:
        zero = torch.zeros_like(given[:, 0, :, : weight.shape[1]])
        memory = (zero, torch.stack([zero, zero + 1]), zero + EMPTY)

    def step(memory: Memory, token: tuple[Tensor, ...]) -> tuple[Memory, Tensor]:
        hidden, cell, m = memory
        log_input, f, z, o = torch.baddbmm(token[0], hidden, weight).chunk(4, dim=-1)
        log_forget = F.logsigmoid(f) + m
        m = torch.maximum(log_input, log_forget).detach()
        written = (log_input - m).exp()
        added = torch.stack([written * z.tanh(), written])
        cell = torch.addcmul(added, (log_forget - m).exp(), cell)
        hidden = o.sigmoid() * cell[0] / cell[1]
        return (hidden, cell, m), hidden

    first = rearrange(memory[0], "h b c -> h 1 b c")
    if is_exporting():
        hiddens, (_, cell, m) = scan_tokens(step, memory, (given,))
        return torch.cat([first, hiddens], dim=1), cell, m
    found = [memory[0]]
    with no_autocast(gates):
        for token in given.unbind(1):
            memory, hidden = step(memory, (token,))
            found.append(hidden)
    return torch.stack(found, dim=1), *memory[1:]
