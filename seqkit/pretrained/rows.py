"""Tables of names: which weights of another library become which of ours, and how.

h heads · c channels of one head · r channel pairs · i inputs · o outputs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from einops import rearrange

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("weight", "bias")


@dataclass(frozen=True)
class Row:
    """A module of ours, from one or several modules of theirs over the same input, their outputs side by side.

    theirs: names of the modules. turned: how many of the first have the channels of a head rotated in pairs (i, i + r);
    ours are (2 i, 2 i + 1). transposed: True: a weight stands as [i o] (their `Conv1D`).
    """

    theirs: tuple[str, ...]
    turned: int = 0
    transposed: bool = False

    def take(self, weights: dict[str, Tensor], layer: str, head_dim: int) -> dict[str, Tensor]:
        """Weight and bias by kind, as far as they are there, taken out of `weights`. layer: start of their names.

        Raises KeyError with the name of the one that is missing beside others.
        """
        found: dict[str, Tensor] = {}
        for kind in KINDS:
            names = [f"{layer}{name}.{kind}" for name in self.theirs]
            if not any(name in weights for name in names):
                continue
            rows = [weights.pop(name) for name in names]
            if self.transposed and kind == "weight":
                rows = [rearrange(x, "i o -> o i") for x in rows]
            rows = [_in_pairs(x, head_dim) if i < self.turned else x for i, x in enumerate(rows)]
            found[kind] = rows[0] if len(rows) == 1 else _stacked(rows)
        return found


def row(*theirs: str, turned: int = 0, transposed: bool = False) -> Row:
    """A row of a table."""
    return Row(theirs, turned, transposed)


def taken(
    table: Mapping[str, Row], weights: dict[str, Tensor], ours: str, theirs: str, head_dim: int
) -> dict[str, Tensor]:
    """Our weights by name of the modules of a table, taken out of `weights`. ours, theirs: what names begin with."""
    found: dict[str, Tensor] = {}
    for name, one in table.items():
        found |= {f"{ours}{name}.{kind}": x for kind, x in one.take(weights, theirs, head_dim).items()}
    return found


def _stacked(rows: list[Tensor]) -> Tensor:
    import torch

    return torch.cat(rows)


def _in_pairs(x: Tensor, head_dim: int) -> Tensor:
    return rearrange(x, "(h two r) ... -> (h r two) ...", two=2, r=head_dim // 2)
