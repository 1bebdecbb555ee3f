"""ETTh1 by the field's protocol, and MNIST-1D by the package that draws it."""

import random
import sys

import numpy as np
import pytest
import torch

from seqkit.errors import DataError
from seqkit.recipes.series import benchmarks
from seqkit.recipes.series.benchmarks import MONTH, ETTh1, Mnist1D


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """A table in place of ETTh1's, whose numbers tell their hour: the hour, and ten times the hour."""
    hours = np.arange(20 * MONTH + 9)
    path = tmp_path / "ETTh1.csv"
    lines = ["date,a,b", *(f"2016-07-01 {hour},{hour},{10 * hour}" for hour in hours)]
    path.write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(benchmarks, "fetch", lambda *args: path)


@pytest.mark.slow
def test_windows_of_etth1_end_where_the_months_of_their_split_do(counted):
    train = np.arange(12 * MONTH)
    splits = ETTh1(past=1000, ahead=700).splits()
    expected = {
        "train": (1000, 12 * MONTH),
        "valid": (12 * MONTH, 16 * MONTH),
        "test": (16 * MONTH, 20 * MONTH),
    }
    for name, (start, end) in expected.items():
        samples = list(getattr(splits, name))
        assert len(samples) == 2 * (end - start - 700 + 1)  # two columns, each by itself
        for sample, hour in ((samples[0], start), (samples[-1], end - 700)):
            wanted = (np.arange(hour - 1000, hour + 700) - train.mean()) / train.std()
            found = torch.cat([sample.raw[:, 0], sample.label])
            torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float32))


def test_a_window_longer_than_the_validation_part_is_refused():
    with pytest.raises(ValueError, match="2880 in all at most"):
        ETTh1(past=2000, ahead=1000)


@pytest.mark.slow
def test_the_last_value_of_etth1_is_as_wrong_as_published(shared_data):
    """Zeng et al. 2023, table 2: "Repeat" has a squared error of 1.295, 96 hours ahead."""
    test = ETTh1().splits().test
    last = torch.stack([sample.raw[-1] for sample in test])
    assert (torch.stack(test.labels) - last).square().mean().item() == pytest.approx(
        1.295, abs=0.002
    )


@pytest.mark.slow
def test_mnist1d_is_the_packages_and_leaves_global_generators_alone():
    pytest.importorskip("mnist1d")
    plain, numpys = random.getstate(), str(np.random.get_state())  # noqa: NPY002
    first, second = Mnist1D().splits(), Mnist1D().splits()
    assert random.getstate() == plain
    assert str(np.random.get_state()) == numpys  # noqa: NPY002
    assert (len(first.train), len(first.test)) == (4000, 1000)
    assert first.test[7].raw.shape == (40, 1)
    assert torch.equal(first.test[7].raw, second.test[7].raw)
    numbers = torch.stack([sample.raw for sample in (*first.train, *first.test)])
    assert numbers.mean().abs() < 1e-6
    assert numbers.std(correction=0) == pytest.approx(1, abs=1e-6)


def test_without_the_package_mnist1d_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mnist1d.data", None)
    with pytest.raises(DataError, match="pip install mnist1d"):
        Mnist1D().splits()
