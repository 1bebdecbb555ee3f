"""Flags in pages: a browser breaks lines after a dash, and half a flag misleads."""

from __future__ import annotations

import re

_WHOLE = re.compile(
    r'<(?P<tag>style|script|title|svg)\b.*?</(?P=tag)>|<span class="flag">.*?</span>|<[^>]*>'
    r"|(?P<flag>(?<![\w-])--\w[\w.-]{0,40})",
    re.DOTALL,
)


def whole_flags(html: str) -> str:
    """HTML with each `--flag` of its text in a span that no line breaks; its tags and pictures stay as they are."""
    return _WHOLE.sub(
        lambda found: f'<span class="flag">{found[0]}</span>' if found["flag"] else found[0], html
    )
