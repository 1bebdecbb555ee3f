"""Docstrings of the house as Markdown."""

from pathlib import Path

import griffe
import pytest

from docs.website.docstrings import Entries, as_markdown


@pytest.mark.parametrize(
    ("text", "names", "shown"),
    [
        ("One line.", [], "One line."),
        ("Makes it.\n\nwave: [t] samples.", ["wave"], "Makes it.\n\n- `wave`: [t] samples."),
        ("a, b: sizes, in\nmm. Returns both.", ["a", "b"], "- `a`, `b`: sizes, in mm.\n- **Returns** both."),
        ("Costs little. note: this is prose.", ["a"], "Costs little. note: this is prose."),
        ("Raises ValueError for a\nnegative a.", ["a"], "- **Raises** ValueError for a negative a."),
        (">>> a: 3", ["a"], ">>> a: 3"),
    ],
)  # fmt: skip
def test_entries_are_items_of_a_list(text, names, shown):
    assert as_markdown(text, names) == shown


def test_constants_come_last_and_a_long_value_is_left_out():
    module = griffe.visit("m", Path("m.py"), f"A = 1\nB = {'x' * 300!r}\ndef f(): pass\nclass C:\n    D = 2\n")
    for member in (module["A"], module["B"], module["f"], module["C.D"]):
        Entries().on_object(obj=member)
    assert (str(module["A"].value), module["B"].value) == ("1", "...")
    assert module["f"].lineno < module["A"].lineno < module["B"].lineno
    assert module["C.D"].lineno == 5
