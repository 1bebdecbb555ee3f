"""Laws of every tokenizer, one function each; a broken law raises AssertionError with what was found."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Sequence
from typing import Any

import torch

from seqkit.errors import DataError
from seqkit.interfaces import TokenBatch, Tokenizer, Tokens


def check_tokenizer(
    tokenizer: Tokenizer, raws: Sequence[Any], *, unfitted: Tokenizer | None = None, bad: Sequence[Any] = ()
) -> None:
    """Check every law over your own examples, two or more.

    unfitted: one built with the same settings and not fitted, which must do the same once it has loaded the state.
    bad: raws that `encode` must refuse with DataError.
    Raises AssertionError with the law's name and what was found; ValueError for fewer than two raws.
    """
    if len(raws) < 2:
        raise ValueError(f"{len(raws)} raw examples; give two or more, so that they can be batched")
    for law in (keeps_its_spec, is_deterministic, can_be_batched, can_be_pickled, decodes_what_it_encodes):
        _named(tokenizer, law, tokenizer, raws)
    _named(tokenizer, state_is_json_and_enough, tokenizer, unfitted or copy.deepcopy(tokenizer), raws)
    _named(tokenizer, refuses_with_a_reason, tokenizer, bad)


def keeps_its_spec(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Tokens match `spec`, and encoding does not change it."""
    before = tokenizer.spec
    for i, raw in enumerate(raws):
        tokens = tokenizer.encode(raw)
        if not isinstance(tokens, Tokens):
            raise AssertionError(
                f"encode gave a {type(tokens).__name__} for example {i}; give seqkit.interfaces.Tokens"
            )
        try:
            before.check(tokens)
        except DataError as error:
            raise AssertionError(f"example {i}: {error}") from None
    if tokenizer.spec != before:
        raise AssertionError(f"encoding changed the spec from {before} to {tokenizer.spec}")


def is_deterministic(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """The same raw example gives the same tokens, also after others were encoded."""
    first = [tokenizer.encode(raw) for raw in raws]
    for i in reversed(range(len(raws))):
        _assert_same(tokenizer.encode(raws[i]), first[i], f"example {i} encoded again")


def can_be_batched(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Examples collate into one `TokenBatch`."""
    try:
        TokenBatch.collate([tokenizer.encode(raw) for raw in raws])
    except ValueError as error:
        raise AssertionError(f"examples do not collate into one batch: {error}") from None


def can_be_pickled(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """It can be pickled for a data loader's worker, and a copy encodes alike."""
    try:
        pickle.dumps(tokenizer)
    except Exception as error:  # whatever a plug-in's own fields raise
        raise AssertionError(f"it cannot be pickled for a data loader's worker: {error}") from None
    duplicate = copy.deepcopy(tokenizer)
    for i, raw in enumerate(raws):
        _assert_same(duplicate.encode(raw), tokenizer.encode(raw), f"example {i} encoded by a copy")


def decodes_what_it_encodes(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Where it has `decode`: decoding and encoding again gives the same tokens."""
    decode = getattr(tokenizer, "decode", None)
    if decode is None:
        return
    for i, raw in enumerate(raws):
        tokens = tokenizer.encode(raw)
        _assert_same(tokenizer.encode(decode(tokens)), tokens, f"example {i} decoded and encoded again")


def state_is_json_and_enough(tokenizer: Tokenizer, unfitted: Tokenizer, raws: Sequence[Any]) -> None:
    """The state survives JSON, and a tokenizer that loads it encodes alike."""
    state = tokenizer.state()
    try:
        back = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"state() is not plain JSON: {error}") from None
    if back != state:
        raise AssertionError("state() comes back from JSON changed; use lists, strings, numbers and string keys only")
    unfitted.load_state(back)
    if unfitted.spec != tokenizer.spec:
        raise AssertionError(f"a tokenizer that loaded the state has the spec {unfitted.spec}, not {tokenizer.spec}")
    for i, raw in enumerate(raws):
        what = f"example {i} encoded by a tokenizer that loaded the state"
        _assert_same(unfitted.encode(raw), tokenizer.encode(raw), what)


def refuses_with_a_reason(tokenizer: Tokenizer, bad: Sequence[Any]) -> None:
    """Raw examples that cannot be encoded raise DataError, in one line."""
    for i, raw in enumerate(bad):
        try:
            tokenizer.encode(raw)
        except DataError as error:
            if not str(error) or "\n" in str(error):
                raise AssertionError(
                    f"bad example {i} is refused with {str(error)!r}; say in one line what is wrong"
                ) from None
        except Exception as error:
            raise AssertionError(f"bad example {i} raises {type(error).__name__} ({error}); raise DataError") from None
        else:
            raise AssertionError(f"bad example {i} is encoded; raise DataError")


def _assert_same(got: Tokens, expected: Tokens, what: str) -> None:
    for name in ("content", "positions"):
        a, b = getattr(got, name), getattr(expected, name)
        if a.shape != b.shape or a.dtype != b.dtype or not torch.allclose(a, b, rtol=1e-4, atol=1e-5):
            raise AssertionError(f"{what} has other {name}")
    if _edges(got) != _edges(expected):
        raise AssertionError(f"{what} has another adjacency")


def _edges(tokens: Tokens) -> set[tuple[int, int, int]] | None:
    if tokens.adjacency is None:
        return None
    return set(zip(*tokens.adjacency.edge_index.tolist(), tokens.adjacency.edge_type.tolist()))


def _named(tokenizer: Tokenizer, law: Any, *given: Any) -> None:
    try:
        law(*given)
    except AssertionError as error:
        raise AssertionError(f"{type(tokenizer).__name__}: {law.__name__}: {error}") from None
