"""Spellings of classes and categories: equal values written in several ways, and words that look alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from unicodedata import category, normalize

from seqkit.data.tables.cells import CODE, EXPONENT, TRUTHS, exact_number

MAX_SAID = 5
"""Groups of words that look alike that are said; the rest is counted."""


def one_spelling(words: Iterable[str]) -> dict[str, str]:
    """The spelling of each word: where all are numbers, or all say true or false, equal ones get the shortest.

    >>> one_spelling(["1", "1.0", "2.0"]), one_spelling(["1.0", "1", "b"])["1.0"]
    ({'1': '1', '1.0': '1', '2.0': '2.0'}, '1.0')
    """
    known = sorted(words, key=lambda word: (len(word), not word.islower(), word))
    values = [_value(word) for word in known]
    if None in values:
        return {word: word for word in known}
    shortest: dict[float | None, str] = {}
    return {word: shortest.setdefault(value, word) for word, value in zip(known, values)}


def _value(word: str) -> float | None:
    """The number or truth of a word; None: it is something else, or a code."""
    if word.lower() in ("true", "false"):
        return TRUTHS[word.lower()]
    if CODE.fullmatch(word) or EXPONENT.fullmatch(word):
        return None
    return exact_number(word)


def alike(counts: Mapping[str, int]) -> str:
    """Says which words differ in letter case, blanks or Unicode forms alone, with their counts; empty: none do.

    >>> alike({"Cat": 3, "cat": 5, "dog": 4})
    "'Cat' (3) and 'cat' (5) look alike (letter case, blanks or Unicode forms); they count as different"
    """
    groups: dict[str, list[str]] = {}
    for word in sorted(counts):
        groups.setdefault(_folded(word), []).append(word)
    found = []
    for words in groups.values():
        if len(words) < 2:
            continue
        # of two Unicode forms of a letter repr shows the same
        is_clear = len({normalize("NFC", word) for word in words}) == len(words)
        show = repr if is_clear else ascii
        found.append(" and ".join(f"{show(word)} ({counts[word]:,})" for word in words))
    if not found:
        return ""
    shown = "; ".join(found[:MAX_SAID])
    if len(found) > MAX_SAID:
        shown += f"; and {len(found) - MAX_SAID:,} more"
    return f"{shown} look alike (letter case, blanks or Unicode forms); they count as different"


def _folded(word: str) -> str:
    """A word as it looks: without case, white space and invisible characters, in one Unicode form."""
    text = normalize("NFKC", normalize("NFKC", word).casefold())
    return "".join(c for c in text if not c.isspace() and category(c) not in ("Cc", "Cf"))
