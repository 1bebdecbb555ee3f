"""Mixers of a Transformer in one word, which neither a shell nor a list with commas changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from seqkit.errors import UsageError
from seqkit.registry import components, find

NULL = "null"
"""The mixer that is the block's own attention."""


def backbone_or_mixers(word: str) -> dict[str, Any]:
    """The backbone of that name or, where there is none, the Transformer with those mixers.

    Raises UsageError with the nearest names.

    >>> backbone_or_mixers("LSTM")
    {'type': 'LSTM'}
    >>> backbone_or_mixers("3Mamba+MultiHeadAttention")["mixer"]
    ['Mamba', 'Mamba', 'Mamba', 'MultiHeadAttention']
    """
    try:
        if not re.search(r"^\d|\+", word):
            found = find("backbone", word, "preset", "mixer")
            if found not in components("mixer").values():
                return {"type": found.name}
        mixers = [one for part in word.split("+") for one in _repeated(part)]
    except ValueError as error:
        raise UsageError(str(error)) from None
    return {"type": "Transformer", "mixer": mixers if len(mixers) > 1 else mixers[0]}


def _repeated(part: str) -> list[str | None]:
    """`3Mamba` as three mixers; of 999 at most."""
    count = "".join(re.findall(r"^[1-9]\d{0,2}", part))
    name = part.removeprefix(count)
    mixer = None if name == NULL else find("mixer", name).name
    return [mixer] * int(count or 1)


def backbone_in_a_word(backbone: Mapping[str, object]) -> str:
    """The type of a backbone, or the mixers that it has in the place of attention.

    >>> backbone_in_a_word({"type": "Transformer", "mixer": [{"type": "Mamba"}, None]})
    'Mamba+null'
    """
    mixers = backbone.get("mixer") or backbone["type"]
    return in_a_word(mixers if isinstance(mixers, list) else [mixers])


def in_a_word(mixers: Sequence[Any]) -> str:
    """Mixers as one word, without their settings.

    >>> in_a_word(["Mamba", {"type": "Mamba", "num_states": 8}, None])
    '2Mamba+null'
    """
    names = [one.get("type") if isinstance(one, dict) else one or NULL for one in mixers]
    runs = [(name, len(list(run))) for name, run in groupby(names)]
    return "+".join(str(name) if count == 1 else f"{count}{name}" for name, count in runs)
