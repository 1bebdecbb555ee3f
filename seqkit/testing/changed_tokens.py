"""Tokens with other content, or with other padding, than those that are given.

b batch · n tokens
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.interfaces.parts import Part, Parts


def with_dirty_padding(batch: TokenBatch, spec: TokenSpec) -> TokenBatch:
    """The batch, and those of its parts, with NaN or the largest id where it is padded."""
    largest = torch.tensor(spec.id_sizes or len(spec.parts)) - 1
    dirty: dict[str, Any] = {}
    for name, value in _tensors(batch).items():
        dirty[name] = value.clone()
        dirty[name][~batch.valid] = torch.nan if value.is_floating_point() else largest
    if batch.parts is not None:
        dirty["parts"] = _changed_parts(
            batch.parts, lambda name, part: with_dirty_padding(part.batch, spec.part(name))
        )
    return batch.columns(slice(None)).replace(**dirty)


def _tensors(tokens: Tokens | TokenBatch) -> dict[str, Tensor]:
    """The tensors of content and positions by the names of their fields."""
    found = {field.name: getattr(tokens, field.name, None) for field in fields(Tokens)}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def _changed_parts(parts: Parts, change: Callable[[str, Part], TokenBatch]) -> Parts:
    """The parts of a batch, each with the batch that `change` gives for its name and itself."""
    return Parts({name: replace(part, batch=change(name, part)) for name, part in parts.items()})


Example = TypeVar("Example", Tokens, TokenBatch)


def other_content(tokens: Example, where: Tensor, spec: TokenSpec) -> Example:
    """The tokens, some with another id within its vocabulary, other numbers, and all else that is no position.

    where: bool, [n] or [b n]: the tokens that change.
    """
    if isinstance(tokens, Tokens) and tokens.parts:
        lengths = [len(run) for _, run in tokens.parts]
        runs = [
            (name, other_content(run, own, spec.part(name)))
            for (name, run), own in zip(tokens.parts, where.split(lengths), strict=True)
        ]
        return replace(tokens, parts=tuple(runs))
    if isinstance(tokens, TokenBatch) and tokens.parts is not None:

        def changed_part(name: str, part: Part) -> TokenBatch:
            own = where.reshape(-1)[part.columns] & part.batch.valid
            return other_content(part.batch, own, spec.part(name))

        return replace(tokens, parts=_changed_parts(tokens.parts, changed_part))
    changed: dict[str, Any] = {}
    for name, value in _tensors(tokens).items():
        if name != "positions":
            sizes = torch.tensor(spec.vocab_sizes or spec.vocab_size, device=value.device)
            other = -value - 1 if value.is_floating_point() else (value + 1) % sizes
            here = where if value.ndim == where.ndim else where[..., None]
            changed[name] = torch.where(here, other, value)
    return replace(tokens, **changed)
