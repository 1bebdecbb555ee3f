"""Heads on the parts of joined tokens.

b batch · n tokens · d width · r runs of a part · m tokens of a run
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Embedded

END = 0
"""Number of the end of a run among the predictions of a `PartHead` before its tokens; id i has the number i + 1."""


class PartHead(nn.Module):
    """A head on the tokens of one part of joined tokens: [b n d] → predictions [r m ...] of its r runs.

    In a batch of which no example has the part r is 0, and the head's parameters get gradients of zero.
    before: True: the prediction for a token, and one for the end of the run, come from the column before it, [r m + 1
    ...]; that of a row's first token comes from no column and means nothing.
    """

    def __init__(self, part: str, head: nn.Module, *, before: bool = False):
        super().__init__()
        self.part = part
        self.head = head
        self.before = before

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Predictions of the runs of the part."""
        assert embedded.parts is not None
        part = embedded.parts.get(self.part)
        if part is None:
            columns = embedded.valid.new_zeros(0, 1, dtype=torch.int64)
        else:
            columns = part.columns
        if self.before:
            columns = columns_before(columns, hidden.shape[1])
        prediction: Tensor = self.head(rearrange(hidden, "b n d -> (b n) d")[columns], embedded)
        return prediction


class HeadsOfParts(nn.Module):
    """A head for each part of joined tokens: [b n d] → name to prediction, of no run where the batch lacks the part."""

    def __init__(self, heads: Mapping[str, PartHead]):
        super().__init__()
        self.heads = nn.ModuleDict(dict(heads))

    def forward(self, hidden: Tensor, embedded: Embedded) -> dict[str, Tensor]:
        """Prediction of each part."""
        return {name: head(hidden, embedded) for name, head in self.heads.items()}


def columns_before(columns: Tensor, n: int) -> Tensor:
    """Columns [r m + 1] that predict the tokens of runs, [r m], and the end of each, in a batch of n columns.

    They are those before each token; before the first token of an example there is none, so it is its own.
    """
    first = columns[:, :1]
    return torch.cat([first - (first % n > 0).long(), columns], dim=1)
