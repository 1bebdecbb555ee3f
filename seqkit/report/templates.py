"""HTML and Markdown from this package's templates. Values are printable text, never markup, unless one says `safe`."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seqkit.errors import printable
from seqkit.files import write_atomic
from seqkit.report.flags import whole_flags
from seqkit.report.headline import format_metric, metric_label


def fill(template: str, **values: Any) -> str:
    """A template with these values."""
    loader = PackageLoader("seqkit.report", ".")
    is_html = template.endswith(".html")
    environment = Environment(
        loader=loader,
        autoescape=is_html,  # noqa: S701 - `_markdown` escapes
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_text if is_html else _markdown,
    )
    environment.globals |= {"format_metric": format_metric, "metric_label": metric_label}
    environment.filters["breakable"] = breakable
    return environment.get_template(template).render(**values)


def tidied(text: str) -> str:
    """Markdown with at most one empty line between others, and one line feed at its end."""
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def breakable(text: str) -> Markup:
    """A path or names that a narrow page breaks after slashes, plus signs, commas and underscores alone."""
    return Markup("<wbr>").join(
        re.split(r"(?<=/)(?=\w{2})|(?<=[A-Za-z][+,_])(?=\w)", printable(text))
    )


def _text(value: Any) -> Any:
    """A value as a template shows it: text without control characters; markup and numbers as they are."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value


def _markdown(value: Any) -> Any:
    """A value as a Markdown template shows it: text in one line, with all marks of Markdown escaped."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    # not every Markdown reads \<
    marked = re.sub(r"[\\`*_\[\]>|#]", r"\\\g<0>", value).replace("<", "&lt;")
    return printable(" ".join(marked.split()))


def write_page(template: str, path: Path, **values: Any) -> Path:
    """Fill a template, in the common style, and write it whole or not at all, making its folder."""
    style = files("seqkit.report").joinpath("page.css").read_text(encoding="utf-8")
    page = whole_flags(_numbered(fill(template, style=style, **values)))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, page.encode())
    return path


def _numbered(page: str) -> str:
    """A page whose figures have ids of their own, although one picture may stand in it twice."""
    numbers = count(1)

    def renamed(figure: re.Match[str]) -> str:
        return re.sub(
            r'(\sid="|url\(#|href="#)(?=f[0-9a-f]{8}-)', rf"\g<1>n{next(numbers)}-", figure[0]
        )

    return re.sub(r"<svg\b.*?</svg>", renamed, page, flags=re.DOTALL)
