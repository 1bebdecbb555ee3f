"""A module under the laws of modules: how it is called, and rows of vectors with padding at any place.

b batch · n columns · d width
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqkit.errors import described
from seqkit.testing.checks import NotCheckedError
from seqkit.testing.process import fixed_generator
from seqkit.testing.tolerance import is_same

Call = Callable[[nn.Module, Tensor, Tensor], Tensor]
Step = Callable[[nn.Module, Tensor, Tensor, Any], tuple[Tensor, Any]]
Init = Callable[[nn.Module, int], Any]
Reorder = Callable[[Any, Tensor], Any]
Segments = Callable[[nn.Module, Tensor, Tensor], Tensor]

PADDING = 5
"""Columns of padding."""


@dataclass
class Called:
    """A module in evaluation mode with its doors: `check_module` says what they are.

    repeats: copies of an example that are its batch, where a module takes no batch of one.
    """

    module: nn.Module
    call: Call
    causal: bool
    dim: int
    step: Step | None = None
    init: Init | None = None
    reorder: Reorder | None = None
    segments: Segments | None = None
    dtype: torch.dtype = torch.float64
    repeats: int = 1

    def __call__(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """Vectors [b n d] of vectors. valid: None: no column is padding."""
        valid = torch.ones(x.shape[:2], dtype=torch.bool) if valid is None else valid
        repeats = self.repeats if len(x) == 1 else 1
        # copies: what it changes in place must not hide another fault
        hidden = self.call(self.module, x.repeat(repeats, 1, 1), valid.repeat(repeats, 1))
        return hidden[: len(x)] if isinstance(hidden, Tensor) else hidden

    def vectors(self, *lengths: int, seed: int = 0) -> list[Tensor]:
        """Examples [n d] of those lengths; the same every time."""
        generator = torch.Generator().manual_seed(seed)
        drawn = [torch.randn(n, self.dim, generator=generator) for n in lengths]
        return [x.to(self.dtype) for x in drawn]

    def parameters(self) -> dict[str, Tensor]:
        """Its parameters that are trained."""
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    def reads_lengths_alone(self) -> bool:
        """Whether the mask counts at most as the number of its columns: other places change nothing. Such a module, as
        one that takes no mask or packs its rows by their lengths, promises right padding alone."""
        (x,) = self.vectors(12)
        rows = torch.stack([x, x.flip(0)])
        columns = torch.arange(12)
        masks = [columns < 6, columns >= 6, (columns < 3) | (columns >= 9)]
        try:
            with torch.no_grad():
                right, *others = [self(rows, mask.repeat(2, 1)) for mask in masks]
        except ValueError:
            return False
        return all(is_same(other, right) for other in others)

    def table_of_columns(self) -> str | None:
        """Name of a table of embeddings that it looks up though it gets vectors: a table of positions, by column."""
        tables = {
            name: given
            for name, module, given in calls_of(self, 3)
            if isinstance(module, nn.Embedding)
        }
        return max(tables, key=lambda name: tables[name].unique().numel(), default=None)


def calls_of(called: Called, n: int) -> list[tuple[str, nn.Module, Any]]:
    """The modules inside that run for an example of n tokens, with their names and first arguments."""
    found: list[tuple[str, nn.Module, Any]] = []
    hooks = [
        module.register_forward_hook(
            lambda own, given, _, name=name: found.append((name, own, given[0] if given else None))
        )
        for name, module in called.module.named_modules()
    ]
    try:
        with torch.no_grad():
            called(called.vectors(n)[0][None])
    finally:
        for hook in hooks:
            hook.remove()
    return found


def default_call(module: nn.Module) -> Call:
    """How a module is called: torch's recurrent ones take packed rows, all others `module(x, valid)`."""
    if isinstance(module, nn.RNNBase):
        return _packed
    return lambda module, x, valid: module(x, valid)  # type: ignore[no-any-return]


def _packed(module: nn.Module, x: Tensor, valid: Tensor) -> Tensor:
    """A recurrent module of torch over rows that are padded on the right."""
    lengths = valid.sum(dim=1).cpu()
    rows = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    hidden, _ = pad_packed_sequence(module(rows)[0], batch_first=True, total_length=x.shape[1])
    return hidden


def copied(module: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """A deep copy, also of one that keeps a computed weight, as `torch.nn.utils.weight_norm` does."""
    memo = {} if memo is None else memo
    for inside in module.modules():
        for value in vars(inside).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    return copy.deepcopy(module, memo)


@dataclass
class Place:
    """Columns of real tokens in a row that has more: where its padding is."""

    name: str
    before: int = 0
    inside: int = 0
    after: int = 0

    def row(self, x: Tensor, filler: Tensor) -> tuple[Tensor, Tensor]:
        """An example [n d] with padding, [m d], and which columns are real, [m]. filler: [m d]: what padding holds."""
        n = len(x)
        columns = self.before + torch.arange(n)
        columns[n // 2 :] += self.inside
        m = n + self.before + self.inside + self.after
        valid = torch.zeros(m, dtype=torch.bool)
        valid[columns] = True
        row = filler[:m].to(x).clone()
        row[columns] = x
        return row, valid


RIGHT = Place("right", after=PADDING)
LEFT = Place("left", before=PADDING)
INSIDE = Place("inside", inside=PADDING, after=1)


def padded(
    called: Called,
    x: Tensor,
    place: Place,
    *,
    mate: bool,
    filler: float | None = None,
    seed: int = 1,
) -> tuple[Tensor, Tensor]:
    """A batch whose first row is an example with padding: [b m d] and valid [b m].

    mate: whether a full row is beside it. filler: what padding holds; None: random numbers.
    """
    row, valid = place.row(x, *called.vectors(len(x) + 2 * PADDING, seed=seed))
    if filler is not None:
        row[~valid] = filler
    if not mate:
        return row[None], valid[None]
    (full,) = called.vectors(len(row), seed=7)
    return torch.stack([row, full]), torch.stack([valid, torch.ones_like(valid)])


@contextlib.contextmanager
def refusal_is_an_answer() -> Iterator[None]:
    """A law is left out where the module refuses with ValueError or NotImplementedError."""
    try:
        yield
    except (ValueError, NotImplementedError) as error:
        raise NotCheckedError(f"refused: {described(error)}") from None


def projected(hidden: Tensor, real: Tensor) -> Tensor:
    """A number that has a gradient by every real column: the sum over fixed random directions."""
    direction = torch.randn(hidden.shape[-1], generator=fixed_generator()).to(hidden)
    weight = torch.linspace(0.5, 1.5, int(real.sum())).to(hidden)
    return (hidden[real] @ direction) @ weight


def gradients(
    called: Called, value: Tensor, leaves: Sequence[Tensor]
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Gradients of a number by leaves and by each parameter; zero where none arrives."""
    parameters = called.parameters()
    wanted = [*leaves, *parameters.values()]
    found = torch.autograd.grad(value, wanted, allow_unused=True)
    full = [torch.zeros_like(w) if g is None else g for w, g in zip(wanted, found, strict=True)]
    return full[: len(leaves)], dict(zip(parameters, full[len(leaves) :], strict=True))
