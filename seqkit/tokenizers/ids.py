"""Ids that are given, one token each: data that is tokenized already.

n tokens
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

    def __repr__(self) -> str:
        return f"Ids({self.vocab_size})"

    @property
    def spec(self) -> TokenSpec:
        """Ids below `vocab_size` on one axis."""
        return TokenSpec(vocab_size=self.vocab_size)

    def encode(self, raw: Any, /) -> Tokens:
        """A list, array or tensor of integers [n] as ids [n]; positions [n 1] count tokens from 0.

        Raises DataError where it is empty, of another shape or type, or holds an id outside the vocabulary.
        """
        ids = _as_integers(raw)
        if ids.ndim != 1 or len(ids) == 0:
            raise DataError(f"ids are {describe_tensor(ids)}; give one sequence [n] with at least one")
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= self.vocab_size:
            raise DataError(
                f"id {low if low < 0 else high} is outside the vocabulary of {self.vocab_size} "
                f"(0 to {self.vocab_size - 1}); give a larger vocab_size, or other ids"
            )
        return Tokens(ids, rearrange(torch.arange(len(ids), dtype=torch.float32), "n -> n 1"))

    def decode(self, tokens: Tokens | Tensor | Sequence[int]) -> list[int]:
        """The ids [n], given as such or inside `Tokens`, as a list."""
        content = tokens.content if isinstance(tokens, Tokens) else tokens
        return [int(i) for i in content]


def _as_integers(raw: Any) -> Tensor:
    """int64. Raises DataError where it is not a sequence of whole numbers."""
    if not isinstance(raw, (list, tuple, np.ndarray, Tensor)):
        raise DataError(f"{type(raw).__name__} is not a sequence of ids; give a list, an array or a tensor of integers")
    try:
        values = torch.as_tensor(raw)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise DataError(
            f"ids are not integers ({' '.join(str(error).split())}); give a list of whole numbers"
        ) from None
    if values.numel() and (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool):
        raise DataError(f"ids are {describe_tensor(values)}; give integers")
    return values.long()
