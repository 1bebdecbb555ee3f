"""Values that are given, one token each: ids of data that is tokenized already, vectors of a series.

n tokens · f features
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.raw import describe_tensor


class Ids(Tokenizer):
    """A sequence of integers as they are: one id a token, nothing to fit.

    vocab_size: ids are 0 to vocab_size - 1.
    When: tokens of another library, states, actions, notes, synthetic tasks. Raises ValueError if vocab_size is below
    1.
    """

    def __init__(self, vocab_size: int) -> None:
        if vocab_size < 1:
            raise ValueError(f"vocab_size={vocab_size}; ids are 0 to vocab_size - 1, so make it 1 or more")
        self.vocab_size = vocab_size

    @property
    def spec(self) -> TokenSpec:
        """Ids below `vocab_size` on one axis."""
        return TokenSpec(vocab_size=self.vocab_size)

    def encode(self, raw: Any, /) -> Tokens:
        """A list, array or tensor of integers [n] as ids [n]; positions [n 1] count tokens from 0.

        Raises DataError where it is empty, of another shape or type, or holds an id outside the vocabulary.
        """
        ids = _as_tensor(raw, "give a list, an array or a tensor of integers [n]")
        is_integer = not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
        if ids.ndim != 1 or len(ids) == 0 or not is_integer:
            raise DataError(f"ids are {describe_tensor(ids)}; give one sequence of integers [n] with at least one")
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= self.vocab_size:
            wrong = low if low < 0 else high
            raise DataError(f"id {wrong} is outside the vocabulary (0 to {self.vocab_size - 1}); set vocab_size higher")
        return Tokens(ids.long(), counted(len(ids)))

    def decode(self, tokens: Tokens | Tensor | Sequence[int]) -> list[int]:
        """The ids [n], given as such or inside `Tokens`, as a list."""
        content = tokens.content if isinstance(tokens, Tokens) else tokens
        return [int(i) for i in content]


class Series(Tokenizer):
    """A series of measurements as they are: one vector of `num_features` numbers a token; nothing is scaled.

    When: time series and other vectors in order. Raises ValueError if num_features is below 1.
    """

    def __init__(self, num_features: int = 1) -> None:
        if num_features < 1:
            raise ValueError(f"num_features={num_features} counts the numbers of a time step; make it 1 or more")
        self.num_features = num_features

    @property
    def spec(self) -> TokenSpec:
        """Vectors of `num_features` on one axis."""
        return TokenSpec(num_features=self.num_features)

    def encode(self, raw: Any, /) -> Tokens:
        """A list, array or tensor of numbers [n f], or [n] where f = 1, as vectors [n f] float32.

        Positions [n 1] count time steps from 0. Raises DataError where it is empty, not finite, or of another width.
        """
        values = _as_tensor(raw, "give a list, an array or a tensor of numbers [n f]")
        if values.is_complex() or values.dtype == torch.bool:
            raise DataError(f"the series is {describe_tensor(values)}; give real numbers")
        if values.ndim == 1 and self.num_features == 1:
            values = rearrange(values, "n -> n 1")
        if values.ndim != 2 or values.shape[1] != self.num_features:
            raise DataError(f"the series is {describe_tensor(values)}; give [n {self.num_features}] (num_features)")
        return Tokens(values.float(), counted(len(values)))

    def decode(self, tokens: Tokens) -> Tensor:
        """The vectors [n f]."""
        return tokens.content


def _as_tensor(raw: Any, advice: str) -> Tensor:
    if not isinstance(raw, (list, tuple, np.ndarray, Tensor)):
        raise DataError(f"{type(raw).__name__} is not a sequence of numbers; {advice}")
    try:
        return torch.as_tensor(raw)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise DataError(f"these are not numbers ({' '.join(str(error).split())}); {advice}") from None


def counted(num_tokens: int) -> Tensor:
    """Positions [n 1] from 0."""
    return rearrange(torch.arange(num_tokens, dtype=torch.float32), "n -> n 1")
