"""Laws of `fit`, and of the state that it learns, saves and loads."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

from seqkit.errors import DataError, described
from seqkit.interfaces import Tokenizer
from seqkit.testing.encoded import (
    LOST,
    Raws,
    all_encoded,
    assert_encodes_alike,
    assert_same,
    no_error,
)
from seqkit.testing.process import left_alone, same


def fit_learns_what_state_saves(_: Tokenizer, raws: Raws, fresh: Callable[[], Tokenizer]) -> None:
    """Before `fit`, spec raises ValueError or is what it will be; `fit` leaves the examples and the process alone,
    learns the same from the same examples, also a second time, and what it learned is in state()."""
    one = fresh()
    given = list(raws)
    untouched = copy.deepcopy(list(raws))
    try:
        one.spec  # noqa: B018  asked for the error
    except ValueError:
        pass
    except Exception as error:
        raise AssertionError(
            f"spec raises {described(error)} before fit; raise ValueError that says so"
        ) from None
    before = copy.deepcopy(vars(one))
    try:
        with left_alone("fit", imports=True):
            one.fit(given)  # type: ignore[attr-defined]
    except DataError:
        return  # these few examples are too few for it, such as a subword vocabulary
    if not same(untouched, given):
        raise AssertionError(
            "fit changes the examples, or their order; work on a copy, such as sorted(raws)"
        )
    if not one.state() and not same(before, {name: vars(one)[name] for name in before}):
        raise AssertionError(f"state() is empty after fit; return what it learned: {LOST}")
    state = copy.deepcopy(one.state())
    another = fresh()
    another.fit(list(raws))  # type: ignore[attr-defined]
    if not same(state, another.state()):
        raise AssertionError(
            "two tokenizers fitted on the same examples have other states; sort what you collect"
        )
    one.fit(list(raws))  # type: ignore[attr-defined]
    if not same(state, one.state()):
        raise AssertionError(
            "fitting again on the same examples gives another state; forget the earlier fit first"
        )
    with contextlib.suppress(DataError):
        alone = fresh()
        both = fresh()
        both.fit(list(raws[:1]))  # type: ignore[attr-defined]
        kept = copy.deepcopy(both.state())
        for each in (alone, both):
            each.fit(list(raws[1:]))  # type: ignore[attr-defined]
        if not same(both.state(), alone.state()) and not same(both.state(), kept):
            raise AssertionError(
                "fitting on other examples adds to the earlier fit; forget it first"
            )


def state_is_json_and_enough(
    tokenizer: Tokenizer, raws: Raws, fresh: Callable[[], Tokenizer]
) -> None:
    """The state survives JSON, and a tokenizer that loads it, once or twice, encodes alike."""
    state = tokenizer.state()
    try:
        back = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"state() is not plain JSON: {described(error)}") from None
    if back != state:
        raise AssertionError(
            "state() comes back from JSON changed; use lists, strings, numbers and string keys only"
        )
    restored = fresh()
    for what in (
        "a tokenizer that loaded the state",
        "a tokenizer that loaded the state a second time",
    ):
        with left_alone("load_state", imports=True):
            restored.load_state(copy.deepcopy(back))
        assert_encodes_alike(restored, tokenizer, raws, what)
        if json.dumps(restored.state(), sort_keys=True) != json.dumps(state, sort_keys=True):
            raise AssertionError(f"{what} has another state: {LOST}")


def state_is_a_copy(tokenizer: Tokenizer, raws: Raws, fresh: Callable[[], Tokenizer]) -> None:
    """Changes of the dictionary that `state` returned, or `load_state` took, do not change the tokenizer."""
    expected = all_encoded(tokenizer, raws)
    giver = copy.deepcopy(tokenizer)
    given = giver.state()
    taker = fresh()
    taken = copy.deepcopy(tokenizer.state())
    taker.load_state(taken)
    for what, owner, state in (
        ("state() gave", giver, given),
        ("load_state() took", taker, taken),
    ):
        _spoil(state)
        for i, tokens in enumerate(expected):
            fault = f"example {i}, after what {what} was changed,"
            with no_error(fault, "; copy the lists that it holds"):
                got = owner.encode(raws[i])
            assert_same(got, tokens, fault)


def _spoil(state: Any) -> None:
    """Empties a state and everything in it."""
    if isinstance(state, dict | list):
        for inner in state.values() if isinstance(state, dict) else state:
            _spoil(inner)
        state.clear()
