"""Rotary position embedding (RoFormer; Su et al. 2021).

b batch · n tokens · p axes · r channel pairs of one head
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from einops import rearrange
from torch import Tensor

from seqkit.nn.attention.context import AttentionFeature
from seqkit.nn.position.base import RelativePosition


class RotaryScaling(ABC):
    """Other frequencies than those that a model was trained with, for longer sequences.

    They do not depend on the length of a sequence: a cache holds keys that are rotated already, and a token's rotation
    may depend neither on later tokens nor on the rest of the batch. So there is no dynamic scaling ("dynamic NTK").
    attention_factor: factor of the rotated queries and keys beside the rotation.
    """

    attention_factor: float = 1.0

    @abstractmethod
    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        """[r] radians per position, from those without scaling, base^(-i / r)."""

    def check_pairs(self, num_pairs: int, base: float) -> None:  # noqa: B027, most fit any
        """Raise ValueError if it does not fit so many channel pairs, or the base (called when a model is built)."""


class LinearScaling(RotaryScaling):
    """All frequencies divided by a factor, which is positions divided by it (Chen et al. 2023, equation 4).

    factor: how many times longer sequences may be. Raises ValueError for a factor that is not above 0.
    """

    def __init__(self, factor: float):
        _check_above_0(factor=factor)
        self.factor = factor

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        return frequencies / self.factor


class LLaMA3Scaling(RotaryScaling):
    """Low frequencies divided by `factor`, high ones kept, those between interpolated (LLaMA 3.1; Grattafiori et al.
    2024).

    What counts is how often a pair turns in the context that the model was trained with.
    factor: divisor of low frequencies. low_freq_factor: turns below which a frequency is low. high_freq_factor: turns
    above which it is high. original_max_tokens: tokens of the context in training. Equals Hugging
    Face's `rope_type="llama3"` (transformers 5.23; there `original_max_position_embeddings`).
    Raises ValueError for a factor that is not above 0, or a low factor that is not below the high one.
    """

    def __init__(
        self,
        factor: float = 8.0,
        *,
        low_freq_factor: float = 1.0,
        high_freq_factor: float = 4.0,
        original_max_tokens: int = 8192,
    ):
        _check_above_0(factor=factor)
        if not low_freq_factor < high_freq_factor:
            raise ValueError(
                f"low_freq_factor={low_freq_factor} and high_freq_factor={high_freq_factor} have nothing between them; "
                "make the first smaller"
            )
        self.factor, self.original_max_tokens = factor, original_max_tokens
        self.low_freq_factor, self.high_freq_factor = low_freq_factor, high_freq_factor

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        turns = self.original_max_tokens * frequencies / (2 * math.pi)
        kept = ((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return (1 - kept) * frequencies / self.factor + kept * frequencies


class YaRNScaling(RotaryScaling):
    """Slow channel pairs divided by `factor`, fast ones kept, those between in a ramp over the pairs (Peng et al. 2023,
    YaRN, sections 3.2 and 3.4).

    What is slow or fast is the number of turns in the context of training.
    factor: divisor of slow frequencies. original_max_tokens: tokens of the context in training. beta_fast, beta_slow:
    turns above which a pair is kept, and below which it is divided. truncate: whether the ends of the ramp are rounded
    to whole pairs, outwards. attention_factor: factor of queries and keys; None: m(mscale) / m(mscale_all_dim) with
    m(s) = 0.1 s ln(factor) + 1, or 1 for factors up to 1. mscale, mscale_all_dim: as DeepSeek-V2 has them; without
    them it is YaRN's 0.1 ln(factor) + 1. Equals Hugging Face's `rope_type="yarn"` (transformers 5.23).
    Raises ValueError for numbers that are not above 0, or a beta_slow that is not below beta_fast.
    """

    def __init__(
        self,
        factor: float,
        *,
        original_max_tokens: int,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        truncate: bool = True,
        attention_factor: float | None = None,
        mscale: float = 1.0,
        mscale_all_dim: float = 0.0,
    ):
        _check_above_0(factor=factor, original_max_tokens=original_max_tokens, beta_slow=beta_slow)
        if not beta_slow < beta_fast:
            raise ValueError(f"beta_slow={beta_slow} and beta_fast={beta_fast} count turns; make the first smaller")
        growth = 0.1 * math.log(max(factor, 1.0))
        computed = (mscale * growth + 1) / (mscale_all_dim * growth + 1)
        self.attention_factor = computed if attention_factor is None else attention_factor
        _check_above_0(attention_factor=self.attention_factor)
        self.factor, self.original_max_tokens, self.truncate = factor, original_max_tokens, truncate
        self.beta_fast, self.beta_slow = beta_fast, beta_slow

    def check_pairs(self, num_pairs: int, base: float) -> None:
        """Raise ValueError for a base that is not above 1, with which no pair turns more slowly than another."""
        if not base > 1:
            raise ValueError(f"base={base} turns all channel pairs alike, and YaRNScaling tells them apart; raise it")

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        r = len(frequencies)
        first, last = (self._pair(turns, r, base) for turns in (self.beta_fast, self.beta_slow))
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * r - 1)  # theirs counts channels here, not pairs
        pair = torch.arange(r, device=frequencies.device, dtype=torch.float32)
        divided = ((pair - first) / (last - first or 0.001)).clamp(0, 1)
        return divided * (frequencies / self.factor) + (1 - divided) * frequencies

    def _pair(self, turns: float, r: int, base: float) -> float:
        """Which of r pairs turns so often in the context of training, as a fraction."""
        return r * math.log(self.original_max_tokens / (turns * 2 * math.pi)) / math.log(base)


class LongRoPEScaling(RotaryScaling):
    """Each frequency divided by a factor of its own (Ding et al. 2024, LongRoPE, section 3.2; Phi-3).

    factors: divisor of each channel pair's frequency. A published model has two lists: `short_factor` for sequences of
    up to `original_max_tokens` tokens, and `long_factor` for longer ones; give the one for your longest sequences.
    factor: how many times longer sequences may be than in training. original_max_tokens: tokens of the context in
    training. attention_factor: factor of queries and keys; None: sqrt(1 + ln(factor) / ln(original_max_tokens)), or 1
    for factors up to 1. Equals Hugging Face's `rope_type="longrope"` (transformers 5.23) for either list.
    Raises ValueError for numbers that are not above 0, and when a model is built for other numbers of pairs.
    """

    def __init__(
        self,
        factors: Sequence[float],
        *,
        factor: float,
        original_max_tokens: int,
        attention_factor: float | None = None,
    ):
        _check_above_0(factor=factor, attention_factor=1.0 if attention_factor is None else attention_factor)
        if not all(0 < one < math.inf for one in factors):
            raise ValueError(f"factors={list(factors)} divide the frequencies; make each larger than 0")
        if original_max_tokens < 2:
            raise ValueError(f"original_max_tokens={original_max_tokens} counts tokens of a context; make it 2 or more")
        growth = math.log(max(factor, 1.0)) / math.log(original_max_tokens)
        self.attention_factor = math.sqrt(1 + growth) if attention_factor is None else attention_factor
        self.factors = tuple(factors)

    def check_pairs(self, num_pairs: int, base: float) -> None:
        """Raise ValueError for another number of channel pairs than there are factors."""
        if num_pairs != len(self.factors):
            raise ValueError(
                f"LongRoPEScaling has {len(self.factors)} factors for {num_pairs} channel pairs; give one for each"
            )

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        return frequencies / torch.tensor(self.factors, device=frequencies.device, dtype=frequencies.dtype)


def _check_above_0(**settings: float) -> None:
    for name, value in settings.items():
        if not 0 < value < math.inf:
            what = "divides the frequencies" if name == "factor" else "should be a positive number"
            raise ValueError(f"{name}={value} {what}; make it larger than 0")


class Rotary(RelativePosition):
    """Queries and keys rotated by their position, so that scores depend on differences (Su et al. 2021, section 3.2).

    The channel pairs of a head are split equally between the axes (axial; leftover pairs are not rotated);
    of r pairs of an axis, pair i is rotated by position * base^(-i / r).
    interleaved: True: pair i of a head's R pairs belongs to axis i modulo the number of axes, and has the frequency
    base^(-i / R). A token with one coordinate on all axes is then rotated as on one axis, so joined parts of unlike
    axes (text beside images) keep what each has alone (as the interleaved M-RoPE of Qwen3-VL). Of one axis both are
    the same.
    base: ratio of the frequencies of the first and the last pair, about. share: share of a head's channels, from the
    first on, that are rotated at all, rounded down (GPT-NeoX, Phi; Black et al. 2022, section 2.1). scaling: scaling
    of the frequencies, for longer sequences than in training; None: none.
    Raises ValueError for a base that is not above 0 or a share outside (0, 1].
    """

    requires = AttentionFeature.ROTARY

    def __init__(
        self,
        *,
        base: float = 10_000.0,
        share: float = 1.0,
        scaling: RotaryScaling | None = None,
        interleaved: bool = False,
    ):
        super().__init__()
        if base <= 0:
            raise ValueError(f"base={base} should be positive")
        if not 0 < share <= 1:
            raise ValueError(f"share={share} of a head's channels are rotated; make it above 0 and at most 1")
        self.base, self.share, self.scaling = base, share, scaling
        self.interleaved = self.takes_unlike_axes = interleaved

    def check_axes(self, num_axes: int, head_dim: int) -> None:
        """Raise ValueError if a head has fewer channel pairs than the tokens have axes, or the scaling does not fit."""
        if self._pairs(head_dim) < num_axes:
            narrowed, wider = ("", "") if self.share == 1 else (f" with share={self.share}", " or a larger share")
            raise ValueError(
                f"a head_dim of {head_dim}{narrowed} has no channel pair for each of {num_axes} axes; "
                f"use wider heads{wider}"
            )
        if self.scaling is not None and num_axes > 0:
            self.scaling.check_pairs(self._pairs_of_axis(head_dim, num_axes), self.base)

    def _pairs(self, head_dim: int) -> int:
        """Channel pairs of a head that are rotated."""
        return int(head_dim * self.share) // 2

    def _pairs_of_axis(self, head_dim: int, num_axes: int) -> int:
        return self._pairs(head_dim) // (1 if self.interleaved else num_axes)

    def rotary(self, positions: Tensor, head_dim: int) -> Tensor | None:
        """Complex numbers [b 1 n r] for positions [b n p] and heads of `head_dim` channels.

        Raises ValueError if a head has too few channels.
        """
        num_axes = positions.shape[-1]
        if num_axes == 0:
            return None
        self.check_axes(num_axes, head_dim)
        r = self._pairs_of_axis(head_dim, num_axes)
        frequencies = self.base ** -(torch.arange(r, device=positions.device, dtype=torch.float32) / r)
        if self.scaling is not None:
            frequencies = self.scaling(frequencies, self.base)
        if self.interleaved:
            axis = torch.arange(r, device=positions.device) % num_axes
            angles = rearrange(positions.float()[..., axis], "b n r -> b 1 n r") * frequencies
        else:
            angles = rearrange(positions.float(), "b n p -> b 1 n p 1") * frequencies
            angles = rearrange(angles, "b 1 n p r -> b 1 n (p r)")
        factor = 1.0 if self.scaling is None else self.scaling.attention_factor
        return torch.polar(torch.full_like(angles, factor), angles)
