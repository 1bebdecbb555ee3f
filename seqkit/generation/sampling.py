"""Sampling: choose the next token from its logits, greedily or from a warped distribution.

b sequences · v vocabulary
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from seqkit.generation.step_graph import triton_kernels

BLOCK = 128
"""Random numbers that are drawn for a sequence at a time."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. The settings apply in this order, each to what the one before left:

    repetition_penalty: θ; logits of tokens that occur in the sequence are divided by it where positive, multiplied
    where negative (Keskar et al. 2019, section 4.1; for negative logits as Hugging Face does); 1: none.
    temperature: logits are divided by it; 0: the likeliest token is taken (greedy).
    top_k: only the k likeliest tokens, and those as likely as the last of them (Fan et al. 2018); None: all.
    top_p: only the fewest likeliest tokens that have this probability together (Holtzman et al. 2020); 1: all.
    min_p: only tokens at least this share as probable as the likeliest (Nguyen et al. 2024); 0: all.
    seed: sequence i is drawn with seed + i, so neither the rest of the batch nor the device changes it.
    Raises ValueError for a setting outside its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(
                f"temperature={self.temperature} divides the logits; make it 0 (greedy) or more, finite"
            )
        if self.top_k is not None and (not isinstance(self.top_k, int) or self.top_k < 1):
            raise ValueError(
                f"top_k={self.top_k} counts tokens; make it 1 or more, or None for all"
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} is a probability; make it above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            raise ValueError(
                f"min_p={self.min_p} is a share of the largest probability; make it 0 to 1"
            )
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(
                f"repetition_penalty={self.repetition_penalty} divides logits; make it above 0 and finite"
            )
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed}; give an integer from 0 to {2**32 - 1}")

    def warp_logits(self, logits: Tensor, seen: Tensor | None = None) -> Tensor:
        """Logits [b v] of the distribution to draw from; -inf: never. Not for temperature 0.

        seen: [b v] bool, True: the token occurs in the sequence.
        """
        logits = self.penalize_repetition(logits, seen).to(widest_float(logits.device))
        # the largest becomes 0 first: then no temperature, however low, makes a logit infinite
        logits = (logits - logits.amax(dim=-1, keepdim=True)) / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p < 1:
            logits = keep_top_p(logits, self.top_p)
        if self.min_p > 0:
            logits = keep_min_p(logits, self.min_p)
        return logits

    def penalize_repetition(self, logits: Tensor, seen: Tensor | None) -> Tensor:
        """Logits [b v] after the repetition penalty; `seen` as in `warp_logits`."""
        if seen is None or self.repetition_penalty == 1:
            return logits
        penalty = self.repetition_penalty
        penalized = torch.where(logits > 0, logits / penalty, logits * penalty)
        return torch.where(seen, penalized, logits)

    def choose(self, logits: Tensor, seen: Tensor | None, rng: PerSequenceRNG) -> Tensor:
        """One id [b] for logits [b v], drawn by the next numbers of `rng` unless temperature is 0."""
        if self.temperature == 0:
            if seen is not None:
                logits = self.penalize_repetition(logits, seen)
            return logits.argmax(dim=-1)
        draws = rng.next(logits.device)
        kernels = triton_kernels(logits.device)
        if kernels is None:
            cumulative = self.warp_logits(logits, seen).softmax(dim=-1).cumsum(dim=-1)
            # inverse transform sampling: the first id whose cumulative probability is above the draw, never one of
            # probability 0, where it does not rise
            level = draws * cumulative[:, -1]
            return torch.searchsorted(cumulative, level[:, None], right=True)[:, 0]
        drawn: Tensor
        if self.top_k is None and self.top_p == 1 and self.min_p == 0:
            whole = self.penalize_repetition(logits, seen)
            drawn = kernels.draw(whole, draws, self.temperature)
        else:
            drawn = kernels.draw(self.warp_logits(logits, seen), draws, 1.0)
        return drawn


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Logits [b v], -inf but for the k largest of each row and those equal to the smallest of them."""
    return logits.masked_fill(logits < logits.topk(k).values[:, -1:], -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Logits [b v], -inf but for the fewest largest of each row whose probabilities sum to p or more."""
    ordered, order = logits.sort(dim=-1, descending=True)
    probability = ordered.softmax(dim=-1)
    before = probability.cumsum(dim=-1) - probability
    is_left_out = torch.zeros_like(order, dtype=torch.bool).scatter(1, order, before >= p)
    return logits.masked_fill(is_left_out, -torch.inf)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Logits [b v], -inf but for those whose probability is at least p times the largest of the row."""
    return logits.masked_fill(logits < logits.amax(dim=-1, keepdim=True) + math.log(p), -torch.inf)


def widest_float(device: torch.device) -> torch.dtype:
    """float64 on a CPU; float32 on GPUs, of which some have no more and others are slow in it."""
    return torch.float64 if device.type == "cpu" else torch.float32


class PerSequenceRNG:
    """Uniform random numbers in [0, 1), a stream of its own for each sequence: sequence i has seed + i."""

    def __init__(self, seed: int, num_sequences: int):
        self._generators = [torch.Generator().manual_seed(seed + i) for i in range(num_sequences)]
        self._drawn = torch.empty(0, num_sequences)
        self._num_used = 0

    def next(self, device: torch.device) -> Tensor:
        """[b] on `device`, in its widest float, the next number of each stream."""
        if self._num_used == len(self._drawn):
            blocks = [
                torch.rand(BLOCK, generator=generator, dtype=torch.float64)
                for generator in self._generators
            ]
            wide = widest_float(device)
            # just below 1, for the product with a sum of probabilities to stay below that sum
            below_1 = 1 - 1e-15 if wide == torch.float64 else 1 - 2**-24
            # a step in each row, for that of a step to be contiguous; on the device, for no step to copy
            self._drawn = torch.stack(blocks, dim=1).to(wide).clamp(max=below_1).to(device)
            self._num_used = 0
        self._num_used += 1
        return self._drawn[self._num_used - 1]

    def reorder(self, rows: Tensor) -> None:
        """Keep these sequences, [b'] indices, in this order (each at most once)."""
        self._drawn = self._drawn[:, rows]
        self._generators = [self._generators[i] for i in rows.tolist()]
