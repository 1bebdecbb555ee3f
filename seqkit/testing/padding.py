"""Laws of a module about padding at any place of a row, alone and beside a full row, and about its past.

b batch · n columns · d width
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from seqkit.testing.called import (
    INSIDE,
    LEFT,
    RIGHT,
    Called,
    Place,
    copied,
    gradients,
    padded,
    projected,
    refusal_is_an_answer,
)
from seqkit.testing.checks import DifferenceError, NotCheckedError
from seqkit.testing.embedded_backbone import InFloat64
from seqkit.testing.tolerance import assert_same, assert_within, is_same

MATES = {False: "in a batch of one", True: "beside a full row"}

PRECISION = 1e-4
"""Share of the largest number by which rounding inside may change the output: float32 gives 1e-6, bfloat16 4e-3."""

ROUNDED = 1e-5
"""Median difference of the vectors of float32 from those of float64, as a share of the largest: float16 gives 1e-4."""

NUM_DRAWS = 4
"""Number of pasts of which one must change most columns."""

MORE_DRAWS = 24
"""Number of pasts, at most, of which one must change a column that depends on them. Each is larger than the one before:
attention to the best columns reads one of them."""

RARE = 4
"""No fault if more than one column in so many has no dependence that others have."""


def leaves_its_input_alone(called: Called, examples: list[Tensor]) -> None:
    """Vectors and mask do not change in place."""
    x, valid = padded(called, examples[0], RIGHT, mate=True)
    given = (x.clone(), valid.clone())
    # what it raises, another law says
    with contextlib.suppress(Exception), torch.no_grad():
        called.call(called.module, *given)
    for name, before, after in zip(("vectors", "mask"), (x, valid), given, strict=True):
        if not torch.equal(before, after):
            raise AssertionError(f"it changes its {name} in place; work on a copy")


def left_padding_changes_nothing(called: Called, examples: list[Tensor]) -> None:
    """Padding on the left gives the vectors of the example alone. Not checked if the module reads at most the lengths
    of its mask, or looks positions up by column."""
    if called.reads_lengths_alone():
        raise NotCheckedError(
            "it takes no mask, or its lengths alone: right padding is all it promises"
        )
    with refusal_is_an_answer(), torch.no_grad():
        for x in examples:
            alone = called(x[None])[0]
            for mate, where in MATES.items():
                hidden = called(*padded(called, x, LEFT, mate=mate))[0, -len(x) :]
                if not is_same(hidden, alone) and (table := called.table_of_columns()):
                    raise NotCheckedError(
                        f"it looks up {table} by column; give positions that count valid columns in call="
                    )
                assert_same(hidden, alone, f"left padding changes {len(x)} tokens {where}")


def what_padding_holds_changes_nothing(called: Called, examples: list[Tensor]) -> None:
    """Other numbers in padding on the left, inside and on the right change no real column."""
    places = _places(called)
    refused = []
    for place in places:
        try:
            with refusal_is_an_answer(), torch.no_grad():
                for x in examples:
                    for mate in MATES:
                        _assert_same_for_any_content(called, x, place, mate=mate)
        except NotCheckedError as reason:
            refused.append(f"{place.name}: {reason}")
    if len(refused) == len(places):
        raise NotCheckedError("; ".join(refused))


def _assert_same_for_any_content(called: Called, x: Tensor, place: Place, *, mate: bool) -> None:
    first, valid = padded(called, x, place, mate=mate)
    other, _ = padded(called, x, place, mate=mate, seed=2)
    zero, _ = padded(called, x, place, mate=mate, filler=0.0)
    expected = called(zero, valid)[valid]
    for batch in (first, other):
        fault = f"what padding {place.name} holds changes {len(x)} tokens {MATES[mate]}"
        assert_same(called(batch, valid)[valid], expected, fault)


def padding_may_hold_nan(called: Called, examples: list[Tensor]) -> None:
    """NaN and infinity in padding change nothing. Checked where padding comes out as zero: any other promises nothing,
    and a softmax gives NaN for zero times NaN. Where NaN gets through, no fault if no zero is ever written in a place,
    by `where`, `masked_fill` or an index: a product with the mask promises nothing either."""
    places = _places(called)
    expected = {}
    selects = _Selects()
    with refusal_is_an_answer(), torch.no_grad():
        for place in places:
            finite, valid = padded(called, examples[0], place, mate=True)
            with selects:
                expected[place.name] = called(finite, valid)
            if bool((expected[place.name][~valid] != 0).any()):
                raise NotCheckedError(
                    "it gives numbers for padding, so it promises nothing of NaN there"
                )
        for place in places:
            for filler in (torch.nan, torch.inf):
                batch, valid = padded(called, examples[0], place, mate=True, filler=filler)
                fault = f"{filler} in padding {place.name} gets through; use where or masked_fill, not a product"
                hidden = called(batch, valid)
                if not selects.found and not is_same(hidden, expected[place.name]):
                    raise NotCheckedError(f"{fault}, where padding may hold it")
                assert_same(hidden, expected[place.name], fault)


class _Selects(TorchFunctionMode):
    """Context that notes whether zeros are written in places of a tensor, as in those of padding."""

    found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        fills = func in (Tensor.masked_fill, Tensor.masked_fill_, torch.masked_fill)
        is_zero = isinstance(args[-1], int | float) and args[-1] == 0 if args else False
        self.found |= func in (torch.where, Tensor.where, Tensor.__setitem__) or (fills and is_zero)
        return func(*args, **(kwargs or {}))


def gradients_add_up_under_padding(called: Called, examples: list[Tensor]) -> None:
    """The gradient of a padded batch, by weights and by vectors, is that of its examples alone; none is by padding."""
    total: dict[str, Tensor] = {}
    own: list[Tensor] = []
    for x in examples:
        leaf = x.clone().requires_grad_()
        value = projected(called(leaf[None])[0], torch.ones(len(x), dtype=torch.bool))
        (by_vector,), by_weight = gradients(called, value, [leaf])
        own.append(by_vector)
        for name, gradient in by_weight.items():
            total[name] = total.get(name, torch.zeros_like(gradient)) + gradient
    for place in (RIGHT, LEFT) if _takes_left(called, examples) else (RIGHT,):
        batch, valid = stacked(called, examples, place)
        batch.requires_grad_()
        hidden = called(batch, valid)
        value = torch.stack(
            [projected(h, real) for h, real in zip(hidden, valid, strict=True)]
        ).sum()
        (by_vector,), by_weight = gradients(called, value, [batch])
        right = torch.zeros_like(by_vector)
        right[valid] = torch.cat(own)
        fault = f"with padding {place.name}, the gradient by"
        assert_same(
            by_vector,
            right,
            f"{fault} vectors is not that of the examples alone, and zero by padding",
        )
        for name, gradient in by_weight.items():
            assert_same(
                gradient, total[name], f"{fault} {name} is not the sum over the examples alone"
            )


def stacked(called: Called, examples: list[Tensor], place: Place) -> tuple[Tensor, Tensor]:
    """Examples with padding on one side, also of the longest, [b n d], and valid [b n]."""
    n = max(map(len, examples)) + place.before + place.after
    rows = []
    for x in examples:
        rest = n - len(x)
        side = Place(place.name, before=rest) if place.before else Place(place.name, after=rest)
        rows.append(side.row(x, *called.vectors(n, seed=3)))
    batch, valid = zip(*rows, strict=True)
    return torch.stack(batch), torch.stack(valid)


def _takes_left(called: Called, examples: list[Tensor]) -> bool:
    try:
        left_padding_changes_nothing(called, examples[:1])
    except (NotCheckedError, AssertionError):
        return False
    return True


def _places(called: Called) -> tuple[Place, ...]:
    if called.reads_lengths_alone():
        return (RIGHT,)
    return (LEFT, INSIDE, RIGHT)


def columns_read_the_past_alike(called: Called, examples: list[Tensor]) -> None:
    """Causal modules: after the first column that depends on one before it, all do: no state is lost. So with the
    column just before, where most depend on it: a state loses none."""
    n = max(map(len, examples))
    # chunks of other sizes end among the first columns
    tried = [t for t in range(2, n) if t <= 32 or t % 8 == 0]
    if lost := _lost(tried, _unread(called, n, tried, nearest=False)):
        raise AssertionError(
            f"column {lost[0]} of {n} depends on no column before it, and others do: a state is lost there"
        )
    unread = _unread(called, n, tried, nearest=True)
    # a stride, or attention to the best columns, leaves out more
    if len(unread) <= len(tried) // RARE and (lost := _lost(tried, unread)):
        raise AssertionError(
            f"column {lost[0]} of {n} does not depend on the one before it, and others do: a column is lost there"
        )


def _unread(called: Called, n: int, tried: list[int], *, nearest: bool) -> list[int]:
    """The columns that depend on none before them; nearest: on that just before."""
    unread = torch.tensor(tried)
    for seed in range(1, 1 + MORE_DRAWS):
        if not len(unread) or (seed > NUM_DRAWS and len(unread) > len(tried) // RARE):
            break
        x, other = called.vectors(n, n, seed=seed)
        changed = torch.arange(n) < unread[:, None]
        if nearest:
            changed &= torch.arange(n) >= unread[:, None] - 1
        with torch.no_grad():
            right = called(x[None])[0, unread]
            hidden = called(torch.where(changed[..., None], seed * other, x))
        got = hidden[torch.arange(len(unread)), unread]
        unread = unread[torch.isclose(got, right, rtol=1e-9, atol=1e-12).all(dim=-1)]
    return unread.tolist()  # type: ignore[no-any-return]


def _lost(tried: list[int], unread: list[int]) -> list[int]:
    """The unread columns behind the first that is read."""
    read = set(tried).difference(unread)
    return [t for t in unread if read and t > min(read)]


def takes_examples_of_one_token(called: Called, examples: list[Tensor]) -> None:
    """Several examples of one token each give what each gives alone."""
    with refusal_is_an_answer(), torch.no_grad():
        together = called(torch.stack(examples))
        alone = torch.cat([called(x[None]) for x in examples])
    if not bool(torch.isfinite(alone).all()):
        raise NotCheckedError("one token alone is not finite")
    assert_same(together, alone, "several examples of one token differ from each alone")


def rounds_no_more_than_float32(called: Called, examples: list[Tensor]) -> None:
    """Rounding inside, as of a softmax in float32, changes the vectors by rounding of float32 at most; so does an
    input in float32."""
    if called.dtype != torch.float64:
        raise NotCheckedError("it does not run in float64")
    with torch.no_grad():
        x = examples[0][None]
        expected = called(x)
        in_float32 = replace(called, module=copied(called.module).float())
        got = expected
        with contextlib.suppress(Exception):  # it may run in float64 alone
            got = in_float32(x.float())
        if got.dtype == torch.float32:
            difference = (got - expected).abs().amax(dim=-1).median()
            share = float(difference / expected.abs().max())
            if share > ROUNDED:
                raise DifferenceError("it rounds float32 to bfloat16 or float16 inside", share)
        with InFloat64():
            try:
                expected = called(x)
            except Exception:
                raise NotCheckedError("it does not run without its casts") from None
        fault = "it rounds to bfloat16 or float16 inside: without its casts, the vectors differ"
        assert_within(called(x), expected, fault, PRECISION)
