"""Images with an official test split, downloaded once: `mnist`, `fashion-mnist` and `cifar10`.

c channels · h height · w width
"""

import tarfile

import numpy as np
from einops import rearrange

from seqkit.data import DataSource, Samples, Splits, fetch
from seqkit.data.download import find, writable
from seqkit.errors import DataError, one_line
from seqkit.recipes.image.digits import DIGITS, images


class Mnist(DataSource):
    """`mnist`: 70,000 handwritten digits, 1 × 28 × 28: the official 60,000 / 10,000. Downloads 11 MB once."""

    def splits(self) -> Splits:
        return _by_torchvision("MNIST", DIGITS)


class FashionMnist(DataSource):
    """`fashion-mnist`: 70,000 pieces of clothing, 1 × 28 × 28: the official 60,000 / 10,000. Downloads 30 MB once."""

    def splits(self) -> Splits:
        names = [
            "T-shirt",
            "trouser",
            "pullover",
            "dress",
            "coat",
            "sandal",
            "shirt",
            "sneaker",
            "bag",
            "ankle boot",
        ]
        return _by_torchvision("FashionMNIST", names)


class Cifar10(DataSource):
    """`cifar10`: 60,000 colour photographs, 3 × 32 × 32: the official 50,000 / 10,000. Downloads 170 MB once.

    The binary release is read, as the Python release, which torchvision reads, is a pickle.
    """

    def splits(self) -> Splits:
        path = fetch(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            "cifar10/cifar-10-binary.tar.gz",
        )
        files = (
            f"cifar-10-batches-bin/{name}.bin"
            for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
        )
        with tarfile.open(path) as archive:  # members are read in memory: nothing is extracted
            *train, test = (file.read() for file in map(archive.extractfile, files) if file)
        names = [
            "airplane",
            "automobile",
            "bird",
            "cat",
            "deer",
            "dog",
            "frog",
            "horse",
            "ship",
            "truck",
        ]
        return Splits(_records(b"".join(train)), _records(test), None, names)


def _records(data: bytes) -> Samples:
    """CIFAR-10's binary records: 1 byte class, 3,072 bytes pixels."""
    records = rearrange(np.frombuffer(bytearray(data), dtype=np.uint8), "(n r) -> n r", r=3073)
    return images(rearrange(records[:, 1:], "n (c h w) -> n c h w", c=3, h=32), records[:, 0])


def _by_torchvision(name: str, names: list[str]) -> Splits:
    """MNIST or a set of its format, whose idx files torchvision downloads, verifies and reads."""
    from torchvision import datasets

    folder = find(name) or writable(name)
    if (folder / "processed").exists():
        raise DataError(
            f"{folder / 'processed'} has pickles of an old torchvision, which are not read; delete it"
        )
    try:
        read = [
            getattr(datasets, name)(folder.parent, train=train, download=True)
            for train in (True, False)
        ]
    except (OSError, RuntimeError, ValueError, AssertionError) as error:
        raise DataError(
            f"{name} can be neither read nor downloaded ({type(error).__name__}: {one_line(error)[:200]}); put the raw "
            f"files of torchvision.datasets.{name} into {folder / 'raw'}"
        ) from error
    train, test = (
        images(rearrange(one.data.numpy(), "n h w -> n 1 h w"), one.targets) for one in read
    )
    return Splits(train, test, None, names)
