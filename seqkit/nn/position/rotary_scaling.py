"""Scalings of rotary frequencies, for longer sequences than a model was trained with.

r channel pairs of one head
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from seqkit.interfaces.tokens import may_read
from seqkit.nn.checks import check_above_0, check_at_least


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

    def checked(self, positions: Tensor) -> Tensor:
        """Positions [b n p]. Raises ValueError for some that it is not meant for; NaN, where none may be read."""
        return positions


class LinearScaling(RotaryScaling):
    """All frequencies divided by a factor, which is positions divided by it (Chen et al. 2023, equation 4).

    factor: how many times longer sequences may be. Raises ValueError for a factor that is not above 0.
    """

    def __init__(self, factor: float):
        check_above_0(factor=factor)
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
        check_above_0(factor=factor)
        if not low_freq_factor < high_freq_factor:
            raise ValueError(
                f"low_freq_factor={low_freq_factor} and high_freq_factor={high_freq_factor} have nothing between them; "
                "make the first smaller"
            )
        self.factor = factor
        self.original_max_tokens = original_max_tokens
        self.low_freq_factor = low_freq_factor
        self.high_freq_factor = high_freq_factor

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        turns = self.original_max_tokens * frequencies / (2 * math.pi)
        kept = (
            (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        ).clamp(0, 1)
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
        check_above_0(factor=factor, original_max_tokens=original_max_tokens, beta_slow=beta_slow)
        if not beta_slow < beta_fast:
            raise ValueError(
                f"beta_slow={beta_slow} and beta_fast={beta_fast} count turns; make the first smaller"
            )
        growth = 0.1 * math.log(max(factor, 1.0))
        computed = (mscale * growth + 1) / (mscale_all_dim * growth + 1)
        self.attention_factor = computed if attention_factor is None else attention_factor
        check_above_0(attention_factor=self.attention_factor)
        self.factor = factor
        self.original_max_tokens = original_max_tokens
        self.truncate = truncate
        self.beta_fast = beta_fast
        self.beta_slow = beta_slow

    def check_pairs(self, num_pairs: int, base: float) -> None:
        """Raise ValueError for a base that is not above 1, with which no pair turns more slowly than another."""
        if not base > 1:
            raise ValueError(
                f"base={base} turns all channel pairs alike, and YaRNScaling tells them apart; raise it"
            )

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        r = len(frequencies)
        first, last = (self._pair(turns, r, base) for turns in (self.beta_fast, self.beta_slow))
        if self.truncate:
            first = math.floor(first)
            last = math.ceil(last)
        # theirs counts channels here, not pairs
        first = max(first, 0)
        last = min(last, 2 * r - 1)
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
    for factors up to 1. max_tokens: positions from it on are refused, as those that the short list does not fit; None:
    any. Equals Hugging Face's `rope_type="longrope"` (transformers 5.23) for either list; there the longest sequence of
    a call decides which of them turns all of its batch.
    Raises ValueError for numbers that are not above 0, for other numbers of pairs when a model is built, and for
    positions from max_tokens on.
    """

    def __init__(
        self,
        factors: Sequence[float],
        *,
        factor: float,
        original_max_tokens: int,
        attention_factor: float | None = None,
        max_tokens: int | None = None,
    ):
        check_above_0(factor=factor, attention_factor=attention_factor, max_tokens=max_tokens)
        self.max_tokens = max_tokens
        check_above_0(**{f"factors[{i}]": one for i, one in enumerate(factors)})
        check_at_least(2, original_max_tokens=original_max_tokens)
        growth = math.log(max(factor, 1.0)) / math.log(original_max_tokens)
        if attention_factor is None:
            self.attention_factor = math.sqrt(1 + growth)
        else:
            self.attention_factor = attention_factor
        self.factors = tuple(factors)

    def check_pairs(self, num_pairs: int, base: float) -> None:
        """Raise ValueError for another number of channel pairs than there are factors."""
        if num_pairs != len(self.factors):
            raise ValueError(
                f"LongRoPEScaling has {len(self.factors)} factors for {num_pairs} channel pairs; give one for each"
            )

    def checked(self, positions: Tensor) -> Tensor:
        """Positions [b n p]. Raises ValueError for those from `max_tokens` on; NaN, where none may be read."""
        if self.max_tokens is None:
            return positions
        is_beyond = positions >= self.max_tokens
        if may_read(positions) and bool(is_beyond.any()):
            raise ValueError(
                f"a sequence has more than {self.max_tokens} tokens, which these factors of LongRoPEScaling don't fit; "
                "give shorter ones, or the model's long factors with max_tokens=null"
            )
        return positions.masked_fill(is_beyond, torch.nan)

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        return frequencies / torch.tensor(
            self.factors, device=frequencies.device, dtype=frequencies.dtype
        )
