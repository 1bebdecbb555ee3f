"""Diagonal state space layer (S4D): a long convolution by FFT, or the same as a linear recurrence.

b batch · n tokens · d width · s complex states of one channel (half of num_states) · w ways (directions)
i blocks of tokens · j tokens of one block · z real and imaginary parts
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.nn.mixers.base import BOTH_DIRECTIONS, StateMixer
from seqkit.nn.precision import float32_or_more, no_autocast
from seqkit.nn.recurrence import is_exporting

Spectrum = Literal["lin", "inv"]
"""Initial frequencies: S4D-Lin or S4D-Inv."""


BLOCK = 64
"""Tokens of a block in an exported graph."""


class S4DLayer(nn.Module):
    """Diagonal state space layer (Gu, Gupta, Goel and Ré 2022): h' = A h + x and y = 2 Re(C h) + D x for each channel.

    A is diagonal and complex; its entries come in conjugate pairs, of which one is kept, so num_states = 64 are 32
    complex ones. Zero-order hold with a step dt of its own for each channel gives
    h_t = exp(dt A) h_(t-1) + (exp(dt A) - 1) / A x_t, which is a convolution with the kernel
    K_l = 2 Re(sum_s C_s (exp(dt A_s) - 1) / A_s exp(dt A_s)^l) (ibid., section 3).
    spectrum: "lin": A_m = -1/2 + i pi m; "inv": A_m = -1/2 + i N/pi (N/(2m + 1) - 1) with N = num_states (ibid.,
    section 4, S4D-Lin and S4D-Inv). dt starts log-uniform in [0.001, 0.1], C and D normal, as in the paper's code.
    The real part of A stays negative as -exp(.), so no state grows.
    bidirectional: a kernel over later tokens too, of other C (as in S4's code); it begins at the last real token
    because padding is zero and the layer adds no bias.

    A sequence takes O(n log n) time and O(n) memory for each channel; a step with a state O(num_states).
    Logarithms and frequencies of A are stored flat: optimizers decay matrices, and these are none.
    Raises ValueError for an odd num_states or one below 2.

    >>> layer, x = S4DLayer(3), torch.randn(2, 7, 3)
    >>> first, state = layer.step(x[:, :4], None, None)
    >>> rest, state = layer.step(x[:, 4:], None, state)
    >>> torch.allclose(torch.cat([first, rest], dim=1), layer(x), atol=1e-5), state.shape
    (True, torch.Size([2, 3, 32]))
    """

    def __init__(
        self,
        dim: int,
        *,
        num_states: int = 64,
        spectrum: Spectrum = "lin",
        bidirectional: bool = False,
    ):
        super().__init__()
        if num_states < 2 or num_states % 2:
            raise ValueError(
                f"num_states={num_states}; states come in conjugate pairs, so give an even number from 2"
            )
        if spectrum not in ("lin", "inv"):
            raise ValueError(f"spectrum={spectrum!r}; give 'lin' or 'inv'")
        self.dim = dim
        self.num_pairs = num_states // 2
        self.bidirectional = bidirectional
        m = torch.arange(self.num_pairs, dtype=torch.float32)
        inverse = num_states / math.pi * (num_states / (2 * m + 1) - 1)
        frequencies = math.pi * m if spectrum == "lin" else inverse
        self.log_dt = nn.Parameter(torch.empty(dim).uniform_(math.log(0.001), math.log(0.1)))
        self.log_decay = nn.Parameter(torch.full((dim * self.num_pairs,), math.log(0.5)))
        self.frequency = nn.Parameter(frequencies.repeat(dim))
        ways = 2 if bidirectional else 1
        # of variance 1, as a complex number
        self.C = nn.Parameter(torch.randn(ways, dim, self.num_pairs, 2) * 0.5**0.5)
        self.D = nn.Parameter(torch.randn(dim))

    def forward(self, x: Tensor) -> Tensor:
        """[b n d] from x [b n d], which is zero where padded."""
        # FFTs have no bfloat16, and powers of a ratio near 1 need the digits
        n = x.shape[1]
        exact = x.to(float32_or_more(x.dtype))
        log_step, C = self._discretised(exact.dtype)
        with no_autocast(x):
            kernels = geometric_sums(C, log_step, n)
            kernel = kernels[0]
            # offset -1 - l of the circular convolution is its place 2 n - 1 - l
            if self.bidirectional:
                kernel = F.pad(kernel, [0, n]) + F.pad(kernels[1].flip(-1), [n, 0])
            y = fft_convolution(exact, kernel) + exact * self.D.to(exact.dtype)
        return y.to(x.dtype)

    def step(self, x: Tensor, valid: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """The next tokens after a state: y [b n d] and the complex state [b d s] after each last real token.

        x: [b n d], zero where padded. valid: [b n] bool, padded on the right; None: all are real. state: None: zero.
        One token costs a step of the recurrence; several cost a convolution, and what the state still gives them.
        Raises ValueError if the layer is bidirectional.
        """
        if self.bidirectional:
            raise ValueError(
                "a bidirectional S4DLayer has no state to go on from; build it with bidirectional=False"
            )
        b, n, _ = x.shape
        exact = x.to(float32_or_more(x.dtype))
        log_step, C = self._discretised(exact.dtype)
        if state is None:
            state = torch.zeros(b, self.dim, self.num_pairs, dtype=log_step.dtype, device=x.device)
        with no_autocast(x):
            if n == 1 and valid is None:
                state = log_step.exp() * state + rearrange(exact, "b 1 d -> b d 1")
                y = rearrange(2 * (C[0] * state).sum(dim=-1).real, "b d -> b 1 d")
            else:
                from_state = geometric_sums(C[0] * log_step.exp() * state, log_step, n)
                y = fft_convolution(exact, geometric_sums(C, log_step, n)[0]) + rearrange(
                    from_state, "b d n -> b n d"
                )
                state = state_after(exact, log_step, valid, state)
            y = y + exact * self.D.to(exact.dtype)
        return y.to(x.dtype), state

    def uncounted_flops(self, x: Tensor) -> int:
        """FLOPs of `forward` that torch's counter does not see: those of the FFTs, and between them.

        An FFT of m = 2 n real numbers is 2.5 m log2(m), half of a complex one: one for each channel of an example, one
        back, and one of each channel's kernel. A complex product is 6, for n + 1 frequencies; a complex exponential
        counts as one product, for d s states at about 2 sqrt(n) exponents; the skip D is 2 for each number. The
        kernel's sum over states is a matrix product, which torch counts.
        """
        b, n, d = x.shape
        i, j = _blocks(n)
        fft = round(2.5 * 2 * n * math.log2(2 * n))
        return (
            (2 * b + 1) * d * fft
            + 6 * b * d * (n + 1)
            + 6 * d * self.num_pairs * (i + j)
            + 2 * b * n * d
        )

    def _discretised(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """dt A [d s] and C (exp(dt A) - 1) / A [w d s]; the numerator is B's zero-order hold."""
        decay, frequency = (
            rearrange(t.to(dtype), "(d s) -> d s", d=self.dim)
            for t in (-self.log_decay.exp(), self.frequency)
        )
        A = torch.complex(decay, frequency)
        log_step = A * rearrange(self.log_dt.to(dtype).exp(), "d -> d 1")
        C = torch.complex(*self.C.to(dtype).unbind(dim=-1))
        return log_step, C * (_exp(log_step.real, log_step.imag) - 1) / A


class S4DMixer(StateMixer):
    """GLU(W GELU(S4D(x))): a layer with the gated output of the paper's code (its `s4d.py`).

    num_states, spectrum, bidirectional: as in `S4DLayer`.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 1,
        *,
        num_states: int = 64,
        spectrum: Spectrum = "lin",
        bidirectional: bool = False,
    ):
        super().__init__(dim, num_heads)
        self.ssm = S4DLayer(
            dim, num_states=num_states, spectrum=spectrum, bidirectional=bidirectional
        )
        self.out_proj = nn.Linear(dim, 2 * dim)
        if bidirectional:
            self.supports = BOTH_DIRECTIONS

    def mix(self, x: Tensor, valid: Tensor | None) -> Tensor:
        return self._gated(self.ssm(x))

    def step(self, x: Tensor, valid: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
        y, state = self.ssm.step(x, valid, state)
        return self._gated(y), state

    def _gated(self, y: Tensor) -> Tensor:
        return F.glu(self.out_proj(F.gelu(y)), dim=-1)


def geometric_sums(coefficients: Tensor, log_ratio: Tensor, n: int) -> Tensor:
    """2 Re(sum over s of c_s r_s^t) for t < n: coefficients [w d s] or [b d s], log r [d s]; returns [w d n].

    With t = i J + j and about sqrt(n) values of each, r^t is r^(i J) times r^j. So O(d s sqrt(n)) exponentials and one
    real matrix product for each channel take the place of O(d s n) exponentials.
    """
    coarse, fine = _powers(log_ratio, n)
    left = rearrange(coefficients, "w d s -> d w 1 s") * rearrange(coarse, "d i s -> d 1 i s")
    left = rearrange(torch.stack([left.real, -left.imag]), "z d w i s -> d (w i) (z s)")
    right = rearrange(torch.stack([fine.real, fine.imag]), "z d j s -> d (z s) j")
    sums = rearrange(2 * left @ right, "d (w i) j -> w d (i j)", w=coefficients.shape[0])
    if is_exporting():  # torch does not see that there are n
        return sums.index_select(-1, torch.arange(n, device=sums.device))
    return sums[..., :n]


def state_after(x: Tensor, log_step: Tensor, valid: Tensor | None, state: Tensor) -> Tensor:
    """The state [b d s] after the last real token of x [b n d]: r^len h + sum over t < len of r^(len - 1 - t) x_t.

    log_step: log r [d s]. state: h [b d s], before x. Powers are split as in `geometric_sums`.
    """
    n = x.shape[1]
    coarse, fine = _powers(log_step, n)
    num_blocks, size = _blocks(n)
    age = torch.arange(n, device=x.device)
    if valid is None:
        latest_first = x.flip(1)
        lengths = torch.full((x.shape[0],), n, device=x.device)
    else:
        lengths = valid.sum(dim=1)
        index = rearrange(lengths, "b -> b 1") - 1 - age
        taken = x.gather(1, rearrange(index.clamp(min=0), "b n -> b n 1").expand_as(x))
        latest_first = taken.masked_fill(rearrange(index < 0, "b n -> b n 1"), 0.0)
    padded = F.pad(latest_first, [0, 0, 0, num_blocks * size - n])
    parts = rearrange(padded, "b (i j) d -> d (b i) j", i=num_blocks).to(fine.dtype) @ fine
    blocks = rearrange(parts, "d (b i) s -> b d i s", i=num_blocks)
    kept = (log_step * rearrange(lengths.to(x.dtype), "b -> b 1 1")).exp() * state
    return kept + (blocks * coarse).sum(dim=2)


def fft_convolution(x: Tensor, kernel: Tensor) -> Tensor:
    """y_t = sum over u of kernel_(t - u) x_u, by FFTs of length 2 n: x [b n d] with a kernel [d n], or [d 2n] whose
    second half holds the negative offsets; returns [b n d]."""
    n = x.shape[1]
    x = rearrange(x, "b n d -> b d n")
    if is_exporting():
        latest_first = torch.cat([kernel[:, :n].flip(-1), kernel[:, n:].flip(-1)], dim=-1)
        padded = F.pad(x, [n - 1, kernel.shape[-1] - n])
        y = F.conv1d(padded, rearrange(latest_first, "d m -> d 1 m"), groups=x.shape[1])
    else:
        y = torch.fft.irfft(torch.fft.rfft(x, n=2 * n) * torch.fft.rfft(kernel, n=2 * n), n=2 * n)
    return rearrange(y[..., :n], "b d n -> b n d").contiguous()


def _powers(log_ratio: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """r^(i J) [d i s] and r^j [d j s] of the two parts of t = i J + j < n. log r: [d s]."""
    num_blocks, size = _blocks(n)
    exponents = torch.arange(num_blocks + size, device=log_ratio.device, dtype=log_ratio.real.dtype)
    exponents = torch.where(exponents < num_blocks, exponents * size, exponents - num_blocks)
    powers = _exp(
        *(
            rearrange(t, "d s -> d 1 s") * rearrange(exponents, "t -> t 1")
            for t in (log_ratio.real, log_ratio.imag)
        )
    )
    return powers[:, :num_blocks], powers[:, num_blocks:]


def _exp(decay: Tensor, angle: Tensor) -> Tensor:
    """exp(decay + i angle), in a fraction of the time of torch's; ONNX has none of complex numbers."""
    size = decay.exp()
    return torch.complex(size * angle.cos(), size * angle.sin())


def _blocks(n: int) -> tuple[int, int]:
    """Number of blocks and tokens of each, about sqrt(n).

    An exported graph has blocks of one size, and always more of them than one, and than n takes.
    """
    if is_exporting():
        return n // BLOCK + 2, BLOCK
    size = math.isqrt(n - 1) + 1
    return -(-n // size), size
