"""Tokens that a tokenizer gives for an example, with its faults said, and the difference of two such."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from seqkit.errors import described
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.testing.process import same

Raws = Sequence[Any]
"""Raw examples."""

LOST = "a run that is loaded, or a loader's worker, would get other tokens than training did"


@contextmanager
def no_error(what: str, advice: str = "") -> Iterator[None]:
    """Turns whatever the user's own code raises into an AssertionError, with `what` before it and `advice` behind."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{what} raises {described(error)}{advice}") from None


def spec_of(tokenizer: Tokenizer) -> TokenSpec:
    """The tokenizer's spec. Raises AssertionError where it is none."""
    spec = tokenizer.spec
    if not isinstance(spec, TokenSpec):
        raise AssertionError(
            f"spec is a {type(spec).__name__}; give a seqkit.TokenSpec (is it a @property?)"
        )
    return spec


def encoded(tokenizer: Tokenizer, raws: Raws, index: int, what: str = "") -> Tokens:
    """Tokens of an example. Raises AssertionError where `encode` raises, or gives something else."""
    what = what or f"example {index}"
    with no_error(f"{what}: encode"):
        tokens = tokenizer.encode(raws[index])
    if not isinstance(tokens, Tokens):
        raise AssertionError(
            f"encode gave a {type(tokens).__name__} for {what}; give seqkit.interfaces.Tokens"
        )
    return tokens


def all_encoded(tokenizer: Tokenizer, raws: Raws) -> list[Tokens]:
    """Copies of the tokens of every example, as `encoded` gives them."""
    return [copy.deepcopy(encoded(tokenizer, raws, i)) for i in range(len(raws))]


def has_decode(tokenizer: Tokenizer) -> bool:
    """Whether tokens can be turned back."""
    # None: a class says that it has none, though its base has one
    return callable(getattr(tokenizer, "decode", None))


def decode(tokenizer: Tokenizer, given: Any, what: str) -> Any:
    """Result of `decode`. Raises AssertionError where it raises, with what it must take."""
    takes = "ids [n], too, as positions count 0, 1, 2, … and nothing else"
    if isinstance(given, Tokens):
        takes = "Tokens"
    with no_error(what, f"; take {takes}"):
        return tokenizer.decode(given)  # type: ignore[attr-defined]


def assert_same(got: Tokens, expected: Tokens, what: str, *, exact: bool = True) -> None:
    """Raise AssertionError with the difference, if there is one."""
    if (name := difference(got, expected, exact=exact)) is not None:
        raise AssertionError(f"{what} has {name}")


def difference(got: Tokens, expected: Tokens, *, exact: bool = True) -> str | None:
    """The difference in words; None if there is none."""
    if _edges(got) != _edges(expected):
        return "another adjacency"
    ours = got.tensors()
    theirs = expected.tensors()
    for name in dict.fromkeys(name for name in (*theirs, *ours) if not name.startswith("edge_")):
        a = ours.get(name)
        b = theirs.get(name)
        if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
            return f"other {name}"
        if not (torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-4, atol=1e-5)):
            return f"other {name}"
    return None


def _edges(tokens: Tokens) -> set[tuple[int, int, int]] | None:
    if tokens.adjacency is None:
        return None
    return set(zip(*tokens.adjacency.edge_index.tolist(), tokens.adjacency.edge_type.tolist()))


def same_spec(one: TokenSpec, other: TokenSpec) -> bool:
    """Whether two specs are equal, but for an embedder that may be made anew each time (a lambda in a property)."""
    names = [name for name in TokenSpec.__dataclass_fields__ if name != "embedder"]
    has_same_embedder = (one.embedder is None) == (other.embedder is None)
    return has_same_embedder and all(getattr(one, n) == getattr(other, n) for n in names)


def assert_encodes_alike(got: Tokenizer, expected: Tokenizer, raws: Raws, kind: str) -> None:
    """Raise AssertionError where `got`, which is called `kind`, has another spec, or encodes or decodes otherwise."""
    if not same_spec(spec_of(got), spec_of(expected)):
        raise AssertionError(f"{kind} has the spec {got.spec}, not {expected.spec}")
    for i, tokens in enumerate(all_encoded(expected, raws)):
        what = f"example {i} encoded by {kind}"
        assert_same(encoded(got, raws, i, what), tokens, what)
        if has_decode(got) and has_decode(expected):
            what = f"example {i} decoded by {kind}"
            right = decode(expected, tokens, f"example {i}: decode")
            if not same(right, decode(got, tokens, what)):
                raise AssertionError(f"{what} is another one: {LOST}")
