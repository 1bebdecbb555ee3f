"""Dropout that a component takes over from its backbone unless it is given its own."""

from __future__ import annotations

from torch import nn

from seqkit.nn.checks import check_probability


class InheritedDropout(nn.Module):
    """A module with a dropout probability of its own or, where that is None, its backbone's.

    A backbone calls `inherit_dropout` on all such modules once, when it is built; without a backbone None means 0.
    Raises ValueError for a probability outside [0, 1).
    """

    def __init__(self, dropout: float | None):
        super().__init__()
        self.dropout = 0.0 if dropout is None else dropout
        self._inherits = dropout is None
        check_probability("dropout", self.dropout)

    def inherit_dropout(self, dropout: float) -> None:
        """Take over a backbone's dropout, unless this module was given its own."""
        if self._inherits:
            self.dropout = dropout
