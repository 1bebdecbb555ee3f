"""Flags in pages: whole, and in text alone."""

import pytest

from seqkit.report.flags import whole_flags


@pytest.mark.parametrize(
    ("html", "marked"),
    [
        (
            "<p>or --trainer.max_steps=3</p>",
            '<p>or <span class="flag">--trainer.max_steps</span>=3</p>',
        ),
        ("<p>a -- b, c--d, ---e</p>", None),
        ("<a title='--flag'>a</a>", None),
        ("<style>:root { a: var(--paper) }</style><title>--flag</title>", None),
        ("<svg><text>--flag</text></svg>", None),
        ("<script>if (0 < --i) {}</script>", None),
        ('<span class="flag">--flag</span>', None),
    ],
)
def test_a_flag_of_the_text_is_in_a_span(html, marked):
    assert whole_flags(html) == (marked or html)
