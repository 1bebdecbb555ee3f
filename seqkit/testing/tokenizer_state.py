"""Laws of what a tokenizer learns, and of its state, which a run saves and loads."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from seqkit.errors import DataError, described
from seqkit.interfaces import Tokenizer
from seqkit.testing.encoded import LOST, all_encoded, assert_encodes_alike, assert_same
from seqkit.testing.process import left_alone, same


def fit_learns_what_state_saves(_: Tokenizer, raws: Sequence[Any], fresh: Callable[[], Tokenizer]) -> None:
    """Before `fit`, spec raises ValueError or is what it will be; `fit` leaves the examples and the process alone,
    learns the same from the same examples, also a second time, and what it learned is in state()."""
    one, given, untouched = fresh(), list(raws), copy.deepcopy(list(raws))
    try:
        one.spec  # noqa: B018  asked for the error
    except ValueError:
        pass
    except Exception as error:
        raise AssertionError(f"spec raises {described(error)} before fit; raise ValueError that says so") from None
    before = copy.deepcopy(vars(one))
    try:
        with left_alone("fit", imports=True):
            one.fit(given)  # type: ignore[attr-defined]
    except DataError:
        return  # these few examples are too few for it, such as a subword vocabulary
    if not same(untouched, given):
        raise AssertionError("fit changes the examples, or their order; work on a copy, such as sorted(raws)")
    if not one.state() and not same(before, {name: vars(one)[name] for name in before}):
        raise AssertionError(f"state() is empty after fit; return what it learned: {LOST}")
    state = copy.deepcopy(one.state())
    for other, fault in (
        (fresh(), "two tokenizers fitted on the same examples have other states; sort what you collect"),
        (one, "fitting again on the same examples gives another state; forget the earlier fit first"),
    ):
        other.fit(list(raws))  # type: ignore[attr-defined]
        if not same(state, other.state()):
            raise AssertionError(fault)


def state_is_json_and_enough(tokenizer: Tokenizer, raws: Sequence[Any], fresh: Callable[[], Tokenizer]) -> None:
    """The state survives JSON, and a tokenizer that loads it, once or twice, encodes alike."""
    state = tokenizer.state()
    try:
        back = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"state() is not plain JSON: {described(error)}") from None
    if back != state:
        raise AssertionError("state() comes back from JSON changed; use lists, strings, numbers and string keys only")
    restored = fresh()
    for what in ("a tokenizer that loaded the state", "a tokenizer that loaded the state a second time"):
        with left_alone("load_state", imports=True):
            restored.load_state(copy.deepcopy(back))
        assert_encodes_alike(restored, tokenizer, raws, what)
        if json.dumps(restored.state(), sort_keys=True) != json.dumps(state, sort_keys=True):
            raise AssertionError(f"{what} has another state: {LOST}")


def state_is_a_copy(tokenizer: Tokenizer, raws: Sequence[Any], fresh: Callable[[], Tokenizer]) -> None:
    """Changes of the dictionary that `state` returned, or `load_state` took, do not change the tokenizer."""
    expected = all_encoded(tokenizer, raws)
    for what, owner in (("state() gave", copy.deepcopy(tokenizer)), ("load_state() took", fresh())):
        state = owner.state() if "gave" in what else copy.deepcopy(tokenizer.state())
        if "took" in what:
            owner.load_state(state)
        _spoil(state)
        for i, tokens in enumerate(expected):
            fault = f"example {i}, after what {what} was changed,"
            try:
                got = owner.encode(raws[i])
            except Exception as error:
                raise AssertionError(f"{fault} raises {described(error)}; copy the lists that it holds") from None
            assert_same(got, tokens, fault)


def _spoil(state: Any) -> None:
    """Empties a state and everything in it."""
    if isinstance(state, dict | list):
        for inner in list(state.values()) if isinstance(state, dict) else state:
            _spoil(inner)
        state.clear()


def unfitted_like(tokenizer: Tokenizer, unfitted: Tokenizer | None) -> Callable[[], Tokenizer]:
    """A function that builds unfitted tokenizers with the same settings. Raises ValueError if it does not know how."""
    if unfitted is not None:
        return lambda: copy.deepcopy(unfitted)
    cls, known = type(tokenizer), vars(tokenizer)
    names = {name: name if name in known else f"_{name}" for name in inspect.signature(cls).parameters}
    unknown = [name for name, own in names.items() if own not in known]
    if not unknown:
        return lambda: cls(**{name: copy.deepcopy(known[own]) for name, own in names.items()})
    if not hasattr(tokenizer, "fit") and not tokenizer.state():
        return lambda: copy.deepcopy(tokenizer)  # it has no state
    raise ValueError(
        f"{cls.__name__} has settings that no attribute is named after ({', '.join(unknown)}); give unfitted=, one "
        "with the same settings that is not fitted: it must do the same once it has loaded the state"
    )
