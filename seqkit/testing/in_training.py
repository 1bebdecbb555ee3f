"""Laws of a module in training mode, also of one that draws: calls of one seed and one shape draw the same.

b batch · n columns · d width
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from seqkit.testing.called import RIGHT, Called, copied
from seqkit.testing.checks import NotCheckedError
from seqkit.testing.padding import stacked
from seqkit.testing.process import seeded
from seqkit.testing.tolerance import assert_same, is_same

NUM_CHANGES = 3
"""Number of other contents that must draw numbers of the same shapes, for a difference to be a fault."""


def training_mixes_no_rows(called: Called, examples: list[Tensor]) -> None:
    """In training mode, with one seed, what padding and the other examples hold changes no example."""
    batch, valid = stacked(called, examples, RIGHT)
    rows = torch.arange(len(batch))[:, None]
    kept = [valid & (rows == i) for i in range(len(batch))]
    _assert_kept(called, batch, valid, kept, "what padding and other examples hold changes one")


def training_sees_no_future(called: Called, examples: list[Tensor]) -> None:
    """In training mode, with one seed, later columns of a causal module change no vector."""
    x = max(examples, key=len)[None]
    n = x.shape[1]
    kept = [torch.arange(n)[None] <= t for t in sorted({0, n // 2, n - 2})]
    fault = "a token attends to the future: later columns change the vectors"
    _assert_kept(called, x, torch.ones_like(kept[0]), kept, fault)


class _Draws(TorchDispatchMode):
    """Context that notes the shapes of what is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.shapes.append([x.shape if isinstance(x, Tensor) else x for x in args])
        return func(*args, **(kwargs or {}))


def _run(
    called: Called, batch: Tensor, valid: Tensor, *, training: bool = True
) -> tuple[Tensor, list[Any]]:
    """Vectors [b n d] of a copy, and the shapes of what it draws."""
    with seeded(1), _Draws() as draws, torch.no_grad():
        hidden = replace(called, module=copied(called.module).train(training))(batch, valid)
    return hidden, draws.shapes


def _assert_kept(
    called: Called, batch: Tensor, valid: Tensor, kept: Sequence[Tensor], fault: str
) -> None:
    """Raises AssertionError if other numbers in all but the columns `kept`, [b n], change the vectors there."""
    size = valid.numel()
    noises = [called.vectors(size, seed=5 + i)[0].reshape(batch.shape) for i in range(NUM_CHANGES)]
    right, shapes = _run(called, batch, valid)
    for own in kept:
        changed = torch.where(own[..., None], batch, noises[0])
        got, _ = _run(called, changed, valid)
        if is_same(got[own], right[own]):
            continue
        before, after = (_run(called, x, valid, training=False)[0][own] for x in (batch, changed))
        if not is_same(after, before):
            raise NotCheckedError("so it is in evaluation mode: other laws say it")
        # an expert that drops out what it is sent draws by the numbers, and what is drawn moves
        for noise in noises:
            for mask in kept:
                changed = torch.where(mask[..., None], batch, noise)
                if _run(called, changed, valid)[1] != shapes:
                    raise NotCheckedError("what it draws depends on the numbers")
        assert_same(got[own], right[own], f"in training mode, {fault}")
