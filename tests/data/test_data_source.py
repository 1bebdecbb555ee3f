import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import seqkit.data
from seqkit.contract import DataError
from seqkit.data.source import Files, Sample, Subset, labels_of, need, shuffled, stratified, where
from seqkit.registry import parts

LABELS = [0] * 31 + [1] * 17 + [2] * 2 + [3]


def test_a_split_has_every_sample_once_and_the_fraction_of_each_class():
    rest, aside = stratified(LABELS, 0.2, seed=3)
    assert sorted(rest + aside) == list(range(len(LABELS)))
    assert Counter(LABELS[i] for i in aside) == {0: 6, 1: 3, 2: 1}  # a class of one stays in the rest


def test_a_split_is_mixed_and_depends_on_the_seed_alone():
    rest, _ = stratified(LABELS, 0.2, seed=3)
    assert rest != sorted(rest)
    thousand = [c for c in range(10) for _ in range(100)]
    assert min(len({thousand[i] for i in part[:30]}) for part in stratified(thousand, 0.2, seed=0)) >= 8
    assert stratified(LABELS, 0.2, seed=3)[0] == rest
    assert stratified(LABELS, 0.2, seed=5)[0] != rest


def test_the_published_order_does_not_drift():
    assert shuffled(7, seed=0) == [6, 4, 2, 1, 5, 0, 3]


def test_measurements_are_one_stratum():
    rest, aside = stratified([0.5 * i for i in range(23)], 0.2, seed=0)
    assert (len(rest), len(aside)) == (18, 5)


def test_nothing_is_set_aside_at_fraction_zero_and_one_is_refused():
    assert stratified(LABELS, 0.0, seed=0)[1] == []
    with pytest.raises(ValueError, match=r"fraction is 1\.0"):
        stratified(LABELS, 1.0, seed=0)


def test_files_are_read_when_asked_for_and_know_their_names():
    read = []
    files = Files([Path("a"), Path("b"), Path("c")], [2, 3, 5], lambda path: read.append(path) or path.name * 2)
    subset = Subset(files, [2, 0])
    assert labels_of(subset) == [5, 2]
    assert read == []
    assert subset[0] == Sample("cc", 5)
    assert where(subset, 1) == "a"
    assert where([Sample("x")], 0) == "sample 0"
    assert list(files[1:]) == [Sample("bb", 3), Sample("cc", 5)]


def test_a_missing_package_says_how_to_install_it():
    with pytest.raises(DataError, match=r'pip install "seqkit\[image\]"'):
        need("no_such_package_of_ours.data", "image")


@pytest.mark.parametrize("name", parts("source"))
def test_every_registered_source_is_there(name):
    assert issubclass(parts("source")[name].load(), seqkit.data.Source)


@pytest.mark.parametrize("name", seqkit.data.__all__)
def test_every_exported_name_is_there(name):
    assert getattr(seqkit.data, name).__name__ == name


def test_importing_the_package_imports_no_torch():
    code = "import seqkit.data, sys; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
