"""Arrangements of handwritten digits on a grid, and the sentence that says where they stand.

h height · w width
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import torch
from seqkit.recipes.audio.spoken_digits import WORDS
from seqkit.recipes.image.digits import Digits

from seqkit.data import DataSource, Samples, Splits

CELL, CELLS = 8, 3
"""Height and width of a digit in pixels, and rows and columns of the grid."""


class Arrangements(DataSource):
    """`arrangements`: three different digits of `digits` in three cells of a 3 × 3 grid, [1 24 24], and the sentence
    that says which is where: "one is above and left of four, four is below seven".

    Digits are named in the order of their numbers, so there is one right sentence. What is drawn depends on SHA-256
    alone. Digits of the test split stand in the test split alone, and so for validation, which has a tenth of the
    others.
    num_train: training examples; validation and test have a tenth of them each. sentence: "part": the raw example is
    {image, text}, without a label; "label": it is the image, and the sentence its label (for Seq2Seq).
    Raises ValueError for fewer than 10 examples.
    """

    def __init__(self, *, num_train: int = 10_000, sentence: str = "part"):
        if num_train < 10:
            raise ValueError(f"num_train is {num_train}; give 10 or more")
        if sentence not in ("part", "label"):
            raise ValueError(f"sentence is {sentence!r}; give part or label")
        self.num_train, self.sentence = num_train, sentence

    def splits(self) -> Splits:
        """Raises DataError if scikit-learn is missing."""
        given = Digits().splits()
        train = [i for i in range(len(given.train)) if i % 10]
        valid = [i for i in range(len(given.train)) if not i % 10]
        few = self.num_train // 10
        return Splits(
            _Arranged(given.train, train, "train", self.num_train, self.sentence),
            _Arranged(given.test, [*range(len(given.test))], "test", few, self.sentence),
            _Arranged(given.train, valid, "valid", few, self.sentence),
        )


class _Arranged(Samples):
    """Arrangements of some digits. indices: of the digits that are used. split: part of what is drawn."""

    def __init__(self, digits: Any, indices: list[int], split: str, number: int, sentence: str):
        self.digits, self.split, self.sentence = digits, split, sentence
        self.by_class = [[i for i in indices if digits.labels[i] == digit] for digit in range(10)]
        labels = [self._sentence(i) if sentence == "label" else None for i in range(number)]
        super().__init__(self._raw, labels, key=self._key)

    def _key(self) -> str:
        """SHA-256 of all that the samples follow from."""
        return sha256(f"arrangements 1 {self.split} {len(self)} {self.sentence} {self.by_class}".encode()).hexdigest()

    def _raw(self, index: int) -> Any:
        image = torch.zeros(1, CELL * CELLS, CELL * CELLS)
        for digit, (row, column), which in self._placed(index):
            own = self.digits.read(self.by_class[digit][which % len(self.by_class[digit])])
            image[:, row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL] = own
        return image if self.sentence == "label" else {"image": image, "text": self._sentence(index)}

    def _placed(self, index: int) -> list[tuple[int, tuple[int, int], int]]:
        """Digit, cell, and which image of the digit, of three different digits in the order of their numbers."""
        draw = int.from_bytes(sha256(f"{self.split} {index}".encode()).digest(), "little")
        digits, cells, found = list(range(10)), list(range(CELLS**2)), []
        for _ in range(3):
            draw, place = divmod(draw, len(digits))
            digit = digits.pop(place)
            draw, place = divmod(draw, len(cells))
            cell = cells.pop(place)
            draw, which = divmod(draw, 2**16)
            found.append((digit, divmod(cell, CELLS), which))
        return sorted(found)

    def _sentence(self, index: int) -> str:
        (a, at_a, _), (b, at_b, _), (c, at_c, _) = self._placed(index)
        first, second = f"{WORDS[a]} is {relation(at_a, at_b)} {WORDS[b]}", f"is {relation(at_b, at_c)} {WORDS[c]}"
        return f"{first} , {WORDS[b]} {second}"


def relation(one: tuple[int, int], other: tuple[int, int]) -> str:
    """Where one cell (row, column) is, seen from another: "above", "left of", "below and right of"."""
    vertical = "above" if one[0] < other[0] else "below" if one[0] > other[0] else ""
    horizontal = "left of" if one[1] < other[1] else "right of" if one[1] > other[1] else ""
    return " and ".join(word for word in (vertical, horizontal) if word)
