"""Extension of Markdown for what the theme leaves out.

No line breaks a flag, names of the reference break at their dots, a picture leads to itself in full size, and the copy
button copies what a reader types.
"""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

from seqkit.report.flags import whole_flags

BLOCK = re.compile(r'<div class="(?:language-\w+ )?highlight"(?=><pre>(?P<code>.*?)</pre>)', re.DOTALL)

LINKED = re.compile(r'<a\b[^>]*>.*?</a>|<img\b[^>]*?\ssrc="(?P<src>[^"]+)"[^>]*>', re.DOTALL)
NAME = re.compile(r'(?<=<span class="doc doc-object-name )[^>]*>[^<]*')


def typed(text: str) -> str:
    """What a reader types of a session, without its prompts and what it prints; empty if it has no prompt.

    A line after one that ends in a backslash goes with it.
    """
    kept: list[str] = []
    goes_on = False
    for line in text.splitlines():
        if prompt := re.match(r"\$ |>>> ?|\.\.\. ?", line):
            kept.append(line[prompt.end() :])
        elif goes_on:
            kept.append(line)
        goes_on = line.endswith("\\") and (goes_on or prompt is not None)
    return "\n".join(kept)


class _Blocks(Postprocessor):
    def run(self, text: str) -> str:
        """The page's HTML with all of these."""
        text = LINKED.sub(self._opened, BLOCK.sub(self._copied, text))
        return whole_flags(NAME.sub(lambda name: re.sub(r"([._])(?=\w)", r"\1<wbr>", name[0]), text))

    def _opened(self, found: re.Match[str]) -> str:
        return f'<a href="{found["src"]}">{found[0]}</a>' if found["src"] else found[0]

    def _copied(self, block: re.Match[str]) -> str:
        what = typed(unescape(re.sub(r"<[^>]*>", "", block["code"])))
        return f'{block[0]} data-copy="{escape(what)}"' if what else block[0]


class Blocks(Extension):
    """Marks all of it in each page; the theme's button copies `data-copy` where a block has it."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Work on the whole HTML, after all other extensions."""
        md.postprocessors.register(_Blocks(md), "seqkit", -100)


def makeExtension(**settings: Any) -> Blocks:
    """The extension, as `markdown_extensions` of mkdocs.yml loads it."""
    return Blocks(**settings)
