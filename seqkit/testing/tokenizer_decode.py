"""Laws of `decode`, which turns tokens back into what was encoded."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from seqkit.interfaces import Tokenizer
from seqkit.testing.checks import NotCheckedError
from seqkit.testing.encoded import (
    Raws,
    all_encoded,
    decode,
    difference,
    encoded,
    has_decode,
    no_error,
    spec_of,
)
from seqkit.testing.process import same

NUM_IDS = 64
"""Number of ids, spread over the vocabulary, that are decoded one by one, at most."""


WHOLE = "decode(tokens) writes all that encode reads, positions and edges too"


def decodes_what_it_encodes(tokenizer: Tokenizer, raws: Raws) -> None:
    """With `decode`: decoding and encoding again gives the same tokens; where ids alone go on (`_goes_on_by_ids`), it
    also takes ids [n]."""
    if not has_decode(tokenizer):
        raise NotCheckedError("it has no decode")
    by_ids = _goes_on_by_ids(tokenizer, raws)
    for i, tokens in enumerate(all_encoded(tokenizer, raws)):
        decoded = decode(tokenizer, tokens, f"example {i}: decode")
        what = f"example {i} decoded and encoded again"
        with no_error(what, f"; {WHOLE}"):
            again = tokenizer.encode(decoded)
        if (found := difference(again, tokens, exact=False)) is not None:
            raise AssertionError(f"{what} has {found}; {WHOLE}")
        if not by_ids:
            continue
        from_ids = decode(
            tokenizer, tokens.content, f"example {i}: decode of ids [n], as generation gives them,"
        )
        if not same(decoded, from_ids):
            raise AssertionError(
                f"example {i}: decode gives {decoded!r} for Tokens, and {from_ids!r} for their ids [n]"
            )


def decodes_any_id(tokenizer: Tokenizer, raws: Raws) -> None:
    """Every id below the vocabulary decodes, alone and beside others: generation samples any of them. Where ids alone
    do not go on (`_goes_on_by_ids`), they are those of example 0's tokens."""
    if not has_decode(tokenizer) or not spec_of(tokenizer).ids:
        raise NotCheckedError("it has no decode, or no ids")
    size = spec_of(tokenizer).vocab_size
    tokens = encoded(tokenizer, raws, 0)
    ids = torch.arange(0, size, max(1, size // NUM_IDS))
    if _goes_on_by_ids(tokenizer, raws):
        some = [*ids.split(1), ids, ids.flip(0)]
        for own in some:
            decode(tokenizer, own, _decode_of(own))
        return
    for own in ids.split(len(tokens)):
        given = replace(tokens, content=own.repeat(len(tokens))[: len(tokens)])
        decode(tokenizer, given, _decode_of(own))


def _decode_of(ids: Tensor) -> str:
    shown = ids[:8].tolist()
    return f"decode of ids {shown}" if len(ids) <= 8 else f"decode of ids {shown}…"


def _goes_on_by_ids(tokenizer: Tokenizer, raws: Raws) -> bool:
    """Whether generation decodes ids [n]: they are all that a token has, at positions 0, 1, 2, …, and no `continues` of
    its own makes tokens of them. All others are decoded from `Tokens` alone."""
    spec = spec_of(tokenizer)
    if not spec.ids or spec.num_edge_types or type(tokenizer).continues is not Tokenizer.continues:
        return False
    positions = [tokens.positions for tokens in all_encoded(tokenizer, raws)]
    return all(x.shape[1] == 0 or x[:, 0].equal(torch.arange(float(len(x)))) for x in positions)
