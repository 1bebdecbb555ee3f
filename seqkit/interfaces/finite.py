"""Are these numbers finite? Asked where weights come in, and where what a model computes goes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from seqkit.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


def flaw(values: Tensor) -> str:
    """Flaw of numbers, "NaN" or "infinity"; empty if all are finite."""
    if bool(values.isfinite().all()):
        return ""
    return "NaN" if bool(values.isnan().any()) else "infinity"


def flawed_weight(weights: Mapping[str, Tensor]) -> str:
    """First weight that holds NaN or infinity, and what it holds, in words; empty if there is none."""
    found = ((name, flaw(weight)) for name, weight in weights.items())
    return next((f"the weight {name} holds {what}" for name, what in found if what), "")


def check_computed(values: Tensor) -> None:
    """Raise DataError if something that a model computed is not finite."""
    if what := flaw(values):
        raise DataError(
            f"the model computes {what} for it: the weights are damaged, or training diverged; train again"
        )
