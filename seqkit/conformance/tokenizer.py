"""What every tokenizer owes to the rest, a law a function; each raises AssertionError with what was found."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Sequence
from typing import Any

import torch

from seqkit.contract import DataError, TokenBatch, Tokenizer, Tokens


def check_tokenizer(
    tokenizer: Tokenizer, raws: Sequence[Any], *, unfitted: Tokenizer | None = None, bad: Sequence[Any] = ()
) -> None:
    """Every law over your own examples, two or more.

    unfitted: one built with the same settings that has seen nothing; the state must make it the same.
    bad: raws that are to be refused.
    Raises AssertionError with the law's name and what was found; ValueError for fewer than two raws.
    """
    if len(raws) < 2:
        raise ValueError(f"{len(raws)} raw examples; give two or more, so that they can be batched")
    for law in (keeps_its_spec, repeats_itself, batches, goes_to_workers, decodes_what_it_encodes):
        _named(tokenizer, law, tokenizer, raws)
    _named(tokenizer, state_is_json_and_enough, tokenizer, unfitted or copy.deepcopy(tokenizer), raws)
    _named(tokenizer, refuses_with_a_reason, tokenizer, bad)


def keeps_its_spec(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Tokens are what `spec` promises, and encoding does not change the promise."""
    before = tokenizer.spec
    for i, raw in enumerate(raws):
        tokens = tokenizer.encode(raw)
        if not isinstance(tokens, Tokens):
            raise AssertionError(f"encode gave a {type(tokens).__name__} for example {i}; give seqkit.contract.Tokens")
        try:
            before.check(tokens)
        except DataError as error:
            raise AssertionError(f"example {i}: {error}") from None
    if tokenizer.spec != before:
        raise AssertionError(f"encoding changed the spec from {before} to {tokenizer.spec}")


def repeats_itself(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """The same raw gives the same tokens, also after others were encoded."""
    first = [tokenizer.encode(raw) for raw in raws]
    for i in reversed(range(len(raws))):
        _same(tokenizer.encode(raws[i]), first[i], f"example {i} encoded again")


def batches(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Examples fit into one batch."""
    try:
        TokenBatch.collate([tokenizer.encode(raw) for raw in raws])
    except ValueError as error:
        raise AssertionError(f"examples do not make one batch: {error}") from None


def goes_to_workers(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """A data loader's worker gets a copy that does the same."""
    try:
        pickle.dumps(tokenizer)
    except Exception as error:  # whatever a plug-in's own fields raise
        raise AssertionError(f"it cannot be sent to a data loader's worker: {error}") from None
    twin = copy.deepcopy(tokenizer)
    for i, raw in enumerate(raws):
        _same(twin.encode(raw), tokenizer.encode(raw), f"example {i} encoded by a copy")


def decodes_what_it_encodes(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """If it has `decode`: what is decoded and encoded again gives the same tokens."""
    decode = getattr(tokenizer, "decode", None)
    if decode is None:
        return
    for i, raw in enumerate(raws):
        tokens = tokenizer.encode(raw)
        _same(tokenizer.encode(decode(tokens)), tokens, f"example {i} decoded and encoded again")


def state_is_json_and_enough(tokenizer: Tokenizer, unfitted: Tokenizer, raws: Sequence[Any]) -> None:
    """The state survives JSON, and one that takes it does the same."""
    state = tokenizer.state()
    try:
        back = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"state() is not plain JSON: {error}") from None
    if back != state:
        raise AssertionError("state() comes back from JSON changed; use lists, strings, numbers and string keys only")
    unfitted.load_state(back)
    if unfitted.spec != tokenizer.spec:
        raise AssertionError(f"with the state, another one has the spec {unfitted.spec}, not {tokenizer.spec}")
    for i, raw in enumerate(raws):
        _same(unfitted.encode(raw), tokenizer.encode(raw), f"example {i} encoded by one that took the state")


def refuses_with_a_reason(tokenizer: Tokenizer, bad: Sequence[Any]) -> None:
    """Raws that cannot be encoded raise DataError, in one line."""
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
            raise AssertionError(f"bad example {i} is encoded without a word; raise DataError")


def _same(got: Tokens, right: Tokens, what: str) -> None:
    for name in ("content", "positions"):
        a, b = getattr(got, name), getattr(right, name)
        if a.shape != b.shape or a.dtype != b.dtype or not torch.allclose(a, b, rtol=1e-4, atol=1e-5):
            raise AssertionError(f"{what} has other {name}")
    if _pairs(got) != _pairs(right):
        raise AssertionError(f"{what} has other links")


def _pairs(tokens: Tokens) -> set[tuple[int, int, int]] | None:
    if tokens.links is None:
        return None
    return set(zip(*tokens.links.edges.tolist(), tokens.links.kinds.tolist()))


def _named(tokenizer: Tokenizer, law: Any, *given: Any) -> None:
    try:
        law(*given)
    except AssertionError as error:
        raise AssertionError(f"{type(tokenizer).__name__}: {law.__name__}: {error}") from None
