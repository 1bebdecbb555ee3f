"""Convolutional stems of pretrained models of sound: embeddings of audio tokens, as `TokenSpec.embedder`.

A token holds all samples or frames that its embedding depends on. So its embedding is the same alone, beside others and
beside padding, and the convolutions need no mask.

b batch · n tokens · r tokens of a batch in one row, b n · t samples of a token, or what a convolution makes of them
m mel bands · s frames of a token · c channels · k samples of the first kernel · d width
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.tokenizers.settings import check_choice

WHISPER_FRAMES = 5
WHISPER_STRIDE = 2
"""Frames that an embedding of Whisper depends on, and frames from one embedding to the next."""


class WhisperStem(nn.Module):
    """Two convolutions over log-mel frames with GELU, the second with stride 2 (Radford et al. 2023, section 2.2).

    Content is [b n s (m 1)]: five frames, each with a flag that is 0 where the recording has no such frame. The second
    convolution gets zeros there, which is not what the first one makes of zeros.
    """

    def __init__(self, num_mels: int, dim: int):
        super().__init__()
        self.conv1 = nn.Conv1d(num_mels, dim, 3)
        self.conv2 = nn.Conv1d(dim, dim, 3, stride=WHISPER_STRIDE)

    def forward(self, content: Tensor) -> Tensor:
        """Embeddings [b n d] of content [b n s*(m+1)]."""
        b = content.shape[0]
        frames = rearrange(content, "b n (s m) -> (b n) m s", s=WHISPER_FRAMES)
        exists = frames[:, -1:, 1:-1]
        hidden = F.gelu(self.conv1(frames[:, :-1])) * exists
        return rearrange(F.gelu(self.conv2(hidden)), "(b n) d 1 -> b n d", b=b)


@dataclass(frozen=True)
class Convolutions:
    """Convolutions over samples, with GELU, of wav2vec 2.0 and HuBERT (Baevski et al. 2020, section 2).

    widths, kernels, strides: channels, kernel size and stride of each convolution.
    norm: "group": the first convolution is normed alone, each channel over the whole clip, as in the base models;
    "layer": each convolution is normed at each place, as in the large ones. bias: whether convolutions have one.
    norm_eps: epsilon of the norm before the projection to the width of the model; None: there is no such norm.
    Raises ValueError for lists of different lengths, sizes below 1, or a kernel shorter than its stride.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # of a recipe

    widths: tuple[int, ...] = (512,) * 7
    kernels: tuple[int, ...] = (10, 3, 3, 3, 3, 2, 2)
    strides: tuple[int, ...] = (5, 2, 2, 2, 2, 2, 2)
    norm: Literal["group", "layer"] = "group"
    bias: bool = False
    norm_eps: float | None = 1e-5

    def __post_init__(self) -> None:
        for name in ("widths", "kernels", "strides"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        sizes = (self.widths, self.kernels, self.strides)
        num_layers = {len(x) for x in sizes}
        if len(num_layers) > 1 or 0 in num_layers or min(map(min, sizes)) < 1:
            raise ValueError(
                f"widths={self.widths}, kernels={self.kernels}, strides={self.strides}; give one number from 1 for "
                "each convolution"
            )
        if any(kernel < stride for kernel, stride in zip(self.kernels, self.strides)):
            raise ValueError(
                f"kernels={self.kernels}, strides={self.strides}; a kernel below its stride skips samples"
            )
        check_choice("norm", self.norm, "group", "layer")

    @property
    def hop_samples(self) -> int:
        """Samples from one token to the next."""
        return prod(self.strides)

    @property
    def window_samples(self) -> int:
        """Samples that an embedding depends on."""
        window = 1
        for kernel, stride in zip(reversed(self.kernels), reversed(self.strides)):
            window = (window - 1) * stride + kernel
        return window

    @property
    def num_statistics(self) -> int:
        """Numbers about the whole clip that a token has beside its samples (`clip_statistics`)."""
        if self.norm == "group":
            return self.kernels[0] * (1 + self.kernels[0])
        return 0


def clip_statistics(wave: Tensor, kernel: int, stride: int) -> Tensor:
    """Mean [k] and root of the covariance [k k], in one row, of the stretches of k samples that a convolution gets.

    wave: [t], t >= k. The root is symmetric, its square is the covariance.
    A convolution is linear, so these say mean and variance of its output for any weights: `ClipNorm`.
    """
    stretches = wave.double().unfold(0, kernel, stride)
    mean = stretches.mean(dim=0)
    centred = stretches - mean
    # the root, not the covariance: of smooth sounds a filter's variance is a small difference of large numbers
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    return torch.cat([mean, root.flatten()]).float()


class ClipNorm(nn.Module):
    """Norm of each channel of a convolution's output over a whole clip, by statistics of its samples.

    Equals `nn.GroupNorm` with a group for each channel over the output for the clip alone, without padding.
    """

    def __init__(self, width: int, *, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor, conv: nn.Conv1d, statistics: Tensor) -> Tensor:
        """x [r c t], the output of `conv`, normed. statistics: [r k+k*k], as of `clip_statistics`."""
        kernel = rearrange(conv.weight, "c 1 k -> k c")
        mean, root = statistics.tensor_split([len(kernel)], dim=-1)
        centre = mean @ kernel if conv.bias is None else mean @ kernel + conv.bias
        variance = (rearrange(root, "r (i k) -> r i k", k=len(kernel)) @ kernel).square().sum(dim=1)
        scale = self.weight * (variance + self.eps).rsqrt()
        return torch.addcmul(
            rearrange(self.bias - centre * scale, "r c -> r c 1"),
            x,
            rearrange(scale, "r c -> r c 1"),
        )


class WaveLayer(nn.Module):
    """A convolution, a norm or none, and GELU: [r i t] to [r c t']."""

    def __init__(self, num_inputs: int, convolutions: Convolutions, index: int):
        super().__init__()
        width = convolutions.widths[index]
        kernel = convolutions.kernels[index]
        stride = convolutions.strides[index]
        self.conv = nn.Conv1d(num_inputs, width, kernel, stride, bias=convolutions.bias)
        nn.init.kaiming_normal_(self.conv.weight)
        self.norm: nn.Module | None = None
        if convolutions.norm == "layer":
            self.norm = nn.LayerNorm(width)
        elif index == 0:
            self.norm = ClipNorm(width)

    def forward(self, x: Tensor, statistics: Tensor) -> Tensor:
        """statistics: [r k+k*k] of the clips, for a `ClipNorm`."""
        x = self.conv(x)
        if isinstance(self.norm, ClipNorm):
            x = self.norm(x, self.conv, statistics)
        elif self.norm is not None:
            x = rearrange(self.norm(rearrange(x, "r c t -> r t c")), "r t c -> r c t")
        return F.gelu(x)


class WaveStem(nn.Module):
    """`Convolutions` over the samples of each token, and a projection to the width of the model, maybe after a norm."""

    def __init__(self, convolutions: Convolutions, dim: int):
        super().__init__()
        widths = convolutions.widths
        self.window_samples = convolutions.window_samples
        self.layers = nn.ModuleList(
            WaveLayer(num_inputs, convolutions, i) for i, num_inputs in enumerate((1, *widths[:-1]))
        )
        eps = convolutions.norm_eps
        self.norm = nn.Identity() if eps is None else nn.LayerNorm(widths[-1], eps=eps)
        self.projection = nn.Linear(widths[-1], dim)

    def forward(self, content: Tensor) -> Tensor:
        """Embeddings [b n d] of content [b n t+s]: samples, and statistics of the clip."""
        b = content.shape[0]
        rows = rearrange(content, "b n f -> (b n) f")
        samples, statistics = rows.tensor_split([self.window_samples], dim=-1)
        x = rearrange(samples, "r t -> r 1 t")
        for layer in self.layers:
            x = layer(x, statistics)
        return self.projection(self.norm(rearrange(x, "(b n) c 1 -> b n c", b=b)))
