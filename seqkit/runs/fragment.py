"""HTML that a run shows in a notebook, read from its folder, which may be somebody else's.

A notebook runs the scripts in what it shows. So the file is believed only if it is made of nothing but the tags and
attributes that our own template and figures use, letter by letter: no parser has to agree with the browser's.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

from seqkit.errors import DataError, printable
from seqkit.files import read_small

MAX_BYTES = 2**24

_ATTRIBUTE = r"""
    (?: (?:d|height|id|transform|version|viewBox|width|x|y) = "[^"<>&]*+"
    |   style = "(?![^"]*position)[^"<>&()\\]*+"
    |   clip-path = "url\(\#[\w.-]++\)"
    |   xlink:href = "\#[\w.-]++"
    |   xmlns(?::xlink)? = "http://www\.w3\.org/[\w/]++" )"""

_FRAGMENT = re.compile(
    rf"""(?: [^<>&]++ | &(?:lt|gt|amp|quot|\#\d++);
    |   < (?:b|clipPath|defs|div|g|p|path|rect|svg|table|tbody|td|text|th|thead|tr|use) (?:\s++{_ATTRIBUTE})*+ \s*+ /?>
    |   </ (?:b|clipPath|defs|div|g|p|path|svg|table|tbody|td|text|th|thead|tr|use) > )*+""",
    re.VERBOSE,
)


def read_fragment(path: Path) -> str | None:
    """HTML in a run's `summary.html`; None if there is none, or it holds anything that we do not write."""
    try:
        text = read_small(path, MAX_BYTES).decode("utf-8")
    except (OSError, DataError, UnicodeDecodeError):
        return None
    return text if _FRAGMENT.fullmatch(text) else None


def metrics_fragment(metrics: dict[str, Any]) -> str:
    """Metrics as a table, in HTML."""
    rows = (f"<tr><td>{escape(printable(name))}</td><td>{value:.4f}</td></tr>" for name, value in metrics.items())
    return f"<table>{''.join(rows)}</table>"
