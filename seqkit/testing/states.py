"""Laws of a module that keeps a state between calls, as a cache, and of one that takes packed rows.

b batch · n columns · d width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seqkit.errors import described
from seqkit.testing.called import (
    LEFT,
    RIGHT,
    Called,
    Place,
    gradients,
    projected,
    refusal_is_an_answer,
)
from seqkit.testing.checks import NotCheckedError
from seqkit.testing.padding import left_padding_changes_nothing, stacked
from seqkit.testing.tolerance import assert_same

NUM_STEPS = 3
"""Columns that follow a prompt, one by one."""


def step_by_step_equals_at_once(called: Called, examples: list[Tensor]) -> None:
    """From a prompt on, and from nothing, token by token gives what one pass gives."""
    for start in (0, 4):
        sizes = [start] * (start > 0)
        _assert_parts(called, examples, [*sizes, *[1] * (_shortest(examples) - start)])


def parts_equal_at_once(called: Called, examples: list[Tensor]) -> None:
    """A prompt in parts of several columns, also of one first, gives what one pass gives."""
    n = _shortest(examples)
    for sizes in ([n // 2, n - n // 2], [1, n - 1], [3, 2, n - 5]):
        _assert_parts(called, examples, sizes)


def parts_equal_at_once_far_along(called: Called, examples: list[Tensor]) -> None:
    """Prompts of 60 and 64 tokens, and parts behind them, give what one pass gives. Not checked if a step raises: a
    cache may have fewer columns."""
    if (n := _shortest(examples)) < 72:
        raise NotCheckedError("it does not run at that length")
    try:
        for sizes in ([64, 1, 1], [60, 10, 1, 1]):
            _assert_parts(called, examples, [*sizes, n - sum(sizes)])
    except (AssertionError, NotCheckedError):
        raise
    except Exception as error:  # the user's own code: whatever it raises
        raise NotCheckedError(f"it raises {described(error)}") from None


def ragged_prompts_go_on(called: Called, examples: list[Tensor]) -> None:
    """Prompts of several lengths, padded on the right, and then tokens: each goes on after its own last token."""
    _assert_goes_on(called, examples, RIGHT)


def left_padded_prompts_go_on(called: Called, examples: list[Tensor]) -> None:
    """Prompts of several lengths, padded on the left, at once and in two parts, and then tokens. Not checked where
    left padding without a state is not supported."""
    try:
        left_padding_changes_nothing(called, examples)
    except NotCheckedError as reason:
        raise NotCheckedError(f"left padding: {reason}") from None
    except AssertionError:
        raise NotCheckedError("left padding is wrong without a state, too") from None
    _assert_goes_on(called, examples, LEFT)
    _assert_goes_on(called, examples, LEFT, num_parts=2)


def reorder_moves_the_rows(called: Called, examples: list[Tensor]) -> None:
    """Rows of a state that change places, repeat and drop out, as beams do, go on with their own examples."""
    if called.reorder is None:
        raise NotCheckedError("no reorder= is given")
    n = _shortest(examples)
    x = torch.stack([one[:n] for one in examples])
    with refusal_is_an_answer(), torch.no_grad():
        expected = called(x)[:, -NUM_STEPS:]
        for rows in ([1, 2, 0], [2, 0, 0], [1, 1, 2]):
            chosen = torch.tensor(rows)
            _, state = _step(called, x[:, :-NUM_STEPS], _new(called, len(x)))
            state = called.reorder(state, chosen)
            hidden = _one_by_one(called, x[chosen][:, -NUM_STEPS:], state)
            fault = f"after its rows are {rows}, a state goes on with other examples"
            assert_same(hidden, expected[chosen], fault)


def states_are_apart(called: Called, examples: list[Tensor]) -> None:
    """Two states that take turns do not change each other."""
    n = _shortest(examples)
    one = examples[0][None, :n]
    other = examples[1][None, :n]
    with refusal_is_an_answer(), torch.no_grad():
        turns = [(x, _new(called, 1)) for x in (one, other)]
        parts: list[list[Tensor]] = [[], []]
        for start in range(0, n - 1, 2):
            for i, (x, state) in enumerate(turns):
                hidden, state = _step(called, x[:, start : start + 2], state)
                turns[i] = (x, state)
                parts[i].append(hidden)
        for x, own in zip((one, other), parts, strict=True):
            got = torch.cat(own, dim=1)
            fault = "two states that take turns differ from one pass: they share something"
            assert_same(got, called(x)[:, : got.shape[1]], fault)


def a_state_begins_anew(called: Called, examples: list[Tensor]) -> None:
    """A new state knows nothing of an earlier one: nothing is left in the module, also for a call without a state."""
    n = _shortest(examples)
    x = examples[0][None, :n]
    other = torch.stack([one[:n] for one in examples[1:]])
    with refusal_is_an_answer(), torch.no_grad():
        alone = called(x)
        first, _ = _step(called, x, _new(called, 1))
        _step(called, other, _new(called, len(other)))
        again, _ = _step(called, x, _new(called, 1))
        assert_same(
            again,
            first,
            "a new state does not begin anew: something of another is left in the module",
        )
        assert_same(called(x), alone, "after steps, a call without a state gives other vectors")


def a_warm_up_moves_no_state(called: Called, examples: list[Tensor]) -> None:
    """A call between two steps, with a state of its own or without, as a warm-up or a capture makes it, changes no
    state that waits."""
    n = _shortest(examples)
    x = examples[0][None, :n]
    (noise,) = called.vectors(n, seed=9)
    with refusal_is_an_answer(), torch.no_grad():
        expected = called(x)[:, -NUM_STEPS:]
        _, state = _step(called, x[:, :-NUM_STEPS], _new(called, 1))
        for t in range(NUM_STEPS):
            called(noise[None])
            _step(called, noise[None], _new(called, 1))
            column = x[:, n - NUM_STEPS + t][:, None]
            hidden, state = _step(called, column, state)
            fault = f"a call beside it changes a waiting state, by step {t + 1}"
            assert_same(hidden[:, 0], expected[:, t], fault)


def packed_equals_separate(called: Called, examples: list[Tensor]) -> None:
    """Examples packed into one row, with a segment each, give what each gives alone."""
    for chosen in (examples, examples[::-1]):
        with refusal_is_an_answer(), torch.no_grad():
            hidden = _packed(called, torch.cat(chosen)[None], chosen)[0]
            alone = torch.cat([called(x[None])[0] for x in chosen])
        assert_same(hidden, alone, "a packed example changes another one of its row")


def packed_gradients_equal_separate(called: Called, examples: list[Tensor]) -> None:
    """The gradients of packed examples, by vectors and by weights, are the sums of those of each alone."""
    row = torch.cat(examples)[None].requires_grad_()
    real = [torch.ones(len(x), dtype=torch.bool) for x in examples]
    with refusal_is_an_answer():
        hidden = _packed(called, row, examples)[0].split([len(x) for x in examples])
    value = torch.stack([projected(h, r) for h, r in zip(hidden, real, strict=True)]).sum()
    (by_vector,), by_weight = gradients(called, value, [row])
    leaves = [x.clone().requires_grad_() for x in examples]
    alone = [projected(called(x[None])[0], r) for x, r in zip(leaves, real, strict=True)]
    right, right_by_weight = gradients(called, torch.stack(alone).sum(), leaves)
    assert_same(
        by_vector[0], torch.cat(right), "packed examples have another gradient by their vectors"
    )
    for name, gradient in by_weight.items():
        fault = f"packed examples have another gradient by {name}"
        assert_same(gradient, right_by_weight[name], fault)


OF_STATES = (
    step_by_step_equals_at_once,
    parts_equal_at_once,
    ragged_prompts_go_on,
    left_padded_prompts_go_on,
    reorder_moves_the_rows,
    states_are_apart,
    a_state_begins_anew,
    a_warm_up_moves_no_state,
)
"""Laws of a module with the door `step`."""

OF_SEGMENTS = (packed_equals_separate, packed_gradients_equal_separate)
"""Laws of a module with the door `segments`."""


def _packed(called: Called, row: Tensor, examples: Sequence[Tensor]) -> Tensor:
    assert called.segments is not None
    lengths = torch.tensor([len(x) for x in examples])
    segment = torch.arange(len(lengths)).repeat_interleave(lengths)
    return called.segments(called.module, row, segment[None])


def _new(called: Called, batch_size: int) -> Any:
    return None if called.init is None else called.init(called.module, batch_size)


def _step(called: Called, x: Tensor, state: Any, valid: Tensor | None = None) -> tuple[Tensor, Any]:
    assert called.step is not None
    valid = torch.ones(x.shape[:2], dtype=torch.bool) if valid is None else valid
    return called.step(called.module, x, valid, state)


def _one_by_one(called: Called, x: Tensor, state: Any) -> Tensor:
    """Vectors of columns, each a step."""
    parts = []
    for column in x.split(1, dim=1):
        hidden, state = _step(called, column, state)
        parts.append(hidden)
    return torch.cat(parts, dim=1)


def _shortest(examples: Sequence[Tensor]) -> int:
    return min(map(len, examples))


def _assert_parts(called: Called, examples: Sequence[Tensor], sizes: Sequence[int]) -> None:
    """Raises AssertionError if parts of those sizes, one after the other, differ from one pass."""
    x = torch.stack([one[: sum(sizes)] for one in examples])
    with refusal_is_an_answer(), torch.no_grad():
        expected = called(x)
        state = _new(called, len(x))
        end = 0
        for part in x.split(list(sizes), dim=1):
            hidden, state = _step(called, part, state)
            start = end
            end += part.shape[1]
            fault = f"parts of {list(sizes)} columns differ from one pass in columns {start} to {end - 1}"
            assert_same(hidden, expected[:, start:end], fault)


def _assert_goes_on(
    called: Called, examples: Sequence[Tensor], place: Place, num_parts: int = 1
) -> None:
    """Raises AssertionError if prompts with padding and then tokens differ from each example alone."""
    prompts = [x[:-NUM_STEPS] for x in examples]
    batch, valid = stacked(called, prompts, place)
    how = f"after prompts padded {place.name}" + (" in two parts" if num_parts > 1 else "")
    with refusal_is_an_answer(), torch.no_grad():
        state = _new(called, len(prompts))
        for part, real in zip(
            batch.chunk(num_parts, dim=1), valid.chunk(num_parts, dim=1), strict=True
        ):
            _, state = _step(called, part, state, real)
        hidden = _one_by_one(called, torch.stack([x[-NUM_STEPS:] for x in examples]), state)
        for i, x in enumerate(examples):
            right = called(x[None])[0, -NUM_STEPS:]
            fault = f"{how}, example {i} of {[len(p) for p in prompts]} tokens goes on otherwise than alone"
            assert_same(hidden[i], right, fault)
