"""Counts and bytes as text."""

from seqkit.analysis.units import number, size


def test_numbers_have_units():
    assert [number(x) for x in (7, 1_300, 2.5e6, 174.6e9, 1.1e12)] == [
        "7",
        "1.3 k",
        "2.5 M",
        "174.6 B",
        "1.1 T",
    ]
    assert [size(x) for x in (7, 1_300, 698.4e9)] == ["7 B", "1.3 kB", "698.4 GB"]
