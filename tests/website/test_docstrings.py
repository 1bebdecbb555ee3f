"""Docstrings of the house as Markdown."""

import pytest

from docs.website.docstrings import as_markdown


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
