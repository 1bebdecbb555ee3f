"""Arrangements: the sentence says what stands in the image, and no digit of one split is in another."""

import pytest
import torch

from seqkit.errors import DataError
from seqkit.recipes.audio.spoken_digits import WORDS
from seqkit.recipes.image.digits import Digits
from seqkit.recipes.multimodal.arrangements import CELL, CELLS, Arrangements


def found_in(image, digits) -> dict[int, tuple[int, int]]:
    """Class to cell of the digits of an image, by looking each cell up among all images of digits."""
    cells: dict[int, tuple[int, int]] = {}
    for row in range(CELLS):
        for column in range(CELLS):
            cell = image[:, row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]
            if bool(cell.any()):
                (label,) = {sample.label for sample in digits if torch.equal(sample.raw, cell)}
                cells[label] = (row, column)
    return cells


def test_the_sentence_says_where_each_digit_of_the_split_stands():
    """Each digit is found among those of its split: every tenth of the training digits is validation's."""
    splits, digits = Arrangements(num_train=40).splits(), Digits().splits()
    train = digits.train.at([i for i in range(len(digits.train)) if i % 10])
    for samples, known in (
        (splits.train, train),
        (splits.test, digits.test),
        (splits.valid, digits.train[::10]),
    ):
        for i in range(4):
            raw = samples[i].raw
            cells = found_in(raw["image"], known)
            assert len(cells) == 3
            words = raw["text"].split()
            claims = " ".join(words).split(" , ")
            order = sorted(cells)
            for claim, (one, other) in zip(claims, ((order[0], order[1]), (order[1], order[2]))):
                first, _, *where, last = claim.split()
                assert (first, last) == (WORDS[one], WORDS[other])
                (y, x), (v, u) = cells[one], cells[other]
                assert ("above" in where, "below" in where) == (y < v, y > v)
                assert ("left" in where, "right" in where) == (x < u, x > u)


def test_sentences_are_the_raw_part_or_the_label():
    part, label = (
        Arrangements(num_train=10, sentence=how).splits().train[3] for how in ("part", "label")
    )
    assert torch.equal(part.raw["image"], label.raw)
    assert (part.raw["text"], part.label) == (label.label, None)


def test_samples_end_and_are_the_same_again():
    one, other = Arrangements(num_train=20).splits(), Arrangements(num_train=20).splits()
    assert len(list(one.train)) == 20
    assert one.train.key() == other.train.key() != one.test.key()
    assert [x.raw["text"] for x in one.train] == [x.raw["text"] for x in other.train]
    assert len({x.raw["text"] for x in one.train}) > 15


@pytest.mark.parametrize("bad", [{"num_train": 9}, {"sentence": "both"}])
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises((ValueError, DataError), match=r"give"):
        Arrangements(**bad)
