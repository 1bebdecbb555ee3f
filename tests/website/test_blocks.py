"""Blocks of the site: the copy button copies what a reader types, and no line breaks a flag."""

import re

import pytest
import yaml
from markdown import Markdown

from docs.website.blocks import Blocks, typed
from docs.website.stage import ROOT

LINE = re.search(r"^  - (pymdownx.highlight.*)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)


def shown(text):
    markdown = Markdown(
        extensions=["pymdownx.highlight", "pymdownx.superfences", Blocks()],
        extension_configs=yaml.safe_load(LINE[1]),
    )
    return markdown.convert(text)


@pytest.mark.parametrize(
    ("session", "own"),
    [
        ("$ seqkit fit\nrecipe  test\n$ seqkit runs", "seqkit fit\nseqkit runs"),
        ("$ seqkit fit \\\n    --x 1\nprinted\n    too", "seqkit fit \\\n    --x 1"),
        (">>> for i in a:\n...     print(i)\n1\n>>> b", "for i in a:\n    print(i)\nb"),
        ("x = 1\nprint(x)", ""),
        ("a table \\\nof two lines", ""),
    ],
)
def test_what_a_reader_types_of_a_session(session, own):
    assert typed(session) == own


def test_a_block_with_prompts_says_what_is_copied():
    html = shown("```console\n$ seqkit fit text/char-lm --x '<a>'\nprinted\n```")
    assert (
        '<div class="language-console highlight" data-copy="seqkit fit text/char-lm --x &#x27;&lt;a&gt;&#x27;"' in html
    )
    assert "data-copy" not in shown("```python\nx = 1\n```")


def test_what_is_printed_has_a_class_of_its_own():
    assert '<div class="language-text highlight">' in shown("```text\nrecipe\n```")


def test_a_flag_of_inline_code_is_whole():
    assert '<code>seqkit <span class="flag">--version</span></code>' in shown("`seqkit --version`")


def test_a_picture_leads_to_itself_and_a_linked_one_where_it_led():
    assert '<a href="a.png"><img alt="a" src="a.png" /></a>' in shown("![a](a.png)")
    assert shown("[![a](a.png)](page.md)").count("<a ") == 1


def test_a_name_of_the_reference_breaks_at_its_dots():
    name = '<h3><span class="doc doc-object-name doc-class-name">{}</span></h3>'
    assert shown(name.format("seqkit.nn.moe")) == name.format("seqkit.<wbr>nn.<wbr>moe")
