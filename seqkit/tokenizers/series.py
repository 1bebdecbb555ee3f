"""Vectors that are given, one token a time step: sensors, prices, embeddings of another model.

n tokens · f features
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.raw import describe_tensor


class Series(Tokenizer):
    """A series of measurements as they are: one vector of `num_features` numbers a token; nothing is scaled.

    When: time series and other vectors in order. Raises ValueError if num_features is below 1.
    """

    def __init__(self, num_features: int = 1) -> None:
        if num_features < 1:
            raise ValueError(f"num_features={num_features} counts the numbers of a time step; make it 1 or more")
        self.num_features = num_features

    def __repr__(self) -> str:
        return f"Series({self.num_features})"

    @property
    def spec(self) -> TokenSpec:
        """Vectors of `num_features` on one axis."""
        return TokenSpec(num_features=self.num_features)

    def encode(self, raw: Any, /) -> Tokens:
        """A list, array or tensor of numbers [n f], or [n] where f = 1, as vectors [n f] float32.

        Positions [n 1] count time steps from 0. Raises DataError where it is empty, not finite, or of another width.
        """
        values = _as_numbers(raw)
        if values.ndim == 1 and self.num_features == 1:
            values = rearrange(values, "n -> n 1")
        if values.ndim != 2 or values.shape[1] != self.num_features:
            raise DataError(
                f"the series is {describe_tensor(values)}; the tokenizer has num_features={self.num_features}: "
                f"give [n {self.num_features}], time first"
            )
        return Tokens(values, rearrange(torch.arange(len(values), dtype=torch.float32), "n -> n 1"))

    def decode(self, tokens: Tokens) -> Tensor:
        """The vectors [n f]."""
        return tokens.content


def _as_numbers(raw: Any) -> Tensor:
    """float32. Raises DataError where it is not an array of numbers."""
    if not isinstance(raw, (list, tuple, np.ndarray, Tensor)):
        raise DataError(f"{type(raw).__name__} is not a series; give a list, an array or a tensor of numbers [n f]")
    try:
        values = torch.as_tensor(raw)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"the series does not hold numbers ({' '.join(str(error).split())}); give [n f]") from None
    if values.is_complex() or values.dtype == torch.bool:
        raise DataError(f"the series is {describe_tensor(values)}; give real numbers")
    return values.float()
