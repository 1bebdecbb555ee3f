"""The copy button copies what a reader types of a session, and leaves its prompts and output."""

import pytest

pytest.importorskip("markdown")

from markdown import Markdown

from docs.website.blocks import Blocks


@pytest.mark.parametrize(
    ("block", "copied"),
    [
        (
            "console\n$ seqkit fit a \\\n  --out b\nprinted\n$ ls",
            'data-copy="seqkit fit a \\\n  --out b\nls"',
        ),
        ("pycon\n>>> for x in (1, 2):\n...     x\n1", 'data-copy="for x in (1, 2):\n    x"'),
    ],
)
def test_what_is_typed_is_copied(block, copied):
    page = Markdown(extensions=["pymdownx.superfences", "pymdownx.highlight", Blocks()])
    assert copied in page.convert(f"```{block}\n```")
    assert "data-copy" not in page.convert("```python\nx = 1\n```")
