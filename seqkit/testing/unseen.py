"""Laws of tokenizers on examples other than the given ones: the rest of the data, unknown, longer or moved ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from seqkit.errors import DataError, described
from seqkit.interfaces import Tokenizer, Tokens
from seqkit.raw import GraphData
from seqkit.testing.changed_raws import leaves, with_value
from seqkit.testing.checks import NotCheckedError
from seqkit.testing.encoded import Raws, all_encoded, decode, difference, has_decode

LONG = 600
"""Number of tokens, about, at which positions must go on: tables of positions often end at 512."""

UNSEEN = "ж"
"""A letter that no example should have."""

MOVES = (0.3, 30.0)
"""Changes of a time: one that is lost where positions are rounded, and one that is not."""

LATEST = 1e4
"""Largest time that float32 tells from one that is 0.3 later by enough."""


def encodes_the_rest_of_the_data(_: Tokenizer, raws: Raws, fresh: Callable[[], Tokenizer]) -> None:
    """Fitted on half of the examples, it encodes the others as its spec says then, or refuses them with DataError."""
    half = -(-len(raws) // 2)
    one = fresh()
    try:
        one.fit(list(raws[:half]))  # type: ignore[attr-defined]
    except DataError:
        raise NotCheckedError("half of the examples are too few for fit") from None
    # what a vocabulary has before it meets new words is what the embedder is built for
    spec = one.spec
    for i, raw in enumerate(raws[half:], half):
        where = f"example {i}, fitted on others,"
        try:
            tokens = one.encode(raw)
        except DataError:
            continue
        except Exception as error:  # the user's own code: whatever it raises
            raise AssertionError(f"{where} raises {described(error)}; raise DataError") from None
        try:
            spec.check(tokens)
        except DataError as error:
            raise AssertionError(f"{where} is not as its spec says after fit: {error}") from None


def unknown_is_no_known_token(tokenizer: Tokenizer, raws: Raws) -> None:
    """An unknown letter in a text does not give the tokens of the known letter, or word, in its place."""
    for i, tokens in enumerate(all_encoded(tokenizer, raws)):
        for path, _, text in leaves(raws[i]):
            letters = [str.isalnum(x) for x in text] if isinstance(text, str) else []
            for at in [k for k, is_letter in enumerate(letters) if is_letter]:
                before = text[:at]
                after = text[at + 1 :]
                start = before.rfind(" ") + 1
                end = after.partition(" ")[2]
                known = [before + letter + after for letter in {*text}]
                known += [f"{text[:start]}{word} {end}".rstrip() for word in text.split()]
                found = (
                    _encoded(tokenizer, with_value(raws[i], path, x))
                    for x in (before + UNSEEN + after, *known)
                )
                unknown = next(found)
                is_same = unknown is not None and difference(unknown, tokens) is None
                if is_same and any(x and difference(x, tokens) for x in found):
                    raise AssertionError(
                        f"example {i} has the same tokens with an unknown letter in place of {text[at]!r}; give the "
                        "unknown an id of its own"
                    )


def long_examples_go_on(tokenizer: Tokenizer, raws: Raws) -> None:
    """An example repeated to 600 tokens is not cut off, and its positions go on growing."""
    short = all_encoded(tokenizer, raws)
    if any(x.positions.shape[1] != 1 for x in short) or len({len(x) for x in short}) == 1:
        raise NotCheckedError("positions have not one axis, or all examples have as many tokens")
    for i, tokens in enumerate(short):
        times = -(-LONG // len(tokens))
        long, longer = (_repeated(tokenizer, raws[i], k * times) for k in (1, 2))
        if long is None:
            continue
        if longer is not None and 2 * len(tokens) < len(longer) <= len(long):
            raise AssertionError(
                f"example {i} repeated {times} times, and twice that, has {len(long)} tokens; raise DataError for what "
                "is too long"
            )
        n = len(tokens)
        is_timed = long.positions[n : 2 * n].equal(tokens.positions)
        back = (long.positions.diff(dim=0) <= 0).nonzero()
        if len(back) and bool((tokens.positions.diff(dim=0) > 0).all()) and not is_timed:
            at = int(back[0, 0])
            raise AssertionError(
                f"example {i} repeated {times} times has positions {long.positions[at : at + 2, 0].tolist()} of tokens "
                f"{at} and {at + 1}; let them go on"
            )


def moved_times_move_positions(tokenizer: Tokenizer, raws: Raws) -> None:
    """A number of an example that moves positions also moves them when it changes by 0.3: none is rounded."""
    for i, tokens in enumerate(all_encoded(tokenizer, raws)):
        for path, _, value in leaves(raws[i]):
            if type(value) is float and abs(value) < LATEST:
                near, far = (
                    _encoded(tokenizer, with_value(raws[i], path, value + x)) for x in MOVES
                )
                moved = far is not None and not far.positions.equal(tokens.positions)
                if near is not None and moved and near.positions.equal(tokens.positions):
                    raise AssertionError(
                        f"example {i}: {value} moved by {MOVES[0]} gives the same positions; do not round them"
                    )


def decode_keeps_letters(tokenizer: Tokenizer, raws: Raws) -> None:
    """With `decode`: a text that it encodes and decodes has its letters and digits, capital or small as they were."""
    if not has_decode(tokenizer) or not isinstance(raws[0], str):
        raise NotCheckedError("it has no decode, or encodes no texts")
    for i, tokens in enumerate(all_encoded(tokenizer, raws)):
        found = decode(tokenizer, tokens, f"example {i}: decode")
        if sorted(filter(str.isalnum, str(found))) != sorted(filter(str.isalnum, raws[i])):
            raise AssertionError(f"example {i} is decoded as {str(found)[:60]!r}; encode all of it")


def undirected_edges_go_both_ways(tokenizer: Tokenizer, raws: Raws) -> None:
    """Each edge of a graph that is not directed is listed both ways."""
    if not any(isinstance(raw, GraphData) and not raw.directed for raw in raws):
        raise NotCheckedError("no example is an undirected graph")
    for i, tokens in enumerate(all_encoded(tokenizer, raws)):
        if tokens.adjacency is not None and not raws[i].directed:
            edges = {(*pair,) for pair in tokens.adjacency.edge_index.T.tolist()}
            if edges != {(target, source) for source, target in edges}:
                raise AssertionError(f"example {i} has an edge one way alone; list it both ways")


def _encoded(tokenizer: Tokenizer, raw: Any) -> Tokens | None:
    """Tokens of a raw example; None: it is refused."""
    try:
        return tokenizer.encode(raw)
    except Exception:  # the user's own code: whatever it raises
        return None


def _repeated(tokenizer: Tokenizer, raw: Any, times: int) -> Tokens | None:
    """Tokens of a text, list or tensor that is repeated; None: it cannot be."""
    if isinstance(raw, Tensor):
        return _encoded(tokenizer, torch.cat([raw] * times))
    return _encoded(tokenizer, raw * times) if isinstance(raw, str | list | tuple) else None


OF_OTHERS: tuple[Callable[[Tokenizer, Raws], None], ...] = (
    unknown_is_no_known_token,
    long_examples_go_on,
    moved_times_move_positions,
    decode_keeps_letters,
    undirected_edges_go_both_ways,
)
"""Laws of a tokenizer and other examples, which it makes of the given ones."""
