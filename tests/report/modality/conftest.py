"""A tokenizer without a renderer of its own, and the attention of tokens of which one receives twice as much."""

import numpy as np
import pytest
import torch

from seqkit.interfaces import Tokenizer, Tokens, TokenSpec


class Vectors(Tokenizer):
    """A plug-in's: three features on two axes."""

    @property
    def spec(self):
        return TokenSpec(num_features=3, num_axes=2)

    def encode(self, raw, /):
        return Tokens(torch.tensor(raw).reshape(-1, 3), torch.rand(len(raw) // 3, 2))


@pytest.fixture
def unknown():
    """A tokenizer without a renderer of its own."""
    return Vectors()


@pytest.fixture
def attention_to():
    """(n, hot) → [n], in times the average: token `hot` receives twice as much as the others."""

    def received(n, hot):
        row = np.ones(n)
        row[hot] = 2
        return row * n / row.sum()

    return received
