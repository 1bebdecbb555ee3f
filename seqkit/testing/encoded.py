"""Tokens that a tokenizer gives for an example, with its faults said, and the difference of two such."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.testing.process import same

LOST = "a run that is loaded, or a loader's worker, would get other tokens than training did"


def spec_of(tokenizer: Tokenizer) -> TokenSpec:
    """The tokenizer's spec. Raises AssertionError where it raises, or is none."""
    try:
        spec = tokenizer.spec
    except Exception as error:  # the user's own code: whatever it raises
        raise AssertionError(f"spec raises {line_of(error)}") from None
    if not isinstance(spec, TokenSpec):
        raise AssertionError(f"spec is a {type(spec).__name__}; give a seqkit.TokenSpec (is it a @property?)")
    return spec


def encoded(tokenizer: Tokenizer, raws: Sequence[Any], index: int, what: str = "") -> Tokens:
    """Tokens of an example. Raises AssertionError where `encode` raises, or gives something else."""
    what = what or f"example {index}"
    try:
        tokens = tokenizer.encode(raws[index])
    except Exception as error:  # the user's own code: whatever it raises
        raise AssertionError(f"{what}: encode raises {line_of(error)}") from None
    if not isinstance(tokens, Tokens):
        raise AssertionError(f"encode gave a {type(tokens).__name__} for {what}; give seqkit.interfaces.Tokens")
    return tokens


def has_decode(tokenizer: Tokenizer) -> bool:
    """Whether tokens can be turned back."""
    return callable(getattr(tokenizer, "decode", None))  # None: a class says that it has none, though its base has one


def decode(tokenizer: Tokenizer, given: Any, what: str) -> Any:
    """Result of `decode`. Raises AssertionError where it raises, with what it must take."""
    try:
        return tokenizer.decode(given)  # type: ignore[attr-defined]
    except Exception as error:  # the user's own code: whatever it raises
        takes = (
            "Tokens" if isinstance(given, Tokens) else "ids [n], too, as positions count 0, 1, 2, … and nothing else"
        )
        raise AssertionError(f"{what} raises {line_of(error)}; take {takes}") from None


def broken(what: str, error: Exception) -> AssertionError:
    """The error of a broken law, or one that says what was raised in its place."""
    return error if isinstance(error, AssertionError) else AssertionError(f"{what} raises {line_of(error)}")


def line_of(error: Exception) -> str:
    """Type and text of an error, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def assert_same(got: Tokens, expected: Tokens, what: str, *, exact: bool = False) -> None:
    """Raise AssertionError with the difference, if there is one."""
    if (name := difference(got, expected, exact=exact)) is not None:
        raise AssertionError(f"{what} has {name}")


def difference(got: Tokens, expected: Tokens, *, exact: bool = True) -> str | None:
    """The difference in words; None if there is none."""
    if _edges(got) != _edges(expected):
        return "another adjacency"
    ours, theirs = (
        {name: x for name, x in tokens.tensors().items() if not name.startswith("edge_")} for tokens in (got, expected)
    )
    for name in {**theirs, **ours}:
        a, b = ours.get(name), theirs.get(name)
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
    has_embedder = [spec.embedder is None for spec in (one, other)]
    return all(getattr(one, n) == getattr(other, n) for n in names) and has_embedder[0] == has_embedder[1]


def assert_encodes_alike(
    got: Tokenizer, expected: Tokenizer, raws: Sequence[Any], kind: str, order: Iterable[int]
) -> None:
    """Raise AssertionError where `got`, which is called `kind`, has another spec, or encodes or decodes otherwise."""
    if not same_spec(spec_of(got), spec_of(expected)):
        raise AssertionError(f"{kind} has the spec {got.spec}, not {expected.spec}")
    for i in order:
        what = f"example {i} encoded by {kind}"
        tokens = encoded(expected, raws, i)
        assert_same(encoded(got, raws, i, what), tokens, what, exact=True)
        if has_decode(got) and has_decode(expected):
            what = f"example {i} decoded by {kind}"
            if not same(decode(expected, tokens, f"example {i}: decode"), decode(got, tokens, what)):
                raise AssertionError(f"{what} is another one: {LOST}")
