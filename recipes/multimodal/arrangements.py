"""Arrangements of handwritten digits on a grid, and the sentence that says where they stand."""

from functools import partial
from hashlib import sha256
from typing import Any, Literal

import torch

from seqkit.data import DataSource, Samples, Splits
from seqkit.recipes.audio.spoken_digits import WORDS
from seqkit.recipes.image.digits import Digits

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

    def __init__(self, *, num_train: int = 10_000, sentence: Literal["part", "label"] = "part"):
        if num_train < 10 or sentence not in ("part", "label"):
            raise ValueError(
                f"num_train={num_train}, sentence={sentence!r}; give 10 or more, and part or label"
            )
        self.num_train, self.sentence = num_train, sentence

    def splits(self) -> Splits:
        digits, few = Digits().splits(), self.num_train // 10
        others = [i for i in range(len(digits.train)) if i % 10]
        return Splits(
            train=self._arranged(digits.train.at(others), "train", self.num_train),
            test=self._arranged(digits.test, "test", few),
            valid=self._arranged(digits.train[::10], "valid", few),
        )

    def _arranged(self, digits: Samples, split: str, number: int) -> Samples:
        by_class = [
            [i for i, label in enumerate(digits.labels) if label == digit] for digit in range(10)
        ]
        labels = [
            sentence_of(split, i) if self.sentence == "label" else None for i in range(number)
        ]
        key = sha256(
            f"arrangements 2 {split} {number} {self.sentence} {by_class}".encode()
        ).hexdigest()
        return Samples(
            partial(_raw, digits, by_class, split, self.sentence), labels, key=partial(str, key)
        )


def _raw(digits: Samples, by_class: list[list[int]], split: str, sentence: str, index: int) -> Any:
    image = torch.zeros(1, CELL * CELLS, CELL * CELLS)
    for digit, (row, column), which in placed(split, index):
        own = digits.read(by_class[digit][which % len(by_class[digit])])
        image[:, row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL] = own
    return image if sentence == "label" else {"image": image, "text": sentence_of(split, index)}


def placed(split: str, index: int) -> list[tuple[int, tuple[int, int], int]]:
    """Digit, cell, and which image of the digit, of three different digits in the order of their numbers."""
    draw = int.from_bytes(sha256(f"{split} {index}".encode()).digest(), "little")
    digits, cells, found = list(range(10)), list(range(CELLS**2)), []
    for _ in range(3):
        draw, digit = divmod(draw, len(digits))
        draw, cell = divmod(draw, len(cells))
        draw, which = divmod(draw, 2**16)
        found.append((digits.pop(digit), divmod(cells.pop(cell), CELLS), which))
    return sorted(found)


def sentence_of(split: str, index: int) -> str:
    """The sentence on three digits, such as "one is left of two , two is above six"."""
    (a, at_a, _), (b, at_b, _), (c, at_c, _) = placed(split, index)
    return f"{WORDS[a]} is {relation(at_a, at_b)} {WORDS[b]} , {WORDS[b]} is {relation(at_b, at_c)} {WORDS[c]}"


def relation(one: tuple[int, int], other: tuple[int, int]) -> str:
    """Where one cell (row, column) is, seen from another: "above", "left of", "below and right of"."""
    vertical = "above" if one[0] < other[0] else "below" if one[0] > other[0] else ""
    horizontal = "left of" if one[1] < other[1] else "right of" if one[1] > other[1] else ""
    return " and ".join(word for word in (vertical, horizontal) if word)
