"""Handwritten digits that move over a dark square: a clip is [t 1 h w] in [0, 1].

t frames · h height · w width · n digits
"""

from functools import partial
from hashlib import sha256
from typing import Literal

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.data import DataSource, Samples, Splits
from seqkit.recipes.image.digits import DIGITS, Mnist5k

FRAMES, SIDE, REACH = 8, 32, 2

DIRECTIONS = {
    "up": (-1, 0), "up-right": (-1, 1), "right": (0, 1), "down-right": (1, 1),
    "down": (1, 0), "down-left": (1, -1), "left": (0, -1), "up-left": (-1, -1),
}  # fmt: skip
"""Rows and columns of a step, by the name of the direction."""


class MovingDigits(DataSource):
    """`moving-digits`: each digit of `mnist-5k` in clips of 8 frames of 32 × 32 pixels, moving a pixel a frame.

    label: "both": the digit and one of eight directions, 80 classes such as "3 up-left"; "digit": the digit alone.
    rounds: clips of each digit of training, each in another direction.
    Where a digit is in the middle of the clip does not depend on its direction, so that no frame alone tells it. The
    split is that of `mnist-5k`: the digits of test are in no clip of training.
    """

    def __init__(self, label: Literal["both", "digit"] = "both", *, rounds: int = 1):
        if not 1 <= rounds <= len(DIRECTIONS):
            raise ValueError(f"rounds is {rounds}; give 1 to {len(DIRECTIONS)} clips of each digit")
        self.label, self.rounds = label, rounds

    def splits(self) -> Splits:
        digits = Mnist5k().splits()
        train, test = self._moving(digits.train, "train", self.rounds), self._moving(digits.test, "test", 1)
        names = DIGITS if self.label == "digit" else [f"{digit} {way}" for digit in DIGITS for way in DIRECTIONS]
        return Splits(train, test, None, names)

    def _moving(self, digits: Samples, split: str, rounds: int) -> Samples:
        """Clips of digits, from SHA-256 of split and index: the same on every machine."""
        drawn = [sha256(f"moving digits {split} {i}".encode()).digest() for i in range(len(digits))]
        moves = [(i, (key[0] + r) % 8, key[1] % (2 * REACH + 1), key[2] % (2 * REACH + 1)) for r in range(rounds) for i, key in enumerate(drawn)]
        labels = [digits.labels[i] if self.label == "digit" else 8 * digits.labels[i] + way for i, way, *_ in moves]
        groups = [f"{split} digit {i}" for i, *_ in moves] if rounds > 1 else None
        return Samples(partial(_clip, digits, moves), labels, groups=groups)


def _clip(digits: Samples, moves: list[tuple[int, int, int, int]], index: int) -> Tensor:
    """[t 1 h w]: the digit, cut at the edge of the square, at its place in each frame."""
    i, way, top, left = moves[index]
    image = digits.read(i)
    step = list(DIRECTIONS.values())[way]
    clip = torch.zeros(FRAMES, 1, 3 * SIDE, 3 * SIDE)
    for t in range(FRAMES):
        moved = t - FRAMES // 2
        y = SIDE + (SIDE - 28) // 2 + top - REACH + moved * step[0]
        x = SIDE + (SIDE - 28) // 2 + left - REACH + moved * step[1]
        clip[t, :, y : y + 28, x : x + 28] = image
    return clip[:, :, SIDE : 2 * SIDE, SIDE : 2 * SIDE].clone()
