"""Attention of which one token receives twice as much as the others, and a tokenizer without a renderer of its own."""

import numpy as np
import pytest
import torch

from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.report.modality import AttentionSummary


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
    """(n, hot) → every query attends twice as much to token `hot` as to the others."""

    def summary(n, hot, *, layers=2, heads=3, last_query=False):
        row = np.ones(n)
        row[hot] = 2
        row /= row.sum()
        return AttentionSummary(np.tile(row, (layers, heads, n, 1)), np.tile(row, (n, 1)), last_query)

    return summary
