"""Raw examples that are changed at one place, and the share of such changes that a tokenizer reads."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from seqkit.interfaces import Tokenizer, Tokens
from seqkit.raw import GraphData, Waveform
from seqkit.testing.encoded import difference
from seqkit.tokenizers.join import Join

NUM_PLACES = 100
"""Number of places in the raw examples that are changed, about."""


NUM_OTHERS = 4
"""Number of other characters or numbers that are put into a place, at most, until one changes the tokens."""


def share_read(tokenizer: Tokenizer, raws: Sequence[Any]) -> float | None:
    """Share of the places in raw examples at which every kind of change that `encode` accepts changes the tokens.

    Places are drawn at random, always the same. Returns None if no place can be changed.
    """
    generator, num_read, num_tried = random.Random(0), 0, 0  # noqa: S311  draws places, no secrets
    for raw in raws:
        tokens = copy.deepcopy(tokenizer.encode(raw))
        has_parts = isinstance(tokenizer, Join)
        for kinds in _changed_at_places(raw, -(-NUM_PLACES // len(raws)), generator, has_parts=has_parts):
            found = [_is_read(tokenizer, changed, tokens) for changed in kinds]
            is_read = [one for one in found if one is not None]
            num_tried += bool(is_read)
            num_read += bool(is_read) and all(is_read)
    return num_read / num_tried if num_tried else None


def _is_read(tokenizer: Tokenizer, changed: Sequence[Any], tokens: Tokens) -> bool | None:
    """Whether one of these changes of a place, all of one kind, changes the tokens; None if `encode` accepts none."""
    is_accepted = False
    for other in changed:
        try:
            differs = difference(tokenizer.encode(other), tokens) is not None
        except Exception:  # noqa: S112  the change made it no example, such as an open ring in a SMILES
            continue
        if differs:
            return True
        is_accepted = True
    return False if is_accepted else None


def _changed_at_places(
    raw: Any, num_places: int, generator: random.Random, *, has_parts: bool = False
) -> Iterator[list[list[Any]]]:
    """Copies of a raw example that are changed at one place, for each of some places: the kinds of change, and of each
    a few, since a tokenizer may take some letters or numbers for one (an alphabet of two, black or white).

    A text loses a character, loses a word, or gets another character of its own: a filter of characters shows by the
    first, a filter of words by the second, and a rule by position by the third. Numbers change in a twentieth of them.
    """
    if isinstance(raw, str):
        places = [i for i, character in enumerate(raw) if not character.isspace()]
        for i in generator.sample(places, min(num_places, len(places))):
            before, after = raw[:i], raw[i + 1 :]
            letters = sorted({c for c in raw if not c.isspace() and c.casefold() != raw[i].casefold()})
            start, end = len(before) - len(_first_word(before[::-1])), i + 1 + len(_first_word(after))
            others = generator.sample(letters, min(NUM_OTHERS, len(letters)))
            texts = [[before + after], [raw[:start] + raw[end:].lstrip()], [before + c + after for c in others]]
            yield [[text for text in changed if text.strip()] for changed in texts]
    elif has_parts:  # a tokenizer of records may have a reason to leave out some of their keys
        pairs: list[tuple[str, Any]] = [*(raw.items() if isinstance(raw, Mapping) else raw)]
        for i, (name, part) in enumerate(pairs):  # the parts of an example, each at places of its own
            for kinds in _changed_at_places(part, -(-num_places // len(pairs)), generator):
                changed = [[[*pairs[:i], (name, other), *pairs[i + 1 :]] for other in kind] for kind in kinds]
                yield [[dict(one) if isinstance(raw, Mapping) else one for one in kind] for kind in changed]
    elif isinstance(raw, Waveform):
        for kinds in _changed_at_places(raw.samples, num_places, generator):
            yield [[raw._replace(samples=samples) for samples in changed] for changed in kinds]
    elif isinstance(raw, GraphData):
        for kinds in _changed_at_places(raw.nodes, num_places, generator):
            yield [[replace(raw, nodes=nodes) for nodes in changed] for changed in kinds]
    elif isinstance(raw, Tensor) and raw.layout is torch.strided and raw.numel():
        is_float, numbers = raw.is_floating_point(), raw.flatten()
        length = max(1, len(numbers) // 20) if is_float else 1
        for _ in range(num_places):
            i = generator.randrange(len(numbers) - length + 1)
            here = numbers[i : i + length]
            if is_float:
                known = here.nan_to_num()  # what is missing is a place, too
                values = [0.5 * known + 0.2, 0.9 - 0.8 * known]  # stay between 0 and 1, and the first between -1 and 1
                starts = [generator.randrange(len(numbers) - length + 1) for _ in range(NUM_OTHERS)]
                values += [numbers[start : start + length] for start in starts]
            elif len(different := numbers[numbers != here]):
                values = [different[generator.randrange(len(different))][None] for _ in range(NUM_OTHERS)]
            else:
                return
            yield [[torch.cat([numbers[:i], value, numbers[i + length :]]).reshape(raw.shape) for value in values]]


def _first_word(text: str) -> str:
    return "" if text[:1].isspace() else next(iter(text.split(maxsplit=1)), "")
