"""Handwritten digits that move over a dark square: a clip is [t 1 h w] in [0, 1].

t frames · h height · w width · n digits
"""

from functools import partial
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqkit.data import DataSource, Samples, Splits
from seqkit.recipes.image.digits import DIGITS, Mnist5k

FRAMES, SIDE, REACH = 8, 32, 2
"""Frames of a clip, pixels of a side, and most pixels from the centre to where a digit is in the middle of the clip."""

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
        self.label, self.rounds, self.frames = label, rounds, list(range(FRAMES))

    def read_for(self, tokenizer: Any) -> None:
        """Make the frames alone that the tokenizer samples."""
        if hasattr(tokenizer, "sample"):
            self.frames = tokenizer.sample(FRAMES)

    def splits(self) -> Splits:
        digits = Mnist5k().splits()
        train, test = (
            self._moving(digits.train, "train", self.rounds),
            self._moving(digits.test, "test", 1),
        )
        names = (
            DIGITS
            if self.label == "digit"
            else [f"{digit} {way}" for digit in DIGITS for way in DIRECTIONS]
        )
        return Splits(train, test, None, names)

    def _moving(self, digits: Samples, split: str, rounds: int) -> Samples:
        """Clips of digits, from SHA-256 of split and index: the same on every machine."""
        keys = [sha256(f"moving digits {split} {i}".encode()).digest() for i in range(len(digits))]
        moves = [
            Move(i, (key[0] + r) % 8, key[1 + 2 * r], key[2 + 2 * r])
            for r in range(rounds)
            for i, key in enumerate(keys)
        ]
        classes = [digits.labels[move.digit] for move in moves]
        labels = (
            classes
            if self.label == "digit"
            else [8 * digit + move.way for digit, move in zip(classes, moves)]
        )
        groups = [f"{split} digit {move.digit}" for move in moves] if rounds > 1 else None
        return Samples(partial(_clip, digits, moves, self.frames), labels, groups=groups)


class Move(NamedTuple):
    """Index of a digit, index of a direction, and two numbers by which its place is drawn."""

    digit: int
    way: int
    down: int
    right: int


def _clip(digits: Samples, moves: list[Move], frames: list[int], index: int) -> Tensor:
    """[t 1 h w]: the digit at its place in each frame, without what is beyond the edge of the square."""
    move = moves[index]
    image, steps = (
        F.pad(digits.read(move.digit)[0], [SIDE] * 4),
        list(DIRECTIONS.values())[move.way],
    )
    corners = [
        SIDE - (SIDE - 28) // 2 + drawn % (2 * REACH + 1) - REACH
        for drawn in (move.down, move.right)
    ]
    shown = (
        [corner - (t - FRAMES // 2) * step for corner, step in zip(corners, steps)] for t in frames
    )
    return torch.stack([image[y : y + SIDE, x : x + SIDE] for y, x in shown])[:, None]
