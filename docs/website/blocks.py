"""Extension of Markdown: no line breaks a flag, and the copy button copies what a reader types."""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

from seqkit.report.flags import whole_flags

BLOCK = re.compile(
    r'<div class="(?:language-\w+ )?highlight"(?=><pre>(?P<code>.*?)</pre>)', re.DOTALL
)
TYPED = re.compile(r"^(?:\$ |>>> ?|\.\.\. ?)((?:.*\\\n)*.*)", re.MULTILINE)
"""A line after a prompt, with those that continue it."""


class _Blocks(Postprocessor):
    def run(self, text: str) -> str:
        """The page's HTML; the theme's button copies `data-copy` where a block has it: a session without its output."""
        return whole_flags(BLOCK.sub(self._copied, text))

    def _copied(self, block: re.Match[str]) -> str:
        typed = "\n".join(TYPED.findall(unescape(re.sub(r"<[^>]*>", "", block["code"]))))
        return f'{block[0]} data-copy="{escape(typed)}"' if typed else block[0]


class Blocks(Extension):
    """Works on the whole HTML, after all other extensions."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register the postprocessor."""
        md.postprocessors.register(_Blocks(md), "seqkit", -100)


def makeExtension(**settings: Any) -> Blocks:
    """The extension, as `markdown_extensions` of mkdocs.yml loads it."""
    return Blocks(**settings)
