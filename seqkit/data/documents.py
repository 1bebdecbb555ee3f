"""Documents of text as samples: what is held out of them, their beginnings, and the pieces that are encoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import groupby, pairwise
from typing import Any

from seqkit.data.sample import Sample, Samples

PIECE_CHARACTERS = PIECE_BYTES = 2**22
"""Size of the samples into which longer documents are cut: a tokenizer encodes one whole, in a process of its own."""

_PLACE = " from character "

MAX_HELD_OUT = 1_000_000
"""Most characters that are held out: a larger test split tells the loss no better."""

MAX_SHARE = 1 / 3
"""Largest share of all text that whole documents may take when they are held out."""


def place(document: str, start: int) -> str:
    """The name of the piece of a document that begins at that character."""
    return f"{document}{_PLACE}{start:,} on" if start else document


def document_of(name: str) -> str:
    """The document of a piece, from its name."""
    return name.partition(_PLACE)[0]


def are_texts(samples: Samples) -> bool:
    """Whether the raw data of all samples is text."""
    return all(isinstance(samples.read(i), str) for i in range(len(samples)))


def num_characters(samples: Samples) -> int:
    """Characters of all texts."""
    return sum(len(samples.read(i)) for i in range(len(samples)))


def held_out(documents: Samples, fraction: float, seed: int) -> tuple[Samples, Samples, str]:
    """Split texts by their groups: those that stay, those held out (perhaps none), and the rule in words.

    Whole groups go out in the order of SHA-256(seed, group), up to `fraction` of all characters and `MAX_HELD_OUT` of
    them; if none is that short, the shortest goes, up to `MAX_SHARE`. Else, as for a single document, the end of each
    document is held out.

    >>> rest, aside, rule = held_out(Samples.of([Sample("to be or not to be", group="Hamlet")]), 0.2, seed=0)
    >>> rest[0].raw, aside[0].raw, rule
    ('to be or not t', 'o be', 'the end')
    """
    groups = [
        f"document {i}" if group is None else group
        for i, group in enumerate(documents.groups or [None] * len(documents))
    ]
    sizes: dict[str, int] = {}
    for i, group in enumerate(groups):
        sizes[group] = sizes.get(group, 0) + len(documents.read(i))
    total = sum(sizes.values())
    chosen = set[str]()
    held = 0
    quota = min(fraction * total, MAX_HELD_OUT)
    order = sorted(
        (g for g in sizes if sizes[g] > 1), key=lambda g: sha256(f"{seed} {g}".encode()).digest()
    )
    for group in order:
        if held + sizes[group] <= quota:
            chosen.add(group)
            held += sizes[group]
    shortest = min((g for g in order if g not in chosen), key=lambda g: sizes[g], default="")
    if shortest and held < quota / 2 and held + sizes[shortest] <= MAX_SHARE * total:
        chosen.add(shortest)
        held += sizes[shortest]
    names = [document_of(documents.name(i)) for i in range(len(documents))]
    if chosen and held >= quota / 2 and len(set(names)) > 1:
        rest, aside = (
            [i for i, g in enumerate(groups) if (g in chosen) == is_out] for is_out in (False, True)
        )
        count = len({names[i] for i in aside})
        if count > 1:
            number = f"{count} of {len(set(names))} whole documents"
        else:
            number = "a whole document"
        return documents.at(rest), documents.at(aside), f"{number}, by SHA-256"
    share = min(fraction, MAX_HELD_OUT / max(1, total))
    front, back = cut(documents, lambda size: int(size * (1 - share)))
    return front, back, "the end" if len(set(names)) == 1 else "the end of each document"


def cut(documents: Samples, size_of_front: Callable[[int], int]) -> tuple[Samples, Samples]:
    """The beginning of each document and what is behind it, as far as there is any.

    size_of_front: in characters, from those of the document. Pieces of a document stand one behind the other.
    """
    front = list[Sample]()
    back = list[Sample]()
    for _, samples in groupby(documents, key=lambda sample: document_of(sample.name)):
        own = list(samples)
        at = size_of_front(sum(len(sample.raw) for sample in own))
        for sample in own:
            front.append(sample._replace(raw=sample.raw[:at]))
            back.append(sample._replace(raw=sample.raw[at:]))
            at = max(0, at - len(sample.raw))
    return tuple(Samples.of([sample for sample in side if sample.raw]) for side in (front, back))  # type: ignore[return-value]


def pieces(documents: Samples) -> Samples:
    """The texts, cut into pieces of about `PIECE_BYTES` of UTF-8 where they are longer."""
    if all(len(documents.read(i)) * 4 <= PIECE_BYTES for i in range(len(documents))):
        return documents
    found = []
    for text, label, group, name in documents:
        start = 0
        for piece in _pieces_of(text):
            found.append(Sample(piece, label, group, place(name, start)))
            start += len(piece)
    return Samples.of(found)


def _pieces_of(text: str) -> Sequence[str]:
    data: Any = text if text.isascii() else text.encode(errors="surrogatepass")
    number = max(1, -(-len(data) // PIECE_BYTES))
    bounds = [len(data) * k // number for k in range(number + 1)]
    if isinstance(data, str):
        return [data[start:end] for start, end in pairwise(bounds)]
    for k in range(1, number):
        while data[bounds[k]] & 0xC0 == 0x80:  # in the middle of a character
            bounds[k] += 1
    return [data[start:end].decode(errors="surrogatepass") for start, end in pairwise(bounds)]
