"""Choose the next token from its scores: the likeliest, or one drawn from a distribution that was cut to size.

b batch · v vocabulary
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

BLOCK = 128
"""So many numbers are drawn for a text at a time."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. In this order, each from what the one before left:

    repetition_penalty: θ; scores of tokens that occur in the text are divided by it where positive, multiplied where
    negative (Keskar et al. 2019, section 4.1; for negative scores as Hugging Face does); 1: none.
    temperature: scores are divided by it; 0: the likeliest is taken (greedy).
    top_k: only the k likeliest, and those as likely as the last of them (Fan et al. 2018); None: all.
    top_p: only the fewest likeliest that have this probability together (Holtzman et al. 2020); 1: all.
    min_p: only those at least this share as probable as the likeliest (Nguyen et al. 2024); 0: all.
    seed: text i is drawn with seed + i, so batch mates change nothing, nor does the device.
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
            raise ValueError(f"temperature={self.temperature} divides the scores; make it 0 (greedy) or more, finite")
        if self.top_k is not None and (not isinstance(self.top_k, int) or self.top_k < 1):
            raise ValueError(f"top_k={self.top_k} counts tokens; make it 1 or more, or None for all")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} is a probability; make it above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p={self.min_p} is a share of the largest probability; make it 0 to 1")
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(
                f"repetition_penalty={self.repetition_penalty} divides scores; make it above 0 and finite (1: none)"
            )
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed}; give an integer from 0 to {2**32 - 1}")

    def cut(self, scores: Tensor, seen: Tensor | None = None) -> Tensor:
        """Scores [b v] to draw from in proportion to their exponentials; -inf: never. Not for temperature 0.

        seen: [b v] bool, True: the token occurs in the text.
        """
        scores = self.penalised(scores, seen).double()
        # the largest becomes 0 first: then no temperature, however low, makes a score infinite
        scores = (scores - scores.amax(dim=-1, keepdim=True)) / self.temperature
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            scores = only_top_k(scores, self.top_k)
        if self.top_p < 1:
            scores = only_top_p(scores, self.top_p)
        if self.min_p > 0:
            scores = only_min_p(scores, self.min_p)
        return scores

    def penalised(self, scores: Tensor, seen: Tensor | None) -> Tensor:
        """Scores [b v] after the repetition penalty; `seen` as in `cut`."""
        if seen is None or self.repetition_penalty == 1:
            return scores
        penalty = self.repetition_penalty
        return torch.where(seen, torch.where(scores > 0, scores / penalty, scores * penalty), scores)

    def choose(self, scores: Tensor, seen: Tensor | None, draws: Draws) -> Tensor:
        """One id [b] for scores [b v]; the next numbers of `draws` decide, if anything is to be decided."""
        if self.temperature == 0:
            return self.penalised(scores, seen).argmax(dim=-1)
        heights = self.cut(scores, seen).softmax(dim=-1).cumsum(dim=-1)
        # the first id whose height is above the draw: where a probability is 0, the height does not rise
        level = draws.next(scores.device) * heights[:, -1]
        return rearrange(torch.searchsorted(heights, rearrange(level, "b -> b 1"), right=True), "b 1 -> b")


def only_top_k(scores: Tensor, k: int) -> Tensor:
    """Scores [b v], -inf but for the k largest of each row and those equal to the smallest of them."""
    return scores.masked_fill(scores < scores.topk(k).values[:, -1:], -torch.inf)


def only_top_p(scores: Tensor, p: float) -> Tensor:
    """Scores [b v], -inf but for the fewest largest of each row whose probabilities sum to p or more."""
    ordered, order = scores.sort(dim=-1, descending=True)
    probability = ordered.softmax(dim=-1)
    before = probability.cumsum(dim=-1) - probability
    return scores.masked_fill(torch.zeros_like(order, dtype=torch.bool).scatter(1, order, before >= p), -torch.inf)


def only_min_p(scores: Tensor, p: float) -> Tensor:
    """Scores [b v], -inf but for those whose probability is at least p times the largest of the row."""
    return scores.masked_fill(scores < scores.amax(dim=-1, keepdim=True) + math.log(p), -torch.inf)


class Draws:
    """Numbers in [0, 1), a stream for each text from a seed of its own."""

    def __init__(self, seed: int, num_texts: int):
        self._streams = [torch.Generator().manual_seed(seed + i) for i in range(num_texts)]
        self._drawn, self._used = torch.empty(num_texts, 0), 0

    def next(self, device: torch.device) -> Tensor:
        """[b] float64 on `device`, the next number of each stream."""
        if self._used == self._drawn.shape[1]:
            blocks = [torch.rand(BLOCK, generator=stream, dtype=torch.float64) for stream in self._streams]
            # a hair below 1, for the product with a sum of probabilities to stay below that sum
            self._drawn, self._used = torch.stack(blocks).clamp(max=1 - 1e-15), 0
        self._used += 1
        return self._drawn[:, self._used - 1].to(device)

    def select(self, rows: Tensor) -> None:
        """Keep these texts, [b'] indices, in this order (each at most once)."""
        self._drawn = self._drawn[rows.cpu()]
        self._streams = [self._streams[i] for i in rows.tolist()]
