"""Laws of what a tokenizer learns, and of its state, which a run saves and loads."""

from __future__ import annotations

import copy
import inspect
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from seqkit.errors import DataError, described
from seqkit.interfaces import Tokenizer
from seqkit.testing.encoded import LOST, assert_encodes_alike, assert_same, broken, encoded, line_of
from seqkit.testing.process import left_alone, same


def fit_learns_what_state_saves(_: Tokenizer, raws: Sequence[Any], fresh: Callable[[], Tokenizer]) -> None:
    """Before `fit`, spec raises ValueError or is what it will be, and state() holds nothing learned; `fit` leaves the
    examples and the process alone, learns the same from the same examples, and what it learned is in state()."""
    one, other, given = fresh(), fresh(), list(raws)
    try:
        one.spec  # noqa: B018  asked for the error
    except ValueError:
        pass
    except Exception as error:
        raise AssertionError(f"spec raises {line_of(error)} before fit; raise ValueError that says so") from None
    try:
        untouched = copy.deepcopy(given)
    except Exception:  # they cannot be copied
        untouched = list(given)
    before = copy.deepcopy(one.state())
    try:
        with left_alone("fit", imports=True):
            one.fit(given)  # type: ignore[attr-defined]
            other.fit(list(raws))  # type: ignore[attr-defined]
    except DataError:
        return  # these few examples are too few for it, such as a subword vocabulary
    except Exception as error:
        raise broken("fit", error) from None
    if not same(untouched, given):
        raise AssertionError("fit changes the examples, or their order; work on a copy, such as sorted(raws)")
    if not same(one.state(), other.state()):
        raise AssertionError("two tokenizers fitted on the same examples have other states; sort what you collect")
    if not one.state() and _learned(fresh(), one):
        raise AssertionError(f"state() is empty after fit; return what it learned: {LOST}")
    one.fit(list(raws))  # type: ignore[attr-defined]
    if not same(other.state(), one.state()):
        raise AssertionError("fitting again on the same examples gives another state; forget the earlier fit first")
    if same(before, one.state()) and _learned(fresh(), one):
        raise AssertionError(f"state() is the same before and after fit, but fit changed the tokens or spec: {LOST}")


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
    written = json.dumps(state, sort_keys=True)
    try:
        for again in ("", " a second time"):
            with left_alone("load_state", imports=True):
                restored.load_state(copy.deepcopy(back))
            order = range(len(raws))[::-1] if again else range(len(raws))  # one that learns while it encodes differs
            assert_encodes_alike(restored, tokenizer, raws, f"a tokenizer that loaded the state{again}", order)
            if json.dumps(restored.state(), sort_keys=True) != written:
                raise AssertionError(f"a tokenizer that loaded the state{again} has another state: {LOST}")
        reverse = fresh()  # in which no example has been encoded
        reverse.load_state(copy.deepcopy(back))
        assert_encodes_alike(reverse, tokenizer, raws, "a fresh one in reverse order", range(len(raws))[::-1])
    except AssertionError:
        raise
    except Exception as error:
        raise broken("load_state", error) from None


def state_is_a_copy(tokenizer: Tokenizer, raws: Sequence[Any], fresh: Callable[[], Tokenizer]) -> None:
    """Changes of the dictionary that `state` returned, or `load_state` took, do not change the tokenizer."""
    expected = [copy.deepcopy(encoded(tokenizer, raws, i)) for i in range(len(raws))]
    for what, owner in (("state() gave", copy.deepcopy(tokenizer)), ("load_state() took", fresh())):
        state = owner.state() if "gave" in what else copy.deepcopy(tokenizer.state())
        if "took" in what:
            owner.load_state(state)
        _spoil(state)
        for i in range(len(raws)):
            fault = f"example {i}, after what {what} was changed,"
            try:
                got = owner.encode(raws[i])
            except Exception as error:
                raise AssertionError(f"{fault} raises {line_of(error)}; copy the lists that it holds") from None
            assert_same(got, expected[i], fault)


def _learned(fresh: Tokenizer, fitted: Tokenizer) -> bool:
    """Whether fitting changed an attribute."""
    return not same(
        {name: value for name, value in vars(fresh).items() if name != "_was_fitted"},
        {name: value for name, value in vars(fitted).items() if name != "_was_fitted"},
    )


def _spoil(state: Any) -> None:
    """Empties a state and everything in it."""
    for inner in list(state.values() if isinstance(state, dict) else state if isinstance(state, list) else ()):
        _spoil(inner)
    if isinstance(state, dict | list):
        state.clear()


def unfitted_like(tokenizer: Tokenizer, unfitted: Tokenizer | None) -> Callable[[], Tokenizer]:
    """A function that builds unfitted tokenizers with the same settings. Raises ValueError if it does not know how."""
    if unfitted is not None:
        return lambda: copy.deepcopy(unfitted)
    cls = type(tokenizer)
    signature, unknown = inspect.signature(cls), []
    settings: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        known = [n for n in (parameter.name, f"_{parameter.name}") if n in vars(tokenizer)]
        if known:
            settings[parameter.name] = vars(tokenizer)[known[0]]
        elif parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            unknown.append(parameter.name)
    if not unknown:

        def build() -> Tokenizer:
            given = inspect.BoundArguments(signature, OrderedDict(copy.deepcopy(settings)))
            return cls(*given.args, **given.kwargs)

        return build
    if not hasattr(tokenizer, "fit") and not tokenizer.state():
        return lambda: copy.deepcopy(tokenizer)  # it has no state
    raise ValueError(
        f"{cls.__name__} has settings that no attribute is named after ({', '.join(unknown)}); give unfitted=, one "
        "with the same settings that is not fitted: it must do the same once it has loaded the state"
    )
